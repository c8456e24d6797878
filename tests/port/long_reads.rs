//! The promise: HGETALL, HKEYS, HVALS and DUMP of a hash with very many fields answer it as it was
//! at one moment, whatever becomes of it meanwhile, and so MIDI.EXPORT copies it. Others are served
//! on both doors.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::port::Ported;
use crate::common::{Client, Mode, Random, StopAtEnd, Value, beside, encoded, wait_until, words};

/// A server whose port has one worker, which all clients share.
pub fn narrow(arguments: &str) -> Ported {
    Ported::start(Mode::Adaptive.builder().load(&format!("threads 1 {arguments}")))
}

/// The doors, each with its clients' prefix.
pub fn doors(ported: &Ported) -> [(Client, &'static str); 2] {
    [(ported.client(), ""), (ported.host(), "MIDI.")]
}

/// So many fields, and so long ones, that reading them takes hundreds of slices.
pub const MANY: usize = 30_000;
pub const LENGTH: usize = 1000;

/// Makes a hash of them.
pub fn fill_many(client: &mut Client) {
    fill(client, "h", MANY, &"v".repeat(LENGTH));
}

/// Makes a hash of so many fields, each with this value.
pub fn fill(client: &mut Client, key: &str, fields: usize, value: &str) {
    for first in (0..fields).step_by(1000) {
        let mut set = words(&format!("MIDI.HSET {key}"));
        for field in first..fields.min(first + 1000) {
            set.extend([format!("field:{field}"), value.to_owned()].map(String::into_bytes));
        }
        client.call(&set);
    }
}

/// The running jobs of this name, as MIDI.JOBS lists them: how much of each is done.
pub fn jobs(client: &mut Client, name: &str) -> Vec<i64> {
    let jobs = client.run("MIDI.JOBS").array().into_iter().map(Value::map);
    jobs.filter(|job| job["command"].text() == name).map(|job| job["done"].integer()).collect()
}

/// Begins to read all of a hash, and waits until some of it has been read. On a very busy machine
/// all may have been.
pub fn begin(reader: &mut Client, prefix: &str, key: &str, other: &mut Client) {
    begin_with("hgetall", reader, prefix, key, other);
}

/// The same with this command.
fn begin_with(command: &str, reader: &mut Client, prefix: &str, key: &str, other: &mut Client) {
    reader.send(&encoded(&[format!("{prefix}{command}"), key.to_owned()]));
    wait_until("it reads", || {
        let jobs = jobs(other, command);
        !jobs.is_empty() && jobs.iter().all(|&done| done > 0)
            || reader.has_reply_within(Duration::from_millis(1))
    });
}

/// The reply is the payload of the hash that [`fill_many`] made.
#[track_caller]
fn check_payload(reply: &Value, other: &mut Client) {
    other.run("MIDI.DEL restored");
    assert_eq!(other.call(&[&b"MIDI.RESTORE"[..], b"restored", b"0", reply.bytes()]), Value::ok());
    check_whole(other.run("MIDI.HGETALL restored"));
}

/// The reply is all of the hash that [`fill_many`] made.
#[track_caller]
fn check_whole(reply: Value) {
    let (fields, value) = (reply.map(), Value::bulk("v".repeat(LENGTH)));
    assert_eq!(fields.len(), MANY);
    assert!(fields.keys().all(|name| name.starts_with("field:")));
    assert!(fields.values().all(|it| *it == value));
}

#[test]
fn others_are_served_while_one_reads() {
    let ported = narrow("");
    fill_many(&mut ported.host());
    for (mut reader, prefix) in doors(&ported) {
        let (mut other, mut host) = (ported.client(), ported.host());
        // On a very busy machine it may be read before we have our turn.
        wait_until("others are served", || {
            begin(&mut reader, prefix, "h", &mut other);
            let mut pings = 0;
            while !jobs(&mut other, "hgetall").is_empty() {
                assert_eq!(host.run("MIDI.GET nosuch"), Value::NullBulk);
                pings += 1;
            }
            check_whole(reader.read());
            pings > 3
        });
    }
}

/// Moves units between fields of the hash, of which [`fill`] has made so many, adds a field, and
/// removes it: each time the sum stays.
pub fn move_units(client: &mut Client, random: &mut Random, fields: usize) {
    let field = |random: &mut Random| format!("field:{}", random.below(fields));
    let (from, to) = (field(random), field(random));
    let new = format!("new:{}", random.below(1_000_000));
    for changes in [
        [format!("{from} -3"), format!("{to} 2"), format!("{new} 1")],
        [format!("{to} 3"), format!("{from} -2"), format!("{new} -1")],
    ] {
        let [a, b, c] = changes.map(|it| format!("MIDI.HINCRBY h {it}"));
        let remove = format!("MIDI.HDEL h {new}");
        let mut lines = vec!["MULTI", &a, &b, &c, "EXEC"];
        if c.ends_with("-1") {
            lines.insert(4, &remove);
        }
        client.pipeline(&lines.iter().map(|line| words(line)).collect::<Vec<_>>());
    }
}

/// Writers move units between fields, add fields and remove them, while the host forks: its child
/// takes back what is not in its log.
#[test]
fn a_long_read_sees_one_moment() {
    const FIELDS: usize = 20_000;
    let ported = Ported::start(Mode::Adaptive.builder().load("threads 2").config("appendonly yes"));
    fill(&mut ported.host(), "h", FIELDS, "100");
    let write = |client: &mut Client, random: &mut Random| move_units(client, random, FIELDS);
    let sum = |values: &mut dyn Iterator<Item = &Value>| {
        values.map(|it| it.text().parse::<i64>().expect("a number")).sum::<i64>()
    };
    let whole = 100 * FIELDS as i64;
    beside(&ported.server, 2, write, || {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _stops = StopAtEnd(&stop);
            scope.spawn(|| {
                let (mut client, mut random) = (ported.client(), Random::new(7));
                while !stop.load(Ordering::Relaxed) {
                    write(&mut client, &mut random);
                }
            });
            let mut changed = false;
            for (mut client, prefix) in doors(&ported) {
                for _ in 0..5 {
                    let fields = client.run(&format!("{prefix}HGETALL h")).map();
                    assert_eq!(sum(&mut fields.values()), whole);
                    changed |= fields.len() > FIELDS;
                    let values = client.run(&format!("{prefix}HVALS h")).array();
                    assert_eq!(sum(&mut values.iter()), whole);
                    let payload = client.run(&format!("{prefix}DUMP h"));
                    let restore = format!("{prefix}RESTORE");
                    let restore = [restore.as_bytes(), b"r", b"0", payload.bytes(), b"REPLACE"];
                    assert_eq!(client.call(&restore), Value::ok());
                    let values = client.run(&format!("{prefix}HVALS r")).array();
                    assert_eq!(sum(&mut values.iter()), whole);
                }
                let mut host = ported.host();
                host.run("MIDI.EXPORT h REPLACE");
                assert_eq!(sum(&mut host.run("HVALS h").array().iter()), whole);
                host.run("BGSAVE");
                assert_eq!(
                    sum(&mut client.run(&format!("{prefix}HGETALL h")).map().values()),
                    whole
                );
                wait_until("it is saved", || {
                    host.info_number("persistence", "rdb_bgsave_in_progress") == 0
                });
                assert_eq!(host.info("persistence")["rdb_last_bgsave_status"], "ok");
            }
            assert!(changed);
        });
    });
}

