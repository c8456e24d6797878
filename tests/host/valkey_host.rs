//! The promise: on Valkey, too, copies keep values and encodings, settings and
//! refusals read the same, and commands stand in the host's ACL categories.
//!
//! `MIDI_VALKEY_SERVER` names the server binary; without it nothing is tested.

use crate::common::{Client, Mode, Server, Value, wait_until};

fn on_valkey(body: impl Fn(Mode, &Server)) {
    let Some(path) = std::env::var_os("MIDI_VALKEY_SERVER").filter(|path| !path.is_empty()) else {
        println!("skipped: MIDI_VALKEY_SERVER names no server");
        return;
    };
    for mode in Mode::ALL {
        println!("mode: {mode:?}");
        body(mode, &mode.builder().binary(&path).start());
    }
}

#[test]
fn copies_run() {
    on_valkey(|_, server| {
        let mut client = server.client();
        client.ok("DEBUG POPULATE 50000");
        client.ok("SET number 42");
        client.ok(&format!("SET long {} PXAT 4102444800000", "v".repeat(100_000)));
        client.run("RPUSH list 1");
        client.ok("SET raw some");
        client.run("APPEND raw more");
        let names = ["number", "long", "key:7", "raw"];
        let encodings: Vec<_> = names.iter().map(|key| client.call(&["OBJECT", "ENCODING", key])).collect();
        assert_eq!(client.run("MIDI.IMPORT *"), Value::integers(&[50_003, 0, 1]));
        for (key, encoding) in names.iter().zip(encodings) {
            assert_eq!(client.call(&["MIDI.GET", key]), client.call(&["GET", key]));
            assert_eq!(client.call(&["OBJECT", "ENCODING", key]), encoding, "{key}");
        }
        client.integer("DEL long");
        assert_eq!(client.run("MIDI.EXPORT *"), Value::integers(&[1, 50_002, 0]));
        assert_eq!(client.integer("PEXPIRETIME long"), 4_102_444_800_000);
        assert_eq!(client.run("MIDI.EXPORT key:* REPLACE COUNT 10"), Value::integers(&[10, 0, 0]));
    });
}

#[test]
fn settings_and_refusals() {
    on_valkey(|_, server| {
        let mut client = server.client();
        assert_eq!(client.run("CONFIG GET midi.*").map().len(), 23);
        client.ok("CONFIG SET midi.max-value-bytes 10 midi.dispatch pool");
        let text = "ERR string exceeds maximum allowed size (midi.max-value-bytes 10)";
        assert_eq!(client.run("MIDI.SET k 12345678901"), Value::error(text));
        assert!(client.run("CONFIG SET midi.threads 3").is_error());
        assert!(client.run("MODULE UNLOAD midi").is_error());
        client.ok("CONFIG SET appendonly yes");
        assert!(
            client.run("MIDI.SET k v").text().starts_with("MISCONF midi does not write its data to the AOF")
        );
        client.ok("CONFIG SET appendonly no");
        wait_until("a write works", || client.run("MIDI.SET k v") == Value::ok());
        client.ok("CONFIG SET maxmemory 1000");
        assert!(client.run("MIDI.SET k v").text().starts_with("OOM "));
        assert_eq!(client.run("MIDI.GET k"), Value::bulk("v"));
    });
}

#[test]
fn wrong_load_arguments_end_the_start() {
    on_valkey(|mode, server| {
        let binary = std::env::var_os("MIDI_VALKEY_SERVER").expect("it runs");
        let log = mode.builder().binary(binary).load("nosuch").try_start().err().expect("not taken");
        assert!(log.contains("<midi> Not loaded: unknown load argument 'nosuch'"), "{log}");
        assert_eq!(server.client().run("PING"), Value::Simple(b"PONG".to_vec()));
    });
}

/// Valkey takes ACL categories; Redis 7.0 offers none to modules.
#[test]
fn categories_are_those_of_the_host() {
    on_valkey(|_, server| {
        let mut client = server.client().resp3();
        for name in
            ["get", "set", "mget", "del", "exists", "expire", "ttl", "keys", "scan", "dbsize", "flushall"]
        {
            let of = |client: &mut Client, name: &str| {
                let info = client.run(&format!("COMMAND INFO {name}")).array().remove(0).array();
                info[6].clone().sorted()
            };
            assert_eq!(of(&mut client, &format!("midi.{name}")), of(&mut client, name), "{name}");
        }
        client.ok("ACL SETUSER r reset on ~* -@all +@read");
        assert_eq!(client.run("ACL DRYRUN r MIDI.GET k"), Value::ok());
        assert_ne!(client.run("ACL DRYRUN r MIDI.SET k v"), Value::ok());
    });
}
