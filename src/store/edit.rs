//! The one way to change a key.
//!
//! Outside this folder, only an [`Edit`] can change a table (or, for whole tables, the
//! [`Store`](super::Store)). What was done is noted in a [`Done`], for the caller's counters and
//! notifications.

use std::cell::Cell;

use super::segment::EntryRef;
use super::{Entry, FoundEntry, KeyHash, KeyHasher, Now, Origin, Table, UnixMs, Value};

/// What was done to a key.
#[derive(Default)]
pub struct Done {
    /// The key was changed: clients that watch it must be notified.
    pub changed: bool,
    /// The key was removed because it was due. Clients that watch it are not notified of a change:
    /// they expect it.
    pub expired: bool,
    /// A read met the key hidden; the next [`Edit`] that ends checks whether it may be removed.
    met_hidden: Cell<bool>,
}

impl Done {
    /// The key was due, and nothing else.
    pub fn expired() -> Self {
        Done { expired: true, ..Done::default() }
    }

    /// Whether the key, or its table, has changed.
    #[inline]
    pub fn is_anything(&self) -> bool {
        self.changed || self.expired
    }

    /// Whether a read met the key hidden, and no edit has handled it since.
    #[inline]
    pub fn has_met_hidden(&self) -> bool {
        self.met_hidden.get()
    }
}

/// What is known of a key's place.
#[derive(Clone, Copy)]
enum KeyState {
    /// It has not been looked up, or may have moved.
    Unknown,
    /// It is not in the table.
    Absent,
    /// It has expired, and is still in the table: no reader can see it.
    Hidden,
    /// It is here.
    Live(FoundEntry),
}

#[inline(always)]
fn look(table: &Table, hash: KeyHash, name: &[u8], now: &Now, done: &Done) -> KeyState {
    let Some(found) = table.find(hash, name) else { return KeyState::Absent };
    if found.may_expire() && table.entry(found).is_expired(now) {
        done.met_hidden.set(true);
        return KeyState::Hidden;
    }
    KeyState::Live(found)
}

/// Reads a key that the caller does not want to change.
#[inline(always)]
pub fn read<'t>(
    table: &'t Table,
    hash: KeyHash,
    name: &[u8],
    now: &Now,
    done: &Done,
) -> Option<EntryRef<'t>> {
    match look(table, hash, name, now, done) {
        KeyState::Live(found) => Some(table.entry(found)),
        _ => None,
    }
}

/// A key of a shard that this thread holds. A shared reference can only read it.
///
/// To all methods, a key that has expired does not exist. At the end it is removed if its expiry is
/// before the [horizon](Now::horizon); a method that sets something in its place removes it
/// earlier.
pub struct Edit<'a> {
    table: &'a mut Table,
    hasher: &'a KeyHasher,
    hash: KeyHash,
    name: &'a [u8],
    now: &'a Now,
    place: Cell<KeyState>,
    done: &'a mut Done,
}

impl<'a> Edit<'a> {
    /// The key with this name, whose hash is `hash`. `done` may have been used for the same key
    /// before.
    #[inline]
    pub fn new(
        table: &'a mut Table,
        hasher: &'a KeyHasher,
        hash: KeyHash,
        name: &'a [u8],
        now: &'a Now,
        done: &'a mut Done,
    ) -> Self {
        Edit { table, hasher, hash, name, now, place: Cell::new(KeyState::Unknown), done }
    }

