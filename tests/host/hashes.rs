//! The promise: a hash answers through every door what the host's own commands answer, with both
//! protocols, errors included; commands that the host does not have answer as the newest host's.

use std::collections::{BTreeMap, BTreeSet};

use super::hashes_saved::set_fields;
use crate::common::hosts::host;
use crate::common::port::Ported;
use crate::common::{
    Builder, Client, Door, Mode, Random, Twin, Value, in_all_modes, in_all_modes_and_protocols,
    wait_until, words,
};

/// Runs one test body with a hash of midi's beside the host's, through all doors and with both
/// protocols.
fn at_all_doors(body: impl Fn(&mut Twin)) {
    in_all_modes_and_protocols(&body);
    let (ported, plain) = (Ported::start(Mode::Adaptive.builder()), Builder::plain().start());
    for door in [Door::Port, Door::PortPrefixed] {
        for resp3 in [false, true] {
            let (mut native, mut midi) = (plain.client(), ported.client());
            native.ok("FLUSHALL");
            midi.ok("FLUSHALL");
            if resp3 {
                (native, midi) = (native.resp3(), midi.resp3());
            }
            let twin = &mut Twin::apart(native, midi, door);
            body(twin);
            twin.flush();
        }
    }
}

/// What the key may be before a command.
const BEFORE: [&[&str]; 5] = [
    &["DEL k"],
    &["DEL k", "SET k text"],
    &["DEL k", "HSET k a 1 b text c 1.5 d 9223372036854775807 e 1e400"],
    &["DEL k", "HSET k a -9223372036854775808", "EXPIREAT k 4102444800"],
    &["DEL k", "HSET k a 1", "HDEL k a"],
];

/// Commands on the key, right and wrong.
const LINES: [&str; 82] = [
    "HSET",
    "HSET k",
    "HSET k a",
    "HSET k a 2",
    "HSET k a 2 b",
    "HSET k a 2 b 3 a 4 new 5",
    "HMSET k",
    "HMSET k a",
    "HMSET k a 1 b",
    "HMSET k a 1 b 2",
    "HSETNX k a",
    "HSETNX k a 7",
    "HSETNX k new 7",
    "HSETNX k new 7 more 8",
    "HGET k",
    "HGET k a",
    "HGET k nosuch",
    "HGET k a b",
    "HMGET k",
    "HMGET k a",
    "HMGET k nosuch a a b",
    "HDEL k",
    "HDEL k a",
    "HDEL k a a nosuch",
    "HDEL k a b c d e",
    "HEXISTS k",
    "HEXISTS k a",
    "HEXISTS k nosuch",
    "HLEN",
    "HLEN k",
    "HLEN k a",
    "HSTRLEN k a",
    "HSTRLEN k nosuch",
    "HSTRLEN k",
    "HKEYS k",
    "HVALS k",
    "HGETALL k",
    "HGETALL",
    "HKEYS k a",
    "HINCRBY k a",
    "HINCRBY k a 1",
    "HINCRBY k a -1",
    "HINCRBY k a 1.5",
    "HINCRBY k a x",
    "HINCRBY k b 1",
    "HINCRBY k c 1",
    "HINCRBY k d 1",
    "HINCRBY k d -9223372036854775808",
    "HINCRBY k new 9223372036854775808",
    "HINCRBY k new 5",
    "HINCRBYFLOAT k a",
    "HINCRBYFLOAT k a 1",
    "HINCRBYFLOAT k c 0.1",
    "HINCRBYFLOAT k c -3.0e2",
    "HINCRBYFLOAT k b 1",
    "HINCRBYFLOAT k e 1",
    "HINCRBYFLOAT k a x",
    "HINCRBYFLOAT k a inf",
    "HINCRBYFLOAT k a -inf",
    "HINCRBYFLOAT k a nan",
    "HINCRBYFLOAT k a 1e4932",
    "HINCRBYFLOAT k new 0.25",
    "HRANDFIELD",
    "HRANDFIELD k",
    "HRANDFIELD k 0",
    "HRANDFIELD k 100",
    "HRANDFIELD k 100 WITHVALUES",
    "HRANDFIELD k -7 withvalues",
    "HRANDFIELD k 1 VALUES",
    "HRANDFIELD k 1 WITHVALUES more",
    "HRANDFIELD k x",
    "HRANDFIELD k -9223372036854775808",
    "HRANDFIELD k 9223372036854775807 WITHVALUES",
    "HSCAN k",
    "HSCAN k 0",
    "HSCAN k 0 MATCH [ab] COUNT 100",
    "HSCAN k 0 COUNT 0",
    "HSCAN k 0 COUNT x",
    "HSCAN k 0 COUNT",
    "HSCAN k 0 NOSUCH",
    "HSCAN k x",
    "HSCAN k -1x",
];

