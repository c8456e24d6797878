//! The promise: where the host's keyspace notifications or client-side caching are on, they include
//! midi's keys. The events are those of the same command without the prefix, whichever thread ran
//! the command.

use crate::common::hosts::host;
use crate::common::port::Ported;
use crate::common::{Builder, Client, Mode, Server, Value, in_all_modes, module, wait_until};

/// A subscriber to all keyspace notifications.
fn subscriber(server: &Server) -> Client {
    let mut client = server.client();
    client.send_line("PSUBSCRIBE __key*");
    client.read();
    client
}

/// The notifications so far, in order: channel and message of each.
fn told(server: &Server, subscriber: &mut Client) -> Vec<(String, String)> {
    // This message marks the end. The workers may still have some notifications to send.
    std::thread::sleep(std::time::Duration::from_millis(20));
    server.client().run("PUBLISH __key_end end");
    let mut all = Vec::new();
    loop {
        let parts = subscriber.read().array();
        let (channel, message) = (parts[2].text(), parts[3].text());
        if channel == "__key_end" {
            return all;
        }
        all.push((channel, message));
    }
}

/// Runs the lines twice, as stock and as midi's commands, and compares the notifications.
#[track_caller]
fn same_events(server: &Server, subscriber: &mut Client, lines: &[&str]) {
    let mut run = |prefix: &str| {
        let mut client = server.client();
        for line in lines {
            let own = line.starts_with("SELECT") || ["MULTI", "EXEC"].contains(line);
            let line = if own { (*line).to_owned() } else { format!("{prefix}{line}") };
            assert!(!client.run(&line).is_error(), "{line}");
        }
        told(server, subscriber)
    };
    let mut native = run("");
    let midi = run("MIDI.");
    // Valkey calls a time to live that is over at once `expired`. midi sends `del`, as Redis does.
    if host().valkey {
        for (channel, message) in &mut native {
            *channel = channel.replace(":expired", ":del");
            *message = message.replace("expired", "del");
        }
    }
    assert_eq!(native, midi, "{lines:?}");
    assert!(!native.is_empty(), "{lines:?}");
}

const EVERY_COMMAND: &[&[&str]] = &[
    &["SET k 1", "SET k 2 EX 100", "SET k 3 KEEPTTL", "SET k 4 NX", "SET new 1 XX", "SET k 5 GET"],
    &["MSET a 1 b 2 c 3"],
    &[
        "EXPIRE a 100",
        "PEXPIRE a 100000",
        "EXPIRE nosuch 100",
        "EXPIRE a 50 NX",
        "PERSIST a",
        "PERSIST a",
    ],
    &["EXPIRE b -1", "DEL b"],
    &["DEL a b c nosuch", "SET x 1", "UNLINK x nosuch", "UNLINK k", "DEL k"],
    &["SELECT 3", "SET k 1", "GET k", "DEL k", "SELECT 0"],
    &["MULTI", "SET k 1", "MSET k 2 l 3", "DEL k l", "EXEC"],
    &[
        "SETNX k 1",
        "SETNX k 2",
        "SETEX k 100 v",
        "PSETEX k 100000 v",
        "GETSET k w",
        "GETDEL k",
        "GETDEL k",
    ],
    &["SET k 1", "GETEX k", "GETEX k EX 100", "GETEX k PERSIST", "GETEX k PERSIST", "DEL k"],
    &["MSETNX m 1 n 2", "MSETNX n 3 o 4", "DEL m n"],
    &[
        "APPEND k abc",
        "APPEND k def",
        "SETRANGE k 2 xyz",
        "SETRANGE other 0 v",
        "STRLEN k",
        "DEL k other",
    ],
    &["INCR k", "DECR k", "INCRBY k 5", "DECRBY k 2", "INCRBYFLOAT k 0.5", "DEL k"],
    &[
        "SETBIT k 7 0",
        "SETBIT k 7 0",
        "SETBIT k 7 1",
        "SETBIT k 7 1",
        "SETBIT k 9 0",
        "GETBIT k 7",
        "BITCOUNT k",
    ],
    &[
        "BITFIELD k SET u8 0 1",
        "BITFIELD k GET u8 0",
        "BITFIELD k INCRBY u8 0 0",
        "BITFIELD k INCRBY u8 0 5",
    ],
    &[
        "SET k a",
        "BITFIELD k OVERFLOW FAIL INCRBY u2 0 9 SET i4 40 9",
        "BITFIELD k SET u8 0 1 SET u8 0 2",
        "DEL k",
    ],
    &[
        "SET k a",
        "BITOP NOT l k",
        "BITOP AND l k nosuch",
        "BITOP OR l nosuch",
        "BITOP OR l nosuch",
        "DEL k",
    ],
    &["SET k 1", "EXPIREAT k 4102444800", "PEXPIREAT k 4102444800000", "TOUCH k", "DEL k"],
    &["SET k 1 EX 100", "SET l 2", "RENAME k l", "RENAMENX l m", "RENAME m m", "DEL m"],
    &[
        "SET k 1",
        "COPY k l",
        "COPY k l",
        "COPY k l REPLACE",
        "COPY k l DB 2",
        "DEL k l",
        "SELECT 2",
        "DEL l",
    ],
    &["SET k 1", "MOVE k 3", "SET k 2", "DEL k", "SELECT 3", "DEL k"],
    &["HSET h a 1 b 2", "HSET h a 1", "HMSET h c 3", "HSETNX h a 2", "HSETNX h d 4", "HGETALL h"],
    &["HINCRBY h n 1", "HINCRBY h n 0", "HINCRBYFLOAT h f 1.5", "HDEL h nosuch", "HDEL h a b c"],
    &["HDEL h d n f nosuch", "HSET h a 1", "HDEL h a a", "HDEL h a", "HSET h a 1", "SET h text"],
    &["DEL h", "HSET h a 1", "RENAME h i", "COPY i h", "MOVE i 3", "EXPIRE h 100", "DEL h"],
    &["SELECT 3", "DEL i"],
];

