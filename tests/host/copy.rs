//! The promise: MIDI.IMPORT copies the host's strings and hashes into midi, and MIDI.EXPORT copies
//! midi's into the host. Values and expiry stay intact, counts are right, the host's encodings do
//! not change, and the host keeps answering.

use crate::common::{
    Client, Mode, Random, Server, Value, at_once, beside, in_all_modes, now_ms, wait_until,
};

/// A reply `[copied, present, not strings]`.
pub fn counts(copied: i64, present: i64, other_types: i64) -> Value {
    Value::integers(&[copied, present, other_types])
}

/// Values of every encoding, with sizes around every boundary.
fn values() -> Vec<(String, Vec<u8>)> {
    let mut values: Vec<(String, Vec<u8>)> = [
        "",
        "0",
        "-1",
        "12345",
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
        "007",
        "text",
        " 1",
    ]
    .iter()
    .enumerate()
    .map(|(number, text)| (format!("v:text:{number}"), text.as_bytes().to_vec()))
    .collect();
    for len in
        [20, 43, 44, 45, 100, 1023, 1024, 1025, 16_384, 32_767, 32_768, 32_769, 500_000, 3_000_000]
    {
        values.push((format!("v:long:{len}"), (0..len).map(|at| (at % 253) as u8).collect()));
    }
    values.push(("v:binary".into(), (0..=255).collect()));
    values.push((String::new(), b"the empty key".to_vec()));
    values
}

fn set(client: &mut Client, command: &str, key: &str, value: &[u8]) {
    assert_eq!(client.call(&[command.as_bytes(), key.as_bytes(), value]), Value::ok());
}

fn encodings(client: &mut Client) -> Vec<Value> {
    values().iter().map(|(key, _)| client.call(&["OBJECT", "ENCODING", key])).collect()
}

#[test]
fn import_takes_every_value_and_changes_no_encoding() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        for (key, value) in values() {
            set(&mut client, "SET", &key, &value);
        }
        client.integer("APPEND v:long:20 more");
        let before = encodings(&mut client);
        assert!(before.contains(&Value::bulk("int")) && before.contains(&Value::bulk("embstr")));
        let total = values().len() as i64;
        assert_eq!(client.run("MIDI.IMPORT *"), counts(total, 0, 0));
        assert_eq!(encodings(&mut client), before);
        for (key, _) in values() {
            let (native, midi) = (client.call(&["GET", &key]), client.call(&["MIDI.GET", &key]));
            assert!(native == midi, "{key:?} differs");
        }
        assert_eq!(client.integer("DBSIZE"), total, "IMPORT copies, it does not move");
    });
}

#[test]
fn export_gives_every_value() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        for (key, value) in values() {
            set(&mut client, "MIDI.SET", &key, &value);
        }
        let total = values().len() as i64;
        assert_eq!(client.run("MIDI.EXPORT *"), counts(total, 0, 0));
        for (key, value) in values() {
            assert!(client.call(&["GET", &key]).bytes() == value, "{key:?} differs");
        }
        assert_eq!(client.run("OBJECT ENCODING v:text:3"), Value::bulk("int"));
        assert_eq!(client.integer("MIDI.DBSIZE"), total);
        assert_eq!(client.run("MIDI.EXPORT *"), counts(0, total, 0));
    });
}

/// Keys in one keyspace, the copy command, and commands that read the other keyspace.
pub struct Way {
    pub copy: &'static str,
    pub from: &'static str,
    pub to: &'static str,
}

pub const WAYS: [Way; 2] = [
    Way { copy: "MIDI.IMPORT", from: "", to: "MIDI." },
    Way { copy: "MIDI.EXPORT", from: "MIDI.", to: "" },
];

pub fn in_both_ways(body: impl Fn(&mut Client, &Way)) {
    in_all_modes(|_, server| {
        for way in &WAYS {
            let mut client = server.client();
            body(&mut client, way);
            client.ok("FLUSHALL");
        }
    });
}

