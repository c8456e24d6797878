//! The promise: a command takes effect at one moment between its call and its reply. The commands
//! of one connection take effect in order, whichever doors the clients use. Real clients on real
//! threads record what they did and saw. A checker then searches for one order that explains the
//! record. No verdict depends on how long anything took.
//!
//! Environment: `MIDI_LINEARIZABILITY_ROUNDS` (histories for each test, mode and door).

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};

use crate::common::linear::{Operation, explain, explain_by_key};
use crate::common::{Client, Door, Mode, Random, Server, Value, Words, beside, encoded, words};

/// Clients at once.
const CLIENTS: usize = 6;

/// The doors that the clients of a history use, in rotation.
const WAYS_IN: [&[Door]; 3] =
    [&[Door::Host], &[Door::Port], &[Door::Host, Door::Port, Door::PortPrefixed]];

/// How often each client sends in a history.
const SENDS: usize = 12;

/// A clock that every event reads once. All threads agree on its order.
static CLOCK: AtomicU64 = AtomicU64::new(0);

fn tick() -> u64 {
    CLOCK.fetch_add(1, Ordering::SeqCst)
}

/// Histories of a test, for each mode and way in: `MIDI_LINEARIZABILITY_ROUNDS`, or this many.
pub fn rounds(default: usize) -> usize {
    let text = std::env::var("MIDI_LINEARIZABILITY_ROUNDS");
    text.map_or(default, |text| text.parse().expect("MIDI_LINEARIZABILITY_ROUNDS"))
}

/// The next step of one client: commands that are sent together.
pub type Plan<'a> = dyn Fn(&mut Random, u64) -> Vec<Unit> + Sync + 'a;

/// Commands that take effect together: one, or those between MULTI and EXEC.
pub type Unit = Vec<Words>;

/// Runs many histories of clients that follow `plan`, and checks each.
fn check(
    mode: Mode,
    load: &str,
    plan: &Plan,
    explained: impl Fn(&[Operation]) -> Result<(), Vec<Operation>>,
) {
    check_rounds(rounds(25), mode, load, plan, explained);
}

/// The same with so many histories for each way in.
pub fn check_rounds(
    rounds: usize,
    mode: Mode,
    load: &str,
    plan: &Plan,
    explained: impl Fn(&[Operation]) -> Result<(), Vec<Operation>>,
) {
    let server = mode.builder().load(load).with_port().start();
    let mut client = server.client();
    client.ok("MIDI.POPULATE 20000 other");
    // Sweeps hold shards for slices of time, so that commands find them taken and are queued.
    let sweep = |client: &mut Client, random: &mut Random| {
        let line =
            ["MIDI.KEYS nosuch*", "MIDI.POPULATE 3000 more", "MIDI.SCAN 0 COUNT 5000 MATCH nosuch"];
        client.run(line[random.below(line.len())]);
    };
    beside(&server, 2, sweep, || {
        for round in 0..rounds {
            for doors in WAYS_IN {
                let history = record(&server, doors, round, plan);
                if let Err(best) = explained(&history) {
                    let history = shown(&history, &best);
                    panic!(
                        "{mode:?}, {doors:?}, round {round}: no order explains this:\n{history}"
                    );
                }
            }
        }
    });
    println!("{mode:?} {load}: {} were queued", client.info_number("midi_dispatch", "midi_queued"));
}

/// One history that starts with empty keys.
fn record(server: &Server, doors: &[Door], round: usize, plan: &Plan) -> Vec<Operation> {
    let mut client = server.client();
    client.run(&format!("MIDI.DEL {}", KEYS.join(" ")));
    let history = Mutex::new(Vec::new());
    let start = Barrier::new(CLIENTS);
    crate::common::at_once(CLIENTS, |number| {
        let mut random = Random::new((round * CLIENTS + number) as u64);
        let door = doors[number % doors.len()];
        let mut client = door.client(server);
        let mut own = Vec::new();
        start.wait();
        for send in 0..SENDS {
            // No value is written twice, so a reply identifies the write that it has seen.
            let unique = (number * SENDS + send) as u64;
            own.extend(send_units(&mut client, door, number, plan(&mut random, unique)));
        }
        history.lock().expect("no panic yet").extend(own);
    });
    history.into_inner().expect("no panic")
}

/// Sends units in one pipeline, and waits for their replies.
fn send_units(client: &mut Client, door: Door, number: usize, units: Vec<Unit>) -> Vec<Operation> {
    let mut operations: Vec<Operation> = units
        .into_iter()
        .map(|commands| Operation {
            client: number,
            commands,
            replies: vec![],
            called: tick(),
            returned: 0,
        })
        .collect();
    let bytes: Vec<u8> =
        operations.iter().flat_map(|operation| wire(door, &operation.commands)).collect();
    client.send(&bytes);
    for operation in &mut operations {
        operation.replies = read(client, operation.commands.len());
        operation.returned = tick();
    }
    operations
}

