//! The promise: with AOF on, writes wait for the end of CLIENT PAUSE, and then are in the AOF; the
//! host, which ends its process when somebody logs in a pause, has no reason to. Saves without a
//! fork, and reloads, beside writes on both doors lose nothing either.

use super::aof::builder;
use crate::common::aof::{self, survives};
use crate::common::witness::{Witness, beside};
use crate::common::{Builder, Client, Door, Mode, Server, Value, redis_server, words};

fn witnesses() -> Vec<Witness> {
    (0..4).map(|number| Witness::new([Door::Host, Door::Port][number % 2], number)).collect()
}

/// Has clients write beside `work`; what they were answered is there, and there after a crash.
fn under_load(builder: Builder, work: impl FnOnce(&mut Client, &mut dyn FnMut())) {
    with(witnesses(), builder, work);
}

fn with(
    mut witnesses: Vec<Witness>,
    builder: Builder,
    work: impl FnOnce(&mut Client, &mut dyn FnMut()),
) {
    let mut server = builder.start();
    beside(&mut server, &mut witnesses, 1, |server, answers| {
        answers.wait_for(50);
        work(&mut server.client(), &mut || answers.wait_for(20));
        answers.wait_for(50);
    });
    let mut client = server.client();
    witnesses.iter_mut().for_each(|witness| witness.check(&mut client, "at the end"));
    let mut client = survives(&mut server, "after load");
    witnesses.iter_mut().for_each(|witness| witness.check(&mut client, "after the crash"));
}

#[test]
fn short_pauses_under_load() {
    for mode in Mode::tried() {
        under_load(builder(mode), |client, wait| {
            for round in 0..40 {
                let of = ["WRITE", "WRITE", "ALL"][round % 3];
                client.ok(&format!("CLIENT PAUSE 5 {of}"));
                if round % 4 == 0 {
                    wait();
                }
            }
        });
    }
}

#[test]
fn pauses_inside_of_transactions() {
    under_load(builder(Mode::Adaptive), |client, wait| {
        for round in 0..20 {
            client.ok("MULTI");
            client.run("MIDI.INCR before");
            client.run("CLIENT PAUSE 5 WRITE");
            client.run("MIDI.INCR inside");
            client.run("CLIENT PAUSE 10 ALL");
            client.run("SET native 1");
            client.run("MIDI.APPEND list x");
            let replies = client.run("EXEC").array();
            assert!(!replies.iter().any(Value::is_error), "{replies:?}");
            client.call(&["EVAL", "return redis.call('MIDI.INCR', 'script')", "0"]);
            assert_eq!(client.run("MIDI.GET inside"), Value::bulk((round + 1).to_string()));
            wait();
        }
    });
}

/// Nothing is written in a pause, and everything after it.
#[test]
fn writes_wait_for_the_end_of_a_pause() {
    let mut server = builder(Mode::Adaptive).start();
    let (mut client, mut port, mut host) = (server.client(), server.midi_client(), server.client());
    client.ok("MIDI.SET a 0");
    client.ok("CLIENT PAUSE 100000 WRITE");
    port.send_line("APPEND a port");
    host.send_line("MIDI.APPEND a host");
    let short = std::time::Duration::from_millis(50);
    assert!(!port.has_reply_within(short) && !host.has_reply_within(short));
    assert_eq!(client.run("MIDI.GET a"), Value::bulk("0"));
    client.ok("CLIENT UNPAUSE");
    assert!(!port.read().is_error() && !host.read().is_error());
    let mut client = survives(&mut server, "after the pause");
    assert_eq!(client.integer("MIDI.STRLEN a"), 9);
}

#[test]
fn saves_without_a_fork_under_load() {
    under_load(builder(Mode::Adaptive), |client, wait| {
        for _ in 0..10 {
            client.ok("SAVE");
            wait();
        }
    });
}

#[test]
fn reloads_under_load() {
    let patient = witnesses().into_iter().map(Witness::patient).collect();
    with(patient, builder(Mode::Adaptive), |client, wait| {
        for _ in 0..10 {
            client.ok("DEBUG RELOAD");
            wait();
        }
    });
}

/// The host saves after FLUSHALL if it has save points.
#[test]
fn flushes_with_save_points() {
    let mut server = builder(Mode::Adaptive).config("save 3600 1").start();
    let mut client = server.client();
    let (mut port, mut other) = (server.midi_client(), server.midi_client());
    for round in 0..30 {
        for number in 0..20 {
            port.send_line(&format!("APPEND p{number} {round}"));
            other.send_line(&format!("APPEND q{number} {round}"));
        }
        match round % 3 {
            0 => client.ok("FLUSHALL"),
            1 => client.ok("MIDI.SET h 1"),
            _ => client.ok("SAVE"),
        }
    }
    for _ in 0..600 {
        assert!(!port.read().is_error() && !other.read().is_error());
    }
    client.ok("SET native 1");
    survives(&mut server, "flushes with save points");
}

/// SHUTDOWN under load: what was answered is in the AOF, and the RDB of its save points is whole.
#[test]
fn shutdown_under_load() {
    for save in ["", "3600 1"] {
        let builder = builder(Mode::Adaptive).config(format!("save \"{save}\""));
        let (mut server, mut witnesses) = (builder.start(), witnesses());
        beside(&mut server, &mut witnesses, 1, |server, answers| {
            answers.wait_for(300);
            server.client().send_line("SHUTDOWN");
            server.wait_for_end();
        });
        server.restart(redis_server());
        let mut client = server.client();
        witnesses.iter_mut().for_each(|witness| witness.check(&mut client, "after SHUTDOWN"));
        aof::wait_until_written(&mut client);
        check_rdb(&server, save);
    }
}

/// A server that loads what SHUTDOWN has saved.
fn check_rdb(server: &Server, save: &str) {
    assert_eq!(server.rdb().exists(), !save.is_empty());
    if !save.is_empty() {
        let mut other = Builder::new().load("threads 2").start();
        std::fs::copy(server.rdb(), other.rdb()).expect("an RDB");
        other.crash();
        other.restart(redis_server());
        let keys = other.client().integer("MIDI.DBSIZE");
        assert_eq!(keys, server.client().integer("MIDI.DBSIZE"));
    }
}

/// Writes that follow a save in the same turn of the main loop are logged.
#[test]
fn right_behind_a_save() {
    let mut server = builder(Mode::Adaptive).start();
    let (mut client, mut port) = (server.client(), server.midi_client());
    for last in ["MIDI.SET a 1", "FLUSHALL", "SWAPDB 0 1", "MIDI.FLUSHDB"] {
        for number in 0..20 {
            port.send_line(&format!("MSET p{number} 1 q{number} 2"));
        }
        let lines = ["MIDI.SET before 1", "SAVE", "MIDI.SET behind 1", "SAVE", last];
        let replies = client.pipeline(&lines.map(words));
        assert!(!replies.iter().any(Value::is_error), "{replies:?}");
        (0..20).for_each(|_| assert_eq!(port.read(), Value::ok()));
        server.client().ok("SET native 1");
        client = survives(&mut server, last);
        port = server.midi_client();
    }
}
