//! The promise: hashes of any size are in the AOF, in its rewritten base, in the RDB and on
//! replicas, and come back as they were. A fork or a save sees none of the writes that are not in
//! the log yet.

use super::aof::builder;
use super::persistence::wait_for_save;
use crate::common::aof::{State, rewrite, survives, wait_until_written};
use crate::common::hold::{hold_main, with_calls};
use crate::common::replicas::{self, follow, must_become_equal};
use crate::common::{
    Builder, Client, Door, Mode, Server, Value, encoded, redis_server, wait_until, words,
};

/// Sets fields, named by their numbers.
pub fn set_fields(client: &mut Client, key: &str, fields: std::ops::Range<usize>, value: &str) {
    let fields: Vec<usize> = fields.collect();
    for some in fields.chunks(500) {
        let mut line = format!("MIDI.HSET {key}");
        some.iter().for_each(|number| line += &format!(" field:{number} {value}{number}"));
        client.integer(&line);
    }
}

/// Hashes of both forms, and at the limits of the small one; one that is longer than a frame of a
/// snapshot; changed ones.
fn fill(client: &mut Client) {
    client.integer("MIDI.HSET small a 1 b text c 1.5");
    client.integer("MIDI.HSET lasting a 1");
    client.integer("MIDI.EXPIREAT lasting 4102444800");
    let odd: [&[u8]; 8] = [b"MIDI.HSET", b"\0\r\n", b"", b"", b"\0", b"\xff", b"\r\n", b"-1"];
    assert!(!client.call(&odd).is_error());
    for (key, count) in [("h511", 511), ("h512", 512), ("h513", 513), ("h3000", 3000)] {
        set_fields(client, key, 0..count, "v");
    }
    for bytes in [64, 65, 255, 256, 5000, 300_000] {
        client.integer(&format!("MIDI.HSET wide:{bytes} f {} g 1", "x".repeat(bytes)));
    }
    set_fields(client, "frames", 0..20_000, &"y".repeat(100));
    client.integer("MIDI.HINCRBY small a 41");
    client.run("MIDI.HINCRBYFLOAT small c 0.25");
    set_fields(client, "changed", 0..600, "old");
    set_fields(client, "changed", 300..700, "new");
    client.integer("MIDI.HDEL changed field:0 field:650 nosuch");
    set_fields(client, "gone", 0..3, "v");
    client.integer("MIDI.HDEL gone field:0 field:1 field:2");
    client.integer("MIDI.HSET text f v");
    client.ok("MIDI.SET text over");
    client.ok("MIDI.SET hash over");
    client.integer("MIDI.DEL hash");
    client.integer("MIDI.HSET hash f v");
    for key in ["small", "h3000"] {
        client.integer(&format!("MIDI.COPY {key} copy:{key}"));
        client.integer(&format!("MIDI.HSET copy:{key} field:1 apart"));
        client.integer(&format!("MIDI.COPY {key} name:{key}"));
        client.ok(&format!("MIDI.RENAME name:{key} new:{key}"));
        client.integer(&format!("MIDI.HDEL new:{key} field:1 a"));
        client.integer(&format!("MIDI.COPY {key} moved:{key}"));
        client.integer(&format!("MIDI.MOVE moved:{key} 5"));
    }
    client.run("MIDI.HGETDEL new:small FIELDS 2 b nosuch");
    client.ok("SELECT 3");
    set_fields(client, "changed", 0..600, "another");
    client.ok("SELECT 0");
}

fn filled(builder: Builder) -> Server {
    let server = builder.start();
    fill(&mut server.client());
    server
}

#[test]
fn the_log_has_them() {
    for appendfsync in ["always", "everysec"] {
        for mode in [Mode::Adaptive, Mode::Safe] {
            let mut server = filled(builder(mode).config(format!("appendfsync {appendfsync}")));
            let mut port = server.midi_client();
            for line in ["HSET small port 1", "HSET h3000 port 1", "HDEL h513 field:1 field:2"] {
                port.integer(line);
            }
            survives(&mut server, &format!("{mode:?}, {appendfsync}"));
        }
    }
}

/// And what comes behind the base.
#[test]
fn rewritten_logs_have_them() {
    for preamble in ["yes", "no"] {
        let with = format!("aof-use-rdb-preamble {preamble}");
        let mut server = filled(builder(Mode::Adaptive).config(with));
        rewrite(&mut server.client());
        survives(&mut server, &format!("preamble {preamble}"));
        let mut client = server.client();
        client.integer("MIDI.HSET small later 1");
        client.integer("MIDI.HSET frames later 1");
        client.integer("MIDI.HDEL h3000 field:7");
        rewrite(&mut client);
        client.integer("MIDI.HSET h3000 later 1");
        survives(&mut server, &format!("again, preamble {preamble}"));
    }
}

