//! The promise: moving all keys over and back under load, with a replica attached, loses and
//! doubles nothing. Whenever the process is killed, each key is in exactly one keyspace.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::aof::builder;
use super::replication::{attach, digest, wait_for_link};
use crate::common::{
    Builder, Client, Mode, Random, Server, Value, Words, encoded, redis_server, wait_until, words,
};

/// Counters, which clients of the host's door count up wherever they are.
const COUNTERS: usize = 400;

/// Keys of each client of the port, which writes numbers that grow to those that are in midi.
const NUMBERS: usize = 200;

/// Commands that a client sends together.
const TOGETHER: usize = 12;

const COUNT: &str = "local is_native = redis.call('EXISTS', KEYS[1]) == 1 \
    return redis.call(is_native and 'INCR' or 'MIDI.INCR', KEYS[1])";

/// The least and the most that a key may have.
#[derive(Clone, Copy, Debug, Default)]
struct Range {
    least: u64,
    most: u64,
}

type Ranges = BTreeMap<String, Range>;

/// A client, and what it knows of its keys.
struct Writer {
    client: Client,
    random: Random,
    ranges: Ranges,
}

impl Writer {
    fn new(port: u16, seed: u64) -> Self {
        let client = Client::connect(port).expect("a server that serves");
        Writer { client, random: Random::new(seed), ranges: Ranges::new() }
    }

    /// Counts, until the connection ends or it is told to stop.
    fn count(&mut self, stop: &AtomicBool) -> io::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            let keys: Vec<String> =
                (0..TOGETHER).map(|_| format!("count:{}", self.random.below(COUNTERS))).collect();
            let mut bytes = Vec::new();
            for key in &keys {
                self.ranges.entry(key.clone()).or_default().most += 1;
                bytes.extend(encoded(&["EVAL", COUNT, "1", key]));
            }
            self.client.try_send(&bytes)?;
            for key in &keys {
                let reply = self.client.try_read()?;
                assert!(!reply.is_error(), "{key}: {reply:?}");
                self.ranges.entry(key.clone()).or_default().least += 1;
            }
        }
        Ok(())
    }

    /// Sets keys of its own that are in midi.
    fn number(&mut self, name: usize, stop: &AtomicBool) -> io::Result<()> {
        let mut number = 0;
        while !stop.load(Ordering::Relaxed) {
            let (mut bytes, mut sent) = (Vec::new(), Vec::new());
            for _ in 0..TOGETHER {
                number += 1;
                let key = number_key(name, self.random.below(NUMBERS));
                bytes.extend(encoded(&["SET", &key, &number.to_string(), "XX"]));
                self.ranges.entry(key.clone()).or_default().most = number;
                sent.push((key, number));
            }
            self.client.try_send(&bytes)?;
            for (key, number) in sent {
                let reply = self.client.try_read()?;
                assert!(reply == Value::ok() || reply.is_null(), "{key}: {reply:?}");
                let range = self.ranges.entry(key).or_default();
                if !reply.is_null() {
                    range.least = number;
                } else if range.most == number {
                    range.most = range.least;
                }
            }
        }
        Ok(())
    }
}

fn number_key(writer: usize, number: usize) -> String {
    format!("number:{writer}:{number}")
}

