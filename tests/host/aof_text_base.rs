//! The promise: the base of an AOF has midi's keys also if it is not an RDB
//! (`aof-use-rdb-preamble no`), however the rewrite came about. One that cannot have them fails,
//! and leaves the old files as they were.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::aof_base::{is_rewritten_by_the_host, turn_on};
use super::persistence::fill;
use crate::common::aof::{rewrite, survives, wait_for_rewrite};
use crate::common::link::Link;
use crate::common::replicas::{builder, follow};
use crate::common::{Builder, Client, Mode, Server, Value, redis_server, wait_until};

/// The file that a rewrite leaves; it must not be an RDB.
#[track_caller]
fn text_base(server: &Server) -> Vec<u8> {
    let folder = server.dir().join("appendonlydir");
    let manifest = fs::read_to_string(folder.join("appendonly.aof.manifest")).expect("a manifest");
    let line = manifest.lines().find(|line| line.contains(" type b")).expect("a base");
    let name = line.split(' ').nth(1).expect("its name");
    assert!(name.ends_with(".base.aof"), "{name}");
    fs::read(folder.join(name)).expect("the base")
}

fn saved_keys(client: &mut Client) -> i64 {
    client.info_number("midi_persistence", "midi_last_save_keys")
}

/// Keys of all kinds, beside the host's own; rewritten twice, then read by a server with other
/// shards, then rewritten as an RDB.
#[test]
fn a_rewrite_keeps_all_kinds_of_keys() {
    for mode in Mode::tried() {
        let builder = mode.builder().config("appendonly yes").config("databases 16");
        let mut server = builder.load("shards 64").start();
        let mut client = server.client();
        fill(&mut client);
        let huge = vec![b'h'; 5 << 20];
        assert_eq!(client.call(&[b"MIDI.SET".as_slice(), b"huge", &huge]), Value::ok());
        assert_eq!(client.integer("MIDI.COPY huge shared"), 1);
        client.integer("MIDI.SETRANGE shared 5 edited");
        client.integer("MIDI.PEXPIREAT shared 4102444800000");
        client.ok("CONFIG SET aof-use-rdb-preamble no");
        client.ok("CONFIG REWRITE");
        for round in ["first", "second"] {
            rewrite(&mut client);
            assert_eq!(saved_keys(&mut client), 1012 + i64::from(round == "second"), "{round}");
            assert_eq!(client.info("midi_persistence")["midi_last_save_status"], "ok");
            let base = text_base(&server);
            assert_eq!(client.info_number("persistence", "aof_base_size"), base.len() as i64);
            client.ok("MIDI.SET behind 1");
            client.ok("SET behind 1");
            client = survives(&mut server, round);
        }
        server.reconfigure("shards 64", "shards 16");
        client = survives(&mut server, "other shards");
        client.ok("CONFIG SET aof-use-rdb-preamble yes");
        rewrite(&mut client);
        survives(&mut server, "an RDB again");
    }
}

/// `appendonly yes` while the server runs, with nothing but midi's keys, and with none at all.
#[test]
fn turned_on_while_the_server_runs() {
    for keys in [5000, 0] {
        let builder = Builder::new().load("threads 2").config("aof-use-rdb-preamble no");
        let mut server = builder.with_port().start();
        let mut client = server.client();
        client.ok(&format!("MIDI.POPULATE {keys}"));
        turn_on(&server, &mut client);
        wait_for_rewrite(&mut client);
        text_base(&server);
        assert_eq!(saved_keys(&mut client), keys);
        server.midi_client().ok("SET port 1");
        client.ok("MIDI.SET door 1");
        assert_eq!(survives(&mut server, "turned on").integer("MIDI.DBSIZE"), keys + 2);
    }
}

/// A server that begins with such an AOF, and rewrites it by itself: the host's writes cause it.
#[test]
fn rewritten_by_the_host_under_load() {
    let builder = Mode::Adaptive.builder().with_port().config("appendonly yes");
    let builder = builder.config("aof-use-rdb-preamble no");
    is_rewritten_by_the_host(builder, |server| _ = text_base(server));
}

/// No base of commands could mark keys that a replica does not trust, as a section can.
#[test]
fn a_replica_that_does_not_follow() {
    let master = builder(Mode::Adaptive).start();
    let link = Link::to(master.port());
    let with_aof = builder(Mode::Adaptive).config("appendonly yes");
    let replica = with_aof.config("aof-use-rdb-preamble no").start();
    follow(&replica, link.port());
    let (mut port, mut client) = (master.midi_client(), replica.client());
    port.ok("SET a 1");
    wait_until("it follows", || client.run("MIDI.GET a") == Value::bulk("1"));
    wait_for_rewrite(&mut client);
    rewrite(&mut client);
    link.falsify(b"VERSION\r\n$1\r\n1", b"VERSION\r\n$1\r\n9");
    port.ok("SET a 2");
    wait_until("it does not", || client.run("MIDI.GET a").text().starts_with("MASTERDOWN "));
    client.run("BGREWRITEAOF");
    wait_for_failure(&mut client);
    let log = replica.log();
    assert!(log.contains("with midi's keys: this replica could not follow its master"), "{log}");
    client.ok("CONFIG SET aof-use-rdb-preamble yes");
    rewrite(&mut client);
}

fn wait_for_failure(client: &mut Client) {
    wait_until("the rewrite has failed", || {
        let info = client.info("persistence");
        info["aof_rewrite_in_progress"] == "0" && info["aof_last_bgrewrite_status"] == "err"
    });
}

/// A base that has no room for midi's keys fails. A limit on the size of files stands in for a full
/// disk; nothing sends the signal that comes with it if a disk is full.
#[test]
fn a_disk_that_fills() {
    let script = std::env::temp_dir().join(format!("midi-text-base-{}", std::process::id()));
    let text = format!("#!/bin/sh\ntrap '' XFSZ\nexec {} \"$@\"\n", redis_server().display());
    fs::write(&script, text).expect("write the script");
    fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).expect("make it executable");
    let builder = Builder::new().binary(&script).load("threads 2").config("appendonly yes");
    let mut server = builder.config("aof-use-rdb-preamble no").start();
    let mut client = server.client();
    // The files of the AOF itself stay below the limit.
    client.ok("MIDI.POPULATE 3000 small 100");
    rewrite(&mut client);
    client.ok("SET native v");
    for copy in 0..300 {
        assert_eq!(client.integer(&format!("MIDI.COPY small:7 copy:{copy}")), 1);
    }
    let size = text_base(&server).len() as u64;
    server.limit_files(Some(size));
    client.run("BGREWRITEAOF");
    wait_for_failure(&mut client);
    assert!(
        server.log().contains("The AOF cannot be rewritten with midi's keys: temp-rewriteaof-")
    );
    assert_eq!(client.info("midi_persistence")["midi_last_save_status"], "err");
    let left = fs::read_dir(server.dir()).expect("the folder");
    let is_temporary = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("temp-");
    let left: Vec<_> = left.map(|file| file.expect("a file").file_name()).collect();
    assert!(!left.iter().any(is_temporary), "{left:?}");
    server.limit_files(None);
    client.ok("MIDI.SET behind 1");
    server.kill_hard();
    server.restart(redis_server());
    let mut client = server.client();
    assert_eq!(client.integer("MIDI.DBSIZE"), 3301);
    assert_eq!(client.run("GET native"), Value::bulk("v"));
    rewrite(&mut client);
    survives(&mut server, "a rewrite that has room");
    fs::remove_file(script).expect("remove the script");
}
