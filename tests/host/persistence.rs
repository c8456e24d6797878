//! The promise: midi's keys are in the host's RDB, however it is saved, and come back from it as
//! they were.

use std::fs;

use crate::common::clock::Clock;
use crate::common::{
    Builder, Client, Mode, Server, Value, in_all_modes, now_ms, redis_server, wait_until,
};

/// Keys of all kinds in three databases.
pub fn fill(client: &mut Client) {
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

/// Database, name, value, expiry, encoding.
type Entry = (u32, Vec<u8>, Value, i64, Value);

/// The content of the keyspace: name, value, expiry, encoding, by database.
pub fn contents(client: &mut Client) -> Vec<Entry> {
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

/// A server with these load arguments and the keys of [`fill`].
pub fn filled(load: &str) -> (Server, Vec<Entry>) {
    let server = Builder::new().load(load).start();
    let mut client = server.client();
    fill(&mut client);
    let contents = contents(&mut client);
    assert_eq!(contents.len(), 1010);
    (server, contents)
}

/// Waits until no child saves, and checks that the last one has succeeded.
pub fn wait_for_save(client: &mut Client) {
    wait_until("the save is done", || {
        client.info_number("persistence", "rdb_bgsave_in_progress") == 0
    });
    assert_eq!(client.info("persistence")["rdb_last_bgsave_status"], "ok");
}

/// Saves come back after a crash: `save` has a file written that has all.
fn survives_a_crash(load: &str, save: impl Fn(&mut Client)) {
    let (mut server, before) = filled(load);
    save(&mut server.client());
    server.kill_hard();
    server.restart(redis_server());
    let mut client = server.client();
    assert_eq!(contents(&mut client), before, "{load}");
    assert_eq!(client.info_number("midi_persistence", "midi_last_load_keys"), 1010);
}

#[test]
fn save() {
    for mode in Mode::tried() {
        survives_a_crash(&format!("threads 2 {}", mode.arguments()), |client| client.ok("SAVE"));
    }
}

#[test]
fn bgsave() {
    for mode in Mode::tried() {
        survives_a_crash(&format!("threads 2 {}", mode.arguments()), |client| {
            client.run("BGSAVE");
            wait_for_save(client);
            assert_eq!(client.info_number("midi_persistence", "midi_last_save_keys"), 1010);
            assert!(client.info_number("midi_persistence", "midi_last_save_bytes") > 300_000);
            assert!(client.info_number("midi_persistence", "midi_last_save_time") > 0);
            assert_eq!(client.info("midi_persistence")["midi_last_save_status"], "ok");
        });
    }
}

#[test]
fn without_compression_and_checksum() {
    survives_a_crash("threads 2", |client| {
        client.ok("CONFIG SET rdbcompression no");
        client.ok("SAVE");
    });
    let (mut server, before) = filled("threads 2");
    server.reconfigure("appendonly no", "appendonly no\nrdbchecksum no\nrdbcompression no");
    server.client().call(&["CONFIG", "SET", "save", "3600 1"]);
    server.restart(redis_server());
    server.restart(redis_server());
    assert_eq!(contents(&mut server.client()), before);
}

#[test]
fn shutdown_save() {
    let (mut server, before) = filled("threads 2");
    server.client().send_line("SHUTDOWN SAVE");
    server.wait_for_exit();
    server.restart(redis_server());
    assert_eq!(contents(&mut server.client()), before);
}

#[test]
fn sigterm_with_save_points() {
    let (mut server, before) = filled("threads 2");
    server.client().call(&["CONFIG", "SET", "save", "3600 1"]);
    server.restart(redis_server());
    assert_eq!(contents(&mut server.client()), before);
}

/// A SHUTDOWN that cannot save does not end the server, and midi's writes work again.
#[test]
fn a_shutdown_that_fails() {
    for mode in Mode::tried() {
        let server = mode.builder().config("enable-protected-configs yes").start();
        let mut client = server.client();
        client.ok("MIDI.SET k v");
        let gone = server.dir().join("gone");
        fs::create_dir(&gone).expect("make it");
        client.ok(&format!("CONFIG SET dir {}", gone.display()));
        fs::remove_dir(&gone).expect("remove it");
        assert!(client.run("SHUTDOWN SAVE").is_error());
        client.ok("MIDI.SET k w");
        assert_eq!(client.run("MIDI.GET k"), Value::bulk("w"));
        client.ok(&format!("CONFIG SET dir {}", server.dir().display()));
        client.ok("SAVE");
    }
}

#[test]
fn debug_reload() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        fill(&mut client);
        let before = contents(&mut client);
        client.ok("DEBUG RELOAD");
        assert_eq!(contents(&mut client), before);
        client.ok("MIDI.SET a changed");
        client.ok("MIDI.SET new 1");
        client.ok("DEBUG RELOAD NOSAVE");
        assert_eq!(contents(&mut client), before);
    });
}

