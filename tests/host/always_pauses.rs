//! The promise: with `appendfsync always`, what has run but cannot be logged, because clients are
//! paused, is shown to nobody. Clients wait for it. In a unit, where they cannot, reads answer
//! TRYAGAIN: such a unit writes nothing, because the host begins none that writes in a pause.

use std::time::Duration;

use super::aof::builder;
use super::aof_calls::calls;
use crate::common::aof::{self, survives};
use crate::common::hold::{hold_main, with_calls};
use crate::common::{Client, Mode, Server, Value, encoded, wait_until, words};

/// Time for a reply that should not come.
const SHORT: Duration = Duration::from_millis(50);

fn start() -> Server {
    with_calls(builder(Mode::Adaptive)).config("appendfsync always").start()
}

fn tail_runs(client: &mut Client) -> i64 {
    client.info_number("midi_persistence", "midi_journal_tail_runs")
}

/// Has the port write while the main thread is busy, and then the client run lines in the same turn
/// of the main loop. On a slow machine the write comes after them.
fn write_before(
    server: &Server,
    (port, line): (&mut Client, &str),
    (client, lines): (&mut Client, &[&str]),
) {
    let lines: Vec<_> = lines.iter().map(|line| encoded(&words(line))).collect();
    let held = hold_main(server, client, &lines);
    port.send_line(line);
    // Nobody is shown when it has run.
    std::thread::sleep(SHORT);
    drop(held);
    assert_eq!(client.read(), Value::ok(), "CALLS.HOLD");
}

/// Has the port write while the main thread is busy, and then another module pause clients. What
/// was written midi could only log inside of that module's command, which is too late. Returns the
/// client of the port, which waits.
fn write_and_pause(server: &Server, line: &str) -> Client {
    let (mut client, mut port) = (server.client(), server.midi_client());
    loop {
        let pause = "CALLS.READ - 4 CLIENT PAUSE 100000 WRITE";
        write_before(server, (&mut port, line), (&mut client, &[pause]));
        assert_eq!(client.read(), Value::Array(vec![Value::ok()]));
        if tail_runs(&mut client) > 0 {
            return port;
        }
        // It came too late.
        client.ok("CLIENT UNPAUSE");
        port.read();
    }
}

#[track_caller]
fn must_try_again(reply: &Value) {
    assert!(reply.is_error() && reply.text().contains("TRYAGAIN "), "{reply:?}");
}

fn exec(client: &mut Client, lines: &[&str]) -> Vec<Value> {
    client.ok("MULTI");
    for line in lines {
        assert_eq!(client.run(line), Value::Simple(b"QUEUED".to_vec()), "{line}");
    }
    client.run("EXEC").array()
}

const SCRIPT: &str = "return redis.call('MIDI.GET', 'k')";

/// All units of reads that the host begins in a pause.
fn check_units_of_reads(client: &mut Client) {
    for line in ["MIDI.GET k", "MIDI.EXISTS k", "MIDI.DBSIZE", "MIDI.MGET k other", "MIDI.KEYS *"] {
        let replies = exec(client, &["GET native", line, "MIDI.STRLEN k", "GET native"]);
        assert_eq!([&replies[0], &replies[3]], [&Value::bulk("1"), &Value::bulk("1")]);
        must_try_again(&replies[1]);
        must_try_again(&replies[2]);
    }
    must_try_again(&client.call(&["EVAL_RO", SCRIPT, "0"]));
    must_try_again(&client.call(&["EVAL", &format!("#!lua flags=no-writes\n{SCRIPT}"), "0"]));
    must_try_again(&client.run("FCALL_RO f 0"));
    // Another module's, which does not say that it writes.
    let lines = ["MIDI.GET k", "MIDI.SET k 9", "MIDI.APPEND k 9"];
    let replies = client.call(&calls("CALLS.READ", "!", &lines)).array();
    replies.iter().for_each(must_try_again);
}

