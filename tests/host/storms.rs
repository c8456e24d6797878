//! The promise: clients that disconnect, whatever they have requested and at whatever point, do no
//! harm. Their jobs stop. Jobs can be listed and cancelled.

use std::time::Duration;

use crate::common::{
    Client, Mode, Random, Server, Value, at_once, encoded, in_all_modes, wait_until,
};

/// The server is as before: no blocked client, no queue, no jobs, and it works.
fn check_healthy(server: &Server) {
    server.wait_until_idle();
    let mut client = server.client();
    wait_until("nobody is blocked", || client.info_number("clients", "blocked_clients") == 0);
    wait_until("the dead are gone", || client.info_number("clients", "connected_clients") == 1);
    // The last commands of disconnected clients may still be in the queue.
    wait_until("nothing is queued", || {
        client.info_number("midi_dispatch", "midi_queue_depth") == 0
    });
    assert_eq!(client.info_number("midi_shards", "midi_panics"), 0);
    client.ok("MIDI.SET health good");
    assert_eq!(client.run("MIDI.GET health"), Value::bulk("good"));
    // Expired keys are counted until they are removed.
    wait_until("the count is right", || {
        client.integer("MIDI.DBSIZE") == client.run("MIDI.KEYS *").array().len() as i64
    });
}

fn short_command(random: &mut Random) -> Vec<u8> {
    let key = format!("k{}", random.below(50));
    let value = "v".repeat(random.below(300));
    match random.below(6) {
        0 => encoded(&["MIDI.GET", &key]),
        1 => encoded(&["MIDI.MSET", &key, &value, "other", &value]),
        2 => encoded(&["MIDI.MGET", &key, "other", "nosuch"]),
        3 => encoded(&["MIDI.DEL", &key, "other"]),
        4 => encoded(&["MIDI.SET", &key, &"x".repeat(40_000), "GET"]),
        _ => encoded(&["MIDI.SET", &key, &value, "PX", "20"]),
    }
}

#[test]
fn clients_that_send_and_vanish() {
    in_all_modes(|_, server| {
        at_once(8, |number| {
            let mut random = Random::new(number as u64);
            for _ in 0..60 {
                let mut client = server.client();
                let commands: Vec<_> =
                    (0..1 + random.below(40)).map(|_| short_command(&mut random)).collect();
                let bytes = commands.concat();
                // Often the last command is incomplete.
                let end =
                    if random.below(2) == 0 { bytes.len() } else { random.below(bytes.len()) };
                let _ = client.try_send(&bytes[..end]);
                if end == bytes.len() {
                    for _ in 0..random.below(4).min(commands.len()) {
                        client.read();
                    }
                }
            }
        });
        check_healthy(server);
    });
}

#[test]
fn halves_of_commands_are_no_commands() {
    in_all_modes(|_, server| {
        let whole = encoded(&["MIDI.SET", "half", "value"]);
        for end in 0..whole.len() {
            let mut client = server.client();
            client.send(&whole[..end]);
            drop(client);
        }
        assert_eq!(server.client().integer("MIDI.EXISTS half"), 0);
        check_healthy(server);
    });
}

fn long_command(random: &mut Random) -> Vec<u8> {
    let line = match random.below(8) {
        0 => "MIDI.POPULATE 300000 more 30",
        1 | 2 => "MIDI.KEYS *",
        3 => "MIDI.KEYS *1*2*3*",
        4 => "MIDI.SCAN 0 COUNT 1000000",
        5 => "MIDI.IMPORT * REPLACE",
        6 => "MIDI.EXPORT key:1* REPLACE",
        _ => "MIDI.FLUSHDB SYNC",
    };
    encoded(&line.split(' ').collect::<Vec<_>>())
}

#[test]
fn clients_that_ask_for_long_work_and_vanish() {
    in_all_modes(|mode, server| {
        let mut admin = server.client();
        admin.ok("MIDI.POPULATE 30000");
        admin.ok("DEBUG POPULATE 5000 native");
        let rounds = if mode == Mode::Safe { 5 } else { 25 };
        at_once(6, |number| {
            let mut random = Random::new(100 + number as u64);
            for _ in 0..rounds {
                let mut client = server.client();
                let _ = client.try_send(&long_command(&mut random));
                let _ = client.try_send(&short_command(&mut random));
                std::thread::sleep(Duration::from_micros(random.below(3000) as u64));
            }
        });
        drop(admin);
        check_healthy(server);
    });
}

