//! A copy of a large hash, made a few fields at a time while others may change the hash.
//!
//! Whoever changes a field that has been copied leaves its name, as it would give a pin what the
//! field was: the copy reads that field again. So the copy is complete once no name is left, and it
//! is what the hash is at that moment.

use std::mem::{replace, take};
use std::ptr;
use std::sync::Arc;

use parking_lot::Mutex;

use super::change::of_large;
use super::large::{FieldCursor, LargeHash};
use super::pin::{PinState, Wanted, scan_some};
use super::unfreed::leave;
use crate::store::{Entry, EntryRef, KeyHash, Store, Table};

/// A copy of a large hash, as far as it has come.
pub struct HashCopy {
    /// It refers to the hash.
    source: Entry,
    state: Arc<Mutex<PinState>>,
    copied: LargeHash,
    /// Names of fields that have changed since they were copied.
    changed: Table,
    /// How far it has come with those.
    next_changed: Option<FieldCursor>,
}

impl HashCopy {
    /// Begins to copy the hash of an entry that is in a shard's table, under a key of this hash.
    /// `most` is how many bytes the names of changed fields may have. `None` if the entry has no
    /// large hash.
    pub(in crate::store) fn new(entry: &Entry, home: KeyHash, most: usize) -> Option<Self> {
        let large = LargeHash::of_entry(entry)?;
        let state = PinState::new(Wanted::Names, most);
        large.pins.add(home, &state);
        let copied = LargeHash::new(large.hasher().clone());
        let (source, changed) = (entry.copy_as(entry.key()), Table::default());
        Some(HashCopy { source, state, copied, changed, next_changed: None })
    }

    /// See [`FieldsPin::home`](super::FieldsPin::home).
    pub fn home(&self) -> Option<KeyHash> {
        LargeHash::of_entry(&self.source).map(|large| large.pins.home())
    }

    /// Whether the entry, which is in the table of a shard that the caller holds, has the hash that
    /// is copied, and the names of all changes have been kept.
    pub(in crate::store) fn is_of(&self, entry: &Entry) -> bool {
        let [own, other] = [&self.source, entry].map(LargeHash::of_entry);
        own.zip(other).is_some_and(|(own, other)| ptr::eq(own, other)) && !self.state.lock().is_over
    }

    /// How many fields are to be copied again; `None` before all have been copied once. Zero if it
    /// cannot be completed, because the names of changed fields are too many.
    pub fn left(&self) -> Option<usize> {
        let state = self.state.lock();
        if state.is_over {
            return Some(0);
        }
        let taken = if self.next_changed.is_some() { self.changed.len() } else { 0 };
        state.next.is_none().then(|| taken + state.names.len())
    }

    /// Copies some fields: a few hundred at most. Returns how many of them for the first time. The
    /// caller holds `shard`, which is that of [`HashCopy::home`].
    pub fn copy_some(&mut self, _shard: &Store) -> usize {
        let before = self.copied.table().len();
        self.step();
        self.copied.table().len().saturating_sub(before)
    }

    fn step(&mut self) {
        let Some(large) = LargeHash::of_entry(&self.source) else { return };
        let (table, hasher) = (large.table(), large.hasher());
        let mut state = self.state.lock();
        if let Some(next) = state.next {
            let mut add = |field: EntryRef<'_>| self.copied.add_copy(&field);
            state.next = scan_some(table, hasher, next, false, &mut add);
            return;
        }
        let at = self.next_changed.unwrap_or_else(|| {
            leave(replace(&mut self.changed, take(&mut state.names)));
            0
        });
        self.next_changed = self.changed.scan_bucket(hasher, at, &mut |named| {
            let name = named.key();
            self.copied.remove(name);
            if let Some(found) = table.find(hasher.hash(name), name) {
                self.copied.add_copy(&table.entry(found));
            }
        });
    }

    /// The copy under this name, as the hash is at this moment. The caller holds the shard of the
    /// entry, for which [`HashCopy::is_of`] is true.
    pub(in crate::store) fn end(mut self, entry: &Entry, name: &[u8]) -> Entry {
        while self.left() != Some(0) {
            self.step();
        }
        let nothing = LargeHash::new(self.copied.hasher().clone());
        of_large(name, replace(&mut self.copied, nothing), entry.expire_at())
    }
}

impl Drop for HashCopy {
    fn drop(&mut self) {
        leave(take(&mut self.changed));
    }
}

#[cfg(test)]
mod tests;