/// What becomes of the hash while it is read.
const CHANGES: [&[&str]; 11] = [
    &["DEL h"],
    &["SET h text"],
    &["UNLINK h", "HSET h field:1 1"],
    &["RENAME h new", "HSET new field:1 1", "HSETNX new a b", "RENAME new h", "HSET h c d"],
    &["RENAME small h", "HSET h field:1 1"],
    &["COPY small h REPLACE", "HDEL h field:1"],
    &["PEXPIRE h 1", "HSET h a b"],
    &["MOVE h 3"],
    &["SWAPDB 0 3", "HSET h field:1 1"],
    &["FLUSHALL", "HSET h field:1 1"],
    &["HEXPIRE h 1000 FIELDS 2 field:7 field:8", "HDEL h field:9 field:10"],
];

/// What becomes of the hash while it is read, or while a client takes its time with the reply,
/// which is larger than what its connection holds. The reply shows nothing of it.
#[test]
fn the_reply_is_whole_whatever_becomes_of_the_key() {
    let ported = narrow("");
    let mut other = ported.host();
    for (number, lines) in CHANGES.into_iter().enumerate() {
        for (door, (mut reader, prefix)) in doors(&ported).into_iter().enumerate() {
            other.run("MIDI.FLUSHALL");
            fill_many(&mut other);
            other.integer("MIDI.HSET small field:1 1 field:2 2");
            begin(&mut reader, prefix, "h", &mut ported.client());
            if (number + door) % 2 == 0 {
                wait_until("it is answered", || reader.has_reply_within(Duration::from_millis(1)));
            }
            for line in lines {
                let reply = other.run(&format!("MIDI.{line}"));
                assert!(!reply.is_error(), "{line}: {reply:?}");
            }
            if lines[0] == "MOVE h 3" {
                other.ok("SELECT 3");
                assert_eq!(other.integer("MIDI.HDEL h field:1 field:2"), 2);
                other.ok("SELECT 0");
            }
            check_whole(reader.read());
        }
    }
}

