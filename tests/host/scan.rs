//! The promise: KEYS and a full SCAN return each key that exists the whole time exactly once, while
//! tables grow, shrink and are flushed. They never return a key that never existed.

use std::collections::{HashMap, HashSet};

use crate::common::{Client, Mode, Random, Server, Value, beside, in_all_modes};

const STABLE: usize = 2000;

fn stable_key(number: usize) -> Vec<u8> {
    format!("stable:{number}").into_bytes()
}

fn set_stable(client: &mut Client) {
    let commands: Vec<Vec<Vec<u8>>> = (0..STABLE)
        .map(|number| vec![b"MIDI.SET".to_vec(), stable_key(number), b"v".to_vec()])
        .collect();
    client.pipeline(&commands);
}

/// Every returned key has a name that a client has used.
#[track_caller]
fn check_known(keys: &[Vec<u8>]) {
    for key in keys {
        let text = String::from_utf8_lossy(key);
        let (prefix, number) =
            text.split_once(':').unwrap_or_else(|| panic!("no such key: {text}"));
        let known =
            matches!(prefix, "stable" | "churn" | "grow") && number.parse::<usize>().is_ok();
        assert!(known, "no such key: {text}");
    }
}

#[track_caller]
fn check_all_stable(keys: &[Vec<u8>]) {
    check_known(keys);
    let seen: HashSet<&Vec<u8>> = keys.iter().collect();
    let missing: Vec<usize> =
        (0..STABLE).filter(|&number| !seen.contains(&stable_key(number))).collect();
    assert!(missing.is_empty(), "{} stable keys were not seen: {missing:?}", missing.len());
}

#[track_caller]
fn check_keys_once(keys: &[Vec<u8>]) {
    check_all_stable(keys);
    let mut counts: HashMap<&Vec<u8>, usize> = HashMap::new();
    for key in keys {
        *counts.entry(key).or_default() += 1;
    }
    for number in 0..STABLE {
        assert_eq!(counts[&stable_key(number)], 1, "stable:{number} was seen more than once");
    }
}

fn keys(client: &mut Client, pattern: &str) -> Vec<Vec<u8>> {
    let reply = client.run(&format!("MIDI.KEYS {pattern}")).array();
    reply.iter().map(|key| key.bytes().to_vec()).collect()
}

/// Adds and deletes keys, many and few, with and without expiry.
fn churn(client: &mut Client, random: &mut Random) {
    let from = random.below(20_000);
    let count = 1 + random.below(300);
    let mut commands: Vec<Vec<String>> = Vec::new();
    let mut add = |line: String| commands.push(line.split(' ').map(str::to_owned).collect());
    for number in from..from + count {
        match random.below(5) {
            0 => add(format!("MIDI.SET churn:{number} v PX {}", 1 + random.below(50))),
            1 | 2 => add(format!("MIDI.DEL churn:{number} churn:{}", number + 1)),
            _ => add(format!("MIDI.SET churn:{number} {number}")),
        }
    }
    if random.below(10) == 0 {
        add(format!("MIDI.POPULATE {} grow", random.below(20_000)));
    }
    if random.below(10) == 0 {
        let gone: Vec<String> = (0..20_000).map(|number| format!("grow:{number}")).collect();
        add(format!("MIDI.UNLINK {}", gone.join(" ")));
    }
    for reply in client.pipeline(&commands) {
        assert!(!reply.is_error(), "{reply:?}");
    }
}

fn scan_beside_churn(server: &Server, rounds: usize) {
    let mut client = server.client();
    set_stable(&mut client);
    beside(server, 3, churn, || {
        for round in 0..rounds {
            let options = ["", "COUNT 1000", "COUNT 50000", "COUNT 77 TYPE string"][round % 4];
            check_keys_once(&client.scan_all(options));
            let matched = client.scan_all("COUNT 500 MATCH stable:*");
            check_all_stable(&matched);
            assert!(matched.iter().all(|key| key.starts_with(b"stable:")));
            check_keys_once(&keys(&mut client, "*"));
            check_keys_once(&keys(&mut client, "s*:*"));
        }
    });
}

#[test]
fn stable_keys_are_seen_beside_churn() {
    in_all_modes(|_, server| scan_beside_churn(server, 4));
}

/// With one shard, everything happens in one table.
#[test]
fn stable_keys_are_seen_beside_churn_in_one_shard() {
    for mode in Mode::tried() {
        scan_beside_churn(&mode.builder().load("shards 1").start(), 4);
    }
}

/// SCAN step by step, while the table grows and shrinks between the steps.
fn scan_between_steps(server: &Server, count: usize, grow: bool) {
    let mut client = server.client();
    client.ok("MIDI.FLUSHALL SYNC");
    set_stable(&mut client);
    let top = 60_000;
    if !grow {
        client.ok(&format!("MIDI.POPULATE {top} grow"));
    }
    let (mut seen, mut cursor, mut done) = (Vec::new(), "0".to_owned(), 0);
    loop {
        let reply = client.run(&format!("MIDI.SCAN {cursor} COUNT {count}")).array();
        seen.extend(reply[1].clone().array().iter().map(|key| key.bytes().to_vec()));
        cursor = reply[0].text();
        if cursor == "0" {
            break;
        }
        if done < top {
            let next = (done + 4000).min(top);
            if grow {
                client.ok(&format!("MIDI.POPULATE {next} grow"));
            } else {
                let gone: Vec<String> =
                    (done..next).map(|number| format!("grow:{number}")).collect();
                client.integer(&format!("MIDI.DEL {}", gone.join(" ")));
            }
            done = next;
        }
    }
    check_keys_once(&seen);
}

