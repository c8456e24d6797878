//! The promise: on a replica every write of midi answers READONLY, whatever `replica-read-only`
//! says, and reads still work. Afterwards writes work again. With an AOF they work, whatever its
//! base is.

use super::persistence::wait_for_save;
use crate::common::aof::wait_for_rewrite;
use crate::common::hosts::host;
use crate::common::{
    Builder, Client, Mode, Server, Value, beside, in_all_modes, redis_server, wait_until,
};

const WRITES: [&str; 23] = [
    "MIDI.SET k new",
    "MIDI.SET k new NX GET",
    "MIDI.MSET k new x new",
    "MIDI.DEL k",
    "MIDI.UNLINK k nosuch",
    "MIDI.EXPIRE k 100",
    "MIDI.PEXPIRE k -1",
    "MIDI.EXPIREAT k 1",
    "MIDI.PEXPIREAT k 4000000000000",
    "MIDI.PERSIST t",
    "MIDI.RENAME l y",
    "MIDI.RENAMENX t z",
    "MIDI.COPY l x",
    "MIDI.MOVE l 1",
    "MIDI.SWAPDB 0 1",
    "MIDI.SWAPDB 1 0",
    "MIDI.FLUSHDB",
    "MIDI.FLUSHALL SYNC",
    "MIDI.POPULATE 10",
    "MIDI.POPULATE 100000 p 100",
    "MIDI.IMPORT *",
    "MIDI.IMPORT * COUNT 1 REPLACE",
    "MIDI.SET t new KEEPTTL",
];

fn set_up(client: &mut Client) {
    client.ok("MIDI.MSET k old l old");
    client.ok("MIDI.SET t old EX 1000");
    client.ok("SET native v");
}

/// Every write is refused for this reason and has no effect. Reads are not refused.
#[track_caller]
fn check_refused(client: &mut Client) {
    for line in WRITES {
        let reply = client.run(line);
        let text = if reply.is_error() { reply.text() } else { panic!("{line}: {reply:?}") };
        assert!(text.starts_with("READONLY "), "{line}: {text}");
    }
    client.ok("MULTI");
    client.run("MIDI.SET k new");
    client.run("MIDI.GET k");
    let replies = client.run("EXEC").array();
    assert!(replies[0].is_error() && replies[1] == Value::bulk("old"), "{replies:?}");
    let reply = client.call(&["EVAL", "return redis.pcall('MIDI.DEL', 'k')", "0"]);
    assert!(reply.is_error() && reply.text().starts_with("READONLY "), "{reply:?}");
    check_reads(client);
}

#[track_caller]
fn check_reads(client: &mut Client) {
    let old = || Value::bulk("old");
    assert_eq!(client.run("MIDI.GET k"), old());
    assert_eq!(client.run("MIDI.MGET k l x"), Value::Array(vec![old(), old(), Value::NullBulk]));
    assert_eq!(client.integer("MIDI.EXISTS k l t x"), 3);
    assert!(client.integer("MIDI.TTL t") > 900);
    assert_eq!(client.run("MIDI.TYPE k"), Value::Simple(b"string".to_vec()));
    assert_eq!(client.run("MIDI.KEYS *").array().len(), 3);
    assert_eq!(client.scan_all("").len(), 3);
    assert_eq!(client.integer("MIDI.DBSIZE"), 3);
    assert!(!client.run("MIDI.RANDOMKEY").is_null());
    assert!(!client.run("MIDI.INFO").is_error());
    // An earlier flush may still be freeing memory.
    wait_until("no job runs", || client.run("MIDI.JOBS").array().is_empty());
}

#[track_caller]
fn check_allowed(client: &mut Client) {
    for line in WRITES {
        assert!(!client.run(line).is_error(), "{line}");
    }
    client.ok("MIDI.FLUSHALL");
    set_up(client);
}

#[test]
fn aof_turned_on_and_off() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        for _ in 0..2 {
            set_up(&mut client);
            client.ok("CONFIG SET appendonly yes");
            check_allowed(&mut client);
            client.ok("CONFIG SET appendonly no");
            check_allowed(&mut client);
        }
    });
}

#[test]
fn aof_with_a_base_of_commands() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        set_up(&mut client);
        client.ok("CONFIG SET appendonly yes");
        for preamble in ["no", "yes", "no"] {
            client.ok(&format!("CONFIG SET aof-use-rdb-preamble {preamble}"));
            check_allowed(&mut client);
        }
        // A server that is writing its first AOF refuses to shut down.
        client.ok("CONFIG SET appendonly no");
    });
}