#[test]
fn a_dump_is_whole_whatever_becomes_of_the_key() {
    let ported = narrow("");
    let mut other = ported.host();
    for (number, lines) in CHANGES.into_iter().enumerate() {
        let (mut reader, prefix) = doors(&ported).into_iter().nth(number % 2).expect("two doors");
        other.run("MIDI.FLUSHALL");
        fill_many(&mut other);
        other.integer("MIDI.HSET small field:1 1 field:2 2");
        begin_with("dump", &mut reader, prefix, "h", &mut ported.client());
        for line in lines {
            let reply = other.run(&format!("MIDI.{line}"));
            assert!(!reply.is_error(), "{line}: {reply:?}");
        }
        check_payload(&reader.read(), &mut other);
    }
}

/// In Redis's form and in Valkey's: times are changed once the first fields have been read.
#[test]
fn a_dump_keeps_when_fields_expire() {
    const FIELDS: usize = 5000;
    let ported = narrow("");
    let mut other = ported.host();
    let due = 4_102_444_800_000;
    for (mut reader, prefix) in doors(&ported) {
        other.run("MIDI.FLUSHALL");
        fill(&mut other, "h", FIELDS, &"v".repeat(LENGTH));
        for field in (0..FIELDS).step_by(2) {
            other.run(&format!("MIDI.HPEXPIREAT h {} FIELDS 1 field:{field}", due + field));
        }
        begin_with("dump", &mut reader, prefix, "h", &mut ported.client());
        for field in 0..100 {
            other.run(&format!("MIDI.HPERSIST h FIELDS 1 field:{}", 2 * field));
            other.run(&format!("MIDI.HPEXPIREAT h 1 FIELDS 1 field:{}", 1000 + field));
        }
        let payload = reader.read();
        let restore = [&b"MIDI.RESTORE"[..], b"restored", b"0", payload.bytes()];
        assert_eq!(other.call(&restore), Value::ok());
        for field in 0..FIELDS {
            let told = other.run(&format!("MIDI.HPEXPIRETIME restored FIELDS 1 field:{field}"));
            let expected = if field % 2 == 0 { (due + field) as i64 } else { -1 };
            assert_eq!(told, Value::Array(vec![Value::Integer(expected)]), "field:{field}");
        }
    }
}

