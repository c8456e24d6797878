//! The promise: what the host would refuse at its own port is refused at midi's: while it loads, is
//! paused, is a replica, or is short of memory, of disk or of replicas.

use std::fs;
use std::io::Read;
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::port::Ported;
use crate::common::{Builder, Client, Mode, Value, encoded, redis_server, skip, wait_until};

fn ported() -> Ported {
    Ported::start(Mode::Adaptive.builder())
}

/// Commands that read, write or may need memory, and the port's own.
const LINES: [&str; 7] = [
    "PING",
    "ECHO x",
    "MIDI.GET k",
    "MIDI.SET k v",
    "MIDI.DEL nosuch",
    "MIDI.EXPIRE k 1000",
    "MIDI.DBSIZE",
];

/// Both ports answer the same. Returns the errors among the answers.
#[track_caller]
fn same(host: &mut Client, port: &mut Client) -> Vec<String> {
    let mut errors = Vec::new();
    let own_words = host.info("server").contains_key("valkey_version");
    for line in LINES {
        let (there, here) = (host.run(line), port.run(line));
        let kind = |reply: &Value| reply.text().split(' ').next().map(str::to_owned);
        let alike = own_words && here.is_error() && there.is_error() && kind(&here) == kind(&there);
        assert!(here == there || alike, "{line}: {here:?} here, {there:?} at the host");
        if here.is_error() {
            errors.push(format!("{line}: {}", here.text()));
        }
    }
    errors
}

/// The words before the first space of each error.
fn kinds(errors: &[String]) -> Vec<&str> {
    errors.iter().filter_map(|error| error.split(": ").nth(1)?.split(' ').next()).collect()
}

#[test]
fn a_replica_is_read_only_and_perhaps_stale() {
    let ported = ported();
    let (mut host, mut port) = (ported.host(), ported.client());
    assert!(same(&mut host, &mut port).is_empty());
    host.ok("REPLICAOF 127.0.0.1 1");
    assert_eq!(kinds(&same(&mut host, &mut port)), ["READONLY"; 3]);
    host.ok("CONFIG SET replica-serve-stale-data no");
    let stale = same(&mut host, &mut port);
    assert_eq!(stale.len(), 6, "{stale:?}");
    assert_eq!(
        kinds(&stale),
        ["MASTERDOWN", "MASTERDOWN", "READONLY", "READONLY", "READONLY", "MASTERDOWN"]
    );
    host.ok("CONFIG SET replica-read-only no");
    assert_eq!(kinds(&same(&mut host, &mut port)), ["MASTERDOWN"; 6]);
    host.ok("CONFIG SET replica-serve-stale-data yes");
    // midi's keys are their master's, whatever the host's own are.
    assert_eq!(kinds(&same(&mut host, &mut port)), ["READONLY"; 3]);
    host.ok("CONFIG SET replica-read-only yes");
    host.ok("REPLICAOF NO ONE");
    assert!(same(&mut host, &mut port).is_empty());
    host.ok("MULTI");
    host.run("REPLICAOF 127.0.0.1 1");
    host.run("EXEC");
    assert_eq!(kinds(&same(&mut host, &mut port)), ["READONLY"; 3]);
    host.ok("REPLICAOF NO ONE");
}

/// EXEC's answer to these commands if the gate was closed after they were queued.
fn exec_behind(
    client: &mut Client,
    host: &mut Client,
    lines: &[&str],
    (close, open): (&[&str], &[&str]),
) -> Value {
    client.ok("MULTI");
    for line in lines {
        assert_eq!(client.run(line), Value::Simple(b"QUEUED".to_vec()), "{line}");
    }
    close.iter().for_each(|line| host.ok(line));
    let reply = client.run("EXEC");
    open.iter().for_each(|line| host.ok(line));
    reply
}

