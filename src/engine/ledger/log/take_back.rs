//! Taking the tail back, and making it again.
//!
//! A run keeps each key as it was. That copy and the key are exchanged: done once, this takes the
//! run back, and done again, it makes the run again.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use super::super::Ledger;
use super::super::databases::book_gained;
use super::{Change, ChangeOfAll, OpenRun};
use crate::command::Event;
use crate::engine::call::Author;
use crate::engine::shards::AllHeld;
use crate::engine::slot::ThreadSlot;
use crate::store::{Census, Done, Edit, Keeping, KeyHash, Now, Store, UnixMs};
use crate::sync::Locked;

impl Ledger {
    /// Takes back all runs of the tail for good: the host will not log them. Their clients are
    /// answered an error. Returns how many runs there were.
    pub fn drop_tail(&self, locked: Locked<'_>) -> usize {
        if self.log.is_tail_empty() {
            return 0;
        }
        let mut all = self.shards.hold_all(locked);
        let dropped = self.drop_held_tail(locked, &mut all);
        all.release();
        self.open_gate_if_room();
        dropped
    }

    /// Takes back all runs of the tail, the newest first: the keyspace is then what the host's log
    /// makes of it.
    pub fn take_back(&self, locked: Locked<'_>, all: &mut AllHeld<'_>) {
        let slot = self.books.main_slot(locked);
        let mut tail = self.log.tail.lock();
        for published in tail.runs.iter_mut().rev() {
            self.exchange(all, slot, &mut published.run);
            self.log.taken_back.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes back all runs of the tail for good. Clients that watch or cache their keys learn of
    /// it. Returns how many runs there were.
    fn drop_held_tail(&self, locked: Locked<'_>, all: &mut AllHeld<'_>) -> usize {
        let slot = self.books.main_slot(locked);
        let mut runs = self.log.take_tail();
        for published in runs.iter_mut().rev() {
            self.exchange(all, slot, &mut published.run);
            self.tell_changed(locked, all, &published.run);
        }
        if let Some(first) = runs.front() {
            let before = first.run.position - 1;
            for shard in 0..self.shards.count() {
                let Some(store) = all.store_mut(shard) else { continue };
                store.log.position = store.log.position.min(before);
            }
        }
        self.log.forget(&runs);
        self.log.taken_back.fetch_add(runs.len() as u64, Ordering::Relaxed);
        runs.len()
    }

    /// Tells those who watch or cache keys that an undone run has changed them.
    fn tell_changed(&self, locked: Locked<'_>, all: &mut AllHeld<'_>, run: &OpenRun) {
        for change in &run.changes {
            let (db, key) = (change.db, run.name(change.name));
            let at = self.shards.key_at(db, key);
            let Some(store) = all.store_mut(at.shard) else { continue };
            self.changed(Some(locked), &mut store.watched, db, key);
            if self.notifications.is_listening() {
                let is_there = store.table(db).is_some_and(|it| it.find(at.hash, key).is_some());
                let event = if is_there { Event::SET } else { Event::DEL };
                self.leave_notification(Author::Nobody, db, key, event);
            }
        }
        let databases: BTreeSet<u32> = match &run.of_all {
            Some(ChangeOfAll::Swapped(a, b)) => [*a, *b].into(),
            Some(ChangeOfAll::Emptied(tables)) => tables.iter().map(|&(_, db, _)| db).collect(),
            None => return,
        };
        for shard in 0..self.shards.count() {
            let Some(store) = all.store_mut(shard) else { continue };
            let keys = store.watched.names();
            self.databases_changed(locked, &mut store.watched, &databases, keys);
        }
    }

    /// [`Ledger::take_back`] in a forked child. False if another thread was at the tail when the
    /// process forked: then nobody knows what the host's log has.
    pub fn take_back_in_child(&self, locked: Locked<'_>, all: &mut AllHeld<'_>) -> bool {
        let log = &self.log;
        let is_whole = log.tail.try_lock().is_some() && log.gathered.try_lock().is_some();
        if is_whole {
            self.take_back(locked, all);
        }
        is_whole
    }

    /// Makes again what [`Ledger::take_back`] took back.
    pub fn make_again(&self, locked: Locked<'_>, all: &mut AllHeld<'_>) {
        let slot = self.books.main_slot(locked);
        let mut tail = self.log.tail.lock();
        for published in &mut tail.runs {
            self.exchange(all, slot, &mut published.run);
        }
    }

    fn exchange(&self, all: &mut AllHeld<'_>, slot: &ThreadSlot, run: &mut OpenRun) {
        match &mut run.of_all {
            Some(ChangeOfAll::Swapped(a, b)) => {
                let (a, b) = (*a, *b);
                for shard in 0..self.shards.count() {
                    self.change_databases(all, slot, shard, &[a, b], |store| store.swap_dbs(a, b));
                }
            }
            Some(ChangeOfAll::Emptied(tables)) => {
                for (shard, db, table) in tables {
                    self.change_databases(all, slot, *shard, &[*db], |store| {
                        *table = store.replace_db(*db, std::mem::take(table));
                    });
                }
            }
            None => {}
        }
        for change in run.take_changes().into_iter().rev() {
            let (db, hash) = (change.db, self.shards.hasher.hash(run.name(change.name)));
            let shard = self.shards.of(hash);
            let Some(store) = all.store_mut(shard) else { continue };
            self.exchange_key(store, hash, run, change);
            let table = store.db(db);
            slot.book(db, table.take_gained());
            self.shards.note_due(shard, table);
        }
    }

    /// Changes whole databases of a shard, and counts what they gain.
    fn change_databases(
        &self,
        all: &mut AllHeld<'_>,
        slot: &ThreadSlot,
        shard: u32,
        databases: &[u32],
        change: impl FnOnce(&mut Store),
    ) {
        let Some(store) = all.store_mut(shard) else { return };
        book_gained(slot, store, databases);
        let before: Vec<Census> = databases.iter().map(|&db| store.census(db)).collect();
        let count = |store: &Store, gained| {
            let tables = databases.iter().filter_map(|&db| Some((db, store.table(db)?)));
            tables.for_each(|(db, table)| self.slots.count_table(db, table, gained));
        };
        count(store, -1);
        change(store);
        count(store, 1);
        for (&db, before) in databases.iter().zip(before) {
            slot.book(db, store.census(db) - before);
            self.shards.note_due(shard, store.db(db));
            store.watched.names().iter().for_each(|name| store.watched.raise(db, name));
            store.watched.raise_long(db);
        }
    }

    /// Makes a key what it was before a change, and notes in the run what it is now. Clients of the
    /// ports go on reading during a save without a fork, before which runs are taken back and after
    /// which they are made again: both are changes to those that watch the key. The host's clients
    /// see neither.
    fn exchange_key(&self, store: &mut Store, hash: KeyHash, run: &mut OpenRun, change: Change) {
        let mut done = Done::keeping(Keeping::Before);
        // A moment at which no key has expired.
        let now = Now::at(UnixMs::MIN);
        let (db, name) = (change.db, change.name);
        let key = run.name(name);
        Edit::new(store.db(db), &self.shards.hasher, hash, key, &now, &mut done)
            .restore(change.before);
        self.slots.count(db, || run.name(name), done.gained());
        store.watched.raise(db, run.name(name));
        run.note_named(db, name, done.take_before());
    }
}
