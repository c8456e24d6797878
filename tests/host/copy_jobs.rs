//! The promise: MIDI.IMPORT and MIDI.EXPORT touch no key that their user may not touch. They
//! restore nothing that was flushed or has expired. The host can answer others while they run. They
//! end when their client disconnects.

use std::time::Duration;

use crate::common::{Client, Mode, Server, Value, at_once, in_all_modes, wait_until};

#[track_caller]
fn check(client: &mut Client, line: &str, expected: [i64; 3]) {
    assert_eq!(client.run(line), Value::integers(&expected), "{line}");
}

/// A time long after this test.
const FAR: i64 = 4_102_444_800_000;

#[test]
fn expiry_goes_there_and_back_to_the_millisecond() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok(&format!("SET far v PXAT {FAR}"));
        client.ok(&format!("SET large {} PXAT {}", "v".repeat(50_000), FAR + 1));
        client.ok("SET forever v");
        check(&mut client, "MIDI.IMPORT *", [3, 0, 0]);
        client.ok("SET forever old EX 1000");
        client.ok("SET far old");
        client.run("DEL large");
        check(&mut client, "MIDI.EXPORT * REPLACE", [3, 0, 0]);
        assert_eq!(client.integer("PEXPIRETIME forever"), -1);
        assert_eq!(client.integer("PEXPIRETIME far"), FAR);
        assert_eq!(client.integer("PEXPIRETIME large"), FAR + 1);
        // A skipped key keeps its own expiry.
        client.run("PERSIST far");
        check(&mut client, "MIDI.EXPORT far", [0, 1, 0]);
        assert_eq!(client.integer("PEXPIRETIME far"), -1);
        check(&mut client, "MIDI.IMPORT far", [0, 1, 0]);
        assert!(client.integer("MIDI.PTTL far") > 0);
    });
}

/// A key that has expired, but that the host has not removed yet, is neither copied nor counted.
#[test]
fn expired_keys_are_not_there() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("DEBUG SET-ACTIVE-EXPIRE 0");
        client.ok("SET gone v PX 1");
        client.ok(&format!("SET gone-large {} PX 1", "v".repeat(2000)));
        client.ok("MIDI.SET vanished v PX 1");
        client.ok("MIDI.SET gone-midi v PX 1");
        client.ok("SET vanished new");
        client.ok("SET stays v");
        client.run("DEBUG SLEEP 0.02");
        check(&mut client, "MIDI.IMPORT *", [2, 0, 0]);
        assert_eq!(client.run("MIDI.GET vanished"), Value::bulk("new"));
        assert_eq!(client.run("MIDI.KEYS *").array().len(), 2);
        check(&mut client, "MIDI.EXPORT gone*", [0, 0, 0]);
        assert!(client.run("GET gone-midi").is_null());
    });
}

#[test]
fn expired_lists_are_not_counted() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("DEBUG SET-ACTIVE-EXPIRE 0");
        client.run("RPUSH gone 1");
        client.run("PEXPIRE gone 1");
        client.run("RPUSH stays 1");
        client.run("DEBUG SLEEP 0.02");
        check(&mut client, "MIDI.IMPORT *", [0, 0, 1]);
    });
}

