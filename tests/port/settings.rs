//! The promise: the port's settings come from load arguments, redis.conf and CONFIG; unset ones
//! follow the host's. The port's descriptors do not count against the host's.

use std::fs;

use crate::common::{Builder, Client, Server, Value, free_port, redis_server, skip};

#[track_caller]
fn setting(client: &mut Client, name: &str) -> String {
    let found = client.run(&format!("CONFIG GET midi.{name}")).map();
    found.get(&format!("midi.{name}")).unwrap_or_else(|| panic!("no midi.{name}")).text()
}

#[track_caller]
fn are_set(server: &Server, expected: &[(&str, &str)]) {
    let mut client = server.client();
    for (name, value) in expected {
        assert_eq!(setting(&mut client, name), *value, "{name}");
    }
}

#[test]
fn load_arguments_are_taken() {
    // Upper and lower case are kept.
    let socket = std::env::temp_dir().join(format!("midi.Socket.{}", std::process::id()));
    let socket = socket.to_str().expect("plain text");
    let server = Builder::new()
        .load(&format!(
            "bind \"127.0.0.1 -::1\" midi.unixsocket {socket} unixsocketperm 0700 \
                        maxclients 70"
        ))
        .load("timeout 5 tcp-keepalive 7 protected-mode NO client-query-buffer-limit 2MB")
        .load(
            "output-buffer-hard-limit 3mb output-buffer-soft-limit 1mb \
               output-buffer-soft-seconds 9",
        )
        .start();
    are_set(
        &server,
        &[
            ("port", "0"),
            ("bind", "127.0.0.1 -::1"),
            ("unixsocket", socket),
            ("unixsocketperm", "0700"),
            ("maxclients", "70"),
            ("timeout", "5"),
            ("tcp-keepalive", "7"),
            ("protected-mode", "no"),
            ("client-query-buffer-limit", "2097152"),
            ("output-buffer-hard-limit", "3145728"),
            ("output-buffer-soft-limit", "1048576"),
            ("output-buffer-soft-seconds", "9"),
        ],
    );
    let _ = std::fs::remove_file(socket);
}

#[test]
fn settings_that_are_not_set_are_the_hosts() {
    let server = Builder::new().start();
    are_set(
        &server,
        &[
            ("port", "0"),
            ("bind", ""),
            ("unixsocket", ""),
            ("unixsocketperm", ""),
            ("maxclients", "10000"),
            ("timeout", "0"),
            ("tcp-keepalive", "300"),
            ("protected-mode", "yes"),
            ("client-query-buffer-limit", "1073741824"),
            ("output-buffer-hard-limit", "1073741824"),
            ("output-buffer-soft-limit", "0"),
            ("output-buffer-soft-seconds", "0"),
        ],
    );
    let lines = ["timeout 60", "tcp-keepalive 0", "protected-mode no"];
    let server = lines.iter().fold(Builder::new(), |builder, line| builder.config(*line)).start();
    are_set(&server, &[("timeout", "60"), ("tcp-keepalive", "0"), ("protected-mode", "no")]);
}

#[test]
fn redis_conf_and_config_set_them() {
    let mut server = Builder::new()
        .load("timeout 3")
        .config("midi.bind 127.0.0.1 ::1")
        .config("midi.unixsocketperm 770")
        .config("midi.timeout 4")
        .start();
    are_set(&server, &[("bind", "127.0.0.1 ::1"), ("unixsocketperm", "770"), ("timeout", "4")]);
    let mut client = server.client();
    let changes = [
        ("maxclients", "80"),
        ("timeout", "8"),
        ("tcp-keepalive", "9"),
        ("protected-mode", "no"),
        ("client-query-buffer-limit", "1048576"),
        ("output-buffer-hard-limit", "0"),
        ("output-buffer-soft-limit", "5"),
        ("output-buffer-soft-seconds", "6"),
    ];
    for (name, value) in changes {
        client.ok(&format!("CONFIG SET midi.{name} {value}"));
    }
    are_set(&server, &changes);
    for (name, value) in
        [("port", "1"), ("bind", "::1"), ("unixsocket", "/x"), ("unixsocketperm", "700")]
    {
        let reply = client.run(&format!("CONFIG SET midi.{name} {value}"));
        assert!(reply.is_error() && reply.text().contains("immutable"), "{name}: {reply:?}");
    }
    for line in
        ["maxclients 0", "client-query-buffer-limit 1000", "timeout -1", "protected-mode maybe"]
    {
        assert!(client.run(&format!("CONFIG SET midi.{line}")).is_error(), "{line}");
    }
    client.ok("CONFIG REWRITE");
    drop(client);
    server.restart(redis_server());
    are_set(&server, &changes);
    are_set(&server, &[("bind", "127.0.0.1 ::1"), ("unixsocketperm", "770")]);
}

