//! The promise: COPY of a hash with very many fields is the hash as it is when the copy appears,
//! whatever becomes of it meanwhile. Others are served on both doors.

use std::time::Duration;

use super::long_reads::{LENGTH, MANY, doors, fill, fill_many, jobs, move_units, narrow};
use crate::common::aof::survives;
use crate::common::port::Ported;
use crate::common::replicas::{self, Pair};
use crate::common::{Client, Mode, Random, Value, beside, encoded, wait_until};

/// Begins to copy `h` to `c`, and waits until some of it has been copied. False if all has been,
/// as it may on a very busy machine.
fn begin(copier: &mut Client, prefix: &str, other: &mut Client) -> bool {
    copier.send(&encoded(&[&format!("{prefix}COPY"), "h", "c", "REPLACE"]));
    wait_until("it copies", || is_under_way(other) || has_ended(copier));
    !has_ended(copier)
}

fn has_ended(copier: &mut Client) -> bool {
    copier.has_reply_within(Duration::from_millis(1))
}

fn is_under_way(other: &mut Client) -> bool {
    jobs(other, "copy").iter().any(|&done| done > 0)
}

fn started(client: &mut Client) -> i64 {
    client.info_number("midi_jobs", "midi_jobs_started")
}

/// What a key has, whatever its type.
fn content(client: &mut Client, key: &str) -> Value {
    match client.run(&format!("MIDI.TYPE {key}")).text().as_str() {
        "string" => client.run(&format!("MIDI.GET {key}")),
        "hash" => {
            let fields = client.run(&format!("MIDI.HGETALL {key}")).map();
            let mut fields: Vec<_> = fields.into_iter().collect();
            fields.sort_by(|one, other| one.0.cmp(&other.0));
            let pairs = fields.into_iter().map(|(name, value)| [Value::bulk(name), value]);
            Value::Array(pairs.flatten().collect())
        }
        _ => Value::NullBulk,
    }
}

#[test]
fn others_are_served_while_one_copies() {
    let ported = narrow("");
    fill_many(&mut ported.host());
    for (mut copier, prefix) in doors(&ported) {
        let (mut other, mut host) = (ported.client(), ported.host());
        wait_until("others are served", || {
            begin(&mut copier, prefix, &mut other);
            let mut served = 0;
            while !jobs(&mut other, "copy").is_empty() {
                assert_eq!(host.run("MIDI.GET nosuch"), Value::NullBulk);
                served += 1;
            }
            assert_eq!(copier.read(), Value::Integer(1));
            served > 3
        });
        assert_eq!(content(&mut host, "c"), content(&mut host, "h"));
    }
}

/// Writers move units between fields of the hash. The replica, and the log's file, have the same
/// copies in the end.
#[test]
fn a_long_copy_is_of_one_moment() {
    const FIELDS: usize = 20_000;
    let mut builder = replicas::builder(Mode::Adaptive).with_port().config("appendonly yes");
    builder = builder.load("threads 2");
    let mut pair = Pair::start(&builder);
    fill(&mut pair.master().client(), "h", FIELDS, "100");
    beside(
        pair.master(),
        3,
        |client, random| move_units(client, random, FIELDS),
        || {
            let clients = [(pair.master().midi_client(), ""), (pair.master().client(), "MIDI.")];
            for (mut client, prefix) in clients {
                let before = started(&mut client);
                for number in 0..8 {
                    // A child takes back what is not in its log.
                    pair.master().client().run(["BGSAVE", "BGREWRITEAOF"][number % 2]);
                    let copy = format!("copy:{}", number % 3);
                    let reply = client.run(&format!("{prefix}COPY h {copy} REPLACE"));
                    assert_eq!(reply, Value::Integer(1));
                    let values = client.run(&format!("{prefix}HVALS {copy}")).array();
                    let values =
                        values.iter().map(|it| it.text().parse::<i64>().expect("a number"));
                    assert_eq!(values.sum::<i64>(), 100 * FIELDS as i64);
                }
                assert!(started(&mut client) >= before + 16);
            }
        },
    );
    pair.must_become_equal("copies of a hash that changes");
    survives(&mut pair.servers[0], "copies of a hash that changes");
}

