//! Reading shards without their tokens.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::tests::Lines;
use crate::command::Transcript;
use crate::engine::call::{Outcome, Taking};
use crate::engine::testing::{Said, number_of, open_engine};
use crate::engine::{Engine, Together};
use crate::limits::OPEN_AFTER;

/// Runs lines together on a worker as far as they go at once: their replies, and the outcome.
fn attempt(engine: &Engine, worker: usize, lines: &[&str]) -> (String, Outcome) {
    let words = lines.iter().map(|line| (line.split(' ').map(str::as_bytes).collect(), None));
    let (calls, mut reply) = (Lines::new(engine, 0, 1000, words), Transcript::default());
    let slot = engine.worker_slot(worker);
    let (_, outcome) = if lines.len() == 1 {
        (1, engine.attempt(slot, &calls.call(0), Taking::WORKER, &mut reply))
    } else {
        engine.attempt_run(slot, &calls, &mut reply, |_| false)
    };
    let mut said = Said::default();
    reply.play(&mut said);
    (said.text(), outcome)
}

fn said(engine: &Engine, worker: usize, lines: &[&str]) -> String {
    let (said, outcome) = attempt(engine, worker, lines);
    assert_eq!(outcome, Outcome::Done, "{lines:?}");
    said
}

fn is_open(engine: &Engine) -> bool {
    engine.shards().try_share(engine.worker_slot(0), 0, 0).is_some()
}

fn open(engine: &Engine) {
    for _ in 0..OPEN_AFTER {
        said(engine, 0, &["get k"]);
    }
    assert!(is_open(engine));
}

/// Commands that only read, and their replies.
const READS: [(&str, &str); 7] = [
    ("hget h f", "v"),
    ("hmget h f g", "v null"),
    ("hgetall h", "f v"),
    ("exists s", "1"),
    ("pttl s", "-1"),
    ("getrange s 1 -1", "bc"),
    ("type none", "none"),
];

