//! The promise: what stands in the AOF behind its base is replayed in its order, on all cores,
//! whatever the clock says; what cannot be replayed ends the start with a line that names it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use midi::command::record::{
    RECORD_VERSION, Record, Words, header, part_of_text, raise_version, select,
};
use midi::store::Origin;

use super::aof_base::turn_on;
use super::persistence::{contents, fill};
use crate::common::aof::check_tool;
use crate::common::hosts::host;
use crate::common::{
    Builder, Client, Random, Server, Value, encoded, redis_server, skip, wait_until,
};

/// A server whose AOF has a base with these keys, and nothing behind it; it is not running.
fn with_base(builder: Builder, fill: impl FnOnce(&mut Client)) -> Server {
    let mut server = builder.start();
    let mut client = server.client();
    fill(&mut client);
    turn_on(&server, &mut client);
    server.kill_hard();
    server
}

fn empty() -> Server {
    with_base(Builder::new().load("threads 3"), |_| ())
}

/// The file to which the server appends.
fn aof(server: &Server) -> PathBuf {
    let folder = server.dir().join("appendonlydir");
    let manifest = fs::read_to_string(folder.join("appendonly.aof.manifest")).expect("a manifest");
    let line = manifest.lines().rfind(|line| line.contains(" type i")).expect("an increment");
    folder.join(line.split(' ').nth(1).expect("a name"))
}

fn append(server: &Server, bytes: &[u8]) {
    let mut file = fs::File::options().append(true).open(aof(server)).expect("the AOF");
    file.write_all(bytes).expect("written");
}

