//! The promise: however a command is executed, its client gets the right reply, in order, beside
//! any number of other clients. Nothing blocks inside MULTI, scripts and functions. A paused,
//! unblocked or killed client does not affect others.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::common::{
    Client, Mode, Random, Server, Value, at_once, beside, encoded, in_all_modes, wait_until,
};

/// The modes in which clients are blocked.
const BLOCKING: [Mode; 2] = [Mode::Adaptive, Mode::Pool];

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// One client's pipeline over its own keys, and the replies that it must get.
fn own_pipeline(client: usize, round: usize) -> (Vec<Vec<String>>, Vec<Value>) {
    let (mut commands, mut replies) = (Vec::new(), Vec::new());
    let mut add = |line: String, reply: Value| {
        commands.push(words(&line));
        replies.push(reply);
    };
    for number in 0..12 {
        let key = format!("{client}:{number}");
        let value = format!("{client}:{number}:{round}");
        add(format!("MIDI.SET {key} {value}"), Value::ok());
        add(format!("MIDI.GET {key}"), Value::bulk(&value));
        add(format!("MIDI.MSET {key}:a {value} {key}:b {value}"), Value::ok());
        let pair = vec![Value::bulk(&value), Value::NullBulk, Value::bulk(&value)];
        add(format!("MIDI.MGET {key}:a nosuch {key}:b"), Value::Array(pair));
        add(format!("MIDI.DEL {key} {key}:a {key}:nosuch"), Value::Integer(2));
        add(format!("MIDI.EXISTS {key} {key}:b"), Value::Integer(1));
        add(format!("MIDI.SET {key} {value}x GET"), Value::NullBulk);
        add("PING".into(), Value::Simple(b"PONG".to_vec()));
        add(format!("MIDI.PERSIST {key}"), Value::Integer(0));
    }
    (commands, replies)
}

#[test]
fn fifty_pipelining_clients_each_see_their_own_writes() {
    in_all_modes(|_, server| {
        at_once(50, |number| {
            let mut client = server.client();
            for round in 0..20 {
                let (commands, expected) = own_pipeline(number, round);
                let replies = client.pipeline(&commands);
                for (at, (got, wanted)) in replies.iter().zip(&expected).enumerate() {
                    assert_eq!(got, wanted, "client {number}, round {round}: {:?}", commands[at]);
                }
            }
        });
        let mut client = server.client();
        assert_eq!(client.integer("MIDI.DBSIZE"), 50 * 12 * 2);
        assert_eq!(client.run("MIDI.KEYS *").array().len(), 50 * 12 * 2);
    });
}

#[test]
fn clients_without_pipelining_are_answered_too() {
    in_all_modes(|_, server| {
        at_once(16, |number| {
            let mut client = server.client();
            for round in 0..300 {
                client.ok(&format!("MIDI.SET own:{number} {round}"));
                assert_eq!(
                    client.run(&format!("MIDI.GET own:{number}")),
                    Value::bulk(round.to_string())
                );
            }
        });
    });
}

/// All clients write the same key with SET ... GET. Each value is returned exactly once, so no
/// write was lost or done twice.
#[test]
fn writes_of_one_key_are_serial() {
    in_all_modes(|_, server| {
        let sum = AtomicI64::new(0);
        at_once(8, |number| {
            let mut client = server.client();
            for round in 0..50 {
                let commands: Vec<_> = (0..20)
                    .map(|at| {
                        words(&format!("MIDI.SET hot {} GET", 1 + number * 1000 + round * 20 + at))
                    })
                    .collect();
                for reply in client.pipeline(&commands) {
                    if !reply.is_null() {
                        sum.fetch_add(reply.text().parse().unwrap_or(1 << 40), Ordering::Relaxed);
                    }
                }
            }
        });
        let last: i64 = server.client().run("MIDI.GET hot").text().parse().unwrap();
        let written: i64 =
            (0..8).flat_map(|number| (1..=1000).map(move |at| number * 1000 + at)).sum();
        assert_eq!(sum.into_inner() + last, written);
    });
}