/// A line alone, in MULTI and from a script.
fn three_ways(client: &mut Client, line: &str) -> [(&'static str, Value); 3] {
    let alone = client.run(line);
    client.ok("MULTI");
    client.run(line);
    let in_multi = client.run("EXEC").array().remove(0);
    let mut call = vec!["EVAL", "return redis.pcall(unpack(ARGV))", "0"];
    call.extend(line.split(' '));
    let in_script = client.call(&call);
    [("alone", alone), ("in MULTI", in_multi), ("in a script", in_script)]
}

/// Users can copy only keys that they may access, however the command arrives.
#[test]
fn rights_are_kept() {
    in_all_modes(|_, server| {
        let mut admin = server.client();
        admin.ok("MSET key1 1 secret 2");
        admin.ok("MIDI.MSET key2 1 hidden 2");
        admin.ok("ACL SETUSER u on nopass +@all ~key*");
        let mut client = server.client();
        client.ok("AUTH u x");
        check(&mut client, "MIDI.IMPORT key*", [1, 0, 0]);
        check(&mut client, "MIDI.EXPORT key*", [1, 1, 0]);
        let mut copied = Vec::new();
        for line in ["MIDI.IMPORT *", "MIDI.IMPORT secret", "MIDI.EXPORT *", "MIDI.EXPORT hidden"] {
            for (how, reply) in three_ways(&mut client, line) {
                if !reply.is_error() || !reply.text().starts_with("NOPERM") {
                    copied.push(format!("{line} {how}: {reply:?}"));
                }
            }
        }
        assert!(copied.is_empty(), "{copied:#?}");
        assert!(admin.run("MIDI.GET secret").is_null());
        assert!(admin.run("GET hidden").is_null());
    });
}

/// A running copy ends when its user loses the rights to it.
#[test]
fn rights_can_be_taken_away() {
    for mode in Mode::with_jobs() {
        let server = mode.server();
        let mut admin = server.client();
        admin.ok("DEBUG POPULATE 500000");
        for change in ["ACL SETUSER u resetkeys ~nosuch*", "ACL DELUSER u"] {
            admin.ok("ACL SETUSER u on nopass +@all ~*");
            let mut client = server.client();
            client.ok("AUTH u x");
            client.send_line("MIDI.IMPORT *");
            wait_until("it runs", || admin.integer("MIDI.DBSIZE") > 0);
            assert!(!admin.run(change).is_error());
            // DELUSER also closes the connection.
            if let Ok(reply) = client.try_read() {
                assert!(reply.text().starts_with("NOPERM"), "{change}: {reply:?}");
            }
            server.wait_until_idle();
            assert!(admin.integer("MIDI.DBSIZE") < 500_000, "{change}");
            admin.ok("MIDI.FLUSHALL SYNC");
        }
    }
}

/// Starts a copy and waits until it runs. Returns the client and its id.
pub fn start(server: &Server, line: &str) -> (Client, i64) {
    let mut client = server.client();
    let id = client.id();
    client.send_line(line);
    let mut watcher = server.client();
    wait_until("it runs", || !watcher.run("MIDI.JOBS").array().is_empty());
    (client, id)
}

/// The host answers others while one client copies.
#[test]
fn others_are_answered_meanwhile() {
    for mode in Mode::with_jobs() {
        let server = mode.server();
        let mut client = server.client();
        client.ok("DEBUG POPULATE 150000");
        for line in ["MIDI.IMPORT *", "MIDI.EXPORT * REPLACE"] {
            let (mut busy, _) = start(&server, line);
            let mut meanwhile = 0;
            while !client.run("MIDI.JOBS").array().is_empty() {
                client.ok("SET native 1");
                client.ok("MIDI.SET own 1");
                assert_eq!(client.run("MIDI.GET own"), Value::bulk("1"));
                meanwhile += 1;
            }
            let reply = busy.read().array();
            assert!(reply[0].integer() >= 150_000, "{reply:?}");
            assert!(meanwhile > 0, "nobody was answered during {line}");
        }
        assert_eq!(client.run("MIDI.GET key:149999"), Value::bulk("value:149999"));
    }
}

/// The same keys are copied both ways at once. Every copy is of a whole value.
#[test]
fn both_ways_at_once() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("DEBUG POPULATE 3000 key 100");
        client.ok("MIDI.POPULATE 3000 key 100");
        at_once(4, |number| {
            let mut client = server.client();
            let line =
                if number % 2 == 0 { "MIDI.IMPORT * REPLACE" } else { "MIDI.EXPORT * REPLACE" };
            for _ in 0..10 {
                check(&mut client, line, [3000, 0, 0]);
            }
        });
        for key in ["key:0", "key:1500", "key:2999"] {
            assert_eq!(client.call(&["MIDI.GET", key]), client.call(&["GET", key]));
        }
    });
}

#[test]
fn a_vanished_clients_copy_ends() {
    for mode in Mode::with_jobs() {
        let server = mode.server();
        let mut admin = server.client();
        admin.ok("DEBUG POPULATE 500000");
        let (mut client, id) = start(&server, "MIDI.IMPORT *");
        assert_eq!(admin.integer(&format!("CLIENT KILL ID {id}")), 1);
        assert!(client.try_read().is_err());
        server.wait_until_idle();
        assert!(admin.integer("MIDI.DBSIZE") < 500_000, "IMPORT went on to its end");
        admin.ok("FLUSHALL");
        admin.ok("MIDI.POPULATE 500000");
        let (client, _) = start(&server, "MIDI.EXPORT *");
        drop(client);
        server.wait_until_idle();
        let copied = admin.integer("DBSIZE");
        assert!(copied < 500_000, "EXPORT went on to its end");
        check(&mut admin, "MIDI.EXPORT *", [500_000 - copied, copied, 0]);
    }
}

