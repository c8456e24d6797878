//! midi's RESP port beside the peers, each as it makes most of all cores, with the load on them too.

use super::{Mix, PIPELINES, native_data, port};
use crate::bench::{Experiment, Leg, Plan};
use crate::server::{Catalogue, Cores};

/// What the experiment is called in results.
pub const NAME: &str = "port-all-cores";
/// The series of midi's port.
pub const MIDI: &str = "midi port, 2 workers";

/// The mixes that are run over Zipf-distributed keys too, and how deep.
pub const ZIPF: [Mix; 2] = [Mix::Get, Mix::Both];
/// See [`ZIPF`].
pub const ZIPF_PIPELINE: u64 = 10;

/// What the points of the plots call a mix over Zipf-distributed keys.
pub fn zipf_point(mix: Mix) -> String {
    format!("{}, Zipf 0.99", mix.point(ZIPF_PIPELINE))
}

pub fn experiment(catalogue: &Catalogue, plan: &Plan) -> Experiment {
    let mut servers = vec![catalogue.midi_port(MIDI, 2).on(Cores::Shared)];
    servers.extend(catalogue.peers_on_all_cores());
    let mut legs = Vec::new();
    for mix in Mix::ALL {
        for pipeline in PIPELINES {
            legs.extend(servers.iter().map(|server| port::leg(server, mix, "", pipeline, plan.keys)));
        }
    }
    for mix in ZIPF {
        legs.extend(servers.iter().map(|server| {
            let args = format!("--pipeline {ZIPF_PIPELINE} --keys {} --distribution zipf:0.99", plan.keys);
            let load = mix.load(server.kind, "").with(&args);
            Leg::new(&server.name, &zipf_point(mix), &server.name, vec![load])
        }));
    }
    Experiment {
        number: 1,
        name: NAME,
        title: "The RESP port: all cores",
        about: "GET, SET and as many of each, 64-byte values, 50 connections, one load thread; all cores shared with \
                the load. midi's port has two workers, and the peers the threads that their names tell. `two redis`: \
                two processes, the client splits the keys.",
        points: "load",
        least_seconds: 0.0,
        data: servers.iter().map(|server| native_data(server, plan.keys)).collect(),
        servers,
        legs,
    }
}
