//! The promise: a master refuses writes from the fork for a replica's first sync until its last
//! replica has gone, and not longer. So no acknowledged write is missing on a replica.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::replication::{attach, digest, fill, wait_for_link};
use crate::common::link::Link;
use crate::common::port::Ported;
use crate::common::{Builder, Client, Mode, Server, Value, wait_until};

fn is_misconf(reply: &Value) -> bool {
    matches!(reply, Value::Error(text) if text.starts_with(b"MISCONF midi does not replicate"))
}

/// What the writers of a test know.
#[derive(Default)]
struct Writer {
    /// The last number that was acknowledged.
    acknowledged: AtomicU64,
    /// Refusals since the test last asked.
    refused: AtomicU64,
}

impl Writer {
    /// Counts up in a key, and does not go on to the next number until this one is acknowledged.
    fn work(&self, mut client: Client, key: &str, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let next = self.acknowledged.load(Ordering::Relaxed) + 1;
            let reply = client.run(&format!("MIDI.SET {key} {next}"));
            if reply == Value::ok() {
                self.acknowledged.store(next, Ordering::Relaxed);
            } else {
                assert!(is_misconf(&reply), "{reply:?}");
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn number(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Replicas come and go, each by its own kind of fork, while others write through both doors.
#[test]
fn no_acknowledged_write_is_missing_on_a_replica() {
    for mode in [Mode::Adaptive, Mode::Pool] {
        let master = Ported::start(mode.builder());
        master.host().ok("MIDI.POPULATE 20000");
        let replica = Builder::new().config("repl-diskless-load on-empty-db").start();
        let (writers, stop) = ([(); 3].map(|()| Writer::default()), AtomicBool::new(false));
        thread::scope(|scope| {
            let _stop = StopAtEnd(&stop);
            for (number, writer) in writers.iter().enumerate() {
                let (master, stop) = (&master, &stop);
                scope.spawn(move || {
                    let client = if number == 0 { master.host() } else { master.client() };
                    writer.work(client, &format!("counter:{number}"), stop);
                });
            }
            for round in 0..10 {
                come_and_go(&master, &replica, &writers, round);
            }
        });
    }
}

fn come_and_go(master: &Ported, replica: &Server, writers: &[Writer], round: u64) {
    let diskless = ["yes", "no"][round as usize % 2];
    master.host().ok(&format!("CONFIG SET repl-diskless-sync {diskless}"));
    let before: Vec<u64> = writers.iter().map(Writer::number).collect();
    wait_until("all write", || writers.iter().zip(&before).all(|(now, &then)| now.number() > then));
    writers.iter().for_each(|writer| writer.refused.store(0, Ordering::Relaxed));
    attach(replica, master.number_of_host());
    wait_for_link(replica);
    // Whoever has been refused twice has no write under way from before the fork.
    wait_until("all are refused", || {
        writers.iter().all(|writer| writer.refused.load(Ordering::Relaxed) >= 2)
    });
    let acknowledged: Vec<u64> = writers.iter().map(Writer::number).collect();
    let mut client = replica.client();
    for (number, &last) in acknowledged.iter().enumerate() {
        let there = client.run(&format!("MIDI.GET counter:{number}"));
        assert_eq!(there, Value::bulk(last.to_string()), "writer {number}, round {round}");
    }
    assert_eq!(digest(replica), digest(&master.server), "round {round}");
    client.ok("REPLICAOF NO ONE");
}

/// The host's cron, which runs once in a second here, is not what opens the gate.
#[test]
fn the_gate_opens_in_the_turn_in_which_the_last_replica_leaves() {
    let master = Ported::start(Builder::new().load("threads 2").config("hz 1"));
    let replicas = [(); 2].map(|()| Builder::new().start());
    let (mut host, mut port) = (master.host(), master.client());
    for round in 0..3 {
        for replica in &replicas {
            attach(replica, master.number_of_host());
        }
        replicas.iter().for_each(wait_for_link);
        for (left, replica) in replicas.iter().enumerate() {
            assert!(is_misconf(&host.run("MIDI.SET k v")), "{left} left in round {round}");
            assert!(is_misconf(&port.run("MIDI.SET k v")), "{left} left in round {round}");
            replica.client().ok("REPLICAOF NO ONE");
            let others = replicas.len() - left - 1;
            wait_until("it is gone", || {
                host.info_number("replication", "connected_slaves") == others as i64
            });
        }
        assert_eq!(port.run("MIDI.SET k v"), Value::ok());
        assert_eq!(host.run("MIDI.SET k v"), Value::ok());
    }
}

/// It is reported as a client only.
#[test]
fn a_replica_that_leaves_during_its_transfer_does_not_keep_the_gate_closed() {
    let master = Ported::start(Builder::new().config("hz 1").config("rdbcompression no"));
    fill(&master.server);
    let link = Link::to(master.number_of_host());
    for diskless in ["yes", "no"] {
        master.host().ok(&format!("CONFIG SET repl-diskless-sync {diskless}"));
        let replica = Builder::new().start();
        let broken = link.broken();
        link.break_after(400_000);
        attach(&replica, link.port());
        wait_until("it broke", || link.broken() > broken);
        replica.client().ok("REPLICAOF NO ONE");
        let mut host = master.host();
        wait_until("it is gone", || host.info_number("replication", "connected_slaves") == 0);
        assert_eq!(master.client().run("MIDI.SET k v"), Value::ok());
        assert_eq!(host.run("MIDI.SET k v"), Value::ok());
    }
}

/// What the host sends a client that wants an RDB, as `redis-cli --rdb` does.
struct Backup {
    stream: BufReader<TcpStream>,
}

impl Backup {
    /// Asks for it, and waits until it begins to come.
    fn begin(port: u16, is_diskless: bool) -> Backup {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        let mut backup = Backup { stream: BufReader::new(stream) };
        let capability = if is_diskless { "eof" } else { "psync2" };
        for line in [format!("REPLCONF capa {capability}"), "REPLCONF rdb-only 1".into()] {
            backup.say(&line);
            assert_eq!(backup.line(), "+OK");
        }
        backup.say("SYNC");
        backup
    }

    fn say(&mut self, line: &str) {
        self.stream.get_mut().write_all(format!("{line}\r\n").as_bytes()).expect("it is sent");
    }

    /// The next line that is not empty: the host sends line ends while it has nothing else.
    fn line(&mut self) -> String {
        let mut line = String::new();
        while line.trim().is_empty() {
            line.clear();
            assert_ne!(self.stream.read_line(&mut line).expect("a line"), 0, "it ended");
        }
        line.trim().to_owned()
    }

    /// The RDB. The connection stays.
    fn rdb(&mut self) -> Vec<u8> {
        let head = self.line();
        let mut bytes = Vec::new();
        if let Some(mark) = head.strip_prefix("$EOF:") {
            while !bytes.ends_with(mark.as_bytes()) {
                let came = self.stream.fill_buf().expect("more");
                assert!(!came.is_empty(), "it ended");
                let len = came.len();
                bytes.extend_from_slice(came);
                self.stream.consume(len);
            }
            bytes.truncate(bytes.len() - mark.len());
        } else {
            let len: usize = head.strip_prefix('$').expect("a length").parse().expect("a length");
            bytes.resize(len, 0);
            self.stream.read_exact(&mut bytes).expect("as much");
        }
        bytes
    }
}

/// Writes are refused for the transfer only.
#[test]
fn a_backup_has_the_keys_and_holds_writes_up_for_the_transfer() {
    let master = Ported::start(Builder::new().config("hz 100").config("rdbcompression no"));
    fill(&master.server);
    // More than the buffers of a connection hold: the transfer ends when it has been read.
    master.host().ok("MIDI.POPULATE 200000 much 100");
    let (mut host, mut port) = (master.host(), master.client());
    for is_diskless in [false, true] {
        host.ok("CONFIG SET repl-diskless-sync yes");
        let mut backup = Backup::begin(master.number_of_host(), is_diskless);
        wait_until("writes are refused", || is_misconf(&port.run("MIDI.INCR counter")));
        assert!(is_misconf(&host.run("MIDI.INCR counter")));
        let before = digest(&master.server);
        let rdb = backup.rdb();
        drop(backup);
        wait_until("it is gone", || host.info_number("replication", "connected_slaves") == 0);
        assert!(!port.run("MIDI.INCR counter").is_error());
        let server = Builder::new().start();
        fs::write(server.dir().join("dump.rdb"), rdb).expect("a file");
        server.client().ok("DEBUG RELOAD NOSAVE");
        assert_eq!(digest(&server), before);
    }
}
