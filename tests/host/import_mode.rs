//! The promise: while Valkey is in `import-mode`, midi's keys do not expire, and a client that has
//! said CLIENT IMPORT-SOURCE ON sees those whose expiry has passed, as the host's own keys. So an
//! import that replays another server's commands loses nothing. And DEBUG SET-ACTIVE-EXPIRE is
//! obeyed, if the host obeys it.

use std::time::{Duration, Instant};

use crate::common::{Client, Door, Mode, Server, Value, aof, skip, wait_until, words};

/// Whether the host has an import mode.
fn imports(server: &Server) -> bool {
    let has = !server.client().run("CONFIG GET import-mode").map().is_empty();
    if !has {
        skip("this host has no import-mode: Valkey has it from 8.1 on");
    }
    has
}

fn run(client: &mut Client, door: Door, line: &str) -> Value {
    client.call(&door.named(&words(line)))
}

/// The commands of an import, of keys that expire meanwhile; and its replies, which are those of
/// the host's own commands.
const IMPORT: [&str; 32] = [
    "SET k v PXAT 1",
    "GET k",
    "TTL k",
    "PERSIST k",
    "PTTL k",
    "SET k 5",
    "PEXPIREAT k 1000",
    "INCR k",
    "PEXPIRETIME k",
    "EXPIREAT k -5",
    "PEXPIRETIME k",
    "APPEND k x",
    "GETEX k PXAT 2",
    "KEYS *",
    "SCAN 0 COUNT 1000",
    "RANDOMKEY",
    "EXISTS k nosuch",
    "TYPE k",
    "STRLEN k",
    "RENAME k l",
    "COPY l k",
    "MGET k l nosuch",
    "SET k new XX KEEPTTL",
    "PEXPIRETIME k",
    "SETBIT l 3 1",
    "DEL l",
    "DBSIZE",
    "MSETNX k other n other",
    "EXPIRE k -1",
    "EXISTS k",
    "PERSIST k",
    "GET k",
];

#[test]
fn an_import_loses_no_keys() {
    for mode in Mode::tried() {
        for aof in ["no", "yes"] {
            let builder = mode.builder().with_port().config(format!("appendonly {aof}"));
            let mut server = builder.config("appendfsync always").start();
            if !imports(&server) {
                return;
            }
            let mut admin = server.client();
            admin.ok("CONFIG SET import-mode yes");
            let mut native = server.client();
            native.ok("CLIENT IMPORT-SOURCE ON");
            for in_multi in [false, true] {
                let replies: Vec<Value> = IMPORT.map(|line| native.run(line)).to_vec();
                for door in Door::ALL {
                    let mut midi = door.client(&server);
                    midi.ok("CLIENT IMPORT-SOURCE ON");
                    for (line, expected) in IMPORT.iter().zip(&replies) {
                        let reply = if in_multi {
                            midi.ok("MULTI");
                            run(&mut midi, door, line);
                            midi.run("EXEC").array().remove(0)
                        } else {
                            run(&mut midi, door, line)
                        };
                        assert_eq!(&reply, expected, "{mode:?}, {door:?}, {in_multi}: {line}");
                    }
                    admin.ok("MIDI.FLUSHALL");
                }
                native.ok("FLUSHALL");
            }
            if aof == "yes" {
                let mut client = server.client();
                client.ok("CLIENT IMPORT-SOURCE ON");
                client.ok("MIDI.SET k v PXAT 1");
                client.ok("MIDI.SET l v PXAT 1");
                assert_eq!(client.integer("MIDI.PERSIST l"), 1);
                // A replay would see both sources.
                client.ok(&format!("MIDI.SET hidden {} PXAT 1", "a".repeat(200)));
                let seen = "b".repeat(200);
                admin.ok(&format!("MIDI.SET seen {seen}"));
                assert_eq!(admin.integer("MIDI.BITOP OR result seen hidden"), 200);
                let mut client = aof::crash(&mut server);
                assert_eq!(client.run("MIDI.GET result"), Value::bulk(&seen));
                assert_eq!(client.run("MIDI.GET l"), Value::bulk("v"));
                assert_eq!(client.integer("MIDI.EXISTS k"), 0);
            }
        }
    }
}

#[test]
fn only_a_source_sees_what_has_expired() {
    for mode in Mode::tried() {
        let server = mode.builder().with_port().start();
        if !imports(&server) {
            return;
        }
        let mut admin = server.client();
        let not_importing = Value::error("ERR Server is not in import mode");
        for door in Door::ALL {
            let mut client = door.client(&server);
            assert_eq!(client.run("CLIENT IMPORT-SOURCE ON"), not_importing, "{door:?}");
            assert_eq!(client.run("CLIENT IMPORT-SOURCE nonsense"), not_importing, "{door:?}");
            client.ok("CLIENT IMPORT-SOURCE OFF");

            admin.ok("CONFIG SET import-mode yes");
            assert_eq!(
                client.run("CLIENT IMPORT-SOURCE nonsense"),
                Value::error("ERR syntax error")
            );
            let mut other = door.client(&server);
            assert_eq!(run(&mut other, door, "SET k v PXAT 1"), Value::ok());
            let is = |client: &mut Client, sees: bool, when: &str| {
                let reply = run(client, door, "EXISTS k");
                assert_eq!(reply, Value::Integer(sees.into()), "{mode:?}, {door:?}: {when}");
                let line = client.run("CLIENT LIST").text();
                let own = format!("id={} ", client.integer("CLIENT ID"));
                let line = line.lines().find(|line| line.starts_with(&own)).expect("its line");
                assert_eq!(line.contains(" flags=I "), sees, "{line}");
            };
            is(&mut client, false, "before");
            client.ok("CLIENT IMPORT-SOURCE ON");
            is(&mut client, true, "a source");
            is(&mut other, false, "another client");
            // It counts as empty there, and stays.
            assert_eq!(run(&mut other, door, "SET there a"), Value::ok());
            assert_eq!(run(&mut other, door, "BITOP OR there there k"), Value::Integer(1));
            assert_eq!(run(&mut other, door, "DEL there"), Value::Integer(1));
            is(&mut client, true, "after BITOP");
            client.ok("CLIENT IMPORT-SOURCE OFF");
            is(&mut client, false, "no source any more");
            client.ok("MULTI");
            client.run("CLIENT IMPORT-SOURCE ON");
            client.run("EXEC");
            is(&mut client, true, "from a transaction");
            client.run("RESET");
            is(&mut client, false, "after RESET");
            // It stays, although nobody sees it, until the import has ended.
            assert_eq!(run(&mut other, door, "DBSIZE"), Value::Integer(1));
            admin.ok("CONFIG SET import-mode no");
            wait_until("the key expires", || admin.integer("MIDI.DBSIZE") == 0);
        }
    }
}