fn wire(door: Door, unit: &Unit) -> Vec<u8> {
    let commands: Vec<u8> =
        unit.iter().map(|args| encoded(&door.named(args))).collect::<Vec<_>>().concat();
    if unit.len() == 1 {
        commands
    } else {
        [encoded(&["MULTI"]), commands, encoded(&["EXEC"])].concat()
    }
}

fn read(client: &mut Client, commands: usize) -> Vec<Value> {
    if commands == 1 {
        return vec![client.read()];
    }
    assert_eq!(client.read(), Value::ok());
    (0..commands).for_each(|_| assert_eq!(client.read(), Value::Simple(b"QUEUED".to_vec())));
    client.read().array()
}

fn shown(history: &[Operation], best: &[Operation]) -> String {
    let line = |operation: &Operation| {
        let commands: Vec<_> =
            operation.commands.iter().map(|args| crate::common::shown(args)).collect();
        let (called, returned) = (operation.called, operation.returned);
        let commands = commands.join("; ");
        format!(
            "  client {} [{called}..{returned}] {commands} -> {:?}\n",
            operation.client, operation.replies
        )
    };
    let placed: HashSet<u64> = best.iter().map(|operation| operation.called).collect();
    let rest = history.iter().filter(|operation| !placed.contains(&operation.called));
    format!(
        "{}and then none of these fits:\n{}",
        best.iter().map(line).collect::<String>(),
        rest.map(line).collect::<String>()
    )
}

/// Few keys, so that clients conflict.
pub const KEYS: [&str; 3] = ["x", "y", "z"];

/// Random commands on one key. `K` is the key, and `V` is a unique value. Commands that midi does
/// not have are left out.
const ON_ONE_KEY: [&str; 23] = [
    "GET K",
    "GET K",
    "SET K V",
    "SET K V",
    "SET K V GET",
    "SET K V NX",
    "SET K V XX",
    "SET K V XX GET",
    "DEL K",
    "EXISTS K",
    "APPEND K V",
    "GETDEL K",
    "GETSET K V",
    "STRLEN K",
    "SETNX K V",
    "SET K one",
    "DELIFEQ K one",
    "SETBIT K 3 1",
    "SETBIT K 3 0",
    "SETBIT K 33 1",
    "GETBIT K 3",
    "BITCOUNT K",
    "BITFIELD K INCRBY u8 #1 7 INCRBY u8 #6 1",
];

/// For keys that hold only numbers.
const ON_A_COUNTER: [&str; 4] = ["INCR K", "INCR K", "GET K", "DEL K"];

/// Random commands on several keys at once.
const ON_SEVERAL_KEYS: [&str; 17] = [
    "MSET x V y V z V",
    "MSET z V x V",
    "MGET x y z",
    "MGET z y x",
    "MGET x y",
    "MSETNX x V y V z V",
    "MSETNX y V z V",
    "DEL y z",
    "EXISTS x y z",
    "RENAME x y",
    "RENAMENX y z",
    "COPY z x",
    "COPY x y REPLACE",
    "BITOP OR z x y",
    "BITOP XOR x x z",
    "BITOP NOT y z",
    "SETBIT y 5 0",
];

