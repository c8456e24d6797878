//! midi's memcached port beside memcached: what a command costs, and what all cores serve.

use super::{Mix, filled};
use crate::bench::{Experiment, Fill, Leg, Load, Plan};
use crate::server::{Catalogue, Cores, Kind, Spec};

/// The name of the experiment with one worker.
pub const NAME: &str = "memcached-port";
/// The name of the one with all cores.
pub const ALL_CORES: &str = "memcached-port-all-cores";
/// The series of midi's port with one worker.
pub const MIDI: &str = "midi memcached port";
/// The series of midi's port with two workers.
pub const MIDI_ALL: &str = "midi memcached port, 2 workers";
/// Pipeline depths.
pub const DEPTHS: [u64; 2] = [1, 10];
/// The point with many keys in one request.
pub const MANY: &str = "get of 100 keys";

pub fn experiment(catalogue: &Catalogue, plan: &Plan) -> Experiment {
    let peer = catalogue.memcached.as_deref().map(|path| Spec::new("memcached", path).with("-t 1"));
    let servers: Vec<Spec> =
        [catalogue.midi_memcached_port(MIDI, 1)].into_iter().chain(peer).collect();
    Experiment {
        number: 1,
        name: NAME,
        title: "The memcached port: what a command costs",
        question: "How much CPU time does a command on midi's memcached port cost, beside \
                   memcached's?",
        about: "get, set and as many of each in memcached's text protocol, 64-byte values, uniform \
                keys, 50 connections, one load thread. Server and load on cores of their own; \
                midi's port has one worker, memcached one thread.",
        points: "load",
        least_seconds: 0.0,
        data: data(&servers, plan),
        legs: legs(&servers, plan, ""),
        servers,
    }
}

pub fn all_cores(catalogue: &Catalogue, plan: &Plan) -> Experiment {
    let peer =
        catalogue.memcached.as_deref().map(|path| Spec::new("memcached -t 2", path).with("-t 2"));
    let servers: Vec<Spec> = [catalogue.midi_memcached_port(MIDI_ALL, 2)]
        .into_iter()
        .chain(peer)
        .map(|server| server.on(Cores::Shared))
        .collect();
    // One load thread cannot saturate two threads of a server.
    let mut legs = legs(&servers, plan, "--threads 2");
    let get = format!("get{}", " {key}".repeat(100));
    let many = load(&get, plan, "--threads 2");
    legs.extend(
        servers.iter().map(|server| Leg::new(&server.name, MANY, &server.name, vec![many.clone()])),
    );
    Experiment {
        number: 1,
        name: ALL_CORES,
        title: "The memcached port: all cores",
        question: "How many of memcached's commands a second does a server answer with all cores?",
        about: "The same, and get with 100 keys, with two load threads; all cores shared with the \
                load. midi's port has two workers, memcached two threads.",
        points: "load",
        least_seconds: 0.0,
        data: data(&servers, plan),
        legs,
        servers,
    }
}

fn load(command: &str, plan: &Plan, args: &str) -> Load {
    Load::new("load", command).with(&format!("--keys {} {args}", plan.keys))
}

fn legs(servers: &[Spec], plan: &Plan, args: &str) -> Vec<Leg> {
    let mut legs = Vec::new();
    for mix in Mix::ALL {
        for depth in DEPTHS {
            let args = format!("--keys {} --pipeline {depth} {args}", plan.keys);
            let load = mix.load(Kind::Memcached, "").with(&args);
            legs.extend(servers.iter().map(|server| {
                Leg::new(&server.name, &mix.point(depth), &server.name, vec![load.clone()])
            }));
        }
    }
    legs
}

fn data(servers: &[Spec], plan: &Plan) -> Vec<Fill> {
    let set = Load::new("fill", super::set_command(Kind::Memcached));
    servers.iter().map(|server| filled(server, set.clone(), plan.keys)).collect()
}
