//! The promise: what an operator has removed from the server with `rename-command` is not available
//! on midi's port. Where CONFIG is gone or `bind` names no address, the port still opens, with what
//! it can find out.

use crate::common::port::Ported;
use crate::common::{Builder, Client, Value, free_port, module, wait_until};

const RENAMED: [&str; 5] = [
    "rename-command FLUSHALL \"\"",
    "rename-command DEBUG \"\"",
    "rename-command TIME \"\"",
    "rename-command MULTI \"\"",
    "rename-command FLUSHDB erase",
];

fn hardened() -> Ported {
    Ported::start(RENAMED.iter().fold(Builder::new(), |builder, line| builder.config(*line)))
}

#[track_caller]
fn is_unknown(client: &mut Client, line: &str) {
    let reply = client.run(line).text();
    assert!(
        reply.starts_with("ERR unknown command '") && !reply.contains("use the host's port"),
        "{line}: {reply}"
    );
}

#[test]
fn a_command_renamed_to_nothing_is_unknown() {
    let ported = hardened();
    let (mut client, mut host) = (ported.client(), ported.host());
    client.ok("SET k v");
    for line in
        ["FLUSHALL", "flushall ASYNC", "DEBUG POPULATE 10", "TIME", "TIME too many", "MULTI"]
    {
        // Newer hosts word it differently.
        is_unknown(&mut host, line);
        is_unknown(&mut client, line);
    }
    // MIDI.* at the host's port are separate commands.
    is_unknown(&mut client, "MIDI.FLUSHALL");
    for name in ["FLUSHALL", "MIDI.FLUSHALL", "midi.flushall"] {
        let script = format!("return redis.call('{name}')");
        assert!(client.call(&["EVAL", &script, "0"]).is_error(), "{name}");
    }
    assert_eq!(client.integer("DBSIZE"), 1);
    assert_eq!(host.run("MIDI.FLUSHALL"), Value::ok());
    assert_eq!(client.integer("DBSIZE"), 0);
}

#[test]
fn it_is_unknown_to_command_too() {
    let ported = hardened();
    let mut client = ported.client();
    let names: Vec<String> =
        client.run("COMMAND LIST").array().into_iter().map(|name| name.text()).collect();
    for gone in ["flushall", "midi.flushall", "debug", "time", "multi"] {
        assert!(!names.iter().any(|name| name == gone), "{gone}");
        assert_eq!(client.run(&format!("COMMAND INFO {gone}")).array().len(), 1);
        assert!(client.run(&format!("COMMAND DOCS {gone}")).array().is_empty(), "{gone}");
    }
    for there in ["flushdb", "midi.flushdb", "exec", "get", "midi.get"] {
        assert!(names.iter().any(|name| name == there), "{there}");
    }
    let without_subcommands = names.iter().filter(|name| !name.contains('|')).count() as i64;
    assert_eq!(client.integer("COMMAND COUNT"), without_subcommands);
    assert_eq!(client.run("COMMAND").array().len() as i64, without_subcommands);
}

#[test]
fn between_multi_and_exec_it_spoils_the_transaction() {
    let ported = Ported::start(Builder::new().config("rename-command FLUSHALL \"\""));
    let mut client = ported.client();
    client.ok("SET k v");
    client.ok("MULTI");
    is_unknown(&mut client, "FLUSHALL");
    assert!(client.run("EXEC").text().starts_with("EXECABORT"));
    assert_eq!(client.run("GET k"), Value::bulk("v"));
}

#[test]
fn a_renamed_command_keeps_its_name_on_the_port() {
    let ported = hardened();
    let mut client = ported.client();
    for line in ["FLUSHDB", "MIDI.FLUSHDB"] {
        client.ok("SET k v");
        client.ok(line);
        assert_eq!(client.integer("DBSIZE"), 0, "{line}");
    }
    is_unknown(&mut client, "erase");
    let log = ported.server.log();
    let said = |what: &str, names: &[&str]| {
        let line = log
            .lines()
            .find(|line| line.contains(what))
            .unwrap_or_else(|| panic!("no {what}\n{log}"));
        assert!(names.iter().all(|name| line.contains(name)), "{line}");
    };
    said("rename-command disabled", &["FLUSHALL", "DEBUG", "TIME", "MULTI"]);
    said("rename-command renamed", &["FLUSHDB"]);
    assert!(!Ported::start(Builder::new()).server.log().contains("rename-command"));
}

/// A command that this host never had (DELEX, for example, on most) is midi's own.
#[test]
fn commands_that_the_host_never_had_are_there() {
    let ported = hardened();
    let mut client = ported.client();
    client.ok("SET k v");
    assert_eq!(client.integer("DELEX k IFEQ v"), 1);
    client.ok("POPULATE 3");
    assert_eq!(client.integer("DBSIZE"), 3);
}

/// midi cannot tell then which commands only have another name.
#[test]
fn without_command_all_that_is_renamed_is_gone() {
    let builder =
        Builder::new().config("rename-command COMMAND \"\"").config("rename-command FLUSHDB erase");
    let ported = Ported::start(builder);
    let mut client = ported.client();
    for line in ["FLUSHDB", "MIDI.FLUSHDB", "COMMAND COUNT", "LPUSH k v"] {
        is_unknown(&mut client, line);
    }
    client.ok("SET k v");
}