/// A text of these records of database `db`.
fn text(db: u32, records: &[Record<'_>]) -> Vec<u8> {
    let mut text = Vec::new();
    header(1, &mut text);
    select(db, &mut text);
    records.iter().for_each(|record| record.write(&mut text));
    text
}

fn journal(text: &[u8]) -> Vec<u8> {
    encoded(&[b"MIDI.JOURNAL".as_slice(), text])
}

fn command(line: &str) -> Vec<u8> {
    encoded(&line.split(' ').collect::<Vec<_>>())
}

/// A SET without expiry.
fn set<'a>(key: &'a [u8], value: &'a [u8]) -> Record<'a> {
    Record::Set { key, value, expire_at: None, traits: Default::default() }
}

/// So many keys: a text that is left to the workers.
fn many(prefix: &str, count: usize) -> Vec<u8> {
    let names: Vec<String> = (0..count).map(|number| format!("{prefix}:{number}")).collect();
    let records: Vec<_> = names.iter().map(|name| set(name.as_bytes(), b"value")).collect();
    text(0, &records)
}

fn started(server: &mut Server) -> Client {
    server.restart(redis_server());
    server.client()
}

/// Starts it in vain; the line of the log that says why.
fn refusal(server: &mut Server) -> String {
    let (code, log) = server.restart_in_vain();
    assert_eq!(code, Some(1), "{log}");
    let line = log.lines().find(|line| line.contains("The AOF is not loaded"));
    let line = line.unwrap_or_else(|| panic!("no line:\n{log}"));
    line.split_once("<midi> ").expect("midi's line").1.to_owned()
}

const FUTURE: i64 = 4_000_000_000_000;

/// The same in a text that the main thread replays, and in one that is left to the workers.
#[test]
fn all_records() {
    for large in [false, true] {
        let mut server = with_base(Builder::new().load("threads 3"), fill);
        let padding = vec![b'p'; if large { 100_000 } else { 10 }];
        let records = [
            set(b"padding", &padding),
            Record::Set {
                key: b"all",
                value: b"\0\r\n",
                expire_at: Some(FUTURE),
                traits: Origin::Computed.into(),
            },
            Record::Del { key: b"a" },
            Record::PexpireAt { key: b"b", at: FUTURE },
            Record::Persist { key: b"lasting" },
            Record::Append { key: b"edited", bytes: b"def" },
            Record::Append { key: b"new", bytes: b"bytes" },
            Record::SetRange { key: b"range", offset: 2, bytes: b"x" },
            Record::Append { key: b"large", bytes: b"tail" },
            Record::SetRange { key: b"large", offset: 1, bytes: b"yy" },
            Record::Multi,
            Record::Copy { key: b"c", to: b"copied", db: 2 },
            Record::Rename { key: b"c", to: b"renamed" },
            Record::Exec,
            Record::Rename { key: b"missing", to: b"b" },
            Record::Rename { key: b"all", to: b"all" },
            Record::Select { db: 1 },
            Record::Move { key: b"key:0", db: 0 },
            Record::Copy { key: b"key:1", to: b"key:2", db: 1 },
        ];
        append(&server, &journal(&text(0, &records)));
        let mut client = started(&mut server);
        for (line, expected) in [
            ("MIDI.GET all", Value::bulk(b"\0\r\n")),
            ("MIDI.PEXPIRETIME all", Value::Integer(FUTURE)),
            ("MIDI.EXISTS a", Value::Integer(0)),
            ("MIDI.PEXPIRETIME b", Value::Integer(FUTURE)),
            ("MIDI.TTL lasting", Value::Integer(-1)),
            ("MIDI.GET edited", Value::bulk("abcdef")),
            ("MIDI.GET new", Value::bulk("bytes")),
            ("MIDI.OBJECT ENCODING new", Value::bulk("raw")),
            ("MIDI.GET range", Value::bulk(b"\0\0x")),
            ("MIDI.STRLEN large", Value::Integer(300_004)),
            ("MIDI.GETRANGE large 0 3", Value::bulk("xyyx")),
            ("MIDI.GETRANGE large -5 -1", Value::bulk("xtail")),
            ("MIDI.EXISTS c missing", Value::Integer(0)),
            ("MIDI.GET renamed", Value::bulk("3.5")),
            ("MIDI.STRLEN padding", Value::Integer(padding.len() as i64)),
            ("MIDI.EXISTS key:0", Value::Integer(1)),
            ("SELECT 1", Value::ok()),
            ("MIDI.EXISTS key:0", Value::Integer(0)),
            ("MIDI.DBSIZE", Value::Integer(999)),
            ("SELECT 2", Value::ok()),
            ("MIDI.GET copied", Value::bulk("3.5")),
        ] {
            assert_eq!(client.run(line), expected, "{line}, large: {large}");
        }
        let values = ["MIDI.GET key:1", "MIDI.GET key:2"].map(|line| {
            client.ok("SELECT 1");
            client.run(line)
        });
        assert_eq!(values[0], values[1]);
        assert!(!values[0].is_null());
    }
}

/// Keys of all shards, renamed and copied all over by several workers: the order is that of the
/// file.
#[test]
fn records_of_two_shards_keep_the_order() {
    let mut random = Random::new(3);
    let names: Vec<Vec<u8>> = (0..60).map(|number| format!("key:{number}").into()).collect();
    let numbers: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
    let mut server = empty();
    let mut expected: BTreeMap<&[u8], Vec<u8>> = BTreeMap::new();
    for _ in 0..8 {
        let mut records = Vec::new();
        for _ in 0..5000 {
            let (key, to) = (&names[random.below(60)][..], &names[random.below(60)][..]);
            let number = numbers[random.below(1000)].as_bytes();
            records.push(match random.below(8) {
                0 => Record::Rename { key, to },
                1 => Record::Copy { key, to, db: 0 },
                2 => Record::Del { key },
                3 => Record::SetRange { key, offset: 3, bytes: number },
                4..6 => Record::Append { key, bytes: number },
                _ => set(key, number),
            });
        }
        records.iter().for_each(|record| apply(record, &mut expected));
        append(&server, &journal(&text(0, &records)));
    }
    let mut client = started(&mut server);
    assert!(expected.len() > 10);
    assert_eq!(client.integer("MIDI.DBSIZE"), expected.len() as i64);
    for (key, value) in expected {
        assert_eq!(client.call(&[b"MIDI.GET".as_slice(), key]), Value::bulk(value));
    }
}

/// The effect of a record, in the plainest way.
fn apply<'a>(record: &Record<'a>, keys: &mut BTreeMap<&'a [u8], Vec<u8>>) {
    match *record {
        Record::Set { key, value, .. } => drop(keys.insert(key, value.to_vec())),
        Record::Del { key } => drop(keys.remove(key)),
        Record::Append { key, bytes } => keys.entry(key).or_default().extend_from_slice(bytes),
        Record::SetRange { key, offset, bytes } => {
            let (value, from) = (keys.entry(key).or_default(), offset as usize);
            value.resize(value.len().max(from + bytes.len()), 0);
            value[from..from + bytes.len()].copy_from_slice(bytes);
        }
        Record::Rename { key, to } => {
            if let Some(value) = keys.remove(key) {
                keys.insert(to, value);
            }
        }
        Record::Copy { key, to, .. } => {
            if let Some(value) = keys.get(key).cloned() {
                keys.insert(to, value);
            }
        }
        _ => unreachable!("not among these records"),
    }
}