/// Commands on keys of any type, and those on strings.
const OF_OTHERS: [&str; 46] = [
    "TYPE k",
    "EXISTS k",
    "TOUCH k",
    "TTL k",
    "EXPIRETIME k",
    "GET k",
    "SET k new",
    "SET k new GET",
    "SET k new XX GET",
    "SET k new NX",
    "SET k new KEEPTTL",
    "SETNX k new",
    "GETSET k new",
    "GETDEL k",
    "GETEX k PERSIST",
    "APPEND k x",
    "STRLEN k",
    "SETRANGE k 0 x",
    "SETRANGE k 0 ",
    "GETRANGE k 0 -1",
    "SUBSTR k 0 1",
    "INCR k",
    "INCRBYFLOAT k 1",
    "SETBIT k 0 1",
    "GETBIT k 0",
    "BITCOUNT k",
    "BITPOS k 1",
    "BITFIELD k GET u8 0",
    "BITFIELD_RO k GET u8 0",
    "BITOP NOT l k",
    "BITOP AND k k l",
    "LCS k l",
    "LCS l k",
    "MGET k l",
    "MSET k new",
    "MSETNX k new",
    "PFCOUNT_IS_NOT_THERE k",
    "EXPIRE k 1000000",
    "PEXPIREAT k 4102444800000",
    "EXPIRE k -1",
    "PERSIST k",
    "RENAME k l",
    "RENAMENX k l",
    "COPY k l",
    "COPY k l REPLACE",
    "MOVE k 2",
];

/// All that the two databases have.
const STATE: [&str; 8] = [
    "TYPE k",
    "GET k",
    "HGETALL k",
    "EXPIRETIME k",
    "TYPE l",
    "HGETALL l",
    "EXPIRETIME l",
    "DBSIZE",
];

#[test]
fn replies_are_those_of_the_host() {
    at_all_doors(|twin| {
        for before in BEFORE {
            for line in LINES {
                before.iter().for_each(|line| twin.push_line(line));
                twin.push_line(line);
                STATE.iter().for_each(|line| twin.push_line(line));
            }
        }
    });
}

#[test]
fn other_commands_know_hashes() {
    at_all_doors(|twin| {
        for before in BEFORE {
            for line in OF_OTHERS {
                for other in ["SET l text", "HSET l x y"] {
                    twin.push_line("FLUSHDB");
                    twin.push_line(other);
                    before.iter().for_each(|line| twin.push_line(line));
                    twin.push(&line.split(' ').collect::<Vec<_>>());
                    STATE.iter().for_each(|line| twin.push_line(line));
                }
            }
        }
    });
}

/// Fields and values of all bytes and sizes, also those at which hashes take another form.
#[test]
fn fields_of_any_bytes() {
    let sizes = [0, 1, 63, 64, 65, 254, 255, 256, 4000, 20_000, 70_000];
    at_all_doors(|twin| {
        for (number, size) in sizes.into_iter().enumerate() {
            let bytes: Vec<u8> = (0..size).map(|at| (at * 7 + size) as u8).collect();
            let marked = [&[0xff, 0, b'\r', b'\n', number as u8][..], &bytes].concat();
            let hash = format!("h{}", number % 2);
            for (field, value) in [(&bytes, &marked), (&marked, &bytes)] {
                let key = hash.as_bytes();
                twin.push(&[b"HSET", key, field, value]);
                twin.push(&[b"HGET", key, field]);
                twin.push(&[b"HMGET", key, field, b"", value]);
                twin.push(&[b"HSTRLEN", key, field]);
                twin.push(&[b"HEXISTS", key, field]);
                twin.push(&[b"HSETNX", key, field, b"other"]);
                twin.push(&[b"HGETALL", key]);
                twin.push(&[b"HKEYS", key]);
                twin.push(&[b"HVALS", key]);
                twin.push(&[b"HRANDFIELD", key, b"100", b"WITHVALUES"]);
                twin.push(&[b"HSCAN", key, b"0", b"COUNT", b"100000"]);
            }
            twin.push(&[b"HDEL", hash.as_bytes(), &bytes]);
            twin.push(&[b"HGETALL", hash.as_bytes()]);
        }
    });
}

