//! Throughput through the host door: MIDI.GET and MIDI.SET beside native GET and SET on the same
//! server, in every mode, beside the floor and the peers.

use super::{get_command, midi_data, native_data, set_command};
use crate::bench::{Experiment, Fill, Leg, Load, On, Plan, Work};
use crate::server::{Catalogue, Cores, Kind, Spec};

/// What the experiment is called in results.
pub const NAME: &str = "host-door";

/// Depths of the pipeline.
pub const PIPELINES: [u64; 3] = [1, 10, 50];

/// The load generator's part of the case that redis-benchmark runs too.
pub const CHECKED: &str = "redis GET of one key";
/// redis-benchmark's part.
pub const CHECKED_AGAINST: &str = "redis GET of one key, redis-benchmark";

/// Requests of a fixed length, for the echo server: `GET key:000000017`.
const ECHO_COMMAND: &str = "GET {key:9}";
const ECHO_REQUEST: &str = "*2\r\n$3\r\nGET\r\n$13\r\nkey:000000017\r\n";

pub fn experiment(catalogue: &Catalogue, plan: &Plan) -> Experiment {
    let midi = catalogue.midi("midi");
    let safe = catalogue.midi("midi SAFEMODE").with("SAFEMODE");
    // Two threads for sockets and one for commands need more than half of a small machine.
    let threads = catalogue.midi("midi io-threads 2").with("--io-threads 2").on(Cores::Shared);
    let echo = Spec { kind: Kind::Echo, ..Spec::new("echo", &own_program()) };
    let echo = echo.with(&format!("--request-bytes {}", ECHO_REQUEST.len()));
    let two = catalogue.redis().named("two redis").times(2);
    let peers: Vec<Spec> = catalogue.peers().into_iter().chain([two]).collect();

    let mut legs = Vec::new();
    for pipeline in PIPELINES {
        let mut leg = |series: &str, server: &Spec, command: &str, before: &str| {
            let load =
                Load::new("load", command).with(&format!("--pipeline {pipeline} --keys {}", plan.keys));
            let leg = Leg::new(series, &pipeline.to_string(), &server.name, vec![load]);
            legs.push(if before.is_empty() { leg } else { leg.after(before) });
        };
        leg("echo", &echo, ECHO_COMMAND, "");
        for (get, native, own) in
            [("GET", "GET {key}", "MIDI.GET {key}"), ("SET", "SET {key} {value}", "MIDI.SET {key} {value}")]
        {
            leg(&format!("native {get}"), &midi, native, "");
            leg(&format!("MIDI.{get} adaptive"), &midi, own, "CONFIG SET midi.dispatch adaptive");
            leg(&format!("MIDI.{get} pool"), &midi, own, "CONFIG SET midi.dispatch pool");
            leg(&format!("MIDI.{get} SAFEMODE"), &safe, own, "");
            leg(&format!("native {get}, io-threads 2"), &threads, native, "");
            leg(&format!("MIDI.{get} adaptive, io-threads 2"), &threads, own, "");
        }
        for peer in &peers {
            leg(&format!("{} GET", peer.name), peer, get_command(peer.kind), "");
            leg(&format!("{} SET", peer.name), peer, set_command(peer.kind), "");
        }
    }
    if catalogue.has_redis_benchmark {
        legs.extend(checks(plan));
    }

    let own = [&midi, &safe, &threads];
    let mut data: Vec<Fill> =
        own.iter().flat_map(|spec| [native_data(spec, plan.keys), midi_data(spec, plan.keys)]).collect();
    data.extend(peers.iter().map(|peer| native_data(peer, plan.keys)));
    let mut servers = vec![echo, midi.clone(), safe.clone(), threads.clone()];
    servers.extend(peers);
    Experiment {
        number: 1,
        name: NAME,
        title: "Throughput through the host door",
        about: "GET and SET of 64-byte values, uniform keys, 50 connections, one load thread. Server and load on \
                cores of their own, but for io-threads, which share all. CPU per command is user and system time \
                of the server's processes, all threads, divided by commands answered. `echo` parses \
                nothing and answers a fixed reply: the floor that the kernel sets. `two redis`: two processes, \
                the client splits the keys. One case, GET of one key, is run by redis-benchmark too, to check \
                the load generator.",
        points: "pipeline",
        least_seconds: 0.0,
        servers,
        data,
        legs,
    }
}

/// The same command, the same key, the same server, by two load generators.
fn checks(plan: &Plan) -> [Leg; 2] {
    let one_key = "GET key:1";
    let ours = Leg::new(CHECKED, "10", "redis", vec![Load::new("load", one_key).with("--pipeline 10")]);
    let requests = if plan.quick { 500_000 } else { 2_000_000 };
    let theirs = Leg {
        series: CHECKED_AGAINST.into(),
        point: "10".into(),
        on: On::Shared("redis".into()),
        before: Vec::new(),
        work: Work::RedisBenchmark(format!("-c 50 -P 10 {one_key}"), requests),
    };
    [ours, theirs]
}

fn own_program() -> std::path::PathBuf {
    std::env::current_exe().unwrap_or_else(|_| "midi-bench".into())
}
