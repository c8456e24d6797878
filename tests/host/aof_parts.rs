//! The promise: a long text goes to the AOF and to replicas in parts, and takes effect as a whole,
//! whatever happens between them: the server's end, a fork, a replica that comes, goes or is
//! promoted, and writes that cannot wait. It takes no more memory than stock's SET does.
//!
//! Environment: `MIDI_LARGE_MB` (the size of the value whose memory is measured).

use std::time::Duration;

use super::aof::builder;
use crate::common::aof::{crash, incr_file, parse, rewrite, wait_for_rewrite, wait_until_written};
use crate::common::disk::Disk;
use crate::common::replicas::{follow, full_syncs, must_become_equal, wait_for_link};
use crate::common::{Builder, Client, Mode, Server, Value, encoded, redis_server, wait_until};

/// Some 24 parts, each of which waits for an fsync.
const SIZE: usize = 24 << 20;
const DELAY: Duration = Duration::from_millis(100);

/// A server whose fsyncs are slow, with a key and some others.
fn slow_server(disk: &Disk) -> Server {
    let builder = disk.under(builder(Mode::Adaptive)).config("auto-aof-rewrite-percentage 0");
    // A replica that comes back must find in the backlog what it has missed.
    let builder = builder.config("repl-backlog-size 64mb");
    let server = builder.config("save 3600 1000000").start();
    let mut client = server.client();
    client.ok("MIDI.SET k old");
    client.ok("MIDI.SET other 1");
    client.ok("CONFIG SET appendfsync always");
    server
}

fn value(byte: u8) -> Vec<u8> {
    vec![byte; SIZE]
}

/// The names and offsets of the parts in the file, in order.
fn parts(server: &Server) -> Vec<(String, usize)> {
    let text = std::fs::read(incr_file(server)).expect("the AOF");
    let (commands, _) = parse(&text);
    let journals = commands.iter().filter(|command| command[0] == b"MIDI.JOURNAL");
    let parts = journals.filter_map(|command| {
        let (records, rest) = parse(&command[1]);
        assert!(rest.is_empty(), "whole records");
        let is_part = records[0][1] == b"3";
        is_part.then(|| {
            assert_eq!(records.len(), 2, "one part");
            assert!(records[1][2].len() <= 1 << 20 || records[1][0] == b"LAST", "a short one");
            let words = [&records[1][0], &records[1][1]];
            let [name, offset] = words.map(|word| String::from_utf8_lossy(word).into_owned());
            (name, offset.parse().expect("an offset"))
        })
    });
    parts.collect()
}

/// A client whose SET of a large value has been logged in part.
fn in_the_middle(server: &Server, byte: u8) -> Client {
    let file = |server| std::fs::metadata(incr_file(server)).expect("the AOF").len();
    let before = file(server);
    let mut client = server.midi_client();
    client.send(&encoded(&[b"SET".to_vec(), b"k".to_vec(), value(byte)]));
    wait_until("some parts are logged", || file(server) > before + (3 << 20));
    assert!(!client.has_reply_within(Duration::from_millis(1)), "the rest is not");
    client
}

fn must_be(client: &mut Client, byte: u8) {
    assert_eq!(client.integer("MIDI.STRLEN k"), SIZE as i64);
    let both = [byte; 2];
    assert_eq!(client.run("MIDI.GETRANGE k 0 1"), Value::bulk(both));
    assert_eq!(client.run("MIDI.GETRANGE k -2 -1"), Value::bulk(both));
}

fn begun(parts: &[(String, usize)]) -> usize {
    parts.iter().filter(|(_, offset)| *offset == 0).count()
}

#[test]
fn a_crash_in_the_middle() {
    let disk = Disk::with_delay(DELAY);
    let mut server = slow_server(&disk);
    let writer = in_the_middle(&server, b'a');
    let mut client = crash(&mut server);
    drop(writer);
    assert_eq!(client.run("MIDI.GET k"), Value::bulk("old"), "nothing half");
    assert_eq!(client.run("MIDI.GET other"), Value::bulk("1"));
    let given_up = parts(&server);
    assert!(given_up.len() > 2 && given_up.iter().all(|(name, _)| name == "PART"));
    // The file goes on behind the parts that nobody finishes.
    client.ok("CONFIG SET appendfsync always");
    client.ok("MIDI.SET other 2");
    let mut writer = in_the_middle(&server, b'b');
    assert_eq!(writer.read(), Value::ok());
    let parts = parts(&server);
    assert_eq!(parts.last().map(|(name, _)| &name[..]), Some("LAST"));
    let offsets: Vec<usize> = parts[given_up.len()..].iter().map(|(_, offset)| *offset).collect();
    assert!(offsets.iter().enumerate().all(|(number, &offset)| offset == number << 20));
    let mut client = crash(&mut server);
    must_be(&mut client, b'b');
    assert_eq!(client.run("MIDI.GET other"), Value::bulk("2"));
}

