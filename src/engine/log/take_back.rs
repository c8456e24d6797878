//! Taking the tail back, and making it again.
//!
//! What a run keeps of its keys is exchanged for what they are now. So doing it once takes the run
//! back, and doing it again makes it again.

use std::sync::atomic::Ordering;

use super::open_run::{Change, ChangeOfAll, OpenRun};
use crate::engine::slot::ThreadSlot;
use crate::engine::{AllHeld, Engine};
use crate::store::{Census, Done, Edit, Keeping, KeyHash, Now, Store, UnixMs};
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

    /// [`AllHeld::take_back`] in a forked child. False if another thread was at the tail when the
    /// process forked: then nobody knows what the host's log has.
    pub fn take_back_in_child(&mut self, locked: Locked<'_>) -> bool {
        let is_whole = self.engine().log.tail.try_lock().is_some();
        if is_whole {
            self.take_back(locked);
        }
        is_whole
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
        match &mut run.of_all {
            Some(ChangeOfAll::Swapped(a, b)) => {
                let (a, b) = (*a, *b);
                for shard in 0..engine.shard_count() {
                    self.change_databases(slot, shard, &[a, b], |store| store.swap_dbs(a, b));
                }
            }
            Some(ChangeOfAll::Emptied(tables)) => {
                for (shard, db, table) in tables {
                    self.change_databases(slot, *shard, &[*db], |store| {
                        *table = store.replace_db(*db, std::mem::take(table));
                    });
                }
            }
            None => {}
        }
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

impl AllHeld<'_> {
    /// Changes whole databases of a shard, and counts what they gain.
    fn change_databases(
        &mut self,
        slot: &ThreadSlot,
        shard: u32,
        databases: &[u32],
        change: impl FnOnce(&mut Store),
    ) {
        let engine = self.engine();
        let Some(store) = self.store_mut(shard) else { return };
        let census = |store: &Store, db| {
            // The count of expired keys does not move with a database.
            store
                .table(db)
                .map_or(Census::default(), |table| Census { expired: 0, ..table.census() })
        };
        let before: Vec<Census> = databases.iter().map(|&db| census(store, db)).collect();
        change(store);
        for (&db, before) in databases.iter().zip(before) {
            slot.book(db, census(store, db) - before);
            engine.note_due(shard, store.db(db));
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