/// What becomes of the hash, or of the copy's key, while it is copied.
const CHANGES: [&[&str]; 14] = [
    &["DEL h"],
    &["SET h text"],
    &["UNLINK h", "HSET h field:1 1"],
    &["RENAME h new"],
    &["RENAME h new", "HSET new field:1 1", "HSETNX new a b", "RENAME new h", "HSET h c d"],
    &["RENAME small h"],
    &["RENAME other h", "HSET h field:1 1"],
    &["COPY small h REPLACE", "HDEL h field:1"],
    &["MOVE h 3"],
    &["SWAPDB 0 3"],
    &["FLUSHALL", "HSET h field:1 1"],
    &["HEXPIRE h 1000 FIELDS 2 field:7 field:8", "HDEL h field:9 field:10", "HSET h new 1"],
    &["PEXPIRE h 1000000", "HSET h field:1 1"],
    &["SET c text"],
];

#[test]
fn the_copy_is_what_the_key_is_at_its_end() {
    let ported = narrow("");
    let mut other = ported.host();
    for lines in CHANGES {
        for (mut copier, prefix) in doors(&ported) {
            wait_until("the copy has not ended before", || {
                other.run("MIDI.FLUSHALL");
                fill_many(&mut other);
                fill(&mut other, "other", 5000, "5");
                other.integer("MIDI.HSET small field:1 1 field:2 2");
                if !begin(&mut copier, prefix, &mut other) {
                    copier.read();
                    return false;
                }
                for line in lines {
                    let reply = other.run(&format!("MIDI.{line}"));
                    assert!(!reply.is_error(), "{line}: {reply:?}");
                }
                let is_late = jobs(&mut other, "copy").is_empty();
                let reply = copier.read();
                if is_late {
                    return false;
                }
                let expected = content(&mut other, "h");
                assert_eq!(reply, Value::Integer(i64::from(!expected.is_null())), "{lines:?}");
                let copy = content(&mut other, "c");
                assert!(copy == expected || expected.is_null() && copy.is_null(), "{lines:?}");
                let due = |key: &str, client: &mut Client| {
                    let times = client.run(&format!("MIDI.HPEXPIRETIME {key} FIELDS 1 field:7"));
                    (client.run(&format!("MIDI.PEXPIRETIME {key}")), times)
                };
                if prefix.is_empty() && !expected.is_null() && lines[0] != "SET h text" {
                    assert_eq!(due("c", &mut other), due("h", &mut other), "{lines:?}");
                }
                true
            });
        }
    }
}

/// The hash is replaced by another one, as often as the copy begins again: then it is copied in one
/// go. Other jobs take most of the worker's time, so that there is time to replace it.
#[test]
fn a_copy_that_begins_again_and_again_ends() {
    const HASHES: usize = 10;
    const FIELDS: usize = 20_000;
    let ported = narrow("");
    let (mut host, mut other) = (ported.host(), ported.client());
    for (key, text) in [("one", "ab"), ("two", "ba")] {
        host.call(&["MIDI.SET", key, &text.repeat(5000)]);
    }
    let noise = |client: &mut Client, _: &mut Random| drop(client.run("MIDI.LCS one two LEN"));
    let progress = |client: &mut Client| jobs(client, "copy").first().copied();
    beside(&ported.server, 6, noise, || {
        for (mut copier, prefix) in doors(&ported) {
            wait_until("it has begun again more than once", || {
                for number in 0..HASHES {
                    let value = number.to_string().repeat(50);
                    fill(&mut host, &format!("h:{number}"), FIELDS, &value);
                }
                host.ok("MIDI.RENAME h:0 h");
                begin(&mut copier, prefix, &mut other);
                let mut replaced = 0;
                while replaced + 1 < HASHES {
                    let Some(mut done) = progress(&mut other) else { break };
                    replaced += 1;
                    host.ok(&format!("MIDI.RENAME h:{replaced} h"));
                    // It begins with this one where it ends with the one before.
                    while let Some(now) = progress(&mut other).filter(|now| *now >= done) {
                        done = now;
                    }
                }
                assert_eq!(copier.read(), Value::Integer(1));
                let values = host.run("MIDI.HVALS c").array();
                assert!(values.iter().all(|value| *value == values[0]), "of one hash");
                assert_eq!(values.len(), FIELDS);
                replaced > 2
            });
        }
    });
}

