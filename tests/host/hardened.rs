//! The promise: midi loads and works where an operator has renamed the server's commands. It logs
//! each message once and in plain words. It warns of settings under which its growth harms the
//! server's own keys.

use crate::common::{Builder, Client, Server, Value, wait_until};

/// Removes these commands from the server.
fn without(commands: &[&str]) -> Builder {
    commands
        .iter()
        .fold(Builder::new(), |builder, name| builder.config(format!("rename-command {name} \"\"")))
}

fn setting(client: &mut Client, config: &str, name: &str) -> String {
    client.run(&format!("{config} GET {name}")).array().swap_remove(1).text()
}

#[test]
fn it_counts_the_databases_itself_where_config_is_renamed() {
    for databases in [1, 2, 16, 37, 100] {
        let builder = without(&["CONFIG"]).config(format!("databases {databases}"));
        let server = builder.start();
        let mut client = server.client();
        assert_eq!(client.run("MIDI.SET k v"), Value::ok());
        // Stock and midi agree on the last database and on the first that does not exist.
        for db in [databases - 1, databases] {
            client.ok("SET k v");
            client.ok("MIDI.SET k v");
            let native = client.run(&format!("COPY k copy DB {db} REPLACE"));
            assert_eq!(
                client.run(&format!("MIDI.COPY k copy DB {db} REPLACE")),
                native,
                "{db} of {databases}"
            );
        }
    }
}

#[test]
fn config_may_have_another_name() {
    let server =
        Builder::new().config("rename-command CONFIG settings").config("databases 3").start();
    let mut client = server.client();
    assert_eq!(setting(&mut client, "settings", "midi.max-jobs"), "128");
    client.ok("settings SET midi.max-jobs 7");
    assert_eq!(setting(&mut client, "settings", "midi.max-jobs"), "7");
    client.ok("SELECT 2");
    client.ok("MIDI.SET k v");
}

#[test]
fn it_does_without_any_command_of_the_server() {
    let names = "CONFIG COMMAND INFO MODULE ACL CLIENT GET PING UNWATCH DEBUG MULTI";
    let names: Vec<_> = names.split(' ').collect();
    let server = without(&names).start();
    let mut client = server.client();
    for name in &names {
        assert!(client.run(name).text().contains("unknown command"), "{name}");
    }
    client.ok("MIDI.SET k v");
    assert_eq!(client.run("MIDI.GET k"), Value::bulk("v"));
    assert_eq!(client.integer("MIDI.INCR n"), 1);
    assert_eq!(client.run("MIDI.KEYS k").array().len(), 1);
    // IMPORT reads short values with GET where it can.
    client.ok("SET native 1");
    client.ok("SET long 12345678901234567890");
    assert_eq!(client.run("MIDI.IMPORT *").array()[0], Value::Integer(2));
    assert_eq!(client.run("MIDI.GET native"), Value::bulk("1"));
    assert_eq!(client.run("MIDI.GET long"), Value::bulk("12345678901234567890"));
}

#[test]
fn log_lines_name_midi_once() {
    let server = Builder::new().load("threads 1 shards 1").start();
    server.client().ok("MIDI.SET k v");
    server.client().ok("DEBUG RELOAD");
    let log = server.log();
    let lines: Vec<&str> =
        log.lines().filter_map(|line| line.split_once("<midi> ")).map(|it| it.1).collect();
    assert!(lines.len() >= 2, "{log}");
    assert!(lines.iter().all(|line| !line.starts_with("midi")), "{lines:#?}");
    assert!(!log.contains("<module>"), "{log}");
    let version = format!("Version {}: 1 worker, 1 shard", env!("CARGO_PKG_VERSION"));
    assert!(lines.contains(&&*version), "{lines:#?}");
}

/// Encoded as in Redis's own modules: 1.2.3 is 10203.
#[test]
fn module_list_tells_the_version() {
    let server = Builder::new().start();
    let modules = server.client().resp3().run("MODULE LIST").array();
    let ours =
        modules.into_iter().map(Value::map).find(|module| module["name"] == Value::bulk("midi"));
    let numbers =
        env!("CARGO_PKG_VERSION").split('.').map(|number| number.parse::<i64>().expect("a number"));
    let version = numbers.fold(0, |version, number| version * 100 + number);
    assert_eq!(ours.expect("midi is loaded")["ver"], Value::Integer(version));
}