/// Hosts from about 8.2 on give modules their settings whatever CONFIG is called.
#[test]
fn without_config_the_port_says_what_it_does_not_know() {
    let builder = Builder::new()
        .config("rename-command CONFIG settings")
        .config("timeout 77")
        .config("maxclients 60");
    let ported = Ported::start(builder);
    let mut client = ported.client();
    client.ok("SET k v");
    let mut host = ported.host();
    let timeout = host.run("settings GET midi.timeout").array().swap_remove(1).text();
    let log = ported.server.log();
    let said = log.contains("The server does not report its settings");
    for name in ["midi.assume-appendfsync", "midi.bind", "midi.timeout"] {
        assert_eq!(log.contains(name), said, "{name}: {log}");
    }
    assert_eq!(timeout, if said { "0" } else { "77" });
    assert_eq!(host.run("settings GET midi.protected-mode").array().swap_remove(1).text(), "yes");
    assert!(client.run("INFO server").text().contains("redis_version"));
    // On the port CONFIG keeps its name, though midi cannot use it to ask the host.
    assert_eq!(client.run("CONFIG GET maxclients"), Value::Array(vec![]));
}

/// midi takes a setting that the server does not report for the strictest, or asks the server to
/// judge.
#[test]
fn without_config_the_port_lets_nothing_through_that_the_server_would_not() {
    let builder = Builder::new().config("rename-command CONFIG \"\"").config("hz 100");
    let builder = builder.config("min-replicas-to-write 2").config("repl-diskless-sync-delay 0");
    let ported = Ported::start(builder.config("replica-serve-stale-data no"));
    let (mut host, mut port) = (ported.host(), ported.client());
    let replicas: Vec<_> = (0..2).map(|_| Builder::new().start()).collect();
    let replicaof = format!("REPLICAOF 127.0.0.1 {}", ported.number_of_host());
    for (good, replica) in (1..).zip(&replicas) {
        assert!(port.run("SET k v").text().starts_with("NOREPLICAS "), "before replica {good}");
        replica.client().ok(&replicaof);
        wait_until("it counts", || {
            host.info_number("replication", "min_slaves_good_slaves") == good
        });
    }
    wait_until("two are enough", || port.run("SET k v") == Value::ok());
    host.ok("REPLICAOF 127.0.0.1 1");
    wait_until("stale data is not served", || port.run("GET k").text().starts_with("MASTERDOWN"));
    host.ok("REPLICAOF NO ONE");
    wait_until("a master's is", || port.run("GET k") == Value::bulk("v"));
}

/// Save points of any size are reached: each change counts.
#[test]
fn without_config_each_change_counts() {
    let builder = Builder::new().config("rename-command CONFIG \"\"").config("appendonly yes");
    let ported = Ported::start(builder.config("save 3600 1000"));
    let mut words = vec!["MSET".to_owned()];
    words.extend((0..200).map(|number| format!("word:{number}")));
    let mut port = ported.client();
    assert_eq!(port.call(&words), Value::ok());
    wait_until("100 keys count", || {
        ported.host().info_number("persistence", "rdb_changes_since_last_save") >= 100
    });
}

#[test]
fn without_info_and_module_it_tells_of_midi() {
    let lines = ["INFO stats2", "MODULE \"\""];
    let builder =
        lines.iter().fold(Builder::new(), |all, line| all.config(format!("rename-command {line}")));
    let ported = Ported::start(builder);
    let mut client = ported.client();
    assert!(client.run("INFO").text().starts_with("# midi_"));
    let hello = client.run("HELLO 3").map();
    let ours = hello["modules"].clone().array().into_iter().map(Value::map);
    assert!(ours.into_iter().any(|module| module["name"] == Value::bulk("midi")));
}

/// Redis listens nowhere then, and neither does the port.
#[test]
fn an_empty_bind_keeps_the_port_closed_and_the_server_up() {
    let server = Builder::plain().start();
    let mut client = server.client();
    client.call(&["CONFIG", "SET", "bind", ""]);
    let port = free_port();
    client.ok(&format!("MODULE LOAD {} port {port}", module().display()));
    assert!(Client::connect(port).is_err());
    let net = client.info("midi_net");
    assert_eq!(net["midi_port_state"], "closed");
    assert!(net["midi_port_obstacle"].contains("bind is empty"), "{net:?}");
    assert!(server.log().contains("stay closed: the server's bind is empty"), "{}", server.log());
    client.ok("MIDI.SET k v");
}

#[test]
fn an_empty_bind_leaves_the_unix_socket() {
    let server = Builder::plain().start();
    let mut client = server.client();
    client.call(&["CONFIG", "SET", "bind", ""]);
    let (port, socket) = (free_port(), server.dir().join("midi.sock"));
    client.ok(&format!(
        "MODULE LOAD {} port {port} unixsocket {}",
        module().display(),
        socket.display()
    ));
    assert!(Client::connect(port).is_err());
    assert!(std::os::unix::net::UnixStream::connect(&socket).is_ok());
    assert!(
        server.log().contains("midi.port stays closed: the server's bind is empty"),
        "{}",
        server.log()
    );
}

#[test]
fn without_acl_users_get_in_all_the_same() {
    let lines =
        ["rename-command ACL \"\"", "user alice on >alice ~* +@all", "user bob on >bob ~b* +@all"];
    let ported =
        Ported::start(lines.iter().fold(Builder::new(), |builder, line| builder.config(*line)));
    ported.client().ok("SET k v");
    ported.client_of("alice").ok("SET k v");
    let mut bob = ported.client_of("bob");
    bob.ok("SET b v");
    assert!(bob.run("SET k v").text().starts_with("NOPERM"));
    is_unknown(&mut bob, "ACL WHOAMI");
    assert!(ported.client().run("AUTH alice wrong").text().starts_with("WRONGPASS"));
}
