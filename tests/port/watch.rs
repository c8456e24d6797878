//! The promise: after WATCH, EXEC runs nothing if a watched key has changed, whoever changed it and
//! however, and runs everything if none has. Clients that are gone or no longer watch cost others
//! nothing, and beyond the bound the stalest name counts as changed.

use super::transactions::exec;
use crate::common::clock::Clock;
use crate::common::port::Ported;
use crate::common::{Client, Mode, Value, wait_until};

/// Whether a transaction runs if `change` is made after WATCH of `key`.
#[track_caller]
fn survives(
    ported: &Ported,
    before: &[&str],
    key: &str,
    change: impl FnOnce(&mut Client, &mut Client),
) -> bool {
    let (mut client, mut port, mut host) = (ported.client(), ported.client(), ported.host());
    host.run("FLUSHALL");
    for line in before {
        assert!(!port.run(line).is_error(), "{line}");
    }
    client.ok(&format!("WATCH {key}"));
    change(&mut port, &mut host);
    match exec(&mut client, &["SET done 1"]) {
        Value::Array(replies) => {
            assert_eq!(replies, [Value::ok()]);
            true
        }
        reply => {
            assert_eq!(reply, Value::NullArray);
            false
        }
    }
}

const SET_UP: [&str; 6] = [
    "MSET k 1 a 1 b 1",
    "SET t 1 EX 1000",
    "HSET h f 1",
    "SELECT 1",
    "MSET k other a other",
    "SELECT 0",
];

#[test]
fn every_kind_of_change_is_seen() {
    let changes: &[(&str, &[&str])] = &[
        ("k", &["SET k 2"]),
        ("k", &["SET k 1"]),
        ("new", &["SET new 1 NX"]),
        ("k", &["MSET a 2 k 2 b 2"]),
        ("new", &["MSETNX x 1 new 1"]),
        ("k", &["DEL k"]),
        ("k", &["UNLINK a k"]),
        ("k", &["EXPIRE k 100"]),
        ("k", &["PEXPIRE k -1"]),
        ("t", &["PERSIST t"]),
        ("t", &["GETEX t PERSIST"]),
        ("k", &["GETDEL k"]),
        ("k", &["INCR k"]),
        ("k", &["APPEND k x"]),
        // A write that found nothing to change is one, too, as on the host.
        ("h", &["HSETEX h PXAT 1 FIELDS 1 absent x"]),
        ("absent", &["HSETEX absent PXAT 1 FIELDS 1 f x"]),
        ("k", &["RENAME k z"]),
        ("z", &["RENAME k z"]),
        ("z", &["COPY k z"]),
        ("h", &["HSET h f 1"]),
        ("h", &["HSET h f 2"]),
        ("h", &["HSET h f 2 g 3"]),
        ("h", &["HINCRBY h f 0"]),
        ("h", &["HINCRBYFLOAT h f 1"]),
        ("h", &["HSETNX h g 1"]),
        ("h", &["HDEL h f"]),
        ("h", &["HGETDEL h FIELDS 2 g f"]),
        ("new", &["HSET new f 1"]),
        ("h", &["SET h 1"]),
        ("z", &["SELECT 1", "COPY k z DB 0"]),
        ("k", &["MOVE b 2", "MOVE k 2"]),
        ("k", &["FLUSHDB"]),
        ("k", &["FLUSHALL"]),
        ("k", &["SWAPDB 0 1"]),
        ("t", &["SWAPDB 1 0"]),
        ("n:7", &["POPULATE 100 n"]),
        ("k", &["MULTI", "SET k 3", "EXEC"]),
        ("k", &["MULTI", "DBSIZE", "SET k 3", "EXEC"]),
        ("none a k", &["SET k 4"]),
    ];
    for mode in Mode::tried() {
        // A name that the host has watched once is remembered.
        let [ported, marked] = [mode.builder(), mode.builder()].map(Ported::start);
        for &(key, lines) in changes {
            let run = |client: &mut Client, prefix: &str| {
                for line in lines {
                    let own = ["SELECT", "MULTI", "EXEC"].iter().any(|word| line.starts_with(word));
                    let line = if own { (*line).to_owned() } else { format!("{prefix}{line}") };
                    assert!(!client.run(&line).is_error(), "{line}");
                }
            };
            assert!(
                !survives(&ported, &SET_UP, key, |port, _| run(port, "")),
                "{mode:?} {key} {lines:?}"
            );
            assert!(
                !survives(&ported, &SET_UP, key, |_, host| run(host, "MIDI.")),
                "{mode:?} {key} {lines:?}"
            );
            // Watched by the host, too: the change is made through the main thread.
            let by_both = survives(&marked, &SET_UP, key, |port, host| {
                assert!(!host.run(&format!("WATCH {key}")).is_error());
                run(port, "");
                assert!(
                    exec(host, &["PING"]).is_null(),
                    "{mode:?} {key} {lines:?}: the host's client"
                );
            });
            assert!(!by_both, "{mode:?} {key} {lines:?}");
        }
        // The host's own FLUSHALL and SWAPDB also change midi's keys, and so does a script.
        for line in ["FLUSHALL", "SWAPDB 0 1", "EVAL redis.call('MIDI.SET','k',1) 0"] {
            assert!(
                !survives(&ported, &SET_UP, "k", |_, host| drop(host.run(line))),
                "{mode:?} {line}"
            );
        }
    }
}