#[test]
fn patterns_choose_and_present_keys_are_kept() {
    in_both_ways(|client, Way { copy, from, to }| {
        for key in ["a", "b", "ab", "key:1", "key:2", "key:10"] {
            client.ok(&format!("{from}SET {key} new"));
        }
        client.ok(&format!("{to}SET key:2 old"));
        assert_eq!(client.run(&format!("{copy} key:?")), counts(1, 1, 0));
        assert_eq!(
            client.run(&format!("{to}MGET key:1 key:2 key:10 a")),
            Value::Array(vec![
                Value::bulk("new"),
                Value::bulk("old"),
                Value::NullBulk,
                Value::NullBulk,
            ])
        );
        assert_eq!(client.run(&format!("{copy} key:* REPLACE")), counts(3, 0, 0));
        assert_eq!(client.run(&format!("{to}GET key:2")), Value::bulk("new"));
        assert_eq!(client.run(&format!("{copy} nosuch*")), counts(0, 0, 0));
        assert_eq!(client.run(&format!("{copy} [a]")), counts(1, 0, 0));
        assert_eq!(client.run(&format!("{copy} *")), counts(2, 4, 0));
    });
}

#[test]
fn at_most_count_keys_are_copied() {
    in_both_ways(|client, Way { copy, from, to }| {
        for number in 0..1000 {
            client.ok(&format!("{from}SET k:{number} v"));
        }
        for count in [1, 2, 9, 88, 900] {
            let before = client.integer(&format!("{to}DBSIZE"));
            let reply = client.run(&format!("{copy} k:* COUNT {count}")).array();
            assert_eq!(reply[0], Value::Integer(count));
            assert_eq!(client.integer(&format!("{to}DBSIZE")), before + count);
        }
        assert_eq!(client.integer(&format!("{to}DBSIZE")), 1000);
        assert_eq!(client.run(&format!("{copy} k:* COUNT 1")), counts(0, 1000, 0));
        assert_eq!(client.run(&format!("{copy} k:* REPLACE COUNT 5000")), counts(1000, 0, 0));
    });
}

#[test]
fn expiry_comes_along() {
    in_both_ways(|client, Way { copy, from, to }| {
        let at = now_ms() + 500_000;
        client.ok(&format!("{from}SET exact v PXAT {at}"));
        client.ok(&format!("{from}SET none v"));
        client.ok(&format!("{to}SET none old EX 1000"));
        assert_eq!(client.run(&format!("{copy} * REPLACE")), counts(2, 0, 0));
        wait_until("it is copied before it has expired", || {
            client.ok(&format!("{from}SET soon v PX 500"));
            client.run(&format!("{copy} soon REPLACE")) == counts(1, 0, 0)
        });
        let left = client.integer(&format!("{to}PTTL exact"));
        assert!((at - left - now_ms()).abs() < 5000, "{left}");
        assert_eq!(client.integer(&format!("{to}TTL none")), -1);
        wait_until("the copy has expired", || client.run(&format!("{to}GET soon")).is_null());
        client.ok(&format!("{from}SET over v PXAT 1"));
        assert_eq!(
            client.run(&format!("{copy} over")),
            counts(0, 0, 0),
            "what has expired is not there"
        );
        assert!(client.run(&format!("{to}GET over")).is_null());
    });
}

#[test]
fn import_counts_what_it_cannot_take() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        for line in [
            "RPUSH l 1",
            "SADD s 1",
            "HSET h a 1",
            "ZADD z 1 a",
            "XADD x * a 1",
            "PFADD hll a",
            "SETBIT bits 7 1",
        ] {
            assert!(!client.run(line).is_error(), "{line}");
        }
        assert_eq!(
            client.run("MIDI.IMPORT *"),
            counts(3, 0, 4),
            "bitmaps and HyperLogLogs are strings"
        );
        assert_eq!(client.run("MIDI.IMPORT *"), counts(0, 3, 4));
        assert_eq!(client.run("MIDI.GET bits"), client.run("GET bits"));
        assert_eq!(client.run("MIDI.IMPORT h"), counts(0, 1, 0));
        assert_eq!(client.run("MIDI.IMPORT l"), counts(0, 0, 1));
    });
}

/// The reply has a fixed text, so the log says which key it was.
#[test]
fn import_names_the_key_that_it_cannot_take() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("CONFIG SET midi.max-value-bytes 2000");
        set(&mut client, "SET", "big string", &[b'x'; 2001]);
        client.call(&["HSET", "big hash", "f", &"x".repeat(2001)]);
        for key in ["big string", "big hash"] {
            let reply = client.call(&["MIDI.IMPORT", key]);
            assert!(reply.is_error() && reply.text().contains("midi.max-value-bytes 2000"));
            let line = format!("MIDI.IMPORT ended at key '{key}': {}", reply.text());
            assert!(server.log().contains(&line), "no {line:?} in\n{}", server.log());
        }
    });
}