/// A client that requests much and never reads.
#[test]
fn clients_that_never_read_their_long_replies() {
    in_all_modes(|_, server| {
        let mut admin = server.client();
        admin.ok("MIDI.POPULATE 100000 key:with:a:longer:name 10");
        let mut deaf: Vec<Client> = (0..10).map(|_| server.client()).collect();
        for client in &mut deaf {
            client.send_line("MIDI.KEYS *");
            client.send_line("MIDI.SCAN 0 COUNT 100000");
        }
        server.wait_until_idle();
        assert_eq!(admin.run("MIDI.KEYS *:99999").array().len(), 1);
        drop((deaf, admin));
        check_healthy(server);
    });
}

/// A client with a running POPULATE of this many keys, and the job's number.
fn populating(server: &Server, count: i64) -> (Client, i64) {
    let mut client = server.client();
    let id = client.id();
    client.send_line(&format!("MIDI.POPULATE {count}"));
    let job = job_of(server, id, &mut client).expect("it takes seconds");
    (client, job)
}

/// The number of that client's job, once it runs; `None` if it has ended before.
fn job_of(server: &Server, id: i64, client: &mut Client) -> Option<i64> {
    let mut watcher = server.client();
    let mut found = None;
    wait_until("the job runs", || {
        let jobs = watcher.run("MIDI.JOBS").array();
        let mut jobs = jobs.into_iter().map(Value::map);
        found = jobs.find(|job| job["client"] == Value::Integer(id)).map(|job| job["id"].integer());
        found.is_some() || client.has_reply_within(Duration::from_millis(1))
    });
    found
}

/// More keys than POPULATE makes before the test ends it.
const MANY: i64 = 30_000_000;

#[test]
fn jobs_of_vanished_clients_stop() {
    for mode in Mode::with_jobs() {
        let server = mode.server();
        drop(populating(&server, MANY));
        server.wait_until_idle();
        let mut client = server.client();
        let left = client.integer("MIDI.DBSIZE");
        assert!(left < MANY, "the job went on to its end");
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(client.integer("MIDI.DBSIZE"), left, "something goes on");
        drop(client);
        check_healthy(&server);
    }
}

#[test]
fn a_cancelled_job_stops_and_says_so() {
    for mode in Mode::with_jobs() {
        let server = mode.server();
        let mut admin = server.client();
        for id in ["0", "-1", "12345678"] {
            assert_eq!(
                admin.run(&format!("MIDI.JOBS CANCEL {id}")),
                Value::error("ERR no such job")
            );
        }
        let (mut client, job) = populating(&server, MANY);
        admin.ok(&format!("MIDI.JOBS CANCEL {job}"));
        let text = format!("ERR job {job} was cancelled by MIDI.JOBS CANCEL");
        assert_eq!(client.read(), Value::error(&text));
        let left = admin.integer("MIDI.DBSIZE");
        assert!(left < MANY, "the job went on to its end");
        assert!(admin.run(&format!("MIDI.JOBS CANCEL {job}")).is_error(), "it is gone");
        assert_eq!(client.integer("MIDI.DBSIZE"), left);
        drop((client, admin));
        check_healthy(&server);
    }
}

#[test]
fn other_kinds_of_jobs_can_be_cancelled() {
    for mode in Mode::with_jobs() {
        let server = mode.server();
        let mut admin = server.client();
        admin.ok("DEBUG POPULATE 400000");
        admin.ok("MIDI.POPULATE 800000 own");
        for line in ["MIDI.IMPORT *", "MIDI.EXPORT own:*", "MIDI.KEYS *"] {
            // Some end by themselves within half a second, perhaps before they are cancelled.
            wait_until("it is cancelled", || {
                let mut client = server.client();
                let id = client.id();
                client.send_line(line);
                if let Some(job) = job_of(&server, id, &mut client) {
                    admin.run(&format!("MIDI.JOBS CANCEL {job}"));
                }
                let reply = client.read();
                reply.is_error() && reply.text().contains("was cancelled by MIDI.JOBS CANCEL")
            });
        }
        drop(admin);
        check_healthy(&server);
    }
}

