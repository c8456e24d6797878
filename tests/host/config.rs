//! The promise: settings come from load arguments, redis.conf and CONFIG. Wrong settings are
//! refused with a clear message, and so is unloading.

use crate::common::{Builder, Client, Mode, Value, in_all_modes, module, redis_server};

#[track_caller]
fn setting(client: &mut Client, name: &str) -> String {
    let found = client.run(&format!("CONFIG GET midi.{name}")).map();
    found.get(&format!("midi.{name}")).unwrap_or_else(|| panic!("no midi.{name}")).text()
}

#[test]
fn load_arguments_are_taken() {
    let server = Builder::new()
        .load(
            "threads 3 SHARDS 64 midi.dispatch pool max-jobs 7 Max-Queued-Commands 50 \
             max-pattern-bytes 100",
        )
        .load("max-key-bytes 200 max-value-bytes 5000 keep-bytes 4096 max-atomic-keys 9")
        .start();
    let mut client = server.client();
    for (name, value) in [
        ("threads", "3"),
        ("shards", "64"),
        ("dispatch", "pool"),
        ("max-jobs", "7"),
        ("max-queued-commands", "50"),
        ("max-pattern-bytes", "100"),
        ("max-key-bytes", "200"),
        ("max-value-bytes", "5000"),
        ("keep-bytes", "4096"),
        ("max-atomic-keys", "9"),
        ("safemode", "no"),
    ] {
        assert_eq!(setting(&mut client, name), value, "{name}");
    }
    let shards = client.info("midi_shards");
    assert_eq!((shards["midi_threads"].as_str(), shards["midi_shards"].as_str()), ("3", "64"));
    assert_eq!(client.info("midi_workers").len(), 3);
}

#[test]
fn safemode_is_a_word_or_a_setting() {
    for arguments in ["SAFEMODE", "safemode", "midi.safemode yes"] {
        let server = Builder::new().load(arguments).start();
        assert_eq!(setting(&mut server.client(), "safemode"), "yes", "{arguments}");
    }
    let server = Builder::new().load("midi.safemode no").start();
    assert_eq!(setting(&mut server.client(), "safemode"), "no");
}

#[test]
fn wrong_load_arguments_end_the_start() {
    for (arguments, reason) in [
        ("nosuch 1", "unknown load argument 'nosuch'"),
        ("threads", "threads needs a value"),
        ("threads abc", "threads must be between 0 and 256, not 'abc'"),
        ("threads -1", "threads must be between"),
        ("threads 257", "threads must be between"),
        ("threads 2x", "threads must be between"),
        ("shards 131072", "shards must be between"),
        ("shards 1000", "midi.shards must be a power of two, not 1000"),
        ("shards 131072", "shards must be between"),
        ("dispatch fast", "dispatch must be one of adaptive, pool, not 'fast'"),
        ("dispatch", "dispatch needs a value"),
        ("midi.safemode maybe", "safemode must be one of no, yes, not 'maybe'"),
        ("max-jobs 0", "max-jobs must be between"),
        ("keep-bytes 10", "keep-bytes must be between"),
        ("SAFEMODE 1", "unknown load argument '1'"),
        ("midi.midi.threads 1", "unknown load argument"),
    ] {
        let log = Builder::new().load(arguments).try_start().err();
        let log = log.unwrap_or_else(|| panic!("{arguments:?} was taken"));
        let line = log.lines().find(|line| line.contains("<midi> Not loaded:"));
        let line = line.unwrap_or_else(|| panic!("{arguments:?} without a reason:\n{log}"));
        assert!(line.contains(reason), "{arguments:?}: {line}");
        assert!(!log.contains("BUG REPORT"), "{arguments:?}:\n{log}");
    }
}

#[test]
fn module_load_at_run_time_works_and_refuses() {
    let server = Builder::plain().start();
    let mut client = server.client();
    let path = module().display().to_string();
    let mut load = |arguments: &str| client.run(format!("MODULE LOAD {path} {arguments}").trim());
    assert!(load("nosuch 1").is_error());
    assert!(load("shards 3").is_error());
    assert_eq!(load("threads 2"), Value::ok());
    assert!(load("").is_error(), "it is loaded already");
    client.ok("MIDI.SET k v");
    assert_eq!(client.run("MIDI.KEYS *"), Value::Array(vec![Value::bulk("k")]));
    assert_eq!(setting(&mut client, "threads"), "2");
    assert!(server.log().contains("<midi> Not loaded: unknown load argument 'nosuch'"));
}

