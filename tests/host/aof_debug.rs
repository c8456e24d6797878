//! The promise: DEBUG LOADAOF and DEBUG RELOAD take nothing away that was acknowledged, beside
//! writes, and where a host has logged one of them.

use std::fs;

use super::aof::builder;
use crate::common::aof;
use crate::common::hosts::host;
use crate::common::witness::{at_both_doors, beside_interruptions};
use crate::common::{Mode, Value, encoded, redis_server, skip, words};

/// Writes that the AOF does not have when it is loaded are taken back, and nothing is written from
/// then on until it is loaded: else that would stand in the AOF behind what it is made of.
#[test]
fn loadaof_beside_writes() {
    for mode in Mode::tried() {
        let mut server = builder(mode).config("appendfsync always").start();
        let mut witnesses = at_both_doors(6);
        beside_interruptions(&server, &mut witnesses, |answers| {
            let mut client = server.client();
            for _ in 0..12 {
                answers.wait_for(60);
                client.ok("DEBUG LOADAOF");
            }
        });
        let mut client = server.client();
        witnesses.iter_mut().for_each(|witness| witness.check(&mut client, "after the loads"));
        let digest = client.run("MIDI.KEYSPACEDIGEST");
        server.restart(redis_server());
        assert_eq!(server.client().run("MIDI.KEYSPACEDIGEST"), digest);
    }
}

/// If a save in the background ends after a DEBUG RELOAD, hosts count changes below zero, and log
/// the next DEBUG RELOAD. When they replay it they forget that they are loading.
#[test]
fn a_logged_reload_is_replayed() {
    let host = host();
    if !host.valkey && host.version.0 >= 8 {
        return skip("Redis 8 does not come to the end of such a file, without midi");
    }
    let mut server = builder(Mode::Adaptive).start();
    let (mut port, mut client) = (server.midi_client(), server.client());
    port.ok("SET k a");
    port.run("APPEND k b");
    client.ok("MIDI.SET h x");
    client.run("MIDI.APPEND h y");
    server.crash();
    let commands = aof::commands(&server);
    let text =
        |part: &[Vec<Vec<u8>>]| part.iter().map(|it| encoded(it)).collect::<Vec<_>>().concat();
    let [.., append, _, of_host] = commands.as_slice() else { panic!("{commands:?}") };
    assert_eq!(append[0], b"MIDI.JOURNAL");
    let again = [words("DEBUG RELOAD"), append.clone(), of_host.clone()];
    fs::write(aof::incr_file(&server), text(&[&commands[..], &again].concat())).expect("the AOF");
    server.restart(redis_server());
    let mut client = server.client();
    let values = [Value::bulk("abb"), Value::bulk("xyy")];
    assert_eq!(client.run("MIDI.MGET k h").array(), values);
    // The doors are open again.
    server.midi_client().ok("SET k c");
    client.ok("MIDI.SET k d");
}

/// A DEBUG that is refused leads to no load, so a FLUSHALL behind it is one like others: what is
/// written after it in the same turn of the main loop is logged.
#[test]
fn a_flush_behind_a_refused_debug() {
    for mode in Mode::tried() {
        for debug in ["DEBUG RELOAD", "DEBUG LOADAOF"] {
            for is_allowed in ["yes", "no"] {
                let setting = format!("enable-debug-command {is_allowed}");
                a_flush_behind(mode, &setting, &[debug, "FLUSHALL", "MIDI.SET k v"]);
                let flush = [debug, "MULTI", "FLUSHALL", "MIDI.SET k v", "EXEC"];
                a_flush_behind(mode, &setting, &flush);
                a_flush_behind(mode, &setting, &[debug, "FLUSHDB", "MIDI.SET k v"]);
            }
        }
    }
}

fn a_flush_behind(mode: Mode, setting: &str, lines: &[&str]) {
    let said = format!("{mode:?} {setting} {lines:?}");
    let mut server = builder(mode).config("appendfsync always").config(setting).start();
    let (mut client, mut port) = (server.client(), server.midi_client());
    // What the server allows, this user may still not do.
    client.ok("ACL SETUSER default -debug");
    port.ok("SET before v");
    let replies = client.pipeline(&lines.iter().map(|line| words(line)).collect::<Vec<_>>());
    assert!(replies[0].is_error(), "{said}: {replies:?}");
    assert!(replies[1..].iter().all(|reply| !reply.is_error()), "{said}: {replies:?}");
    port.ok("SET after v");
    server.crash();
    server.restart(redis_server());
    let values = [Value::NullBulk, Value::bulk("v"), Value::bulk("v")];
    assert_eq!(server.client().run("MIDI.MGET before k after").array(), values, "{said}");
}