#[test]
fn large_hashes_are_exported_in_one_go_where_nobody_waits() {
    for mode in [Mode::Adaptive, Mode::Safe] {
        let ported = Ported::start(mode.builder());
        let mut host = ported.host();
        fill(&mut host, "h", 5000, "5");
        host.ok("MULTI");
        host.run("MIDI.EXPORT h");
        host.run("HLEN h");
        let said = host.run("EXEC").array();
        assert_eq!(said[0].clone().array()[0], Value::Integer(1));
        assert_eq!(said[1], Value::Integer(5000));
        assert_eq!(host.integer("MIDI.HLEN h"), 5000);
        assert_eq!(host.run("MIDI.EXPORT h REPLACE").array()[0], Value::Integer(1));
        assert_eq!(host.integer("MIDI.HSET h field:1 6"), 0);
        assert_eq!(host.run("MIDI.EXPORT h REPLACE MOVE").array()[0], Value::Integer(1));
        assert_eq!(host.run("HGET h field:1"), Value::bulk("6"));
        assert_eq!(host.integer("MIDI.EXISTS h"), 0);
    }
}

#[test]
fn names_and_values_are_listed_alone() {
    let ported = narrow("");
    fill(&mut ported.host(), "h", 5000, "5");
    ported.host().integer("MIDI.HSET h other 6");
    for (mut client, prefix) in doors(&ported) {
        let mut names = client.run(&format!("{prefix}HKEYS h")).array();
        names.sort_by_key(Value::text);
        names.dedup();
        assert_eq!((names.len(), names[5000].text()), (5001, "other".to_owned()));
        let values = client.run(&format!("{prefix}HVALS h")).array();
        assert_eq!(values.iter().map(Value::text).filter(|it| it == "5").count(), 5000);
        assert_eq!(values.len(), 5001);
        let mut three = client.resp3();
        let map = three.run(&format!("{prefix}HGETALL h"));
        assert!(matches!(map, Value::Map(pairs) if pairs.len() == 5001));
    }
}

/// Of fields that expire, those are seen whose time had not come at that moment.
#[test]
fn fields_that_expire_together_are_there_together() {
    let ported = Ported::start(Mode::Adaptive.builder().load("threads 2"));
    for (mut client, prefix) in doors(&ported) {
        client.run(&format!("{prefix}DEL h"));
        fill(&mut client, "h", 20_000, "5");
        for first in (0..10_000).step_by(1000) {
            let mut expire = words(&format!("{prefix}HPEXPIRE h 400 FIELDS 1000"));
            expire.extend((first..first + 1000).map(|it| format!("field:{it}").into_bytes()));
            assert_eq!(client.call(&expire), Value::integers(&[1; 1000]));
        }
        wait_until("they have expired", || {
            let names = client.run(&format!("{prefix}HKEYS h")).array();
            assert!((10_000..=20_000).contains(&names.len()));
            names.len() == 10_000
        });
    }
}

#[test]
fn a_client_that_leaves_ends_its_read() {
    let ported = narrow("");
    fill_many(&mut ported.host());
    let (mut other, mut host) = (ported.client(), ported.host());
    let before = host.info_number("memory", "used_memory");
    let mut killed = ported.client();
    let kill = format!("CLIENT KILL ID {}", killed.id());
    let readers = doors(&ported).into_iter().chain([(killed, "")]).enumerate();
    for (number, (mut reader, prefix)) in readers {
        begin(&mut reader, prefix, "h", &mut other);
        if number == 2 {
            assert_eq!(other.run(&kill), Value::Integer(1));
        } else {
            drop(reader);
        }
        wait_until("it has ended", || jobs(&mut other, "hgetall").is_empty());
        wait_until("its memory is given back", || {
            host.info_number("memory", "used_memory") < before + (2 << 20)
        });
        // The next change finds that it is gone.
        assert_eq!(host.integer("MIDI.HSET h field:1 6"), 0);
    }
}

