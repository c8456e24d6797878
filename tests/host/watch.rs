//! The promise: WATCH covers midi's keys as it covers the host's. Any change to a watched key makes
//! EXEC answer nil, whichever client or thread made it. Nothing else does.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::clock::Clock;
use crate::common::{
    Client, Mode, Random, Server, Value, at_once, beside, encoded, in_all_modes, wait_until,
};

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// EXEC of a transaction with one write. Returns whether it ran.
#[track_caller]
fn exec(client: &mut Client) -> bool {
    let commands = ["MULTI", "MIDI.SET done 1", "EXEC"].map(words);
    match client.pipeline(&commands).pop() {
        Some(Value::Array(replies)) => {
            assert_eq!(replies, [Value::ok()]);
            true
        }
        Some(reply) if reply.is_null() => false,
        other => panic!("EXEC: {other:?}"),
    }
}

/// Runs `before`, watches `key`, and another client runs `then`. Whether EXEC goes through.
#[track_caller]
fn survives(server: &Server, before: &[&str], key: &str, then: &[&str]) -> bool {
    let (mut client, mut other) = (server.client(), server.client());
    client.run("MIDI.FLUSHALL");
    client.run("FLUSHALL");
    for line in before {
        assert!(!client.run(line).is_error(), "{line}");
    }
    client.ok(&format!("WATCH {key}"));
    for line in then {
        assert!(!other.run(line).is_error(), "{line}");
    }
    exec(&mut client)
}

const SET_UP: &[&str] = &[
    "MIDI.MSET k 1 a 1 b 1 n:7 1",
    "MIDI.SET t 1 EX 1000",
    "SELECT 1",
    "MIDI.SET k other",
    "SELECT 0",
];

/// Fields that are due go while somebody watches their hash, too.
#[test]
fn fields_of_a_watched_hash_expire() {
    for mode in Mode::tried() {
        let clock = Clock::new();
        let server = clock.of(mode.builder()).start();
        let (mut client, mut other) = (server.client(), server.client());
        client.integer("MIDI.HSET h f v g w");
        assert_eq!(other.run("MIDI.HEXPIRE h 500 FIELDS 1 f"), Value::integers(&[1]));
        client.ok("WATCH h");
        clock.pass(500_001);
        wait_until("the field is removed", || other.integer("MIDI.HLEN h") == 1);
        assert!(!exec(&mut client), "{mode:?}");
    }
}

#[test]
fn every_kind_of_change_is_seen() {
    let changes: &[(&str, &[&str])] = &[
        ("k", &["MIDI.SET k 2"]),
        ("k", &["MIDI.SET k 1"]),
        ("k", &["MIDI.SET k 2 XX GET"]),
        ("new", &["MIDI.SET new 1 NX"]),
        ("k", &["MIDI.MSET a 2 k 2 b 2"]),
        ("k", &["MIDI.DEL k"]),
        ("k", &["MIDI.UNLINK a k"]),
        ("k", &["MIDI.EXPIRE k 100"]),
        ("k", &["MIDI.PEXPIRE k -1"]),
        ("t", &["MIDI.PERSIST t"]),
        ("new", &["MIDI.SET new 1", "MIDI.DEL new"]),
        ("k", &["MIDI.FLUSHALL"]),
        ("k", &["MIDI.FLUSHDB ASYNC"]),
        ("k", &["FLUSHALL"]),
        ("k", &["FLUSHDB"]),
        ("k", &["SWAPDB 0 1"]),
        ("k", &["SWAPDB 0 5"]),
        ("k", &["SWAPDB 5 0"]),
        ("new", &["MIDI.POPULATE 5000 new", "MIDI.SET new 1"]),
        ("p:77", &["MIDI.POPULATE 5000 p"]),
        ("k", &["SET k native", "MIDI.IMPORT k REPLACE"]),
        ("i", &["SET other 1", "SET i native", "MIDI.IMPORT *"]),
        ("k", &["EVAL redis.call('MIDI.SET','k','2') 0"]),
        ("k", &["MIDI.INCR k"]),
        ("k", &["MIDI.INCRBYFLOAT k 0"]),
        ("k", &["MIDI.APPEND k x"]),
        ("k", &["MIDI.SETRANGE k 0 1"]),
        ("k", &["MIDI.SETBIT k 0 1"]),
        ("k", &["MIDI.SETBIT k 900 0"]),
        ("new", &["MIDI.SETBIT new 0 0"]),
        ("k", &["MIDI.BITFIELD k INCRBY u8 0 1 INCRBY u8 0 -1"]),
        ("k", &["MIDI.BITOP NOT k nosuch"]),
        ("new", &["MIDI.BITOP OR new a b"]),
        ("k", &["MIDI.DELIFEQ k 1"]),
        ("k", &["MIDI.GETDEL k"]),
        ("t", &["MIDI.GETEX t PERSIST"]),
        ("new", &["MIDI.MSETNX new 1 other 2"]),
        ("k", &["MIDI.RENAME k away"]),
        ("k", &["MIDI.RENAME a k"]),
        ("new", &["MIDI.COPY k new"]),
        ("k", &["MIDI.COPY a k REPLACE"]),
        ("a", &["MIDI.MOVE a 1"]),
        ("new", &["SELECT 1", "MIDI.SET new 1", "MIDI.MOVE new 0"]),
        ("new", &["SELECT 1", "MIDI.COPY k new DB 0"]),
        ("k", &["MIDI.SWAPDB 0 1"]),
        ("k", &["MIDI.EXPIREAT k 4102444800"]),
        ("k", &["MIDI.DELEX k IFEQ 1"]),
        // The host's own key of that name is still watched too.
        ("k", &["SET k native"]),
        ("a", &["MIDI.SET k 2", "MIDI.GET k", "MIDI.SET a 2"]),
    ];
    in_all_modes(|mode, server| {
        assert!(survives(server, SET_UP, "k", &[]), "{mode:?}: nothing has happened");
        for (key, then) in changes {
            assert!(!survives(server, SET_UP, key, then), "{mode:?}: WATCH {key}, then {then:?}");
        }
    });
}

