//! Values of 100 kB through every door, beside stock servers.

use super::{Mix, midi_data, native_data};
use crate::bench::{Experiment, Leg, Plan};
use crate::server::{Catalogue, Spec};

/// The experiment's name in results.
pub const NAME: &str = "large-values";
/// The series of midi's port.
pub const MIDI: &str = "midi port";
/// The series of the host door.
pub const HOST_DOOR: &str = "midi host door";
/// The series of the host's own commands, on the host door's server.
pub const NATIVE: &str = "native";

/// The mixes.
pub const MIXES: [Mix; 2] = [Mix::Get, Mix::Set];
/// Pipeline depths.
pub const DEPTHS: [u64; 2] = [1, 4];

/// 100 MB on each server: more than the processor's caches hold.
const KEYS: u64 = 1000;
const SIZE: &str = "--value-size 100000";

pub fn experiment(catalogue: &Catalogue, _: &Plan) -> Experiment {
    let (port, host) = (catalogue.midi_port(MIDI, 1), catalogue.midi(HOST_DOOR));
    let peers = catalogue.stock();
    let mut legs = Vec::new();
    for mix in MIXES {
        for depth in DEPTHS {
            let mut leg = |series: &str, server: &Spec, prefix: &str| {
                let args = format!("--pipeline {depth} --keys {KEYS} {SIZE}");
                let load = mix.load(server.kind, prefix).with(&args);
                legs.push(Leg::new(series, &mix.point(depth), &server.name, vec![load]));
            };
            leg(MIDI, &port, "");
            leg(HOST_DOOR, &host, "MIDI.");
            leg(NATIVE, &host, "");
            peers.iter().for_each(|peer| leg(&peer.name, peer, ""));
        }
    }
    let mut data = vec![native_data(&port, KEYS), native_data(&host, KEYS), midi_data(&host, KEYS)];
    data.extend(peers.iter().map(|peer| native_data(peer, KEYS)));
    data.iter_mut().for_each(|fill| fill.add(SIZE));
    Experiment {
        number: 5,
        name: NAME,
        title: "Large values",
        question: "What does a value of 100 kB cost, beyond the kernel's own copy of it?",
        about: "GET and SET of 100 kB values, 1,000 uniform keys, 50 connections, one load thread. \
                Server and load on cores of their own; midi's port has one worker. `native` is \
                GET and SET of the host that has midi loaded. The time in user space is that of \
                /proc/PID/stat, so of ticks: that of a single round is rough.",
        points: "load",
        // Ticks of 10 ms, of which the port has few.
        least_seconds: 2.0,
        data,
        servers: [port, host].into_iter().chain(peers).collect(),
        legs,
    }
}
