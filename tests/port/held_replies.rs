//! The promise: with AOF on, the port answers a write when the host has written it, and a busy main
//! thread delays only clients that write. tests/engine/held_replies.rs has the order of replies.

use std::time::Duration;

use crate::common::hold::{hold_main, with_calls};
use crate::common::{Builder, Client, HANG, Server, Value, redis_server, wait_until};

fn start() -> Server {
    with_calls(Builder::new()).load("threads 2").with_port().config("appendonly yes").start()
}

/// Writes, one after the other, beside a busy main thread.
const WRITES: usize = 20;

/// How many of [`WRITES`] are answered before the main thread has time again; the first one that is
/// not answered in time is the last.
fn writes_beside_main(server: &Server, writer: &mut Client, patience: Duration) -> usize {
    let mut client = server.client();
    let (held, mut writes) = (hold_main(server, &mut client, &[]), 0);
    while writes < WRITES {
        writer.send_line("SET key 1");
        if !writer.has_reply_within(patience) {
            break;
        }
        assert_eq!(writer.read(), Value::ok());
        writes += 1;
    }
    drop(held);
    if writes < WRITES {
        assert_eq!(writer.read(), Value::ok());
    }
    client.read();
    writes
}

/// No more writes than this are answered before the main thread has seen what keeps it busy.
const BEFORE: usize = 4;

/// For a reply that should not come.
const SHORT: Duration = Duration::from_millis(100);

#[test]
fn a_busy_main_thread_delays_those_that_write_only() {
    let server = start();
    let (mut writer, mut reader) = (server.midi_client(), server.midi_client());
    writer.ok("SET key 1");
    let mut holder = server.client();
    let held = hold_main(&server, &mut holder, &[]);
    for _ in 0..WRITES {
        assert_eq!(reader.run("GET key"), Value::bulk("1"));
    }
    drop(held);
    holder.read();
    assert!(writes_beside_main(&server, &mut writer, SHORT) <= BEFORE);
    let mut host = server.client();
    // The first write may have been logged before its worker looked; this one waited.
    assert!(host.info_number("midi_net", "midi_net_holds") >= 1);
    wait_until("nothing is held", || {
        host.info_number("midi_net", "midi_net_held_connections") == 0
    });
    host.ok("CONFIG SET midi.reply-after run");
    assert_eq!(writes_beside_main(&server, &mut writer, HANG), WRITES);
    assert!(!server.log().contains("midi.reply-after"), "nothing to say");
    host.ok("CONFIG SET midi.reply-after logged");
    assert!(writes_beside_main(&server, &mut writer, SHORT) <= BEFORE);
}

#[test]
fn answered_writes_are_there_after_a_crash() {
    // With `everysec` the server holds its writes back while an fsync runs: on a busy disk the last
    // ones would be missing, as its own are.
    let builder = Builder::new().load("threads 2").with_port();
    let mut server = builder.config("appendonly yes").config("appendfsync no").start();
    let mut clients: Vec<Client> = (0..4).map(|_| server.midi_client()).collect();
    let mut counted = 0;
    for round in 0..50 {
        for client in &mut clients {
            client.send_line("INCR counter");
            client.send_line(&format!("APPEND text {}", round % 10));
        }
        for client in &mut clients {
            counted = counted.max(client.read().integer());
            client.read();
        }
    }
    assert_eq!(counted, 200);
    server.kill_hard();
    server.restart(redis_server());
    let mut client = server.midi_client();
    assert_eq!(client.run("GET counter"), Value::bulk("200"));
    assert_eq!(client.integer("STRLEN text"), 200);
}

#[test]
fn clients_that_write_in_a_pause_are_answered_after_it() {
    let server = start();
    let (mut host, mut client, mut reader) =
        (server.client(), server.midi_client(), server.midi_client());
    // A pause of all commands ends by itself only.
    for (pause, ends_by) in [("60000 WRITE", "CLIENT UNPAUSE"), ("200 ALL", "PING")] {
        client.ok("SET key 1");
        host.ok(&format!("CLIENT PAUSE {pause}"));
        client.send_line("SET key 2");
        client.send_line("GET key");
        if pause.ends_with("WRITE") {
            assert_eq!(reader.run("GET key"), Value::bulk("1"));
        }
        assert!(!host.run(ends_by).is_error());
        assert_eq!([client.read(), client.read()], [Value::ok(), Value::bulk("2")]);
    }
}

#[test]
fn the_log_says_that_always_ignores_reply_after_run() {
    let settings = ["CONFIG SET appendfsync always", "CONFIG SET midi.reply-after run"];
    for [first, second] in [settings, [settings[1], settings[0]]] {
        let server = start();
        let mut host = server.client();
        host.ok(first);
        let mut client = server.midi_client();
        client.ok("SET key 1");
        assert!(!server.log().contains("is ignored"), "after {first}");
        host.ok(second);
        wait_until("the log says it", || server.log().contains("midi.reply-after run is ignored"));
        client.ok("SET key 2");
        assert_eq!(client.run("GET key"), Value::bulk("2"));
    }
}
