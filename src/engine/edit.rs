//! Changes of keys: how they begin, and the one place where they end.
//!
//! Commands, jobs, copies from the host and the search for due keys change a key through an
//! [`Edit`]; whole databases change through [`Engine::edit_databases`]. Both end here while the
//! shard is held, and update the counters, the memory credit, the due times, the notifications, and
//! the clients that watch.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use hashbrown::HashMap;
use smallvec::{SmallVec, smallvec};

use super::call::Author;
use super::call::{Call, Taking};
use super::counters::Census;
use super::slot::ThreadSlot;
use super::state::{Engine, HeldShard, ManyHeld};
use crate::command::record::Record;
use crate::command::{Event, Events, HeldKeys, LoggedAs};
use crate::store::{
    Done, Edit, Entry, EntryRef, KeyHash, Now, Store, Table, UnixMs, Value, Watched, read,
};
use crate::sync::Locked;

/// A key with its hash.
pub(super) type NamedKey<'k> = (KeyHash, &'k [u8]);

/// A key's shard, database and hash.
#[derive(Clone, Copy)]
pub(super) struct KeyAt {
    pub(super) shard: u32,
    pub(super) db: u32,
    pub(super) hash: KeyHash,
}

/// Where a change is counted.
#[derive(Clone, Copy)]
pub(super) struct Account<'a> {
    pub(super) slot: &'a ThreadSlot,
    /// Whether it uses up the memory credit that the host grants.
    pub(super) metered: bool,
    /// How the log has it.
    pub(super) record: RecordOf<'a>,
}

/// What the record of a change is made from.
#[derive(Clone, Copy)]
pub(super) enum RecordOf<'a> {
    /// What became of the key.
    Key,
    /// That; or this payload of RESTORE, if it is shorter than the value.
    Packed(&'a [u8]),
    /// The command that made it: whoever ends the command adds the record.
    Command,
}

impl<'a> Account<'a> {
    /// For changes outside of any command that is logged as itself.
    pub(super) fn new(slot: &'a ThreadSlot, metered: bool) -> Self {
        Account { slot, metered, record: RecordOf::Key }
    }
}