#[test]
fn mset_and_mget_are_atomic_over_shards() {
    in_all_modes(|_, server| {
        let write = |client: &mut Client, random: &mut Random| {
            let commands: Vec<_> = (0..10)
                .map(|_| {
                    let value = random.next();
                    words(&format!("MIDI.MSET a {value} b {value} c {value} d {value} e {value}"))
                })
                .collect();
            client.pipeline(&commands);
        };
        beside(server, 6, write, || {
            let mut client = server.client();
            let commands: Vec<_> = (0..10).map(|_| words("MIDI.MGET a b c d e")).collect();
            for _ in 0..200 {
                for reply in client.pipeline(&commands) {
                    let values = reply.array();
                    assert!(values.iter().all(|value| *value == values[0]), "torn: {values:?}");
                }
            }
        });
    });
}

#[test]
fn every_worker_of_pool_works() {
    let server = Mode::Pool.builder().load("threads 4").start();
    at_once(10, |number| {
        let mut client = server.client();
        for round in 0..10 {
            client.pipeline(&own_pipeline(number, round).0);
        }
    });
    let mut client = server.client();
    let workers = client.info("midi_workers");
    for number in 0..4 {
        let line = &workers[&format!("midi_worker{number}")];
        let commands: i64 = field(line, "commands").parse().unwrap();
        assert!(commands > 0, "worker {number}: {line}");
    }
    assert!(client.info_number("midi_dispatch", "midi_queued") > 0);
    assert_eq!(client.info("midi_dispatch")["midi_dispatch"], "pool");
}

#[test]
fn adaptive_runs_short_commands_at_once() {
    let server = Mode::Adaptive.server();
    let mut client = server.client();
    for number in 0..100 {
        client.ok(&format!("MIDI.SET key:{number} v"));
    }
    // A worker may just have been maintaining a shard.
    assert!(client.info_number("midi_dispatch", "midi_ran_at_once") > 50);
}

fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let found =
        line.split(',').find_map(|field| field.split_once('=').filter(|(key, _)| *key == name));
    found.unwrap_or_else(|| panic!("no {name} in {line}")).1
}

/// With one cron tick a second, a missed wake-up costs a second. Thousands of commands would then
/// take longer than any client waits.
#[test]
fn no_wake_up_is_lost() {
    for mode in Mode::tried() {
        let server = mode.builder().config("hz 1").config("dynamic-hz no").start();
        at_once(3, |number| {
            let mut client = server.client();
            let started = std::time::Instant::now();
            for round in 0..150 {
                let (commands, expected) = own_pipeline(number, round);
                assert_eq!(client.pipeline(&commands), expected);
                client.run("MIDI.KEYS nosuch");
                client.run("MIDI.SCAN 0 COUNT 2000");
                assert!(started.elapsed() < crate::common::HANG, "stuck in round {round}");
            }
        });
    }
}

#[test]
fn a_pipeline_is_answered_in_order_whatever_takes_long() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("MIDI.POPULATE 20000 p 10");
        client.run(&format!("MIDI.SET large {}", "x".repeat(50_000)));
        let mut commands = Vec::new();
        for round in 0..10 {
            commands.push(words(&format!("MIDI.SET k {round}")));
            commands.push(words("MIDI.KEYS p:1999*"));
            commands.push(words("MIDI.GET k"));
            commands.push(words("MIDI.GET large"));
            commands.push(words("MIDI.SCAN 0 COUNT 30000 MATCH p:7"));
            commands.push(words("MIDI.DBSIZE"));
            commands.push(words("ECHO mark"));
            commands.push(words("MIDI.DEL k"));
            commands.push(words("MIDI.MGET large k"));
        }
        let replies = client.pipeline(&commands);
        for (round, replies) in replies.chunks_exact(9).enumerate() {
            assert_eq!(replies[0], Value::ok());
            assert_eq!(replies[1].clone().array().len(), 11, "KEYS p:1999*");
            assert_eq!(replies[2], Value::bulk(round.to_string()));
            assert_eq!(replies[3].bytes().len(), 50_000);
            assert_eq!(replies[4].clone().array()[1], Value::Array(vec![Value::bulk("p:7")]));
            assert_eq!(replies[5], Value::Integer(20_002));
            assert_eq!(replies[6], Value::bulk("mark"));
            assert_eq!(replies[7], Value::Integer(1));
            assert!(replies[8].clone().array()[1].is_null());
        }
    });
}

