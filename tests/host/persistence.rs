//! The promise: midi's keys are in the host's RDB, however it is saved, and come back from it.

use crate::common::{Builder, Client, Server, Value, redis_server, wait_until};

/// Keys of all kinds in three databases.
fn fill(client: &mut Client) {
    client.ok("MIDI.MSET a 1 b two empty '' c 3.5");
    client.ok("MIDI.SET lasting v EX 10000");
    client.integer("MIDI.APPEND edited abc");
    client.run("MIDI.INCRBYFLOAT float 1.5");
    let large = vec![b'x'; 300_000];
    assert_eq!(client.call(&[b"MIDI.SET".as_slice(), b"large", &large]), Value::ok());
    assert_eq!(client.call(&[b"MIDI.SET".as_slice(), b"\0\xff\n", b"\r\n\0"]), Value::ok());
    client.ok("SELECT 1");
    client.ok("MIDI.POPULATE 1000 key 20");
    client.ok("SELECT 15");
    client.ok("MIDI.SET last db15");
    client.ok("SET native 1");
    client.ok("SELECT 0");
}

/// What the keyspace holds: name, value, expiry, encoding, by database.
fn contents(client: &mut Client) -> Vec<(u32, Vec<u8>, Value, i64, Value)> {
    let mut all = Vec::new();
    for db in 0..16 {
        client.ok(&format!("SELECT {db}"));
        let mut keys: Vec<_> =
            client.run("MIDI.KEYS *").array().iter().map(|key| key.bytes().to_vec()).collect();
        keys.sort();
        for key in keys {
            let value = client.call(&[b"MIDI.GET".as_slice(), &key]);
            let expiry = client.call(&[b"MIDI.PEXPIRETIME".as_slice(), &key]).integer();
            let encoding = client.call(&[b"MIDI.OBJECT".as_slice(), b"ENCODING", &key]);
            all.push((db, key, value, expiry, encoding));
        }
    }
    client.ok("SELECT 0");
    all
}

fn filled(load: &str) -> (Server, Vec<(u32, Vec<u8>, Value, i64, Value)>) {
    let server = Builder::new().load(load).start();
    let mut client = server.client();
    fill(&mut client);
    let contents = contents(&mut client);
    assert_eq!(contents.len(), 1010);
    (server, contents)
}

fn wait_for_save(client: &mut Client) {
    wait_until("the save is done", || {
        client.info_number("persistence", "rdb_bgsave_in_progress") == 0
    });
    assert_eq!(client.info("persistence")["rdb_last_bgsave_status"], "ok");
}

#[test]
fn save_and_restart() {
    let (mut server, before) = filled("threads 2");
    server.client().ok("SAVE");
    server.kill_hard();
    server.restart(redis_server());
    assert_eq!(contents(&mut server.client()), before);
}

#[test]
fn bgsave_and_restart() {
    let (mut server, before) = filled("threads 2");
    let mut client = server.client();
    client.run("BGSAVE");
    wait_for_save(&mut client);
    assert_eq!(client.info_number("midi_persistence", "midi_last_save_keys"), 1010);
    server.kill_hard();
    server.restart(redis_server());
    assert_eq!(contents(&mut server.client()), before);
}

#[test]
fn debug_reload() {
    let (server, before) = filled("threads 3");
    let mut client = server.client();
    client.ok("DEBUG RELOAD");
    assert_eq!(contents(&mut client), before);
    client.ok("MIDI.SET a changed");
    client.ok("DEBUG RELOAD NOSAVE");
    assert_eq!(contents(&mut client), before);
}
