//! What texts hold, and when the host gets them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::Logged;
use super::world::{
    Host, Keys, LARGE, Line, assert_same, content_of, logging_engine, replayed, with_call,
};
use super::{line_of, name};
use crate::command::Transcript;
use crate::command::record::Records;
use crate::engine::{Gates, ShardNumbers, Watching};
use crate::store::{SharedBytes, SharedValue, Value};
use crate::sync::LOCKED;

/// A crash between two texts must not cut a unit in two, nor an EXEC of a worker.
#[test]
fn a_unit_is_in_one_text() {
    let host = Arc::<Host>::default();
    let engine = logging_engine(&host);
    host.refuses.store(true, Ordering::Relaxed);
    let set = |key| {
        let line = Line(vec![b"set".to_vec(), name(key), b"1".to_vec()]);
        with_call(&engine, 0, &line, |call| {
            engine.run_waiting(LOCKED, call, &mut Transcript::default());
        });
    };
    set(0);
    for keys in [1..4, 4..6] {
        engine.shards().in_unit(LOCKED, || keys.for_each(set));
    }
    set(6);
    let mut texts = Vec::new();
    let mut write = |logged: Logged<'_>| {
        texts.push(Records::new(&logged.text()).expect("a version").count());
        true
    };
    while !engine.ledger.log.is_tail_empty() {
        engine.ledger.log.hand_over(None, 1, None, &mut write);
    }
    // Each with the SELECT that it begins with; a unit with MULTI and EXEC.
    assert_eq!(texts, [2, 6, 5, 2]);
}

/// An EXEC without keys holds no token, so the mode may change meanwhile.
#[test]
fn a_group_without_keys_marks_nothing() {
    let engine = logging_engine(&Arc::default());
    let slot = engine.worker_slot(0);
    let hold = |shards| {
        let held = engine.hold(slot, shards, &Watching::default(), std::iter::empty());
        let Ok((holding, _)) = held else { panic!("nobody else is here") };
        holding
    };
    let holding = hold(ShardNumbers::new());
    engine.ledger.set_gates(LOCKED, Gates::OPEN);
    holding.let_go();
    engine.ledger.set_gates(LOCKED, Gates::AOF_ON);
    let key = name(0);
    let mut holding = hold(ShardNumbers::from_elem(engine.shards().of_key(&key), 1));
    with_call(&engine, 0, &Line(vec![b"set".to_vec(), key, b"v".to_vec()]), |call| {
        holding.run(call, &mut Transcript::default());
    });
    holding.let_go();
    engine.ledger.log.hand_over(None, 1, None, &mut |logged: Logged<'_>| {
        let text = logged.text();
        assert_eq!(Records::new(&text).expect("a version").count(), 2, "SELECT and SET");
        true
    });
    assert!(engine.ledger.log.is_tail_empty());
}

/// A buffer that tells whether somebody has changed it in place.
struct Watched(Vec<u8>, Arc<AtomicBool>);

impl SharedBytes for Watched {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn bytes_mut(&mut self) -> Option<&mut Vec<u8>> {
        self.1.store(true, Ordering::Relaxed);
        Some(&mut self.0)
    }
}

/// The log refers to a large value until the host has it. Then APPEND changes it in place again.
#[test]
fn the_log_lets_go_of_a_value_that_is_logged() {
    let host = Arc::<Host>::default();
    let engine = logging_engine(&host);
    for (at_once, later) in [(true, true), (false, true), (false, false)] {
        let is_in_place = Arc::<AtomicBool>::default();
        host.refuses.store(!at_once, Ordering::Relaxed);
        let value = SharedValue::new(Watched(vec![b'v'; 2 * LARGE], Arc::clone(&is_in_place)));
        engine.ledger.put(LOCKED, 0, b"k", Value::Shared(&value), None, true);
        drop(value);
        host.refuses.store(!later, Ordering::Relaxed);
        assert_eq!(engine.ledger.log_whole_tail(LOCKED), later);
        with_call(&engine, 0, &line_of("append k x", &[]), |call| {
            engine.run_waiting(LOCKED, call, &mut Transcript::default());
        });
        assert_eq!(is_in_place.load(Ordering::Relaxed), later);
    }
}

/// A long text is given in parts; and all at once, with what stands behind it, where something
/// cannot wait. It can be begun again.
#[test]
fn a_long_text_in_parts() {
    let host = Arc::<Host>::default();
    let engine = logging_engine(&host);
    let set = |key, bytes: usize| {
        let line = Line(vec![b"set".to_vec(), name(key), vec![b'v'; bytes]]);
        with_call(&engine, 0, &line, |call| {
            engine.run_waiting(LOCKED, call, &mut Transcript::default());
        });
    };
    let logged = || (engine.ledger.log.logged(), host.texts.lock().len());
    host.refuses.store(true, Ordering::Relaxed);
    set(0, 10 * LARGE);
    set(1, 1);
    assert!(!engine.ledger.log_tail(LOCKED));
    host.refuses.store(false, Ordering::Relaxed);
    (0..2).for_each(|_| assert!(engine.ledger.log_tail(LOCKED)));
    assert_eq!(logged(), (0, 2), "nothing is acknowledged yet");
    engine.ledger.log.begin_parts_again();
    (0..3).for_each(|_| assert!(engine.ledger.log_tail(LOCKED)));
    assert_eq!(logged(), (0, 5));
    host.refuses.store(true, Ordering::Relaxed);
    assert!(!engine.ledger.log_tail(LOCKED));
    host.refuses.store(false, Ordering::Relaxed);
    assert!(engine.ledger.log_tail(LOCKED));
    set(2, 10 * LARGE);
    assert_eq!(logged(), (3, 7), "the rest, and what cannot wait, at once");
    let texts = host.texts.lock().clone();
    let offsets = texts.iter().map(|text| {
        let word = text.split(|&byte| byte == b'\n').nth(9).unwrap_or_default();
        String::from_utf8_lossy(word).trim().to_owned()
    });
    assert_eq!(offsets.collect::<Vec<_>>(), ["0", "40", "0", "40", "80", "120", "160"]);
    let longest = texts[..6].iter().map(Vec::len).max();
    assert!(longest < Some(40 + 100), "{longest:?}");
    let again = content_of(&replayed(&Keys::new(), &texts));
    assert_same(&again, &content_of(&engine), "what is replayed");
    assert_eq!(again.len(), 3);
}
