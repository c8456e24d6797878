//! Fields of hashes that are due.

use super::{Account, Ledger};
use crate::command::Event;
use crate::engine::call::Author;
use crate::engine::shards::KeyAt;
use crate::engine::slot::ThreadSlot;
use crate::store::{Done, Edit, Now, Store, UnixMs, Value};
use crate::sync::Locked;

impl Ledger {
    /// Sets a key to a hash of these fields: name, value, expiry. There is at least one, and no name
    /// twice.
    pub fn put_hash<'f>(
        &self,
        locked: Locked<'_>,
        db: u32,
        key: &[u8],
        fields: impl Iterator<Item = (&'f [u8], &'f [u8], Option<UnixMs>)>,
        expire_at: Option<UnixMs>,
    ) {
        let at = self.shards.key_at(db, key);
        let mut held = self.shards.take_waiting(locked, at.shard);
        let (slot, now) = (self.books.main_slot(locked), self.shards.main_now(locked));
        self.edit_key(Account::new(slot, true), &mut held, at, key, &now, |edit| {
            edit.remove();
            for (name, value, expire_at) in fields {
                // The key has just been removed: it is no other type.
                let _ = edit.set_field(name, Value::Inline(value), expire_at);
            }
            if expire_at.is_some() {
                edit.expire_at(expire_at);
            }
        });
        if self.notifications.is_listening() {
            self.leave_notification(Author::Nobody, db, key, Event::HSET);
        }
        self.release(slot, at.shard, held);
    }

    /// Removes fields of a held shard's database that are due, bit by bit. True when all are gone,
    /// but for those of keys that clients of the host watch: these wait for the main thread.
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
            if waits || !goes_on {
                store.db(db).note_parts(at.hash, key);
            } else {
                goes_on = self.expire_fields_of(slot, store, at, key, horizon, more);
            }
        }
        if !keys.is_empty() && self.notifications.is_listening() {
            self.announce_notifications(slot);
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
        let (now, account) = (Now::at(horizon), Account::new(slot, false));
        loop {
            let mut done = Done::keeping(self.keeping());
            let mut edit =
                Edit::new(store.db(at.db), &self.shards.hasher, at.hash, key, &now, &mut done);
            let (count, is_there) = (edit.remove_due_fields(), edit.is_there());
            drop(edit);
            if done.is_anything() {
                self.end_edit(account, store, at, || key, &mut done);
            }
            if count == 0 {
                return true;
            }
            if self.notifications.is_listening() {
                self.leave_notification(Author::Nobody, at.db, key, Event::HEXPIRED);
                if !is_there {
                    self.leave_notification(Author::Nobody, at.db, key, Event::DEL);
                }
            }
            if !more() {
                return false;
            }
        }
    }
}
