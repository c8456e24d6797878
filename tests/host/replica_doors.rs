//! The promise: a replica answers reads of midi's keys through every door, and no writes. It does
//! not answer at all for keys that its master may have changed without its knowledge.

use std::thread;
use std::time::Duration;

use super::replication::{attach, digest, wait_for_link};
use crate::common::clock::Clock;
use crate::common::link::Link;
use crate::common::port::Ported;
use crate::common::{Builder, Client, Mode, Value, redis_server, wait_until};

/// Commands that change data, through both doors.
const WRITES: [&str; 16] = [
    "MIDI.SET a v",
    "MIDI.SET a v XX GET",
    "MIDI.MSET a v l w",
    "MIDI.INCR new",
    "MIDI.APPEND a more",
    "MIDI.GETDEL a",
    "MIDI.DEL a b",
    "MIDI.UNLINK a nosuch",
    "MIDI.RENAME a z",
    "MIDI.COPY a z",
    "MIDI.EXPIRE a 100",
    "MIDI.PERSIST lasting",
    "MIDI.FLUSHDB",
    "MIDI.FLUSHALL SYNC",
    "MIDI.SWAPDB 0 1",
    "MIDI.SETBIT a 1 1",
];

/// Jobs that change data, through the host's door.
const JOBS: [&str; 2] = ["MIDI.POPULATE 100000", "MIDI.IMPORT *"];