/// In a transaction the time does not end a batch, so its bytes must.
#[test]
fn an_export_copies_few_large_hashes_at_a_time() {
    let server = Mode::Adaptive.builder().start();
    let mut client = server.client();
    // A payload compresses what it can.
    let mut random = Random::new(1);
    let value: String = (0..10_000).map(|_| format!("{:020}", random.next())).collect();
    for number in 0..200 {
        client.call(&["MIDI.HSET", &format!("h{number}"), "f", &value]);
    }
    let most = 8 << 20;
    server.forget_peak();
    let before = server.peak_memory();
    client.ok("MULTI");
    client.run("MIDI.EXPORT * COUNT 1");
    assert_eq!(client.run("EXEC").array(), [counts(1, 0, 0)]);
    let taken = server.peak_memory().saturating_sub(before);
    assert!(taken < most, "{taken} bytes for one hash");
}

/// The fields and values of a hash, in no order.
fn fields(client: &mut Client, command: &str, key: &str) -> Vec<Vec<Vec<u8>>> {
    let flat = client.call(&[command, key]).array();
    let flat: Vec<Vec<u8>> = flat.iter().map(|part| part.bytes().to_vec()).collect();
    let mut pairs: Vec<Vec<Vec<u8>>> = flat.chunks(2).map(<[Vec<u8>]>::to_vec).collect();
    pairs.sort();
    pairs
}

/// Makes hashes of every form, with this command; returns their names.
fn make_hashes(client: &mut Client, hset: &str) -> Vec<String> {
    let long = "x".repeat(100_000);
    let shapes = [(1, "1"), (10, "value"), (600, "value"), (3, &long), (40, "-17")];
    for (number, (count, value)) in shapes.iter().enumerate() {
        let key = format!("h{number}");
        for at in 0..*count {
            client.call(&[hset, &key, &format!("field:{at}"), &format!("{value}{at}")]);
        }
        client.call(&[hset, &key, "", ""]);
        client.call(&[hset.as_bytes(), key.as_bytes(), b"\0\r\n\xff", b"12"]);
    }
    (0..shapes.len()).map(|number| format!("h{number}")).collect()
}

#[test]
fn hashes_go_both_ways() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        for (copy, from, to) in [("MIDI.IMPORT", "", "MIDI."), ("MIDI.EXPORT", "MIDI.", "")] {
            for option in ["", " MOVE"] {
                client.ok("FLUSHALL");
                client.ok("MIDI.FLUSHALL");
                let (hset, of_from, of_to) =
                    (format!("{from}HSET"), format!("{from}HGETALL"), format!("{to}HGETALL"));
                let names = make_hashes(&mut client, &hset);
                let before: Vec<_> =
                    names.iter().map(|key| fields(&mut client, &of_from, key)).collect();
                client.integer(&format!("{from}EXPIRE h1 1000"));
                let count = names.len() as i64;
                assert_eq!(client.run(&format!("{copy} h*{option}")), counts(count, 0, 0));
                for (key, before) in names.iter().zip(&before) {
                    assert_eq!(&fields(&mut client, &of_to, key), before, "{copy}{option} {key}");
                }
                let left = client.integer(&format!("{to}TTL h1"));
                assert!((990..=1000).contains(&left), "{left}");
                let there = if option.is_empty() { count } else { 0 };
                assert_eq!(client.integer(&format!("{from}DBSIZE")), there);
                client.call(&[&hset, "h1", "new", "1"]);
                assert_eq!(client.run(&format!("{copy} h1")), counts(0, 1, 0), "without REPLACE");
                assert_eq!(client.run(&format!("{copy} h1 REPLACE")), counts(1, 0, 0));
                let now = fields(&mut client, &of_from, "h1");
                assert_eq!(fields(&mut client, &of_to, "h1"), now);
            }
        }
    });
}

/// Else a server could never give back what it has, where one such hash is among it.
#[test]
fn a_hash_that_the_host_cannot_have_holds_up_no_other() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.integer("MIDI.HSET h a 1 b 2");
        client.run("MIDI.HEXPIRE h 1000 FIELDS 1 a");
        for key in 0..500 {
            client.ok(&format!("MIDI.SET k:{key} v"));
        }
        let has_them = !client.run("HTTL none FIELDS 1 a").is_error();
        let expected = if has_them { counts(501, 0, 0) } else { counts(500, 0, 1) };
        for option in ["REPLACE", "REPLACE MOVE"] {
            assert_eq!(client.run(&format!("MIDI.EXPORT * {option}")), expected, "{option}");
        }
        assert_eq!(client.integer("MIDI.EXISTS h"), i64::from(!has_them));
        assert_eq!(client.integer("MIDI.DBSIZE"), i64::from(!has_them));
    });
}

