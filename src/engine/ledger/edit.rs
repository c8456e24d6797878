//! Changes of keys: how they begin, and the one place where they end.
//!
//! Commands, jobs, copies from the host and the search for due keys change a key through an
//! [`Edit`]; whole databases change through [`Ledger::edit_databases`]. Both end here while the
//! shard is held, and update the counters, the memory credit, the due times, the notifications, and
//! the clients that watch.

use super::Ledger;
use super::eviction::{Scope, Search};
use super::gates::Gates;
use super::notifications::Notification;
use crate::command::{Event, Events, LoggedAs};
use crate::engine::call::{Author, Call};
use crate::engine::counters::Census;
use crate::engine::shards::{HeldShard, KeyAt};
use crate::engine::slot::ThreadSlot;
use crate::store::{
    Done, Edit, Entry, EntryRef, Evicted, Now, Store, UnixMs, Value, Victims, Watched, read,
};
use crate::sync::Locked;

/// Where a change is counted.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Account<'a> {
    pub(super) slot: &'a ThreadSlot,
    /// Whether it uses up the memory credit that the host grants.
    pub(super) metered: bool,
    /// How the log has it.
    pub(super) record: RecordOf<'a>,
}

/// What the record of a change is made from.
#[derive(Clone, Copy)]
pub(in crate::engine) enum RecordOf<'a> {
    /// What became of the key.
    Key,
    /// That; or this payload of RESTORE, if it is shorter than the value.
    Packed(&'a [u8]),
    /// The command that made it: whoever ends the command adds the record.
    Command,
}

impl<'a> Account<'a> {
    /// For changes outside of any command that is logged as itself.
    pub(in crate::engine) fn new(slot: &'a ThreadSlot, metered: bool) -> Self {
        Account { slot, metered, record: RecordOf::Key }
    }
}