    /// The key's name.
    #[inline]
    pub fn name(&self) -> &'a [u8] {
        self.name
    }

    /// The time of the edit.
    #[inline]
    pub fn now(&self) -> &'a Now {
        self.now
    }

    #[inline(always)]
    fn place(&self) -> KeyState {
        let known = self.place.get();
        if !matches!(known, KeyState::Unknown) {
            return known;
        }
        let place = look(self.table, self.hash, self.name, self.now, self.done);
        self.place.set(place);
        place
    }

    #[inline(always)]
    fn found(&self) -> Option<FoundEntry> {
        match self.place() {
            KeyState::Live(found) => Some(found),
            _ => None,
        }
    }

    /// The key's entry, if it exists.
    #[inline(always)]
    pub fn read(&self) -> Option<EntryRef<'_>> {
        self.found().map(|found| self.table.entry(found))
    }

    /// Whether the key exists.
    #[inline(always)]
    pub fn is_there(&self) -> bool {
        self.found().is_some()
    }

    /// When it expires; `None` for never, or if it does not exist.
    pub fn expiry(&self) -> Option<UnixMs> {
        self.read().and_then(|entry| entry.expire_at())
    }

    /// The key's memory in bytes; see [`Table::bytes_of`].
    pub fn bytes(&self) -> Option<usize> {
        self.found().map(|found| self.table.bytes_of(found))
    }

    /// Sets the key's value and expiry, in place of those it may have.
    #[inline]
    pub fn set(&mut self, value: Value<'_>, expire_at: Option<UnixMs>) {
        if let Some(found) = self.found() {
            return self.apply(|table| table.overwrite(found, value, expire_at));
        }
        let (hasher, hash, name) = (self.hasher, self.hash, self.name);
        self.make_room();
        self.apply(|table| table.insert(hasher, hash, name, value, expire_at));
        self.place.set(KeyState::Unknown);
    }

    /// Sets an entry with the key's name, in place of any other.
    pub fn put(&mut self, entry: Entry) {
        debug_assert!(entry.key() == self.name);
        let (hasher, hash) = (self.hasher, self.hash);
        self.remove();
        self.make_room();
        self.apply(|table| table.put(hasher, hash, entry));
        self.place.set(KeyState::Unknown);
    }

    /// Changes the value in place, if it is a shared buffer that allows that: see
    /// [`Entry::change_shared`].
    ///
    /// # Errors
    /// The error of `change`, which then must have left the buffer unchanged.
    pub fn change<R, E>(
        &mut self,
        change: impl FnOnce(&mut Vec<u8>) -> Result<R, E>,
    ) -> Option<Result<R, E>> {
        let found = self.found()?;
        let changed = self.table.change_shared(found, change)?;
        if changed.is_ok() {
            self.touch();
        }
        Some(changed)
    }

    /// Notes how the key's value came about.
    pub fn set_origin(&mut self, origin: Origin) {
        if let Some(found) = self.found() {
            self.table.set_origin(found, origin);
        }
    }

    /// Sets or clears the expiry of a key that exists.
    pub fn expire_at(&mut self, expire_at: Option<UnixMs>) {
        if let Some(found) = self.found() {
            self.apply(|table| table.set_expire_at(found, expire_at));
        }
    }

    /// Removes the key. False if it does not exist.
    pub fn remove(&mut self) -> bool {
        let Some(found) = self.found() else { return false };
        let (hasher, hash) = (self.hasher, self.hash);
        self.apply(|table| table.remove(hasher, hash, found));
        self.place.set(KeyState::Absent);
        true
    }

    /// Counts a write that changed nothing.
    pub fn touch(&mut self) {
        self.apply(|_| ());
    }

    /// Every change of an entry is made in here: before it, the table has the key's old state, and
    /// after it, the new one.
    #[inline(always)]
    fn apply(&mut self, change: impl FnOnce(&mut Table)) {
        change(self.table);
        self.done.changed = true;
    }

    /// Removes a hidden key that is about to be replaced, wherever the horizon is.
    #[inline]
    fn make_room(&mut self) {
        if self.done.met_hidden.get() {
            self.remove_hidden(UnixMs::MAX);
        }
    }

    /// Removes the key if it is hidden, and was due before `horizon`.
    #[cold]
    fn remove_hidden(&mut self, horizon: UnixMs) {
        self.done.met_hidden.set(false);
        let Some(found) = self.table.find(self.hash, self.name) else { return };
        let entry = self.table.entry(found);
        if !entry.is_expired(self.now) || entry.expire_at().is_none_or(|due| due >= horizon) {
            return;
        }
        self.table.expire(self.hasher, self.hash, found);
        self.done.expired = true;
        self.place.set(KeyState::Absent);
    }
}