/// Work of other clients that keeps tokens and workers busy.
fn noise(client: &mut Client, random: &mut Random) {
    let mut commands: Vec<_> =
        (0..20).map(|_| words(&format!("MIDI.SET n:{} x", random.below(3000)))).collect();
    commands.push(words("MIDI.KEYS n:1*"));
    commands.push(words(&format!("MIDI.POPULATE 3000 n {}", 1 + random.below(50))));
    for reply in client.pipeline(&commands) {
        assert!(!reply.is_error(), "{reply:?}");
    }
}

/// Commands of all kinds and their replies. Database 5 holds nothing else.
fn all_kinds() -> Vec<(&'static str, Value)> {
    let null = || Value::NullBulk;
    let strings = |texts: &[&str]| Value::Array(texts.iter().map(Value::bulk).collect());
    vec![
        ("MIDI.FLUSHDB SYNC", Value::ok()),
        ("FLUSHDB", Value::ok()),
        ("MIDI.SET a 1", Value::ok()),
        ("MIDI.GET a", Value::bulk("1")),
        ("MIDI.MSET b 2 c 3", Value::ok()),
        (
            "MIDI.MGET a b c nosuch",
            Value::Array(vec![Value::bulk("1"), Value::bulk("2"), Value::bulk("3"), null()]),
        ),
        ("MIDI.EXPIRE a 1000", Value::Integer(1)),
        ("MIDI.PERSIST a", Value::Integer(1)),
        ("MIDI.KEYS a", strings(&["a"])),
        ("MIDI.SCAN 0 COUNT 100000 MATCH b", Value::Array(vec![Value::bulk("0"), strings(&["b"])])),
        ("MIDI.DEL a b c", Value::Integer(3)),
        ("MIDI.RANDOMKEY", null()),
        ("MIDI.POPULATE 500 p 20", Value::ok()),
        ("MIDI.DBSIZE", Value::Integer(500)),
        ("MIDI.GET p:0", Value::Bulk([b"value:0".as_slice(), &[0; 13]].concat())),
        ("MIDI.EXPORT p:1?", Value::integers(&[10, 0, 0])),
        ("MIDI.EXPORT p:* COUNT 7", Value::integers(&[7, 0, 0])),
        ("MIDI.FLUSHALL", Value::ok()),
        ("MIDI.DBSIZE", Value::Integer(0)),
        ("FLUSHDB", Value::ok()),
        ("MSET x 1 y 2", Value::ok()),
        ("RPUSH list 1", Value::Integer(1)),
        ("MIDI.IMPORT *", Value::integers(&[2, 0, 1])),
        ("MIDI.IMPORT x REPLACE", Value::integers(&[1, 0, 0])),
        ("MIDI.GET y", Value::bulk("2")),
        ("MIDI.JOBS CANCEL 999999999", Value::error("ERR no such job")),
        ("MIDI.UNLINK x y", Value::Integer(2)),
        ("MIDI.TYPE x", Value::Simple(b"none".to_vec())),
    ]
}

/// EXPORT visits keys in its own order, so a count of present keys may vary.
fn without_present(reply: &Value, line: &str) -> Value {
    match reply {
        Value::Array(list) if line.contains("COUNT 7") => {
            Value::Array(vec![list[0].clone(), Value::Integer(0), list[2].clone()])
        }
        other => other.clone(),
    }
}

fn check_kinds(replies: Vec<Value>, how: &str) {
    let kinds = all_kinds();
    assert_eq!(replies.len(), kinds.len(), "{how}");
    for (reply, (line, expected)) in replies.iter().zip(kinds) {
        assert_eq!(without_present(reply, line), expected, "{line} in {how}");
    }
}

fn in_multi(client: &mut Client) -> Vec<Value> {
    client.ok("MULTI");
    for (line, _) in all_kinds() {
        assert_eq!(client.run(line), Value::Simple(b"QUEUED".to_vec()), "{line}");
    }
    client.run("EXEC").array()
}

/// One script that runs everything.
const SCRIPT: &str = "local replies = {} \
    for _, line in ipairs(ARGV) do \
        local words = {} \
        for word in string.gmatch(line, '%S+') do words[#words + 1] = word end \
        replies[#replies + 1] = redis.pcall(unpack(words)) \
    end \
    return replies";

const FUNCTION: &str =
    "#!lua name=midilib\n redis.register_function('everything', function(KEYS, ARGV) BODY end)";

fn lines() -> Vec<String> {
    all_kinds().iter().map(|(line, _)| (*line).to_owned()).collect()
}