#[test]
fn a_reply_beyond_the_output_limit_closes_its_client() {
    let ported = narrow("output-buffer-hard-limit 1048576");
    fill_many(&mut ported.host());
    let mut reader = ported.client();
    assert!(reader.try_call(&["HGETALL", "h"]).is_err());
    let mut other = ported.client();
    assert_eq!(other.info_number("midi_net", "midi_net_closed_for_limits"), 1);
    let (mut host, mut random) = (ported.host(), Random::new(1));
    for field in 0..3000 {
        // DUMP packs other values.
        let value: Vec<u8> = (0..1000).map(|_| random.next() as u8).collect();
        host.call(&[&b"MIDI.HSET"[..], b"dense", field.to_string().as_bytes(), &value]);
    }
    assert!(ported.client().try_call(&["DUMP", "dense"]).is_err());
    assert_eq!(other.info_number("midi_net", "midi_net_closed_for_limits"), 2);
    fill(&mut ported.host(), "few", 5000, "5");
    assert_eq!(other.run("HGETALL few").map().len(), 5000);
}

/// Long values are long work, too, however few they are.
#[test]
fn long_fields_are_read_by_a_job() {
    let ported = narrow("");
    let (mut host, value) = (ported.host(), "x".repeat(1 << 20));
    let started = |client: &mut Client| client.info_number("midi_jobs", "midi_jobs_started");
    for number in 0..6 {
        host.call(&["MIDI.HSET", "h", &format!("f{number}"), &value]);
        let before = started(&mut host);
        for (mut client, prefix) in doors(&ported) {
            let fields = client.run(&format!("{prefix}HGETALL h")).map();
            assert!(fields.len() == number + 1 && fields.values().all(|it| it.text() == value));
            assert!(client.run(&format!("{prefix}DUMP h")).bytes().len() > 1000);
        }
        let jobs = if number < 3 { 0 } else { 2 * doors(&ported).len() as i64 };
        assert_eq!(started(&mut host) - before, jobs, "{number}");
    }
}

/// There it runs to its end, as every command does; as it does where no more jobs are allowed.
#[test]
fn in_transactions_and_scripts_it_is_no_job() {
    let ported = Ported::start(Mode::Adaptive.builder().load("threads 2 max-jobs 1"));
    fill(&mut ported.host(), "h", 5000, "5");
    let started = |client: &mut Client| client.info_number("midi_jobs", "midi_jobs_started");
    let mut host = ported.host();
    let before = started(&mut host);
    for (mut client, prefix) in doors(&ported) {
        client.ok("MULTI");
        assert_eq!(client.run(&format!("{prefix}HGETALL h")).text(), "QUEUED");
        assert_eq!(client.run("EXEC").array().remove(0).map().len(), 5000);
        let script = b"return #redis.call('MIDI.HGETALL', KEYS[1])".to_vec();
        let eval = [b"EVAL".to_vec(), script, b"1".to_vec(), b"h".to_vec()];
        assert_eq!(client.call(&eval), Value::Integer(10_000));
    }
    assert_eq!(started(&mut host), before);
    for (number, (mut client, prefix)) in doors(&ported).into_iter().enumerate() {
        assert_eq!(client.run(&format!("{prefix}HGETALL h")).map().len(), 5000);
        assert_eq!(started(&mut host), before + 1 + number as i64);
    }
    // A job that takes many seconds.
    let mut busy = ported.host();
    busy.send_line("MIDI.POPULATE 500000000");
    wait_until("it runs", || host.info_number("midi_jobs", "midi_jobs_running") == 1);
    for (mut client, prefix) in doors(&ported) {
        assert_eq!(client.run(&format!("{prefix}HGETALL h")).map().len(), 5000);
        assert!(client.run(&format!("{prefix}KEYS *")).is_error());
    }
    drop(busy);
}