#[test]
fn a_copy_can_be_cancelled() {
    for mode in Mode::with_jobs() {
        let server = mode.server();
        let mut admin = server.client();
        admin.ok("DEBUG POPULATE 500000");
        let (mut client, id) = start(&server, "MIDI.IMPORT *");
        let job = admin.run("MIDI.JOBS").array().remove(0).map();
        assert_eq!((job["client"].integer(), job["command"].text()), (id, "import".to_owned()));
        assert_eq!(job["total"], Value::Integer(500_000));
        let number = job["id"].integer();
        admin.ok(&format!("MIDI.JOBS CANCEL {number}"));
        let text = format!("ERR job {number} was cancelled by MIDI.JOBS CANCEL");
        assert_eq!(client.read(), Value::error(&text));
        assert!(admin.integer("MIDI.DBSIZE") < 500_000);
    }
}

/// The host's flushes empty both keyspaces. A running copy must not restore what existed before
/// them.
#[test]
fn no_key_survives_a_flush_in_a_copy() {
    let mut zombies = Vec::new();
    for mode in Mode::with_jobs() {
        let server = mode.server();
        for (fill, copy, flush) in [
            ("DEBUG POPULATE 100000", "MIDI.IMPORT *", "FLUSHALL"),
            ("DEBUG POPULATE 100000", "MIDI.IMPORT * REPLACE", "FLUSHDB ASYNC"),
            ("MIDI.POPULATE 100000", "MIDI.EXPORT *", "FLUSHALL"),
            ("MIDI.POPULATE 100000", "MIDI.EXPORT * REPLACE", "FLUSHDB ASYNC"),
        ] {
            for round in 0..4 {
                let left = left_after_flush(&server, fill, copy, flush, 1000 * round);
                if left != (0, 0) {
                    zombies.push(format!(
                        "{mode:?}: {left:?} keys of host and midi after {flush} in {copy}"
                    ));
                }
            }
        }
    }
    assert!(zombies.is_empty(), "{zombies:#?}");
}

/// A flush of another database takes no key out of a copy.
#[test]
fn a_flush_elsewhere_takes_nothing_out_of_an_export() {
    for mode in Mode::with_jobs() {
        for option in ["REPLACE", "MOVE"] {
            let server = mode.server();
            let mut admin = server.client();
            admin.ok("MIDI.POPULATE 20000");
            admin.ok("SELECT 5");
            let (mut client, _) = start(&server, &format!("MIDI.EXPORT * {option}"));
            while !client.has_reply_within(Duration::from_millis(1)) {
                admin.ok("FLUSHDB");
            }
            let said = format!("{mode:?} {option}");
            assert_eq!(client.read(), Value::integers(&[20_000, 0, 0]), "{said}");
            admin.ok("SELECT 0");
            assert_eq!(admin.integer("DBSIZE"), 20_000, "{said}");
            let stay = if option == "MOVE" { 0 } else { 20_000 };
            assert_eq!(admin.integer("MIDI.DBSIZE"), stay, "{said}");
        }
    }
}

/// How many keys remain if both keyspaces are flushed after this many copies.
fn left_after_flush(
    server: &Server,
    fill: &str,
    copy: &str,
    flush: &str,
    after: i64,
) -> (i64, i64) {
    let mut admin = server.client();
    admin.ok(fill);
    let (mut client, _) = start(server, copy);
    let filled = if copy.contains("IMPORT") { "MIDI.DBSIZE" } else { "DBSIZE" };
    wait_until("some are copied", || admin.integer(filled) > after);
    admin.ok(flush);
    let reply = client.read().array();
    assert!(reply[0].integer() > 0, "{copy}: {reply:?}");
    let left = (admin.integer("DBSIZE"), admin.integer("MIDI.DBSIZE"));
    admin.ok("FLUSHALL");
    left
}

/// SWAPDB swaps both keyspaces. A running copy continues and mixes nothing up.
#[test]
fn a_swap_during_a_copy_harms_nobody() {
    for mode in Mode::with_jobs() {
        let server = mode.server();
        let mut admin = server.client();
        admin.ok("DEBUG POPULATE 100000");
        let (mut client, _) = start(&server, "MIDI.IMPORT *");
        for _ in 0..20 {
            admin.ok("SWAPDB 0 1");
        }
        assert!(!client.read().is_error());
        for db in 0..2 {
            admin.ok(&format!("SELECT {db}"));
            let keys = admin.run("MIDI.KEYS *").array();
            assert_eq!(keys.len() as i64, admin.integer("MIDI.DBSIZE"));
            for key in keys.iter().take(100) {
                let name = key.bytes();
                let value = [b"value:", &name[4..]].concat();
                assert_eq!(admin.call(&[b"MIDI.GET".as_slice(), name]), Value::bulk(value));
            }
        }
    }
}