#[test]
fn a_fork_in_the_middle() {
    for command in ["BGREWRITEAOF", "BGSAVE"] {
        let disk = Disk::with_delay(DELAY);
        let mut server = slow_server(&disk);
        let mut client = server.client();
        let mut writer = in_the_middle(&server, b'a');
        assert!(!client.run(command).is_error());
        if command == "BGREWRITEAOF" {
            wait_for_rewrite(&mut client);
        } else {
            wait_until("it has saved", || {
                client.info("persistence")["rdb_bgsave_in_progress"] == "0"
            });
        }
        assert_eq!(writer.read(), Value::ok());
        let parts = parts(&server);
        // A rewrite begins another file, whose base has the parts before.
        assert_eq!(begun(&parts), usize::from(command == "BGSAVE"), "{parts:?}");
        must_be(&mut crash(&mut server), b'a');
    }
}

/// The AOF grows by the parts, so that the host rewrites it, again and again.
#[test]
fn rewrites_in_the_middle() {
    let disk = Disk::with_delay(DELAY);
    let mut server = slow_server(&disk);
    let mut client = server.client();
    let mut writer = in_the_middle(&server, b'a');
    client.ok("CONFIG SET auto-aof-rewrite-min-size 1mb");
    client.ok("CONFIG SET auto-aof-rewrite-percentage 50");
    assert_eq!(writer.read(), Value::ok());
    let rewrites = server.log().matches("Starting automatic rewriting of AOF").count();
    assert!(rewrites > 1, "{rewrites} rewrites");
    wait_for_rewrite(&mut client);
    must_be(&mut crash(&mut server), b'a');
}

/// What cannot wait is logged behind the rest of the text, at once.
#[test]
fn commands_in_the_middle() {
    let disk = Disk::with_delay(DELAY);
    let mut server = slow_server(&disk);
    for (line, length) in [
        ("MIDI.SET other 3", SIZE),
        ("MIDI.APPEND k x", SIZE + 1),
        ("SWAPDB 0 1", 0),
        ("FLUSHALL", 0),
    ] {
        let mut client = server.client();
        let mut writer = in_the_middle(&server, b'a');
        let reply = client.run(line);
        assert!(!reply.is_error(), "{line}: {reply:?}");
        assert_eq!(writer.read(), Value::ok(), "{line}");
        assert_eq!(client.integer("MIDI.STRLEN k"), length as i64, "{line}");
        let digest = |client: &mut Client| {
            ["0", "1"].map(|db| {
                client.ok(&format!("SELECT {db}"));
                client.run("MIDI.KEYSPACEDIGEST")
            })
        };
        let before = digest(&mut client);
        let last = parts(&server).pop().expect("a part");
        assert!(last.0 == "LAST" && last.1 < 16 << 20, "{line}: {last:?}");
        let mut client = crash(&mut server);
        assert_eq!(digest(&mut client), before, "{line}");
        client.ok("FLUSHALL");
        client.ok("CONFIG SET appendfsync always");
    }
}

#[test]
fn a_pause_in_the_middle() {
    let disk = Disk::with_delay(DELAY);
    let mut server = slow_server(&disk);
    let mut writer = in_the_middle(&server, b'a');
    server.client().ok("CLIENT PAUSE 300 WRITE");
    assert_eq!(writer.read(), Value::ok());
    assert_eq!(begun(&parts(&server)), 1, "it went on");
    must_be(&mut crash(&mut server), b'a');
}

fn replica(port: u16) -> Server {
    let line = format!("replicaof 127.0.0.1 {port}");
    let replica = builder(Mode::Adaptive).config("appendonly no").config(line);
    let replica = replica.config("save 3600 1000000").start();
    wait_for_link(&replica);
    replica
}