/// EXEC is refused as any of its commands would be.
#[test]
fn a_transaction_queued_before_a_gate_closed_is_refused_as_a_whole() {
    const GATES: [(&[&str], &[&str]); 4] = [
        (
            &["CONFIG SET replica-serve-stale-data no", "REPLICAOF 127.0.0.1 1"],
            &["REPLICAOF NO ONE", "CONFIG SET replica-serve-stale-data yes"],
        ),
        (&["REPLICAOF 127.0.0.1 1"], &["REPLICAOF NO ONE"]),
        (&["CONFIG SET min-replicas-to-write 1"], &["CONFIG SET min-replicas-to-write 0"]),
        (&["CONFIG SET maxmemory 1"], &["CONFIG SET maxmemory 0"]),
    ];
    const QUEUES: [&[&str]; 10] = [
        &["PING"],
        &["ECHO x", "TIME"],
        &["GET k"],
        &["SET k v", "PING"],
        &["DEL k", "GET k"],
        &["ECHO x", "APPEND k v"],
        &["CLIENT GETNAME"],
        &["PUBLISH c m", "PING"],
        &["PUBLISH c m", "GET k"],
        &["EVAL return(1) 0"],
    ];
    let ported = ported();
    let (mut host, mut there, mut here) = (ported.host(), ported.host(), ported.client());
    let own_words = host.info("server").contains_key("valkey_version");
    for gate in GATES {
        for lines in QUEUES {
            there.run("SET k 1");
            here.run("SET k 1");
            let native = exec_behind(&mut there, &mut host, lines, gate);
            let midi = exec_behind(&mut here, &mut host, lines, gate);
            if native.is_error() {
                assert!(
                    native.text().starts_with("EXECABORT Transaction discarded because of: "),
                    "{native:?}"
                );
                let alike = own_words && midi.is_error();
                assert!(
                    midi == native || alike,
                    "{gate:?}: {lines:?}: {midi:?} and not {native:?}"
                );
            } else {
                assert!(!midi.is_error(), "{gate:?}: {lines:?}: {midi:?} and not {native:?}");
            }
        }
    }
}

#[test]
fn too_few_replicas_are_too_few_here() {
    let ported = ported();
    let (mut host, mut port) = (ported.host(), ported.client());
    host.ok("CONFIG SET min-replicas-to-write 1");
    assert_eq!(kinds(&same(&mut host, &mut port)), ["NOREPLICAS"; 3]);
    host.ok("CONFIG SET min-replicas-max-lag 0");
    assert!(same(&mut host, &mut port).is_empty());
}

#[test]
fn a_failed_save_stops_writes() {
    let ported = ported();
    let (mut host, mut port) = (ported.host(), ported.client());
    // No file can be renamed over a folder.
    let in_the_way = ported.server.dir().join("dump.rdb");
    fs::create_dir(&in_the_way).expect("a folder");
    host.ok("SET k v");
    assert_eq!(host.call(&["CONFIG", "SET", "save", "3600 1000000"]), Value::ok());
    assert!(!host.run("BGSAVE").is_error());
    let status = |client: &mut Client| client.info("persistence")["rdb_last_bgsave_status"].clone();
    wait_until("the save has failed", || status(&mut host) == "err");
    wait_until("that is seen", || port.run("SET k v").is_error());
    let errors = same(&mut host, &mut port);
    assert_eq!(kinds(&errors), ["MISCONF"; 4], "{errors:?}");
    host.ok("CONFIG SET stop-writes-on-bgsave-error no");
    assert!(same(&mut host, &mut port).is_empty());
    host.ok("CONFIG SET stop-writes-on-bgsave-error yes");
    assert_eq!(kinds(&same(&mut host, &mut port)), ["MISCONF"; 4]);
    fs::remove_dir(&in_the_way).expect("our folder");
    assert!(!host.run("BGSAVE").is_error());
    wait_until("the save is done", || status(&mut host) == "ok");
    wait_until("that is seen", || !port.run("SET k v").is_error());
    assert!(same(&mut host, &mut port).is_empty());
}

#[test]
fn memory_above_the_limit_is_refused() {
    let ported = ported();
    let (mut host, mut port) = (ported.host(), ported.client());
    assert!(same(&mut host, &mut port).is_empty());
    host.ok("CONFIG SET maxmemory 1");
    assert_eq!(kinds(&same(&mut host, &mut port)), ["OOM"]);
    assert_eq!(
        port.run("SET k v").text(),
        "OOM command not allowed when used memory > 'maxmemory'."
    );
    host.ok("CONFIG SET maxmemory 0");
    assert!(same(&mut host, &mut port).is_empty());
}

#[test]
fn a_replica_has_no_limit_of_memory_unless_it_is_set_to() {
    let ported = ported();
    let (mut host, mut port) = (ported.host(), ported.client());
    host.ok("REPLICAOF 127.0.0.1 1");
    host.ok("CONFIG SET maxmemory 1");
    assert_eq!(kinds(&same(&mut host, &mut port)), ["READONLY"; 3]);
    port.ok("MULTI");
    assert_eq!(port.run("GET k").text(), "QUEUED");
    port.ok("DISCARD");
    host.ok("CONFIG SET replica-read-only no");
    assert_eq!(kinds(&same(&mut host, &mut port)), ["READONLY"; 3]);
    host.ok("CONFIG SET replica-ignore-maxmemory no");
    assert_eq!(kinds(&same(&mut host, &mut port)), ["OOM", "READONLY", "READONLY"]);
    host.ok("CONFIG SET maxmemory 0");
    host.ok("REPLICAOF NO ONE");
}

