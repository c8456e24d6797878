//! The promise: the base of an AOF is an RDB, and has midi's keys. What was acknowledged before
//! the AOF was on is in it; what comes later is refused.

use super::persistence::{contents, fill};
use crate::common::{Builder, Client, Mode, Server, Value, at_once, redis_server, wait_until};

fn wait_for_base(server: &Server) {
    let manifest = server.dir().join("appendonlydir/appendonly.aof.manifest");
    wait_until("the AOF has a base", || {
        std::fs::read_to_string(&manifest).is_ok_and(|text| text.contains(" type b"))
    });
}

/// Turns AOF on for good.
pub fn turn_on(server: &Server, client: &mut Client) {
    client.ok("CONFIG SET appendonly yes");
    client.ok("CONFIG REWRITE");
    wait_for_base(server);
}

/// A client of the server after kill -9 and a new start.
fn restarted(server: &mut Server) -> Client {
    server.kill_hard();
    server.restart(redis_server());
    server.client()
}

/// Under load on the port: each write is there after a restart, or was refused.
#[test]
fn turned_on_under_load() {
    for child in [false, true] {
        let mut server = Mode::Adaptive.builder().with_port().start();
        let mut client = server.client();
        client.ok("MIDI.POPULATE 20000 p 100");
        if child {
            // The rewrite waits until another child has ended.
            client.ok("DEBUG POPULATE 20");
            client.ok("CONFIG SET rdb-key-save-delay 20000");
            client.run("BGSAVE");
        }
        let acknowledged = std::sync::Mutex::new(Vec::new());
        at_once(4, |number| {
            if number == 0 {
                std::thread::sleep(std::time::Duration::from_millis(50));
                server.client().ok("CONFIG SET appendonly yes");
                return;
            }
            let mut port = server.midi_client();
            for round in 0.. {
                let reply = port.run(&format!("SET w:{number} {round}"));
                if reply != Value::ok() {
                    assert!(reply.text().starts_with("MISCONF midi does not"), "{reply:?}");
                    acknowledged.lock().expect("no panic").push((number, round - 1));
                    return;
                }
            }
        });
        client.ok("CONFIG REWRITE");
        client.ok("CONFIG SET rdb-key-save-delay 0");
        wait_for_base(&server);
        server.kill_hard();
        server.restart(redis_server());
        let mut client = server.client();
        for (number, last) in acknowledged.into_inner().expect("no panic") {
            assert!(last > 0);
            let value = client.run(&format!("MIDI.GET w:{number}"));
            assert_eq!(value, Value::bulk(last.to_string()), "another child: {child}");
        }
        assert_eq!(client.integer("MIDI.DBSIZE"), 20_003);
        assert!(client.run("MIDI.SET k v").is_error());
        client.ok("CONFIG SET appendonly no");
        wait_until("writes work", || client.run("MIDI.SET k v") == Value::ok());
    }
}

/// All kinds of keys, and the host's own writes behind the base.
#[test]
fn the_base_and_what_follows() {
    let mut server = Mode::Adaptive.server();
    let mut client = server.client();
    fill(&mut client);
    let mut before = contents(&mut client);
    turn_on(&server, &mut client);
    client.ok("SET native v");
    // The host's FLUSHDB acts on midi's keys, too, also when the AOF is loaded.
    client.ok("SELECT 1");
    client.ok("FLUSHDB");
    before.retain(|entry| entry.0 != 1);
    let mut client = restarted(&mut server);
    assert_eq!(contents(&mut client), before);
    assert_eq!(client.run("GET native"), Value::bulk("v"));
}

/// As in stock: a server with AOF on does not load its RDB.
#[test]
fn the_rdb_is_not_loaded_with_aof_on() {
    let mut server = Mode::Adaptive.server();
    let mut client = server.client();
    client.ok("MIDI.SET k v");
    client.ok("SET k v");
    client.ok("SAVE");
    server.kill_hard();
    server.reconfigure("appendonly no", "appendonly yes");
    server.restart(redis_server());
    let mut client = server.client();
    assert_eq!((client.integer("MIDI.DBSIZE"), client.integer("DBSIZE")), (0, 0));
    // The way over: load it without, then turn AOF on.
    server.kill_hard();
    std::fs::remove_dir_all(server.dir().join("appendonlydir")).expect("remove the empty AOF");
    server.reconfigure("appendonly yes", "appendonly no");
    server.restart(redis_server());
    let mut client = server.client();
    turn_on(&server, &mut client);
    let mut client = restarted(&mut server);
    assert_eq!((client.integer("MIDI.DBSIZE"), client.integer("DBSIZE")), (1, 1));
}

/// A base in the form of commands has no room for a module's data.
#[test]
fn a_base_without_rdb_has_no_keys_of_midi() {
    let mut server = Builder::new().load("threads 2").config("aof-use-rdb-preamble no").start();
    let mut client = server.client();
    client.ok("MIDI.SET k v");
    client.ok("SET k v");
    turn_on(&server, &mut client);
    let mut client = restarted(&mut server);
    assert_eq!((client.integer("MIDI.DBSIZE"), client.integer("DBSIZE")), (0, 1));
}