/// Plain commands, MULTI and EXEC, and the host's own commands, between texts that are still on
/// their way.
#[test]
fn commands_between_texts() {
    let mut server = empty();
    let pieces = [
        journal(&many("flushed", 5000)),
        command("FLUSHALL"),
        journal(&many("k", 5000)),
        command("SELECT 0"),
        command("MIDI.APPEND k:7 more"),
        journal(&text(0, &[Record::Append { key: b"k:7", bytes: b"!" }])),
        journal(&many("l", 5000)),
        command("MULTI"),
        command("MIDI.DEL l:0 l:1"),
        command("SET native 1"),
        journal(&text(0, &[set(b"inside", b"1"), Record::Del { key: b"l:2" }])),
        journal(&many("inside", 100)),
        command("MIDI.RENAME l:3 l:4"),
        command("EXEC"),
        journal(&many("swapped", 5000)),
        command("SWAPDB 0 5"),
        journal(&text(5, &[Record::Rename { key: b"swapped:1", to: b"swapped:2" }])),
        command("MIDI.SWAPDB 5 6"),
        journal(&many("gone", 5000)),
        command("MIDI.FLUSHDB"),
        journal(&text(9, &[set(b"gone", &vec![b'g'; 100_000]), Record::FlushDb])),
        journal(&text(9, &[set(b"moved", &vec![b'm'; 100_000]), Record::SwapDb { a: 9, b: 10 }])),
        journal(&text(10, &[Record::Append { key: b"moved", bytes: b"!" }])),
    ];
    pieces.iter().for_each(|piece| append(&server, piece));
    let mut client = started(&mut server);
    assert_eq!(client.integer("MIDI.DBSIZE"), 0);
    assert_eq!(client.integer("DBSIZE"), 0);
    client.ok("SELECT 9");
    assert_eq!(client.integer("MIDI.DBSIZE"), 0);
    client.ok("SELECT 10");
    assert_eq!(client.integer("MIDI.DBSIZE"), 1);
    assert_eq!(client.integer("MIDI.STRLEN moved"), 100_001);
    client.ok("SELECT 5");
    assert_eq!(client.run("GET native"), Value::bulk("1"));
    client.ok("SELECT 6");
    assert_eq!(client.run("MIDI.GET k:7"), Value::bulk("valuemore!"));
    assert_eq!(client.integer("MIDI.EXISTS l:0 l:1 l:2 l:3 swapped:1 flushed:0"), 0);
    assert_eq!(client.integer("MIDI.EXISTS l:4 inside inside:99 swapped:2 k:4999"), 5);
    assert_eq!(client.integer("MIDI.DBSIZE"), 5000 + 4996 + 101 + 4999);
}

