//! Several keys whose shards are held together.

use std::cell::Cell;

use smallvec::{SmallVec, smallvec};

use super::Ledger;
use super::edit::{Account, RecordOf};
use crate::command::record::Record;
use crate::command::{Events, HeldKeys, LoggedAs};
use crate::engine::call::Call;
use crate::engine::shards::{HeldShard, KEYS_INLINE, KeyAt, ManyHeld, Shards, place_of};
use crate::limits::LINES_OF_STRING;
use crate::store::{Done, Edit, EntryRef, KeyHash, Now, read};

/// A key with its hash.
pub(in crate::engine) type NamedKey<'k> = (KeyHash, &'k [u8]);

/// Several keys whose shards are held: lends each to a command, and notes what the command does to
/// it.
pub(in crate::engine) struct KeysInHand<'a, 'b> {
    ledger: &'a Ledger,
    now: &'a Now,
    /// The client's database.
    db: u32,
    names: &'a [NamedKey<'a>],
    held: &'a mut ManyHeld<'b>,
    /// The place of each key's shard among those.
    places: SmallVec<[u32; KEYS_INLINE]>,
    /// What was done to each in the client's database.
    done: SmallVec<[Done; KEYS_INLINE]>,
    /// What was done to keys in other databases: index, database, edit.
    elsewhere: SmallVec<[(usize, u32, Done); 1]>,
    /// Reads that found a key, and those that did not.
    reads: Cell<(u64, u64)>,
}

impl<'a, 'b> KeysInHand<'a, 'b> {
    /// These keys, in the client's database. Prefetches their buckets and entries.
    pub(in crate::engine) fn new(
        ledger: &'a Ledger,
        db: u32,
        now: &'a Now,
        names: &'a [NamedKey<'a>],
        held: &'a mut ManyHeld<'b>,
    ) -> Self {
        let place = |&(hash, _): &NamedKey<'_>| place_of(held, ledger.shards.of(hash)) as u32;
        let places: SmallVec<[u32; KEYS_INLINE]> = names.iter().map(place).collect();
        let table = |(&(hash, _), &place): (&NamedKey<'_>, &u32)| {
            Some((hash, held[place as usize].1.table(db)?))
        };
        let each = || names.iter().zip(&places).filter_map(table);
        each().for_each(|(hash, table)| table.prefetch(hash));
        each().for_each(|(hash, table)| table.prefetch_entry(hash, LINES_OF_STRING));
        // These are long: they are made in their place.
        let keeping = ledger.keeping();
        let done = names.iter().map(|_| Done::keeping(keeping)).collect();
        KeysInHand {
            ledger,
            now,
            db,
            names,
            held,
            places,
            done,
            elsewhere: smallvec![],
            reads: Cell::default(),
        }
    }

    /// How many of the reads so far found a key, and how many did not.
    pub(in crate::engine) fn taken_reads(&self) -> (u64, u64) {
        self.reads.take()
    }

    /// How many there are.
    pub(in crate::engine) fn len(&self) -> usize {
        self.names.len()
    }

    fn store(&self, key: usize) -> &HeldShard<'b> {
        &self.held[self.places[key] as usize].1
    }

    /// The shard of a key, and the note for an edit of it.
    fn place(&mut self, key: usize, db: u32) -> (&mut HeldShard<'b>, &mut Done) {
        let store = &mut self.held[self.places[key] as usize].1;
        if db == self.db {
            return (store, &mut self.done[key]);
        }
        let known = self.elsewhere.iter().position(|&(number, of, _)| (number, of) == (key, db));
        let at = known.unwrap_or_else(|| {
            self.elsewhere.push((key, db, Done::keeping(self.ledger.keeping())));
            self.elsewhere.len() - 1
        });
        (store, &mut self.elsewhere[at].2)
    }

    /// The record of the command itself, if the log has it as that.
    fn record_of<'c>(&self, call: &Call<'c>) -> Option<Record<'c>> {
        match call.row().logged_as {
            LoggedAs::Keys | LoggedAs::Packed(_) => None,
            // A replay would find the sources that are hidden from this client, and kept.
            LoggedAs::Shorter(_) if self.now.keeps_passed() => None,
            LoggedAs::Itself(record) => Some(record(&call.args, self.db)),
            LoggedAs::Shorter(record) => {
                let value = self.read(0).and_then(|entry| Some(entry.string().ok()?.len()));
                let is_shorter = value.is_some_and(|len| len > call.args.bytes());
                is_shorter.then(|| record(&call.args, self.db))
            }
        }
    }

    /// Ends the edits of all the keys, and leaves the command's notifications.
    pub(in crate::engine) fn end(
        &mut self,
        mut account: Account<'_>,
        call: &Call<'_>,
        events: &Events,
    ) {
        for number in 0..self.names.len() {
            if self.done[number].has_met_hidden() {
                drop(self.edit(number, self.db));
            }
        }
        if self.ledger.eviction.notes_uses() && call.is_use() {
            let keys = self.done.iter().enumerate();
            keys.filter_map(|(key, done)| Some((self.read(key)?, done)))
                .for_each(|(entry, done)| done.note_use(&entry));
        }
        let is_logged = self.ledger.mode().is_logged();
        let record = if is_logged { self.record_of(call) } else { None };
        if record.is_none() {
            account.record = RecordOf::Key;
        }
        let (ledger, db) = (self.ledger, self.db);
        let own = self.done.iter_mut().enumerate().map(|(number, done)| (number, db, done));
        let elsewhere = self.elsewhere.iter_mut().map(|(number, db, done)| (*number, *db, done));
        let mut changed = false;
        for (number, db, done) in own.chain(elsewhere) {
            if done.is_anything() {
                changed |= done.changed;
                let (hash, key) = self.names[number];
                let &mut (shard, ref mut store) = &mut self.held[self.places[number] as usize];
                ledger.end_edit(account, store, KeyAt { shard, db, hash }, || key, done);
            }
        }
        if let Some(record) = record.filter(|_| changed) {
            account.slot.log.run.lock().add(db, record);
        }
        ledger.leave_events(call.author, events, |number| self.names[number].1);
    }
}

impl HeldKeys for KeysInHand<'_, '_> {
    fn read(&self, key: usize) -> Option<EntryRef<'_>> {
        let (hash, name) = self.names[key];
        let table = self.store(key).table(self.db);
        let entry = table.and_then(|table| read(table, hash, name, self.now, &self.done[key]));
        let (hits, misses) = self.reads.get();
        let is_hit = entry.is_some();
        self.reads.set((hits + u64::from(is_hit), misses + u64::from(!is_hit)));
        entry
    }

    fn edit(&mut self, key: usize, db: u32) -> Edit<'_> {
        let (ledger, now, (hash, name)) = (self.ledger, self.now, self.names[key]);
        let (store, done) = self.place(key, db);
        Edit::new(store.db(db), &ledger.shards.hasher, hash, name, now, done)
    }
}

/// Shards of several keys, each once, in ascending order.
pub(in crate::engine) fn shards_of(
    shards: &Shards,
    names: &[NamedKey<'_>],
) -> SmallVec<[u32; KEYS_INLINE]> {
    let mut numbers: SmallVec<[u32; KEYS_INLINE]> =
        names.iter().map(|&(hash, _)| shards.of(hash)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}