/// From one field to thousands, and back to none.
#[test]
fn hashes_grow_and_shrink() {
    at_all_doors(|twin| {
        for number in 0..1500 {
            twin.push_line(&format!("HSET k field:{number} {number}"));
            if number % 100 == 12 {
                ["HLEN k", "HGETALL k", "OBJECT ENCODING k"]
                    .iter()
                    .for_each(|it| twin.push_line(it));
            }
        }
        for number in 0..1500 {
            twin.push_line(&format!("HINCRBY k field:{number} 1"));
            twin.push_line(&format!("HDEL k field:{}", number * 7 % 1500));
            if number % 100 == 12 {
                ["HLEN k", "HGETALL k"].iter().for_each(|it| twin.push_line(it));
            }
        }
        twin.push_line("EXISTS k");
    });
}

/// Unlike Redis's, midi's answer depends on the hash alone, not on what it was before.
#[test]
fn its_encoding_follows_the_settings() {
    let server = Builder::new().with_port().start();
    let mut client = server.client();
    let encoding =
        |client: &mut Client, key: &str| client.run(&format!("MIDI.OBJECT ENCODING {key}")).text();
    let fields: String = (0..512).map(|number| format!(" f{number} v")).collect();
    client.integer(&format!("MIDI.HSET many{fields}"));
    client.integer(&format!("MIDI.HSET wide f {}", "x".repeat(64)));
    // Hosts have different limits, and midi has theirs.
    client.ok("CONFIG SET midi.hash-max-listpack-entries 512");
    client.ok("CONFIG SET midi.hash-max-listpack-value 64");
    assert_eq!(["many", "wide"].map(|key| encoding(&mut client, key)), ["listpack", "listpack"]);
    client.integer("MIDI.HSET many more v");
    client.integer(&format!("MIDI.HSET wide f {}", "x".repeat(65)));
    assert_eq!(["many", "wide"].map(|key| encoding(&mut client, key)), ["hashtable", "hashtable"]);
    client.integer("MIDI.HDEL many more");
    client.integer("MIDI.HSET wide f x");
    assert_eq!(["many", "wide"].map(|key| encoding(&mut client, key)), ["listpack", "listpack"]);
    client.ok("CONFIG SET midi.hash-max-listpack-entries 511");
    client.ok("CONFIG SET midi.hash-max-listpack-value 0");
    let at_port = ["many", "wide"]
        .map(|key| server.midi_client().run(&format!("OBJECT ENCODING {key}")).text());
    assert_eq!(at_port, ["hashtable", "hashtable"]);
    let bytes = |key: &str| server.client().integer(&format!("MIDI.MEMORY USAGE {key}"));
    assert!(bytes("many") > 512 * 4 && bytes("wide") > 2, "{} {}", bytes("many"), bytes("wide"));
}

/// A hash of these fields, whose values are their names with `v` in front.
fn filled(client: &mut Client, door: Door, count: usize) -> BTreeSet<String> {
    let names: BTreeSet<String> = (0..count).map(|number| format!("field:{number}")).collect();
    client.call(&door.named(&["DEL", "h"]));
    for names in names.iter().collect::<Vec<_>>().chunks(100) {
        let mut command = words("HSET h");
        command.extend(
            names
                .iter()
                .flat_map(|name| [name.to_string(), format!("v{name}")].map(String::into_bytes)),
        );
        assert_eq!(client.call(&door.named(&command)), Value::Integer(names.len() as i64));
    }
    names
}

