//! The promise: with `appendfsync always` no door acknowledges a write, or shows its value, before
//! an fsync that covers it has ended; with the host's I/O threads and without. Every fsync takes
//! 20 ms here, so a reply that does not wait is seen.
//!
//! EXEC, scripts and the host's own commands are the host's to answer: Redis 8.2 and later and
//! Valkey 9.1 and later answer some of I/O threads before the fsync. They are tested without.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::disk::{Disk, Failure, Fsync, now_ns};
use crate::common::{Builder, Client, Server, Value, at_once, wait_until};

const DELAY: Duration = Duration::from_millis(20);

fn start(disk: &Disk, threads: usize) -> Server {
    let builder = Builder::new().with_port().config("appendonly yes").config("appendfsync always");
    disk.under(builder.config(format!("io-threads {threads}"))).start()
}

/// Servers with and without I/O threads, and one that gets them while it runs: Valkey can.
fn servers(disk: &Disk) -> impl Iterator<Item = (Server, &'static str)> {
    let late = || {
        let server = start(disk, 1);
        let is_set = server.client().run("CONFIG SET io-threads 3") == Value::ok();
        is_set.then_some((server, "3 threads later"))
    };
    let first = [(1, "1 thread"), (3, "3 threads")];
    first
        .into_iter()
        .map(|(n, what)| (start(disk, n), what))
        .chain(std::iter::once_with(late).flatten())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Host,
    Port,
}

const DOORS: [Door; 2] = [Door::Host, Door::Port];

impl Door {
    fn client(self, server: &Server) -> Client {
        match self {
            Door::Host => server.client(),
            Door::Port => server.midi_client(),
        }
    }

    fn line(self, line: &str) -> String {
        match self {
            Door::Host => format!("MIDI.{line}"),
            Door::Port => line.into(),
        }
    }
}

/// Whether an fsync began after the write was sent, and ended before its effect was seen.
fn is_covered(fsyncs: &[Fsync], sent: u64, seen: u64) -> bool {
    fsyncs.iter().any(|fsync| sent < fsync.began_ns && fsync.ended_ns < seen)
}

fn check(server: &Server, disk: &Disk, what: &str, seen: &[(u64, u64)]) {
    let fsyncs = disk.fsyncs_of(server);
    let early = seen.iter().filter(|&&(sent, seen)| !is_covered(&fsyncs, sent, seen)).count();
    assert_eq!(early, 0, "{what}: of {}", seen.len());
}

/// Each kind of write, on each door, by many clients at once.
#[test]
fn acknowledgements_wait_for_their_fsync() {
    let disk = Disk::with_delay(DELAY);
    for (server, threads) in servers(&disk) {
        for door in DOORS {
            let seen = std::sync::Mutex::new(Vec::new());
            at_once(8, |number| {
                let mut client = door.client(&server);
                for round in 0..6 {
                    let line = match round {
                        0 => format!("SET k:{number} {round}"),
                        1 => format!("APPEND k:{number} {round}"),
                        2 => format!("MSET a:{number} {round} b:{number} {round}"),
                        3 => format!("RENAME k:{number} l:{number}"),
                        4 => format!("EXPIRE l:{number} 1000"),
                        _ => format!("DEL l:{number}"),
                    };
                    let sent = now_ns();
                    let reply = client.run(&door.line(&line));
                    let answered = now_ns();
                    assert!(!reply.is_error(), "{line}: {reply:?}");
                    seen.lock().expect("no panic").push((sent, answered));
                }
            });
            let what = format!("{door:?}, {threads}");
            check(&server, &disk, &what, &seen.into_inner().expect("no panic"));
        }
    }
}

/// A value is not shown before it is safe: whoever wrote it, and whoever reads it.
#[test]
fn reads_wait_for_the_fsync_of_what_they_show() {
    let disk = Disk::with_delay(DELAY);
    for (server, threads) in servers(&disk) {
        for (writer, reader) in DOORS.into_iter().flat_map(|w| DOORS.map(|r| (w, r))) {
            let sent: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(0)).collect();
            let first_seen: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(0)).collect();
            writer.client(&server).run(&writer.line("DEL k"));
            // A reader that connects late sees too few values.
            let connected = Barrier::new(4);
            at_once(4, |number| {
                if number == 0 {
                    let mut client = writer.client(&server);
                    connected.wait();
                    for (value, at) in sent.iter().enumerate() {
                        at.store(now_ns(), Ordering::SeqCst);
                        client.ok(&writer.line(&format!("SET k {value}")));
                    }
                    return;
                }
                let mut client = reader.client(&server);
                connected.wait();
                loop {
                    let reply = client.run(&reader.line("GET k"));
                    let seen = now_ns();
                    let Value::Bulk(text) = reply else { continue };
                    let value: usize =
                        String::from_utf8_lossy(&text).parse().expect("a number was set");
                    let _ = first_seen[value].fetch_update(
                        Ordering::SeqCst,
                        Ordering::SeqCst,
                        |before| (before == 0 || seen < before).then_some(seen),
                    );
                    if value + 1 == sent.len() {
                        return;
                    }
                }
            });
            let pairs: Vec<(u64, u64)> = sent
                .iter()
                .zip(&first_seen)
                .map(|(sent, seen)| (sent.load(Ordering::SeqCst), seen.load(Ordering::SeqCst)))
                .filter(|&(_, seen)| seen != 0)
                .collect();
            assert!(pairs.len() > 2, "{pairs:?}");
            check(&server, &disk, &format!("{writer:?} {reader:?}, {threads}"), &pairs);
        }
    }
}