impl Engine {
    /// Every change of a key ends here, through whichever door it came: while its shard is held,
    /// once for each command or job that changed it.
    ///
    /// A worker changes a key only after it has made sure that the host does not watch it, because
    /// only the main thread may notify the host.
    #[inline(always)]
    fn key_ended<'k>(
        &self,
        slot: &ThreadSlot,
        watched: &mut Watched,
        db: u32,
        key: impl Fn() -> &'k [u8],
        expired: bool,
        changed: bool,
    ) {
        if expired {
            self.notify_expired(db, key());
        }
        if changed && !watched.is_empty() {
            self.changed(slot.locked(), watched, db, key());
        }
    }

    #[cold]
    fn notify_expired(&self, db: u32, key: &[u8]) {
        if self.is_listening() {
            self.leave_notification(Author::Nobody, db, key, Event::EXPIRED);
        }
    }

    /// Ends an edit of one key of a held shard, and updates the counters. `key` gives its name, if
    /// that is needed.
    #[inline(always)]
    pub(super) fn end_edit<'k>(
        &self,
        account: Account<'_>,
        store: &mut Store,
        at: KeyAt,
        key: impl Fn() -> &'k [u8],
        done: &mut Done,
    ) {
        if self.mode().is_logged() {
            self.note_edit(account.slot, store, at, key(), done, account.record);
        }
        let (table, watched) = store.db_and_watched(at.db);
        if done.changed {
            account.slot.changed.add(1);
        }
        if account.metered {
            let shared = table.shared_bytes(at.hash, key());
            self.books.spend_credit(table.gained().bytes + shared as i64);
        }
        if table.gained() != Census::default() {
            account.slot.book(at.db, table.take_gained());
        }
        self.slots.count(at.db, &key, done.gained());
        self.note_due(at.shard, table);
        self.key_ended(account.slot, watched, at.db, key, done.expired, done.changed);
    }

    /// Where the changes of a command are counted.
    #[inline]
    pub(super) fn account<'a>(&self, slot: &'a ThreadSlot, call: &Call<'a>) -> Account<'a> {
        let record = match call.row().logged_as {
            LoggedAs::Keys => RecordOf::Key,
            LoggedAs::Packed(at) => RecordOf::Packed(call.args.get(at)),
            LoggedAs::Itself(_) | LoggedAs::Shorter(_) => RecordOf::Command,
        };
        Account { slot, metered: self.is_metered(slot, call), record }
    }

    /// Edits one key of a held shard, outside any client's command.
    pub(super) fn edit_key<R>(
        &self,
        account: Account<'_>,
        store: &mut Store,
        at: KeyAt,
        key: &[u8],
        now: &Now,
        work: impl FnOnce(&mut Edit<'_>) -> R,
    ) -> (R, Done) {
        let (mut done, mut hiding) = (Done::keeping(self.keeping()), None);
        let now = self.now_in_mode(now, &mut hiding);
        let result =
            work(&mut Edit::new(store.db(at.db), &self.hasher, at.hash, key, now, &mut done));
        if done.is_anything() {
            self.end_edit(account, store, at, || key, &mut done);
        }
        (result, done)
    }

    /// The shard and hash of a key of that database.
    pub(super) fn key_at(&self, db: u32, key: &[u8]) -> KeyAt {
        let hash = self.hasher.hash(key);
        KeyAt { shard: self.shard_of(hash), db, hash }
    }

    /// Removes keys of a held shard's database that are due, bit by bit. True when all are gone;
    /// see [`Table::remove_due`](crate::store::Table::remove_due).
    pub(super) fn expire_due(
        &self,
        slot: &ThreadSlot,
        store: &mut Store,
        db: u32,
        horizon: UnixMs,
        position: &mut usize,
        more: &mut dyn FnMut() -> bool,
    ) -> bool {
        let is_logged = self.mode().is_logged();
        let (table, watched) = store.db_and_watched(db);
        let mut is_changed = false;
        let mut expired = |entry: Entry| {
            self.slots.count(db, || entry.key(), -1);
            self.key_ended(slot, watched, db, || entry.key(), true, false);
            if is_logged {
                is_changed = true;
                self.note_expired(slot, db, entry);
            }
        };
        let done = table.remove_due(&self.hasher, horizon, position, more, &mut expired);
        let gained = table.take_gained();
        store.log.is_changed |= is_changed;
        slot.book(db, gained);
        if gained.expired > 0 && self.is_listening() {
            self.announce_notifications(slot);
        }
        done
    }

    /// Leaves the notifications of a command after its keys have ended: those of expired keys come
    /// first.
    #[inline]
    pub(super) fn leave_events<'k>(
        &self,
        author: Author,
        events: &Events,
        key: impl Fn(usize) -> &'k [u8],
    ) {
        for noted in events.list() {
            self.leave_notification(author, noted.db, key(noted.key), noted.event);
        }
    }

    /// Sets a key; one that exists only if `replace`. True if it was set.
    pub fn put(
        &self,
        locked: Locked<'_>,
        db: u32,
        key: &[u8],
        value: Value<'_>,
        expire_at: Option<UnixMs>,
        replace: bool,
    ) -> bool {
        let at = self.key_at(db, key);
        let mut held = self.take_waiting(locked, at.shard);
        let account = Account::new(self.main_slot(locked), true);
        let (_, done) =
            self.edit_key(account, &mut held, at, key, &self.main_now(locked), |edit| {
                if replace || !edit.is_there() {
                    edit.set(value, expire_at);
                }
            });
        if done.changed && self.is_listening() {
            self.leave_notification(Author::Nobody, db, key, Event::SET);
        }
        self.release(self.main_slot(locked), at.shard, held);
        done.changed
    }

    /// Reads a key; `None` if it does not exist.
    pub fn read_key<R>(
        &self,
        locked: Locked<'_>,
        db: u32,
        key: &[u8],
        read_entry: impl FnOnce(EntryRef<'_>) -> R,
    ) -> Option<R> {
        let at = self.key_at(db, key);
        let held = self.take_waiting(locked, at.shard);
        let (now, done) = (self.main_now(locked), Done::default());
        let entry = held.table(db).and_then(|table| read(table, at.hash, key, &now, &done));
        let result = entry.map(read_entry);
        self.release(self.main_slot(locked), at.shard, held);
        result
    }

    /// Removes a key. True if it existed.
    pub fn remove(&self, locked: Locked<'_>, db: u32, key: &[u8]) -> bool {
        let at = self.key_at(db, key);
        let mut held = self.take_waiting(locked, at.shard);
        let account = Account::new(self.main_slot(locked), false);
        let now = self.main_now(locked);
        let (removed, _) = self.edit_key(account, &mut held, at, key, &now, |edit| edit.remove());
        if removed && self.is_listening() {
            self.leave_notification(Author::Nobody, db, key, Event::DEL);
        }
        self.release(self.main_slot(locked), at.shard, held);
        removed
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
        let all: Vec<u32> = (0..self.shard_count()).collect();
        let Some(mut held) = self.take_many(&all, Taking::Wait(locked)) else {
            return Vec::new(); // Waiting does not fail.
        };
        let mut changes = Changes::default();
        for (shard, token) in &mut held {
            change(*shard, token, &mut changes);
            self.set_due(*shard, token);
        }
        let Changes { gained, mut taken } = changes;
        let mut left = Vec::new();
        if self.mode().is_logged() {
            // What the host has logged itself need not be taken back.
            let kept = if record.is_some() { std::mem::take(&mut taken) } else { Vec::new() };
            let (position, flushed) = self.log_change_of_all(locked, record, kept);
            left = flushed;
            self.main_slot(locked).log.see(position);
            held.iter_mut().for_each(|(_, token)| token.log.position = position);
        }
        self.age.fetch_add(1, Ordering::Relaxed);
        for (db, change) in gained {
            self.main_slot(locked).book(db, change);
        }
        self.release_many(self.main_slot(locked), held);
        left.extend(taken.into_iter().map(|(.., table)| table));
        left
    }

    /// Changes these databases of one of the shards that [`Engine::edit_all`] holds; every such
    /// change ends here.
    pub(super) fn edit_databases<R>(
        &self,
        locked: Locked<'_>,
        store: &mut Store,
        databases: &[u32],
        changes: &mut Changes,
        change: impl FnOnce(&mut Store) -> R,
    ) -> R {
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

/// What a change of all shards has done.
#[derive(Default)]
pub(super) struct Changes {
    /// What databases have gained, in all shards together.
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

/// Several keys whose shards are held: lends each to a command, and notes what the command does to
/// it.
pub(super) struct KeysInHand<'a, 'b> {
    engine: &'a Engine,
    now: &'a Now,
    /// The client's database.
    db: u32,
    names: &'a [NamedKey<'a>],
    held: &'a mut ManyHeld<'b>,
    /// What was done to each in the client's database.
    done: SmallVec<[Done; 8]>,
    /// What was done to keys in other databases: index, database, edit.
    elsewhere: SmallVec<[(usize, u32, Done); 1]>,
}

impl<'a, 'b> KeysInHand<'a, 'b> {
    /// These keys, in the client's database. Prefetches their buckets and entries.
    pub(super) fn new(
        engine: &'a Engine,
        db: u32,
        now: &'a Now,
        names: &'a [NamedKey<'a>],
        held: &'a mut ManyHeld<'b>,
    ) -> Self {
        let keeping = engine.keeping();
        let done = names.iter().map(|_| Done::keeping(keeping)).collect();
        let keys = KeysInHand { engine, now, db, names, held, done, elsewhere: smallvec![] };
        let each =
            || names.iter().filter_map(|&(hash, _)| Some((hash, keys.store(hash).table(db)?)));
        each().for_each(|(hash, table)| table.prefetch(hash));
        each().for_each(|(hash, table)| table.prefetch_entry(hash));
        keys
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    fn store(&self, hash: KeyHash) -> &HeldShard<'b> {
        let shard = self.engine.shard_of(hash);
        let at = self.held.partition_point(|&(number, _)| number < shard);
        &self.held[at].1
    }

    /// The shard of a key, and the note for an edit of it.
    fn place(&mut self, key: usize, db: u32) -> (&mut HeldShard<'b>, &mut Done) {
        let (hash, _) = self.names[key];
        let store = self.engine.among(self.held, hash);
        if db == self.db {
            return (store, &mut self.done[key]);
        }
        let known = self.elsewhere.iter().position(|&(number, of, _)| (number, of) == (key, db));
        let at = known.unwrap_or_else(|| {
            self.elsewhere.push((key, db, Done::keeping(self.engine.keeping())));
            self.elsewhere.len() - 1
        });
        (store, &mut self.elsewhere[at].2)
    }

    /// The record of the command itself, if the log has it as that.
    fn record_of<'c>(&self, call: &Call<'c>) -> Option<Record<'c>> {
        match call.row().logged_as {
            LoggedAs::Keys | LoggedAs::Packed(_) => None,
            LoggedAs::Itself(record) => Some(record(&call.args, self.db)),
            LoggedAs::Shorter(record) => {
                let value = self.read(0).and_then(|entry| Some(entry.string().ok()?.len()));
                let is_shorter = value.is_some_and(|len| len > call.args.bytes());
                is_shorter.then(|| record(&call.args, self.db))
            }
        }
    }

    /// Ends the edits of all the keys, and leaves the command's notifications.
    pub(super) fn end(mut self, mut account: Account<'_>, call: &Call<'_>, events: &Events) {
        for number in 0..self.names.len() {
            if self.done[number].has_met_hidden() {
                drop(self.edit(number, self.db));
            }
        }
        let is_logged = self.engine.mode().is_logged();
        let record = if is_logged { self.record_of(call) } else { None };
        if record.is_none() {
            account.record = RecordOf::Key;
        }
        let (engine, own, db) = (self.engine, std::mem::take(&mut self.done), self.db);
        let own = own.into_iter().enumerate().map(|(number, done)| (number, db, done));
        let mut changed = false;
        for (number, db, mut done) in own.chain(std::mem::take(&mut self.elsewhere)) {
            if done.is_anything() {
                changed |= done.changed;
                let (hash, key) = self.names[number];
                let at = KeyAt { shard: engine.shard_of(hash), db, hash };
                engine.end_edit(account, engine.among(self.held, hash), at, || key, &mut done);
            }
        }
        if let Some(record) = record.filter(|_| changed) {
            engine.note_record(account.slot, db, record);
        }
        engine.leave_events(call.author, events, |number| self.names[number].1);
    }
}

impl HeldKeys for KeysInHand<'_, '_> {
    fn read(&self, key: usize) -> Option<EntryRef<'_>> {
        let (hash, name) = self.names[key];
        read(self.store(hash).table(self.db)?, hash, name, self.now, &self.done[key])
    }

    fn edit(&mut self, key: usize, db: u32) -> Edit<'_> {
        let (engine, now, (hash, name)) = (self.engine, self.now, self.names[key]);
        let (store, done) = self.place(key, db);
        Edit::new(store.db(db), &engine.hasher, hash, name, now, done)
    }
}

/// Shards of several keys, each once, in ascending order.
pub(super) fn shards_of(engine: &Engine, names: &[NamedKey<'_>]) -> SmallVec<[u32; 8]> {
    let mut shards: SmallVec<[u32; 8]> =
        names.iter().map(|&(hash, _)| engine.shard_of(hash)).collect();
    shards.sort_unstable();
    shards.dedup();
    shards
}

#[cfg(test)]
mod tests;