/// The pairs of a reply, from a flat array or from pairs.
fn pairs(reply: Value) -> Vec<(String, String)> {
    let flat: Vec<Value> = reply
        .array()
        .into_iter()
        .flat_map(|element| match element {
            Value::Array(pair) => pair,
            other => vec![other],
        })
        .collect();
    flat.chunks(2).map(|pair| (pair[0].text(), pair[1].text())).collect()
}

#[test]
fn drawn_fields_are_fields() {
    let server = Builder::new().with_port().start();
    for (door, resp3) in [(Door::Host, true), (Door::Port, false), (Door::Port, true)] {
        let mut client = door.client(&server);
        if resp3 {
            client = client.resp3();
        }
        for (count, expires) in
            [1, 3, 40, 512, 3000].into_iter().flat_map(|count| [(count, false), (count, true)])
        {
            let names = filled(&mut client, door, count);
            if expires {
                client.call(&door.named(&words("HEXPIRE h 100000 FIELDS 1 field:0")));
            }
            let mut draw = |arguments: &str| {
                client.call(&door.named(&words(format!("HRANDFIELD h {arguments}").trim())))
            };
            assert!(names.contains(&draw("").text()));
            let mut seen = BTreeSet::new();
            for wanted in [1, 2, count / 10, count / 2, count - 1, count, count + 1] {
                let drawn = pairs(draw(&format!("{wanted} WITHVALUES")));
                let different: BTreeSet<_> = drawn.iter().map(|pair| pair.0.clone()).collect();
                assert_eq!(drawn.len(), wanted.min(count), "{wanted} of {count}");
                assert_eq!(different.len(), drawn.len(), "each once");
                assert!(drawn.iter().all(|(name, value)| *value == format!("v{name}")));
                seen.extend(different);
                let again = draw(&(-(wanted as i64)).to_string()).array();
                assert_eq!(again.len(), wanted);
            }
            assert_eq!(seen, names, "one of them drew all");
            // 30 for each field: that one is left out has a probability below 1e-9.
            let drawn = pairs(draw(&format!("-{} WITHVALUES", 30 * count)));
            assert!(drawn.iter().all(|(name, value)| *value == format!("v{name}")));
            let often: BTreeSet<_> = drawn.into_iter().map(|pair| pair.0).collect();
            assert_eq!(often, names, "each of {count} is drawn");
        }
    }
}

/// Fields that have expired, and that nothing has removed yet, are not drawn.
#[test]
fn draws_beside_what_has_expired() {
    let server = Builder::new().with_port().start();
    let mut client = server.midi_client();
    server.client().ok("DEBUG SET-ACTIVE-EXPIRE 0");
    for left in [3, 300, 1500, 2900] {
        let names: Vec<String> = filled(&mut client, Door::Port, 3000).into_iter().collect();
        let count = (names.len() - left).to_string();
        let mut command = vec!["HPEXPIRE", "h", "1", "FIELDS", &count];
        command.extend(names[left..].iter().map(String::as_str));
        client.call(&command);
        let last = format!("HEXISTS h {}", names[2999]);
        wait_until("they have expired", || client.integer(&last) == 0);
        let names = &names[..left];
        for wanted in [1, left / 3, left, 3000] {
            let drawn = client.run(&format!("HRANDFIELD h {wanted}")).array();
            let drawn: BTreeSet<_> = drawn.iter().map(Value::text).collect();
            assert_eq!(drawn.len(), wanted.min(left), "{wanted} of {left}, each once");
            assert!(drawn.iter().all(|name| names.contains(name)), "{wanted} of {left}");
        }
        // Each is left out with a probability below 1e-9.
        let drawn = client.run(&format!("HRANDFIELD h -{}", 30 * left)).array();
        let drawn: BTreeSet<_> = drawn.iter().map(Value::text).collect();
        assert!(drawn.iter().eq(names), "{left}");
        assert!(names.contains(&client.run("HRANDFIELD h").text()));
    }
}

/// Few fields of a hash that was large.
#[test]
fn draws_from_what_is_left() {
    let server = Builder::new().with_port().start();
    let mut client = server.midi_client();
    let names: Vec<String> = filled(&mut client, Door::Port, 3000).into_iter().collect();
    for left in [100, 20, 2, 1] {
        let gone: Vec<&str> = names[left..].iter().map(String::as_str).collect();
        client.call(&[&["HDEL", "h"][..], &gone].concat());
        let mut seen = BTreeSet::new();
        // Each is left out with a probability below 1e-12.
        for _ in 0..30 * left {
            seen.insert(client.run("HRANDFIELD h").text());
        }
        assert!(seen.iter().eq(&names[..left]), "{left}: {seen:?}");
        let drawn = client.run(&format!("HRANDFIELD h {}", left.div_ceil(3))).array();
        assert_eq!(drawn.len(), left.div_ceil(3));
    }
}