/// A key that is long due is there until the load has ended.
#[test]
fn nothing_expires_while_records_are_replayed() {
    for padding in [0, 100_000] {
        let mut server = empty();
        let due = |key| Record::Set {
            key,
            value: b"v",
            expire_at: Some(1000),
            traits: Default::default(),
        };
        let padding = vec![b'p'; padding];
        let first = [set(b"padding", &padding), due(b"a"), due(b"b"), due(b"c"), due(b"d")];
        let second = [
            Record::Append { key: b"a", bytes: b"x" },
            Record::Persist { key: b"a" },
            Record::Rename { key: b"b", to: b"e" },
            Record::PexpireAt { key: b"e", at: FUTURE },
        ];
        append(&server, &journal(&text(0, &first)));
        append(&server, &journal(&text(0, &second)));
        append(&server, &command("MIDI.INCRBY number 5"));
        append(&server, &command("MIDI.PEXPIREAT number 1000"));
        append(&server, &command("MIDI.INCRBY number 5"));
        append(&server, &command("MIDI.PERSIST number"));
        append(&server, &command("MIDI.SET f v PXAT 1000"));
        append(&server, &command("MIDI.APPEND c x"));
        append(&server, &command("MIDI.PERSIST c"));
        // So many keys would be a job, for a client.
        append(&server, &command("MIDI.SET g v PXAT 1000"));
        append(&server, &command(&format!("MIDI.DEL {}g", "x ".repeat(3000))));
        append(&server, &command("MIDI.APPEND g new"));
        let mut client = started(&mut server);
        assert_eq!(client.run("MIDI.GET a"), Value::bulk("vx"));
        assert_eq!(client.run("MIDI.GET c"), Value::bulk("vx"));
        assert_eq!(client.run("MIDI.GET number"), Value::bulk("10"));
        assert_eq!(client.run("MIDI.GET g"), Value::bulk("new"));
        assert_eq!(client.integer("MIDI.PEXPIRETIME e"), FUTURE);
        assert_eq!(client.integer("MIDI.EXISTS b d f"), 0);
    }
}

/// Settings of today do not matter for what was written yesterday.
#[test]
fn limits_and_gates_do_not_matter() {
    let builder = Builder::new().load("threads 3").load("max-key-bytes 20 max-value-bytes 1000");
    let builder = builder.config("maxmemory 1").config("maxmemory-policy noeviction");
    let mut server = with_base(builder, |_| ());
    let (key, value) = (vec![b'k'; 100], vec![b'v'; 2_000_000]);
    let name = vec![b'n'; 50];
    append(&server, &journal(&text(0, &[set(&key, &value)])));
    append(&server, &encoded(&[b"MIDI.SET".as_slice(), &name, &value]));
    append(&server, &encoded(&[b"MIDI.APPEND".as_slice(), &name, b"more"]));
    let mut client = started(&mut server);
    assert_eq!(client.integer("MIDI.DBSIZE"), 2);
    let mut len = |key: &[u8]| client.call(&[b"MIDI.STRLEN".as_slice(), key]).integer();
    assert_eq!((len(&key), len(&name)), (2_000_000, 2_000_004));
}

/// aof-load-truncated: a MIDI.JOURNAL that is not complete is cut off whole.
#[test]
fn a_torn_journal_is_cut_off() {
    let mut server = empty();
    let (whole, torn) = (journal(&many("k", 3000)), journal(&many("torn", 3000)));
    append(&server, &whole);
    check_aof(&server);
    let before = fs::metadata(aof(&server)).expect("the AOF").len();
    append(&server, &torn[..torn.len() / 2]);
    let mut client = started(&mut server);
    assert_eq!(client.integer("MIDI.DBSIZE"), 3000);
    assert_eq!(fs::metadata(aof(&server)).expect("the AOF").len(), before);
    let before = contents(&mut client);
    server.kill_hard();
    check_aof(&server);
    assert_eq!(contents(&mut started(&mut server)), before);
}

/// The host's tool finds nothing wrong. Valkey's does not know bases with a module's data.
fn check_aof(server: &Server) {
    if fs::read(redis_server()).expect("the host's program").starts_with(b"#!") {
        return skip("the server is a script, which has but one name");
    }
    let manifest = server.dir().join("appendonlydir/appendonly.aof.manifest");
    let file = if host().valkey { aof(server) } else { manifest };
    let output = Command::new(check_tool(server)).arg(file).output().expect("run it");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains(" valid"), "{said}");
}