#[test]
fn a_replica_that_its_clients_may_write_to() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("CONFIG SET replica-read-only no");
        for _ in 0..2 {
            set_up(&mut client);
            client.ok("REPLICAOF 127.0.0.1 1");
            check_refused(&mut client);
            client.ok("SET native v");
            client.ok("REPLICAOF NO ONE");
            check_allowed(&mut client);
        }
    });
}

#[test]
fn aof_from_the_start() {
    for mode in Mode::tried() {
        let builder = mode.builder().config("appendonly yes").config("appendfsync always");
        let mut server = builder.start();
        let mut client = server.client();
        client.ok("MIDI.SET gone v");
        client.ok("MIDI.FLUSHALL");
        set_up(&mut client);
        check_reads(&mut client);
        server.crash();
        server.restart(redis_server());
        check_reads(&mut server.client());
    }
}

/// A server without its own data that follows `of`.
fn replica(of: &Server, mode: Mode) -> Server {
    let replica = mode.builder().config(format!("replicaof 127.0.0.1 {}", of.port())).start();
    let (mut client, mut master) = (replica.client(), of.client());
    wait_until("the replica has synced", || {
        client.info("replication").get("master_link_status").is_some_and(|status| status == "up")
            && master
                .info("replication")
                .get("slave0")
                .is_some_and(|line| line.contains("state=online"))
    });
    replica
}

#[test]
fn with_replicas_that_come_and_go() {
    in_all_modes(|mode, server| {
        let mut client = server.client();
        set_up(&mut client);
        let follower = replica(server, mode);
        check_allowed(&mut client);
        follower.client().ok("REPLICAOF NO ONE");
        check_allowed(&mut client);
        drop(replica(server, mode));
        check_allowed(&mut client);
    });
}

/// The host ends a replica that lacks the module to load what the RDB contains: also if midi has no
/// keys yet, and however the RDB comes; newer hosts have a channel of its own for it.
#[test]
fn a_replica_without_the_module_ends() {
    let server = Mode::Adaptive.server();
    let mut client = server.client();
    client.ok("SET native v");
    let channel =
        if host().valkey { "dual-channel-replication-enabled" } else { "repl-rdb-channel" };
    let mut ways = vec![
        ["repl-diskless-sync no", "repl-diskless-load disabled"],
        ["repl-diskless-sync yes", "repl-diskless-load disabled"],
        ["repl-diskless-sync yes", "repl-diskless-load swapdb"],
    ];
    let by_channel = format!("{channel} yes");
    if !client.run(&format!("CONFIG GET {channel}")).array().is_empty() {
        ways.push([&by_channel, &by_channel]);
    }
    for (number, way) in ways.iter().enumerate() {
        client.ok(&format!("CONFIG SET {}", way[0]));
        for has_keys in [false, true] {
            let mut follower = Builder::plain().config(way[1]).start();
            follower.client().ok(&format!("REPLICAOF 127.0.0.1 {}", server.port()));
            follower.wait_for_exit();
            let log = follower.log();
            assert!(log.contains("no matching module 'midi-keys'"), "{way:?}: {log}");
            wait_until("the replica is gone", || {
                client.info_number("replication", "connected_slaves") == 0
            });
            // Nobody has confirmed the host's half of it.
            client.ok("MULTI");
            client.run(&format!("SET native {number}"));
            client.run("MIDI.SET k v");
            assert_eq!(client.run("EXEC").array(), [Value::ok(), Value::ok()]);
            assert_eq!(client.integer("WAIT 1 10"), 0);
            if has_keys {
                client.ok("MIDI.FLUSHALL");
            }
        }
    }
    set_up(&mut client);
    check_allowed(&mut client);
}

/// A replica with the module follows a master that has no keys yet. Files that are not for a
/// replica have no section then, also beside one: from Redis 7.2 on they load without midi.
#[test]
fn other_files_have_no_empty_section() {
    let server = Mode::Adaptive.server();
    let mut client = server.client();
    client.ok("SET native v");
    let follower = replica(&server, Mode::Adaptive);
    client.ok("CONFIG SET appendonly yes");
    wait_for_rewrite(&mut client);
    client.run("BGSAVE");
    wait_for_save(&mut client);
    if host().is_newer() {
        let other = Builder::plain().start();
        std::fs::copy(server.rdb(), other.rdb()).expect("a copy");
        let mut other_client = other.client();
        other_client.ok("DEBUG RELOAD NOSAVE");
        assert_eq!(other_client.run("GET native"), Value::bulk("v"));
    }
    client.ok("MIDI.SET k v");
    let mut copy = follower.client();
    wait_until("it follows", || copy.run("MIDI.GET k") == Value::bulk("v"));
}

