//! The promise: a save that fails harms nobody. The server serves on, the failure is counted, and
//! the next save works. Clients do not notice that a child lives.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use super::persistence::wait_for_save;
use crate::common::{Builder, Client, Mode, Server, Value, redis_server, wait_until};

/// A number of midi's INFO about saves.
fn number(client: &mut Client, field: &str) -> i64 {
    client.info_number("midi_persistence", &format!("midi_{field}"))
}

fn last_status(client: &mut Client) -> String {
    client.info("midi_persistence")["midi_last_save_status"].clone()
}

/// Starts a child whose save takes long: the host waits at each of its own keys.
fn long_save(server: &Server) -> i32 {
    let mut client = server.client();
    client.ok("DEBUG POPULATE 100");
    client.ok("CONFIG SET rdb-key-save-delay 1000000");
    assert!(!client.run("BGSAVE").is_error());
    client.ok("CONFIG SET rdb-key-save-delay 0");
    let child = server.children()[0];
    let file = server.dir().join(format!("temp-{child}.rdb"));
    wait_until("the child writes", || file.exists());
    child
}

fn kill(pid: i32) {
    // SAFETY: a signal to a child of our own server, which is listed as its child.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

#[test]
fn a_child_that_is_killed() {
    for mode in Mode::tried() {
        let server = mode.builder().with_port().start();
        let (mut client, mut port) = (server.client(), server.midi_client());
        client.ok("MIDI.POPULATE 10000");
        client.ok("CONFIG SET stop-writes-on-bgsave-error no");
        let child = long_save(&server);
        assert_eq!(port.run("MIDI.GET key:7"), Value::bulk("value:7"));
        port.ok("SET beside 1");
        client.ok("MIDI.SET beside 2");
        kill(child);
        wait_until("it is noticed", || number(&mut client, "failed_saves") == 1);
        assert_eq!(last_status(&mut client), "err", "{mode:?}");
        assert_eq!(number(&mut client, "last_save_time"), 0);
        port.ok("SET after 1");
        // The host counts its saves from 0 then, and midi looks now and then.
        client.ok("CONFIG RESETSTAT");
        std::thread::sleep(std::time::Duration::from_millis(1500));
        client.run("BGSAVE");
        wait_for_save(&mut client);
        assert_eq!(last_status(&mut client), "ok", "{mode:?}");
        assert_eq!(number(&mut client, "last_save_keys"), 10_002);
        assert_eq!(number(&mut client, "failed_saves"), 1);
    }
}

/// A sync of a replica without a file is no save: neither one that works nor one that fails.
#[test]
fn a_sync_is_no_save() {
    let master = Mode::Adaptive.builder().config("repl-diskless-sync-delay 0").start();
    let mut client = master.client();
    client.ok("MIDI.SET k v");
    client.ok("CONFIG SET stop-writes-on-bgsave-error no");
    kill(long_save(&master));
    wait_until("it is noticed", || number(&mut client, "failed_saves") == 1);
    let replica = Mode::Adaptive.server();
    replica.client().ok(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    wait_until("it follows", || replica.client().run("MIDI.GET k") == Value::bulk("v"));
    wait_until("the child has gone", || master.children().is_empty());
    assert_eq!(number(&mut client, "failed_saves"), 1);
    assert_eq!(
        (number(&mut client, "last_save_time"), last_status(&mut client)),
        (0, "err".into())
    );
}

/// A limit on the size of files stands in for a full disk. The signal that comes with it is
/// ignored, as nothing sends one if a disk is full.
#[test]
fn a_disk_that_fills() {
    let script = std::env::temp_dir().join(format!("midi-no-xfsz-{}", std::process::id()));
    let mut file = std::fs::File::create(&script).expect("make the script");
    let text = format!("#!/bin/sh\ntrap '' XFSZ\nexec {} \"$@\"\n", redis_server().display());
    file.write_all(text.as_bytes()).expect("write the script");
    file.set_permissions(PermissionsExt::from_mode(0o755)).expect("make it executable");
    drop(file);
    let mut server = Builder::new().binary(&script).load("threads 2").with_port().start();
    let (mut client, mut port) = (server.client(), server.midi_client());
    client.ok("CONFIG SET stop-writes-on-bgsave-error no");
    client.ok("MIDI.MSET a 1 b 2");
    client.ok("SAVE");
    client.ok("MIDI.POPULATE 50000 k 100");
    client.ok("CONFIG SET rdbcompression no");
    server.limit_files(Some(1 << 20));
    client.run("BGSAVE");
    wait_until("it is noticed", || number(&mut client, "failed_saves") == 1);
    assert_eq!(last_status(&mut client), "err");
    assert!(client.run("SAVE").is_error());
    assert_eq!(number(&mut client, "failed_saves"), 2);
    port.ok("SET a changed");
    client.ok("MIDI.SET b changed");
    assert_eq!(number(&mut client, "last_save_keys"), 2);
    server.limit_files(None);
    client.run("BGSAVE");
    wait_for_save(&mut client);
    assert_eq!(last_status(&mut client), "ok");
    assert_eq!(number(&mut client, "last_save_keys"), 50_002);
    server.kill_hard();
    server.restart(redis_server());
    assert_eq!(server.client().integer("MIDI.DBSIZE"), 50_002);
    std::fs::remove_file(script).expect("remove the script");
}

/// After a failed save the host refuses writes, where its settings say so, and midi with it.
#[test]
fn writes_after_a_failed_save() {
    let server = Mode::Adaptive.builder().with_port().config("save 3600 1000000").start();
    let (mut client, mut port) = (server.client(), server.midi_client());
    client.ok("MIDI.SET k v");
    kill(long_save(&server));
    wait_until("it is noticed", || number(&mut client, "failed_saves") == 1);
    for door in [&mut client, &mut port] {
        let reply = door.run("MIDI.SET k w");
        assert!(
            reply.is_error() && reply.text().contains("is configured to save RDB"),
            "{reply:?}"
        );
        assert_eq!(door.run("MIDI.GET k"), Value::bulk("v"));
    }
    client.run("BGSAVE");
    wait_for_save(&mut client);
    client.ok("MIDI.SET k w");
    wait_until("the port knows it, too", || port.run("SET k w") == Value::ok());
}

/// The child has copies of all descriptors.
#[test]
fn connections_end_while_a_child_lives() {
    let server = Mode::Adaptive.builder().with_port().start();
    let (mut host, mut first, mut second) =
        (server.client(), server.midi_client(), server.midi_client());
    let (id, _) = (first.id(), second.id());
    let child = long_save(&server);
    assert_eq!(second.run("QUIT"), Value::ok());
    assert!(second.is_closed());
    let mut third = server.midi_client();
    assert!(!third.run(&format!("CLIENT KILL ID {id}")).is_error());
    assert!(first.is_closed());
    assert_eq!(host.info_number("persistence", "rdb_bgsave_in_progress"), 1);
    kill(child);
    wait_until("it is noticed", || number(&mut host, "failed_saves") == 1);
}

/// A child does not keep the port's address when its server is killed.
#[test]
fn a_server_starts_again_beside_an_old_child() {
    let mut server = Mode::Adaptive.builder().with_port().start();
    let child = long_save(&server);
    server.kill_hard();
    server.restart(redis_server());
    let mut port = server.midi_client();
    port.ok("SET k v");
    assert_eq!(port.run("GET k"), Value::bulk("v"));
    kill(child);
}