#[test]
fn saves_have_them() {
    for save in ["SAVE", "BGSAVE"] {
        let mut server = filled(Mode::Adaptive.builder());
        let mut client = server.client();
        let before = State::of(&mut client);
        client.run(save);
        wait_for_save(&mut client);
        server.kill_hard();
        server.restart(redis_server());
        before.must_equal(&State::of(&mut server.client()), save);
    }
    let server = filled(Mode::Adaptive.builder());
    let mut client = server.client();
    let before = State::of(&mut client);
    client.ok("DEBUG RELOAD");
    before.must_equal(&State::of(&mut client), "DEBUG RELOAD");
}

/// By a full sync, by the stream, and by both doors.
#[test]
fn replicas_have_them() {
    let master = filled(replicas::builder(Mode::Adaptive));
    let replica = replicas::builder(Mode::Pool).start();
    follow(&replica, master.port());
    must_become_equal(&[&master, &replica], "a full sync");
    for door in [Door::Host, Door::Port] {
        let mut client = door.client(&master);
        for line in [
            "HSET small a 2 new 3",
            "HINCRBY h3000 count 5",
            "HSET h512 more 1",
            "HDEL h513 field:1 field:2",
            "HDEL small a b c new port",
            "COPY h3000 h3000copy",
            "HSET h3000copy field:5 x",
            "RENAME h3000copy h3000new",
            "HSET h3000new field:6 y",
            "HINCRBYFLOAT h511 float 0.5",
            "DEL frames",
            "HSET frames a b",
            "HSETNX frames a c",
            "RENAME h513 h511",
            "SET wide:64 over",
        ] {
            let reply = client.call(&door.named(&words(line)));
            // The second door finds some of it done.
            assert!(!reply.is_error() || line.starts_with("RENAME h513"), "{line}: {reply:?}");
        }
        must_become_equal(&[&master, &replica], &format!("{door:?}"));
    }
    let mut client = master.client();
    client.ok("MIDI.FLUSHALL");
    fill(&mut client);
    must_become_equal(&[&master, &replica], "all again");
    let state = |server: &Server| State::of(&mut server.client());
    state(&master).must_equal(&state(&replica), "read one by one");
}

/// Lines that change hashes of both forms, or make another of one, in each way.
const IN_THE_TAIL: [&str; 12] = [
    "HSET small a new added 1",
    "HDEL small b",
    "HINCRBY h511 count 7",
    "HSET h511 grows 1 and 2",
    "HSET h3000 field:1 new added 1",
    "HDEL h3000 field:2 field:3",
    "HDEL lasting a",
    "SET h513 over",
    "DEL wide:64",
    "HSET wide:64 other 1",
    "HSET nosuch made 1",
    "HSET frames field:9 new",
];

/// The main thread is busy while the port's writes run: its fork, or its save, comes before their
/// way to the log.
#[test]
fn saves_lack_what_is_in_the_tail() {
    for save in ["BGSAVE", "SAVE"] {
        let mut server = filled(with_calls(builder(Mode::Adaptive)));
        let mut client = server.client();
        client.ok("CONFIG SET appendfsync everysec");
        let before = client.run("MIDI.KEYSPACEDIGEST");
        let held = hold_main(&server, &mut client, &[encoded(&words(save))]);
        // One connection for each: a write waits for the one before it.
        let mut writers: Vec<Client> = IN_THE_TAIL
            .iter()
            .map(|line| {
                let mut writer = server.midi_client();
                writer.send_line(line);
                writer
            })
            .collect();
        let mut reader = server.midi_client();
        wait_until("they have run", || {
            reader.run("HGET small a") == Value::bulk("new")
                && reader.run("HGET frames field:9") == Value::bulk("new")
                && reader.run("EXISTS nosuch") == Value::Integer(1)
        });
        drop(held);
        assert_eq!(client.read(), Value::ok(), "CALLS.HOLD");
        assert!(!client.read().is_error(), "{save}");
        for (writer, line) in writers.iter_mut().zip(IN_THE_TAIL) {
            assert!(!writer.read().is_error(), "{line}");
        }
        wait_for_save(&mut client);
        let after = State::of(&mut client);
        wait_until_written(&mut client);
        server.crash();
        server.restart(redis_server());
        after.must_equal(&State::of(&mut server.client()), "the log has all");
        server.crash();
        server.reconfigure("appendonly yes", "appendonly no");
        server.restart(redis_server());
        assert_eq!(server.client().run("MIDI.KEYSPACEDIGEST"), before, "{save} has none");
    }
}