/// How far memory use may exceed the limit.
const OVERSHOOT: i64 = 12 << 20;

/// Fills the server through the port. Returns by how much memory use exceeded `maxmemory`.
fn overshoot(ported: &Ported, command: impl Fn(usize) -> Vec<String> + Sync) -> i64 {
    let mut host = ported.host();
    let limit = host.info_number("memory", "used_memory") + (60 << 20);
    host.ok(&format!("CONFIG SET maxmemory {limit}"));
    thread::scope(|scope| {
        for number in 0..4 {
            let command = &command;
            scope.spawn(move || {
                let mut port = ported.client();
                for round in 0.. {
                    let batch: Vec<Vec<String>> =
                        (0..16).map(|at| command(number + 4 * (round * 16 + at))).collect();
                    let replies = port.pipeline(&batch);
                    if let Some(error) = replies.iter().find(|reply| reply.is_error()) {
                        return assert!(error.text().starts_with("OOM "), "{error:?}");
                    }
                }
            });
        }
    });
    let used = host.info_number("memory", "used_memory");
    assert!(used > limit - OVERSHOOT, "it stopped {} bytes below", limit - used);
    host.ok("CONFIG SET maxmemory 0");
    host.ok("MIDI.FLUSHALL SYNC");
    used - limit
}

#[test]
fn no_worker_goes_far_beyond_maxmemory() {
    let ported = ported();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let (small, large) = ("x".repeat(1000), "y".repeat(100_000));
    let above = [
        overshoot(&ported, |at| words(&["SET", &format!("key:{at}"), &small])),
        overshoot(&ported, |at| words(&["SET", &format!("key:{at}"), &large])),
        overshoot(&ported, |at| words(&["APPEND", &format!("key:{}", at % 50), &small.repeat(3)])),
        overshoot(&ported, |at| words(&["SETRANGE", &format!("key:{at}"), "400000", "end"])),
        overshoot(&ported, |at| {
            words(&["MSET", &format!("a:{at}"), &small, &format!("b:{at}"), &large])
        }),
    ];
    println!("{above:?} bytes above maxmemory");
    assert!(above.iter().all(|above| *above < OVERSHOOT), "{above:?}");
}

#[test]
fn an_aof_and_replicas_stop_nobody() {
    let ported = ported();
    let (mut host, mut port) = (ported.host(), ported.client());
    host.ok("CONFIG SET appendonly yes");
    assert!(same(&mut host, &mut port).is_empty());
    host.ok("CONFIG SET aof-use-rdb-preamble no");
    assert!(same(&mut host, &mut port).is_empty());
    host.ok("CONFIG SET appendonly no");
    assert!(same(&mut host, &mut port).is_empty());
    let replica = Builder::new().start();
    replica.client().ok(&format!("REPLICAOF 127.0.0.1 {}", ported.server.port()));
    wait_until("the replica is there", || host.info_number("replication", "connected_slaves") == 1);
    assert!(same(&mut host, &mut port).is_empty());
}

/// Sends a line that has no reply yet when its worker has turned many times.
fn must_wait(ported: &Ported, client: &mut Client, line: &str) {
    client.send_line(line);
    let mut others: Vec<Client> = (0..8).map(|_| ported.client()).collect();
    for _ in 0..100 {
        others.iter_mut().for_each(|other| assert_eq!(other.run("ECHO x"), Value::bulk("x")));
    }
    assert!(!client.has_reply_within(Duration::from_millis(1)), "{line}");
}