/// The lines whose command midi has.
fn present(lines: &[&'static str]) -> Vec<&'static str> {
    let server = Mode::Adaptive.server();
    let names: HashSet<String> = server
        .client()
        .run("COMMAND LIST FILTERBY MODULE midi")
        .array()
        .iter()
        .map(|name| name.text().to_ascii_uppercase())
        .collect();
    let is_present = |line: &str| {
        names.contains(&format!("MIDI.{}", line.split(' ').next().unwrap_or_default()))
    };
    let present: Vec<_> = lines.iter().copied().filter(|line| is_present(line)).collect();
    println!("commands: {present:?}");
    present
}

fn command(line: &str, key: &str, unique: u64) -> Words {
    words(&line.replace('K', key).replace('V', &format!("v{unique}")))
}

/// One to four commands on single keys, sent at once.
fn single_keys(lines: &[&'static str], random: &mut Random, unique: u64) -> Vec<Unit> {
    let one = |at: usize, random: &mut Random| {
        let key = KEYS[random.below(KEYS.len())];
        vec![command(random.pick(lines), key, 10 * unique + at as u64)]
    };
    (0..1 + random.below(4)).map(|at| one(at, random)).collect()
}

#[test]
fn commands_on_one_key() {
    let lines = present(&ON_ONE_KEY);
    for mode in Mode::tried() {
        let plan = |random: &mut Random, unique| single_keys(&lines, random, unique);
        check(mode, "shards 1", &plan, explain_by_key);
        check(mode, "shards 64", &plan, explain_by_key);
    }
}

/// The same with all keys judged together: a client's commands on different keys also keep their
/// order.
#[test]
fn pipelines_over_keys() {
    let lines = present(&["GET K", "SET K V", "SET K V GET", "DEL K"]);
    for mode in Mode::tried() {
        let plan = |random: &mut Random, unique| match random.below(4) {
            0 => single_keys(&lines, random, unique),
            _ => vec![],
        };
        check(mode, "shards 1", &plan, explain);
        check(mode, "shards 64", &plan, explain);
    }
}

#[test]
fn counters() {
    let lines = present(&ON_A_COUNTER);
    for mode in Mode::tried() {
        let plan = |random: &mut Random, unique| single_keys(&lines, random, unique);
        check(mode, "shards 1", &plan, explain_by_key);
    }
}

/// All keys in one shard, or in shards of different workers.
#[test]
fn commands_on_several_keys() {
    let lines = present(&ON_SEVERAL_KEYS);
    for mode in Mode::tried() {
        for load in ["shards 1", "shards 64"] {
            let plan =
                |random: &mut Random, unique| vec![vec![command(random.pick(&lines), "", unique)]];
            check(mode, load, &plan, explain);
        }
    }
}

#[test]
fn transactions() {
    let single = present(&ON_ONE_KEY);
    let several = present(&ON_SEVERAL_KEYS);
    let some = |random: &mut Random, unique| match random.below(2) {
        0 => command(random.pick(&single), KEYS[random.below(KEYS.len())], unique),
        _ => command(random.pick(&several), "", unique),
    };
    for mode in Mode::tried() {
        let plan = |random: &mut Random, unique: u64| {
            let unit =
                (0..1 + random.below(4)).map(|at| some(random, 10 * unique + at as u64)).collect();
            vec![unit]
        };
        check(mode, "shards 1", &plan, explain);
        check(mode, "shards 64", &plan, explain);
    }
}

/// The checker itself, on histories made by hand.
mod checker {
    use super::*;

    /// `client called..returned command -> reply`, where a reply is a number, nil, OK or a text.
    fn history(lines: &[&str]) -> Vec<Operation> {
        lines.iter().map(|line| operation(line)).collect()
    }

    fn operation(line: &str) -> Operation {
        let (call, reply) = line.split_once(" -> ").expect("a reply");
        let mut parts = call.splitn(3, ' ');
        let client = parts.next().expect("a client").parse().expect("a number");
        let (called, returned) = parts.next().expect("a time").split_once("..").expect("two times");
        let replies: Vec<Value> = reply.split("; ").map(value).collect();
        Operation {
            client,
            commands: parts.next().expect("commands").split("; ").map(words).collect(),
            replies,
            called: called.parse().expect("a number"),
            returned: returned.parse().expect("a number"),
        }
    }

    fn value(text: &str) -> Value {
        match (text, text.parse()) {
            ("nil", _) => Value::NullBulk,
            ("OK", _) => Value::ok(),
            (_, Ok(number)) => Value::Integer(number),
            _ if text.contains(',') => Value::Array(text.split(',').map(value).collect()),
            _ => Value::bulk(text),
        }
    }

    #[track_caller]
    fn fits(lines: &[&str]) {
        assert!(explain(&history(lines)).is_ok(), "{lines:#?}");
    }

    #[track_caller]
    fn does_not_fit(lines: &[&str]) {
        assert!(explain(&history(lines)).is_err(), "{lines:#?}");
    }

    #[test]
    fn one_after_the_other() {
        fits(&[]);
        fits(&["1 1..2 GET x -> nil", "1 3..4 SET x a -> OK", "2 5..6 GET x -> a"]);
        does_not_fit(&["1 1..2 GET x -> a"]);
    }

    #[test]
    fn a_read_beside_a_write_may_see_either() {
        for reply in ["nil", "a"] {
            fits(&["1 1..4 SET x a -> OK", &format!("2 2..3 GET x -> {reply}")]);
        }
        does_not_fit(&["1 1..4 SET x a -> OK", "2 2..3 GET x -> b"]);
    }

    #[test]
    fn a_stale_read_is_refused() {
        does_not_fit(&["1 1..2 SET x a -> OK", "2 3..4 GET x -> nil"]);
        does_not_fit(&["1 1..2 SET x a -> OK", "1 3..4 SET x b -> OK", "2 5..6 GET x -> a"]);
        // The write is still in progress, but another client has already seen its value.
        does_not_fit(&["1 1..9 SET x a -> OK", "2 2..3 GET x -> a", "3 4..5 GET x -> nil"]);
    }

    #[test]
    fn a_lost_update_is_refused() {
        fits(&["1 1..4 INCR x -> 1", "2 2..3 INCR x -> 2", "1 5..6 STRLEN x -> 1"]);
        does_not_fit(&["1 1..4 INCR x -> 1", "2 2..3 INCR x -> 1"]);
        does_not_fit(&["1 1..4 SET x a GET -> nil", "2 2..3 SET x b GET -> nil"]);
        does_not_fit(&["1 1..4 SET x a NX -> OK", "2 2..3 SET x b NX -> OK"]);
        does_not_fit(&["1 1..2 SET x a -> OK", "1 3..6 GETDEL x -> a", "2 4..5 GETDEL x -> a"]);
        does_not_fit(&["1 1..2 SET x a -> OK", "1 3..6 DEL x -> 1", "2 4..5 DEL x -> 1"]);
        does_not_fit(&["1 1..4 APPEND x ab -> 2", "2 2..3 APPEND x cd -> 2"]);
    }

    #[test]
    fn a_torn_mset_is_refused() {
        fits(&[
            "1 1..4 MSET x a y a -> OK",
            "2 2..3 MGET x y -> nil,nil",
            "3 2..3 MGET x y -> a,a",
        ]);
        does_not_fit(&["1 1..4 MSET x a y a -> OK", "2 2..3 MGET x y -> a,nil"]);
        does_not_fit(&["1 1..6 MSET x a y a -> OK", "2 2..3 GET x -> a", "2 4..5 GET y -> nil"]);
        does_not_fit(&["1 1..4 MSETNX x a y a -> 1", "2 2..3 MSETNX y b z b -> 1"]);
        // Each key alone would fit.
        let torn =
            history(&["1 1..6 MSET x a y a -> OK", "2 2..3 GET x -> a", "2 4..5 GET y -> nil"]);
        assert_eq!(explain(&torn).expect_err("no order").len(), 2);
    }

    #[test]
    fn a_torn_transaction_is_refused() {
        fits(&["1 1..4 SET x a; SET y a -> OK; OK", "2 2..3 GET x; GET y -> a; a"]);
        does_not_fit(&["1 1..4 SET x a; SET y a -> OK; OK", "2 2..3 GET x; GET y -> a; nil"]);
        does_not_fit(&["1 1..4 GET x; SET x a -> nil; OK", "2 2..3 GET x; SET x b -> nil; OK"]);
    }

    #[test]
    fn a_torn_rename_is_refused() {
        let before = "1 1..2 SET x a -> OK";
        for seen in ["a,nil", "nil,a"] {
            fits(&[before, "1 3..6 RENAME x y -> OK", &format!("2 4..5 MGET x y -> {seen}")]);
        }
        for seen in ["a,a", "nil,nil"] {
            does_not_fit(&[
                before,
                "1 3..6 RENAME x y -> OK",
                &format!("2 4..5 MGET x y -> {seen}"),
            ]);
        }
        fits(&[before, "1 3..6 COPY x y -> 1", "2 4..5 MGET x y -> a,a"]);
        does_not_fit(&[before, "1 3..6 RENAMENX x y -> 1", "2 4..5 RENAMENX x y -> 1"]);
    }

    #[test]
    fn a_connection_keeps_its_order() {
        // In one pipeline: the second is called before the first has returned.
        does_not_fit(&["1 1..3 SET x a -> OK", "1 2..4 GET x -> nil"]);
        fits(&["1 1..3 SET x a -> OK", "2 2..4 GET x -> nil"]);
        does_not_fit(&[
            "1 1..9 SET x a -> OK",
            "1 2..9 SET x b -> OK",
            "2 3..4 GET x -> b",
            "2 5..6 GET x -> a",
        ]);
    }

    #[test]
    fn keys_apart_are_judged_apart() {
        let lines = [
            "1 1..2 SET x a -> OK",
            "1 3..4 SET y b -> OK",
            "2 5..6 GET y -> b",
            "2 7..8 GET x -> a",
        ];
        assert!(explain_by_key(&history(&lines)).is_ok());
        let lines = ["1 1..2 SET x a -> OK", "1 3..4 SET y b -> OK", "2 5..6 GET y -> nil"];
        assert!(explain_by_key(&history(&lines)).is_err());
    }

    /// Without its memory the search would try 2^60 orders and more.
    #[test]
    fn much_at_once_is_searched_quickly() {
        let mut lines: Vec<String> =
            (0..60).map(|n| format!("{n} {n}..1000 SET x same -> OK")).collect();
        fits(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        lines.push("99 2000..2001 GET x -> other".into());
        lines.drain(..44);
        does_not_fit(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    }
}