impl Drop for Edit<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.done.met_hidden.get() {
            self.remove_hidden(self.now.horizon());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Census;
    use super::*;

    const DUE: UnixMs = 100;

    struct Tested {
        table: Table,
        hasher: KeyHasher,
        done: Done,
    }

    impl Tested {
        fn new() -> Self {
            let mut tested = Tested {
                table: Table::default(),
                hasher: KeyHasher::default(),
                done: Done::default(),
            };
            tested.at(&Now::at(0), |edit| edit.set(Value::Inline(b"old"), Some(DUE)));
            tested.done = Done::default();
            tested.table.take_gained();
            tested
        }

        fn at<R>(&mut self, now: &Now, work: impl FnOnce(&mut Edit<'_>) -> R) -> R {
            let hash = self.hasher.hash(b"key");
            work(&mut Edit::new(&mut self.table, &self.hasher, hash, b"key", now, &mut self.done))
        }

        fn keys(&self) -> i64 {
            self.table.census().keys
        }
    }

    /// A clock at which the key is hidden, and a horizon at which it was not due yet.
    fn apart() -> Now {
        Now::at(DUE + 10).with_horizon(DUE)
    }

    #[test]
    fn what_has_expired_is_removed_by_whoever_meets_it() {
        let mut tested = Tested::new();
        assert!(
            tested.at(&Now::at(DUE), |edit| edit.is_there()),
            "up to the end of that millisecond"
        );
        assert!(!tested.at(&Now::at(DUE + 1), |edit| edit.is_there()));
        assert_eq!((tested.keys(), tested.done.expired, tested.done.changed), (0, true, false));
        let gained = tested.table.take_gained();
        assert_eq!((gained.keys, gained.expiring, gained.expired), (-1, -1, 1));
        assert_eq!(tested.table.take_gained(), Census::default());
    }

    #[test]
    fn before_the_horizon_it_is_hidden_and_stays() {
        let mut tested = Tested::new();
        tested.at(&apart(), |edit| {
            assert!(edit.read().is_none() && !edit.is_there());
            assert!(edit.expiry().is_none() && edit.bytes().is_none());
            edit.expire_at(None);
            assert!(!edit.remove() && edit.change(|_| Ok::<_, ()>(())).is_none());
        });
        let hash = tested.hasher.hash(b"key");
        assert!(read(&tested.table, hash, b"key", &apart(), &tested.done).is_none());
        tested.at(&apart(), |_| ());
        assert!(tested.keys() == 1 && !tested.done.is_anything());
        assert_eq!(tested.table.take_gained(), Census::default());
        assert!(tested.at(&Now::at(DUE), |edit| edit.is_there()), "it has not expired yet");
        tested.at(&Now::at(DUE + 10).with_horizon(DUE + 1), |edit| assert!(!edit.is_there()));
        assert!(tested.keys() == 0 && tested.done.expired);
    }

    #[test]
    fn a_write_over_a_hidden_key_finds_none_and_removes_it() {
        let mut tested = Tested::new();
        tested.at(&apart(), |edit| edit.set(Value::Inline(b"new"), None));
        assert!(tested.done.changed && tested.done.expired);
        let gained = tested.table.take_gained();
        assert_eq!((gained.keys, gained.expiring, gained.expired), (0, -1, 1));
        assert_eq!(gained.bytes, -16, "the new entry has no room for an expiry");
        tested.at(&apart(), |edit| {
            assert_eq!(edit.read().map(|entry| entry.expire_at()), Some(None))
        });

        let mut tested = Tested::new();
        tested.at(&apart(), |edit| {
            edit.put(Entry::new(b"key", Value::Inline(b"new"), Some(DUE + 20)))
        });
        assert!(tested.done.changed && tested.done.expired && tested.keys() == 1);
        assert_eq!(tested.at(&apart(), |edit| edit.expiry()), Some(DUE + 20));
    }
}