#[test]
fn pauses_are_kept() {
    let ported = ported();
    let (mut host, mut port, mut other) = (ported.host(), ported.client(), ported.client());
    port.ok("SET k v");
    host.ok("CLIENT PAUSE 60000 WRITE");
    assert_eq!(other.run("GET k"), Value::bulk("v"));
    must_wait(&ported, &mut port, "SET k w");
    host.ok("CLIENT UNPAUSE");
    assert_eq!(port.read(), Value::ok());
    // A pause that is over too early would be a fault; on a busy machine it lasts longer.
    let at_least = Duration::from_millis(450);
    let began = Instant::now();
    host.ok("CLIENT PAUSE 500 ALL");
    port.send_line("GET k");
    assert_eq!(port.read(), Value::bulk("w"));
    assert!(began.elapsed() > at_least, "{:?}", began.elapsed());
    assert_eq!(other.run("ECHO x"), Value::bulk("x"));
    host.ok("MULTI");
    host.run("CLIENT PAUSE 500");
    let began = Instant::now();
    host.run("EXEC");
    assert_eq!(port.run("PING"), Value::Simple(b"PONG".to_vec()));
    assert!(began.elapsed() > at_least, "{:?}", began.elapsed());
    for pause in [&["CLIENT PAUSE 500 ALL"][..], &["MULTI", "CLIENT PAUSE 500 ALL", "EXEC"]] {
        // The host's counts of pauses are then as after the last one.
        host.ok("CONFIG RESETSTAT");
        let began = Instant::now();
        for line in pause {
            assert!(!host.run(line).is_error(), "{line}");
        }
        assert_eq!(port.run("GET k"), Value::bulk("w"));
        assert!(began.elapsed() > at_least, "{pause:?}: {:?}", began.elapsed());
    }
    let began = Instant::now();
    host.send(b"CLIENT PAUSE 500 ALL\r\nCONFIG RESETSTAT\r\n");
    assert_eq!(host.read(), Value::ok());
    assert_eq!(port.run("GET k"), Value::bulk("w"));
    assert!(began.elapsed() > at_least, "reset in the same turn: {:?}", began.elapsed());
}

#[test]
fn while_data_is_loaded_nobody_is_served() {
    let ported = ported();
    let mut host = ported.host();
    host.ok("DEBUG POPULATE 2000");
    host.ok("ACL SETUSER u on >u +@all ~*");
    host.ok("CONFIG SET key-load-delay 500 loading-process-events-interval-bytes 1024");
    let (mut port, mut newcomer) = (ported.client(), ported.client());
    port.ok("SET k v");
    host.send_line("DEBUG RELOAD");
    wait_until("it loads", || port.run("GET k").is_error());
    let began = Instant::now();
    let loading = Value::error("LOADING Redis is loading the dataset in memory");
    for line in ["GET k", "SET k v", "DBSIZE", "PING"] {
        assert_eq!(port.run(line), loading, "{line}");
    }
    assert_eq!(port.run("ECHO x"), Value::bulk("x"));
    newcomer.ok("AUTH u u");
    assert_eq!(newcomer.run("GET k"), loading);
    println!("{:?}", began.elapsed());
    assert_eq!(host.read(), Value::ok());
    assert_eq!(port.run("GET k"), Value::bulk("v"));
    newcomer.ok("SET k v");
}

#[test]
fn a_server_that_starts_says_so() {
    let mut ported = ported();
    let mut host = ported.host();
    host.ok("DEBUG POPULATE 1000");
    host.ok("ACL SETUSER u on >u +@all ~*");
    host.ok("CONFIG SET key-load-delay 1000 loading-process-events-interval-bytes 1024");
    host.ok("CONFIG REWRITE");
    host.ok("SAVE");
    drop(host);
    let number = ported.number();
    let seen = thread::scope(|scope| {
        let seen = scope.spawn(move || {
            let (mut seen, started) = (Vec::new(), Instant::now());
            while started.elapsed() < Duration::from_secs(20) && !seen.contains(&Value::ok()) {
                thread::sleep(Duration::from_millis(5));
                let Ok(mut port) = Client::connect(number) else { continue };
                let replies = ["AUTH u u", "GET k", "SET k v"].map(|line| {
                    port.try_call(&line.split(' ').collect::<Vec<_>>()).unwrap_or(Value::Null)
                });
                // The old server may still have answered.
                if replies[1].is_error() || !seen.is_empty() {
                    assert_eq!(replies[0], Value::ok());
                    seen.push(replies[2].clone());
                }
            }
            seen
        });
        ported.server.restart(redis_server());
        seen.join().expect("no panic")
    });
    assert_eq!(
        seen.first(),
        Some(&Value::error("LOADING Redis is loading the dataset in memory")),
        "{seen:?}"
    );
    assert_eq!(seen.last(), Some(&Value::ok()));
}

const BUSY: &str =
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";

/// Whether the host answers BUSY, in its own words.
fn is_busy(host: &mut Client, line: &str) -> bool {
    let reply = host.run(line);
    reply.is_error() && reply.text().starts_with("BUSY ")
}

/// Makes the server run a script until it is killed.
fn never_end(host: &mut Client) {
    host.send(&encoded(&["EVAL", "while true do end", "0"]));
}