/// Times in the past.
const TOO_LATE: &[&str] =
    &["SET k 1", "EXPIREAT k 1", "SET k 1", "PEXPIREAT k 1", "SET k 1", "GETEX k EXAT 1"];

#[test]
fn events_are_those_of_the_host() {
    in_all_modes(|_, server| {
        server.client().ok("CONFIG SET notify-keyspace-events KEA");
        let mut listener = subscriber(server);
        for lines in EVERY_COMMAND {
            same_events(server, &mut listener, lines);
        }
        same_events(server, &mut listener, TOO_LATE);
        restored_keys(server, &mut listener);
        server.client().ok("CONFIG SET notify-keyspace-events Kg");
        same_events(server, &mut listener, &["SET k 1", "EXPIRE k 100", "DEL k"]);
        let mut client = server.client();
        assert_eq!(client.call(&["CONFIG", "SET", "notify-keyspace-events", ""]), Value::ok());
        client.ok("MIDI.SET k 1");
        assert_eq!(told(server, &mut listener), []);
    });
}

/// RESTORE takes binary data, which a line of words cannot hold.
fn restored_keys(server: &Server, listener: &mut Client) {
    let mut client = server.client();
    client.ok("SET k value");
    let payload = client.run("DUMP k").bytes().to_vec();
    told(server, listener);
    for name in ["RESTORE", "MIDI.RESTORE"] {
        for ttl in [&["100000"][..], &["1", "ABSTTL"]] {
            let mut args: Vec<&[u8]> =
                vec![name.as_bytes(), b"k", ttl[0].as_bytes(), &payload, b"REPLACE"];
            args.extend(ttl[1..].iter().map(|word| word.as_bytes()));
            assert_eq!(client.call(&args), Value::ok());
        }
        let events: Vec<String> =
            told(server, listener).into_iter().map(|(_, message)| message).collect();
        assert_eq!(events, ["restore", "k", "del", "k"], "{name}");
    }
}

/// Keys that expire, found by a reader or by midi's own search.
#[test]
fn expired_keys() {
    in_all_modes(|mode, server| {
        let mut client = server.client();
        client.ok("CONFIG SET notify-keyspace-events Ex");
        let mut listener = subscriber(server);
        client.ok("MIDI.SET read 1 PX 10");
        client.ok("MIDI.SET read2 1 PX 10");
        std::thread::sleep(std::time::Duration::from_millis(15));
        client.run("MIDI.GET read");
        client.run("MIDI.MGET read2 read");
        client.ok("MIDI.SET left 1 PX 10");
        let mut events = Vec::new();
        wait_until("the search has found the last", || {
            events.extend(told(server, &mut listener));
            events.len() >= 3
        });
        events.extend(told(server, &mut listener));
        events.sort();
        let expired = |key: &str| ("__keyevent@0__:expired".to_owned(), key.to_owned());
        assert_eq!(events, ["left", "read", "read2"].map(expired), "{mode:?}");
    });
}

