//! The promise: save points count midi's changes, from every door, as they count the host's.

use crate::common::{Builder, Client, Mode, Server, Value, in_all_modes, wait_until};

fn unsaved(client: &mut Client) -> i64 {
    client.info_number("persistence", "rdb_changes_since_last_save")
}

/// How many changes this command counts.
#[track_caller]
fn counted(host: &mut Client, by: &mut Client, line: &str) -> i64 {
    let before = unsaved(host);
    by.run(line);
    unsaved(host) - before
}

/// Native commands; `midi.` is put in front of them for midi.
const LINES: [&str; 38] = [
    "SET k v",
    "SET k v",
    "SET k v NX",
    "SET k w XX GET",
    "SET k v EX 1000",
    "MSET a 1 b 2 c 3",
    "MSET a 1 a 2",
    "MSETNX a 1 new 2",
    "MSETNX x 1 y 2",
    "DEL x y nosuch",
    "UNLINK a nosuch",
    "SETRANGE b 0 new",
    "SETRANGE b 5 long",
    "SETRANGE nosuch 0 \"\"",
    "APPEND b more",
    "EXPIRE b 100",
    "EXPIRE nosuch 100",
    "EXPIRE b 1 GT",
    "PERSIST b",
    "PERSIST b",
    "PEXPIREAT b 1",
    "GETEX k",
    "GETEX k EX 100",
    "GETEX k PERSIST",
    "GETEX k PERSIST",
    "GETDEL k",
    "GETDEL k",
    "SET n 1",
    "INCR n",
    "DECRBY n 5",
    "INCRBYFLOAT n 1.5",
    "GETSET n 5",
    "SETNX n 5",
    "COPY n m",
    "COPY n m",
    "SETBIT bits 3 1",
    "BITFIELD bits SET u8 0 5",
    "BITOP NOT turned bits",
];

#[test]
fn as_many_as_the_hosts() {
    for mode in Mode::tried() {
        let server = mode.builder().with_port().start();
        let (mut host, mut native) = (server.client(), server.client());
        for mut door in [server.client(), server.midi_client()] {
            host.ok("FLUSHALL");
            for line in LINES {
                let expected = counted(&mut host, &mut native, line);
                let midi = counted(&mut host, &mut door, &format!("MIDI.{line}"));
                assert_eq!(midi, expected, "{mode:?}: {line}");
            }
            // midi counts keys that change; the host counts one for each of these.
            assert_eq!(counted(&mut host, &mut door, "MIDI.RENAME n renamed"), 2);
            assert_eq!(counted(&mut host, &mut door, "MIDI.MOVE renamed 1"), 2);
        }
    }
}

#[test]
fn many_at_once() {
    in_all_modes(|mode, server| {
        let (mut host, mut client) = (server.client(), server.client());
        assert_eq!(counted(&mut host, &mut client, "DEBUG POPULATE 1000"), 0);
        assert_eq!(counted(&mut host, &mut client, "MIDI.POPULATE 1000"), 1000, "{mode:?}");
        host.ok("FLUSHALL");
        for round in 0..1000 {
            client.ok(&format!("SET k:{round} v"));
        }
        let expected = counted(&mut host, &mut client, "FLUSHALL");
        for round in 0..1000 {
            client.ok(&format!("MIDI.SET k:{round} v"));
        }
        assert_eq!(counted(&mut host, &mut client, "MIDI.FLUSHALL"), expected, "{mode:?}");
        client.ok("MULTI");
        client.run("MIDI.SET a 1");
        client.run("MIDI.MSET b 1 c 1");
        assert_eq!(counted(&mut host, &mut client, "EXEC"), 3, "{mode:?}");
        let script = "EVAL redis.call('MIDI.SET','a',1) 0";
        assert_eq!(counted(&mut host, &mut client, script), 1, "{mode:?}");
    });
}

#[test]
fn none_are_left_after_a_save() {
    in_all_modes(|mode, server| {
        let mut client = server.client();
        client.ok("MIDI.POPULATE 200000");
        client.ok("SAVE");
        assert_eq!(unsaved(&mut client), 0, "{mode:?}");
        client.ok("MIDI.SET k v");
        assert_eq!(unsaved(&mut client), 1);
        client.run("BGSAVE");
        wait_until("it is saved", || unsaved(&mut client) == 0);
    });
}