/// The main thread writes to keys that a client of the host watches.
#[test]
fn watchers_of_the_copy_are_told() {
    let ported = narrow("");
    fill(&mut ported.host(), "h", 5000, "5");
    for (mut copier, prefix) in doors(&ported) {
        for (watched, goes_through) in [("c", false), ("h", true)] {
            for mut watcher in [ported.host(), ported.client()] {
                watcher.ok(&format!("WATCH {watched}"));
                let copy = format!("{prefix}COPY h c REPLACE");
                assert_eq!(copier.run(&copy), Value::Integer(1));
                watcher.ok("MULTI");
                watcher.run("PING");
                assert_eq!(!watcher.run("EXEC").is_null(), goes_through, "{watched}");
            }
        }
    }
    assert!(started(&mut ported.host()) >= 8);
}

#[test]
fn a_copy_that_is_left_or_cancelled_changes_nothing() {
    let ported = narrow("");
    fill_many(&mut ported.host());
    let (mut other, mut host) = (ported.client(), ported.host());
    let before = host.info_number("memory", "used_memory");
    for (number, (mut copier, prefix)) in
        doors(&ported).into_iter().chain(doors(&ported)).enumerate()
    {
        wait_until("it has not ended", || {
            host.run("MIDI.DEL c");
            if !begin(&mut copier, prefix, &mut other) {
                copier.read();
                return false;
            }
            if number < 2 {
                for job in other.run("MIDI.JOBS").array().into_iter().map(Value::map) {
                    other.run(&format!("MIDI.JOBS CANCEL {}", job["id"].integer()));
                }
                let reply = copier.read();
                return reply.is_error() && reply.text().contains("cancel");
            }
            copier = if prefix.is_empty() { ported.client() } else { ported.host() };
            wait_until("it has ended", || jobs(&mut other, "copy").is_empty());
            host.integer("MIDI.EXISTS c") == 0
        });
        assert_eq!(host.integer("MIDI.EXISTS c"), 0);
        wait_until("its memory is given back", || {
            host.info_number("memory", "used_memory") < before + (2 << 20)
        });
        assert_eq!(host.integer("MIDI.HSET h field:1 6"), 0);
    }
}

/// What is copied so far counts towards the limit of memory, though no key has it.
#[test]
fn copies_count_while_they_are_made() {
    const COPIERS: usize = 12;
    let ported = narrow("maxmemory 150000000");
    let (mut host, limit) = (ported.host(), 150_000_000);
    fill_many(&mut host);
    for door in 0..2 {
        ported.server.forget_peak();
        let mut copiers: Vec<Client> =
            (0..COPIERS).map(|_| if door == 0 { ported.client() } else { ported.host() }).collect();
        for (number, copier) in copiers.iter_mut().enumerate() {
            let command = ["COPY", "MIDI.COPY"][door];
            copier.send(&encoded(&[command, "h", &format!("c:{number}")]));
        }
        let replies: Vec<Value> = copiers.iter_mut().map(Client::read).collect();
        let is_refused = |reply: &&Value| reply.is_error() && reply.text().starts_with("OOM ");
        let refused = replies.iter().filter(is_refused).count();
        let made = replies.iter().filter(|reply| **reply == Value::Integer(1)).count();
        assert!(refused > COPIERS / 2 && made + refused == COPIERS, "{replies:?}");
        let peak = ported.server.peak_memory();
        assert!(peak < limit + (60 << 20), "{peak} at the peak");
        for number in 0..COPIERS {
            host.run(&format!("MIDI.DEL c:{number}"));
        }
        wait_until("the memory is back", || host.info_number("memory", "used_memory") < 60_000_000);
    }
}