/// Notifications of jobs and copies that change single keys.
#[test]
fn jobs_and_copies() {
    in_all_modes(|mode, server| {
        let mut client = server.client();
        client.ok("MIDI.POPULATE 1500 p");
        client.ok("CONFIG SET notify-keyspace-events KA");
        let mut listener = subscriber(server);
        let mut del = vec!["MIDI.DEL".to_owned()];
        del.extend((0..1500).map(|number| format!("p:{number}")));
        assert_eq!(client.call(&del), Value::Integer(1500));
        let mut events = told(server, &mut listener);
        events.sort();
        events.dedup();
        assert_eq!(events.len(), 1500, "{mode:?}");
        assert!(events.iter().all(|(_, event)| event == "del"));
        client.ok("SET native 1");
        told(server, &mut listener);
        assert_eq!(client.run("MIDI.IMPORT native"), Value::integers(&[1, 0, 0]));
        assert_eq!(told(server, &mut listener), [("__keyspace@0__:native".into(), "set".into())]);
    });
}

/// Each change in a pipeline is notified once, in the order of the key's changes.
#[test]
fn order_and_number() {
    in_all_modes(|mode, server| {
        server.client().ok("CONFIG SET notify-keyspace-events KA");
        let mut listener = subscriber(server);
        crate::common::at_once(5, |number| {
            let mut client = server.client();
            for _ in 0..100 {
                let lines = [format!("MIDI.SET k{number} 1"), format!("MIDI.EXPIRE k{number} 100")];
                let mut commands: Vec<Vec<String>> =
                    lines.iter().map(|line| line.split(' ').map(str::to_owned).collect()).collect();
                commands.push(vec!["MIDI.DEL".into(), format!("k{number}")]);
                client.pipeline(&commands);
            }
        });
        let events = told(server, &mut listener);
        for number in 0..5 {
            let channel = format!("__keyspace@0__:k{number}");
            let own: Vec<&str> = events
                .iter()
                .filter(|(of, _)| *of == channel)
                .map(|(_, event)| event.as_str())
                .collect();
            assert_eq!(own, ["set", "expire", "del"].repeat(100), "{mode:?}");
        }
    });
}

/// The keys of the invalidations that a tracking client has received before the reply to `PING`.
#[track_caller]
fn invalidated(client: &mut Client) -> Vec<String> {
    std::thread::sleep(std::time::Duration::from_millis(20));
    client.send_line("PING");
    let mut keys = Vec::new();
    loop {
        match client.read() {
            Value::Push(parts) => {
                assert_eq!(parts[0], Value::bulk("invalidate"));
                keys.extend(parts[1].clone().array().iter().map(Value::text));
            }
            other => {
                assert_eq!(other, Value::Simple(b"PONG".to_vec()));
                keys.sort();
                return keys;
            }
        }
    }
}

fn check_tracking(mode: Mode, server: &Server) {
    let mut other = server.client();
    other.ok("MIDI.MSET k 1 l 1 m 1");
    let mut client = server.client().resp3();
    client.ok("CLIENT TRACKING ON");
    let changes = [
        "MIDI.SET k 2",
        "MIDI.MSET k 3 x 1",
        "MIDI.EXPIRE k 100",
        "MIDI.PERSIST k",
        "MIDI.DEL k",
        "MIDI.SET k 1 EX 100",
    ];
    for change in changes {
        client.run("MIDI.GET k");
        client.run("MIDI.MGET l m");
        assert!(invalidated(&mut client).is_empty());
        assert!(!other.run(change).is_error());
        assert_eq!(invalidated(&mut client), ["k"], "{mode:?}: {change}");
        assert!(!other.run(change).is_error());
        assert!(invalidated(&mut client).is_empty(), "{mode:?}: {change} again");
    }
    // A key that expires, found by midi's own search.
    other.ok("MIDI.SET k 1 PX 1500");
    client.run("MIDI.GET k");
    wait_until("its expiry is told", || invalidated(&mut client) == ["k"]);
    // In a transaction, after some time without a tracking client.
    client.ok("CLIENT TRACKING OFF");
    std::thread::sleep(std::time::Duration::from_millis(300));
    client.ok("MULTI");
    client.run("CLIENT TRACKING ON BCAST PREFIX l");
    std::thread::sleep(std::time::Duration::from_millis(300));
    client.run("EXEC");
    other.ok("MIDI.MSET k 5 l 5");
    assert_eq!(invalidated(&mut client), ["l"], "{mode:?}: broadcast");
}