#[test]
fn transactions_scripts_and_functions_never_block() {
    in_all_modes(|mode, server| {
        let mut client = server.client();
        client.ok("SELECT 5");
        let code = FUNCTION.replace("BODY", SCRIPT);
        assert_eq!(client.call(&["FUNCTION", "LOAD", &code]), Value::bulk("midilib"));
        let call = |client: &mut Client, head: &[&str]| {
            let args: Vec<String> =
                head.iter().map(|word| (*word).to_owned()).chain(lines()).collect();
            client.call(&args).array()
        };
        for with_noise in [false, true] {
            // The noise must not disturb the check of MIDI.FLUSHALL.
            let threads = if with_noise { 3 } else { 0 };
            beside(server, threads, noise, || {
                for _ in 0..10 {
                    check_kinds(in_multi(&mut client), "MULTI");
                    check_kinds(call(&mut client, &["EVAL", SCRIPT, "0"]), "EVAL");
                    check_kinds(call(&mut client, &["FCALL", "everything", "0"]), "FCALL");
                }
            });
        }
        println!("{mode:?} done");
    });
}

/// All commands in a transaction or a script happen at one moment.
fn check_isolation(server: &Server) {
    let write = |client: &mut Client, random: &mut Random| {
        let commands: Vec<_> =
            (0..30).map(|_| words(&format!("MIDI.SET c {}", random.next()))).collect();
        client.pipeline(&commands);
    };
    beside(server, 4, write, || {
        let mut client = server.client();
        for _ in 0..100 {
            client.ok("MULTI");
            for _ in 0..50 {
                client.run("MIDI.GET c");
            }
            same_all(client.run("EXEC").array());
            let script =
                "local r = {} for i = 1, 50 do r[i] = redis.call('MIDI.GET', 'c') end return r";
            same_all(client.call(&["EVAL", script, "0"]).array());
        }
    });
}

#[test]
fn units_are_isolated_in_every_mode() {
    in_all_modes(|_, server| check_isolation(server));
}

#[track_caller]
fn same_all(values: Vec<Value>) {
    assert!(values.iter().all(|value| *value == values[0]), "changed meanwhile: {values:?}");
}

#[test]
fn databases_are_apart() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        for db in 0..16 {
            client.ok(&format!("SELECT {db}"));
            client.ok(&format!("MIDI.SET k {db}"));
            client.ok(&format!("MIDI.POPULATE {} p", 10 * db));
        }
        for db in 0..16 {
            client.ok(&format!("SELECT {db}"));
            assert_eq!(client.run("MIDI.GET k"), Value::bulk(db.to_string()));
            assert_eq!(client.integer("MIDI.DBSIZE"), 10 * db + 1);
            assert_eq!(client.run("MIDI.KEYS *").array().len() as i64, 10 * db + 1);
            assert_eq!(client.scan_all("COUNT 7").len() as i64, 10 * db + 1);
        }
    });
}

/// One pipeline changes the database between its commands.
#[test]
fn select_counts_from_its_place_in_the_pipeline() {
    in_all_modes(|_, server| {
        let mut commands = Vec::new();
        for round in 0..50 {
            commands.push(words(&format!("SELECT {}", round % 16)));
            commands.push(words(&format!("MIDI.SET k {round}")));
            commands.push(words("MIDI.GET k"));
        }
        let replies = server.client().pipeline(&commands);
        for (round, replies) in replies.chunks_exact(3).enumerate() {
            assert_eq!(replies[2], Value::bulk(round.to_string()));
        }
    });
}

fn fill_both(client: &mut Client) {
    for db in 0..3 {
        client.ok(&format!("SELECT {db}"));
        client.ok(&format!("SET k {db}"));
        client.ok(&format!("MIDI.SET k {db}"));
        client.ok(&format!("MIDI.SET t {db} EX 1000"));
    }
}

/// The values of both keyspaces: the native `k` and midi's `k` of each database.
fn both(client: &mut Client) -> Vec<(Value, Value)> {
    (0..3)
        .map(|db| {
            client.ok(&format!("SELECT {db}"));
            (client.run("GET k"), client.run("MIDI.GET k"))
        })
        .collect()
}