/// Fields that are there all the time are returned, while others come and go and the hash changes
/// its form.
#[test]
fn scans_beside_changes() {
    let server = Builder::new().with_port().start();
    for door in [Door::Host, Door::Port] {
        let mut client = door.client(&server);
        for (count, options) in
            [(3, ""), (300, ""), (500, " COUNT 7"), (2000, ""), (2000, " NOVALUES COUNT 100")]
        {
            let names = filled(&mut client, door, count);
            let mut random = Random::new(count as u64);
            let (mut cursor, mut found) = ("0".to_owned(), BTreeSet::new());
            loop {
                let line = format!("HSCAN h {cursor}{options}");
                let reply = client.call(&door.named(&words(&line))).array();
                let step = if options.contains("NOVALUES") { 1 } else { 2 };
                let fields = reply[1].clone().array();
                for pair in fields.chunks(step) {
                    let name = pair[0].text();
                    if step == 2 {
                        assert_eq!(pair[1].text(), format!("v{name}"));
                    }
                    found.insert(name);
                }
                cursor = reply[0].text();
                if cursor == "0" {
                    break;
                }
                for _ in 0..30 {
                    let name = format!("other:{}", random.below(1000));
                    let line = match random.below(3) {
                        0 => format!("HDEL h {name}"),
                        _ => format!("HSET h {name} v{name}"),
                    };
                    client.call(&door.named(&words(&line)));
                }
            }
            let missing: Vec<_> = names.difference(&found).collect();
            assert!(missing.is_empty(), "{door:?}, {count}{options}: {missing:?}");
        }
    }
}

/// HGETDEL and NOVALUES, which not every host has.
#[test]
fn what_older_hosts_lack() {
    let ported = Ported::start(Mode::Adaptive.builder());
    for door in Door::ALL {
        let mut client = door.client(&ported.server);
        let mut run = |line: &str| client.call(&door.named(&words(line)));
        let name = if door == Door::Port { "hgetdel" } else { "midi.hgetdel" };
        let arity = format!("ERR wrong number of arguments for '{name}' command");
        let matched = "ERR The `numfields` parameter must match the number of arguments";
        let position = "ERR Mandatory argument FIELDS is missing or not at the right position";
        let positive = "ERR Number of fields must be a positive integer";
        let wrong_type = "WRONGTYPE Operation against a key holding the wrong kind of value";
        run("SET text v");
        run("HSET h a 1 b 2 c 3");
        for (line, expected) in [
            ("HGETDEL h", arity.as_str()),
            ("HGETDEL h FIELDS 1", &arity),
            ("HGETDEL h FIELD 1 a", position),
            ("HGETDEL h a FIELDS 1 a", position),
            ("HGETDEL h FIELDS 0 a", positive),
            ("HGETDEL h FIELDS -1 a", positive),
            ("HGETDEL h FIELDS x a", positive),
            ("HGETDEL h FIELDS 2 a", matched),
            ("HGETDEL h FIELDS 1 a b", matched),
            ("HGETDEL text FIELDS 1 a", wrong_type),
        ] {
            assert_eq!(run(line), Value::error(expected), "{line}");
        }
        let texts = |texts: &[&str]| Value::Array(texts.iter().map(Value::bulk).collect());
        let nulls = |count| Value::Array(vec![Value::NullBulk; count]);
        assert_eq!(run("HLEN h"), Value::Integer(3), "nothing is removed");
        assert_eq!(run("HGETDEL nosuch FIELDS 2 a b"), nulls(2));
        let twice = Value::Array(vec![Value::bulk("2"), Value::NullBulk, Value::NullBulk]);
        assert_eq!(run("hgetdel h fields 3 b b x"), twice);
        assert_eq!(run("HGETALL h"), texts(&["a", "1", "c", "3"]));
        let scan = run("HSCAN h 0 NOVALUES MATCH *");
        assert_eq!(scan, Value::Array(vec![Value::bulk("0"), texts(&["a", "c"])]));
        assert_eq!(run("HGETDEL h FIELDS 2 c a"), texts(&["3", "1"]));
        assert_eq!(run("EXISTS h"), Value::Integer(0));
    }
    let has_it = if host().valkey { host().version >= (9, 1) } else { host().version >= (8, 0) };
    if has_it {
        in_all_modes_and_protocols(|twin| {
            for before in BEFORE {
                for line in
                    ["HGETDEL k FIELDS 2 a b", "HGETDEL k FIELDS 3 b b a", "HGETDEL k FIELDS 1 x"]
                {
                    before.iter().for_each(|line| twin.push_line(line));
                    twin.push_line(line);
                    STATE.iter().for_each(|line| twin.push_line(line));
                }
            }
        });
    }
}