#[test]
fn commands_that_change_no_watched_key_do_not_fail_exec() {
    let harmless: &[(&str, &[&str])] = &[
        ("k", &["GET k", "MGET k a", "SET a 2", "MSET a 2 b 2", "DEL a b none", "INCR b"]),
        ("k", &["SELECT 1", "SET k 2", "DEL k"]),
        ("none", &["FLUSHALL"]),
        ("none", &["DEL none", "EXPIRE none 10", "PERSIST none", "SWAPDB 0 1"]),
        ("k", &["PERSIST k", "SET k 9 NX", "MSETNX new 1 k 1"]),
        ("n:1000", &["POPULATE 100 n"]),
    ];
    for mode in Mode::tried() {
        let ported = Ported::start(mode.builder());
        for &(key, lines) in harmless {
            let run = |port: &mut Client| {
                lines.iter().for_each(|line| assert!(!port.run(line).is_error(), "{line}"))
            };
            assert!(
                survives(&ported, &SET_UP, key, |port, _| run(port)),
                "{mode:?} {key} {lines:?}"
            );
        }
    }
}

#[test]
fn large_deletions_are_seen() {
    for mode in Mode::tried() {
        let ported = Ported::start(mode.builder());
        let del = (0..3000).map(|number| format!("p:{number}")).collect::<Vec<_>>().join(" ");
        for line in [format!("DEL {del}"), format!("UNLINK {del}")] {
            let change = |port: &mut Client, _: &mut Client| assert_eq!(port.integer(&line), 2000);
            assert!(!survives(&ported, &["POPULATE 2000 p"], "p:1234", change), "{mode:?}");
            let change = |port: &mut Client, _: &mut Client| assert_eq!(port.integer(&line), 2000);
            assert!(survives(&ported, &["POPULATE 2000 p"], "p:2500", change), "{mode:?}");
        }
    }
}

