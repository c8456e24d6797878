//! The promise: while the host loads data, midi's ports answer LOADING, and INFO shows progress.
//! While it saves without a fork, they answer reads, and writes wait.

use std::time::Duration;

use crate::common::{Builder, Client, Mode, Server, Value, redis_server, wait_until};

const LOADING: &str = "LOADING Redis is loading the dataset in memory";

/// Has some keys of the host's own, at each of which it waits when it loads or saves.
fn slow_keys(client: &mut Client) {
    client.ok("DEBUG POPULATE 40 native 3000");
}

#[test]
fn ports_answer_loading() {
    for mode in Mode::tried() {
        let mut server = mode
            .builder()
            .with_port()
            .config("loading-process-events-interval-bytes 1024")
            .config("rdbcompression no")
            .config("save 3600 1")
            .start();
        let mut client = server.client();
        slow_keys(&mut client);
        client.ok("MIDI.SET k v");
        server.reconfigure("appendonly no", "appendonly no\nkey-load-delay 50000");
        server.begin_restart(redis_server());
        let mut port = None;
        wait_until("the port is open", || {
            port = Client::connect(server.midi_port()).ok();
            port.is_some()
        });
        let mut port = port.expect("it is open");
        for line in ["GET k", "SET k w", "KEYS *"] {
            assert_eq!(port.run(line), Value::error(LOADING), "{mode:?}: {line}");
        }
        let mut host = server.client();
        assert_eq!(host.info_number("persistence", "loading"), 1);
        assert_eq!(host.info_number("midi_persistence", "midi_last_load_keys"), 1);
        assert!(host.run("MIDI.GET k").text().starts_with("LOADING "));
        wait_until("it is loaded", || port.run("GET k") == Value::bulk("v"));
        port.ok("SET k w");
    }
}

#[test]
fn progress_of_loading() {
    let server = Builder::new()
        .load("threads 2")
        .config("loading-process-events-interval-bytes 1024")
        .start();
    let (mut client, mut watcher) = (server.client(), server.client());
    client.ok("MIDI.POPULATE 300000 key 200");
    client.send_line("DEBUG RELOAD");
    let mut seen = Vec::new();
    while !client.has_reply_within(Duration::from_micros(1)) {
        let info = watcher.info("midi_persistence");
        if info["midi_loading"] == "1" {
            seen.push(info["midi_loading_keys"].parse::<i64>().expect("a number"));
        }
    }
    assert_eq!(client.read(), Value::ok());
    assert!(seen.iter().any(|&keys| 0 < keys && keys < 300_000), "{seen:?}");
    assert!(seen.is_sorted(), "{seen:?}");
    assert_eq!(watcher.info_number("midi_persistence", "midi_last_load_keys"), 300_000);
    assert!(server.log().contains("<midi> Read 300000 keys in"), "{}", server.log());
}

/// The main thread saves; the port answers reads all the same.
fn check_save(server: &Server, save: &str) {
    let (mut client, mut port, mut writer) =
        (server.client(), server.midi_client(), server.midi_client());
    client.ok("MIDI.POPULATE 100000");
    slow_keys(&mut client);
    client.ok("CONFIG SET rdb-key-save-delay 20000");
    port.ok("SET k before");
    client.send_line(save);
    wait_until("the keyspace is closed", || {
        writer.send_line("SET k after");
        if writer.has_reply_within(Duration::from_millis(100)) {
            assert_eq!(writer.read(), Value::ok());
            return false;
        }
        true
    });
    let before = port.run("GET k");
    let mut reads = 0;
    while !client.has_reply_within(Duration::from_micros(1)) {
        assert_eq!(port.run("GET key:7"), Value::bulk("value:7"));
        reads += 1;
    }
    assert!(!client.read().is_error());
    println!("{save}: {reads} reads");
    assert!(reads >= 10, "{reads} reads");
    assert!(!writer.read().is_error(), "it has waited, and then succeeds");
    assert_eq!(port.run("GET k"), Value::bulk("after"));
    assert!(!before.is_error());
    client.ok("CONFIG SET rdb-key-save-delay 0");
    client.ok("MIDI.SET k again");
}

#[test]
fn reads_go_on_while_the_host_saves() {
    for mode in Mode::with_jobs() {
        let server = mode.builder().with_port().start();
        check_save(&server, "SAVE");
    }
}

/// Commands that had to wait for the save run afterwards, and are not in the file.
#[test]
fn the_file_has_nothing_written_during_the_save() {
    let mut server = Mode::Adaptive.builder().with_port().start();
    check_save(&server, "SAVE");
    server.kill_hard();
    server.restart(redis_server());
    let mut client = server.client();
    assert_eq!(client.integer("MIDI.DBSIZE"), 100_001);
    assert_ne!(client.run("MIDI.GET k"), Value::bulk("again"));
}
