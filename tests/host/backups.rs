//! The promise: a client that fetches an RDB, as `redis-cli --rdb` does, gets midi's keys of one
//! moment, and writes go on meanwhile.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use super::replication::{digest, fill};
use crate::common::hosts::host;
use crate::common::port::Ported;
use crate::common::{Builder, Value, wait_until};

/// The RDB that the host sends a client that wants one, as `redis-cli --rdb` does.
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

/// The pairs of counters differ by one at most, whatever the moment.
#[test]
fn a_backup_is_of_one_moment_and_holds_nobody_up() {
    let master = Ported::start(Builder::new().config("hz 100").config("rdbcompression no"));
    fill(&master.server);
    // More than the buffers of a connection hold: the transfer ends when it has been read.
    master.host().ok("MIDI.POPULATE 200000 much 100");
    let (mut host, mut port) = (master.host(), master.client());
    for is_diskless in [false, true] {
        host.ok("CONFIG SET repl-diskless-sync yes");
        let mut backup = Backup::begin(master.number_of_host(), is_diskless);
        let rdb = std::thread::scope(|scope| {
            let reading = scope.spawn(|| backup.rdb());
            while !reading.is_finished() {
                assert!(port.integer("MIDI.INCR {1}") > 0);
                assert!(host.integer("MIDI.INCR {2}") > 0);
            }
            reading.join().expect("the RDB")
        });
        drop(backup);
        wait_until("it is gone", || host.info_number("replication", "connected_slaves") == 0);
        let server = Builder::new().start();
        fs::write(server.dir().join("dump.rdb"), rdb).expect("a file");
        let mut client = server.client();
        client.ok("DEBUG RELOAD NOSAVE");
        let number = |value: Value| match value {
            Value::NullBulk => 0,
            value => value.text().parse::<i64>().expect("a number"),
        };
        let behind = number(client.run("MIDI.GET {1}")) - number(client.run("MIDI.GET {2}"));
        assert!((0..=1).contains(&behind), "{behind}");
        assert_eq!(host.integer("MIDI.DEL {1} {2}"), 2);
        client.integer("MIDI.DEL {1} {2}");
        assert_eq!(digest(&server), digest(&master.server));
    }
}

/// A backup is not for a replica: where midi has no keys it loads without midi, but for one of
/// Redis 7.0, which always writes a section.
#[test]
fn a_backup_without_keys_has_no_section() {
    let server = Builder::new().start();
    server.client().ok("SET native v");
    for is_diskless in [false, true] {
        let rdb = Backup::begin(server.port(), is_diskless).rdb();
        let mut plain = Builder::plain().start();
        fs::write(plain.rdb(), rdb).expect("a file");
        let mut client = plain.client();
        if host().is_newer() {
            client.ok("DEBUG RELOAD NOSAVE");
            assert_eq!(client.run("GET native"), Value::bulk("v"));
        } else {
            client.send_line("DEBUG RELOAD NOSAVE");
            plain.wait_for_exit();
            assert!(plain.log().contains("no matching module 'midi-keys'"), "{}", plain.log());
        }
    }
}
