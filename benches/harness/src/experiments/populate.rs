//! MIDI.POPULATE compared with DEBUG POPULATE, and how either affects a PING.

use crate::bench::{Experiment, Leg, Load, On, Plan, Rate, Work};
use crate::server::{Catalogue, Cores};

/// The experiment's name in results.
pub const NAME: &str = "populate";
/// midi's series.
pub const MIDI: &str = "MIDI.POPULATE";
/// The stock server's.
pub const STOCK: &str = "DEBUG POPULATE";

/// The number of keys in readable form.
pub fn point(keys: u64) -> String {
    format!("{} M keys", keys / 1_000_000)
}

pub fn experiment(catalogue: &Catalogue, plan: &Plan) -> Experiment {
    let server = catalogue.midi("midi").with("--enable-debug-command yes").on(Cores::Shared);
    let leg = |series: &str| Leg {
        series: series.into(),
        point: point(plan.populate),
        on: On::Fresh(Box::new(server.clone())),
        before: Vec::new(),
        work: Work::Timed(
            format!("{series} {}", plan.populate),
            Load::new("probe", "PING")
                .with("--connections 1 --pipeline 1000")
                .rate(Rate::Fixed(1000.0)),
        ),
    };
    Experiment {
        number: 1,
        name: NAME,
        title: "Making keys: MIDI.POPULATE and DEBUG POPULATE",
        question: "How fast are very many keys created, and who waits meanwhile?",
        about: "Both on a fresh server of the same build, all cores. The probe sends 1000 PINGs a \
                second on a connection of its own; a latency counts from when the PING was due.",
        points: "keys",
        least_seconds: 0.0,
        servers: Vec::new(),
        data: Vec::new(),
        legs: vec![leg(MIDI), leg(STOCK)],
    }
}