#[test]
fn a_replica_that_comes_in_the_middle() {
    let disk = Disk::with_delay(DELAY);
    let master = slow_server(&disk);
    let replica = builder(Mode::Adaptive).config("appendonly no").start();
    let mut writer = in_the_middle(&master, b'a');
    follow(&replica, master.port());
    assert_eq!(writer.read(), Value::ok());
    must_become_equal(&[&master, &replica], "it has all");
    must_be(&mut replica.client(), b'a');
}

/// What it has of the text is in its RDB.
#[test]
fn a_replica_that_restarts_in_the_middle() {
    let disk = Disk::with_delay(DELAY);
    let master = slow_server(&disk);
    let mut replica = replica(master.port());
    let mut writer = in_the_middle(&master, b'a');
    // SIGTERM saves.
    replica.restart(redis_server());
    assert!(!writer.has_reply_within(Duration::from_millis(1)), "it was in the middle");
    assert_eq!(replica.client().run("MIDI.GET k"), Value::bulk("old"));
    wait_for_link(&replica);
    assert_eq!(writer.read(), Value::ok());
    must_become_equal(&[&master, &replica], "it has all");
    must_be(&mut replica.client(), b'a');
    assert_eq!(full_syncs(&[&master]), 1, "it resumed");
    assert_eq!(begun(&parts(&master)), 1, "the master went on");
}

/// It rewrites its AOF with what it has of the text; the file behind it begins in the middle.
#[test]
fn a_replica_that_rewrites_in_the_middle() {
    for preamble in ["yes", "no"] {
        let disk = Disk::with_delay(DELAY);
        let master = slow_server(&disk);
        let aof = builder(Mode::Adaptive).config("appendfsync no");
        let mut replica = aof.config(format!("aof-use-rdb-preamble {preamble}")).start();
        follow(&replica, master.port());
        wait_for_rewrite(&mut replica.client());
        let mut writer = in_the_middle(&master, b'a');
        wait_until("the replica has the beginning", || begun(&parts(&replica)) == 1);
        rewrite(&mut replica.client());
        assert!(!writer.has_reply_within(Duration::from_millis(1)), "it was in the middle");
        assert_eq!(writer.read(), Value::ok());
        must_become_equal(&[&master, &replica], "it has all");
        assert_eq!(begun(&parts(&replica)), 0, "it began in the middle");
        let mut client = replica.client();
        client.ok("REPLICAOF NO ONE");
        wait_until_written(&mut client);
        must_be(&mut crash(&mut replica), b'a');
    }
}

#[test]
fn a_promotion_in_the_middle() {
    let disk = Disk::with_delay(DELAY);
    let master = slow_server(&disk);
    let replica = replica(master.port());
    let below = self::replica(replica.port());
    let writer = in_the_middle(&master, b'a');
    let mut client = replica.client();
    client.ok("REPLICAOF NO ONE");
    drop((writer, master));
    assert_eq!(client.run("MIDI.GET k"), Value::bulk("old"), "nothing half");
    client.ok("MIDI.SET other 3");
    let large = [b"SET".to_vec(), b"k".to_vec(), value(b'b')];
    assert_eq!(replica.midi_client().call(&large), Value::ok());
    must_become_equal(&[&replica, &below], "the new master, and its replica");
    must_be(&mut below.client(), b'b');
}

/// The peak of a server that has run so many SETs of one key, in bytes.
fn peak_of(server: &Server, mut client: Client, sets: u8) -> usize {
    let text = std::env::var("MIDI_LARGE_MB");
    let size = text.map_or(128, |text| text.parse().expect("MIDI_LARGE_MB")) << 20;
    for byte in 0..sets {
        let command = encoded(&[b"SET".to_vec(), b"k".to_vec(), vec![b'a' + byte; size]]);
        client.send(&command);
        assert_eq!(client.read(), Value::ok());
    }
    server.peak_memory()
}

#[test]
fn a_set_on_the_port_takes_no_more_memory_than_stocks() {
    let with_aof = |builder: Builder| {
        let builder = builder.config("appendonly yes").config("appendfsync everysec");
        builder.config("auto-aof-rewrite-percentage 0").start()
    };
    let peaks = [1, 2].map(|sets| {
        let stock = with_aof(Builder::plain());
        let server = with_aof(Mode::Adaptive.builder().with_port());
        let of_stock = peak_of(&stock, stock.client(), sets);
        (peak_of(&server, server.midi_client(), sets), of_stock)
    });
    assert!(peaks.iter().all(|(of_port, of_stock)| of_port <= of_stock), "{peaks:?}");
}
