//! Reading all fields of a large hash as they are at one moment, a few at a time.
//!
//! A pin has a cursor over the hash. Whoever changes a field that the cursor has not passed first
//! gives the pin what the field was. So the pin finds those fields that have not changed in the
//! hash, and what the others were among what it was given. Splits and merges of the table do not
//! move fields in the cursor's order, so every field is read once.
//!
//! ```text
//! LargeHash ── Pins ── Weak ─┐
//!     │                      ▼
//!     └──── FieldsPin ── Arc<Mutex<PinState>>
//! ```
//!
//! A pin keeps the hash: it goes on when the key is removed or replaced. If another key gets the
//! hash (RENAME), the pin follows it, because the table may only be read by those who may read the
//! shard of the key that has it.
//!
//! The locks are there for safe code: both are taken only by the holder of the shard, so nobody
//! ever waits for one, and a forked child finds them free. The pin of a client that is gone is
//! found by the next change.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::FieldRef;
use super::large::{FieldCursor, LargeHash, field_of};
use super::unfreed::leave;
use crate::limits::PIN_FIELD_BYTES;
use crate::store::hash::SharedKeyHash;
use crate::store::{Census, Entry, EntryRef, KeyHash, KeyHasher, Store, Table, Value};

/// The pins of a hash.
#[derive(Default)]
pub(super) struct Pins {
    /// Whether there may be any.
    are_any: AtomicBool,
    list: Mutex<Vec<Weak<Mutex<PinState>>>>,
    /// The hash of the key that has the fields, or was the last to have them. Up to date while
    /// there are pins.
    home: SharedKeyHash,
}

impl Pins {
    /// A field of this hash and name is about to change. `was` gives it, if it is there.
    #[inline]
    pub(super) fn before_change<'t>(
        &self,
        hash: KeyHash,
        name: &[u8],
        hasher: &KeyHasher,
        was: impl FnOnce() -> Option<EntryRef<'t>>,
    ) {
        if self.are_any.load(Relaxed) {
            self.keep(hash, name, hasher, was().as_deref());
        }
    }

    /// This field has been removed.
    #[inline]
    pub(super) fn after_removal(&self, hasher: &KeyHasher, was: &Entry) {
        if self.are_any.load(Relaxed) {
            self.keep(hasher.hash(was.key()), was.key(), hasher, Some(was));
        }
    }

    /// The hash of the key that has the fields, or was the last to have them.
    pub(super) fn home(&self) -> KeyHash {
        self.home.get()
    }

    #[cold]
    fn keep(&self, hash: KeyHash, name: &[u8], hasher: &KeyHasher, was: Option<&Entry>) {
        let mut list = self.list.lock();
        list.retain(|pin| {
            pin.upgrade().is_some_and(|kept| kept.lock().keep(hash, name, hasher, was))
        });
        self.are_any.store(!list.is_empty(), Relaxed);
    }

    /// Adds a pin of the fields, which the key of this hash has.
    pub(super) fn add(&self, home: KeyHash, kept: &Arc<Mutex<PinState>>) {
        self.home.set(home);
        let mut list = self.list.lock();
        list.retain(|pin| pin.strong_count() > 0);
        list.push(Arc::downgrade(kept));
        self.are_any.store(true, Relaxed);
    }
}

/// The key of this hash gets the entry: a pin of its fields must know.
pub(in crate::store) fn note_home(entry: &Entry, hash: KeyHash) {
    if let Some(large) = LargeHash::of_entry(entry) {
        large.pins.home.set(hash);
    }
}

/// What a pin is to know of the fields that change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// What those were that it has not read.
    Before,
    /// Which of those that it has read.
    Names,
}

/// A pin's place, and what it was given.
pub(super) struct PinState {
    wanted: Wanted,
    /// The fields before this place have been read; `None` if all have.
    pub(super) next: Option<FieldCursor>,
    /// What fields were that have changed.
    changed: Table,
    /// Fields that were not there, or whose names alone are wanted: their names.
    pub(super) names: Table,
    /// How many bytes both may have.
    most: usize,
    /// They have more. A change has not been kept, or will not be.
    pub(super) is_over: bool,
}

impl PinState {
    /// Of a pin that has read nothing, and may keep so many bytes.
    pub(super) fn new(wanted: Wanted, most: usize) -> Arc<Mutex<Self>> {
        let (changed, names) = (Table::default(), Table::default());
        let next = Some(0);
        Arc::new(Mutex::new(PinState { wanted, next, changed, names, most, is_over: false }))
    }

    fn has(&self, hash: KeyHash, name: &[u8]) -> bool {
        [&self.changed, &self.names].iter().any(|table| table.find(hash, name).is_some())
    }

    fn bytes(&self) -> usize {
        (self.changed.census().bytes + self.names.census().bytes) as usize
    }

