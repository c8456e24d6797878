//! The promise: HGETALL of a hash with very many fields answers it as it was at one moment also
//! while its server is demoted and takes back what is not in the log, and on a replica, whatever
//! its master does to the hash meanwhile.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use super::long_reads::{begin, fill};
use crate::common::hold::{hold_main, with_calls};
use crate::common::replicas::{Pair, builder, undone, wait_for_link, wait_for_role};
use crate::common::{Client, Mode, Random, Server, StopAtEnd, Value, encoded, wait_until, words};

/// So many fields, and so long ones, that several reads at once take hundreds of slices.
const MANY: usize = 20_000;
const LENGTH: usize = 500;
/// What the tail does to `h`.
const CHANGED: usize = 500;

type Fields = HashMap<String, String>;

/// All of a hash as [`fill`] makes it.
fn filled() -> Fields {
    (0..MANY).map(|field| (format!("field:{field}"), "v".repeat(LENGTH))).collect()
}

/// The same as the tail changes it.
fn changed() -> Fields {
    let mut fields = filled();
    for field in 0..CHANGED {
        fields.insert(format!("field:{field}"), "new".into());
        fields.insert(format!("added:{field}"), "new".into());
        fields.remove(&format!("field:{}", MANY - 1 - field));
    }
    fields
}

/// Sends a write, on a connection of its own: its reply waits for the log, and so does the next
/// command.
fn send(server: &Server, line: &str) -> Client {
    let mut client = server.midi_client();
    client.send_line(line);
    client
}

/// Changes a hash, and waits until it has changed.
fn change(server: &Server, key: &str) -> [Client; 2] {
    let (mut set, mut remove) = (format!("HSET {key}"), format!("HDEL {key}"));
    for field in 0..CHANGED {
        set += &format!(" field:{field} new added:{field} new");
        remove += &format!(" field:{}", MANY - 1 - field);
    }
    let writers = [send(server, &set), send(server, &remove)];
    wait_for(server, &format!("HEXISTS {key} added:0"), 1);
    wait_for(server, &format!("HLEN {key}"), MANY as i64);
    writers
}

/// Waits until a read answers this.
fn wait_for(server: &Server, line: &str, number: i64) {
    let mut client = server.midi_client();
    wait_until(line, || client.run(line) == Value::Integer(number));
}

fn text_of(fields: Value) -> Fields {
    fields.map().into_iter().map(|(name, value)| (name, value.text())).collect()
}

/// Clients that have begun to read these keys through the port of a server with one worker. The
/// main thread may be held.
fn readers(server: &Server, keys: &[&str]) -> Vec<Client> {
    let sent = |key: &&str| {
        let mut reader = server.midi_client();
        reader.send_line(&format!("HGETALL {key}"));
        reader
    };
    let readers = keys.iter().map(sent).collect();
    // Each of these takes the worker a turn, and so does a slice of one of the jobs.
    let mut other = server.midi_client();
    for _ in 0..100 {
        assert_eq!(other.run("EXISTS nosuch"), Value::Integer(0));
    }
    readers
}

/// The same through the host's port.
fn readers_of_host(server: &Server, keys: &[&str]) -> Vec<Client> {
    let mut other = server.midi_client();
    let begun = |key: &&str| {
        let mut reader = server.client();
        begin(&mut reader, "MIDI.", key, &mut other);
        reader
    };
    keys.iter().map(begun).collect()
}

