//! The promise: the base of an AOF is an RDB, and has midi's keys. Writes that were acknowledged
//! before the AOF was on are in it; later ones stand behind it. `aof_text_base` has the promise for
//! bases that are no RDB.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::persistence::{contents, fill};
use crate::common::aof::{survives, wait_for_rewrite, wait_until_written};
use crate::common::witness::{Witness, beside};
use crate::common::{Builder, Client, Door, Mode, Server, Value, redis_server, wait_until};

fn wait_for_base(server: &Server) {
    let manifest = server.dir().join("appendonlydir/appendonly.aof.manifest");
    wait_until("the AOF has a base", || {
        std::fs::read_to_string(&manifest).is_ok_and(|text| text.contains(" type b"))
    });
}

/// Turns AOF on for good.
pub fn turn_on(server: &Server, client: &mut Client) {
    client.ok("CONFIG SET appendonly yes");
    client.ok("CONFIG REWRITE");
    wait_for_base(server);
}

/// A client of the server after kill -9 and a new start.
fn restarted(server: &mut Server) -> Client {
    server.crash();
    server.restart(redis_server());
    server.client()
}

/// Counts up in a key until the server is gone; returns the last number that was acknowledged.
fn count_up(mut port: Client, key: &str) -> i64 {
    for number in 1.. {
        match port.try_call(&["SET", key, &number.to_string()]) {
            Ok(reply) => assert_eq!(reply, Value::ok()),
            Err(_) => return number - 1,
        }
    }
    unreachable!("there is always one more number")
}

const WRITERS: usize = 3;

/// Under load on the port: each write is acknowledged, and is there after kill -9 and a restart.
#[test]
fn turned_on_under_load() {
    for other_child in [false, true] {
        let builder = Mode::Adaptive.builder().config("appendfsync always");
        let mut server = builder.with_port().start();
        let mut client = server.client();
        client.ok("MIDI.POPULATE 20000 p 100");
        if other_child {
            // The rewrite waits until another child has ended.
            client.ok("DEBUG POPULATE 20");
            client.ok("CONFIG SET rdb-key-save-delay 20000");
            client.run("BGSAVE");
        }
        let last = Mutex::new([0; WRITERS]);
        thread::scope(|scope| {
            for number in 0..WRITERS {
                let (port, last) = (server.midi_client(), &last);
                scope.spawn(move || {
                    let counted = count_up(port, &format!("w:{number}"));
                    last.lock().expect("no panic")[number] = counted;
                });
            }
            thread::sleep(Duration::from_millis(50));
            client.ok("CONFIG SET appendonly yes");
            client.ok("CONFIG SET rdb-key-save-delay 0");
            client.ok("CONFIG REWRITE");
            wait_for_base(&server);
            thread::sleep(Duration::from_millis(50));
            server.crash();
        });
        server.restart(redis_server());
        let mut client = server.client();
        for (number, last) in last.into_inner().expect("no panic").into_iter().enumerate() {
            assert!(last > 0);
            let value = client.run(&format!("MIDI.GET w:{number}")).text();
            let value: i64 = value.parse().expect("a number");
            // One more may have been written than acknowledged.
            assert!([last, last + 1].contains(&value), "{value} for {last}, {other_child}");
        }
        assert_eq!(client.integer("MIDI.DBSIZE"), 20_000 + WRITERS as i64);
    }
}