/// Without REPLACE any existing key of that name stays as it is. With it, a list becomes a string,
/// as with SET.
#[test]
fn export_meets_keys_of_other_types() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("MIDI.MSET l string k v");
        client.integer("RPUSH l 1");
        assert_eq!(client.run("MIDI.EXPORT k"), counts(1, 0, 0));
        let reply = client.run("MIDI.EXPORT l").array();
        assert_eq!(reply[0], Value::Integer(0));
        assert_eq!(reply[1].integer() + reply[2].integer(), 1);
        assert_eq!(client.run("TYPE l"), Value::Simple(b"list".to_vec()));
        assert_eq!(client.run("MIDI.EXPORT l REPLACE"), counts(1, 0, 0));
        assert_eq!(client.run("GET l"), Value::bulk("string"));
    });
}

#[test]
fn copies_stay_in_the_clients_database() {
    in_both_ways(|client, Way { copy, from, to }| {
        for db in 0..4 {
            client.ok(&format!("SELECT {db}"));
            for number in 0..=db {
                client.ok(&format!("{from}SET k:{number} {db}"));
            }
        }
        client.ok("SELECT 2");
        assert_eq!(client.run(&format!("{copy} *")), counts(3, 0, 0));
        assert_eq!(client.run("GET k:0"), client.run("MIDI.GET k:0"));
        for db in [0, 1, 3] {
            client.ok(&format!("SELECT {db}"));
            assert_eq!(client.integer(&format!("{to}DBSIZE")), 0, "database {db}");
        }
    });
}

#[test]
fn wrong_arguments_are_refused() {
    in_both_ways(|client, Way { copy, .. }| {
        let name = copy.to_lowercase();
        let arity = format!("ERR wrong number of arguments for '{name}' command");
        assert_eq!(client.run(copy), Value::error(&arity));
        for (options, text) in [
            ("* COUNT", "ERR syntax error"),
            ("* NOSUCH", "ERR syntax error"),
            ("* REPLACE 1", "ERR syntax error"),
            ("* COUNT abc", "ERR value is not an integer or out of range"),
            ("* COUNT 0", "ERR value is out of range, must be positive"),
            ("* COUNT -3", "ERR value is out of range, must be positive"),
        ] {
            assert_eq!(client.run(&format!("{copy} {options}")), Value::error(text), "{options}");
        }
        assert_eq!(client.run(&format!("{copy} * count 5 replace")), counts(0, 0, 0));
    });
}

#[test]
fn copies_work_inside_transactions_and_scripts() {
    in_both_ways(|client, Way { copy, from, to }| {
        client.ok("MULTI");
        for number in 0..300 {
            client.run(&format!("{from}SET k:{number} {number}"));
        }
        client.run(&format!("{copy} k:1*"));
        client.run(&format!("{to}DBSIZE"));
        let replies = client.run("EXEC").array();
        assert_eq!(replies[300..], [counts(111, 0, 0), Value::Integer(111)]);
        let script = format!("return redis.call('{copy}', ARGV[1], 'REPLACE')");
        assert_eq!(client.call(&["EVAL", &script, "0", "k:*"]), counts(300, 0, 0));
        assert_eq!(client.run(&format!("{to}GET k:299")), Value::bulk("299"));
    });
}

fn copy_and_check(server: &Server, copy: &str, prefix: usize, keys: i64) {
    let mut client = server.client();
    let reply = client.run(&format!("{copy} p{prefix}:*"));
    assert_eq!(reply, counts(keys, 0, 0), "{copy} p{prefix}");
}

#[test]
fn several_copies_at_once_beside_clients() {
    in_all_modes(|_, server| {
        let mut admin = server.client();
        for prefix in 0..4 {
            admin.ok(&format!("DEBUG POPULATE 20000 p{prefix}"));
            admin.ok(&format!("MIDI.POPULATE 20000 p{}", prefix + 4));
        }
        let talk = |client: &mut Client, random: &mut Random| {
            assert_eq!(client.run("PING"), Value::Simple(b"PONG".to_vec()));
            let key = format!("talk:{}", random.below(1000));
            client.ok(&format!("SET {key} v"));
            client.ok(&format!("MIDI.SET {key} v"));
            assert_eq!(client.run(&format!("GET {key}")), Value::bulk("v"));
        };
        beside(server, 2, talk, || {
            at_once(8, |number| {
                let copy = if number < 4 { "MIDI.IMPORT" } else { "MIDI.EXPORT" };
                copy_and_check(server, copy, number, 20_000);
            });
        });
        for prefix in 0..8 {
            for number in [0, 7777, 19_999] {
                let key = format!("p{prefix}:{number}");
                let native = admin.run(&format!("GET {key}"));
                assert_eq!(native, admin.run(&format!("MIDI.GET {key}")));
                assert!(!native.is_null());
            }
        }
    });
}

