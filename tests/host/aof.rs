//! The promise: with AOF on, a server that is killed has all that it answered, in any database,
//! with its expiry and encoding: whatever commands did it, whichever door they came through.
//!
//! Environment: `MIDI_AOF_COMMANDS` (how many in each mode) and `MIDI_AOF_SEED` (the first one).

use std::collections::{BTreeMap, BTreeSet};

use midi::command::{Doors, host_commands};

use crate::common::aof::{self, survives};
use crate::common::grammar::{self, Grammar};
use crate::common::{Builder, Client, Door, Mode, Random, Server, Value, Words, encoded, words};

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

/// A server with AOF on that gives each write to the operating system before it answers.
pub fn builder(mode: Mode) -> Builder {
    mode.builder().with_port().config("appendonly yes").config("appendfsync no").load("shards 64")
}

/// Commands of midi's own that the grammar cannot know, as far as they write midi's keys.
const OWN: [&str; 14] = [
    "delex",
    "delifeq",
    "hexpire",
    "hexpireat",
    "hgetdel",
    "hgetex",
    "hpersist",
    "hpexpire",
    "hpexpireat",
    "hsetex",
    "increx",
    "msetex",
    "populate",
    "restore",
];

/// Commands whose effects on midi's keys are tried elsewhere, or that have none.
const ELSEWHERE: [&str; 4] = ["import", "export", "journal", "jobs"];

/// One of [`OWN`].
fn draw_own(random: &mut Random) -> Words {
    let mut key = || grammar::key(random);
    let (one, two) = (key(), key());
    let mut line = match random.below(7) {
        6 => words(random.pick(&[
            "hexpire KEY 10000000 FIELDS 2 a b",
            "hpexpire KEY 10000000000 NX FIELDS 1 c",
            "hexpireat KEY 4102444800 GT FIELDS 3 a c nosuch",
            "hpexpireat KEY 1 XX FIELDS 1 b",
            "hpersist KEY FIELDS 2 a b",
            "hgetex KEY PXAT 4102444800123 FIELDS 2 b c",
            "hgetex KEY EXAT 1 FIELDS 1 c",
            "hsetex KEY PXAT 4102444800456 FIELDS 3 a 1 b 2 c 3",
            "hsetex KEY FXX KEEPTTL FIELDS 1 a 4",
        ])),
        5 => words("hgetdel KEY FIELDS 2 a b"),
        4 => words(random.pick(&[
            "increx KEY BYINT 7 PXAT 4102444800000 ENX",
            "increx KEY BYFLOAT 0.25 UBOUND 100 SATURATE",
            "increx KEY PERSIST LBOUND 3",
            "increx KEY EXAT 1",
        ])),
        0 => words("delex KEY IFNE 7"),
        1 => words("delifeq KEY 1"),
        2 => words(
            random.pick(&["msetex 2 KEY 1 OTHER 2 KEEPTTL", "msetex 1 KEY x PXAT 4102444800000"]),
        ),
        _ => words(random.pick(&["populate 20 p 10", "populate 30 p"])),
    };
    for word in &mut line {
        match word.as_slice() {
            b"KEY" => word.clone_from(&one),
            b"OTHER" => word.clone_from(&two),
            _ => {}
        }
    }
    line
}

fn draw(grammar: &Grammar, random: &mut Random) -> Words {
    if random.below(12) == 0 { draw_own(random) } else { grammar.draw(random) }
}

/// A connection with commands that have been sent together.
struct Caller {
    client: Client,
    door: Door,
    /// The names of commands whose replies tell whether they have done something.
    names: Vec<Option<String>>,
    bytes: Vec<u8>,
}

impl Caller {
    fn new(server: &Server, door: Door) -> Self {
        Caller { client: door.client(server), door, names: Vec::new(), bytes: Vec::new() }
    }

    fn push(&mut self, command: &[Vec<u8>], name: Option<String>) {
        self.bytes.extend(encoded(command));
        self.names.push(name);
    }

    /// A command in midi's name for it.
    fn named(&self, args: &Words) -> Words {
        let is_own = OWN.iter().any(|own| args[0].eq_ignore_ascii_case(own.as_bytes()));
        let door = if is_own && self.door == Door::Port { Door::PortPrefixed } else { self.door };
        door.named(args)
    }

    /// Adds something that this door can do.
    fn push_some(&mut self, grammar: &Grammar, random: &mut Random) {
        let is_host = self.door == Door::Host;
        match random.below(100) {
            0..5 => self.push(&words(&format!("SELECT {}", random.below(3))), None),
            5..15 => {
                self.push(&words("MULTI"), None);
                for _ in 0..1 + random.below(6) {
                    if is_host && random.below(3) == 0 {
                        self.push(&native(random), None);
                    }
                    self.push(&self.named(&draw(grammar, random)), None);
                }
                self.push(&words("EXEC"), None);
            }
            15..25 if is_host => {
                let mut script = words("EVAL");
                script.push(b"return redis.pcall(unpack(ARGV))".to_vec());
                script.push(b"0".to_vec());
                script.extend(self.named(&draw(grammar, random)));
                self.push(&script, None);
            }
            25..30 if is_host => self.push(&native(random), None),
            _ => {
                let args = draw(grammar, random);
                let name = String::from_utf8_lossy(&args[0]).to_ascii_lowercase();
                self.push(&self.named(&args), Some(name));
            }
        }
    }

