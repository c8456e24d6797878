//! The engine without sockets: how it scales over two threads, and what an entry costs.

use crate::bench::{Experiment, Leg, On, Plan, Work};

/// The experiment's name in results.
pub const NAME: &str = "engine";
/// Its series.
pub const SERIES: &str = "engine";

pub fn experiment(plan: &Plan) -> Experiment {
    let leg = |part: &str| Leg {
        series: SERIES.into(),
        point: part.into(),
        on: On::Nothing,
        before: Vec::new(),
        work: Work::Program(format!(
            "cargo bench --bench engine -- {part} --json{}",
            if plan.quick { " --quick" } else { "" }
        )),
    };
    Experiment {
        number: 1,
        name: NAME,
        title: "The engine alone",
        question: "How does the engine alone scale from one thread to two?",
        about: "No sockets, no host: two threads run commands on the engine's shards. `of 2` is \
                the throughput of two threads over that of one, divided by what two threads of \
                plain computation get out of this machine in the same round. Bytes are those above \
                key and value, as midi's books count them.",
        points: "part",
        least_seconds: 0.0,
        servers: Vec::new(),
        data: Vec::new(),
        legs: vec![leg("threads"), leg("bytes")],
    }
}