#[test]
fn client_side_caching() {
    in_all_modes(check_tracking);
}

#[test]
fn a_client_that_tracks_already_when_midi_is_loaded() {
    let server = Builder::plain().config("enable-module-command yes").start();
    let (mut client, mut other) = (server.client().resp3(), server.client());
    client.ok("CLIENT TRACKING ON");
    other.ok(&format!("MODULE LOAD {}", module().display()));
    client.run("MIDI.GET k");
    other.ok("MIDI.SET k 1");
    assert_eq!(invalidated(&mut client), ["k"]);
}

/// Two caching clients are notified, step by step, when the first and a third make changes.
fn heard(server: &Server, options: &str, prefix: &str) -> Vec<[Vec<String>; 2]> {
    let (mut first, mut second) = (server.client().resp3(), server.client().resp3());
    let mut third = server.client();
    third.ok(&format!("{prefix}MSET k 1 l 1 m 1"));
    // No client is notified of earlier changes.
    invalidated(&mut third);
    for client in [&mut first, &mut second] {
        client.ok(&format!("CLIENT TRACKING ON {options}"));
    }
    let steps = [
        "SET k 2",
        "third SET k 3",
        "SET k 4",
        "MSET k 5 l 5",
        "APPEND m x",
        "MULTI",
        "SET l 6",
        "EXEC",
        "third DEL m",
        "DEL k l m",
    ];
    let mut told = Vec::new();
    for step in steps {
        for client in [&mut first, &mut second] {
            if !options.contains("BCAST") && !["SET l 6", "EXEC"].contains(&step) {
                client.run(&format!("{prefix}MGET k l m"));
            }
        }
        let prefix = if ["MULTI", "EXEC"].contains(&step) { "" } else { prefix };
        let (client, line) = match step.strip_prefix("third ") {
            Some(line) => (&mut third, line),
            None => (&mut first, step),
        };
        let reply = client.run(&format!("{prefix}{line}"));
        assert!(!reply.is_error(), "{line}: {reply:?}");
        let queued = reply == Value::Simple(b"QUEUED".to_vec()) || step == "MULTI";
        told.push([
            if queued { Vec::new() } else { invalidated(&mut first) },
            invalidated(&mut second),
        ]);
    }
    told
}

/// NOLOOP: a client is notified of others' changes and not of its own, as for the host's keys.
#[test]
fn own_changes_are_no_news_to_who_wants_none() {
    in_all_modes(|mode, server| {
        for options in ["BCAST NOLOOP", "BCAST", "NOLOOP"] {
            // Without BCAST a host attributes a worker's changes to no client.
            if mode == Mode::Pool && options == "NOLOOP" {
                continue;
            }
            let native = heard(server, options, "");
            assert_eq!(heard(server, options, "MIDI."), native, "{mode:?}: {options}");
        }
    });
}

/// Names that are in midi's database 0 before a flush.
const FLUSHED: [&str; 4] = ["k", "key:17", "key:4999", "l"];

/// Creates them among many others, and one key in database 3.
fn fill(host: &mut Client) {
    host.ok("MIDI.MSET k 1 l 1");
    host.ok("MIDI.POPULATE 5000");
    host.ok("SELECT 3");
    host.ok("MIDI.SET elsewhere 1");
    host.ok("SELECT 0");
}

