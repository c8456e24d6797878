//! The promise: sockets that receive and send in parts, whose calls are interrupted or find
//! nothing, change no byte of any reply, on TCP, Unix sockets and TLS.
//!
//! Environment: `MIDI_SOCKET_ROUNDS` (pipelines of each client).

use std::collections::BTreeMap;
use std::io::{Read, Write};

use crate::common::certificates::trusting;
use crate::common::port::Ported;
use crate::common::sockets::Sockets;
use crate::common::{Builder, Random, Server, Value, Way, Wire, at_once, encoded, skip, text};

fn rounds() -> usize {
    std::env::var("MIDI_SOCKET_ROUNDS").map_or(12, |text| text.parse().expect("MIDI_SOCKET_ROUNDS"))
}

/// Values that are received and sent without a copy, and others.
const LENGTHS: [usize; 6] = [0, 7, 600, 20_000, 40_000, 100_000];
const KEYS: usize = 6;

fn connect(server: &Server, way: Way) -> Wire {
    let wire = match way {
        Way::Tcp => Wire::tcp(server.midi_port()),
        Way::Unix => Wire::unix(&server.midi_socket()),
        Way::Tls => Wire::tls(server.tls_port(), &trusting(None)),
    };
    wire.unwrap_or_else(|error| panic!("{way:?}: {error}"))
}

/// A client that knows what it will be told.
struct Knowing {
    /// Its keys begin with it.
    name: String,
    random: Random,
    values: BTreeMap<String, Vec<u8>>,
    commands: Vec<u8>,
    replies: Vec<u8>,
}

fn bulk(value: Option<&Vec<u8>>) -> Vec<u8> {
    value.map_or(b"$-1\r\n".to_vec(), |value| {
        [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
    })
}

impl Knowing {
    fn key(&mut self) -> String {
        format!("{}:{}", self.name, self.random.below(KEYS))
    }

    fn value(&mut self) -> Vec<u8> {
        let len = LENGTHS[self.random.below(LENGTHS.len())];
        let first = self.random.below(251);
        (first..first + len).map(|at| (at % 251) as u8).collect()
    }

    /// A command, and its effect.
    fn add(&mut self) -> Vec<u8> {
        let key = self.key();
        let (command, reply) = match self.random.below(7) {
            0..=1 => {
                let value = self.value();
                let command = encoded(&[b"SET", key.as_bytes(), &value]);
                self.values.insert(key, value);
                (command, b"+OK\r\n".to_vec())
            }
            2..=3 => (encoded(&["GET", &key]), bulk(self.values.get(&key))),
            4 => {
                let keys: Vec<_> = (0..3).map(|_| self.key()).collect();
                let found = keys.iter().flat_map(|key| bulk(self.values.get(key)));
                let reply = b"*3\r\n".iter().copied().chain(found).collect();
                (encoded(&["MGET", &keys[0], &keys[1], &keys[2]]), reply)
            }
            5 => {
                let more = self.value();
                let command = encoded(&[b"APPEND", key.as_bytes(), &more]);
                let value = self.values.entry(key).or_default();
                value.extend(more);
                (command, format!(":{}\r\n", value.len()).into_bytes())
            }
            _ => {
                let gone = self.values.remove(&key).is_some();
                (encoded(&["DEL", &key]), format!(":{}\r\n", u8::from(gone)).into_bytes())
            }
        };
        self.commands.extend(command);
        reply
    }

    fn add_transaction(&mut self) {
        self.commands.extend(encoded(&["MULTI"]));
        let count = 1 + self.random.below(4);
        let replies: Vec<u8> = (0..count).flat_map(|_| self.add()).collect();
        self.commands.extend(encoded(&["EXEC"]));
        self.replies.extend(b"+OK\r\n");
        (0..count).for_each(|_| self.replies.extend(b"+QUEUED\r\n"));
        self.replies.extend(format!("*{count}\r\n").as_bytes());
        self.replies.extend(replies);
    }

    /// A job, for which the commands behind it wait.
    fn add_job(&mut self) {
        let key = self.key();
        self.commands.extend(encoded(&["KEYS", &key]));
        match self.values.contains_key(&key) {
            true => self.replies.extend([&b"*1\r\n"[..], &bulk(Some(&key.into_bytes()))].concat()),
            false => self.replies.extend(b"*0\r\n"),
        }
    }

    /// Pipelines commands, in pieces, and reads the replies.
    fn talk(&mut self, wire: &mut Wire) {
        for _ in 0..1 + self.random.below(30) {
            match self.random.below(8) {
                0 => self.add_transaction(),
                1 => self.add_job(),
                _ => {
                    let reply = self.add();
                    self.replies.extend(reply);
                }
            }
        }
        let mut rest = &self.commands[..];
        while !rest.is_empty() {
            let most = 1 << self.random.below(20);
            let (now, later) = rest.split_at(rest.len().min(1 + self.random.below(most)));
            wire.write_all(now).expect("sent");
            wire.flush().expect("sent");
            rest = later;
        }
        let mut got = vec![0; self.replies.len()];
        wire.read_exact(&mut got).expect("all replies");
        let differs = got.iter().zip(&self.replies).position(|(is, should)| is != should);
        if let Some(at) = differs {
            let (is, should) = (text(&got[at..]), text(&self.replies[at..]));
            panic!("{}: at byte {at} of {}: {is} instead of {should}", self.name, got.len());
        }
        self.commands.clear();
        self.replies.clear();
    }
}

/// Clients of all kinds get the right replies, and all kinds of faults have happened.
fn replies_are_right(seed: u64, builder: Builder) {
    if !Sockets::exist() {
        return skip("the library that has sockets fail is for x86-64");
    }
    let sockets = Sockets::new(seed);
    let server = sockets.under(builder.load("threads 2")).with_tls().start();
    let ways = [Way::Tcp, Way::Unix, Way::Tls];
    at_once(6, |number| {
        let way = ways[number % ways.len()];
        let mut client = Knowing {
            name: format!("{way:?}{number}"),
            random: Random::new(seed * 100 + number as u64),
            values: BTreeMap::new(),
            commands: Vec::new(),
            replies: Vec::new(),
        };
        let mut wire = connect(&server, way);
        for round in 0..rounds() {
            if round % 4 == 3 {
                wire = connect(&server, way);
            }
            client.talk(&mut wire);
        }
    });
    let faults = sockets.faults();
    println!("{faults:?}");
    let counts = [faults.received, faults.sent, faults.interrupted, faults.nothing];
    assert!(counts.iter().all(|&count| count > 100), "{faults:?}");
}

#[test]
fn faults_of_sockets_change_no_reply() {
    replies_are_right(1, Builder::new());
}

/// Where replies wait for the log.
#[test]
fn faults_of_sockets_change_no_reply_that_waits() {
    replies_are_right(2, Builder::new().config("appendonly yes").config("appendfsync always"));
}

/// On connections that come and go.
#[test]
fn faults_of_sockets_keep_nobody_out() {
    if !Sockets::exist() {
        return skip("the library that has sockets fail is for x86-64");
    }
    let sockets = Sockets::new(3);
    let builder = sockets.under(Builder::new().load("threads 2"));
    let ported = Ported { server: builder.with_tls().start() };
    for way in [Way::Tcp, Way::Unix, Way::Tls] {
        for _ in 0..60 {
            let mut client = crate::common::Client::over(connect(&ported.server, way));
            assert_eq!(client.run("PING").text(), "PONG");
            assert_eq!(client.run("QUIT"), Value::ok());
            assert!(client.is_closed(), "{way:?}");
        }
    }
    super::faults::check_healthy(&ported.server);
}