#[test]
fn nothing_else_is() {
    let others: &[(&str, &[&str])] = &[
        (
            "k",
            &[
                "MIDI.GET k",
                "MIDI.TTL k",
                "MIDI.EXISTS k",
                "MIDI.MGET k a",
                "MIDI.KEYS *",
                "MIDI.SCAN 0",
            ],
        ),
        ("k", &["MIDI.SET a 2", "MIDI.MSET a 3 b 3", "MIDI.DEL a b"]),
        ("k", &["MIDI.SET k 2 NX"]),
        (
            "k",
            &[
                "MIDI.SETBIT k 0 0",
                "MIDI.BITFIELD k SET u8 0 49 INCRBY u8 0 0",
                "MIDI.BITFIELD k GET u8 0",
            ],
        ),
        (
            "k",
            &["MIDI.BITCOUNT k", "MIDI.BITPOS k 1", "MIDI.BITOP OR other k a", "MIDI.DELIFEQ k 2"],
        ),
        ("new", &["MIDI.BITOP OR new nosuch"]),
        ("new", &["MIDI.SET new 2 XX", "MIDI.DEL new", "MIDI.EXPIRE new 100", "MIDI.PERSIST new"]),
        ("new", &["MIDI.DEL a new b"]),
        ("k", &["MIDI.PERSIST k"]),
        ("t", &["MIDI.EXPIRE t 100 NX"]),
        ("new", &["MIDI.FLUSHALL", "FLUSHALL"]),
        ("new", &["SWAPDB 0 1"]),
        ("k", &["SELECT 1", "MIDI.SET k 2", "MIDI.FLUSHDB", "FLUSHDB"]),
        ("n:7", &["MIDI.POPULATE 1000 n"]),
        ("k", &["SET k2 native", "MIDI.IMPORT k*"]),
        ("a", &["MIDI.SET k 2", "MIDI.SET k 3"]),
        ("k", &["MIDI.EXPORT a"]),
        (
            "k",
            &[
                "MIDI.GETEX k",
                "MIDI.TOUCH k",
                "MIDI.STRLEN k",
                "MIDI.DUMP k",
                "MIDI.COPY k k2",
                "MIDI.LCS k a",
            ],
        ),
        (
            "k",
            &[
                "MIDI.RENAME a b",
                "MIDI.RENAMENX b k",
                "MIDI.COPY b k",
                "MIDI.MSETNX k 1 z 1",
                "MIDI.SETNX k 2",
            ],
        ),
        ("a", &["SELECT 1", "MIDI.RENAME k a", "MIDI.COPY a b DB 2", "MIDI.MOVE a 3"]),
        ("k", &["MIDI.DELEX k IFEQ 2"]),
        ("new", &["MIDI.SWAPDB 0 1"]),
    ];
    in_all_modes(|mode, server| {
        for (key, then) in others {
            assert!(survives(server, SET_UP, key, then), "{mode:?}: WATCH {key}, then {then:?}");
        }
        // One shard for all keys, and changes from before the WATCH.
        let crowded = mode.builder().load("shards 1").start();
        for (key, then) in others {
            assert!(
                survives(&crowded, SET_UP, key, then),
                "{mode:?}, one shard: WATCH {key}, then {then:?}"
            );
        }
        let (mut client, mut other) = (crowded.client(), crowded.client());
        other.ok("WATCH k a b");
        client.ok("MIDI.MSET k 1 a 1 b 1");
        client.ok("WATCH k a");
        client.ok("WATCH b");
        assert!(exec(&mut client) && !exec(&mut other));
    });
}