/// Commands that read the keyspace as a whole, or in a unit, wait too.
#[test]
fn units_and_scans_wait_as_well() {
    let disk = Disk::with_delay(DELAY);
    let server = start(&disk, 1);
    let eval = "EVAL return(redis.call('MIDI.EXISTS','k')) 0";
    let reads = [
        (Door::Port, "DBSIZE"),
        (Door::Port, "EXISTS k"),
        (Door::Port, "SCAN 0 COUNT 1000000"),
        (Door::Port, "KEYS *"),
        (Door::Host, "MIDI.DBSIZE"),
        (Door::Host, "MIDI.MGET k nokey"),
        (Door::Host, "MIDI.KEYS *"),
        (Door::Host, eval),
    ];
    for (door, line) in reads {
        let mut writer = Door::Port.client(&server);
        let mut reader = door.client(&server);
        let empty = reader.run(line);
        let sent = now_ns();
        writer.send_line("SET k value");
        let seen = loop {
            let reply = reader.run(line);
            let seen = now_ns();
            if reply != empty {
                break seen;
            }
        };
        assert_eq!(writer.read(), Value::ok());
        check(&server, &disk, line, &[(sent, seen)]);
        writer.ok("FLUSHALL");
    }
    let mut client = server.client();
    let sent = now_ns();
    client.ok("MULTI");
    client.run("MIDI.SET k 1");
    client.run("SET native 1");
    client.run("EXEC");
    let mut pairs = vec![(sent, now_ns())];
    let mut port = server.midi_client();
    let sent = now_ns();
    port.ok("MULTI");
    port.run("SET k 2");
    port.run("INCR k");
    port.run("EXEC");
    pairs.push((sent, now_ns()));
    let sent = now_ns();
    port.ok("FLUSHALL");
    pairs.push((sent, now_ns()));
    let sent = now_ns();
    client.ok("MIDI.POPULATE 1000");
    pairs.push((sent, now_ns()));
    check(&server, &disk, "units", &pairs);
}

/// A write or an fsync that fails ends the server. Nothing of that turn was acknowledged.
#[test]
fn a_failing_disk_ends_the_server() {
    for fail in [Disk::fail_writes, Disk::fail_fsyncs] {
        let disk = Disk::with_delay(Duration::ZERO);
        let mut server = start(&disk, 1);
        let (mut port, mut host) = (server.midi_client(), server.client());
        port.ok("SET k before");
        fail(&disk, Failure::Full);
        port.send_line("SET k after");
        let refused = port.try_read();
        assert!(refused.is_err(), "{refused:?}");
        host.send_line("MIDI.SET k after");
        assert!(host.try_read().is_err());
        assert_eq!(server.wait_for_exit().code(), Some(1));
        assert!(server.log().contains("No space left on device"), "{}", server.log());
    }
}

/// With `everysec` an fsync that fails stops writes on every door, in the host's words, until one
/// succeeds.
#[test]
fn a_failing_fsync_of_everysec_stops_writes_on_every_door() {
    const BROKEN: &str = "MISCONF Errors writing to the AOF file: Input/output error";
    let disk = Disk::with_delay(Duration::ZERO);
    let builder = Builder::new().with_port().config("appendonly yes");
    let mut server = disk.under(builder).start();
    let (mut port, mut host) = (server.midi_client(), server.client());
    port.ok("SET k before");
    // Redis 7.0 begins no fsync while nothing is new in its file, and the last failure stands until
    // one succeeds. Keys that expire bring it something although every write is refused.
    for second in 1..=30 {
        host.ok(&format!("SET native:{second} value EX {second}"));
    }
    disk.fail_fsyncs(Failure::Broken);
    wait_until("the host refuses writes", || host.run("SET native value").is_error());
    assert_eq!(host.run("MIDI.SET k value"), Value::error(BROKEN));
    wait_until("the port refuses writes", || port.run("SET k value") == Value::error(BROKEN));
    assert!(!port.run("GET k").is_error(), "reads go on");
    disk.repair();
    wait_until("the port accepts writes", || port.run("SET k after") == Value::ok());
    assert_eq!(host.run("MIDI.SET h after"), Value::ok());
    // The host may hold its write() back while an fsync runs.
    wait_until("it is written", || host.info_number("persistence", "aof_buffer_length") == 0);
    server.crash();
    server.restart(crate::common::redis_server());
    let after = || Value::bulk("after");
    assert_eq!(server.client().run("MIDI.MGET k h").array(), [after(), after()]);
}