#[test]
fn wrong_values_end_the_start() {
    for (arguments, reason) in [
        ("port 65536", "port must be between 0 and 65535, not '65536'"),
        ("port", "port needs a value"),
        ("unixsocketperm 888", "unixsocketperm cannot be '888'"),
        ("unixsocketperm 7777", "unixsocketperm cannot be '7777'"),
        ("maxclients 0", "maxclients must be between"),
        ("protected-mode 1", "protected-mode must be one of no, yes, not '1'"),
        ("client-query-buffer-limit 100kb", "client-query-buffer-limit must be between"),
    ] {
        let log = Builder::new().load(arguments).try_start().err();
        let log = log.unwrap_or_else(|| panic!("{arguments:?} was taken"));
        assert!(
            log.lines().any(|line| line.contains("<midi> Not loaded:") && line.contains(reason)),
            "{log}"
        );
    }
    for line in ["midi.port x", "midi.unixsocketperm 9", "midi.protected-mode maybe"] {
        let log = Builder::new().config(line).try_start().err();
        let log = log.unwrap_or_else(|| panic!("{line:?} was taken"));
        assert!(!log.contains("BUG REPORT"), "{line:?}:\n{log}");
    }
}

/// How many files the server may have open.
fn file_limit(server: &Server) -> usize {
    let process = server.client().info_number("server", "process_id");
    let limits = fs::read_to_string(format!("/proc/{process}/limits")).expect("limits");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("of files");
    line.split_ascii_whitespace().nth(3).expect("soft limit").parse().unwrap_or(usize::MAX)
}

/// Only if the process may raise the limit, or it is high enough; the arithmetic has its own tests.
#[test]
fn there_is_room_for_all_clients() {
    let load = format!("port {} maxclients 500", free_port());
    let server = Builder::new().load(&load).config("maxclients 1000").start();
    let mut client = server.client();
    if setting(&mut client, "maxclients") != "500" {
        assert!(server.log().contains("no room for 500 clients"), "{}", server.log());
        return skip("this process may not raise its file limit");
    }
    assert!(file_limit(&server) >= 1128 + 500, "{}", file_limit(&server));
    let more = file_limit(&server) + 1000;
    match client.run(&format!("CONFIG SET midi.maxclients {more}")) {
        reply if reply == Value::ok() => assert!(file_limit(&server) > more),
        refused => assert!(refused.text().contains("descriptors"), "{refused:?}"),
    }
    let before = file_limit(&server);
    client.ok("CONFIG SET maxclients 3000");
    assert!(file_limit(&server) >= before.max(3128 + 500));
}

#[test]
fn a_cluster_node_has_no_port() {
    let server =
        Builder::new().load(&format!("port {}", free_port())).config("cluster-enabled yes").start();
    let log = server.log();
    assert!(
        log.contains("midi.port and midi.unixsocket stay closed: cluster-enabled is yes"),
        "{log}"
    );
}

/// A setting for values limits values: the error names it, and nothing else is limited.
#[test]
fn short_values_leave_names_and_keys_alone() {
    let server = Builder::new().with_port().load("midi.max-value-bytes 10").start();
    let mut client = server.midi_client();
    let (key, name) = ("k".repeat(1000), "n".repeat(500_000));
    client.ok(&format!("SET {key} 0123456789"));
    assert_eq!(client.run(&format!("GET {key}")), Value::bulk("0123456789"));
    client.ok(&format!("CLIENT SETNAME {name}"));
    assert_eq!(client.run("CLIENT GETNAME"), Value::bulk(name));
    assert_eq!(client.run(&format!("ECHO {key}")), Value::bulk(&key));
    assert_eq!(
        client.run("nosuchcommandofthatname x"),
        server.client().run("nosuchcommandofthatname x")
    );
    let refused = Value::error("ERR string exceeds maximum allowed size (midi.max-value-bytes 10)");
    for line in [
        "SET k 01234567890",
        "APPEND k 01234567890",
        "MSET a 1 k 01234567890",
        "SETRANGE k 5 012345",
    ] {
        assert_eq!(client.run(line), refused, "{line}");
    }
    // Keys have their own limit.
    server.client().call(&["CONFIG", "SET", "midi.max-key-bytes", "10"]);
    let refused = Value::error("ERR key exceeds maximum allowed size (midi.max-key-bytes 10)");
    assert_eq!(client.run("SET 01234567890 v"), refused);
    assert_eq!(client.run(&format!("ECHO {key}")), Value::bulk(&key));
}
