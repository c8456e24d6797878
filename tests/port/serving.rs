//! The promise: midi's own port serves what the host's does, in the order sent, on every worker,
//! and keeps within its limits.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};

use crate::common::port::Ported;
use crate::common::{Builder, Client, Mode, Value, encoded, shown, wait_until};

fn ported(mode: Mode) -> Ported {
    Ported::start(mode.builder())
}

fn line(words: &str) -> Vec<Vec<u8>> {
    words.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

#[test]
fn a_pipeline_is_answered_in_the_order_sent() {
    for mode in Mode::tried() {
        println!("mode: {mode:?}");
        let server = ported(mode);
        let mut client = server.client();
        // Commands that run ahead, on their own, as jobs and on the main thread, in turn.
        let mut commands = Vec::new();
        let mut wanted = Vec::new();
        for round in 0..200 {
            for key in 0..40 {
                commands.push(line(&format!("SET k{key} {round}.{key}")));
                wanted.push(Value::ok());
            }
            commands.push(line("MGET k0 k39 none"));
            wanted.push(Value::Array(vec![
                Value::bulk(format!("{round}.0")),
                Value::bulk(format!("{round}.39")),
                Value::NullBulk,
            ]));
            for key in 0..40 {
                commands.push(line(&format!("GET k{key}")));
                wanted.push(Value::bulk(format!("{round}.{key}")));
            }
            commands.push(line("KEYS k1"));
            wanted.push(Value::Array(vec![Value::bulk("k1")]));
            commands.push(line("INCR counter"));
            wanted.push(Value::Integer(1));
            commands.push(line("FLUSHALL"));
            wanted.push(Value::ok());
            commands.push(line("GET k1"));
            wanted.push(Value::NullBulk);
        }
        let replies = client.pipeline(&commands);
        for (number, (reply, wanted)) in replies.iter().zip(&wanted).enumerate() {
            assert_eq!(reply, wanted, "command {number}: {}", shown(&commands[number]));
        }
        assert_eq!(replies.len(), wanted.len());
    }
}

/// GETs of one pipeline are answered from what was found for all of them, but they see every change
/// of a key between them.
#[test]
fn reads_of_a_pipeline_see_what_runs_between_them() {
    for mode in Mode::tried() {
        let server = ported(mode);
        let mut client = server.client();
        client.ok("SET stays 1");
        client.ok("SET ends 2 PX 1");
        std::thread::sleep(std::time::Duration::from_millis(5));
        let steps = [
            ("GET stays", Value::bulk("1")),
            ("GET none", Value::NullBulk),
            ("GET ends", Value::NullBulk),
            ("GET stays", Value::bulk("1")),
            ("APPEND stays 3", Value::Integer(2)),
            ("GET stays", Value::bulk("13")),
            ("SET ends 4", Value::ok()),
            ("GET ends", Value::bulk("4")),
            ("GETDEL stays", Value::bulk("13")),
            ("GET stays", Value::NullBulk),
        ];
        let commands: Vec<_> = steps.iter().map(|(words, _)| line(words)).collect();
        let wanted: Vec<_> = steps.into_iter().map(|(_, reply)| reply).collect();
        assert_eq!(client.pipeline(&commands), wanted, "{mode:?}");
        let told = client.info("midi_commandstats");
        let calls = told.get("midi_cmdstat_get").is_some_and(|told| told.starts_with("calls=7,"));
        assert!(calls, "{mode:?}: {told:?}");
    }
}

#[test]
fn both_doors_show_one_keyspace() {
    for mode in Mode::tried() {
        let server = ported(mode);
        let (mut port, mut host) = (server.client(), server.host());
        port.ok("SET a 1");
        assert_eq!(host.integer("MIDI.INCR a"), 2);
        assert_eq!(port.run("MIDI.GET a"), Value::bulk("2"));
        port.ok("SELECT 3");
        port.ok("SET a other");
        assert_eq!(host.run("MIDI.GET a"), Value::bulk("2"));
        host.ok("SELECT 3");
        assert_eq!(host.run("MIDI.GET a"), Value::bulk("other"));
        host.ok("FLUSHALL");
        assert_eq!(port.integer("DBSIZE"), 0);
    }
}

#[test]
fn safemode_runs_the_ports_commands_on_the_main_thread() {
    let server = ported(Mode::Safe);
    let (mut port, mut host) = (server.client(), server.host());
    for number in 0..100 {
        port.ok(&format!("SET key:{number} v"));
    }
    // The thread that ran them counted them.
    assert!(host.info_number("midi_dispatch", "midi_ran_at_once") >= 100);
    let workers = host.info("midi_workers");
    assert!(workers.values().all(|value| value.starts_with("commands=0,")), "{workers:?}");
}

#[test]
fn a_long_command_holds_up_its_own_connection_only() {
    let server = Ported::start(Builder::new().load("threads 1"));
    let (mut heavy, mut light) = (server.client(), server.client());
    heavy.ok("MIDI.POPULATE 300000");
    // Its replies are more than the kernel buffers for a client that does not read.
    for _ in 0..20 {
        heavy.send_line("KEYS *");
    }
    heavy.send_line("SET after done");
    heavy.send_line("GET after");
    light.ok("SET light 1");
    assert_eq!(light.run("GET light"), Value::bulk("1"));
    assert_eq!(light.run("GET after"), Value::NullBulk);
    for _ in 0..20 {
        let keys = heavy.read().array();
        assert!((300_000..=300_002).contains(&keys.len()), "{}", keys.len());
    }
    assert_eq!(heavy.read(), Value::ok());
    assert_eq!(heavy.read(), Value::bulk("done"));
}

/// A pipeline of slow commands on one key each gives way after each of them, and lets go of its
/// shard.
#[test]
fn a_pipeline_of_slow_commands_holds_up_nobody_else() {
    const COMMANDS: usize = 500;
    for (slow, slow_log, dispatch) in [
        ("bitcount", 10_000, "adaptive"),
        ("bitcount", -1, "pool"),
        // To Redis it is a fast one.
        ("digest", 10_000, "adaptive"),
    ] {
        let mode = format!("threads 1 dispatch {dispatch}");
        let server = Ported::start(Builder::new().load(&mode));
        let mut host = server.host();
        host.ok(&format!("CONFIG SET slowlog-log-slower-than {slow_log}"));
        let (mut flooder, mut other) = (server.client(), server.client());
        other.ok("SET k v");
        flooder.integer("SETRANGE large 16000000 x");
        let flood: Vec<_> = (0..COMMANDS).map(|_| line(&format!("{slow} large"))).collect();
        flooder.send(&flood.iter().flat_map(|words| encoded(words)).collect::<Vec<u8>>());
        assert!(!flooder.read().is_error());
        for line in ["GET k", "SETBIT large 0 0", "SELECT 1", "FLUSHDB"] {
            assert!(!other.run(line).is_error());
            let counts = &other.info("commandstats")[&format!("cmdstat_{slow}")];
            let all = format!("calls={COMMANDS},");
            assert!(!counts.starts_with(&all), "{mode}: {line} was answered behind them");
        }
        for _ in 1..COMMANDS {
            assert!(!flooder.read().is_error());
        }
    }
}

#[test]
fn connections_are_spread_over_the_workers() {
    let server = Ported::start(Builder::new().load("threads 2"));
    let mut clients: Vec<Client> = (0..20).map(|_| server.client()).collect();
    for client in &mut clients {
        assert_eq!(client.run("PING"), Value::Simple("PONG".into()));
    }
    let info = server.host().info("midi_net");
    for worker in 0..2 {
        let of_worker = &info[&format!("midi_net_worker{worker}")];
        assert!(of_worker.starts_with("connections=10,"), "{info:?}");
    }
}

#[test]
fn a_unix_socket_serves_too_and_has_its_permissions() {
    let path = std::env::temp_dir().join(format!("midi-port-{}.sock", std::process::id()));
    // A socket left by an earlier run is not in the way.
    drop(UnixListener::bind(&path).expect("a socket"));
    let arguments = format!("unixsocket {} unixsocketperm 0700", path.display());
    let _server = Builder::new().load(&arguments).start();
    let mode = std::fs::metadata(&path).expect("the socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let mut socket = UnixStream::connect(&path).expect("a connection");
    socket.write_all(b"SET a 1\r\nGET a\r\n").expect("sent");
    let mut replies = [0; 12];
    socket.read_exact(&mut replies).expect("replies");
    assert_eq!(&replies, b"+OK\r\n$1\r\n1\r\n");
    let _ = std::fs::remove_file(&path);
}

/// Data of another program, or its clients, would be lost.
#[test]
fn a_unix_socket_replaces_no_other_file_and_none_that_is_in_use() {
    let folder = std::env::temp_dir();
    let path = |name: &str| folder.join(format!("midi-port-{}-{name}", std::process::id()));
    let (file, used, both) = (path("file"), path("used"), path("both"));
    std::fs::write(&file, "data").expect("a file");
    let _listener = UnixListener::bind(&used).expect("a socket");
    let refused = |arguments: &str, why: &str| {
        let log = Builder::new().load(arguments).try_start().err();
        let log = log.unwrap_or_else(|| panic!("{arguments:?} was taken"));
        assert!(log.contains("cannot listen on") && log.contains(why), "{log}");
    };
    let here = |path: &std::path::Path| path.display().to_string();
    refused(&format!("unixsocket {}", here(&file)), "not a socket");
    assert_eq!(std::fs::read(&file).expect("the file"), b"data");
    refused(&format!("unixsocket {}", here(&used)), "somebody listens");
    UnixStream::connect(&used).expect("it is still the other program's");
    refused(&format!("unixsocket {0} memcached-unixsocket {0}", here(&both)), "somebody listens");
    for setting in ["unixsocket", "memcached-unixsocket"] {
        let both = here(&both);
        let ours = Builder::new().load(&format!("{setting} {both}"));
        let log = ours.config(format!("unixsocket {both}")).try_start().err();
        assert!(
            log.as_ref().is_some_and(|log| log.contains("the server listens there itself")),
            "{log:?}"
        );
        let folder = both.rsplit_once('/').map_or("", |(folder, _)| folder);
        let again =
            both.replace(folder, &format!("{folder}/../{}", folder.trim_start_matches('/')));
        let other = Builder::new().load(&format!("{setting} {again}"));
        let log = other.config(format!("unixsocket {both}")).try_start().err();
        assert!(log.is_some_and(|log| log.contains("the server listens there itself")), "{again}");
    }
    for path in [file, used, both] {
        let _ = std::fs::remove_file(path);
    }
}

#[test]
fn a_port_that_is_taken_is_not_shared() {
    let first = Ported::start(Builder::new());
    assert!(Builder::new().load(&format!("port {}", first.number())).try_start().is_err());
    let taken = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let number = taken.local_addr().expect("bound").port();
    assert!(Builder::new().load(&format!("port {number}")).try_start().is_err());
}

#[test]
fn limits_are_kept_and_named() {
    let server =
        Ported::start(Builder::new().load("maxclients 3 client-query-buffer-limit 1mb timeout 0"));
    let mut clients: Vec<Client> = (0..3).map(|_| server.client()).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.run("ECHO here"), Value::bulk("here")));
    let mut refused = TcpStream::connect(("127.0.0.1", server.number())).expect("a connection");
    let mut text = String::new();
    refused.read_to_string(&mut text).expect("an error and the end");
    assert_eq!(text, "-ERR max number of clients reached (midi.maxclients)\r\n");
    // No other client notices.
    server.host().ok("SET host here");
    drop(clients.pop());
    wait_until("a place is free again", || {
        // With TLS the refusal is the end of the handshake.
        let reply =
            server.server.try_midi_client().and_then(|mut client| client.try_call(&["PING"]));
        reply.is_ok_and(|reply| reply == Value::Simple("PONG".into()))
    });

    let mut host = server.host();
    host.ok("CONFIG SET midi.maxclients 100");

    // A client that sends more than it may.
    let mut greedy = server.client();
    let _ = greedy.try_send(&encoded(&[&b"SET"[..], b"k", &vec![b'x'; 2 << 20]]));
    assert!(greedy.try_read().is_err(), "it is closed without a word, as in Redis");
    assert_eq!(clients[0].run("GET k"), Value::NullBulk);

    // A client that does not read its replies.
    host.ok("CONFIG SET midi.output-buffer-hard-limit 2mb");
    clients[0].ok(&format!("SET large {}", "x".repeat(512 << 10)));
    let mut lazy = server.client();
    lazy.try_call(&["PING"]).expect("it is let in");
    let closed = || server.host().info_number("midi_net", "midi_net_closed_for_limits");
    let before = closed();
    // A single reply must exceed the limit by more than the system's buffers take: a client with
    // much unread gets no further reply.
    let mget: Vec<&str> = std::iter::once("MGET").chain(std::iter::repeat_n("large", 40)).collect();
    lazy.try_send(&encoded(&mget)).expect("it is still let in");
    wait_until("it is closed", || closed() > before);

    host.ok("CONFIG SET midi.timeout 1");
    let mut idle = server.client();
    assert!(idle.try_read().is_err(), "it is closed");
    assert!(server.host().info_number("midi_net", "midi_net_closed_for_limits") > before + 1);
}

#[test]
fn a_child_that_outlives_the_server_does_not_keep_the_port() {
    let mut server = Ported::start(Builder::new().config("rdb-key-save-delay 200000"));
    let mut host = server.host();
    for number in 0..20 {
        host.ok(&format!("SET key:{number} v"));
    }
    host.run("BGSAVE");
    wait_until("the child saves", || {
        server.host().info_number("persistence", "rdb_bgsave_in_progress") == 1
    });
    server.server.kill_hard();
    wait_until("nobody listens any more", || {
        TcpStream::connect(("127.0.0.1", server.number())).is_err()
    });
}