/// Moves everything over and back, through both doors, until the connections end.
fn move_all(
    host: &mut Client,
    port: &mut Client,
    moves: &AtomicU64,
    stop: &AtomicBool,
) -> io::Result<()> {
    while !stop.load(Ordering::Relaxed) {
        for command in ["MIDI.IMPORT", "EXPORT", "IMPORT", "MIDI.EXPORT"] {
            let client = if command.starts_with("MIDI.") { &mut *host } else { &mut *port };
            let reply = client.try_call(&[command, "*", "MOVE"])?;
            assert!(!reply.is_error(), "{command}: {reply:?}");
        }
        moves.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// All keys, each 0, by turns in each keyspace.
fn fill(client: &mut Client) -> Ranges {
    let counters = (0..COUNTERS).map(|number| format!("count:{number}"));
    let numbers = (0..2).flat_map(|name| (0..NUMBERS).map(move |number| number_key(name, number)));
    let all: Ranges = counters.chain(numbers).map(|key| (key, Range::default())).collect();
    let lines: Vec<Words> = all
        .keys()
        .enumerate()
        .map(|(at, key)| words(&format!("{}SET {key} 0", ["", "MIDI."][at % 2])))
        .collect();
    assert!(client.pipeline(&lines).iter().all(|reply| *reply == Value::ok()));
    all
}

/// Has clients write and one move everything, while `body` runs. It gets a count of moves over and
/// back. Returns what the keys must have.
fn beside(server: &mut Server, body: impl FnOnce(&mut Server, &AtomicU64)) -> Ranges {
    let mut all = fill(&mut server.client());
    let (host, port) = (server.port(), server.midi_port());
    let (mut on_host, mut on_port) = (server.client(), server.midi_client());
    let (stop, moves) = (&AtomicBool::new(false), &AtomicU64::new(0));
    let found: Vec<Ranges> = std::thread::scope(|scope| {
        scope.spawn(move || move_all(&mut on_host, &mut on_port, moves, stop));
        let writers: Vec<_> = (0..4)
            .map(|number| {
                scope.spawn(move || {
                    let is_counter = number < 2;
                    let mut writer = Writer::new(if is_counter { host } else { port }, number);
                    let _ended = match is_counter {
                        true => writer.count(stop),
                        false => writer.number(number as usize - 2, stop),
                    };
                    writer.ranges
                })
            })
            .collect();
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(server, moves)));
        stop.store(true, Ordering::Relaxed);
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        writers.into_iter().map(|writer| writer.join().expect("a writer")).collect()
    });
    for (key, range) in found.into_iter().flatten() {
        let sum = all.get_mut(&key).expect("a key that was filled");
        sum.least += range.least;
        sum.most += range.most;
    }
    all
}

fn wait_for_moves(moves: &AtomicU64, more: u64) {
    let wanted = moves.load(Ordering::Relaxed) + more;
    wait_until("all is moved over and back", || moves.load(Ordering::Relaxed) >= wanted);
}

/// Each key is in exactly one keyspace, and has what it must have.
#[track_caller]
fn check(client: &mut Client, all: &Ranges, when: &str) {
    let lines: Vec<Words> = all
        .keys()
        .flat_map(|key| [words(&format!("GET {key}")), words(&format!("MIDI.GET {key}"))])
        .collect();
    let values = client.pipeline(&lines);
    for ((key, range), values) in all.iter().zip(values.chunks(2)) {
        let found: Vec<u64> = values
            .iter()
            .filter(|value| !value.is_null())
            .map(|value| value.text().parse().expect("a number"))
            .collect();
        let [value] = found[..] else { panic!("{when}: {key} is {values:?}") };
        let is_right = (range.least..=range.most).contains(&value);
        assert!(is_right, "{when}: {key} is {value}, not of {range:?}");
    }
    let sizes = client.integer("DBSIZE") + client.integer("MIDI.DBSIZE");
    assert_eq!(sizes, all.len() as i64, "{when}");
}

#[test]
fn over_and_back_with_a_replica() {
    for mode in Mode::tried() {
        println!("mode: {mode:?}");
        let mut server = builder(mode).start();
        let replica = Builder::new().start();
        attach(&replica, server.port());
        wait_for_link(&replica);
        let all = beside(&mut server, |_, moves| wait_for_moves(moves, 4));
        check(&mut server.client(), &all, "on the master");
        let (mut master, mut client) = (server.client(), replica.client());
        wait_until("the replica has the same", || {
            digest(&server) == digest(&replica)
                && master.run("DEBUG DIGEST") == client.run("DEBUG DIGEST")
        });
        check(&mut client, &all, "on the replica");
    }
}

#[test]
fn killed_in_the_middle() {
    for round in 0..2 {
        let mut server = builder(Mode::Adaptive).config("appendfsync always").start();
        let all = beside(&mut server, |server, moves| {
            wait_for_moves(moves, 1 + round);
            server.crash();
        });
        server.restart(redis_server());
        check(&mut server.client(), &all, "after the crash");
    }
}
