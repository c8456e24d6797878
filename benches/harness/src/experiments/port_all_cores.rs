//! midi's RESP port compared with the peers, each in its best configuration for all cores, with the
//! load on the same cores.

use super::{Mix, PIPELINES, native_data};
use crate::bench::{Experiment, Leg, Plan};
use crate::server::{Catalogue, Cores, Spec};

/// The experiment's name in results.
pub const NAME: &str = "port-all-cores";
/// The series of midi's port.
pub const MIDI: &str = "midi port, 2 workers";

/// The mixes that also run over Zipf-distributed keys, and their pipeline depths.
pub const ZIPF: [Mix; 2] = [Mix::Get, Mix::Both];
/// See [`ZIPF`].
pub const ZIPF_PIPELINE: u64 = 10;

/// The name of a mix over Zipf-distributed keys at the points of the plots.
pub fn zipf_point(mix: Mix) -> String {
    format!("{}, Zipf 0.99", mix.point(ZIPF_PIPELINE))
}

pub fn experiment(catalogue: &Catalogue, plan: &Plan) -> Experiment {
    let mut servers = vec![catalogue.midi_port(MIDI, 2).on(Cores::Shared)];
    servers.extend(catalogue.peers_on_all_cores());
    let leg = |server: &Spec, mix: Mix, point: String, args: &str| {
        // One load thread cannot saturate two threads of a server.
        let load =
            mix.load(server.kind, "").with(&format!("--threads 2 --keys {} {args}", plan.keys));
        Leg::new(&server.name, &point, &server.name, vec![load])
    };
    let mut legs = Vec::new();
    for mix in Mix::ALL {
        for pipeline in PIPELINES {
            let args = format!("--pipeline {pipeline}");
            legs.extend(servers.iter().map(|server| leg(server, mix, mix.point(pipeline), &args)));
        }
    }
    for mix in ZIPF {
        let args = format!("--pipeline {ZIPF_PIPELINE} --distribution zipf:0.99");
        legs.extend(servers.iter().map(|server| leg(server, mix, zipf_point(mix), &args)));
    }
    Experiment {
        number: 1,
        name: NAME,
        title: "The RESP port: all cores",
        question: "How many commands a second does a server answer with all cores?",
        about: "GET, SET and as many of each, 64-byte values, 50 connections, two load threads; \
                all cores shared with the load. midi's port has two workers, and the peers the \
                threads that their names tell. `two redis`: two processes, the client splits the \
                keys.",
        points: "load",
        least_seconds: 0.0,
        data: servers.iter().map(|server| native_data(server, plan.keys)).collect(),
        servers,
        legs,
    }
}