/// A large value of a field is shared, but counts as a copy.
#[test]
fn large_values_of_fields_count_twice() {
    const VALUES: usize = 20;
    let ported = narrow("");
    let (mut host, value) = (ported.host(), "x".repeat(1 << 20));
    for number in 0..VALUES {
        host.call(&["MIDI.HSET", "h", &format!("field:{number}"), &value]);
    }
    for (mut client, prefix) in doors(&ported) {
        let jobs = started(&mut host);
        ported.server.forget_peak();
        let peak = ported.server.peak_memory();
        let before = host.info_number("memory", "used_memory");
        assert_eq!(client.run(&format!("{prefix}COPY h c")), Value::Integer(1));
        let after = host.info_number("memory", "used_memory");
        assert_eq!(started(&mut host), jobs + 1);
        let written = ported.server.peak_memory().saturating_sub(peak);
        assert!(written < VALUES << 19, "{written}");
        // The buffer of the client that has set the values may go meanwhile.
        assert!(after > before + (VALUES as i64 - 2) * (1 << 20), "{before} {after}");
        assert_eq!(content(&mut host, "c"), content(&mut host, "h"));
        assert_eq!(host.integer("MIDI.HSET h field:1 other"), 0);
        assert_eq!(host.call(&["MIDI.HGET", "c", "field:1"]).text().len(), 1 << 20);
        host.call(&["MIDI.HSET", "h", "field:1", &value]);
        host.run("MIDI.DEL c");
    }
}

#[test]
fn in_transactions_and_scripts_it_is_no_job() {
    for mode in [Mode::Adaptive, Mode::Safe] {
        let ported = Ported::start(mode.builder());
        let mut host = ported.host();
        fill(&mut host, "h", 5000, "5");
        for (number, (mut client, prefix)) in doors(&ported).into_iter().enumerate() {
            client.ok("MULTI");
            client.run(&format!("{prefix}COPY h c:{number}"));
            assert_eq!(client.run("EXEC").array(), [Value::Integer(1)]);
            let script = format!("return redis.call('MIDI.COPY', 'h', 'd:{number}')");
            assert_eq!(client.call(&["EVAL", &script, "0"]), Value::Integer(1));
            for copy in ["c", "d"] {
                assert_eq!(host.integer(&format!("MIDI.HLEN {copy}:{number}")), 5000);
            }
        }
        assert_eq!(started(&mut host), 0);
        assert_eq!(host.integer("MIDI.COPY h e"), 1);
        assert_eq!(started(&mut host), i64::from(mode == Mode::Adaptive));
        assert_eq!(host.integer("MIDI.HLEN e"), 5000);
    }
}

#[test]
fn a_long_copy_counts_as_one_command() {
    let ported = narrow("");
    let (mut host, mut other) = (ported.host(), ported.client());
    fill_many(&mut host);
    for (number, (mut client, prefix)) in doors(&ported).into_iter().enumerate() {
        assert_eq!(client.run(&format!("{prefix}COPY h c REPLACE")), Value::Integer(1));
        assert_eq!(other.info_number("stats", "keyspace_hits"), 1 + 3 * number as i64);
        let calls = format!("calls={},", number + 1);
        assert!(other.info("commandstats")["cmdstat_copy"].starts_with(&calls));
        assert_eq!(host.integer("MIDI.HLEN c"), MANY as i64);
        assert_eq!(host.integer("MIDI.HSTRLEN c field:7"), LENGTH as i64);
    }
}