/// A client's cache is notified of the keys that are gone, and of none of the host's own keys.
fn check_flush(mode: Mode, ported: &Ported) {
    let (mut host, mut port) = (ported.host(), ported.client());
    host.ok("SET native 1");
    let (mut client, mut broadcast) = (ported.host().resp3(), ported.host().resp3());
    client.ok("CLIENT TRACKING ON");
    broadcast.ok("CLIENT TRACKING ON BCAST PREFIX l PREFIX native");
    let mut check = |what: &str, flush: &mut dyn FnMut(&mut Client), all: bool| {
        fill(&mut host);
        // Reads the notifications that remain from the last flush.
        invalidated(&mut client);
        invalidated(&mut broadcast);
        client.run("GET native");
        client.run("MIDI.MGET k l native key:17 key:4999");
        client.ok("SELECT 3");
        client.run("MIDI.GET elsewhere");
        client.ok("SELECT 0");
        assert_eq!(invalidated(&mut client), [""; 0], "{mode:?}: before {what}");
        flush(&mut host);
        let expected = if all { &["elsewhere"][..] } else { &[] }.iter().chain(&FLUSHED);
        let expected: Vec<String> = expected.map(|&name| name.into()).collect();
        let mut told = Vec::new();
        wait_until("all have been told", || {
            told.append(&mut invalidated(&mut client));
            told.len() >= expected.len()
        });
        told.sort();
        assert_eq!(told, expected, "{mode:?}: {what}");
        assert_eq!(invalidated(&mut broadcast), ["l"], "{mode:?}: {what}, broadcast");
    };
    for flush in ["MIDI.FLUSHDB", "MIDI.FLUSHDB ASYNC", "MIDI.FLUSHALL SYNC", "MIDI.FLUSHALL ASYNC"]
    {
        check(flush, &mut |host| host.ok(flush), flush.contains("ALL"));
    }
    check("FLUSHALL on the port", &mut |_| port.ok("FLUSHALL"), true);
    let transaction = |client: &mut Client, flush: &str| {
        client.ok("MULTI");
        client.run(flush);
        assert_eq!(client.run("EXEC"), Value::Array(vec![Value::ok()]));
    };
    check("MULTI", &mut |host| transaction(host, "MIDI.FLUSHDB"), false);
    check("MULTI on the port", &mut |_| transaction(&mut ported.client(), "FLUSHDB"), false);
    check(
        "a script",
        &mut |host| _ = host.call(&["EVAL", "redis.call('MIDI.FLUSHALL')", "0"]),
        true,
    );
}

#[test]
fn flushes_reach_caches() {
    for mode in Mode::tried() {
        check_flush(mode, &Ported::start(mode.builder()));
    }
}

/// The host's own flush is notified as always: all keys are gone. Neither the host nor midi
/// notifies clients of SWAPDB.
#[test]
fn the_hosts_flush_and_exchanges() {
    in_all_modes(|mode, server| {
        let (mut host, mut client) = (server.client(), server.client().resp3());
        client.ok("CLIENT TRACKING ON");
        fill(&mut host);
        client.run("MIDI.GET k");
        host.ok("FLUSHALL");
        assert_eq!(client.read(), Value::Push(vec![Value::bulk("invalidate"), Value::Null]));
        assert_eq!(invalidated(&mut client), [""; 0], "{mode:?}");
        for prefix in ["", "MIDI."] {
            host.ok(&format!("{prefix}SET of{prefix} 1"));
            client.run(&format!("{prefix}GET of{prefix}"));
            host.ok(&format!("{prefix}SWAPDB 0 1"));
            assert_eq!(invalidated(&mut client), [""; 0], "{mode:?}");
        }
    });
}

/// Notifications do not change how WATCH works.
#[test]
fn watch_beside_listeners() {
    in_all_modes(|mode, server| {
        let (mut client, mut other) = (server.client(), server.client());
        server.client().resp3().ok("CLIENT TRACKING ON");
        let mut tracker = server.client().resp3();
        tracker.ok("CLIENT TRACKING ON");
        client.ok("CONFIG SET notify-keyspace-events KEA");
        for round in 0..200 {
            other.ok(&format!("MIDI.SET k {round}"));
            client.ok("WATCH k");
            client.ok("MULTI");
            client.run("MIDI.GET k");
            assert_eq!(
                client.run("EXEC"),
                Value::Array(vec![Value::bulk(round.to_string())]),
                "{mode:?}"
            );
        }
        client.ok("WATCH k");
        other.ok("MIDI.SET k 1");
        client.ok("MULTI");
        assert!(client.run("EXEC").is_null());
    });
}