/// With `everysec` a full disk stops writes on every door, in the host's words, until it has room.
#[test]
fn a_full_disk_stops_writes_on_every_door() {
    const FULL: &str = "MISCONF Errors writing to the AOF file: No space left on device";
    let disk = Disk::with_delay(Duration::ZERO);
    let builder = Builder::new().with_port().config("appendonly yes");
    let mut server = disk.under(builder).start();
    let (mut port, mut host) = (server.midi_client(), server.client());
    port.ok("SET k before");
    disk.fail_writes(Failure::Full);
    wait_until("the host refuses writes", || host.run("SET native value").is_error());
    assert_eq!(host.run("MIDI.SET k value"), Value::error(FULL));
    wait_until("the port refuses writes", || {
        let mut other = server.midi_client();
        other.send_line("SET k value");
        other.has_reply_within(Duration::from_millis(200)) && other.read() == Value::error(FULL)
    });
    assert!(!port.run("GET k").is_error(), "reads go on");
    disk.repair();
    wait_until("the port accepts writes", || port.run("SET k after") == Value::ok());
    // With `everysec` the host may hold its write() back while an fsync runs.
    wait_until("it is written", || host.info_number("persistence", "aof_buffer_length") == 0);
    server.kill_hard();
    server.restart(crate::common::redis_server());
    assert_eq!(server.client().run("MIDI.GET k"), Value::bulk("after"));
}

/// The host refuses the first write after the one that it could not write. The port asks it once in
/// a millisecond, before it answers. With `no`, the host holds no write() back.
#[test]
fn a_full_disk_is_known_at_once() {
    let disk = Disk::with_delay(Duration::ZERO);
    let builder = Builder::new().with_port().config("appendonly yes").config("appendfsync no");
    let mut server = disk.under(builder).start();
    let (mut port, mut other) = (server.midi_client(), server.midi_client());
    for round in 0..20 {
        port.ok(&format!("SET k {round}"));
        disk.fail_writes(Failure::Full);
        let mut is_answered = true;
        for pause in [0, 2] {
            std::thread::sleep(Duration::from_millis(pause));
            if is_answered {
                port.send_line(&format!("SET k {round}"));
                is_answered = port.has_reply_within(Duration::from_secs(2));
            }
            if is_answered {
                port.read();
            }
        }
        let refused = other.run(&format!("SET k {round}"));
        assert!(refused.is_error(), "in round {round}: {refused:?}");
        disk.repair();
        if !is_answered {
            // It had just run, and was not logged yet.
            assert_eq!(port.read(), Value::ok(), "there is room again");
        }
        wait_until("the port accepts writes", || port.run("SET k after") == Value::ok());
    }
    server.crash();
    server.restart(crate::common::redis_server());
    assert_eq!(server.client().run("MIDI.GET k"), Value::bulk("after"));
}

/// Hosts from about 8.2 on report their policy whatever CONFIG is called. Where it is not known
/// midi waits, unless `midi.assume-appendfsync` says that it need not; so does a port that would
/// otherwise answer what has run.
#[test]
fn a_policy_that_is_not_known_is_always() {
    for gone in ["CONFIG \"\"", "CONFIG settings"] {
        let disk = Disk::with_delay(DELAY);
        let builder = Builder::new().load("reply-after run").with_port().config("appendonly yes");
        let builder = builder.config("appendfsync always").config(format!("rename-command {gone}"));
        let server = disk.under(builder).start();
        let (mut writer, mut reader) = (server.midi_client(), server.midi_client());
        let mut seen = Vec::new();
        for value in 0..10 {
            let sent = now_ns();
            writer.send_line(&format!("SET k {value}"));
            while reader.run("GET k") != Value::bulk(value.to_string()) {}
            seen.push((sent, now_ns()));
            assert_eq!(writer.read(), Value::ok());
            seen.push((sent, now_ns()));
        }
        check(&server, &disk, gone, &seen);
        let info = server.client().info("midi_persistence");
        let is_told = !server.log().contains("midi assumes appendfsync always");
        let skips = if is_told { "no" } else { "unknown" };
        assert_eq!(info["midi_journal_skips_fsyncs_beside_children"], skips);
    }
}

#[test]
fn a_policy_that_is_assumed() {
    let reads_wait = |lines: &[&str]| {
        let builder = Builder::new().load("threads 2").config("rename-command CONFIG \"\"");
        let server = lines.iter().fold(builder, |builder, line| builder.config(*line)).start();
        let waits = server.client().info("midi_persistence")["midi_journal_reads_wait"].clone();
        (waits == "yes", server.log())
    };
    let (waits, log) = reads_wait(&["appendfsync everysec", "midi.assume-appendfsync everysec"]);
    assert!(!waits, "{log}");
    let (waits, log) = reads_wait(&["appendfsync everysec"]);
    assert_eq!(waits, log.contains("midi assumes appendfsync always"), "{log}");
    // The host's report counts.
    let (waits, log) = reads_wait(&["appendfsync always", "midi.assume-appendfsync no"]);
    assert_eq!(waits, !log.contains("midi assumes appendfsync no"), "{log}");
}