/// Turned on and off again and again, under load: no write is refused or lost.
#[test]
fn turned_on_and_off_under_load() {
    let mut server = Mode::Adaptive.builder().with_port().start();
    let mut client = server.client();
    let is_over = AtomicBool::new(false);
    let last = Mutex::new([0; WRITERS]);
    thread::scope(|scope| {
        for number in 0..WRITERS {
            let (mut port, last, is_over) = (server.midi_client(), &last, &is_over);
            scope.spawn(move || {
                let key = format!("w:{number}");
                while !is_over.load(Ordering::Relaxed) {
                    let next = last.lock().expect("no panic")[number] + 1;
                    assert_eq!(port.integer(&format!("INCR {key}")), next);
                    last.lock().expect("no panic")[number] = next;
                }
            });
        }
        for _ in 0..10 {
            client.ok("CONFIG SET appendonly yes");
            thread::sleep(Duration::from_millis(20));
            client.ok("CONFIG SET appendonly no");
            thread::sleep(Duration::from_millis(5));
        }
        turn_on(&server, &mut client);
        wait_for_rewrite(&mut client);
        is_over.store(true, Ordering::Relaxed);
    });
    wait_until_written(&mut client);
    let mut client = restarted(&mut server);
    for (number, last) in last.into_inner().expect("no panic").into_iter().enumerate() {
        assert_eq!(client.run(&format!("MIDI.GET w:{number}")), Value::bulk(last.to_string()));
    }
}

/// All kinds of keys, and the host's own writes behind the base.
#[test]
fn the_base_and_what_follows() {
    let mut server = Mode::Adaptive.server();
    let mut client = server.client();
    fill(&mut client);
    let mut before = contents(&mut client);
    turn_on(&server, &mut client);
    client.ok("SET native v");
    // The host's FLUSHDB acts on midi's keys, too, also when the AOF is loaded.
    client.ok("SELECT 1");
    client.ok("FLUSHDB");
    before.retain(|entry| entry.0 != 1);
    wait_until_written(&mut client);
    let mut client = restarted(&mut server);
    assert_eq!(contents(&mut client), before);
    assert_eq!(client.run("GET native"), Value::bulk("v"));
}

/// As in stock: a server with AOF on does not load its RDB.
#[test]
fn the_rdb_is_not_loaded_with_aof_on() {
    let mut server = Mode::Adaptive.server();
    let mut client = server.client();
    client.ok("MIDI.SET k v");
    client.ok("SET k v");
    client.ok("SAVE");
    server.crash();
    server.reconfigure("appendonly no", "appendonly yes");
    server.restart(redis_server());
    let mut client = server.client();
    assert_eq!((client.integer("MIDI.DBSIZE"), client.integer("DBSIZE")), (0, 0));
    // The way over: load it without, then turn AOF on.
    server.crash();
    std::fs::remove_dir_all(server.dir().join("appendonlydir")).expect("remove the empty AOF");
    server.reconfigure("appendonly yes", "appendonly no");
    server.restart(redis_server());
    let mut client = server.client();
    turn_on(&server, &mut client);
    let mut client = restarted(&mut server);
    assert_eq!((client.integer("MIDI.DBSIZE"), client.integer("DBSIZE")), (1, 1));
}

#[test]
fn rewritten_by_the_host_under_load() {
    let builder = Mode::Adaptive.builder().with_port().config("appendonly yes");
    is_rewritten_by_the_host(builder, |_| ());
}

/// The host rewrites the AOF by itself, again and again, under load on both doors. `look` gets the
/// server when the last rewrite has ended.
pub fn is_rewritten_by_the_host(builder: Builder, look: impl FnOnce(&Server)) {
    let builder = builder.config("auto-aof-rewrite-min-size 1kb").config("hz 100");
    let mut server = builder.config("auto-aof-rewrite-percentage 10").start();
    let mut witnesses: Vec<Witness> =
        (0..4).map(|number| Witness::new([Door::Host, Door::Port][number % 2], number)).collect();
    let mut client = server.client();
    beside(&mut server, &mut witnesses, 1, |_, answers| {
        while client.info_number("persistence", "aof_rewrites") < 5 {
            answers.wait_for(100);
        }
        answers.wait_for(500);
    });
    client.ok("CONFIG SET auto-aof-rewrite-percentage 0");
    wait_for_rewrite(&mut client);
    look(&server);
    witnesses.iter_mut().for_each(|witness| witness.check(&mut client, "at the end"));
    client.ok("MIDI.SET behind 1");
    let mut client = survives(&mut server, "after rewrites under load");
    witnesses.iter_mut().for_each(|witness| witness.check(&mut client, "after the crash"));
}