    fn send(&mut self) {
        self.client.send(&std::mem::take(&mut self.bytes));
    }

    /// Reads all replies; counts those of each command that are no errors.
    fn read(&mut self, fine: &mut BTreeMap<String, usize>) {
        for name in std::mem::take(&mut self.names) {
            let reply = self.client.read();
            assert!(!text_of(&reply).starts_with("MISCONF"), "{name:?}: {reply:?}");
            if let Some(name) = name.filter(|_| !reply.is_error()) {
                *fine.entry(name).or_default() += 1;
            }
        }
    }
}

fn text_of(reply: &Value) -> String {
    if reply.is_error() { reply.text() } else { String::new() }
}

/// A write to the host's own keys.
fn native(random: &mut Random) -> Words {
    let (key, number) = (random.below(5), random.below(100));
    match random.below(60) {
        0 => words("FLUSHDB"),
        1 => words("FLUSHALL ASYNC"),
        2 => words("SWAPDB 0 1"),
        3..30 => words(&format!("SET native{key} {number}")),
        _ => words(&format!("INCR native{key}")),
    }
}

/// Runs random commands on all doors at once, until all have been answered.
fn storm(server: &Server, grammar: &Grammar, seed: u64, count: usize) -> BTreeMap<String, usize> {
    let mut random = Random::new(seed);
    let mut fine = BTreeMap::new();
    let mut callers = [Door::Host, Door::Port, Door::Host, Door::PortPrefixed]
        .map(|door| Caller::new(server, door));
    for _ in 0..count.div_ceil(200) {
        for caller in &mut callers {
            (0..50).for_each(|_| caller.push_some(grammar, &mut random));
        }
        callers.iter_mut().for_each(Caller::send);
        callers.iter_mut().for_each(|caller| caller.read(&mut fine));
    }
    fine
}

/// Does each of [`OWN`] once, on keys that fit: which of them have been drawn for such a key is
/// chance.
fn do_own(server: &Server, fine: &mut BTreeMap<String, usize>) {
    let mut client = server.client();
    for line in [
        "set own:a 1",
        "delex own:a IFEQ 1",
        "set own:a 1",
        "delifeq own:a 1",
        "increx own:b BYINT 7",
        "msetex 2 own:c 1 own:d 2",
        "populate 1 own",
        "hset own:h a 1 b 2 c 3 d 4",
        "hexpire own:h 10000000 FIELDS 2 a b",
        "hpexpire own:h 10000000000 FIELDS 1 c",
        "hexpireat own:h 4102444800 GT FIELDS 1 a",
        "hpexpireat own:h 4102444800123 XX FIELDS 1 b",
        "hpersist own:h FIELDS 1 a",
        "hgetex own:h PXAT 4102444800456 FIELDS 1 c",
        "hsetex own:h FXX KEEPTTL FIELDS 1 b 5",
        "hgetdel own:h FIELDS 1 d",
    ] {
        let reply = client.run(&format!("MIDI.{line}"));
        assert!(!reply.is_error(), "{line}: {reply:?}");
        let name = line.split(' ').next().unwrap_or_default();
        *fine.entry(name.to_owned()).or_default() += 1;
    }
}

/// Each command that writes must have been drawn, and have done something.
fn check_coverage(fine: &BTreeMap<String, usize>) {
    let writes = host_commands().filter(|row| row.flags.write && row.doors != Doors::Host);
    let missing: BTreeSet<&str> = writes
        .map(|row| row.name)
        .filter(|name| !ELSEWHERE.contains(name) && !fine.contains_key(*name))
        .collect();
    assert!(missing.is_empty(), "never done: {missing:?}");
}

/// Random commands; crash; again after a rewrite; again with other shards and threads.
fn random_commands(mode: Mode) {
    let mut server = builder(mode).start();
    let grammar = Grammar::ask(&mut server.client());
    let seed = from_environment("MIDI_AOF_SEED", 1);
    let count = from_environment("MIDI_AOF_COMMANDS", 6_000) as usize;
    let mut fine = storm(&server, &grammar, seed, count);
    do_own(&server, &mut fine);
    let mut client = survives(&mut server, "after random commands");

    client.ok("MIDI.POPULATE 500 stay 30");
    aof::rewrite(&mut client);
    fine.extend(storm(&server, &grammar, seed + 1, count / 2));
    aof::records(&server);
    survives(&mut server, "after a rewrite, and random commands");

    fine.extend(storm(&server, &grammar, seed + 2, count / 2));
    server.reconfigure("shards 64", "shards 16");
    if mode != Mode::Safe {
        server.reconfigure("threads 2", "threads 3");
    }
    survives(&mut server, "with other shards and threads");
    check_coverage(&fine);
}

#[test]
fn random_commands_adaptive() {
    random_commands(Mode::Adaptive);
}