/// Commands that only read, and their replies on the data of [`master`].
fn reads() -> [(&'static str, Value); 6] {
    [
        ("MIDI.GET a", Value::bulk("1")),
        ("MIDI.MGET a nosuch", Value::Array(vec![Value::bulk("1"), Value::NullBulk])),
        ("MIDI.EXISTS a b", Value::Integer(2)),
        ("MIDI.DBSIZE", Value::Integer(3)),
        ("MIDI.KEYS a", Value::Array(vec![Value::bulk("a")])),
        ("MIDI.STRLEN b", Value::Integer(3)),
    ]
}

fn master() -> Ported {
    master_of(Builder::new())
}

fn master_of(builder: Builder) -> Ported {
    let master = Ported::start(builder.load("threads 2"));
    master.host().ok("MIDI.MSET a 1 b two");
    master.host().ok("MIDI.SET lasting v EX 10000");
    master.host().ok("SET native 1");
    master
}

fn replica(mode: Mode, port: u16) -> Ported {
    replica_of(mode.builder(), port)
}

fn replica_of(builder: Builder, port: u16) -> Ported {
    let replica = Ported::start(builder);
    attach(&replica.server, port);
    wait_for_link(&replica.server);
    replica
}

/// A command in EXEC: the error with which it was not queued, or its reply.
fn in_transaction(client: &mut Client, line: &str) -> Value {
    client.ok("MULTI");
    let queued = client.run(line);
    let reply = client.run("EXEC");
    if queued.is_error() { queued } else { reply.array().remove(0) }
}

fn in_script(client: &mut Client, line: &str) -> Value {
    let mut call = vec!["EVAL", "return redis.pcall(unpack(ARGV))", "0"];
    call.extend(line.split(' '));
    client.call(&call)
}

#[track_caller]
fn assert_error(reply: &Value, kind: &str, line: &str) {
    let is_such =
        matches!(reply, Value::Error(text) if String::from_utf8_lossy(text).contains(kind));
    assert!(is_such, "{line}: {reply:?}");
}

#[test]
fn a_replica_answers_reads_and_no_writes() {
    let master = master();
    for mode in Mode::tried() {
        let replica = replica(mode, master.number_of_host());
        let before = digest(&replica.server);
        let (mut host, mut port) = (replica.host(), replica.client());
        for read_only in ["yes", "no"] {
            host.ok(&format!("CONFIG SET replica-read-only {read_only}"));
            for (line, reply) in reads() {
                for client in [&mut host, &mut port] {
                    assert_eq!(client.run(line), reply, "{line}");
                    assert_eq!(in_transaction(client, line), reply, "{line}");
                }
                assert_eq!(in_script(&mut host, line), reply, "{line}");
            }
            for line in WRITES.iter().chain(&JOBS) {
                assert_error(&host.run(line), "READONLY", line);
                assert_error(&in_transaction(&mut host, line), "READONLY", line);
                assert_error(&in_script(&mut host, line), "READONLY", line);
            }
            for line in WRITES {
                assert_error(&port.run(line), "READONLY", line);
                assert_error(&in_transaction(&mut port, line), "READONLY", line);
            }
            let many: Vec<String> = (0..100_000).map(|number| format!("key:{number}")).collect();
            let delete = [&["MIDI.DEL".to_owned(), "a".to_owned()], &many[..]].concat();
            assert_error(&host.call(&delete), "READONLY", "DEL of many");
            assert_error(&port.call(&delete), "READONLY", "DEL of many");
            assert_eq!(digest(&replica.server), before);
        }
        // The host's own keys follow the host's setting.
        host.ok("SET own 1");
    }
}

/// Its next command is one of the new role already.
#[test]
fn writes_work_at_once_after_promotion() {
    let master = master();
    for mode in Mode::tried() {
        let replica = replica(mode, master.number_of_host());
        let (mut host, mut port) = (replica.host(), replica.client());
        for _ in 0..20 {
            host.ok("REPLICAOF NO ONE");
            assert_eq!(port.run("MIDI.SET k v"), Value::ok());
            assert_eq!(host.run("MIDI.SET k v"), Value::ok());
            host.ok("REPLICAOF 127.0.0.1 1");
            assert_error(&port.run("MIDI.SET k v"), "READONLY", "again a replica");
            assert_error(&host.run("MIDI.SET k v"), "READONLY", "again a replica");
        }
    }
}

/// No part of it goes on: what a full sync brings would be changed.
#[test]
fn a_job_that_writes_ends_when_the_server_becomes_a_replica() {
    for read_only in ["yes", "no"] {
        let server = Ported::start(
            Mode::Adaptive.builder().config(format!("replica-read-only {read_only}")),
        );
        let mut host = server.host();
        // The host itself unblocks its clients when its role changes.
        for (mut busy, error) in [(server.host(), "UNBLOCKED"), (server.client(), "READONLY")] {
            busy.send_line("MIDI.POPULATE 1000000000");
            wait_until("it runs", || host.integer("MIDI.DBSIZE") > 0);
            host.ok("REPLICAOF 127.0.0.1 1");
            assert_error(&busy.read(), error, "POPULATE");
            server.server.wait_until_idle();
            let left = host.integer("MIDI.DBSIZE");
            host.ok("REPLICAOF NO ONE");
            host.ok("MIDI.SET one more");
            assert_eq!(host.integer("MIDI.DBSIZE"), left + 1);
            host.ok("MIDI.FLUSHALL");
        }
    }
}

/// Only its master decides when they go.
#[test]
fn expired_keys_are_hidden_on_a_replica_until_its_master_removes_them() {
    const KEYS: i64 = 50;
    let clock = Clock::new();
    let master = master_of(clock.of(Builder::new()));
    let all = KEYS + 3;
    for is_promoted in [false, true] {
        let link = Link::to(master.number_of_host());
        let replica = replica_of(clock.of(Mode::Adaptive.builder()), link.port());
        let (mut host, mut port) = (replica.host(), replica.client());
        let keys: Vec<_> = (0..KEYS).map(|n| format!("short:{n}")).collect();
        // Less than repl-timeout: the clock jumps so far at once, below.
        let set = |key: &String| ["MIDI.SET", key, "v", "EX", "30"].map(str::to_owned).to_vec();
        master.host().pipeline(&keys.iter().map(set).collect::<Vec<_>>());
        wait_until("the replica has them", || host.integer("MIDI.DBSIZE") == all);
        link.close();
        clock.pass(30_001);
        let last = format!("MIDI.GET short:{}", KEYS - 1);
        wait_until("they expire", || host.run(&last).is_null());
        // Ten rounds of looking for expired keys, if it did.
        for _ in 0..10 {
            for number in 0..KEYS {
                assert!(host.run(&format!("MIDI.GET short:{number}")).is_null());
                assert_eq!(port.integer(&format!("MIDI.EXISTS short:{number}")), 0);
            }
            thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(host.run("MIDI.KEYS short:*"), Value::Array(vec![]));
        assert_eq!(host.integer("MIDI.DBSIZE"), all);
        if is_promoted {
            host.ok("REPLICAOF NO ONE");
        } else {
            link.open();
        }
        wait_until("they are removed", || host.integer("MIDI.DBSIZE") == 3);
        assert_eq!(digest(&replica.server), digest(&master.server));
    }
}

fn change(master: &Ported, value: &str) {
    master.client().ok(&format!("MIDI.SET a {value}"));
}

fn has(server: &Ported, value: &str) -> bool {
    let expected = Value::bulk(value);
    server.host().run("MIDI.GET a") == expected && server.client().run("MIDI.GET a") == expected
}

/// How often a replica has resynced partially.
fn partial_resyncs(replica: &Ported) -> usize {
    replica.server.log().matches("accepted a Partial Resynchronization").count()
}

#[test]
fn a_partial_resync_brings_what_was_written_meanwhile() {
    for mode in Mode::tried() {
        let master = master();
        let link = Link::to(master.number_of_host());
        let replica = replica(mode, link.port());
        assert!(has(&replica, "1"));
        link.close();
        change(&master, "newer");
        // The link is down: stale data is served, as the host's settings have it.
        assert!(has(&replica, "1"));
        link.open();
        wait_until("it follows", || has(&replica, "newer"));
        assert_eq!(partial_resyncs(&replica), 1);
        assert_eq!(digest(&replica.server), digest(&master.server));
    }
}

#[test]
fn a_restarted_replica_goes_on_from_its_file() {
    let master = master();
    let link = Link::to(master.number_of_host());
    let config = format!("replicaof 127.0.0.1 {}", link.port());
    let mut replica = Ported::start(Builder::new().load("threads 2").config(config));
    wait_for_link(&replica.server);
    replica.host().ok("SAVE");
    link.close();
    change(&master, "newer");
    replica.server.restart(redis_server());
    assert!(has(&replica, "1"), "stale");
    link.open();
    wait_until("it follows", || has(&replica, "newer"));
    assert_eq!(partial_resyncs(&replica), 1);
    assert_eq!(digest(&replica.server), digest(&master.server));
}

/// Its writes after the promotion are gone, as with the host's own keys.
#[test]
fn an_old_master_gets_the_keys_of_the_new_one() {
    let old = master();
    let new = replica(Mode::Adaptive, old.number_of_host());
    new.host().ok("REPLICAOF NO ONE");
    change(&new, "new");
    change(&old, "old");
    attach(&old.server, new.number_of_host());
    wait_until("it follows", || has(&old, "new"));
    assert_eq!(digest(&old.server), digest(&new.server));
}

/// Every door answers MASTERDOWN for midi's keys, and the host serves its own.
#[track_caller]
fn assert_does_not_follow(replica: &Ported) {
    let (mut host, mut port) = (replica.host(), replica.client());
    for (line, _) in reads() {
        for client in [&mut host, &mut port] {
            assert_error(&client.run(line), "MASTERDOWN", line);
            assert_error(&in_transaction(client, line), "MASTERDOWN", line);
        }
        assert_error(&in_script(&mut host, line), "MASTERDOWN", line);
    }
    for line in WRITES {
        assert!(host.run(line).is_error() && port.run(line).is_error(), "{line}");
    }
    assert_eq!(host.run("GET native"), Value::bulk("1"));
}

/// Has the next connection of a replica lead to a full sync.
fn forget_history(master: &Ported, link: &Link) {
    link.close();
    master.host().ok("DEBUG CHANGE-REPL-ID");
    link.open();
}

/// As if the master's midi were newer.
fn send_newer_version(link: &Link) {
    link.falsify(b"VERSION\r\n$1\r\n1", b"VERSION\r\n$1\r\n9");
}

#[test]
fn a_newer_stream_is_refused_with_one_line() {
    let refusals = |of: &Ported| of.server.log().matches("does not follow its master").count();
    let master = master();
    let link = Link::to(master.number_of_host());
    let middle = replica(Mode::Adaptive, link.port());
    let last = replica(Mode::Pool, middle.number_of_host());
    send_newer_version(&link);
    change(&master, "newer");
    wait_until("it is refused", || refusals(&middle) == 1 && refusals(&last) == 1);
    assert_does_not_follow(&middle);
    assert_does_not_follow(&last);
    link.be_honest();
    change(&master, "after");
    // Nobody gets its data from there, and it gets none itself.
    let late = Ported::start(Mode::Adaptive.builder());
    attach(&late.server, middle.number_of_host());
    wait_until("it is refused", || late.server.log().contains("NOMASTERLINK"));
    assert_does_not_follow(&middle);
    let other = Link::to(master.number_of_host());
    forget_history(&master, &other);
    attach(&middle.server, other.port());
    // Its replica has been cut off, too, and is to try again.
    attach(&last.server, master.number_of_host());
    for replica in [&middle, &last, &late] {
        wait_until("a full sync", || has(replica, "after"));
        assert_eq!(digest(&replica.server), digest(&master.server));
    }
    assert_eq!((refusals(&middle), refusals(&last)), (1, 1));
}

#[test]
fn a_replica_that_stopped_following_serves_as_a_master() {
    let master = master();
    let link = Link::to(master.number_of_host());
    let replica = replica(Mode::Adaptive, link.port());
    send_newer_version(&link);
    change(&master, "newer");
    wait_until("it is refused", || replica.server.log().contains("does not follow its master"));
    replica.host().ok("REPLICAOF NO ONE");
    assert!(has(&replica, "1"));
    change(&replica, "own");
    assert!(has(&replica, "own"));
    assert!(replica.server.log().contains("from before it stopped following"));
}