#[test]
fn a_script_that_takes_too_long_keeps_what_needs_the_host() {
    let ported = ported();
    let mut host = ported.host();
    host.ok("CONFIG SET busy-reply-threshold 50");
    host.ok("ACL SETUSER u on >u +@all ~*");
    let (mut port, mut queued) = (ported.client(), ported.host());
    port.ok("SET k v");
    never_end(&mut host);
    let mut killer = ported.host();
    wait_until("the script is too slow", || is_busy(&mut killer, "PING"));
    // The workers still run what needs no main thread.
    assert_eq!(port.run("GET k"), Value::bulk("v"));
    port.ok("SET k w");
    assert_eq!(port.run("AUTH u u"), Value::error(BUSY));
    assert_eq!(port.run("GET k"), Value::bulk("w"));
    // A user change that the host refuses blocks no client.
    assert!(is_busy(&mut killer, "ACL SETUSER u -@all"));
    assert_eq!(port.run("GET k"), Value::bulk("w"));
    queued.send_line("MIDI.GET k");
    killer.ok("SCRIPT KILL");
    assert!(host.read().is_error());
    assert!(queued.read().text() == "w" || queued.run("MIDI.GET k") == Value::bulk("w"));
    port.ok("AUTH u u");
    port.ok("SET k x");
}

#[test]
fn safemode_is_busy_as_a_whole() {
    let ported = Ported::start(Mode::Safe.builder());
    let mut host = ported.host();
    host.ok("CONFIG SET busy-reply-threshold 50");
    let mut port = ported.client();
    port.ok("SET k v");
    never_end(&mut host);
    let mut killer = ported.host();
    wait_until("the script is too slow", || is_busy(&mut killer, "PING"));
    assert_eq!(port.run("GET k"), Value::error(BUSY));
    killer.ok("SCRIPT KILL");
    assert!(host.read().is_error());
    assert_eq!(port.run("GET k"), Value::bulk("v"));
}

/// Commands at the host's own door that wait for a worker outlive a script that yields, each with
/// one reply.
#[test]
fn the_hosts_own_commands_wait_for_the_script() {
    let ported = Ported::start(Mode::Pool.builder());
    let mut host = ported.host();
    host.ok("CONFIG SET busy-reply-threshold 50");
    host.ok("MIDI.POPULATE 300000");
    let mut clients: Vec<Client> = (0..8).map(|_| ported.host()).collect();
    for client in &mut clients {
        client.send_line("MIDI.KEYS nosuch*");
        client.send_line("MIDI.DBSIZE");
    }
    never_end(&mut host);
    let mut killer = ported.host();
    wait_until("the script is too slow", || is_busy(&mut killer, "PING"));
    thread::sleep(Duration::from_millis(300));
    killer.ok("SCRIPT KILL");
    assert!(host.read().is_error());
    for client in &mut clients {
        let (keys, size) = (client.read(), client.read());
        let busy = |reply: &Value| reply.is_error() && reply.text().starts_with("BUSY ");
        assert!(keys == Value::Array(Vec::new()) || busy(&keys), "{keys:?}");
        assert!(size == Value::Integer(300_000) || busy(&size), "{size:?}");
        assert_eq!(client.integer("MIDI.DBSIZE"), 300_000);
    }
}

#[test]
fn a_cluster_node_does_not_open_it() {
    let ported = Ported::start(Builder::new().config("cluster-enabled yes"));
    assert!(Client::connect(ported.number()).is_err());
    assert!(ported.server.log().contains("cluster-enabled is yes"));
}

/// An address of this machine other than 127.0.0.1, if it has one.
fn outer_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent; nobody owns TEST-NET-1.
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback()).then_some(address)
}

fn told(address: IpAddr, port: u16) -> String {
    let mut stream = TcpStream::connect((address, port)).expect("connect");
    stream.set_read_timeout(Some(Duration::from_secs(5))).expect("timeout");
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    text
}

#[test]
fn strangers_are_kept_out_in_protected_mode() {
    let Some(address) = outer_address() else {
        return skip("there is no address but 127.0.0.1");
    };
    let ported = Ported::start(Mode::Adaptive.builder().config("bind 0.0.0.0"));
    let (there, here) = (told(address, ported.server.port()), told(address, ported.number()));
    let first = "-DENIED Redis is running in protected mode because protected mode is enabled and \
                 no password is set for the default user. ";
    assert!(there.starts_with("-DENIED "), "{there}");
    assert!(here.starts_with(first), "{here}");
    let mut host = ported.host();
    host.ok("CONFIG SET requirepass secret");
    let mut stream = TcpStream::connect((address, ported.number())).expect("connect");
    std::io::Write::write_all(&mut stream, b"AUTH secret\r\n").expect("send");
    let mut reply = [0; 5];
    stream.read_exact(&mut reply).expect("reply");
    assert_eq!(&reply, b"+OK\r\n");
}
