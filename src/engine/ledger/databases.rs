//! Changes of whole databases: at one moment, with all tokens held.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use hashbrown::HashMap;

use super::Ledger;
use crate::command::record::Record;
use crate::engine::call::Taking;
use crate::engine::counters::Census;
use crate::engine::slot::ThreadSlot;
use crate::store::{Remains, Store, Table};
use crate::sync::Locked;

/// Whose command changes all keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangedBy {
    /// One of midi's, which midi logs.
    Midi,
    /// One of the host's, which the host logs.
    Host,
}

impl ChangedBy {
    fn logs<R>(self, record: R) -> Option<R> {
        (self == ChangedBy::Midi).then_some(record)
    }
}

/// The effects of a change of all shards.
#[derive(Default)]
pub(in crate::engine) struct Changes {
    /// The gain of each database, in all shards together.
    gained: HashMap<u32, Census>,
    /// The tables that it has taken out: shard, database, table.
    pub(super) taken: Vec<(u32, u32, Table)>,
}

impl Changes {
    fn count(&mut self, store: &Store, databases: &[u32], count: impl Fn(&mut Census, Census)) {
        for &db in databases {
            count(self.gained.entry(db).or_default(), store.census(db));
        }
    }
}

impl Ledger {
    /// Empties databases at one moment (one of them, or all); returns the tables to be freed. Each
    /// key counts as a change.
    pub fn flush(&self, locked: Locked<'_>, only: Option<u32>, by: ChangedBy) -> Vec<Remains> {
        let record = match only {
            Some(db) => (db, Record::FlushDb),
            None => (0, Record::FlushAll),
        };
        let tables = self.edit_all(locked, by.logs(record), |shard, store, changes| {
            if shard == 0 {
                self.slots.clear(only);
            }
            let mut next = only.or(Some(0));
            while let Some(db) = next {
                let table =
                    self.edit_databases(locked, store, &[db], changes, |store| store.take_db(db));
                if !table.is_empty() {
                    self.books.main_slot(locked).changed.add(table.census().keys.max(0) as u64);
                    changes.taken.push((shard, db, table));
                }
                next = if only.is_none() { store.next_db(db + 1) } else { None };
            }
        });
        tables.into_iter().map(Table::into_remains).collect()
    }

    /// Exchanges two databases at one moment.
    pub fn swap_dbs(&self, locked: Locked<'_>, a: u32, b: u32, by: ChangedBy) {
        self.edit_all(locked, by.logs((a, Record::SwapDb { a, b })), |shard, store, changes| {
            if shard == 0 {
                self.slots.swap(a, b);
            }
            self.edit_databases(locked, store, &[a, b], changes, |store| store.swap_dbs(a, b));
        });
    }

    /// Calls `change` on every shard, with all tokens held at once, and counts what the databases
    /// gained. `record` is for the log; without one, the host logs what happened. Returns the
    /// tables that were taken out, as far as they are to be freed now.
    pub(super) fn edit_all(
        &self,
        locked: Locked<'_>,
        record: Option<(u32, Record<'_>)>,
        mut change: impl FnMut(u32, &mut Store, &mut Changes),
    ) -> Vec<Table> {
        let all: Vec<u32> = (0..self.shards.count()).collect();
        let Some(mut held) = self.shards.take_many(&all, Taking::Wait(locked)) else {
            return Vec::new(); // Waiting does not fail.
        };
        let mut changes = Changes::default();
        for (shard, token) in &mut held {
            change(*shard, token, &mut changes);
            self.shards.set_due(*shard, token);
        }
        let Changes { gained, mut taken } = changes;
        let mut left = Vec::new();
        if self.mode().is_logged() {
            // A change that the host has logged itself need not be taken back.
            let kept = if record.is_some() { std::mem::take(&mut taken) } else { Vec::new() };
            let (position, flushed) = self.log_change_of_all(locked, record, kept);
            left = flushed;
            self.books.main_slot(locked).log.see(position);
            held.iter_mut().for_each(|(_, token)| token.log.position = position);
        }
        self.age.fetch_add(1, Ordering::Relaxed);
        for (db, change) in gained {
            self.books.main_slot(locked).book(db, change);
        }
        self.release_many(self.books.main_slot(locked), held);
        left.extend(taken.into_iter().map(|(.., table)| table));
        left
    }

    /// Changes these databases of one of the shards that [`Ledger::edit_all`] holds; every such
    /// change ends here.
    pub(super) fn edit_databases<R>(
        &self,
        locked: Locked<'_>,
        store: &mut Store,
        databases: &[u32],
        changes: &mut Changes,
        change: impl FnOnce(&mut Store) -> R,
    ) -> R {
        book_gained(self.books.main_slot(locked), store, databases);
        // Keys that exist before or after the change: they come, go, or are others then.
        let mut watched: BTreeSet<_> =
            self.watched_in(locked, store, databases).into_iter().collect();
        changes.count(store, databases, |sum, census| *sum = *sum - census);
        let result = change(store);
        changes.count(store, databases, |sum, census| *sum += census);
        watched.extend(self.watched_in(locked, store, databases));
        self.databases_changed(locked, &mut store.watched, databases, watched);
        result
    }
}

/// Books what edits that change nothing for clients have left in these databases, before the
/// databases themselves change.
pub(super) fn book_gained(slot: &ThreadSlot, store: &mut Store, databases: &[u32]) {
    for &db in databases {
        if store.table(db).is_none() {
            continue;
        }
        let gained = store.db(db).take_gained();
        if gained != Census::default() {
            slot.book(db, gained);
        }
    }
}