    /// A field is about to change. False if it needs no more of that.
    fn keep(
        &mut self,
        hash: KeyHash,
        name: &[u8],
        hasher: &KeyHasher,
        was: Option<&Entry>,
    ) -> bool {
        if self.is_over || self.next.is_none() && self.wanted == Wanted::Before {
            return false;
        }
        let is_read = self.next.is_none_or(|next| hash.order() < next);
        if is_read != (self.wanted == Wanted::Names) || self.has(hash, name) {
            return true;
        }
        match was.filter(|_| self.wanted == Wanted::Before) {
            Some(field) => self.changed.put(hasher, hash, field.copy_as(name)),
            None => self.names.put(hasher, hash, Entry::new(name, Value::Inline(b""), None)),
        }
        self.is_over = self.bytes() > self.most;
        !self.is_over
    }
}

impl Drop for PinState {
    fn drop(&mut self) {
        leave(std::mem::take(&mut self.changed));
        leave(std::mem::take(&mut self.names));
    }
}

/// A pin has been given more than it may keep, so it cannot go on.
#[derive(Debug)]
pub struct KeptTooMuch;

/// A large hash whose fields are read a few at a time, all as they were when it was pinned.
pub struct FieldsPin {
    /// It refers to the hash.
    entry: Entry,
    kept: Arc<Mutex<PinState>>,
    /// Once all fields have been read that have not changed: what the others were.
    changed: Option<Table>,
    /// How far it has come with those.
    next_changed: Option<FieldCursor>,
}

impl FieldsPin {
    /// Pins the hash of an entry that is in a shard's table, under a key of this hash.
    pub(in crate::store) fn new(entry: &Entry, home: KeyHash, most: usize) -> Option<Self> {
        let large = LargeHash::of_entry(entry)?;
        let kept = PinState::new(Wanted::Before, most);
        large.pins.add(home, &kept);
        let entry = entry.copy_as(entry.key());
        Some(FieldsPin { entry, kept, changed: None, next_changed: Some(0) })
    }

    fn large(&self) -> Option<&LargeHash> {
        LargeHash::of_entry(&self.entry)
    }

    /// The hash of the key that has the fields, or was the last to have them. It may change, but
    /// not while the shard of it is held.
    pub fn home(&self) -> Option<KeyHash> {
        self.large().map(|large| large.pins.home())
    }

    /// Whether [`FieldsPin::visit_some`] is next, then [`FieldsPin::visit_changed`].
    pub fn needs_shard(&self) -> bool {
        self.changed.is_none()
    }

    /// Visits some of the fields that have not changed: a few hundred at most, or a few if they are
    /// long or `few` are wanted. The caller holds `shard`, which is that of [`FieldsPin::home`].
    /// Returns how many bytes of changed fields it keeps.
    ///
    /// # Errors
    /// [`KeptTooMuch`].
    pub fn visit_some(
        &mut self,
        _shard: &Store,
        few: bool,
        visit: &mut dyn FnMut(FieldRef<'_>),
    ) -> Result<usize, KeptTooMuch> {
        let mut kept = self.kept.lock();
        if kept.is_over {
            return Err(KeptTooMuch);
        }
        let (Some(large), Some(next)) = (self.large(), kept.next) else { return Ok(0) };
        let has_changes = !kept.changed.is_empty() || !kept.names.is_empty();
        let (table, hasher) = (large.table(), large.hasher());
        let mut visit = |entry: EntryRef<'_>| {
            let name = entry.key();
            if !(has_changes && kept.has(hasher.hash(name), name)) {
                visit(field_of(entry));
            }
        };
        let next = scan_some(table, hasher, next, few, &mut visit);
        kept.next = next;
        let bytes = kept.bytes();
        if next.is_none() {
            let changed = std::mem::take(&mut kept.changed);
            drop(kept);
            self.changed = Some(changed);
        }
        Ok(bytes)
    }

    /// Visits some of the fields that have changed, as they were, and as many as
    /// [`FieldsPin::visit_some`]. No shard is needed. True if there are more.
    pub fn visit_changed(&mut self, few: bool, visit: &mut dyn FnMut(FieldRef<'_>)) -> bool {
        let (Some(large), Some(changed)) = (self.large(), &self.changed) else { return false };
        let mut visit = |entry: EntryRef<'_>| visit(field_of(entry));
        self.next_changed = self
            .next_changed
            .and_then(|at| scan_some(changed, large.hasher(), at, few, &mut visit));
        self.next_changed.is_some()
    }
}

/// Visits a segment of a table, or a bucket if its fields are long or `few` are wanted. Returns
/// where to go on.
pub(super) fn scan_some(
    table: &Table,
    hasher: &KeyHasher,
    at: FieldCursor,
    few: bool,
    visit: &mut dyn FnMut(EntryRef<'_>),
) -> Option<FieldCursor> {
    let Census { bytes, keys, .. } = table.census();
    if few || bytes > keys * PIN_FIELD_BYTES {
        table.scan_bucket(hasher, at, visit)
    } else {
        table.scan_segment(hasher, at, visit)
    }
}

impl Drop for FieldsPin {
    fn drop(&mut self) {
        leave(self.changed.take().unwrap_or_default());
    }
}

#[cfg(test)]
mod tests;
