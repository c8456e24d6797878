//! The promise: a planned failover takes back nothing that a client has read. Also if it is queued
//! in a transaction, or made by hand behind CLIENT PAUSE; and who may not pause clients cannot use
//! that against others.
//!
//! Environment: `MIDI_FAILOVERS` (how many of each kind).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::replicas::{Pair, builder, failovers, wait_for_link, wait_for_role};
use crate::common::{Client, Door, Mode, Server, StopAtEnd, Value, encoded, wait_until, words};

const WRITERS: usize = 4;

/// The clients' knowledge of each writer's key, which has greater numbers all the time.
#[derive(Default)]
struct Known {
    read: [AtomicU64; WRITERS],
    acknowledged: [AtomicU64; WRITERS],
}

/// Sends numbers in pipelines, until it is refused one.
fn write(mut client: Client, writer: usize, first: u64, known: &Known) {
    for number in (first..).step_by(20) {
        let lines = (number..number + 20).map(|number| format!("SET key:{writer} {number}"));
        let bytes: Vec<u8> = lines.map(|line| encoded(&words(&line))).collect::<Vec<_>>().concat();
        if client.try_send(&bytes).is_err() {
            return;
        }
        for number in number..number + 20 {
            match client.try_read() {
                Ok(reply) if reply == Value::ok() => {
                    known.acknowledged[writer].store(number, Ordering::Relaxed);
                }
                _ => return,
            }
        }
    }
}

/// Reads all keys, until it is told to stop.
fn read(mut client: Client, known: &Known, stop: &AtomicBool) {
    let line = (0..WRITERS).fold("MGET".to_owned(), |line, writer| format!("{line} key:{writer}"));
    while !stop.load(Ordering::Relaxed) {
        let Ok(reply) = client.try_call(&words(&line)) else { return };
        if reply.is_error() {
            return;
        }
        for (value, seen) in reply.array().into_iter().zip(&known.read) {
            if !value.is_null() {
                seen.fetch_max(value.text().parse().expect("a number"), Ordering::Relaxed);
            }
        }
    }
}

/// Makes the replica the master.
fn switch(pair: &Pair, way: &str) {
    let mut client = pair.master().client();
    match way {
        "FAILOVER" => client.ok("FAILOVER"),
        "EXEC" => {
            client.ok("MULTI");
            assert_eq!(client.run("FAILOVER").text(), "QUEUED");
            assert_eq!(client.run("EXEC"), Value::Array(vec![Value::ok()]));
        }
        _ => {
            client.ok("CLIENT PAUSE 100000 WRITE");
            let offset =
                |server: &Server| server.client().info("replication").remove("master_repl_offset");
            wait_until("it has followed", || offset(pair.master()) == offset(pair.replica()));
            pair.replica().client().ok("REPLICAOF NO ONE");
            client.ok(&format!("REPLICAOF 127.0.0.1 {}", pair.replica().port()));
            client.ok("CLIENT UNPAUSE");
        }
    }
    wait_for_role(pair.replica(), true);
    wait_for_role(pair.master(), false);
    pair.exchange();
}

/// Writers and readers on the port of a master that is about to be one no more.
fn round(pair: &Pair, way: &str, first: u64) {
    let (known, stop) = (Known::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (known, stop) = (&known, &stop);
        let _stop = StopAtEnd(stop);
        for writer in 0..WRITERS {
            let client = pair.master().midi_client();
            scope.spawn(move || write(client, writer, first, known));
        }
        for _ in 0..3 {
            let client = pair.master().midi_client();
            scope.spawn(move || read(client, known, stop));
        }
        wait_until("all write", || {
            known.acknowledged.iter().all(|it| it.load(Ordering::Relaxed) > first + 200)
        });
        switch(pair, way);
    });
    let mut client = pair.master().midi_client();
    for writer in 0..WRITERS {
        let found: u64 = client.run(&format!("GET key:{writer}")).text().parse().expect("a number");
        let [read, acknowledged] =
            [&known.read, &known.acknowledged].map(|it| it[writer].load(Ordering::Relaxed));
        assert!(found >= read, "{way}: {read} was read, the new master has {found}");
        assert!(found >= acknowledged, "{way}: {acknowledged} was acknowledged, not {found}");
    }
    wait_for_link(pair.replica());
    pair.must_become_equal(way);
}

#[test]
fn a_failover_takes_back_nothing_that_was_read() {
    let pair = Pair::start(&builder(Mode::Adaptive));
    for number in 0..failovers(3) as u64 {
        for (at, way) in ["FAILOVER", "EXEC", "CLIENT PAUSE"].into_iter().enumerate() {
            round(&pair, way, (number * 3 + at as u64) * 1_000_000);
        }
    }
}