/// Keys that exist are refused, as the host refuses its own (which ends the host); with MERGE they
/// are replaced.
#[test]
fn debug_reload_beside_what_is_there() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("MIDI.MSET a 1 b 2");
        client.ok("SAVE");
        client.ok("MIDI.SET b changed");
        client.ok("MIDI.SET c 3");
        assert!(client.run("DEBUG RELOAD NOSAVE NOFLUSH").is_error());
        assert!(server.log().contains("it has keys that exist already"));
        let get = |client: &mut Client| client.run("MIDI.MGET a b c").array();
        assert_eq!(get(&mut client), ["1", "changed", "3"].map(Value::bulk));
        client.ok("DEBUG RELOAD NOSAVE NOFLUSH MERGE");
        assert_eq!(get(&mut client), ["1", "2", "3"].map(Value::bulk));
        assert_eq!(client.integer("MIDI.DBSIZE"), 3);
        assert_eq!(client.integer("MIDI.DEL a b"), 2);
        client.ok("DEBUG RELOAD NOSAVE NOFLUSH MERGE");
        assert_eq!(get(&mut client), ["1", "2", "3"].map(Value::bulk));
        assert_eq!(client.integer("MIDI.DEL a b"), 2);
        client.ok("DEBUG RELOAD NOSAVE NOFLUSH");
        assert_eq!(get(&mut client), ["1", "2", "3"].map(Value::bulk), "no key was there");
        client.ok("MIDI.SET a works");
    });
}

/// Watched keys on both doors, and the caches of tracking clients.
#[test]
fn debug_reload_is_a_change() {
    for mode in Mode::with_jobs() {
        let server = mode.builder().with_port().start();
        let mut client = server.client();
        client.ok("MIDI.SET k v");
        let mut tracker = server.client().resp3();
        tracker.ok("CLIENT TRACKING ON");
        tracker.run("MIDI.GET k");
        let mut watchers = [server.client(), server.midi_client()];
        for watcher in &mut watchers {
            watcher.ok("WATCH k");
        }
        client.ok("DEBUG RELOAD");
        for watcher in &mut watchers {
            watcher.ok("MULTI");
            watcher.run("PING");
            assert!(watcher.run("EXEC").is_null(), "{mode:?}");
        }
        let Value::Push(message) = tracker.read() else { panic!("no invalidation") };
        assert_eq!(message[0], Value::bulk("invalidate"));
        assert_eq!(message[1], Value::Array(vec![Value::bulk("k")]));
    }
}

#[test]
fn flushall_with_save_points() {
    let (mut server, _) = filled("threads 2");
    let mut client = server.client();
    client.call(&["CONFIG", "SET", "save", "3600 1000000"]);
    client.ok("SAVE");
    client.ok("FLUSHALL");
    assert_eq!(client.info_number("midi_persistence", "midi_last_save_keys"), 0);
    client.ok("MIDI.SET k v");
    client.ok("SELECT 15");
    client.ok("MIDI.SET k v");
    server.kill_hard();
    server.restart(redis_server());
    assert_eq!(contents(&mut server.client()), []);
}

/// Due keys are saved and loaded (a clock that is wrong for a moment costs no key), hidden from the
/// start, and removed.
#[test]
fn expired_keys() {
    let clock = Clock::new();
    let mut server = clock.of(Mode::Adaptive.builder()).start();
    let mut client = server.client();
    let due = now_ms() + 100_000;
    client.ok(&format!("MIDI.SET due v PXAT {due}"));
    client.ok("MIDI.SET lasting v");
    client.ok("SAVE");
    server.kill_hard();
    clock.pass(100_001);
    server.restart(redis_server());
    let mut client = server.client();
    assert!(client.run("MIDI.GET due").is_null());
    assert_eq!(client.info_number("midi_persistence", "midi_last_load_keys"), 2);
    assert_eq!(client.run("MIDI.GET lasting"), Value::bulk("v"));
    wait_until("it is removed", || client.integer("MIDI.DBSIZE") == 1);
    assert_eq!(client.info_number("midi_expiry", "midi_expired_keys"), 1);
}

#[test]
fn other_shards_workers_and_databases() {
    let (mut server, before) = filled("threads 2 shards 64");
    server.client().ok("SAVE");
    let mut now = "threads 2 shards 64".to_owned();
    for next in ["threads 1 shards 1", "threads 5 shards 4096", "threads 2 shards 64 SAFEMODE"] {
        server.kill_hard();
        server.reconfigure(&now, next);
        now = next.to_owned();
        server.restart(redis_server());
        let mut client = server.client();
        assert_eq!(contents(&mut client), before, "{next}");
        client.ok("SAVE");
    }
    server.kill_hard();
    server.reconfigure("appendonly no", "appendonly no\ndatabases 100");
    server.restart(redis_server());
    assert_eq!(contents(&mut server.client()), before);
}

/// As with the host's own keys.
#[test]
fn fewer_databases_than_the_file_needs() {
    let mut server = Mode::Adaptive.server();
    let mut client = server.client();
    client.ok("SELECT 9");
    client.ok("MIDI.SET k v");
    client.ok("SAVE");
    server.kill_hard();
    server.reconfigure("appendonly no", "appendonly no\ndatabases 9");
    let (code, log) = server.restart_in_vain();
    assert_eq!(code, Some(1));
    assert!(log.contains("needs 10 databases, and there are 9"), "{log}");
    server.reconfigure("databases 9", "databases 10");
    server.restart(redis_server());
    let mut client = server.client();
    client.ok("SELECT 9");
    assert_eq!(client.run("MIDI.GET k"), Value::bulk("v"));
}