#[test]
fn flushes_and_swapdb_of_the_host_act_on_both() {
    in_all_modes(|_, server| {
        let client = &mut server.client();
        let has = |db: i64| (Value::bulk(db.to_string()), Value::bulk(db.to_string()));
        let none = || (Value::NullBulk, Value::NullBulk);
        fill_both(client);
        client.ok("SELECT 1");
        client.ok("FLUSHDB");
        assert_eq!(client.integer("MIDI.DBSIZE"), 0);
        assert_eq!(both(client), [has(0), none(), has(2)]);
        client.ok("SWAPDB 0 1");
        assert_eq!(both(client), [none(), has(0), has(2)]);
        client.ok("SWAPDB 1 2");
        assert_eq!(both(client), [none(), has(2), has(0)]);
        assert_eq!(client.info("midi_keyspace")["midi_db1"], "keys=2,expires=1");
        client.ok("SWAPDB 2 2");
        client.ok("MULTI");
        client.run("SWAPDB 1 0");
        client.run("EXEC");
        assert_eq!(both(client), [has(2), none(), has(0)]);
        client.ok("FLUSHALL ASYNC");
        assert_eq!(both(client), [none(), none(), none()]);
        fill_both(client);
        client.call(&["EVAL", "redis.call('FLUSHALL', 'SYNC')", "0"]);
        assert_eq!(both(client), [none(), none(), none()]);
        fill_both(client);
        client.ok("SELECT 2");
        client.ok("FLUSHDB SYNC");
        assert_eq!(both(client), [has(0), has(1), none()]);
    });
}

/// Counters and tables still agree after flushes and swaps under load.
#[test]
fn flushes_and_swaps_beside_work_leave_no_ghosts() {
    in_all_modes(|_, server| {
        beside(server, 3, noise, || {
            let mut client = server.client();
            for round in 0..30 {
                let line =
                    ["FLUSHDB", "MIDI.FLUSHDB", "SWAPDB 0 1", "MIDI.FLUSHALL SYNC", "FLUSHALL"]
                        [round % 5];
                client.ok(line);
            }
        });
        server.wait_until_idle();
        let mut client = server.client();
        for db in 0..2 {
            client.ok(&format!("SELECT {db}"));
            let counted = client.integer("MIDI.DBSIZE");
            assert_eq!(client.run("MIDI.KEYS *").array().len() as i64, counted);
            client.ok("MIDI.FLUSHDB");
            assert_eq!(client.integer("MIDI.DBSIZE"), 0);
        }
    });
}

#[test]
fn paused_clients_go_on_afterwards() {
    in_all_modes(|_, server| {
        let (mut admin, mut writer) = (server.client(), server.client());
        admin.ok("MIDI.SET k before");
        admin.ok("CLIENT PAUSE 60000 WRITE");
        writer.send_line("MIDI.SET k after");
        writer.send_line("MIDI.POPULATE 10000");
        assert_eq!(admin.run("MIDI.GET k"), Value::bulk("before"));
        assert_eq!(admin.run("MIDI.KEYS k"), Value::Array(vec![Value::bulk("k")]));
        admin.ok("CLIENT UNPAUSE");
        assert_eq!([writer.read(), writer.read()], [Value::ok(), Value::ok()]);
        assert_eq!(admin.run("MIDI.GET k"), Value::bulk("after"));
    });
}

/// A pause that begins while commands are queued and jobs run.
#[test]
fn a_pause_beside_work_stops_nobody_for_good() {
    in_all_modes(|_, server| {
        beside(server, 4, noise, || {
            let mut admin = server.client();
            for round in 0..10 {
                admin.ok(if round % 2 == 0 {
                    "CLIENT PAUSE 50 ALL"
                } else {
                    "CLIENT PAUSE 50 WRITE"
                });
                admin.ok("MIDI.SET k v");
            }
        });
        assert_eq!(server.client().run("MIDI.GET k"), Value::bulk("v"));
    });
}

/// How many keys take long enough to be interrupted.
const MANY: i64 = 3_000_000;

/// A client whose POPULATE of this many keys has begun, and its id.
fn populating(server: &Server, count: i64) -> (Client, i64) {
    let mut client = server.client();
    let id = client.id();
    client.send_line(&format!("MIDI.POPULATE {count}"));
    let mut watcher = server.client();
    wait_until("the job runs", || {
        let jobs = watcher.run("MIDI.JOBS").array();
        jobs.into_iter().any(|job| job.map()["client"] == Value::Integer(id))
    });
    (client, id)
}