#[test]
fn a_replica_is_read_only() {
    in_all_modes(|mode, server| {
        server.client().ok("SET native v");
        let follower = replica(server, mode);
        let mut client = follower.client();
        for line in WRITES.iter().chain(&["MIDI.EXPORT *"]) {
            let reply = client.run(line);
            assert!(reply.is_error() && reply.text().starts_with("READONLY"), "{line}: {reply:?}");
        }
        assert_eq!(client.integer("MIDI.DBSIZE"), 0);
        assert!(client.run("MIDI.GET k").is_null());
        client.ok("REPLICAOF NO ONE");
        client.ok("MIDI.FLUSHALL");
        set_up(&mut client);
        check_reads(&mut client);
    });
}

/// Keys that EXPORT writes are the host's, and survive as the host's data does.
#[test]
fn exported_keys_are_in_the_aof() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("MIDI.POPULATE 3000 p");
        client.ok("MIDI.SET t v EX 1000");
        client.ok("CONFIG SET appendonly yes");
        wait_until("the AOF is on", || {
            client.info("persistence")["aof_enabled"] == "1"
                && client.info("persistence")["aof_rewrite_in_progress"] == "0"
        });
        assert_eq!(client.run("MIDI.EXPORT *"), Value::integers(&[3001, 0, 0]));
        client.ok("DEBUG LOADAOF");
        assert_eq!(client.integer("DBSIZE"), 3001);
        assert_eq!(client.run("GET p:2999"), Value::bulk("value:2999"));
        assert!(client.integer("TTL t") > 900);
    });
}

/// The gate closes while writes are in progress. Each write succeeds or is refused, and its reply
/// is true.
#[test]
fn the_gate_moves_under_load() {
    in_all_modes(|_, server| {
        let toggle = |client: &mut Client, _: &mut crate::common::Random| {
            client.ok("CONFIG SET maxmemory 1");
            std::thread::sleep(std::time::Duration::from_millis(5));
            client.ok("CONFIG SET maxmemory 0");
            std::thread::sleep(std::time::Duration::from_millis(5));
        };
        let mut client = server.client();
        beside(server, 1, toggle, || {
            let (mut value, mut done, mut refused) = (Value::NullBulk, 0, 0);
            wait_until("some are refused, and others are not", || {
                for round in 0..3000 {
                    let reply = client.run(&format!("MIDI.SET k {round}"));
                    if reply == Value::ok() {
                        value = Value::bulk(round.to_string());
                        done += 1;
                    } else {
                        assert!(reply.text().starts_with("OOM "), "{reply:?}");
                        refused += 1;
                    }
                    assert_eq!(client.run("MIDI.GET k"), value, "after {reply:?}");
                }
                done > 0 && refused > 0
            });
        });
    });
}

/// A running POPULATE stops when there is no memory for it.
#[test]
fn long_writes_stop_when_the_gate_closes() {
    for mode in Mode::with_jobs() {
        let server = mode.server();
        let (mut client, mut admin) = (server.client(), server.client());
        client.send_line("MIDI.POPULATE 30000000");
        wait_until("it has begun", || admin.integer("MIDI.DBSIZE") > 0);
        admin.ok("CONFIG SET maxmemory 1");
        let reply = client.read();
        assert!(reply.is_error() && reply.text().starts_with("OOM "), "{reply:?}");
        let left = admin.integer("MIDI.DBSIZE");
        assert!(left < 30_000_000);
        assert_eq!(admin.integer("MIDI.DBSIZE"), left);
    }
}

/// The host's saves continue beside midi's work, and midi's keys stay.
#[test]
fn background_saves_disturb_nobody() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("MIDI.POPULATE 20000 p");
        let work = |client: &mut Client, random: &mut crate::common::Random| {
            let key = random.below(1000);
            client.ok(&format!("MIDI.SET w:{key} {key}"));
            assert_eq!(client.run(&format!("MIDI.GET w:{key}")), Value::bulk(key.to_string()));
            client.run("MIDI.KEYS p:123*");
        };
        beside(server, 3, work, || {
            for _ in 0..5 {
                client.run("BGSAVE");
                wait_until("the save ends", || {
                    client.info("persistence")["rdb_bgsave_in_progress"] == "0"
                });
            }
            client.ok("SAVE");
        });
        assert_eq!(client.run("MIDI.GET p:19999"), Value::bulk("value:19999"));
    });
}
