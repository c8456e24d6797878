//! WATCH: the host is notified of every change of a watched key before any client can act on it.
//!
//! The host judges EXEC on its main thread, so that thread makes the changes of watched keys: a
//! worker that meets one sends its command to the main thread, and a job has the main thread notify
//! the host before the change is made. So nothing can happen between a change and its notification,
//! and nothing has to be collected when EXEC comes. Expired keys are found by the clock then, as in
//! the host itself.
//!
//! The host does not report which client watches, nor until when, nor in which database. A mark
//! that is out of date costs little: the next write of that key goes through the main thread, once.
//! The number of marks is limited.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Ledger;
use super::marks::{KeyName, Name, Tell};
use crate::engine::shards::HeldShard;
use crate::limits::{WATCHED_KEYS, WATCHED_PER_SHARD_MIN};
use crate::store::{KeyHash, Now, Store, UnixMs, Watched};
use crate::sync::Locked;

impl Ledger {
    /// Sets how the holder of the global lock notifies the host of changes.
    pub fn on_watched_change(&self, tell: Tell) {
        let _ = self.watch.tell.set(tell);
    }

    /// A client of the host sends WATCH; `client` is its id, if the host reports it. If there are
    /// too many marks, the oldest are given up before the client names a key: none of its own can
    /// be among them, because it watches them only later. `paused`: earlier WATCHes may still have
    /// to be executed.
    pub fn begin_watch(&self, locked: Locked<'_>, client: Option<u64>, paused: bool) {
        self.give_up_marks(locked, paused);
        self.watch.marks.lock().begin(client);
    }

    /// From now on the host is notified of changes of this key.
    pub fn watch(&self, locked: Locked<'_>, key: &[u8], client: Option<u64>) {
        let name = self.watch.marks.lock().ask(key, client);
        let shard = self.shards.of_key(key);
        let mut held = self.shards.take_waiting(locked, shard);
        let expiries = self.expiries(locked, &mut held, key);
        let before =
            std::mem::replace(&mut held.watched.ask(&name).due, expiries.iter().copied().collect());
        self.release(self.books.main_slot(locked), shard, held);
        let mut due = self.watch.due.lock();
        for (db, at) in before {
            due.remove(&(at, (db, Arc::clone(&name))));
        }
        due.extend(expiries.into_iter().map(|(db, at)| (at, (db, Arc::clone(&name)))));
    }

    /// Notifies clients that cache a key that it is gone.
    ///
    /// Caches know no databases, but WATCH does. So the host is notified for the last database,
    /// where it is least likely that a client has watched the key since.
    pub(in crate::engine) fn tell_flushed(&self, locked: Locked<'_>, key: &[u8]) {
        self.tell(locked, &[self.context().config.databases - 1], key);
    }

    /// Gives up marks beyond the limits. A client that still watches such a key is notified of a
    /// change: one transaction too many fails, but never one too few.
    pub fn give_up_marks(&self, locked: Locked<'_>, paused: bool) {
        let mut marks = self.watch.marks.lock();
        while let Some(name) = marks.take_surplus(paused) {
            self.forget_mark(locked, &name, true);
        }
    }

    /// The host has executed a WATCH: the names that were requested so far may be watched.
    pub fn confirm_marks(&self) {
        self.watch.marks.lock().confirm();
    }

    /// Whether any name was requested since.
    pub fn has_unconfirmed_marks(&self) -> bool {
        self.watch.marks.lock().has_unconfirmed()
    }

    /// Names that clients of the host may watch, and their bytes.
    pub fn marks(&self) -> (usize, usize) {
        self.watch.marks.lock().size()
    }

    /// The host has executed none: no client watches the names that were requested since.
    pub fn take_back_marks(&self, locked: Locked<'_>) {
        let names = self.watch.marks.lock().take_unconfirmed();
        names.iter().for_each(|name| self.forget_mark(locked, name, false));
    }

    /// A client of the host has gone.
    pub fn watcher_left(&self, locked: Locked<'_>, client: u64) {
        let names = self.watch.marks.lock().take_of(client);
        names.iter().for_each(|name| self.forget_mark(locked, name, false));
    }

    fn forget_mark(&self, locked: Locked<'_>, name: &Name, may_be_watched: bool) {
        let shard = self.shards.of_key(name);
        let mut held = self.shards.take_waiting(locked, shard);
        if let Some(mark) = held.watched.remove(name) {
            if may_be_watched {
                let databases = 0..self.context().config.databases;
                let unsent: Vec<u32> = databases.filter(|db| !mark.told.contains(db)).collect();
                self.tell(locked, &unsent, name);
            }
            let mut due = self.watch.due.lock();
            for (db, at) in mark.due {
                due.remove(&(at, (db, Arc::clone(name))));
            }
        }
        self.shards.let_go(shard, held);
    }