#[test]
fn random_commands_pool() {
    random_commands(Mode::Pool);
}

#[test]
fn random_commands_safemode() {
    random_commands(Mode::Safe);
}

/// A write that changes little of a megabyte logs little.
#[test]
fn a_small_change_of_a_large_value_is_a_small_record() {
    for mode in Mode::with_jobs() {
        let mut server = builder(mode).start();
        let mut client = server.client();
        client.call(&[b"MIDI.SET".to_vec(), b"big".to_vec(), vec![b'x'; 1 << 20]]);
        let changes = [
            "APPEND big y",
            "SETRANGE big 500000 z",
            "SETRANGE big 1048580 beyond",
            "SETBIT big 1000 1",
            "SETBIT big 8400000 1",
            "BITFIELD big SET u8 #700 7 INCRBY u16 #9 1",
            "RENAME big large",
            "RENAMENX large big",
            "COPY big copy",
            "COPY big copy REPLACE DB 0",
            "COPY big elsewhere DB 3",
            "MOVE copy 2",
            "EXPIRE big 100000",
            "PERSIST big",
            "GETEX big PXAT 4102444800000",
            "GETRANGE big 0 1",
        ];
        for (number, door) in [Door::Host, Door::Port].into_iter().enumerate() {
            let mut client = door.client(&server);
            for line in changes {
                let before = std::fs::metadata(aof::incr_file(&server)).expect("the AOF").len();
                let reply = client.call(&door.named(&words(line)));
                assert!(!reply.is_error(), "{line}: {reply:?}");
                // The port's writes are in the file when the host's door answers.
                server.client().ok("MIDI.SET end 1");
                let after = std::fs::metadata(aof::incr_file(&server)).expect("the AOF").len();
                assert!(after - before < 1000, "{door:?}: {line}: {} bytes", after - before);
            }
            let mut client = server.client();
            client.ok("SELECT 2");
            client.ok(&format!("MIDI.RENAME copy copy{number}"));
        }
        survives(&mut server, "small changes");
    }
}

/// The records of one command of each kind in the file.
#[test]
fn the_file_has_these_records() {
    let server = builder(Mode::Adaptive).start();
    let mut client = server.client();
    let mut seen = 0;
    let mut new_lines = || {
        let all = aof::lines(&server);
        let new: Vec<String> =
            all[seen..].iter().filter(|line| *line != "SELECT 0").cloned().collect();
        seen = all.len();
        new
    };
    for (line, expected) in [
        ("MIDI.SET a 1", vec!["MIDI.SET a 1"]),
        ("MIDI.SET a 1 PXAT 4102444800000", vec!["MIDI.SET a 1 PXAT 4102444800000"]),
        ("MIDI.INCR a", vec!["MIDI.SET a 2 PXAT 4102444800000"]),
        ("MIDI.PERSIST a", vec!["MIDI.PERSIST a"]),
        ("MIDI.PEXPIREAT a 4102444800000", vec!["MIDI.PEXPIREAT a 4102444800000"]),
        ("MIDI.GETDEL a", vec!["MIDI.DEL a"]),
        ("MIDI.GET a", vec![]),
        ("MIDI.DEL a", vec![]),
        ("MIDI.MSET a 1 b 2", vec!["MULTI", "SET a 1", "SET b 2", "EXEC"]),
        ("MIDI.RENAMENX a c", vec!["MIDI.RENAME a c"]),
        ("MIDI.COPY c d", vec!["MIDI.COPY c d DB 0 REPLACE"]),
        ("MIDI.MOVE d 1", vec!["MIDI.MOVE d 1"]),
        ("MIDI.EXPIRE c 0", vec!["MIDI.DEL c"]),
        ("MIDI.FLUSHDB", vec!["MIDI.FLUSHDB"]),
        ("MIDI.SWAPDB 0 1", vec!["MIDI.SWAPDB 0 1"]),
        ("MIDI.FLUSHALL", vec!["MIDI.FLUSHALL"]),
        ("FLUSHALL", vec!["FLUSHALL"]),
    ] {
        let reply = client.run(line);
        assert!(!reply.is_error(), "{line}: {reply:?}");
        assert_eq!(new_lines(), expected, "{line}");
    }
}

/// An older midi skips a command that it does not know, and refuses a text of records.
#[test]
fn fields_are_logged_as_records() {
    let server = builder(Mode::Adaptive).start();
    let mut client = server.client();
    for line in ["MIDI.HSET h f v", "MIDI.HSET h g w", "MIDI.HDEL h f", "MIDI.APPEND s x"] {
        client.integer(line);
    }
    client.ok("MULTI");
    client.run("MIDI.HSET h i j");
    client.run("EXEC");
    aof::wait_until_written(&mut client);
    let names: BTreeSet<String> = aof::commands(&server)
        .iter()
        .map(|words| String::from_utf8_lossy(&words[0]).to_lowercase())
        .collect();
    assert!(names.contains("midi.journal") && names.contains("midi.set"), "{names:?}");
    assert!(names.iter().all(|name| !name.starts_with("midi.h")), "{names:?}");
}