/// The host keeps its replication backlog for an hour. midi's writes are in that, and counted once.
#[test]
fn with_a_backlog_that_nobody_reads() {
    let server = Mode::Adaptive.builder().with_port().config("save 3600 1000000").start();
    let (mut host, mut port) = (server.client(), server.midi_client());
    let replica =
        Mode::Adaptive.builder().config(format!("replicaof 127.0.0.1 {}", server.port())).start();
    wait_until("it is attached", || host.info_number("replication", "connected_slaves") == 1);
    replica.client().ok("REPLICAOF NO ONE");
    wait_until("it has gone", || host.info_number("replication", "connected_slaves") == 0);
    assert_eq!(host.info_number("replication", "repl_backlog_active"), 1);
    let offset = |host: &mut Client| host.info_number("replication", "master_repl_offset");
    let before = offset(&mut host);
    let mut client = server.client();
    assert_eq!(counted(&mut host, &mut client, "MIDI.MSET a 1 b 2"), 2);
    assert_eq!(counted(&mut host, &mut port, "SET k v"), 1);
    wait_until("no child saves any more", || client.run("SAVE") == Value::ok());
    client.ok("MIDI.POPULATE 50000");
    // A run that is counted just before it is logged counts once more, as the host's own.
    wait_until("all are counted", || (50_000..50_100).contains(&unsaved(&mut host)));
    assert!(offset(&mut host) > before);
}

/// A logged text is one change for the host, whatever is in it. The rest of what is in it takes
/// time to count, so no more of it is counted than a save point waits for.
#[test]
fn with_an_aof_no_more_than_are_waited_for() {
    let builder = Mode::Adaptive.builder().config("appendonly yes");
    let server = builder.config("save 3600 3 3600 5").start();
    let (mut host, mut client) = (server.client(), server.client());
    for _ in 0..2 {
        for (line, expected) in [
            ("MIDI.SET k v", 1),
            ("MIDI.MSET a 1 b 2", 2),
            ("MIDI.MSET a 1 b 2", 2),
            ("MIDI.MSET a 1 b 2", 1),
            ("MIDI.SET k v", 1),
        ] {
            assert_eq!(counted(&mut host, &mut client, line), expected, "{line}");
        }
        host.run("BGSAVE");
        wait_until("it is saved", || unsaved(&mut host) == 0);
    }
}

/// A write through each door leads to a save, with nothing else going on.
#[test]
fn a_write_leads_to_a_save() {
    let ports = Builder::new().load("threads 2").with_port().config("save 1 1").start();
    let keys = |client: &mut Client| client.info_number("midi_persistence", "midi_last_save_keys");
    for (mut client, saved) in [(ports.client(), 1), (ports.midi_client(), 2)] {
        client.ok(&format!("MIDI.SET k{saved} v"));
        let mut host = ports.client();
        wait_until("it is saved", || keys(&mut host) == saved);
        assert_eq!(unsaved(&mut host), 0);
    }
    check_saved(ports);
}

#[track_caller]
fn check_saved(mut server: Server) {
    server.kill_hard();
    server.restart(crate::common::redis_server());
    assert_eq!(server.client().integer("MIDI.DBSIZE"), 2);
}

/// Stock servers count nothing when a DEBUG command loads what they have, and from 0 after LOADAOF.
#[test]
fn keys_that_debug_loads_count_as_no_changes() {
    for mode in Mode::tried() {
        let builder = mode.builder().with_port().config("appendonly yes").config("save 900 5000");
        let server = builder.start();
        let mut client = server.client();
        client.ok("MIDI.POPULATE 3000");
        client.ok("DEBUG POPULATE 1000");
        rewritten(&mut client);
        for aof in ["yes", "no"] {
            client.ok(&format!("CONFIG SET appendonly {aof}"));
            if aof == "yes" {
                rewritten(&mut client);
            }
            for (line, before) in [
                ("DEBUG RELOAD", None),
                ("DEBUG RELOAD NOSAVE", None),
                ("DEBUG RELOAD NOSAVE NOFLUSH MERGE", None),
                ("DEBUG RELOAD NOSAVE", Some(2)),
                ("DEBUG LOADAOF", None),
                ("DEBUG LOADAOF", Some(2)),
            ] {
                client.ok("SAVE");
                if before.is_some() {
                    client.ok("MIDI.SET k1 v");
                    server.midi_client().ok("SET k2 v");
                    wait_until("they are counted", || unsaved(&mut client) == 2);
                }
                client.ok(line);
                // The turn that the reply ends counts, and so does the next.
                client.run("PING");
                let expected = if line.contains("LOADAOF") { 0 } else { before.unwrap_or(0) };
                assert_eq!(unsaved(&mut client), expected, "{mode:?}, AOF {aof}: {line}");
            }
        }
    }
}

fn rewritten(client: &mut Client) {
    let done = |client: &mut Client| {
        ["aof_rewrite_in_progress", "aof_rewrite_scheduled"]
            .iter()
            .all(|field| client.info_number("persistence", field) == 0)
    };
    wait_until("no rewrite runs", || done(client));
    client.run("BGREWRITEAOF");
    wait_until("the rewrite has ended", || done(client));
}
