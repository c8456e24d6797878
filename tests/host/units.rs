//! The promise: what EXEC, a script or a function does happens at one moment, for all kinds of
//! clients, for jobs and for the clock. Nothing is left behind.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{Client, Mode, Random, Server, Value, beside, wait_until};

/// Servers with few shards, so that clients often conflict.
fn in_all_crowded_modes(body: impl Fn(Mode, &Server)) {
    for mode in Mode::tried() {
        println!("mode: {mode:?}");
        body(mode, &mode.builder().load("shards 4").start());
    }
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// Runs the commands as one transaction and returns their replies.
#[track_caller]
fn exec(client: &mut Client, lines: &[&str]) -> Vec<Value> {
    let mut commands = vec![words("MULTI")];
    commands.extend(lines.iter().map(|line| words(line)));
    commands.push(words("EXEC"));
    client.pipeline(&commands).pop().expect("EXEC's reply").array()
}

/// The main thread does nothing for a while, so that the workers can run.
const PAUSE: &str = "DEBUG SLEEP 0.001";

/// Sets `a` and `b` to the same number and reads both, with a delay between.
const SET_BOTH: &str = "redis.call('MIDI.SET', 'a', ARGV[1]) \
    for i = 1, 100 do redis.call('PING') end \
    redis.call('MIDI.SET', 'b', ARGV[1]) \
    for i = 1, 100 do redis.call('PING') end \
    return redis.call('MIDI.MGET', 'a', 'b')";

const LIBRARY: &str =
    "#!lua name=midilib\n redis.register_function('set_both', function(KEYS, ARGV) BODY end)";

/// Runs one unit in each of the ways, and returns what it read.
fn set_both(client: &mut Client, random: &mut Random, number: u64) -> Value {
    let number = number.to_string();
    let set = |key: &str| format!("MIDI.SET {key} {number}");
    match random.below(4) {
        0 => {
            let (a, b) = (set("a"), set("b"));
            exec(client, &[&a, PAUSE, &b, PAUSE, "MIDI.MGET a b"]).pop().expect("MGET's reply")
        }
        1 => client.call(&["EVAL", SET_BOTH, "0", &number]),
        2 => client.call(&["FCALL", "set_both", "0", &number]),
        _ => {
            // A script in a transaction, between commands of the transaction's own.
            let commands = [
                words("MULTI"),
                words(&set("a")),
                vec!["EVAL".into(), SET_BOTH.into(), "0".into(), number.clone()],
                words("MIDI.GET b"),
                words("MIDI.GET a"),
                words("EXEC"),
            ];
            let replies = client.pipeline(&commands).pop().expect("EXEC's reply").array();
            assert_eq!(replies[2], Value::bulk(&number), "after the script");
            assert_eq!(replies[3], Value::bulk(&number), "after the script");
            replies[1].clone()
        }
    }
}

/// Many clients with units, and many that read or write from outside.
#[test]
fn no_unit_sees_a_mixture_and_nobody_sees_half_a_unit() {
    in_all_crowded_modes(|_, server| {
        let mut client = server.client();
        let code = LIBRARY.replace("BODY", SET_BOTH);
        assert_eq!(client.call(&["FUNCTION", "LOAD", &code]), Value::bulk("midilib"));
        client.ok("MIDI.MSET a 0 b 0");
        client.ok("MIDI.POPULATE 3000 p");
        let numbers = AtomicU64::new(1);
        let noise = |client: &mut Client, random: &mut Random| {
            let number = numbers.fetch_add(1, Ordering::Relaxed);
            match random.below(6) {
                0 | 1 => {
                    let both = set_both(client, random, number).array();
                    let number = Value::bulk(number.to_string());
                    assert_eq!(both, [number.clone(), number], "a mixture");
                }
                2 => client.ok(&format!("MIDI.MSET a {number} b {number}")),
                3 => drop(client.run("MIDI.KEYS p:1*")),
                _ => {
                    let replies = client.pipeline(&vec![words("MIDI.MGET a b"); 20]);
                    for reply in replies {
                        let both = reply.array();
                        assert_eq!(both[0], both[1], "half a unit");
                    }
                }
            }
        };
        beside(server, 12, noise, || {
            let mut random = Random::new(99);
            for _ in 0..200 {
                let number = numbers.fetch_add(1, Ordering::Relaxed);
                let both = set_both(&mut client, &mut random, number).array();
                let number = Value::bulk(number.to_string());
                assert_eq!(both, [number.clone(), number], "a mixture");
            }
        });
    });
}

/// Paused clients: newer hosts resume their commands without a filter.
#[test]
fn pauses_do_not_break_units() {
    in_all_crowded_modes(|_, server| {
        let mut client = server.client();
        let code = LIBRARY.replace("BODY", SET_BOTH);
        assert_eq!(client.call(&["FUNCTION", "LOAD", &code]), Value::bulk("midilib"));
        client.ok("MIDI.MSET a 0 b 0");
        let numbers = AtomicU64::new(1);
        let noise = |client: &mut Client, random: &mut Random| {
            let number = numbers.fetch_add(1, Ordering::Relaxed);
            if random.below(2) == 0 {
                let both = set_both(client, random, number).array();
                let number = Value::bulk(number.to_string());
                assert_eq!(both, [number.clone(), number], "a mixture");
            } else {
                let set = words(&format!("MIDI.MSET a {number} b {number}"));
                for reply in client.pipeline(&[set.clone(), words("MIDI.MGET a b"), set]) {
                    if let Value::Array(both) = reply {
                        assert_eq!(both[0], both[1], "half a unit");
                    }
                }
            }
        };
        beside(server, 12, noise, || {
            for round in 0..60 {
                client.ok(if round % 2 == 0 {
                    "CLIENT PAUSE 10 WRITE"
                } else {
                    "CLIENT PAUSE 10 ALL"
                });
                std::thread::sleep(std::time::Duration::from_millis(15));
            }
        });
    });
}

/// Single writes from many pipelines. A key that a unit reads twice must not change.
#[test]
fn keys_that_a_unit_has_read_do_not_change() {
    in_all_crowded_modes(|_, server| {
        let write = |client: &mut Client, random: &mut Random| {
            let commands: Vec<_> = (0..30)
                .map(|_| words(&format!("MIDI.SET k{} {}", random.below(8), random.next())))
                .collect();
            client.pipeline(&commands);
        };
        let read = "MIDI.MGET k0 k1 k2 k3 k4 k5 k6 k7";
        beside(server, 6, write, || {
            let mut client = server.client();
            for _ in 0..150 {
                let replies = exec(
                    &mut client,
                    &[read, "MIDI.KEYS x*", PAUSE, read, PAUSE, "MIDI.GET k3", read],
                );
                assert_eq!(replies[0], replies[3]);
                assert_eq!(replies[0], replies[6]);
                assert_eq!(replies[0].clone().array()[3], replies[5]);
            }
        });
    });
}

/// Jobs of other clients (a DEL of more keys than run at once, POPULATE) cannot use a shard between
/// a unit's commands.
#[test]
fn jobs_stay_out_of_units() {
    in_all_crowded_modes(|_, server| {
        let names: Vec<String> = (0..1500).map(|number| format!("n:{number}")).collect();
        let noise = |client: &mut Client, random: &mut Random| {
            if random.below(2) == 0 {
                client.ok("MIDI.POPULATE 1500 n");
            } else {
                let mut del = vec!["MIDI.DEL".to_owned()];
                del.extend_from_slice(&names);
                client.call(&del);
            }
        };
        let exists = "MIDI.EXISTS n:1 n:200 n:400 n:600 n:800 n:1000 n:1200 n:1400";
        beside(server, 3, noise, || {
            let mut client = server.client();
            for _ in 0..150 {
                let replies =
                    exec(&mut client, &[exists, PAUSE, exists, "MIDI.TYPE n:7", PAUSE, exists]);
                assert!(replies[0] == replies[2] && replies[0] == replies[5], "{replies:?}");
            }
        });
    });
}

/// Flushes and SWAPDB, of either keyspace, belong to their unit like any command.
#[test]
fn flushes_and_swaps_are_part_of_their_unit() {
    in_all_crowded_modes(|_, server| {
        let write = |client: &mut Client, random: &mut Random| {
            client.run(&format!("SELECT {}", random.below(2)));
            let commands: Vec<_> =
                (0..20).map(|_| words(&format!("MIDI.SET w{} 1", random.below(50)))).collect();
            client.pipeline(&commands);
        };
        beside(server, 4, write, || {
            let mut client = server.client();
            for _ in 0..60 {
                for flush in ["MIDI.FLUSHALL", "MIDI.FLUSHDB SYNC", "FLUSHALL", "FLUSHDB ASYNC"] {
                    let replies =
                        exec(&mut client, &[flush, "MIDI.KEYS *", "MIDI.SET own 1", "MIDI.KEYS *"]);
                    assert_eq!(replies[1], Value::Array(vec![]), "{flush}");
                    assert_eq!(replies[3], Value::Array(vec![Value::bulk("own")]), "{flush}");
                }
                let replies = exec(
                    &mut client,
                    &[
                        "FLUSHALL",
                        "MIDI.SET own 1",
                        "SWAPDB 0 1",
                        "MIDI.KEYS *",
                        "SWAPDB 0 1",
                        "MIDI.KEYS *",
                    ],
                );
                assert_eq!(replies[3], Value::Array(vec![]), "SWAPDB");
                assert_eq!(replies[5], Value::Array(vec![Value::bulk("own")]), "SWAPDB back");
            }
        });
    });
}

/// The clock stops in a unit, as the host's does. The scripts wait by counting steps: newer hosts
/// stop TIME while a script runs.
#[test]
fn nothing_expires_within_a_unit() {
    const SCRIPT: &str = "redis.call('MIDI.SET', 'k', 'v', 'PX', '30') \
        for step = 1, 200000 do redis.call('PING') end \
        return {redis.call('MIDI.GET', 'k'), redis.call('MIDI.PTTL', 'k'), \
            redis.call('MIDI.EXISTS', 'k', 'k'), redis.call('MIDI.KEYS', '*')}";
    in_all_crowded_modes(|_, server| {
        let mut client = server.client();
        let replies = client.call(&["EVAL", SCRIPT, "0"]).array();
        assert_eq!(replies[0], Value::bulk("v"));
        assert_eq!(replies[1], Value::Integer(30));
        assert_eq!(replies[2], Value::Integer(2));
        assert_eq!(replies[3], Value::Array(vec![Value::bulk("k")]));
        assert!(client.run("MIDI.GET k").is_null());
    });
}

/// While a script is busy other clients get an error, commands that the host lets through do no
/// harm, and the script is still one unit. The host checks its time every 100,000 steps of Lua. The
/// empty loop runs this many, however slow the commands are.
#[test]
fn a_script_that_yields_stays_one_unit() {
    const SCRIPT: &str = "redis.call('MIDI.SET', 'k', 'mine') \
        for round = 1, 10000 do \
            for step = 1, 2000 do end \
            if redis.call('MIDI.GET', 'k') ~= 'mine' then return 'changed' end \
        end \
        return redis.call('MIDI.GET', 'k')";
    for mode in Mode::tried() {
        let server = mode.builder().load("shards 4").config("busy-reply-threshold 20").start();
        let write = |client: &mut Client, random: &mut Random| {
            // The host lets these through while a script is busy. WATCH uses the unit's own shard.
            if random.below(10) == 0 {
                assert_eq!(
                    client.pipeline(&[words("WATCH k"), words("UNWATCH")]),
                    [Value::ok(), Value::ok()]
                );
            }
            client.pipeline(&vec![words(&format!("MIDI.SET k {}", random.next())); 20]);
        };
        beside(&server, 12, write, || {
            let mut client = server.client();
            for _ in 0..5 {
                assert_eq!(client.call(&["EVAL", SCRIPT, "0"]), Value::bulk("mine"), "{mode:?}");
            }
        });
        assert!(server.log().contains("Slow script detected"), "{mode:?}: no script has yielded");
    }
}

/// A killed script ends its unit too.
#[test]
fn a_killed_script_leaves_nothing_behind() {
    for mode in Mode::tried() {
        let server = mode.builder().load("shards 4").config("busy-reply-threshold 20").start();
        let mut client = server.client();
        client.ok("MIDI.SET k 1");
        let mut victim = server.client();
        for _ in 0..3 {
            let script = "while true do redis.call('MIDI.KEYS', '*') end";
            victim.send(&crate::common::encoded(&["EVAL", script, "0"]));
            wait_until("the script can be killed", || client.run("SCRIPT KILL") == Value::ok());
            assert!(victim.read().is_error());
            client.ok("MIDI.SET k 2");
            client.ok("MIDI.POPULATE 100 p");
            assert_eq!(client.run("MIDI.KEYS p:*").array().len(), 100);
        }
    }
}

/// Commands queued behind a unit's shards run when the unit ends. This also holds for a unit that
/// ends a turn of the main loop, which would otherwise sleep.
#[test]
fn tokens_are_given_back_at_the_end_of_each_unit() {
    for mode in Mode::with_jobs() {
        // The main loop wakes by itself only once a second.
        let server = mode.builder().load("shards 4").config("hz 1").start();
        let mut client = server.client();
        let mut other = server.client();
        for round in 0..200 {
            // The first command blocks in `pool`, so the rest comes after BEFORE_SLEEP.
            let commands =
                [&format!("MIDI.SET k {round}"), "MULTI", "MIDI.KEYS *", "EXEC"].map(words);
            client.pipeline(&commands);
            other.pipeline(&[
                words("MIDI.GET k"),
                words("MIDI.MGET k l m n"),
                words("MIDI.KEYS *"),
            ]);
        }
    }
}

/// Large replies, forks and errors inside a unit.
#[test]
fn units_may_hold_anything() {
    in_all_crowded_modes(|mode, server| {
        let mut client = server.client();
        let large = "x".repeat(100_000);
        client.ok("MIDI.POPULATE 5000 p");
        for _ in 0..5 {
            let set = format!("MIDI.SET large {large}");
            let replies = exec(
                &mut client,
                &[
                    &set,
                    "BGSAVE",
                    "MIDI.GET large",
                    "MIDI.KEYS p:*",
                    "MIDI.EXPIRE large x",
                    "MIDI.GET large",
                    "MIDI.INFO dispatch",
                    "MIDI.RANDOMKEY",
                    "MIDI.SCAN 0 COUNT 5000",
                ],
            );
            assert_eq!(replies[2], Value::bulk(&large), "{mode:?}");
            assert_eq!(replies[3].clone().array().len(), 5000);
            assert!(replies[4].is_error());
            assert_eq!(replies[5], Value::bulk(&large));
            let mut other = server.client();
            other.ok("MIDI.SET large 1");
            wait_until("the child has ended", || {
                client.info_number("persistence", "rdb_bgsave_in_progress") == 0
            });
        }
    });
}

/// Inside a unit, copies between the keyspaces run to their end at one moment.
#[test]
fn copies_are_part_of_their_unit() {
    in_all_crowded_modes(|_, server| {
        // Jobs that look up the same key repeatedly.
        let names: Vec<String> = (0..3000)
            .map(|number| if number % 2 == 0 { "c:7".into() } else { format!("n:{number}") })
            .collect();
        let delete = |client: &mut Client, _: &mut Random| {
            let mut del = vec!["MIDI.DEL".to_owned()];
            del.extend_from_slice(&names);
            client.call(&del);
        };
        beside(server, 3, delete, || {
            let mut client = server.client();
            for round in 0..150 {
                let set = format!("SET c:7 {round}");
                let lines = [
                    &set,
                    "MIDI.IMPORT c:7 REPLACE",
                    PAUSE,
                    "DEL c:7",
                    "MIDI.EXPORT c:7",
                    PAUSE,
                    "GET c:7",
                ];
                let replies = exec(&mut client, &lines);
                assert_eq!(replies[6], Value::bulk(round.to_string()));
                exec(&mut client, &["DEL c:7"]);
            }
        });
    });
}