impl Ledger {
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
        if self.notifications.is_listening() {
            self.leave_notification(Author::Nobody, db, key, Event::EXPIRED);
        }
    }

    /// Ends an edit of one key of a held shard, and updates the counters. `key` gives its name, if
    /// that is needed.
    #[inline(always)]
    pub(in crate::engine) fn end_edit<'k>(
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
            let buffer = table.most_of_buffer(at.hash, key());
            self.admission.spend_credit(table.gained().bytes + buffer as i64);
        }
        if table.gained() != Census::default() {
            account.slot.book(at.db, table.take_gained());
        }
        self.slots.count(at.db, &key, done.gained());
        if done.gained() > 0 {
            self.eviction.note_new_key(at.shard);
        }
        self.shards.note_due(at.shard, table);
        self.key_ended(account.slot, watched, at.db, key, done.expired, done.changed);
    }

    /// Evicts a key of a held shard for this limit; one that is due first of all.
    pub(in crate::engine) fn evict_one(
        &self,
        slot: &ThreadSlot,
        shard: u32,
        store: &mut Store,
        scope: Scope,
    ) -> Search {
        let victims = self.victims(scope, shard);
        let db = match scope {
            Scope::Database(db) => db,
            Scope::All => store.drawn_db(fastrand::u64(..), victims.volatile),
        };
        let before = store.census(db).bytes;
        let search = match self.expire_some(slot, store, db) {
            true => Search::Freed,
            false => self.evict_by_policy(slot, store, db, victims),
        };
        self.eviction.note_freed(db, before - store.census(db).bytes);
        search
    }

    fn victims(&self, scope: Scope, shard: u32) -> Victims {
        self.eviction.victims(scope, shard, self.shards.count())
    }

    /// Removes what is due in a part of a database. True if anything was.
    fn expire_some(&self, slot: &ThreadSlot, store: &mut Store, db: u32) -> bool {
        let next_due = store.table(db).map_or(UnixMs::MAX, |table| table.next_due());
        if next_due == UnixMs::MAX || !self.may_expire() {
            return false;
        }
        let horizon = Now::at((self.context().config.clock)()).horizon();
        if next_due >= horizon {
            return false;
        }
        let before = store.census(db).keys;
        self.expire_due(slot, store, db, horizon, &mut 0, &mut || false);
        store.census(db).keys < before
    }

    fn evict_by_policy(
        &self,
        slot: &ThreadSlot,
        store: &mut Store,
        db: u32,
        victims: Victims,
    ) -> Search {
        let (table, watched) = store.db_and_watched(db);
        // A worker may not change what clients of the host watch.
        let mut keep = |key: &[u8]| !slot.is_main() && watched.concerns(db, key);
        let entry = match table.evict(&self.shards.hasher, victims, &mut keep) {
            Evicted::Entry(entry) => entry,
            Evicted::NotYet => return Search::NotYet,
            Evicted::Nothing => return Search::Nothing,
        };
        slot.book(db, table.take_gained());
        slot.evicted.add(1);
        self.slots.count(db, || entry.key(), -1);
        if self.notifications.is_listening() {
            self.leave_notification(Author::Nobody, db, entry.key(), Event::EVICTED);
        }
        if !watched.is_empty() {
            self.changed(slot.locked(), watched, db, entry.key());
        }
        if self.mode().is_logged() {
            store.log.is_changed = true;
            self.note_removed(slot, db, entry);
        }
        Search::Freed
    }

    /// Where the changes of a command are counted.
    #[inline]
    pub(in crate::engine) fn account<'a>(
        &self,
        slot: &'a ThreadSlot,
        call: &Call<'a>,
    ) -> Account<'a> {
        let record = match call.row().logged_as {
            LoggedAs::Keys => RecordOf::Key,
            LoggedAs::Packed(at) => RecordOf::Packed(call.args.get(at)),
            LoggedAs::Itself(_) | LoggedAs::Shorter(_) => RecordOf::Command,
        };
        Account { slot, metered: self.admission.is_metered(slot, call), record }
    }

    /// Edits one key of a held shard, outside any client's command.
    pub(in crate::engine) fn edit_key<R>(
        &self,
        account: Account<'_>,
        store: &mut Store,
        at: KeyAt,
        key: &[u8],
        now: &Now,
        work: impl FnOnce(&mut Edit<'_>) -> R,
    ) -> (R, Done) {
        let (mut done, mut hiding) = (Done::keeping(self.keeping()), None);
        let now = self.admission.now_in_mode(now, &mut hiding);
        let result = work(&mut Edit::new(
            store.db(at.db),
            &self.shards.hasher,
            at.hash,
            key,
            now,
            &mut done,
        ));
        if done.is_anything() {
            self.end_edit(account, store, at, || key, &mut done);
        }
        (result, done)
    }

    /// Removes keys of a held shard's database that are due, bit by bit. True when all are gone;
    /// see [`Table::remove_due`](crate::store::Table::remove_due).
    pub(in crate::engine) fn expire_due(
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
                self.note_removed(slot, db, entry);
            }
        };
        let done = table.remove_due(&self.shards.hasher, horizon, position, more, &mut expired);
        let gained = table.take_gained();
        store.log.is_changed |= is_changed;
        slot.book(db, gained);
        done && self.expire_fields(slot, store, db, horizon, more)
    }

    /// Leaves the notifications of a command after its keys have ended: those of expired keys come
    /// first.
    #[inline]
    pub(in crate::engine) fn leave_events<'k>(
        &self,
        author: Author,
        events: &Events,
        key: impl Fn(usize) -> &'k [u8],
    ) {
        for noted in events.list() {
            self.leave_notification(author, noted.db, key(noted.key), noted.event);
        }
    }

    /// When a key expires, if it exists and has an expiry; see [`Ledger::look`].
    pub(in crate::engine) fn live_until(
        &self,
        slot: &ThreadSlot,
        held: &mut HeldShard<'_>,
        db: u32,
        key: &[u8],
        now: &Now,
    ) -> Option<UnixMs> {
        self.look(slot, held, db, key, now, |edit| edit.expiry()).flatten()
    }

    /// Looks at a key that is about to be watched; `None` if its database has no key in the shard.
    /// A key that has expired is removed now: removed later, it would look like a change.
    pub(in crate::engine) fn look<R>(
        &self,
        slot: &ThreadSlot,
        held: &mut HeldShard<'_>,
        db: u32,
        key: &[u8],
        now: &Now,
        look: impl FnOnce(&mut Edit<'_>) -> R,
    ) -> Option<R> {
        held.table(db)?;
        let account = Account::new(slot, false);
        Some(self.edit_key(account, held, self.shards.key_at(db, key), key, now, look).0)
    }

    /// Leaves a notification. The shard is still held.
    pub(in crate::engine) fn leave_notification(
        &self,
        author: Author,
        db: u32,
        key: &[u8],
        event: Event,
    ) {
        let is_much = self.notifications.add(Notification { author, db, key: key.into(), event });
        if is_much
            && !self.admission.has_notification_backlog()
            && self.admission.close_gate(Gates::NOTIFICATIONS)
        {
            self.context().outside.wake_main();
        }
    }

    /// Wakes the main thread for notifications; at the end of a worker's turn. A tail, which the
    /// main thread is woken for when enough has been gathered, has them sent, too.
    pub(in crate::engine) fn announce_notifications(&self) {
        if self.notifications.are_waiting()
            && self.log.is_tail_empty()
            && self.notifications.must_wake()
        {
            self.context().outside.wake_main();
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
        let at = self.shards.key_at(db, key);
        let mut held = self.shards.take_waiting(locked, at.shard);
        let account = Account::new(self.books.main_slot(locked), true);
        let (_, done) =
            self.edit_key(account, &mut held, at, key, &self.shards.main_now(locked), |edit| {
                if replace || !edit.is_there() {
                    edit.set(value, expire_at);
                }
            });
        if done.changed && self.notifications.is_listening() {
            self.leave_notification(Author::Nobody, db, key, Event::SET);
        }
        self.release(self.books.main_slot(locked), at.shard, held);
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
        let at = self.shards.key_at(db, key);
        let held = self.shards.take_waiting(locked, at.shard);
        let (now, done) = (self.shards.main_now(locked), Done::default());
        let entry = held.table(db).and_then(|table| read(table, at.hash, key, &now, &done));
        let result = entry.map(read_entry);
        self.release(self.books.main_slot(locked), at.shard, held);
        result
    }

    /// Removes a key. True if it existed.
    pub fn remove(&self, locked: Locked<'_>, db: u32, key: &[u8]) -> bool {
        let at = self.shards.key_at(db, key);
        let mut held = self.shards.take_waiting(locked, at.shard);
        let account = Account::new(self.books.main_slot(locked), false);
        let now = self.shards.main_now(locked);
        let (removed, _) = self.edit_key(account, &mut held, at, key, &now, |edit| edit.remove());
        if removed && self.notifications.is_listening() {
            self.leave_notification(Author::Nobody, db, key, Event::DEL);
        }
        self.release(self.books.main_slot(locked), at.shard, held);
        removed
    }

    /// Sets a key to a hash whose fields `fill` sets, at least one; one that exists only if
    /// `replace`. True if it was set.
    pub fn put_hash(
        &self,
        locked: Locked<'_>,
        db: u32,
        key: &[u8],
        fill: impl FnOnce(&mut Edit<'_>),
        expire_at: Option<UnixMs>,
        replace: bool,
    ) -> bool {
        let at = self.shards.key_at(db, key);
        let mut held = self.shards.take_waiting(locked, at.shard);
        let (slot, now) = (self.books.main_slot(locked), self.shards.main_now(locked));
        let (_, done) = self.edit_key(Account::new(slot, true), &mut held, at, key, &now, |edit| {
            if edit.is_there() && !replace {
                return;
            }
            edit.remove();
            fill(edit);
            if expire_at.is_some() {
                edit.expire_at(expire_at);
            }
        });
        if done.changed && self.notifications.is_listening() {
            self.leave_notification(Author::Nobody, db, key, Event::HSET);
        }
        self.release(slot, at.shard, held);
        done.changed
    }

    /// Removes fields of a held shard's database that are due, bit by bit. True when all are gone,
    /// but for those of keys that clients of the host watch: these wait until the main thread has
    /// notified the host.
    pub(super) fn expire_fields(
        &self,
        slot: &ThreadSlot,
        store: &mut Store,
        db: u32,
        horizon: UnixMs,
        more: &mut dyn FnMut() -> bool,
    ) -> bool {
        let mut keys = Vec::<Box<[u8]>>::new();
        let are_found =
            store.db(db).find_due_parts(horizon, more, &mut |key| keys.push(key.into()));
        let mut goes_on = true;
        for key in &keys {
            let at = self.shards.key_at(db, key);
            let waits = !slot.is_main() && store.watched.concerns(db, key);
            if waits {
                self.announce_change(db, key);
            }
            if waits || !goes_on {
                store.db(db).note_parts(at.hash, key);
            } else {
                goes_on = self.expire_fields_of(slot, store, at, key, horizon, more);
            }
        }
        are_found && goes_on
    }

    /// [`Ledger::expire_fields`] of one key.
    fn expire_fields_of(
        &self,
        slot: &ThreadSlot,
        store: &mut Store,
        at: KeyAt,
        key: &[u8],
        horizon: UnixMs,
        more: &mut dyn FnMut() -> bool,
    ) -> bool {
        let (now, account, mut position) = (Now::at(horizon), Account::new(slot, false), 0);
        loop {
            let mut done = Done::keeping(self.keeping());
            let mut edit =
                Edit::new(store.db(at.db), &self.shards.hasher, at.hash, key, &now, &mut done);
            let (count, is_done) = edit.remove_due_fields(&mut position);
            let is_there = edit.is_there();
            drop(edit);
            if done.is_anything() {
                self.end_edit(account, store, at, || key, &mut done);
            }
            if count > 0 && self.notifications.is_listening() {
                self.leave_notification(Author::Nobody, at.db, key, Event::HEXPIRED);
                if !is_there {
                    self.leave_notification(Author::Nobody, at.db, key, Event::DEL);
                }
            }
            if is_done || !more() {
                return is_done;
            }
        }
    }
}

#[cfg(test)]
mod tests;
