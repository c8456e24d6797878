//! Memory per key: how much a server grows when it is filled.

use super::set_command;
use crate::bench::{Experiment, Filling, Leg, Load, On, Plan, Work};
use crate::server::{Catalogue, Spec};

/// The experiment's name in results.
pub const NAME: &str = "memory";
/// Its only point.
pub const POINT: &str = "64-byte values";
/// Its figure.
pub const FIGURE: &str = "bytes per key";
/// midi's series.
pub const MIDI: &str = "midi";

pub fn experiment(catalogue: &Catalogue, plan: &Plan) -> Experiment {
    let leg = |spec: Spec, command: &str| Leg {
        series: spec.name.clone(),
        point: POINT.into(),
        before: Vec::new(),
        work: Work::Memory(Filling {
            load: Load::new("fill", command),
            keys: plan.keys,
            of_each: 1,
            figure: FIGURE,
        }),
        on: On::Fresh(Box::new(spec)),
    };
    let mut legs = vec![leg(catalogue.midi(MIDI), "MIDI.SET {key} {value}")];
    legs.extend(catalogue.peers().into_iter().map(|peer| {
        let command = set_command(peer.kind);
        leg(peer, command)
    }));
    Experiment {
        number: 1,
        name: NAME,
        title: "Memory per key",
        question: "How much memory does a key take?",
        about: "Resident memory that an empty server grows by when 1 M keys `key:N` with values of \
                64 bytes are stored, divided by the keys: keys, values, tables, allocator, buffers \
                of 10 connections.",
        points: "data",
        least_seconds: 0.0,
        servers: Vec::new(),
        data: Vec::new(),
        legs,
    }
}
