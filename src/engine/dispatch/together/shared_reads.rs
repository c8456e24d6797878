//! Reading shards without their tokens.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::tests::Lines;
use crate::command::Transcript;
use crate::engine::call::{Outcome, Taking};
use crate::engine::testing::{Said, open_engine};
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

#[test]
fn a_shard_opens_when_it_is_only_read_and_closes_for_a_change() {
    let engine = open_engine(2, 1, || 0);
    said(&engine, 0, &["set k 1", "set l 2 pxat 900", "hset h f v"]);
    for (lines, reply) in [
        (&["set k 2"][..], "OK"),
        (&["get k", "set k 3", "get k"], "2 OK 3"),
        (&["get k", "get l", "get k"], "3 null 3"),
        (&["strlen k"], "1"),
        (
            &["get k", "get h"],
            "3 WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
    ] {
        open(&engine);
        assert_eq!(said(&engine, 0, &["get k"]), said(&engine, 1, &["get k", "get k"])[..1]);
        assert!(is_open(&engine), "reads leave it open");
        assert_eq!(said(&engine, 0, lines), reply);
        assert!(!is_open(&engine), "{lines:?}");
    }
    assert_eq!(said(&engine, 0, &["get l"]), "null");
}

#[test]
fn who_changes_a_shard_that_others_read_finds_it_busy() {
    let engine = open_engine(2, 1, || 0);
    said(&engine, 0, &["set k 1"]);
    for lines in [&["set k 2"][..], &["get k", "set k 2", "get k"]] {
        open(&engine);
        let shared = engine.shards().try_share(engine.worker_slot(1), 0, 0).expect("it is open");
        let (before, outcome) = attempt(&engine, 0, lines);
        assert_eq!(
            (&before[..], outcome),
            (if lines.len() == 1 { "" } else { "1" }, Outcome::Busy)
        );
        // No more readers are let in.
        assert_eq!(attempt(&engine, 0, &["get k"]).1, Outcome::Busy);
        drop(shared);
        assert_eq!(said(&engine, 0, &["get k"]), "1");
    }
    said(&engine, 0, &["set k 2"]);
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
