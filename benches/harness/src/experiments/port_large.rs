//! midi's RESP port over as many keys as a large instance has.

use super::{Mix, PIPELINES, echo, port};
use crate::bench::{Experiment, Fill, How, Leg, Plan};
use crate::server::Catalogue;

/// The experiment's name in results.
pub const NAME: &str = "port-large";
/// The series of midi's port.
pub const MIDI: &str = port::MIDI;

pub fn experiment(catalogue: &Catalogue, plan: &Plan) -> Experiment {
    let midi = catalogue.midi_port(MIDI, 1);
    let redis = catalogue.redis().with("--enable-debug-command yes");
    let mut legs: Vec<Leg> =
        PIPELINES.map(|pipeline| port::echo_leg(pipeline, plan.populate)).into();
    for mix in [Mix::Get, Mix::Set] {
        for pipeline in PIPELINES {
            legs.extend(
                [&midi, &redis].map(|server| port::leg(server, mix, "", pipeline, plan.populate)),
            );
        }
    }
    let populated = |server: &str, command: &str| Fill {
        server: server.into(),
        how: How::Once(format!("{command} {} key 64", plan.populate)),
    };
    Experiment {
        number: 1,
        name: NAME,
        title: "The RESP port: 10 M keys",
        question: "What changes when the keys no longer fit into the processor's caches?",
        about: "GET and SET over the keys that MIDI.POPULATE and DEBUG POPULATE make (10 M; 1 M in \
                a quick run), 64-byte values, uniform keys, 50 connections, one load thread. \
                Server and load on cores of their own; midi's port has one worker.",
        points: "load",
        least_seconds: 0.0,
        data: vec![
            populated(&midi.name, "MIDI.POPULATE"),
            populated(&redis.name, "DEBUG POPULATE"),
        ],
        servers: vec![echo(), midi, redis],
        legs,
    }
}
