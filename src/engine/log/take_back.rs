//! Taking the tail back, and making it again.
//!
//! What a run keeps of its keys is exchanged for what they are now. So doing it once takes the run
//! back, and doing it again makes it again.

use std::sync::atomic::Ordering;

use super::open_run::{Change, OpenRun};
use crate::engine::{AllHeld, Engine};
use crate::engine::slot::ThreadSlot;
use crate::store::{Done, Edit, Keeping, Now, Store, UnixMs};

impl AllHeld<'_> {
    /// Takes back all runs of the tail, the newest first: the keyspace is then what the host's log
    /// makes of it.
    pub fn take_back(&mut self, slot: &ThreadSlot) {
        let engine = self.engine();
        let mut tail = engine.log.tail.lock();
        for published in tail.runs.iter_mut().rev() {
            self.exchange(slot, &mut published.run);
            engine.log.counts.taken_back.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Makes again what [`AllHeld::take_back`] took back.
    pub fn make_again(&mut self, slot: &ThreadSlot) {
        let engine = self.engine();
        let mut tail = engine.log.tail.lock();
        for published in &mut tail.runs {
            self.exchange(slot, &mut published.run);
        }
    }

    fn exchange(&mut self, slot: &ThreadSlot, run: &mut OpenRun) {
        let engine = self.engine();
        for change in run.take_changes().into_iter().rev() {
            let (db, hash) = (change.db, engine.hasher.hash(run.name(&change)));
            let shard = engine.shard_of(hash);
            let Some(store) = self.store_mut(shard) else { continue };
            engine.exchange(slot, store, shard, run, change);
            let table = store.db(db);
            slot.book(db, table.take_gained());
            engine.note_due(shard, table);
        }
    }
}

impl Engine {
    /// Makes a key what it was before a change, and notes in the run what it is now.
    fn exchange(
        &self,
        _: &ThreadSlot,
        store: &mut Store,
        _: u32,
        run: &mut OpenRun,
        change: Change,
    ) {
        let mut done = Done::keeping(Keeping::Before);
        let db = change.db;
        let name = change.name_range();
        {
            let key = run.name(&change);
            let hash = self.hasher.hash(key);
            // A moment at which no key has expired.
            let now = Now::at(UnixMs::MIN);
            Edit::new(store.db(db), &self.hasher, hash, key, &now, &mut done).restore(change.before);
        }
        run.put_back(db, name, done.take_before());
    }
}