#[test]
fn records_that_cannot_be_replayed_end_the_start() {
    let mut server = empty();
    let whole = fs::read(aof(&server)).expect("the AOF");
    let raw = |bytes: &[u8]| [text(0, &[]), bytes.to_vec()].concat();
    let mut late = many("k", 3000);
    late.extend(b"*2\r\n$3\r\nNEW\r\n$1\r\na\r\n");
    let at = many("k", 3000).len();
    let place = text(0, &[]).len();
    let mut version = Vec::new();
    header(1, &mut version);
    let unknown = "unknown record 'NEW', perhaps written by a newer midi, at byte";
    let far = Record::SetRange { key: b"k", offset: u32::MAX, bytes: b"xx" };
    for (piece, expected) in [
        (
            journal(&raw(b"*2\r\n$3\r\nNEW\r\n$1\r\na\r\n")),
            format!("a MIDI.JOURNAL cannot be replayed: {unknown} {place}"),
        ),
        (journal(&late), format!("a MIDI.JOURNAL cannot be replayed: {unknown} {at}")),
        (
            journal(b"*2\r\n$7\r\nVERSION\r\n$1\r\n7\r\n"),
            "a MIDI.JOURNAL cannot be replayed: version '7', written by a newer midi (this one \
             reads up to version 6), at byte 0"
                .into(),
        ),
        (
            [journal(&part_of_text(0, b"12345")), journal(&part_of_text(4, b"6"))].concat(),
            "a MIDI.JOURNAL cannot be replayed: a part of a text that does not follow the part \
             before it, at byte 0"
                .into(),
        ),
        (
            journal(b"garbage"),
            "a MIDI.JOURNAL cannot be replayed: no array of bulk strings, at byte 0".into(),
        ),
        (
            journal(&text(16, &[])),
            format!(
                "a MIDI.JOURNAL cannot be replayed: a record of database 16, but there are 16: \
                 raise `databases`, at byte {}",
                version.len()
            ),
        ),
        (
            journal(&text(0, &[set(b"k", b"v"), far])),
            format!(
                "a MIDI.JOURNAL cannot be replayed: a record makes a value too long, at byte {}",
                text(0, &[set(b"k", b"v")]).len()
            ),
        ),
        (command("MIDI.SET k v NEW"), "MIDI.SET answers 'ERR syntax error'".into()),
        (command("MIDI.IMPORT *"), "MIDI.IMPORT answers".into()),
    ] {
        // Also behind a text that is on its way, and before commands that are right.
        for before in [vec![], journal(&many("before", 3000))] {
            let behind = command("MIDI.SET behind v");
            fs::write(aof(&server), [&whole[..], &before, &piece, &behind].concat()).expect("AOF");
            let line = refusal(&mut server);
            let rest = line.strip_prefix("The AOF is not loaded: ").expect("the reason");
            assert!(rest.starts_with(&expected), "{line:?} instead of {expected:?}");
        }
    }
    fs::write(aof(&server), whole).expect("the AOF");
    assert_eq!(started(&mut server).integer("MIDI.DBSIZE"), 0);
}

/// Only the AOF and a master may send it.
#[test]
fn nobody_else_may_send_a_journal() {
    let server = Builder::new().load("threads 2").with_port().start();
    let mut client = server.client();
    let text = text(0, &[set(b"k", b"v")]);
    let refused = "NOPERM this user has no permissions to run the 'midi.journal' command";
    let send = |client: &mut Client| client.call(&[b"MIDI.JOURNAL".as_slice(), &text]);
    for appendonly in ["no", "yes"] {
        client.ok(&format!("CONFIG SET appendonly {appendonly}"));
        wait_until("the AOF has its base", || {
            client.info_number("persistence", "aof_rewrite_in_progress") == 0
        });
        assert_eq!(send(&mut client), Value::error(refused));
        let script = b"return redis.call('MIDI.JOURNAL', ARGV[1])".as_slice();
        let reply = client.call(&[b"EVAL".as_slice(), script, b"0", &text]);
        assert!(reply.text().starts_with(refused), "{reply:?}");
        client.ok("MULTI");
        assert_eq!(send(&mut client).text(), "QUEUED");
        assert_eq!(client.run("EXEC").array(), [Value::error(refused)]);
        let reply = send(&mut server.midi_client());
        assert!(reply.text().starts_with("ERR unknown command"), "{reply:?}");
    }
    client.ok("ACL SETUSER u on nopass ~* +@all -midi.journal");
    let mut other = server.client();
    other.ok("AUTH u u");
    let reply = send(&mut other);
    assert!(reply.text().starts_with("NOPERM "), "{reply:?}");
    assert_eq!(client.integer("MIDI.DBSIZE"), 0);
}

