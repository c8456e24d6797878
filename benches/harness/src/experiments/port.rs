//! midi's RESP port with one worker, compared with the floor, the peers and the host door: what a
//! command costs if server and load have a core each.

use super::{ECHO_COMMAND, Mix, PIPELINES, echo, midi_data, native_data};
use crate::bench::{Experiment, Fill, Leg, Load, On, Plan, Work};
use crate::server::{Catalogue, Spec};

/// The experiment's name in results.
pub const NAME: &str = "port";
/// The series of midi's port.
pub const MIDI: &str = "midi port";
/// The same with `midi.io io_uring`.
pub const URING: &str = "midi port, io_uring";
/// The series of the host door.
const HOST_DOOR: &str = "midi host door";

/// The point at which the load generator is checked.
pub const CHECKED: &str = "GET of one key, pipeline 10";
/// Measured by itself.
pub const OURS: &str = "redis";
/// Measured by redis-benchmark.
pub const THEIRS: &str = "redis by redis-benchmark";

pub fn experiment(catalogue: &Catalogue, plan: &Plan) -> Experiment {
    let (echo, port, host) = (echo(), catalogue.midi_port(MIDI, 1), catalogue.midi(HOST_DOOR));
    let uring = catalogue.midi_port(URING, 1).with("io io_uring");
    let peers = catalogue.peers();
    let mut legs: Vec<Leg> = PIPELINES.map(|pipeline| echo_leg(pipeline, plan.keys)).into();
    for mix in Mix::ALL {
        for pipeline in PIPELINES {
            let leg = |server: &Spec, prefix: &str| leg(server, mix, prefix, pipeline, plan.keys);
            legs.push(leg(&port, ""));
            legs.push(leg(&uring, ""));
            legs.push(leg(&host, "MIDI."));
            legs.extend(peers.iter().map(|peer| leg(peer, "")));
        }
    }
    if catalogue.has_redis_benchmark {
        legs.extend(checks(plan));
    }
    let mut data: Vec<Fill> = vec![
        native_data(&port, plan.keys),
        native_data(&uring, plan.keys),
        midi_data(&host, plan.keys),
    ];
    data.extend(peers.iter().map(|peer| native_data(peer, plan.keys)));
    let mut servers = vec![echo, port, uring, host];
    servers.extend(peers);
    Experiment {
        number: 1,
        name: NAME,
        title: "The RESP port: what a command costs",
        question: "How much CPU time does a command on midi's own port cost, beside its peers?",
        about: "GET, SET and as many of each, 64-byte values, uniform keys, 50 connections, \
                one load thread. Server and load on cores of their own; midi's port has one \
                worker, and is measured with epoll and with io_uring. CPU per command is user and \
                system time of the server's processes, all threads, divided by commands answered. \
                `echo` parses nothing and answers a fixed reply: the floor that the kernel sets. \
                One case, GET of one key, is run by redis-benchmark too, to check the load \
                generator.",
        points: "load",
        least_seconds: 0.0,
        servers,
        data,
        legs,
    }
}

/// One mix on one server.
pub fn leg(server: &Spec, mix: Mix, prefix: &str, pipeline: u64, keys: u64) -> Leg {
    let load = mix.load(server.kind, prefix).with(&format!("--pipeline {pipeline} --keys {keys}"));
    Leg::new(&server.name, &mix.point(pipeline), &server.name, vec![load])
}

/// GETs for the echo server.
pub fn echo_leg(pipeline: u64, keys: u64) -> Leg {
    let load =
        Load::new("load", ECHO_COMMAND).with(&format!("--pipeline {pipeline} --keys {keys}"));
    Leg::new(super::ECHO, &Mix::Get.point(pipeline), super::ECHO, vec![load])
}

/// The same command, the same key, the same server, with two load generators.
fn checks(plan: &Plan) -> [Leg; 2] {
    let one_key = "GET key:1";
    let ours =
        Leg::new(OURS, CHECKED, "redis", vec![Load::new("load", one_key).with("--pipeline 10")]);
    let requests = if plan.quick { 500_000 } else { 2_000_000 };
    let theirs = Leg {
        series: THEIRS.into(),
        point: CHECKED.into(),
        on: On::Shared("redis".into()),
        before: Vec::new(),
        work: Work::RedisBenchmark(format!("-c 50 -P 10 {one_key}"), requests),
    };
    [ours, theirs]
}