/// SCAN finds hashes by their type; their fields are not keys.
#[test]
fn scan_finds_them_by_type() {
    let server = Builder::new().with_port().start();
    let mut client = server.client();
    client.ok("MIDI.MSET a 1 b 2");
    client.integer("MIDI.HSET h f v");
    let fields: String = (0..600).map(|number| format!(" f{number} v")).collect();
    client.integer(&format!("MIDI.HSET large{fields}"));
    for (door, of_type, expected) in
        [(Door::Host, "hash", vec!["h", "large"]), (Door::Port, "string", vec!["a", "b"])]
    {
        let line = format!("SCAN 0 COUNT 100000 TYPE {of_type}");
        let reply = door.client(&server).call(&door.named(&words(&line))).array();
        let names: Vec<String> = reply[1].clone().sorted().iter().map(Value::text).collect();
        assert_eq!(names, expected, "{of_type}");
    }
    assert_eq!(client.integer("MIDI.DBSIZE"), 4);
}

/// Writers on several connections: no addition is lost, and a pair of fields that is written
/// together is read together.
#[test]
fn writers_beside_readers() {
    const TURNS: usize = 300;
    for mode in Mode::tried() {
        let server = mode.builder().with_port().start();
        crate::common::at_once(4, |number| {
            let door = [Door::Host, Door::Port][number % 2];
            let mut client = door.client(&server);
            for turn in 0..TURNS {
                let lines = [
                    "HINCRBY h count 1".to_owned(),
                    format!("HSET h one {number}.{turn} two {number}.{turn} {number}:{turn} x"),
                    "HMGET h one two".to_owned(),
                    format!("HDEL h {number}:{}", turn.wrapping_sub(300)),
                ];
                let commands: Vec<_> = lines.iter().map(|line| door.named(&words(line))).collect();
                let replies = client.pipeline(&commands);
                let both = replies[2].clone().array();
                assert_eq!(both[0], both[1], "{door:?}");
            }
        });
        let mut client = server.client();
        let found: BTreeMap<_, _> = client.run("MIDI.HGETALL h").map().into_iter().collect();
        assert_eq!(found["count"].text(), (4 * TURNS).to_string());
        assert_eq!(found.len(), 3 + 4 * TURNS);
    }
}

/// A call of HSCAN that may look at all fields still lets others on after some of them.
#[test]
fn a_scan_of_fields_comes_in_parts_whatever_its_count() {
    in_all_modes(|mode, server| {
        let mut client = server.client();
        set_fields(&mut client, "h", 0..25_000, "v");
        for pattern in ["*", "none"] {
            let (mut cursor, mut found, mut calls) = ("0".to_owned(), Vec::new(), 0);
            while calls == 0 || cursor != "0" {
                let line = format!("MIDI.HSCAN h {cursor} COUNT 1000000 MATCH {pattern} NOVALUES");
                let reply = client.run(&line).array();
                cursor = reply[0].text();
                found.extend(reply[1].clone().array().iter().map(Value::text));
                calls += 1;
            }
            assert!((3..10).contains(&calls), "{mode:?}: {calls} calls");
            found.sort();
            found.dedup();
            assert_eq!(found.len(), if pattern == "*" { 25_000 } else { 0 }, "{mode:?}");
        }
    });
}
