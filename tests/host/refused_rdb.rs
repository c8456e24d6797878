//! The promise: a section of midi's that is damaged, cut, or from the future is refused with a line
//! in the log that says what and where. The server then does not start; a DEBUG RELOAD answers an
//! error. A server without midi does not start on midi's keys either.

use std::fs;
use std::path::Path;

use super::persistence::contents;
use crate::common::hosts::host;
use crate::common::{Builder, Server, Value, redis_server};

/// A server whose RDB has one key of midi's, without compression and checksum; it is not running.
fn saved() -> Server {
    let mut server = Builder::new()
        .load("threads 2")
        .config("rdbcompression no")
        .config("rdbchecksum no")
        .start();
    let mut client = server.client();
    client.ok("MIDI.SET needle haystack");
    client.ok("SAVE");
    server.kill_hard();
    server
}

/// Where these bytes are in a file.
fn find(bytes: &[u8], part: &[u8]) -> usize {
    bytes.windows(part.len()).position(|window| window == part).expect("it is there")
}

/// The ID of midi's data type, as RDB files write it: 9 characters of 6 bits, 10 bits of version.
fn module_id(version: u64) -> [u8; 8] {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let number = |letter| LETTERS.iter().position(|&it| it == letter).expect("a letter") as u64;
    let name = b"midi-keys".iter().fold(0, |id, &letter| id << 6 | number(letter));
    (name << 10 | version).to_be_bytes()
}

fn change(path: &Path, how: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).expect("the RDB");
    how(&mut bytes);
    fs::write(path, bytes).expect("write the RDB");
}

#[test]
fn flipped_bytes() {
    let mut server = saved();
    let whole = fs::read(server.rdb()).expect("the RDB");
    for at in [find(&whole, b"needle"), find(&whole, b"haystack") + 7] {
        change(&server.rdb(), |bytes| bytes[at] ^= 1);
        let (code, log) = server.restart_in_vain();
        assert_eq!(code, Some(1), "{log}");
        assert!(log.contains("<midi> The keys are not loaded: frame 2"), "{log}");
        assert!(log.contains("checksum"), "{log}");
        fs::write(server.rdb(), &whole).expect("write the RDB");
    }
    server.restart(redis_server());
    assert_eq!(server.client().run("MIDI.GET needle"), Value::bulk("haystack"));
}

#[test]
fn cut_off() {
    let mut server = saved();
    let whole = fs::read(server.rdb()).expect("the RDB");
    let section = find(&whole, &module_id(1));
    for len in [section + 12, find(&whole, b"haystack"), find(&whole, b"haystack") + 20] {
        fs::write(server.rdb(), &whole[..len]).expect("write the RDB");
        let (code, log) = server.restart_in_vain();
        assert_eq!(code, Some(1), "{len} of {}: {log}", whole.len());
        assert!(log.contains("<midi> The keys are not loaded: "), "{len}: {log}");
    }
}

#[test]
fn from_a_newer_midi() {
    let mut server = saved();
    change(&server.rdb(), |bytes| {
        let at = find(bytes, &module_id(1));
        bytes[at..at + 8].copy_from_slice(&module_id(2));
    });
    let (code, log) = server.restart_in_vain();
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("<midi> The keys are not loaded: "), "{log}");
    assert!(log.contains("version 2"), "{log}");
}

/// The host then serves what it has; midi has no key, not a part of them.
#[test]
fn a_reload_that_is_refused() {
    let mut server = saved();
    server.restart(redis_server());
    let mut client = server.client();
    client.ok("MIDI.POPULATE 1000");
    client.ok("SAVE");
    change(&server.rdb(), |bytes| {
        let at = find(bytes, b"value:7");
        bytes[at] ^= 1;
    });
    assert!(client.run("DEBUG RELOAD NOSAVE").is_error());
    assert_eq!(contents(&mut client), []);
    client.ok("MIDI.SET k v");
    client.ok("DEBUG RELOAD");
    assert_eq!(client.run("MIDI.GET k"), Value::bulk("v"));
}

#[test]
fn without_the_module() {
    let mut server = saved();
    let line = server.config_file();
    let line = line.lines().find(|line| line.starts_with("loadmodule")).expect("it loads midi");
    server.reconfigure(line, "");
    let (code, log) = server.restart_in_vain();
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("no matching module 'midi-keys'"), "{log}");
}

/// The same with a file that was saved while midi had no keys. Redis 7.0 cannot leave out the
/// section.
#[test]
fn without_the_module_and_without_keys() {
    let mut server = saved();
    server.restart(redis_server());
    let mut client = server.client();
    client.run("MIDI.DEL needle");
    client.ok("SET native v");
    client.ok("SAVE");
    server.kill_hard();
    let line = server.config_file();
    let line = line.lines().find(|line| line.starts_with("loadmodule")).expect("it loads midi");
    server.reconfigure(line, "");
    if host().is_newer() {
        server.restart(redis_server());
        assert_eq!(server.client().run("GET native"), Value::bulk("v"));
    } else {
        assert_eq!(server.restart_in_vain().0, Some(1));
    }
}
