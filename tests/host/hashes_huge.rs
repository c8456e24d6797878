//! The promise: a hash of ten million fields is built, scanned, saved, loaded and freed as a small
//! one is, and a server that is killed while it frees one starts again without it.
//!
//! Environment: `MIDI_HASH_FIELDS` (how many). The test prints how long each step took, and how
//! long the slowest PING beside it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::aof::builder;
use super::hashes_saved::set_fields;
use crate::common::{Client, Mode, Server, StopAtEnd, Value, aof, redis_server, wait_until};

fn fields() -> usize {
    let text = std::env::var("MIDI_HASH_FIELDS");
    text.map_or(50_000, |text| text.parse().expect("MIDI_HASH_FIELDS"))
}

/// Says PING over and over, and returns how long the slowest took.
fn slowest_ping(mut client: Client, stop: &AtomicBool) -> Duration {
    let mut slowest = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let sent = Instant::now();
        client.run("PING");
        slowest = slowest.max(sent.elapsed());
        std::thread::sleep(Duration::from_millis(1));
    }
    slowest
}

/// Runs a step beside clients of both doors, and prints what it cost.
fn measured<R>(server: &Server, what: &str, step: impl FnOnce(&mut Client) -> R) -> R {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let pings = [server.client(), server.midi_client()]
            .map(|client| scope.spawn(|| slowest_ping(client, &stop)));
        let (mut client, started) = (server.midi_client(), Instant::now());
        let result = {
            let _stop = StopAtEnd(&stop);
            step(&mut client)
        };
        let took = started.elapsed();
        let [host, port] = pings.map(|ping| ping.join().expect("it pings"));
        println!("{what}: {took:?}; slowest PING: host {host:?}, port {port:?}");
        result
    })
}

fn used_bytes(server: &Server) -> i64 {
    server.client().info_number("midi_memory", "midi_arena_used_bytes")
}

fn build(client: &mut Client) {
    set_fields(client, "huge", 0..fields(), "");
    assert_eq!(client.integer("HLEN huge"), fields() as i64);
}

/// Each field is seen once.
fn scan(client: &mut Client) {
    let mut seen = vec![false; fields()];
    let mut cursor = "0".to_owned();
    loop {
        let [next, Value::Array(found)] =
            &client.run(&format!("HSCAN huge {cursor} COUNT 1000")).array()[..]
        else {
            panic!("no cursor with fields");
        };
        for pair in found.chunks(2) {
            let number: usize = pair[1].text().parse().expect("a number");
            assert_eq!(pair[0].text(), format!("field:{number}"));
            assert!(!std::mem::replace(&mut seen[number], true), "field {number} is seen again");
        }
        cursor = next.text();
        if cursor == "0" {
            break;
        }
    }
    assert!(seen.into_iter().all(|seen| seen), "a field is missing");
}

fn digest(server: &Server) -> Value {
    server.client().run("MIDI.KEYSPACEDIGEST")
}

/// A save and a rewrite both have it; it is freed behind the reply of DEL.
#[test]
fn it_is_built_scanned_saved_loaded_and_freed() {
    let mut server = builder(Mode::Adaptive).start();
    server.client().integer("MIDI.HSET kept field 1");
    let before = used_bytes(&server);
    measured(&server, "build", build);
    let used = used_bytes(&server) - before;
    println!("bytes a field: {:.1}", used as f64 / fields() as f64);
    measured(&server, "HSCAN", scan);
    let all = measured(&server, "KEYSPACEDIGEST", |_| digest(&server));
    let mut host = server.client();
    measured(&server, "DEBUG RELOAD", |_| host.ok("DEBUG RELOAD"));
    assert_eq!(digest(&server), all);
    measured(&server, "BGREWRITEAOF", |_| aof::rewrite(&mut host));
    server.crash();
    let started = Instant::now();
    server.restart(redis_server());
    println!("restart with the AOF: {:?}", started.elapsed());
    assert_eq!(digest(&server), all);
    measured(&server, "DEL", |client| assert_eq!(client.integer("DEL huge"), 1));
    measured(&server, "freed", |_| {
        wait_until("it is freed", || used_bytes(&server) - before < used / 10);
    });
}

/// Killed before, or right after, it was asked to free one: it is there as a whole, or not at all.
#[test]
fn a_server_that_is_killed_while_it_frees_one_starts_without_it() {
    for line in ["DEL huge", "SET huge text", "RENAME kept huge"] {
        let mut server = builder(Mode::Adaptive).start();
        server.client().integer("MIDI.HSET kept field 1");
        measured(&server, "build", build);
        let with = digest(&server);
        server.midi_client().send_line(line);
        server.crash();
        server.restart(redis_server());
        let mut client = server.midi_client();
        if digest(&server) == with {
            assert!(!client.run(line).is_error());
        }
        let expected = digest(&server);
        println!("{line}: {} bytes at the kill", used_bytes(&server));
        server.crash();
        server.restart(redis_server());
        assert_eq!(digest(&server), expected, "{line}");
        let mut client = server.midi_client();
        let left = match line {
            "DEL huge" => client.integer("EXISTS huge") == 0,
            "SET huge text" => client.run("GET huge") == Value::bulk("text"),
            _ => client.integer("HLEN huge") == 1 && client.integer("EXISTS kept") == 0,
        };
        assert!(left, "{line}");
    }
}
