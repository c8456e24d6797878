//! The promise: while the main thread is busy, writes of the port run until `midi.journal-buffer`
//! bytes wait for the host's log. Then writes wait, and reads go on. All are answered, and are in
//! the AOF, when the main thread has time again.

use super::aof::builder;
use crate::common::aof::survives;
use crate::common::hold::{HeldMain, hold_main, with_calls};
use crate::common::{Client, Mode, Server, Value, encoded, wait_until};

/// The smallest that there is.
const BUFFER: i64 = 1 << 20;

/// The runs before writes notice that the buffer is full: one on each worker.
const SLACK: i64 = BUFFER / 2;

/// How much each connection writes, in one pipeline: writes, and bytes of each. A run takes some
/// hundred bytes more than its values; with these it is the 35th value that fills the buffer,
/// however many runs there are.
const PIPELINE: (usize, usize) = (4, 30_000);

/// All of them write three times as much as the buffer takes.
const CONNECTIONS: usize = 40;

/// Keeps the main thread busy, and stops when it is told to.
struct Busy {
    client: Client,
    /// `None` for a script.
    held: Option<HeldMain>,
}

impl Busy {
    /// With a module's command, or a script that takes too long. INFO comes behind it, before the
    /// main loop turns.
    fn begin(server: &Server, is_script: bool) -> Self {
        let mut client = server.client();
        let info = encoded(&["INFO", "midi_persistence"]);
        if !is_script {
            let held = Some(hold_main(server, &mut client, &[info]));
            return Busy { client, held };
        }
        client.send(&[encoded(&["EVAL", "while true do end", "0"]), info].concat());
        let mut other = server.client();
        wait_until("the script takes too long", || other.run("PING").is_error());
        Busy { client, held: None }
    }

    /// The tail's bytes at its end.
    fn end(mut self, server: &Server) -> i64 {
        if self.held.take().is_none() {
            server.client().ok("SCRIPT KILL");
        }
        self.client.read();
        let text = self.client.read().text();
        let mut lines = text.lines();
        let field = lines.find_map(|line| line.strip_prefix("midi_journal_tail_bytes:"));
        field.expect("a field").parse().expect("a number")
    }
}

/// Reads a key some times; it has this value.
fn read_beside(reader: &mut Client, line: &str, value: &Value) {
    (0..10).for_each(|_| assert_eq!(&reader.run(line), value, "{line}"));
}

fn write_beside_a_busy_main_thread(is_script: bool, reply_after: &str) {
    let builder = with_calls(builder(Mode::Adaptive)).config("busy-reply-threshold 50");
    let load = format!("journal-buffer {BUFFER} reply-after {reply_after}");
    let mut server = builder.load(&load).start();
    let mut reader = server.midi_client();
    reader.ok("SET key 1");
    let mut writers: Vec<Client> = (0..CONNECTIONS).map(|_| server.midi_client()).collect();
    let busy = Busy::begin(&server, is_script);
    let value = vec![b'v'; PIPELINE.1];
    for (number, writer) in writers.iter_mut().enumerate() {
        for key in 0..PIPELINE.0 {
            let key = format!("k:{number}:{key}");
            writer.send(&encoded(&[b"SET", key.as_bytes(), &value]));
        }
    }
    let mut values = || reader.integer("DBSIZE") - 1;
    wait_until("the buffer is full", || values() * PIPELINE.1 as i64 >= BUFFER);
    read_beside(&mut reader, "GET key", &Value::bulk("1"));
    // A write behind all those does not run.
    let mut last = server.midi_client();
    last.send_line("APPEND last 1");
    read_beside(&mut reader, "GET last", &Value::NullBulk);
    let tail = busy.end(&server);
    assert!((BUFFER..BUFFER + SLACK).contains(&tail), "{tail} bytes in the tail");
    for writer in &mut writers {
        (0..PIPELINE.0).for_each(|_| assert_eq!(writer.read(), Value::ok()));
    }
    assert_eq!(last.read(), Value::Integer(1));
    let mut client = survives(&mut server, "writes beside a busy main thread");
    assert_eq!(client.integer("MIDI.DBSIZE"), (CONNECTIONS * PIPELINE.0) as i64 + 2);
}

#[test]
fn a_full_buffer_holds_up_writes() {
    write_beside_a_busy_main_thread(false, "logged");
    write_beside_a_busy_main_thread(true, "logged");
}

#[test]
fn a_full_buffer_holds_up_writes_that_are_answered_early() {
    write_beside_a_busy_main_thread(false, "run");
    write_beside_a_busy_main_thread(true, "run");
}