/// The first key makes midi ask for memory; a job, a script, a save and a rewrite need the rest.
#[test]
fn the_units_of_debian_do_not_kill_it() {
    let server = Builder::new().in_unit().with_port().config("appendonly yes").start();
    let (mut client, mut ports) = (server.client(), server.midi_client());
    client.ok("MIDI.SET k v");
    client.ok("MIDI.POPULATE 20000");
    ports.ok("FLUSHALL");
    ports.ok("SET k v");
    assert_eq!(ports.run("EVAL return(redis.call('GET',KEYS[1])) 1 k"), Value::bulk("v"));
    client.ok("SAVE");
    client.run("BGREWRITEAOF");
    wait_until("the rewrite is over", || {
        let info = client.run("INFO persistence").text();
        info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0")
    });
    client.ok("MIDI.SET k v");
}

/// Some hosts ask modules to unload themselves at shutdown.
#[test]
fn shutdown_is_no_refused_unload() {
    let mut server = Builder::new().start();
    let _ = server.client().try_call(&["SHUTDOWN", "NOSAVE"]);
    wait_until("the server is gone", || server.log().contains("bye bye"));
    server.kill_hard();
    assert!(!server.log().contains("UNLOAD refused"), "{}", server.log());
}

fn victims(server: &Server) -> String {
    server.client().info("midi_memory")["midi_evictable_host_keys"].clone()
}

fn warnings(server: &Server) -> usize {
    server.log().lines().filter(|line| line.contains("<midi> maxmemory-policy evicts")).count()
}

#[test]
fn a_maxmemory_policy_that_evicts_is_warned_of() {
    let server = Builder::new().start();
    let mut client = server.client();
    assert_eq!((victims(&server), warnings(&server)), ("none".into(), 0));
    // One warning for each change after which midi's growth is paid by the host's keys.
    for (line, expected, so_far) in [
        ("maxmemory-policy allkeys-lru", "none", 0),
        ("maxmemory 1gb", "none", 0),
        ("midi.maxmemory-policy noeviction", "all", 1),
        ("maxmemory-policy volatile-ttl", "volatile", 2),
        ("maxmemory-policy noeviction", "none", 2),
        ("maxmemory-policy allkeys-lfu", "all", 3),
        ("midi.maxmemory-policy host", "none", 3),
        ("midi.maxmemory-policy noeviction", "all", 4),
        ("maxmemory 0", "none", 4),
    ] {
        client.ok(&format!("CONFIG SET {line}"));
        assert_eq!((victims(&server), warnings(&server)), (expected.into(), so_far), "{line}");
    }
}

#[test]
fn the_policy_is_looked_at_when_midi_is_loaded() {
    for (policy, expected) in [
        ("allkeys-lru", Some("all of them in the end")),
        ("volatile-lru", Some("a time to live")),
        ("noeviction", None),
    ] {
        let builder =
            Builder::new().config("maxmemory 1gb").config(format!("maxmemory-policy {policy}"));
        let server = builder.load("maxmemory-policy noeviction").start();
        let log = server.log();
        let line = log.lines().find(|line| line.contains("<midi> maxmemory-policy evicts"));
        match expected {
            Some(whose) => {
                assert!(
                    line.is_some_and(|line| line.contains(whose) && line.contains("noeviction")),
                    "{log}"
                )
            }
            None => assert_eq!(line, None),
        }
    }
}

/// midi must know which clients watch keys, track changes, or run a transaction.
#[test]
fn watch_exec_and_client_are_known_under_any_name() {
    let lines = ["WATCH lookout", "EXEC go", "CLIENT customer"];
    let builder =
        lines.iter().fold(Builder::new(), |all, line| all.config(format!("rename-command {line}")));
    let server = builder.start();
    let (mut client, mut other) = (server.client(), server.client());
    for (change, expected) in [
        ("MIDI.SET k v", Value::NullArray),
        ("MIDI.SET another v", Value::Array(vec![Value::ok()])),
    ] {
        // A line that is not exactly one of the commands is not taken for one.
        for wrong in ["lookout", "go now", "customer", "nosuch", "WATCH k"] {
            assert!(client.run(wrong).is_error(), "{wrong}");
        }
        client.ok("LookOut k");
        other.ok(change);
        client.ok("MULTI");
        client.run("MIDI.SET k w");
        assert_eq!(client.run("go"), expected, "{change}");
    }
    let mut tracking = server.client().resp3();
    tracking.ok("customer TRACKING ON");
    assert_eq!(tracking.run("MIDI.GET k"), Value::bulk("w"));
    other.ok("MIDI.SET k x");
    assert!(matches!(tracking.read(), Value::Push(_)));
}
