//! The promise: where writes are taken back because the server becomes a replica, a client of the
//! port has the replies to all commands of its pipeline that have happened, and UNBLOCKED stands
//! for the first that has not.

use std::time::Duration;

use crate::common::port::Ported;
use crate::common::{Client, Mode, Value, encoded};

/// Commands of a pipeline: each one alone, or in a transaction.
const UNITS: usize = 60;
const CLIENTS: usize = 4;
/// How many ends of pipelines are looked at, and how many rounds may be needed for them.
const ENDS: usize = 20;
const ROUNDS: usize = 200;

fn key(name: &str, unit: usize) -> String {
    format!("{name}:{unit}")
}

/// A pipeline that has got an error: how many units were answered before, and the error.
struct Ended {
    name: String,
    answered: usize,
    error: String,
}

/// Sends pipelines, each of keys of its own, until one gets an error.
fn write(mut client: Client, name: &str) -> Ended {
    for number in 0.. {
        let name = format!("{name}:{number}");
        let lines = (0..UNITS).flat_map(|unit| {
            let incr = encoded(&["INCR", &key(&name, unit)]);
            match unit % 2 {
                0 => incr,
                _ => [encoded(&["MULTI"]), incr, encoded(&["EXEC"])].concat(),
            }
        });
        client.send(&lines.collect::<Vec<u8>>());
        for answered in 0..UNITS {
            for _ in 0..1 + 2 * (answered % 2) {
                let reply = client.read();
                if reply.is_error() {
                    return Ended { name, answered, error: reply.text() };
                }
            }
        }
    }
    unreachable!()
}

fn check(client: &mut Client, ended: &Ended) {
    let Ended { name, answered, error } = ended;
    for unit in 0..UNITS {
        let happened = client.call(&["EXISTS", &key(name, unit)]) == Value::Integer(1);
        assert_eq!(happened, unit < *answered, "{unit} of {name}: {answered} before {error}");
    }
}

#[test]
fn replies_of_what_has_happened_are_sent() {
    let logging = Mode::Adaptive.builder().config("appendonly yes").config("appendfsync no");
    let ported = Ported::start(logging);
    let (mut host, mut ends) = (ported.host(), 0);
    for round in 0..ROUNDS {
        let ended: Vec<Ended> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let client = ported.client();
                    scope.spawn(move || write(client, &format!("{round}:{number}")))
                })
                .collect();
            std::thread::sleep(Duration::from_millis(30));
            host.ok("REPLICAOF 127.0.0.1 1");
            writers.into_iter().map(|writer| writer.join().expect("a writer")).collect()
        });
        host.ok("REPLICAOF NO ONE");
        let mut client = ported.client();
        ended.iter().for_each(|ended| check(&mut client, ended));
        ends += ended.iter().filter(|ended| ended.error.starts_with("UNBLOCKED")).count();
        if ends >= ENDS {
            return;
        }
    }
    panic!("{ends} pipelines ended so");
}