    /// When a key expires, in each database that has it with an expiry.
    fn expiries(
        &self,
        locked: Locked<'_>,
        held: &mut HeldShard<'_>,
        key: &[u8],
    ) -> Vec<(u32, UnixMs)> {
        let now = self.shards.main_now(locked);
        let mut found = Vec::new();
        let mut next = held.next_db(0);
        while let Some(db) = next {
            let due = self.live_until(self.books.main_slot(locked), held, db, key, &now);
            found.extend(due.map(|at| (db, at)));
            next = held.next_db(db + 1);
        }
        found
    }

    /// How many names clients of the ports may watch in a shard.
    pub(in crate::engine) fn most_watched(&self) -> usize {
        (WATCHED_KEYS / self.shards.count() as usize).max(WATCHED_PER_SHARD_MIN)
    }

    pub(super) fn tell(&self, locked: Locked<'_>, databases: &[u32], key: &[u8]) {
        if let Some(tell) = self.watch.tell.get() {
            tell(locked, databases, key);
        }
    }

    /// A key has changed: notifies the clients that watch it. If the host watches it, only the
    /// holder of the global lock may change it.
    #[cold]
    pub(super) fn changed(
        &self,
        locked: Option<Locked<'_>>,
        watched: &mut Watched,
        db: u32,
        key: &[u8],
    ) {
        watched.raise(db, key);
        if !watched.concerns(db, key) {
            return;
        }
        let Some(locked) = locked else {
            return debug_assert!(false, "changed without the lock");
        };
        self.tell(locked, &[db], key);
        if let Some(mark) = watched.mark(key) {
            mark.told.push(db);
            let mut due = self.watch.due.lock();
            mark.due.retain(|&mut (of, at)| of != db || !due.remove(&(at, (db, key.into()))));
        }
    }

    /// Whole databases of a shard have changed: tells those who watch one of these keys there, or
    /// a key whose name is too long to keep.
    pub(super) fn databases_changed<'d>(
        &self,
        locked: Locked<'_>,
        watched: &mut Watched,
        databases: impl IntoIterator<Item = &'d u32> + Copy,
        keys: impl IntoIterator<Item = Box<[u8]>>,
    ) {
        for key in keys {
            for &db in databases {
                self.changed(Some(locked), watched, db, &key);
            }
        }
        for &db in databases {
            watched.raise_long(db);
        }
    }

    /// Notifies the host of watched keys that have expired, before the host judges.
    pub fn tell_expired(&self, locked: Locked<'_>) {
        let now = Now::at((self.context().config.clock)());
        while let Some((_, (db, key))) = self.next_expired(&now) {
            let hash = self.shards.hasher.hash(&key);
            let shard = self.shards.of(hash);
            let mut held = self.shards.take_waiting(locked, shard);
            if !is_live(&held, db, hash, &key, &now) {
                self.changed(Some(locked), &mut held.watched, db, &key);
            }
            self.shards.let_go(shard, held);
        }
    }

    fn next_expired(&self, now: &Now) -> Option<(UnixMs, KeyName)> {
        let mut due = self.watch.due.lock();
        let expired = due.first().is_some_and(|&(at, _)| at < now.ms());
        if expired { due.pop_first() } else { None }
    }

    /// A job is about to change a watched key, and waits until the main thread has notified the
    /// host.
    pub(in crate::engine) fn announce_change(&self, db: u32, key: &[u8]) {
        if self.watch.announced.lock().insert((db, key.into())) {
            // Release: a thread that sees it finds the entry.
            self.watch.any_announced.store(true, Ordering::Release);
            self.context().outside.wake_main();
        }
    }

    /// Notifies the host of the changes that jobs wait to make.
    pub fn tell_announced(&self, locked: Locked<'_>) {
        let any = &self.watch.any_announced;
        // A load first: usually there are none.
        if !any.load(Ordering::Relaxed) || !any.swap(false, Ordering::Acquire) {
            return;
        }
        let announced = std::mem::take(&mut *self.watch.announced.lock());
        for (db, key) in announced {
            let shard = self.shards.of_key(&key);
            let mut held = self.shards.take_waiting(locked, shard);
            self.changed(Some(locked), &mut held.watched, db, &key);
            self.shards.let_go(shard, held);
        }
    }

    /// Watched names of keys that are in any of these databases.
    pub(super) fn watched_in(
        &self,
        locked: Locked<'_>,
        store: &Store,
        databases: &[u32],
    ) -> Vec<Box<[u8]>> {
        let now = self.shards.main_now(locked);
        let mut names = store.watched.names();
        names.retain(|key| {
            let hash = self.shards.hasher.hash(key);
            databases.iter().any(|&db| is_live(store, db, hash, key, &now))
        });
        names
    }
}

/// Whether a key exists and has not expired.
pub(in crate::engine) fn is_live(
    store: &Store,
    db: u32,
    hash: KeyHash,
    key: &[u8],
    now: &Now,
) -> bool {
    let entry = store.table(db).and_then(|table| Some(table.entry(table.find(hash, key)?)));
    entry.is_some_and(|entry| !entry.is_expired(now))
}