/// A client's own changes between WATCH and EXEC count. Those inside EXEC do not.
#[test]
fn ones_own_changes() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("WATCH k");
        client.ok("MIDI.SET k 1");
        assert!(!exec(&mut client));
        for _ in 0..3 {
            client.ok("WATCH k done");
            assert!(exec(&mut client));
        }
        client.ok("WATCH k");
        client.ok("MIDI.SET k 2");
        client.ok("UNWATCH");
        assert!(exec(&mut client));
        client.ok("WATCH k");
        client.ok("MULTI");
        client.ok("DISCARD");
        client.ok("MIDI.SET k 3");
        assert!(exec(&mut client));
    });
}

/// A watched key that expires has changed, unless it had expired before.
#[test]
fn expiry_is_a_change() {
    for mode in Mode::tried() {
        let clock = Clock::new();
        let server = clock.of(mode.builder()).start();
        let mut client = server.client();
        for touch in [false, true] {
            let lines = ["MIDI.SET k 1 EX 500", "WATCH k", "MULTI", "MIDI.SET done 1", "EXEC"];
            let replies = client.pipeline(&lines.map(words));
            assert!(!replies[4].is_null(), "{mode:?}: still there");
            client.ok("WATCH k");
            clock.pass(500_001);
            if touch {
                assert!(server.client().run("MIDI.GET k").is_null());
            }
            assert!(!exec(&mut client), "{mode:?}: expired, found to be by a reader: {touch}");
            client.ok("WATCH k");
            assert!(exec(&mut client), "{mode:?}: gone before");
        }
        client.ok("MIDI.SET k 1 EX 500");
        client.ok("WATCH k");
        client.ok("UNWATCH");
        clock.pass(500_001);
        client.ok("MIDI.SET k 1");
        client.ok("WATCH k");
        assert!(exec(&mut client), "{mode:?}: an expiry of another time");
        client.ok("MIDI.SET k 1 EX 500");
        client.ok("WATCH k");
        server.client().ok("MIDI.SET k 1 EX 100000");
        let mut second = server.client();
        second.ok("WATCH k");
        clock.pass(500_001);
        assert!(!exec(&mut client), "{mode:?}: changed");
        assert!(exec(&mut second), "{mode:?}: it lives on");
    }
}

/// Changes made by jobs on the workers.
#[test]
fn jobs_that_change_watched_keys() {
    in_all_modes(|mode, server| {
        let names: Vec<String> = (0..1500).map(|number| format!("p:{number}")).collect();
        let del: Vec<String> = [vec!["MIDI.DEL".to_owned()], names].concat();
        let (mut client, mut other) = (server.client(), server.client());
        for round in 0..10 {
            client.ok("WATCH p:77 p:1400");
            other.ok("MIDI.POPULATE 1500 p");
            assert!(!exec(&mut client), "{mode:?}: POPULATE");
            client.ok("WATCH p:77");
            other.ok("MIDI.POPULATE 1500 p");
            assert!(exec(&mut client), "{mode:?}: POPULATE of what is there");
            client.ok("WATCH p:1400");
            assert_eq!(other.call(&del), Value::Integer(1500), "round {round}");
            assert!(!exec(&mut client), "{mode:?}: DEL");
            client.ok("WATCH p:1400");
            assert_eq!(other.call(&del), Value::Integer(0));
            assert!(exec(&mut client), "{mode:?}: DEL of what is not there");
        }
    });
}