/// A transaction's changes beside FAILOVER are its last word.
#[test]
fn a_transaction_with_a_failover_is_whole() {
    let pair = Pair::start(&builder(Mode::Adaptive));
    let mut client = pair.master().client();
    client.ok("MULTI");
    for line in ["MIDI.SET x 1", "FAILOVER", "MIDI.SET y 2", "SET z 3", "MIDI.INCR x"] {
        assert_eq!(client.run(line).text(), "QUEUED");
    }
    let ok = Value::ok;
    assert_eq!(client.run("EXEC"), Value::Array(vec![ok(), ok(), ok(), ok(), Value::Integer(2)]));
    wait_for_role(pair.replica(), true);
    pair.exchange();
    wait_for_link(pair.replica());
    pair.must_become_equal("after it");
    let mut client = pair.master().client();
    assert_eq!(client.run("MIDI.MGET x y").array(), ["2", "2"].map(Value::bulk));
    assert_eq!(client.run("GET z"), Value::bulk("3"));
}

/// As the host's own commands: what follows REPLICAOF in an EXEC runs, and nothing after it.
#[test]
fn a_transaction_with_replicaof_goes_on() {
    for config in ["appendonly yes", "replica-read-only no", "replica-read-only yes"] {
        let server = builder(Mode::Adaptive).config(config).start();
        let mut client = server.client();
        client.ok("MULTI");
        let lines = ["MIDI.SET a 1", "REPLICAOF 127.0.0.1 1", "MIDI.SET b 2", "SET c 3"];
        for line in lines.into_iter().chain(["MIDI.MSET d 4 e 5", "MIDI.DEL a"]) {
            assert_eq!(client.run(line).text(), "QUEUED");
        }
        let ok = Value::ok;
        let expected = vec![ok(), ok(), ok(), ok(), ok(), Value::Integer(1)];
        assert_eq!(client.run("EXEC"), Value::Array(expected), "{config}");
        for door in [Door::Host, Door::Port] {
            let mut client = door.client(&server);
            let refused = client.call(&door.named(&["SET", "b", "3"]));
            assert!(refused.text().starts_with("READONLY"), "{config}, {door:?}: {refused:?}");
            let found = client.call(&door.named(&["MGET", "a", "b", "e"]));
            assert_eq!(found.array(), [Value::NullBulk, Value::bulk("2"), Value::bulk("5")]);
        }
        client.ok("REPLICAOF NO ONE");
        client.ok("MIDI.SET b 4");
        server.midi_client().ok("SET b 5");
    }
}

/// Anybody can send what is refused: a writer goes on beside that.
#[test]
fn strangers_cannot_stop_writers() {
    let builder = builder(Mode::Adaptive).config("appendonly yes").config("appendfsync no");
    let server = builder.start();
    server.client().ok("CONFIG SET requirepass secret");
    let stop = AtomicBool::new(false);
    let connect = |port: u16| Client::connect(port).expect("a connection");
    std::thread::scope(|scope| {
        let stop = &stop;
        let _stop = StopAtEnd(stop);
        // The host ends the connection of a stranger to whom it would have to send more.
        for at_once in [1, 1, 6, 6] {
            let mut stranger = connect(server.port());
            scope.spawn(move || {
                let lines = ["FAILOVER", "CLIENT PAUSE 1000 WRITE", "EXEC", "SHUTDOWN"];
                let some: Vec<u8> =
                    lines.iter().map(|line| encoded(&words(line))).collect::<Vec<_>>().concat();
                let all = some.repeat(at_once);
                while !stop.load(Ordering::Relaxed) {
                    stranger.send(&all);
                    (0..at_once * lines.len()).for_each(|_| assert!(stranger.read().is_error()));
                }
            });
        }
        for door in [Door::Port, Door::Host] {
            let port = if door == Door::Port { server.midi_port() } else { server.port() };
            let mut writer = connect(port);
            writer.ok("AUTH secret");
            let name = format!("{door:?}");
            for number in 1..=500 {
                let reply = writer.call(&door.named(&["INCR", &name]));
                assert_eq!(reply, Value::Integer(number));
            }
        }
    });
    let mut client = connect(server.port());
    client.ok("AUTH secret");
    wait_until("workers write again", || client.info("midi_persistence")["midi_mode"] == "logged");
}

/// Clients that wait for the end of a pause are answered then; readers do not wait.
#[test]
fn a_pause_holds_up_writers_only() {
    let server = builder(Mode::Pool).config("appendonly yes").start();
    let (mut writer, mut reader) = (server.midi_client(), server.midi_client());
    let mut client = server.client();
    reader.ok("SET a 1");
    client.ok("CLIENT PAUSE 100000 WRITE");
    writer.send_line("MULTI");
    for line in ["SET a 2", "INCR a", "EXEC", "INCR a"] {
        writer.send_line(line);
    }
    wait_until("workers are paused", || client.info("midi_persistence")["midi_mode"] == "paused");
    for _ in 0..100 {
        assert_eq!(reader.run("GET a"), Value::bulk("1"));
    }
    client.ok("CLIENT UNPAUSE");
    let replies: Vec<Value> = (0..5).map(|_| writer.read()).collect();
    assert_eq!(replies[3], Value::Array(vec![Value::ok(), Value::Integer(3)]));
    assert_eq!(replies[4], Value::Integer(4));
}
