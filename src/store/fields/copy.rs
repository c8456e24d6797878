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
use crate::store::entry::Referred;
use crate::store::{Entry, KeyHash, Store, Table};

/// A copy of a large hash, as far as it has come.
pub struct HashCopy {
    /// It refers to the hash.
    source: Entry,
    state: Arc<Mutex<PinState>>,
    copied: LargeHash,
    /// Names of fields that have changed since they were copied.
    again: Table,
    /// How far it has come with those.
    next_again: Option<FieldCursor>,
    /// How many of them are left.
    left_again: usize,
}

/// Why a copy does not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unended {
    /// Many fields are to be copied first.
    Behind,
    /// The key has another value by now, or too much of it has changed.
    Void,
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
        let (source, again) = (entry.copy_as(entry.key()), Table::default());
        Some(HashCopy { source, state, copied, again, next_again: None, left_again: 0 })
    }

    /// See [`FieldsPin::home`](super::FieldsPin::home).
    pub fn home(&self) -> Option<KeyHash> {
        LargeHash::of_entry(&self.source).map(|large| large.pins.home())
    }

    /// The memory that the copy takes so far, in bytes.
    pub fn bytes(&self) -> usize {
        self.copied.bytes()
    }

    /// How many fields are to be copied again; `None` before all have been copied once. Zero if it
    /// cannot be completed, because the names of changed fields are too many. The caller holds
    /// `shard`, which is that of [`HashCopy::home`].
    pub fn left(&self, _shard: &Store) -> Option<usize> {
        self.left_in_hand()
    }

    fn left_in_hand(&self) -> Option<usize> {
        let state = self.state.lock();
        if state.is_over {
            return Some(0);
        }
        state.next.is_none().then(|| self.left_again + state.names.len())
    }

    /// Copies some fields: a few hundred at most. Returns how many of them for the first time. The
    /// caller holds `shard`, which is that of [`HashCopy::home`].
    pub fn copy_some(&mut self, _shard: &Store) -> usize {
        self.step()
    }

    fn step(&mut self) -> usize {
        let Some(large) = LargeHash::of_entry(&self.source) else { return 0 };
        let (table, hasher) = (large.table(), large.hasher());
        let (copied, mut count) = (&self.copied, 0);
        let mut state = self.state.lock();
        if let Some(next) = state.next {
            state.next = scan_some(table, hasher, next, false, &mut |field| {
                copied.add_copy(&field);
                count += 1;
            });
            return count;
        }
        let at = self.next_again.unwrap_or_else(|| {
            leave(replace(&mut self.again, take(&mut state.names)));
            self.left_again = self.again.len();
            0
        });
        self.next_again = self.again.scan_bucket(hasher, at, &mut |named| {
            let name = named.key();
            copied.remove(name);
            if let Some(found) = table.find(hasher.hash(name), name) {
                copied.add_copy(&table.entry(found));
            }
            count += 1;
        });
        self.left_again -= count;
        0
    }

    /// The copy under this name, as the hash is at this moment, if no more than `most` fields are
    /// left. The caller holds the shard of the entry, which is in its table; what is left here is
    /// of no use then.
    pub(in crate::store) fn end(
        &mut self,
        entry: &Entry,
        name: &[u8],
        most: usize,
    ) -> Result<Entry, Unended> {
        let [own, other] = [&self.source, entry].map(LargeHash::of_entry);
        let is_same = own.zip(other).is_some_and(|(own, other)| ptr::eq(own, other));
        if !is_same || self.state.lock().is_over {
            return Err(Unended::Void);
        }
        if self.left_in_hand().unwrap_or(usize::MAX) > most {
            return Err(Unended::Behind);
        }
        while self.left_in_hand() != Some(0) {
            self.step();
        }
        let nothing = LargeHash::new(self.copied.hasher().clone());
        Ok(of_large(name, replace(&mut self.copied, nothing), entry.expire_at()))
    }
}

impl Drop for HashCopy {
    fn drop(&mut self) {
        leave(take(&mut self.again));
    }
}

#[cfg(test)]
mod tests;