/// SAFEMODE must also survive clients that are gone when the reply is ready.
#[test]
fn vanished_clients_of_safemode() {
    let server = Mode::Safe.server();
    for _ in 0..10 {
        server.client().send_line("MIDI.POPULATE 100000");
        server.client().send_line("MIDI.KEYS *");
    }
    check_healthy(&server);
    assert_eq!(server.client().integer("MIDI.DBSIZE"), 100_001);
}

/// Long commands beyond the limit are refused, and the running ones continue.
#[test]
fn a_storm_of_jobs_meets_its_limit() {
    for mode in Mode::with_jobs() {
        let server = mode.builder().load("max-jobs 8").start();
        server.client().ok("MIDI.POPULATE 200000");
        let mut clients: Vec<Client> = (0..60).map(|_| server.client()).collect();
        for client in &mut clients {
            client.send_line("MIDI.KEYS *");
        }
        let (mut served, mut refused) = (0, 0);
        for client in &mut clients {
            match client.read() {
                Value::Array(keys) => {
                    assert_eq!(keys.len(), 200_000);
                    served += 1;
                }
                Value::Error(text) => {
                    let text = String::from_utf8_lossy(&text).into_owned();
                    assert!(
                        text.starts_with("BUSY ") && text.contains("midi.max-jobs 8"),
                        "{text}"
                    );
                    refused += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(served >= 8, "{served} served, {refused} refused");
        drop(clients);
        check_healthy(&server);
    }
}

/// A refused flush has no effect.
#[test]
fn a_refused_flush_has_no_effect() {
    for mode in Mode::with_jobs() {
        let server = mode.builder().load("max-jobs 1").start();
        let (mut client, job) = populating(&server, MANY);
        let mut admin = server.client();
        admin.ok("SELECT 1");
        admin.ok("MIDI.MSET a 1 b 2");
        for line in ["MIDI.FLUSHDB", "MIDI.FLUSHDB SYNC", "MIDI.FLUSHALL"] {
            let reply = admin.run(line);
            let left = admin.integer("MIDI.DBSIZE");
            let whole = (reply == Value::ok() && left == 0) || (reply.is_error() && left == 2);
            assert!(whole, "{line}: {reply:?}, then {left} keys");
            admin.ok("MIDI.MSET a 1 b 2");
        }
        admin.run(&format!("MIDI.JOBS CANCEL {job}"));
        client.read();
    }
}

/// Hundreds of connections open and close while others work.
#[test]
fn a_storm_of_connections_beside_work() {
    in_all_modes(|_, server| {
        let mut worker = server.client();
        let storm = |client: &mut Client, random: &mut Random| {
            let mut short = server.client();
            let _ = short.try_send(&short_command(random));
            client.run("PING");
        };
        crate::common::beside(server, 6, storm, || {
            for round in 0..1000 {
                let value = round.to_string();
                worker.ok(&format!("MIDI.SET mine {value}"));
                assert_eq!(worker.run("MIDI.GET mine"), Value::bulk(value));
            }
        });
        drop(worker);
        check_healthy(server);
    });
}

/// Each client sets its own keys and reads them back, in one pipeline.
fn set_and_get(client: &mut Client, random: &mut Random) {
    let key = random.next();
    let commands: Vec<Vec<String>> = (0..20)
        .flat_map(|number| {
            [format!("MIDI.SET {key}:{number} {number}"), format!("MIDI.GET {key}:{number}")]
        })
        .map(|line| line.split(' ').map(str::to_owned).collect())
        .collect();
    for (number, pair) in client.pipeline(&commands).chunks_exact(2).enumerate() {
        assert_eq!(pair, [Value::ok(), Value::bulk(number.to_string())]);
    }
}

/// The host's own threads read the clients' commands.
#[test]
fn io_threads_of_the_host() {
    for mode in Mode::tried() {
        let server =
            mode.builder().config("io-threads 2").config("io-threads-do-reads yes").start();
        at_once(8, |number| {
            let mut client = server.client();
            let mut random = Random::new(number as u64);
            for _ in 0..40 {
                set_and_get(&mut client, &mut random);
            }
        });
    }
}
