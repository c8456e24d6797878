//! The way to change a key.
//!
//! Outside this folder, a key is changed by an [`Edit`], but for [`set_in_place`], and for
//! [`Table::remove_due`] and [`Table::evict`], which remove keys. Whole tables are changed by the
//! [`Store`](super::Store). An `Edit` notes what it has done in a [`Done`], for the caller's
//! counters and notifications.

mod done;
mod fields;
mod traits;

use std::cell::Cell;

pub use done::{Done, Keeping};

use super::before::{PartsBefore, ValuePart};
use super::bucket::EntryRef;
use super::fields::note_home;
use super::{
    Before, ChangeKind, Entry, FoundEntry, KeyHash, KeyHasher, Now, Origin, SharedValue, Table,
    Traits, UnixMs, Value,
};

/// A key's place, as far as it is known.
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

/// Sets a value where nothing changes but its bytes: the key is there, has no expiry, and its entry
/// stays in its place. Nothing is kept for a log, and no count of the table's changes. False if it
/// is not so; then nothing is done. `notes_use` notes for eviction that the key was used.
#[inline(always)]
pub fn set_in_place(
    table: &mut Table,
    hash: KeyHash,
    name: &[u8],
    value: &[u8],
    notes_use: bool,
) -> bool {
    let Some(found) = table.find(hash, name) else { return false };
    let is_done = table.overwrite_bytes(found, value);
    if is_done && notes_use {
        table.entry(found).note_use();
    }
    is_done
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
        let place = Cell::new(KeyState::Unknown);
        Edit { table, hasher, hash, name, now, place, done }
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

    /// Notes for eviction that the key was used, if this edit has found it and not made it.
    #[inline]
    pub fn note_use(&self) {
        if let KeyState::Live(found) = self.place.get() {
            self.done.note_use(&self.table.entry(found));
        }
    }

    /// When it expires; `None` for never, or if it does not exist.
    pub fn expiry(&self) -> Option<UnixMs> {
        self.read().and_then(|entry| entry.expire_at())
    }

    /// The table that the key is in, or may be put into.
    #[inline]
    pub fn table(&self) -> &Table {
        self.table
    }

    /// Sets the key's value and expiry, in place of those it may have.
    #[inline]
    pub fn set(&mut self, value: Value<'_>, expire_at: Option<UnixMs>) {
        self.set_as(ChangeKind::Whole, value, expire_at, Traits::default());
    }

    /// Sets the key's value, its expiry and what is known of the value.
    pub fn set_with(&mut self, value: Value<'_>, expire_at: Option<UnixMs>, traits: Traits) {
        self.set_as(ChangeKind::Whole, value, expire_at, traits);
    }

    /// Sets the key's value in place of one that differs in these parts only, and keeps its expiry
    /// and its flags. Between the parts it has grown by zeros only. The log then need not have the
    /// whole value.
    pub fn rewrite(&mut self, parts: &[ValuePart], value: Value<'_>) {
        let old = self.read().map(|entry| (entry.value_len(), entry.traits()));
        let (before, traits) = old.unwrap_or_default();
        let kind = if traits.are_marked() {
            ChangeKind::Whole
        } else {
            ChangeKind::Parts { parts: parts.into(), before }
        };
        let traits = Traits { origin: Origin::Given, ..traits.after_part() };
        self.set_as(kind, value, self.expiry(), traits);
    }

    #[inline(always)]
    fn set_as(
        &mut self,
        kind: ChangeKind,
        value: Value<'_>,
        expire_at: Option<UnixMs>,
        traits: Traits,
    ) {
        if let Some(found) = self.found_string() {
            self.keep_entry(found);
            return self.apply(kind, |table| {
                table.overwrite(found, value, expire_at);
                if traits != Traits::default() {
                    table.set_traits(found, traits);
                }
            });
        }
        let name = self.name;
        self.insert(kind, || Entry::with_traits(name, value, expire_at, traits));
    }

    /// Sets an entry with the key's name, in place of any other.
    pub fn put(&mut self, entry: Entry) {
        debug_assert!(entry.key() == self.name);
        self.remove();
        note_home(&entry, self.hash);
        self.insert(ChangeKind::Whole, || entry);
    }

    #[inline(always)]
    fn insert(&mut self, kind: ChangeKind, entry: impl FnOnce() -> Entry) {
        let (hasher, hash) = (self.hasher, self.hash);
        self.make_room();
        self.done.keep(|| Before::Absent);
        self.done.gained += 1;
        self.done.is_new = true;
        self.apply(kind, |table| table.put(hasher, hash, entry()));
        self.place.set(KeyState::Unknown);
    }

    /// Changes the value in place, if it is a shared buffer that allows that: see
    /// [`Entry::change_shared`]. `change` writes only these parts of it. It may also let it grow to
    /// the end of the last one, by zeros where it does not write, and it may take such growth back.
    ///
    /// # Errors
    /// The error of `change`, which then must have left the buffer unchanged.
    pub fn change<R, E>(
        &mut self,
        parts: &[ValuePart],
        change: impl FnOnce(&mut Vec<u8>) -> Result<R, E>,
    ) -> Option<Result<R, E>> {
        let found = self.found()?;
        let keeps = self.done.keeping == Keeping::Before;
        let traits = self.table.entry(found).traits();
        if traits.are_marked() {
            return None;
        }
        let origin = traits.origin;
        let changed = self.table.change_shared(found, |value| {
            let before = keeps.then(|| PartsBefore::of(value, parts, origin));
            let len = value.len();
            change(value).map(|result| (result, len, before))
        })?;
        if traits.number != 0 && changed.is_ok() {
            self.table.set_traits(found, traits.after_part());
        }
        Some(changed.map(|(result, len, before)| {
            if let Some(before) = before {
                self.done.keep(|| Before::Parts(before));
            }
            let kind = if self.done.keeping == Keeping::Nothing {
                ChangeKind::Nothing
            } else {
                ChangeKind::Parts { parts: parts.into(), before: len }
            };
            self.apply(kind, |_| ());
            result
        }))
    }

    /// Sets or clears the expiry of a key that exists.
    pub fn expire_at(&mut self, expire_at: Option<UnixMs>) {
        if let Some(found) = self.found() {
            let table = &*self.table;
            self.done.keep(|| Before::Expiry(table.entry(found).expire_at()));
            self.apply(ChangeKind::Expiry, |table| table.set_expire_at(found, expire_at));
        }
    }

    /// Removes the key. False if it does not exist.
    pub fn remove(&mut self) -> bool {
        let Some(found) = self.found() else { return false };
        let (hasher, hash) = (self.hasher, self.hash);
        let removed = self.table.remove(hasher, hash, found);
        self.done.gained -= 1;
        self.done.keep(|| Before::Was(removed));
        self.apply(ChangeKind::Whole, |_| ());
        self.place.set(KeyState::Absent);
        true
    }

    /// Counts a write that changed nothing.
    pub fn touch(&mut self) {
        self.done.changed = true;
    }

    /// Puts the key back as it was before a change. This edit keeps states too: restoring those,
    /// the newest first, makes the change again.
    pub fn restore(&mut self, before: Before) {
        match before {
            Before::Absent => {
                self.remove();
            }
            Before::Was(entry) => self.put(entry),
            Before::Expiry(at) => self.expire_at(at),
            Before::Origin(origin) => self.set_origin(origin),
            Before::Traits(traits) => self.set_traits(*traits),
            Before::Parts(parts) => self.restore_parts(&parts),
            Before::FieldWas(entry) => self.restore_field(&entry),
            Before::FieldAbsent(field) => {
                self.remove_field(&field);
            }
        }
    }

    fn restore_parts(&mut self, before: &PartsBefore) {
        let restored = self.change(before.parts(), |value| {
            before.restore(value);
            Ok::<_, ()>(())
        });
        if restored.is_none() {
            // Somebody still reads the buffer.
            let old = self.read().map(|entry| (entry.value().bytes().to_vec(), entry.traits()));
            let Some((mut value, traits)) = old else { return };
            before.restore(&mut value);
            let value = SharedValue::new(value);
            self.set_with(Value::Shared(&value), self.expiry(), traits.after_part());
        }
        self.set_origin(before.origin());
    }

    /// Every change of an entry is made in here, or right before it: the old state has been kept.
    #[inline(always)]
    fn apply(&mut self, kind: ChangeKind, change: impl FnOnce(&mut Table)) {
        change(self.table);
        self.done.changed = true;
        if self.done.keeping != Keeping::Nothing {
            self.done.kind.and(kind);
        }
    }

    /// Keeps a copy of the entry, if that is wanted.
    #[inline(always)]
    fn keep_entry(&mut self, found: FoundEntry) {
        if self.done.keeping == Keeping::Before {
            self.keep_copy(found);
        }
    }

    #[inline(never)]
    fn keep_copy(&mut self, found: FoundEntry) {
        let entry = self.table.entry(found);
        let copy = entry.copy_as(entry.key());
        self.done.keep(|| Before::Was(copy));
    }

    /// Removes the key if it is hidden, wherever the horizon is: a replay of a command that is
    /// logged as itself would find it. Not while keys are imported: then the command is logged by
    /// its result.
    pub fn remove_if_hidden(&mut self) {
        self.place();
        if !self.now.keeps_passed() {
            self.make_room();
        }
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
        let expired = self.table.expire(self.hasher, self.hash, found);
        self.done.gained -= 1;
        self.done.keep(|| Before::Was(expired));
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
mod tests;