#[test]
fn redis_conf_sets_what_load_arguments_do_not() {
    let server = Builder::new()
        .load("threads 2")
        .config("midi.shards 32")
        .config("midi.dispatch pool")
        .config("midi.max-value-bytes 1mb")
        .config("midi.threads 4")
        .start();
    let mut client = server.client();
    assert_eq!(setting(&mut client, "shards"), "32");
    assert_eq!(setting(&mut client, "dispatch"), "pool");
    assert_eq!(setting(&mut client, "max-value-bytes"), "1048576");
    assert_eq!(setting(&mut client, "threads"), "4", "redis.conf counts more than a load argument");
    assert_eq!(client.info("midi_shards")["midi_shards"], "32");
    for line in [
        "midi.nosuch 1",
        "midi.threads abc",
        "midi.shards 5",
        "midi.dispatch fast",
        "midi.max-jobs 0",
    ] {
        let log = Builder::new().config(line).try_start().err();
        let log = log.unwrap_or_else(|| panic!("{line:?} was taken"));
        assert!(!log.contains("BUG REPORT"), "{line:?}:\n{log}");
    }
}

#[test]
fn config_set_changes_what_can_change() {
    let server = Mode::Adaptive.server();
    let mut client = server.client();
    for (name, value) in [
        ("dispatch", "pool"),
        ("dispatch", "adaptive"),
        ("max-jobs", "3"),
        ("max-queued-commands", "1000"),
        ("max-pattern-bytes", "10"),
        ("max-key-bytes", "20"),
        ("max-value-bytes", "30"),
        ("keep-bytes", "65536"),
        ("max-atomic-keys", "2"),
    ] {
        client.ok(&format!("CONFIG SET midi.{name} {value}"));
        assert_eq!(setting(&mut client, name), value);
    }
    for (name, value) in [("threads", "1"), ("shards", "16"), ("safemode", "yes")] {
        let reply = client.run(&format!("CONFIG SET midi.{name} {value}"));
        assert!(reply.is_error() && reply.text().contains("immutable"), "{name}: {reply:?}");
    }
    for line in [
        "midi.dispatch fast",
        "midi.max-jobs 0",
        "midi.max-jobs -1",
        "midi.max-key-bytes x",
        "midi.nosuch 1",
    ] {
        let reply = client.run(&format!("CONFIG SET {line}"));
        assert!(reply.is_error(), "{line}: {reply:?}");
    }
    assert_eq!(setting(&mut client, "max-jobs"), "3");
    assert_eq!(setting(&mut client, "dispatch"), "adaptive");
    assert!(client.run("CONFIG GET midi.*").map().len() >= 10);
}

#[test]
fn config_rewrite_keeps_changes() {
    let mut server = Builder::new().load("threads 2").start();
    let mut client = server.client();
    client.ok("CONFIG SET midi.dispatch pool");
    client.ok("CONFIG SET midi.max-jobs 5");
    client.ok("CONFIG REWRITE");
    let file = server.config_file();
    assert!(file.contains("midi.dispatch pool") && file.contains("midi.max-jobs 5"), "{file}");
    drop(client);
    server.restart(redis_server());
    let mut client = server.client();
    assert_eq!(setting(&mut client, "dispatch"), "pool");
    assert_eq!(setting(&mut client, "max-jobs"), "5");
    assert_eq!(setting(&mut client, "threads"), "2");
    client.ok("MIDI.SET k v");
}

/// The host refuses it, without asking midi: midi has a data type, for its section in the RDB.
#[test]
fn module_unload_is_refused() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        client.ok("MIDI.SET k v");
        let reply = client.run("MODULE UNLOAD midi");
        assert!(reply.is_error() && reply.text().contains("data types"), "{reply:?}");
        assert_eq!(client.run("MIDI.GET k"), Value::bulk("v"));
    });
}