#[test]
fn expiry_is_judged_as_by_redis() {
    for mode in Mode::tried() {
        let clock = Clock::new();
        let ported = Ported::start(clock.of(mode.builder()));
        let before = ["SET e 1 PX 60000"];
        let expire = || clock.pass(60_001);
        assert!(!survives(&ported, &before, "e", |_, _| expire()), "{mode:?}: it has expired");
        let removed = |port: &mut Client, _: &mut Client| {
            expire();
            wait_until("it is taken out", || port.integer("DBSIZE") == 0);
        };
        assert!(!survives(&ported, &before, "e", removed), "{mode:?}: and was taken out");
        let read = |port: &mut Client, _: &mut Client| {
            expire();
            assert!(port.run("GET e").is_null());
        };
        assert!(!survives(&ported, &before, "e", read), "{mode:?}: and somebody has met it");
        assert!(survives(&ported, &before, "e", |_, _| clock.pass(5)), "{mode:?}: it has not");
        // The key expired before WATCH: nothing more happens to it.
        let mut client = ported.client();
        client.ok(before[0]);
        expire();
        let before = client.integer("DBSIZE");
        client.ok("WATCH e");
        assert!(client.integer("DBSIZE") <= before);
        let mut other = ported.client();
        assert_eq!(other.integer("EXISTS e"), 0);
        other.ok("FLUSHDB");
        assert!(!exec(&mut client, &["PING"]).is_null(), "{mode:?}: it had expired before");
        assert_eq!(client.integer("DBSIZE"), 0, "{mode:?}: the books are right");
    }
}

#[test]
fn watching_ends_when_it_should() {
    let ported = Ported::start(Mode::Adaptive.builder());
    let (mut client, mut other) = (ported.client(), ported.client());
    let mut change = || other.ok("SET k 1");
    for (lines, lost) in [
        (&["WATCH k", "UNWATCH", "!"][..], false),
        (&["WATCH k", "!", "UNWATCH"], false),
        (&["WATCH k", "MULTI", "DISCARD", "!"], false),
        (&["WATCH k", "MULTI", "PING", "EXEC", "!"], false),
        (&["WATCH k", "!", "MULTI", "PING", "EXEC"], false),
        (&["WATCH k", "!", "MULTI", "EXEC 1"], false),
        (&["WATCH k", "RESET", "!"], false),
        (&["WATCH k", "WATCH k", "!"], true),
        (&["WATCH k", "!", "WATCH a"], true),
        (&["WATCH k", "SELECT 1", "!"], true),
        (&["SELECT 1", "WATCH k", "SELECT 0", "!"], false),
    ] {
        client.run("RESET");
        for line in lines {
            if *line == "!" { change() } else { drop(client.run(line)) }
        }
        assert_eq!(exec(&mut client, &["PING"]).is_null(), lost, "{lines:?}");
    }
}

/// Watches `count` keys of that name, in one command.
fn watch_many(client: &mut Client, name: &str, count: usize) {
    let mut command = vec!["WATCH".to_owned()];
    command.extend((0..count).map(|number| format!("{name}:{number}")));
    assert_eq!(client.call(&command), Value::ok());
}

#[test]
fn those_who_are_gone_take_nobody_s_place() {
    let ported = Ported::start(Mode::Adaptive.builder().load("shards 1"));
    let (mut client, mut other) = (ported.client(), ported.client());
    client.ok("WATCH mine");
    // More names than are remembered, of connections that have gone or no longer watch.
    for round in 0..10 {
        watch_many(&mut other, &format!("u{round}"), 9000);
        other.ok("UNWATCH");
        watch_many(&mut ported.client(), &format!("g{round}"), 9000);
    }
    for _ in 0..1000 {
        other.ok("WATCH often");
        other.ok("UNWATCH");
    }
    assert!(!exec(&mut client, &["PING"]).is_null(), "it was given up");
}

#[test]
fn the_stalest_is_given_up_as_changed() {
    let ported = Ported::start(Mode::Adaptive.builder().load("shards 1"));
    let mut clients: Vec<Client> = (0..8).map(|_| ported.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        watch_many(client, &format!("k{number}"), 9000);
    }
    // 72,000 are more than 65,536.
    assert!(exec(&mut clients[0], &["PING"]).is_null(), "the first is not remembered");
    assert!(!exec(&mut clients[7], &["PING"]).is_null(), "the last is");
}
