//! Who watches keys while the tail is taken back and made again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::model::{Door, Model, Step};
use super::world::{CLOCK, Keys, MAY_LOG};
use super::{LOCKED, line_of};

/// Clients of the ports read during a save without a fork. What is taken back before it, and made
/// again after it, has changed for those that watch it.
#[test]
fn observers_hear_of_what_is_taken_back_and_made_again() {
    CLOCK.set(1000);
    let mut model = Model::new(Keys::new());
    model.step(Step::Run(Door::Main, 1, line_of("set k:1 v", &[])));
    model.step(Step::LogTail);
    MAY_LOG.set(false);
    model.step(Step::Run(Door::Worker(0), 0, line_of("set k:0 v", &[])));
    model.step(Step::Run(Door::Queue, 1, line_of("flushdb", &[])));
    let engine = &model.engine;
    let observers = || {
        [(0, b"k:0"), (1, b"k:1")].map(|(db, key)| {
            let at = engine.shards().key_at(db, key);
            let mut held = engine.shards().take_waiting(LOCKED, at.shard);
            let flag = Arc::<AtomicBool>::default();
            held.watched.observe(db, key, &flag, 10);
            engine.ledger.release(engine.main_slot(LOCKED), at.shard, held);
            flag
        })
    };
    let are_raised = |flags: &[Arc<AtomicBool>]| flags.iter().all(|it| it.load(Ordering::Relaxed));
    let before = observers();
    let mut all = engine.shards().hold_all(LOCKED);
    engine.ledger.take_back(LOCKED, &mut all);
    all.release();
    assert!(are_raised(&before));
    let meanwhile = observers();
    let mut all = engine.shards().hold_all(LOCKED);
    engine.ledger.make_again(LOCKED, &mut all);
    all.release();
    assert!(are_raised(&meanwhile));
    MAY_LOG.set(true);
}