/// A key that exists the whole time is copied, whatever else happens in the host's keyspace.
#[test]
fn stable_keys_are_copied_while_others_come_and_go() {
    in_both_ways(|client, _| client.ok("FLUSHALL"));
    in_all_modes(|_, server| {
        for Way { copy, from, to } in &WAYS {
            let mut client = server.client();
            const STABLE: usize = 2000;
            for number in 0..STABLE {
                client.send_line(&format!("{from}SET stable:{number} {number}"));
            }
            (0..STABLE).for_each(|_| drop(client.read()));
            let churn = |client: &mut Client, random: &mut Random| {
                let from_number = random.below(10_000);
                for number in from_number..from_number + 200 {
                    client.send_line(&format!("{from}SET churn:{number} v"));
                    client.send_line(&format!("{from}DEL churn:{}", number + 100));
                }
                (0..400).for_each(|_| drop(client.read()));
            };
            beside(server, 2, churn, || {
                for _ in 0..3 {
                    client.run(&format!("{copy} * REPLACE"));
                    let mut found = 0;
                    for number in 0..STABLE {
                        client.send_line(&format!("{to}GET stable:{number}"));
                    }
                    for number in 0..STABLE {
                        found += usize::from(client.read() == Value::bulk(number.to_string()));
                    }
                    assert_eq!(found, STABLE, "{copy}");
                    if !to.is_empty() {
                        client.ok("MIDI.FLUSHDB");
                    }
                }
            });
            client.ok("FLUSHALL");
        }
    });
}

/// Flushes and swaps during copies do no harm.
#[test]
fn flushes_and_swaps_beside_copies() {
    in_all_modes(|_, server| {
        let copies = |client: &mut Client, random: &mut Random| {
            client.ok(&format!("SELECT {}", random.below(2)));
            client.ok("DEBUG POPULATE 3000 n");
            client.ok("MIDI.POPULATE 3000 m");
            for line in ["MIDI.IMPORT * REPLACE", "MIDI.EXPORT * COUNT 1000"] {
                assert_eq!(client.run(line).array().len(), 3);
            }
        };
        beside(server, 3, copies, || {
            let mut client = server.client();
            for round in 0..40 {
                client.ok(["FLUSHALL", "SWAPDB 0 1", "MIDI.FLUSHALL", "FLUSHDB"][round % 4]);
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        server.wait_until_idle();
        let mut client = server.client();
        assert_eq!(client.integer("MIDI.DBSIZE"), client.run("MIDI.KEYS *").array().len() as i64);
    });
}

/// A copy must not write to a paused host. It continues afterwards.
#[test]
fn a_pause_holds_export_up() {
    for mode in Mode::with_jobs() {
        let server = mode.server();
        let (mut client, mut admin) = (server.client(), server.client());
        admin.ok("MIDI.POPULATE 150000 p");
        client.send_line("MIDI.EXPORT *");
        wait_until("it has begun", || admin.integer("DBSIZE") > 0);
        admin.ok("CLIENT PAUSE 60000 WRITE");
        let size = admin.integer("DBSIZE");
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert_eq!(admin.integer("DBSIZE"), size, "EXPORT writes although writes are paused");
        admin.ok("CLIENT UNPAUSE");
        assert_eq!(client.read(), counts(150_000, 0, 0));
        assert_eq!(admin.integer("DBSIZE"), 150_000);
    }
}

#[test]
fn copies_stop_at_maxmemory() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("MIDI.POPULATE 20000 m 1000");
        client.ok("DEBUG POPULATE 20000 n 1000");
        let used = client.info_number("memory", "used_memory");
        for line in ["MIDI.EXPORT m:* REPLACE", "MIDI.IMPORT n:* REPLACE"] {
            client.ok(&format!("CONFIG SET maxmemory {}", used + (4 << 20)));
            let reply = client.run(line);
            assert!(reply.is_error() && reply.text().starts_with("OOM "), "{line}: {reply:?}");
            client.ok("CONFIG SET maxmemory 0");
            client.integer("UNLINK nosuch");
        }
        assert_eq!(client.run("MIDI.IMPORT n:* REPLACE"), counts(20_000, 0, 0));
    });
}