/// Optimistic locking: many clients count with WATCH, GET and EXEC, while plain writes, some of
/// them queued, change the same number. No step is lost.
#[test]
fn no_update_is_lost() {
    for mode in Mode::tried() {
        let server = mode.builder().load("shards 2").start();
        server.client().ok("MIDI.MSET n 0 noise 0");
        server.client().ok("MIDI.POPULATE 2000 p");
        let noise = |client: &mut Client, _: &mut Random| {
            client.run("MIDI.KEYS p:1*");
            client.pipeline(&vec![words("MIDI.SET noise 1"); 10]);
        };
        let done = AtomicBool::new(false);
        let (clients, steps) = (6, 60);
        beside(&server, 2, noise, || {
            at_once(clients, |_| {
                let mut client = server.client();
                for _ in 0..steps {
                    loop {
                        client.ok("WATCH n");
                        let next =
                            client.run("MIDI.GET n").text().parse::<i64>().expect("a number") + 1;
                        let set = format!("MIDI.SET n {next}");
                        let replies = client.pipeline(&["MULTI", &set, "EXEC"].map(words));
                        if !replies[2].is_null() {
                            break;
                        }
                    }
                }
            });
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(
            server.client().run("MIDI.GET n"),
            Value::bulk((clients * steps).to_string()),
            "{mode:?}"
        );
    }
}

/// A lock that plain writes break: the transaction reads the watched value or does not run.
#[test]
fn exec_finds_the_watched_keys_as_they_were() {
    for mode in Mode::tried() {
        let server = mode.builder().load("shards 2").start();
        server.client().ok("MIDI.SET guard 0");
        let write = |client: &mut Client, random: &mut Random| {
            client.pipeline(&vec![words(&format!("MIDI.SET guard {}", random.next())); 3]);
            client.pipeline(&[words(&format!("MIDI.MSET other 1 guard {}", random.next()))]);
            std::thread::sleep(std::time::Duration::from_micros(random.below(2000) as u64));
        };
        let mut carried_out = 0;
        beside(&server, 4, write, || {
            let mut client = server.client();
            for _ in 0..1500 {
                client.ok("WATCH guard");
                let seen = client.run("MIDI.GET guard");
                let lines = ["MULTI", "DEBUG SLEEP 0.0003", "MIDI.GET guard", "EXEC"];
                if let Some(Value::Array(replies)) = client.pipeline(&lines.map(words)).pop() {
                    assert_eq!(replies[1], seen, "{mode:?}");
                    carried_out += 1;
                }
            }
        });
        assert!(carried_out > 0, "{mode:?}");
    }
}

/// More watched names than midi remembers: no change is missed, and nothing grows forever.
#[test]
fn very_many_watched_keys() {
    for mode in Mode::with_jobs() {
        let server = mode.builder().load("shards 16384").start();
        let mut client = server.client();
        client.ok("WATCH first");
        let mut watcher = server.client();
        let mut bytes = Vec::new();
        for number in 0..300_000 {
            bytes.extend(encoded(&["WATCH".to_owned(), format!("{number}:{}", "x".repeat(40))]));
            bytes.extend(encoded(&["UNWATCH"]));
            if bytes.len() > 100_000 || number == 299_999 {
                let count = bytes.iter().filter(|&&byte| byte == b'*').count();
                watcher.send(&bytes);
                (0..count).for_each(|_| assert_eq!(watcher.read(), Value::ok()));
                bytes.clear();
            }
        }
        server.client().ok("MIDI.SET first 1");
        assert!(!exec(&mut client), "{mode:?}");
        client.ok("WATCH last");
        server.client().ok("MIDI.SET last 1");
        assert!(!exec(&mut client), "{mode:?}");
        wait_until("writes go on", || client.run("MIDI.SET k 1") == Value::ok());
    }
}

/// So many that midi marks them only once the server has executed the WATCH. They are watched for
/// as long as any others.
#[test]
fn many_watched_keys_stay_watched() {
    in_all_modes(|_, server| {
        let (mut client, mut other) = (server.client(), server.client());
        // The server has executed a WATCH before.
        client.ok("WATCH another");
        client.ok("UNWATCH");
        let names: Vec<String> = (0..300).map(|number| format!("key:{number}")).collect();
        let watch: Vec<&str> = ["WATCH"].into_iter().chain(names.iter().map(|n| &n[..])).collect();
        for name in ["key:0", "key:150", "key:299"] {
            assert_eq!(client.call(&watch), Value::ok());
            std::thread::sleep(std::time::Duration::from_millis(350));
            other.ok(&format!("MIDI.SET {name} changed"));
            assert!(!exec(&mut client), "{name}");
        }
    });
}