#[test]
fn stable_keys_are_seen_while_tables_grow_and_shrink() {
    for mode in Mode::tried() {
        for shards in [1, 64] {
            let server = mode.builder().load(&format!("shards {shards}")).start();
            for count in [10, 300] {
                scan_between_steps(&server, count, true);
                scan_between_steps(&server, count, false);
            }
        }
    }
}

#[test]
fn flushes_of_other_databases_hide_nothing() {
    in_all_modes(|_, server| {
        let flush = |client: &mut Client, random: &mut Random| {
            client.ok(&format!("SELECT {}", 1 + random.below(3)));
            client.ok("MIDI.POPULATE 5000 churn");
            let flushes = ["MIDI.FLUSHDB", "FLUSHDB", "MIDI.FLUSHDB SYNC", "SWAPDB 1 2"];
            client.ok(flushes[random.below(4)]);
        };
        let mut client = server.client();
        set_stable(&mut client);
        client.ok("MIDI.POPULATE 20000 grow");
        beside(server, 3, flush, || {
            for _ in 0..5 {
                check_all_stable(&client.scan_all("COUNT 300"));
                check_keys_once(&keys(&mut client, "*"));
                assert_eq!(client.integer("MIDI.DBSIZE"), STABLE as i64 + 20_000);
            }
        });
    });
}

#[test]
fn scans_of_a_flushed_database_end_and_invent_nothing() {
    in_all_modes(|_, server| {
        let flush = |client: &mut Client, random: &mut Random| {
            client.ok("MIDI.POPULATE 20000 grow");
            client.ok(["MIDI.FLUSHDB", "FLUSHALL", "MIDI.FLUSHALL SYNC"][random.below(3)]);
        };
        let mut client = server.client();
        beside(server, 2, flush, || {
            for _ in 0..20 {
                check_known(&client.scan_all("COUNT 100"));
                check_known(&client.scan_all("COUNT 5000"));
                check_known(&keys(&mut client, "*"));
            }
        });
    });
}

#[test]
fn at_rest_every_key_is_given_whatever_the_options() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("MIDI.POPULATE 30000 grow");
        client.ok("SELECT 1");
        client.ok("MIDI.POPULATE 1500 grow");
        for count in [1, 7, 100, 999, 1000, 1001, 5000, 1_000_000] {
            let (db, total) = if count < 100 { (1, 1500) } else { (0, 30_000) };
            client.ok(&format!("SELECT {db}"));
            let keys = client.scan_all(&format!("COUNT {count}"));
            check_known(&keys);
            assert_eq!(keys.len(), total, "COUNT {count}");
            assert_eq!(keys.iter().collect::<HashSet<_>>().len(), total, "COUNT {count}");
            let none = client.scan_all(&format!("COUNT {count} TYPE hash"));
            assert!(none.is_empty());
        }
        let matched: HashSet<_> =
            client.scan_all("MATCH grow:1234? COUNT 2000").into_iter().collect();
        assert_eq!(matched.len(), 10);
    });
}

/// The size of a reply is of the order of COUNT, as SCAN promises.
#[test]
fn count_bounds_the_reply() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("MIDI.POPULATE 50000 grow");
        for count in [1, 10, 100, 1000, 10_000] {
            let reply = client.run(&format!("MIDI.SCAN 0 COUNT {count}")).array();
            let given = reply[1].clone().array().len();
            assert!(given <= count + 200, "COUNT {count} gave {given}");
            assert_ne!(reply[0], Value::bulk("0"), "COUNT {count} ended");
        }
    });
}

/// Cursors that SCAN never returned do no harm.
#[test]
fn invented_cursors_do_no_harm() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("MIDI.POPULATE 5000 grow");
        let mut random = Random::new(5);
        for _ in 0..1000 {
            let cursor = random.next() >> random.below(64);
            let count = [1, 50, 3000][random.below(3)];
            let reply = client.run(&format!("MIDI.SCAN {cursor} COUNT {count}")).array();
            let keys: Vec<_> =
                reply[1].clone().array().iter().map(|key| key.bytes().to_vec()).collect();
            check_known(&keys);
        }
    });
}

/// Two iterations at once over one connection, in different databases.
#[test]
fn iterations_do_not_mix() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        for db in 0..2 {
            client.ok(&format!("SELECT {db}"));
            client.ok(&format!("MIDI.POPULATE 1500 db{db}"));
        }
        let mut walks = [(0, "0".to_owned(), HashSet::new()), (1, "0".to_owned(), HashSet::new())];
        for _ in 0..3000 {
            for (db, cursor, seen) in walks.iter_mut().filter(|(_, cursor, _)| cursor != "end") {
                client.ok(&format!("SELECT {db}"));
                let reply = client.run(&format!("MIDI.SCAN {cursor} COUNT 40")).array();
                seen.extend(reply[1].clone().array().iter().map(Value::text));
                *cursor = if reply[0] == Value::bulk("0") { "end".into() } else { reply[0].text() };
            }
        }
        for (db, cursor, seen) in walks {
            assert_eq!((cursor.as_str(), seen.len()), ("end", 1500));
            assert!(seen.iter().all(|key| key.starts_with(&format!("db{db}:"))));
        }
    });
}