#[test]
fn taking_the_tail_back_shows_in_no_long_read() {
    let pair = Pair::start(&with_calls(builder(Mode::Adaptive).load("threads 1")));
    let mut client = pair.master().client();
    const KEYS: [&str; 3] = ["h", "gone", "renamed"];
    KEYS.iter().for_each(|key| fill(&mut client, key, MANY, &"v".repeat(LENGTH)));
    pair.must_become_equal("before");
    let before = pair.replica().client().run("MIDI.KEYSPACEDIGEST");
    let mut of_replica = pair.replica().client();
    let replicaof = format!("REPLICAOF 127.0.0.1 {}", pair.replica().port());

    let of_host = readers_of_host(pair.master(), &KEYS);
    let held = hold_main(pair.master(), &mut client, &[encoded(&words(&replicaof))]);
    of_replica.ok("REPLICAOF NO ONE");
    let early = readers(pair.master(), &KEYS);
    let master = pair.master();
    let mut writers: Vec<Client> = change(master, "h").into();
    writers.push(send(master, "DEL gone"));
    wait_for(master, "EXISTS gone", 0);
    writers.push(send(master, "HSET gone other 1"));
    wait_for(master, "HLEN gone", 1);
    writers.push(send(master, "RENAME renamed name"));
    wait_for(master, "EXISTS name", 1);
    writers.extend(change(master, "name"));
    let late = readers(pair.master(), &["h", "name", "h", "name"]);
    drop(held);
    assert_eq!(client.read(), Value::ok(), "CALLS.HOLD");
    assert_eq!(client.read(), Value::ok());
    wait_for_role(pair.master(), false);

    for mut writer in writers {
        assert!(writer.read().text().starts_with("UNBLOCKED"), "the tail is taken back");
    }
    for (number, mut reader) in early.into_iter().enumerate() {
        assert!(text_of(reader.read()) == filled(), "{}", KEYS[number]);
    }
    for mut reader in late {
        assert!(text_of(reader.read()) == changed());
    }
    for (number, mut reader) in of_host.into_iter().enumerate() {
        // The host itself answers clients that it has blocked.
        let reply = reader.read();
        if !(reply.is_error() && reply.text().starts_with("UNBLOCKED")) {
            assert!(text_of(reply) == filled(), "{}", KEYS[number]);
        }
    }
    pair.exchange();
    wait_for_link(pair.replica());
    pair.must_become_equal("after it");
    assert_eq!(pair.replica().client().run("MIDI.KEYSPACEDIGEST"), before);
    assert!(undone(pair.replica()) > 0, "there was a tail");
}

/// Fields of the hash that a replica reads.
const FIELDS: usize = 10_000;

/// A master's client that writes to the hash. In all its states the sum is the same.
struct Writer {
    client: Client,
    random: Random,
    generation: usize,
    /// A field that is there for a while.
    extra: Option<usize>,
}

impl Writer {
    /// In one unit, moves units between fields; now and then, removes all or writes a string over
    /// it, and makes it anew with other names.
    fn write(&mut self) {
        self.client.ok("MULTI");
        if self.random.below(6) == 0 {
            self.make_anew()
        } else {
            self.change()
        }
        assert!(!self.client.run("EXEC").is_error());
    }

    fn make_anew(&mut self) {
        self.generation += 1;
        self.extra = None;
        let generation = self.generation;
        if generation.is_multiple_of(2) {
            self.client.run("MIDI.SET h text");
        }
        self.client.run("MIDI.DEL h");
        for first in (0..FIELDS).step_by(500) {
            let names = (first..first + 500).map(|field| format!(" {generation}:{field} 100"));
            self.client.run(&format!("MIDI.HSET h{}", names.collect::<String>()));
        }
    }

    fn change(&mut self) {
        for _ in 0..50 {
            let [from, to] = [(); 2].map(|()| self.random.below(FIELDS));
            self.add(from, -3);
            self.add(to, 3);
        }
        let field = self.random.below(FIELDS);
        match self.extra.take() {
            Some(extra) => {
                self.client.run(&format!("MIDI.HDEL h {}:{extra}", self.generation));
                self.add(field, 1);
            }
            None => {
                let extra = FIELDS + self.random.below(FIELDS);
                self.add(extra, 1);
                self.add(field, -1);
                self.extra = Some(extra);
            }
        }
    }

    fn add(&mut self, field: usize, units: i64) {
        self.client.run(&format!("MIDI.HINCRBY h {}:{field} {units}", self.generation));
    }
}

#[test]
fn a_long_read_of_a_replica_sees_one_moment_of_its_master() {
    let pair = Pair::start(&builder(Mode::Adaptive).load("threads 2"));
    let (client, random) = (pair.master().client(), Random::new(3));
    let mut writer = Writer { client, random, generation: 0, extra: None };
    while writer.generation == 0 {
        writer.write();
    }
    pair.must_become_equal("a first one");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stops = StopAtEnd(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                writer.write();
            }
        });
        let replica = pair.replica();
        for (mut reader, prefix) in [(replica.midi_client(), ""), (replica.client(), "MIDI.")] {
            let mut seen = HashSet::new();
            wait_until("it has seen several", || {
                let fields = reader.run(&format!("{prefix}HGETALL h")).map();
                let numbers = fields.values().map(|it| it.text().parse::<i64>().expect("it"));
                let sum: i64 = numbers.sum();
                let generations: HashSet<_> =
                    fields.keys().filter_map(|name| name.split(':').next()).collect();
                assert_eq!((sum, generations.len()), (100 * FIELDS as i64, 1));
                seen.extend(generations.into_iter().map(str::to_owned));
                seen.len() > 4
            });
        }
    });
    pair.must_become_equal("at the end");
}
