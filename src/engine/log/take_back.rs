//! Taking the tail back, and making it again.
//!
//! What a run keeps of its keys is exchanged for what they are now. So doing it once takes the run
//! back, and doing it again makes it again.

use std::sync::atomic::Ordering;

use super::open_run::{Change, OpenRun};
use crate::engine::slot::ThreadSlot;
use crate::engine::{AllHeld, Engine};
use crate::store::{Done, Edit, Keeping, KeyHash, Now, Store, UnixMs};
use crate::sync::Locked;

impl AllHeld<'_> {
    /// Takes back all runs of the tail, the newest first: the keyspace is then what the host's log
    /// makes of it.
    pub fn take_back(&mut self, locked: Locked<'_>) {
        let engine = self.engine();
        let slot = engine.main_slot(locked);
        let mut tail = engine.log.tail.lock();
        for published in tail.runs.iter_mut().rev() {
            self.exchange(slot, &mut published.run);
            engine.log.counts.taken_back.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Makes again what [`AllHeld::take_back`] took back.
    pub fn make_again(&mut self, locked: Locked<'_>) {
        let engine = self.engine();
        let slot = engine.main_slot(locked);
        let mut tail = engine.log.tail.lock();
        for published in &mut tail.runs {
            self.exchange(slot, &mut published.run);
        }
    }

    fn exchange(&mut self, slot: &ThreadSlot, run: &mut OpenRun) {
        let engine = self.engine();
        for change in run.take_changes().into_iter().rev() {
            let (db, hash) = (change.db, engine.hasher.hash(run.name(change.name)));
            let shard = engine.shard_of(hash);
            let Some(store) = self.store_mut(shard) else { continue };
            exchange_key(engine, store, hash, run, change);
            let table = store.db(db);
            slot.book(db, table.take_gained());
            engine.note_due(shard, table);
        }
    }
}

/// Makes a key what it was before a change, and notes in the run what it is now.
fn exchange_key(
    engine: &Engine,
    store: &mut Store,
    hash: KeyHash,
    run: &mut OpenRun,
    change: Change,
) {
    let mut done = Done::keeping(Keeping::Before);
    // A moment at which no key has expired.
    let now = Now::at(UnixMs::MIN);
    let (db, name) = (change.db, change.name);
    let key = run.name(name);
    Edit::new(store.db(db), &engine.hasher, hash, key, &now, &mut done).restore(change.before);
    run.note_named(db, name, done.take_before());
}