#[test]
fn reads_in_units_answer_tryagain() {
    let mut server = start();
    let mut client = server.client();
    let library = "#!lua name=l\nredis.register_function{function_name='f', \
                   callback=function() return redis.call('MIDI.GET', 'k') end, \
                   flags={'no-writes'}}";
    client.call(&["FUNCTION", "LOAD", library]);
    client.ok("SET native 1");
    client.ok("MIDI.SET k old");
    let mut port = write_and_pause(&server, "SET k new");
    let before = aof::lines(&server);
    check_units_of_reads(&mut client);
    assert_eq!(aof::lines(&server), before, "nothing was logged");
    assert_eq!(tail_runs(&mut client), 1, "nothing has run");
    assert!(!port.has_reply_within(SHORT));
    // Outside of units they wait.
    let (mut host, mut other) = (server.client(), server.midi_client());
    host.send_line("MIDI.GET k");
    other.send_line("GET k");
    assert!(!host.has_reply_within(SHORT) && !other.has_reply_within(SHORT));
    // A unit that ends the pause may log.
    assert_eq!(exec(&mut client, &["CLIENT UNPAUSE", "MIDI.GET k"])[1], Value::bulk("new"));
    assert_eq!(port.read(), Value::ok());
    assert_eq!([host.read(), other.read()], [Value::bulk("new"), Value::bulk("new")]);
    survives(&mut server, "after the pause");
}

/// Those that write wait for the end of the pause, and are then done as a whole.
#[test]
fn units_that_write_wait() {
    let mut server = start();
    let (mut client, mut host, mut script) = (server.client(), server.client(), server.client());
    client.ok("MIDI.SET k old");
    // The host queues no write in a pause.
    host.ok("MULTI");
    for line in ["SET native 1", "MIDI.GET k", "MIDI.APPEND k x"] {
        assert!(!host.run(line).is_error());
    }
    let mut port = write_and_pause(&server, "SET k new");
    let before = aof::lines(&server).len();
    host.send_line("EXEC");
    let code = "redis.call('MIDI.GET', 'k') redis.call('SET', 'other', 1) \
                return redis.call('MIDI.SET', 'l', 1)";
    script.send(&encoded(&["EVAL", code, "0"]));
    assert!(!host.has_reply_within(SHORT) && !script.has_reply_within(SHORT));
    assert_eq!(aof::lines(&server).len(), before);
    client.ok("CLIENT UNPAUSE");
    assert_eq!(port.read(), Value::ok());
    let replies = [Value::ok(), Value::bulk("new"), Value::Integer(4)];
    assert_eq!(host.read().array(), replies);
    assert_eq!(script.read(), Value::ok());
    // A unit that finds the port's write in the tail logs it with what it does.
    let lines = aof::lines(&server)[before..].join("; ");
    let mut units = lines.split("MULTI; ").filter_map(|part| part.split_once("; EXEC"));
    for (native, ours) in [("SET native 1", "APPEND k x"), ("SET other 1", "SET l 1")] {
        let is_whole = |unit: &str| unit.contains(native) && unit.contains(ours);
        assert!(units.any(|(unit, _)| is_whole(unit)), "{lines}");
    }
    survives(&mut server, "after the pause");
}

/// A transaction that begins the pause may log what it does, and what has run before.
#[test]
fn a_transaction_that_begins_a_pause_is_done_as_a_whole() {
    for pause in ["WRITE", "ALL"] {
        let mut server = start();
        let (mut client, mut port) = (server.client(), server.midi_client());
        let pause = format!("CLIENT PAUSE 300 {pause}");
        let lines = [
            "MULTI",
            &pause,
            "MIDI.GET other",
            "MIDI.GET k",
            "MIDI.SET l 1",
            "SET native 1",
            "MIDI.APPEND k x",
            "EXEC",
        ];
        wait_until("the port writes before it", || {
            client.ok("MIDI.SET k old");
            write_before(&server, (&mut port, "SET k new"), (&mut client, &lines));
            (1..lines.len()).for_each(|_| assert!(!client.read().is_error()));
            let replies = client.read().array();
            assert!(!replies.iter().any(Value::is_error), "{replies:?}");
            assert_eq!(port.read(), Value::ok());
            replies[2] == Value::bulk("new")
        });
        survives(&mut server, "after the pause");
    }
}