#[test]
fn a_shard_opens_when_it_is_only_read_and_closes_for_a_change() {
    let engine = open_engine(2, 1, || 0);
    said(
        &engine,
        0,
        &[
            "set k 1",
            "set l 2 pxat 900",
            "set m 2 pxat 900",
            "set n 2 pxat 900",
            "hset h f v",
            "set s abc",
            "hset i f v",
        ],
    );
    for (lines, reply) in [
        (&["set k 2"][..], "OK"),
        (&["get k", "set k 3", "get k"], "2 OK 3"),
        (&["get k", "set k 3"], "3 OK"),
        (&["get k", "get l", "get k"], "3 null 3"),
        (&["ttl m"], "-2"),
        (&["memory usage n"], "null"),
        (&["hset i g w"], "1"),
        (&["append j 4"], "1"),
        (
            &["get k", "get h"],
            "3 WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
    ] {
        open(&engine);
        assert_eq!(said(&engine, 0, &["get k"]), said(&engine, 1, &["get k", "get k"])[..1]);
        for (read, reply) in READS {
            assert_eq!(said(&engine, 0, &[read]), reply);
            let together = said(&engine, 1, &[read, "get none", read, read, "hlen h"]);
            assert_eq!(together, format!("{reply} null {reply} {reply} 1"));
        }
        assert!(is_open(&engine), "reads leave it open");
        assert_eq!(said(&engine, 0, lines), reply);
        assert!(!is_open(&engine), "{lines:?}");
    }
    assert_eq!(said(&engine, 0, &["get l"]), "null");
}

/// What ends a group of reads is answered by the holder, and counted once.
#[test]
fn reads_that_cannot_be_shared_are_answered_and_counted() {
    let engine = open_engine(2, 1, || 0);
    said(&engine, 0, &["set k 1", "hset h f v", &format!("set long {}", "x".repeat(100_000))]);
    let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
    for lines in [&["hget k f"][..], &["get k", "hget h f", "hget k f", "hget h f", "get k"]] {
        open(&engine);
        let counts = |name: &str| engine.ledger.books.command_count(number_of(name.as_bytes()));
        let (before, hits) = (counts("hget"), engine.worker_slot(0).hits.get());
        let replies = said(&engine, 0, lines);
        let wanted = if lines.len() == 1 { wrong } else { &format!("1 v {wrong} v 1") };
        assert_eq!(replies, wanted);
        let after = counts("hget");
        let of_hget = lines.iter().filter(|line| line.starts_with("hget")).count() as u64;
        assert_eq!((after.calls - before.calls, after.failed - before.failed), (of_hget, 1));
        // The key is there, if of another type.
        assert_eq!(engine.worker_slot(0).hits.get() - hits, lines.len() as u64);
        // A long read takes the shard, a short one of a long value does not.
        open(&engine);
        assert_eq!(said(&engine, 0, &["get k", "strlen long"]), "1 100000");
        assert!(is_open(&engine));
        assert_eq!(said(&engine, 0, &["get k", "bitcount long"]), "1 400000");
        assert!(!is_open(&engine));
    }
}

#[test]
fn who_changes_a_shard_that_others_read_finds_it_busy() {
    let engine = open_engine(2, 1, || 0);
    said(&engine, 0, &["set k 1"]);
    // A read beside a write goes with it; many are a group of their own.
    let many = ["get k", "get k", "get k", "get k", "get k", "set k 2"];
    let cases =
        [(&["set k 2"][..], ""), (&["get k", "set k 2", "get k"], ""), (&many, "1 1 1 1 1")];
    for (lines, said_before) in cases {
        open(&engine);
        let shared = engine.shards().try_share(engine.worker_slot(1), 0, 0).expect("it is open");
        let (before, outcome) = attempt(&engine, 0, lines);
        assert_eq!((&before[..], outcome), (said_before, Outcome::Busy));
        // No more readers are let in.
        assert_eq!(attempt(&engine, 0, &["get k"]).1, Outcome::Busy);
        drop(shared);
        assert_eq!(said(&engine, 0, &["get k"]), "1");
    }
    said(&engine, 0, &["set k 2"]);
}

/// The fields of a large hash are behind a reference that all who read the shard share.
#[test]
fn readers_on_other_threads_see_whole_hashes() {
    let engine = open_engine(3, 1, || 0);
    let fields = (0..600).map(|field| format!(" f{field} 0")).collect::<String>();
    said(&engine, 0, &[&format!("hset h{fields}")]);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for worker in [1, 2] {
            let (engine, is_over) = (&engine, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let lines = ["hvals h", "hget h f7", "hrandfield h", "hmget h f8 f9"];
                    let (said, outcome) = attempt(engine, worker, &lines);
                    if outcome == Outcome::Done {
                        // The values, with or without f10, a value, a name, two values.
                        let parts: Vec<&str> = said.split_whitespace().collect();
                        let (last, before) = (parts.len() - 1, parts.len() - 2);
                        assert!([602, 603].contains(&last) && parts[last] == parts[before]);
                    }
                }
            });
        }
        for round in 0..300 {
            for set in [format!("hset h f8 {round} f9 {round} f10 {round}"), "hdel h f10".into()] {
                while attempt(&engine, 0, &[&set]).1 != Outcome::Done {}
            }
            while attempt(&engine, 0, &["hset h f10 0"]).1 != Outcome::Done {}
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(said(&engine, 0, &["hmget h f8 f9 f10"]), "299 299 0");
}

#[test]
fn readers_on_other_threads_see_whole_values_in_their_order() {
    let engine = open_engine(3, 1, || 0);
    said(&engine, 0, &["set k 1000000"]);
    let is_over = AtomicBool::new(false);
    let shared: usize = thread::scope(|scope| {
        let readers = [1, 2].map(|worker| {
            let (engine, is_over) = (&engine, &is_over);
            scope.spawn(move || {
                let (mut newest, mut shared) = (0, 0);
                while !is_over.load(Ordering::Relaxed) {
                    let lines = &["get k", "get k", "get k"][..1 + shared % 3];
                    for value in attempt(engine, worker, lines).0.split_whitespace() {
                        let value: u64 = value.parse().expect("a whole number");
                        assert!(value >= newest, "{value} after {newest}");
                        newest = value;
                    }
                    shared += 1;
                }
                shared
            })
        });
        let mut written = 1_000_000;
        while written < 1_005_000 {
            let set = format!("set k {}", written + 1);
            written += u64::from(attempt(&engine, 0, &[&set]).1 == Outcome::Done);
        }
        is_over.store(true, Ordering::Relaxed);
        readers.map(|reader| reader.join().expect("no panic")).iter().sum()
    });
    assert!(shared > 0);
    assert_eq!(said(&engine, 0, &["get k"]), "1005000");
}