#[test]
fn client_unblock_leaves_what_has_begun_alone() {
    for mode in BLOCKING {
        let server = mode.server();
        let (mut client, id) = populating(&server, MANY);
        let mut admin = server.client();
        for kind in ["", " TIMEOUT", " ERROR"] {
            assert_eq!(admin.integer(&format!("CLIENT UNBLOCK {id}{kind}")), 0);
        }
        assert_eq!(client.read(), Value::ok());
        assert_eq!(admin.integer("MIDI.DBSIZE"), MANY);
        client.send_line("MIDI.KEYS *9");
        assert_eq!(admin.integer(&format!("CLIENT UNBLOCK {id}")), 0);
        assert_eq!(client.read().array().len() as i64, MANY / 10);
    }
}

/// An unblocked write has no effect. Any other write has its reply.
#[test]
fn client_unblock_and_the_effect_agree() {
    for mode in BLOCKING {
        let server = mode.server();
        let id = AtomicI64::new(0);
        let unblock = |client: &mut Client, _: &mut Random| {
            client.run(&format!("CLIENT UNBLOCK {}", id.load(Ordering::Relaxed)));
        };
        let mut client = server.client();
        id.store(client.id(), Ordering::Relaxed);
        beside(&server, 2, unblock, || {
            let mut value = "0".to_owned();
            client.ok("MIDI.SET k 0");
            for round in 1..2000 {
                let reply = client.run(&format!("MIDI.SET k {round}"));
                if reply == Value::ok() {
                    value = round.to_string();
                }
                let found = client.run("MIDI.GET k");
                assert!(
                    found == Value::bulk(&value) || found.is_error(),
                    "{reply:?}, then {found:?}"
                );
            }
        });
    }
}

#[test]
fn a_killed_client_takes_its_job_with_it() {
    for mode in BLOCKING {
        let server = mode.server();
        let (mut client, id) = populating(&server, 10 * MANY);
        let mut admin = server.client();
        assert_eq!(admin.integer(&format!("CLIENT KILL ID {id}")), 1);
        assert!(client.try_read().is_err());
        server.wait_until_idle();
        let left = admin.integer("MIDI.DBSIZE");
        assert!(left < 10 * MANY, "the job went on to its end");
        assert_eq!(admin.integer("MIDI.DBSIZE"), left);
        admin.ok("MIDI.FLUSHALL SYNC");
        admin.ok("MIDI.SET k v");
    }
}

/// Clients that are killed in the middle of pipelines.
#[test]
fn killing_clients_with_queued_commands_harms_nobody() {
    in_all_modes(|_, server| {
        let kill = |client: &mut Client, _: &mut Random| {
            client.run("CLIENT KILL TYPE normal SKIPME yes");
        };
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for number in 0..6 {
                let stop = &stop;
                scope.spawn(move || {
                    let mut round = 0;
                    while !stop.load(Ordering::Relaxed) {
                        round += 1;
                        let bytes: Vec<u8> = own_pipeline(number, round)
                            .0
                            .iter()
                            .map(|args| encoded(args))
                            .collect::<Vec<_>>()
                            .concat();
                        let mut client = server.client();
                        let _ = client.try_send(&bytes);
                        while client.try_read().is_ok_and(|reply| !reply.is_error())
                            && round % 3 != 0
                        {
                            if stop.load(Ordering::Relaxed) {
                                return;
                            }
                        }
                    }
                });
            }
            let mut admin = server.client();
            let mut random = Random::new(1);
            for _ in 0..100 {
                kill(&mut admin, &mut random);
                std::thread::sleep(std::time::Duration::from_millis(3));
            }
            stop.store(true, Ordering::Relaxed);
            admin.run("CLIENT KILL TYPE normal SKIPME yes");
        });
        server.wait_until_idle();
        server.client().ok("MIDI.SET k v");
    });
}

/// A change of `midi.dispatch` under load loses and mixes up nothing.
#[test]
fn dispatch_can_change_under_load() {
    let server = Mode::Adaptive.server();
    let work = |client: &mut Client, random: &mut Random| {
        let (commands, expected) = own_pipeline(random.next() as usize, random.below(1000));
        assert_eq!(client.pipeline(&commands), expected);
    };
    beside(&server, 6, work, || {
        let mut admin = server.client();
        for round in 0..60 {
            admin.ok(&format!("CONFIG SET midi.dispatch {}", ["pool", "adaptive"][round % 2]));
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    });
}