/// A record says what becomes of a value of its type: it makes no value of another.
#[test]
fn records_of_another_type_end_the_start() {
    let mut server = empty();
    let whole = fs::read(aof(&server)).expect("the AOF");
    let append = Record::Append { key: b"k", bytes: b"more" };
    let set_range = Record::SetRange { key: b"k", offset: 1, bytes: b"more" };
    let fields = Words::List(&[b"f"]);
    let (del, persist) =
        (Record::HDel { key: b"k", fields }, Record::HPersist { key: b"k", fields });
    for (made_by, record, whole_by) in [
        ("MIDI.HSET k f v", append, "MIDI.SET k v"),
        ("MIDI.HSET k f v", set_range, "MIDI.SET k v"),
        ("MIDI.SET k v", del, "MIDI.HSET k f v"),
        ("MIDI.SET k v", persist, "MIDI.HSET k f v"),
    ] {
        let mut text = text(0, &[record]);
        raise_version(&mut text, RECORD_VERSION);
        let file = |before| [&whole[..], &command(before), &journal(&text)].concat();
        fs::write(aof(&server), file(made_by)).expect("the AOF");
        let line = refusal(&mut server);
        assert!(line.contains("a value of another type than its key has, at byte"), "{line}");
        fs::write(aof(&server), file(whole_by)).expect("the AOF");
        started(&mut server);
        server.kill_hard();
    }
}

/// The host goes on where its SELECT fails, in the database before.
#[test]
fn commands_of_databases_that_are_not_there_end_the_start() {
    let mut server = empty();
    let whole = fs::read(aof(&server)).expect("the AOF");
    let begun = [whole, command("SELECT 0"), command("MIDI.SET k v")].concat();
    let file = |lines: &[&str]| {
        let behind: Vec<u8> = lines.iter().flat_map(|line| command(line)).collect();
        [&begun[..], &behind].concat()
    };
    for (lines, name, db) in [
        (&["SELECT 16", "MIDI.SET k w"][..], "MIDI.SET", 16),
        (&["SELECT 20", "SET native 1", "FLUSHDB", "SELECT 0"], "FLUSHDB", 20),
        (&["SELECT 20", "FLUSHALL ASYNC", "FLUSHDB async", "SELECT 0"], "FLUSHDB", 20),
        (&["MULTI", "SELECT 17", "midi.del k", "EXEC"], "MIDI.DEL", 17),
        (&["SWAPDB 1 16", "SELECT 1", "MIDI.SET k w"], "SWAPDB", 16),
    ] {
        fs::write(aof(&server), file(lines)).expect("the AOF");
        let (line, path) = (refusal(&mut server), aof(&server));
        let expected = format!("The AOF is not loaded: {name} of database {db} in ");
        assert!(line.starts_with(&expected), "{line}");
        let name = path.file_name().expect("a name").to_string_lossy();
        let end = format!("{name}, but there are 16: raise `databases`");
        assert!(line.ends_with(&end), "{line}");
    }
    // The host's own keys are its own affair.
    let text = journal(&text(0, &[set(b"journal", b"v")]));
    let [select, moved] = ["SELECT 1", "MIDI.SET k w"].map(command);
    let native = [file(&["SELECT 16", "SET native 1"]), text, select, moved].concat();
    fs::write(aof(&server), native).expect("the AOF");
    let mut client = started(&mut server);
    assert_eq!(client.run("MIDI.GET k"), Value::bulk("v"));
    assert_eq!(client.run("MIDI.GET journal"), Value::bulk("v"));
    client.ok("SELECT 1");
    assert_eq!(client.run("MIDI.GET k"), Value::bulk("w"));
}

/// The same where the host tells nothing of its AOF, and the file has another name for FLUSHDB.
#[test]
fn so_do_those_of_hardened_servers() {
    let builder = Builder::new().config("appendonly yes").config("appenddirname other");
    let builder = builder.config("rename-command CONFIG \"\"").config("rename-command FLUSHDB FDB");
    let mut server = builder.start();
    server.kill_hard();
    let file = server.dir().join("other/appendonly.aof.1.incr.aof");
    for beyond in ["MIDI.SET k w", "FDB", "FDB ASYNC"] {
        let lines = ["SELECT 0", "MIDI.SET k v", "SELECT 20", beyond];
        let bytes: Vec<u8> = lines.iter().flat_map(|line| command(line)).collect();
        fs::write(&file, bytes).expect("the AOF");
        let line = refusal(&mut server);
        assert!(line.contains(" of database 20 in "), "{line}");
    }
}