#[test]
fn due_keys_wait_for_the_end_of_the_import() {
    for aof in ["no", "yes"] {
        let builder = Mode::Adaptive.builder().with_port().config(format!("appendonly {aof}"));
        let server = builder.start();
        if !imports(&server) {
            return;
        }
        let mut client = server.client();
        client.ok("CONFIG SET import-mode yes");
        for number in 0..100 {
            client.ok(&format!("MIDI.SET k{number} v PX 1"));
        }
        stays(&mut client, 100);
        let mut port = server.midi_client();
        for number in 0..100 {
            assert!(port.run(&format!("GET k{number}")).is_null(), "hidden, to all but a source");
        }
        assert_eq!(client.integer("MIDI.DBSIZE"), 100);
        client.ok("CONFIG SET import-mode no");
        wait_until("all keys expire", || client.integer("MIDI.DBSIZE") == 0);
    }
}

/// Several rounds of expiry come and go, and there are as many keys as before.
fn stays(client: &mut Client, keys: i64) {
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(500) {
        assert_eq!(client.integer("MIDI.DBSIZE"), keys);
    }
}

#[test]
fn debug_set_active_expire_is_obeyed() {
    for mode in Mode::tried() {
        let builder = mode.builder().with_port().config("enable-debug-command yes");
        let server = builder.start();
        let mut client = server.client();
        client.ok("DEBUG SET-ACTIVE-EXPIRE 0");
        for number in 0..10 {
            client.ok(&format!("MIDI.SET k{number} v PX 1"));
        }
        stays(&mut client, 10);
        // A command that meets such a key removes it, as on the host.
        assert!(client.run("MIDI.GET k1").is_null());
        client.ok("DEBUG SET-ACTIVE-EXPIRE 1");
        wait_until("all keys expire", || client.integer("MIDI.DBSIZE") == 0);

        // A client without the right changes nothing, nor does a command that the host refuses.
        client.ok("ACL SETUSER weak on nopass ~* +@all -debug");
        let mut weak = server.client();
        weak.ok("AUTH weak x");
        assert!(weak.run("DEBUG SET-ACTIVE-EXPIRE 0").is_error());
        assert!(client.run("DEBUG SET-ACTIVE-EXPIRE 0 0").is_error());
        client.ok("MIDI.SET k v PX 1");
        wait_until("the key expires", || client.integer("MIDI.DBSIZE") == 0);

        // One in an EXEC before it changes nothing.
        client.ok("MULTI");
        client.run("DEBUG SET-ACTIVE-EXPIRE 1");
        client.run("EXEC");
        client.ok("DEBUG SET-ACTIVE-EXPIRE 0");
        client.ok("MIDI.SET k v PX 1");
        stays(&mut client, 1);
    }
}

/// The host evicts nothing while it imports: writes are refused instead.
#[test]
fn an_import_evicts_nothing() {
    let limit = "maxmemory 2mb maxmemory-policy allkeys-lru";
    let server = Mode::Adaptive.builder().with_port().load(limit).start();
    if !imports(&server) {
        return;
    }
    let mut admin = server.client();
    admin.ok("CONFIG SET import-mode yes");
    let value = "v".repeat(1000);
    for door in Door::ALL {
        let mut client = door.client(&server);
        let mut set = |key: usize| client.call(&door.named(&["SET", &format!("k:{key}"), &value]));
        let refused = (0..4000).map(&mut set).find(Value::is_error).expect("it is full");
        assert!(refused.text().starts_with("OOM "), "{door:?}: {refused:?}");
    }
    // Nor for the limit of a database.
    admin.ok("CONFIG SET midi.maxmemory 0");
    admin.call(&["CONFIG", "SET", "midi.db-maxmemory", "1:1mb"]);
    admin.ok("CONFIG SET midi.db-maxmemory-policy 1:allkeys-lru");
    let mut client = server.midi_client();
    client.ok("SELECT 1");
    let mut set = |key: usize| client.call(&["SET", &format!("k:{key}"), &value]);
    assert!((0..2000).map(&mut set).any(|reply| reply.is_error()));
    assert_eq!(admin.info_number("midi_memory", "midi_evicted_keys"), 0);
    admin.ok("CONFIG SET midi.maxmemory 2mb");
    admin.ok("CONFIG SET import-mode no");
    assert_eq!(admin.call(&["MIDI.SET", "more", &value]), Value::ok());
    wait_until("it evicts again", || admin.info_number("midi_memory", "midi_evicted_keys") > 0);
}
