//! The large form of a hash: a table of its own.
//!
//! ```text
//! Entry ── Arc ── LargeHash ── Table ── Entry of a field: its name and its value
//! ```
//!
//! Several entries may refer to one. Only one of them is in a shard's table; the others are states
//! that a log of changes keeps (of a key that was renamed, say), and wait until that entry's
//! changes have been taken back. So only those who may read the shard read the fields, and only
//! its holder changes them.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::pin::Pins;
use super::unfreed::leave;
use super::{FieldRef, Fields};
use crate::store::entry::Referred;
use crate::store::{Entry, EntryRef, KeyHasher, Table, UnixMs, Value};

/// How far a scan over the fields has come: the fields before it have been visited.
pub type FieldCursor = u32;

/// A draw counts on at least so many fields in a bucket: the slots of one, and of its neighbour.
const LEAST_DRAWN_FROM: u64 = 18;

/// The fields of a large hash.
pub struct LargeHash {
    hasher: KeyHasher,
    /// The memory that it takes, for those who may not read the table.
    bytes: AtomicUsize,
    /// Those who read all fields as they were at one moment, or copy them.
    pub(super) pins: Pins,
    table: UnsafeCell<Table>,
}

// SAFETY: the table is reached only by the holder of the shard, or only read by threads that read
// the shard together: through the entry in the shard's table, or through a pin, which knows the
// shard of that entry (`Pins::home`). Other threads read `bytes`, and may drop the last reference.
unsafe impl Sync for LargeHash {}

impl LargeHash {
    /// One without fields.
    pub(in crate::store) fn new(hasher: KeyHasher) -> Self {
        let bytes = AtomicUsize::new(size_of::<Self>());
        LargeHash { hasher, bytes, pins: Pins::default(), table: UnsafeCell::default() }
    }

    /// One with these fields.
    pub(in crate::store) fn of<'a>(
        hasher: &KeyHasher,
        fields: impl Iterator<Item = FieldRef<'a>>,
    ) -> Self {
        let large = LargeHash::new(hasher.clone());
        fields.for_each(|field| {
            large.set(field.name, Value::Inline(field.value), field.expire_at);
        });
        large
    }

    /// That of an entry, if it has one.
    pub(super) fn of_entry(entry: &Entry) -> Option<&Self> {
        match Fields::of_entry(entry) {
            Ok(Fields::Large(large)) => Some(large),
            _ => None,
        }
    }

    /// The table of the fields.
    pub(super) fn table(&self) -> &Table {
        // SAFETY: only those who hold or read the shard come here, and `change` lends the table to
        // nobody who would come here meanwhile.
        unsafe { &*self.table.get() }
    }

    /// Its table's hasher.
    pub(super) fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    fn change<R>(&self, change: impl FnOnce(&mut Table, &KeyHasher) -> R) -> R {
        // SAFETY: the caller has the entry that refers to it for itself, and so the shard.
        let table = unsafe { &mut *self.table.get() };
        let result = change(table, &self.hasher);
        self.bytes.store(size_of::<Self>() + table.census().bytes as usize, Relaxed);
        result
    }

    /// A field.
    pub(super) fn find(&self, field: &[u8]) -> Option<FieldRef<'_>> {
        let entry = self.table().look(self.hasher.hash(field), field)?;
        Some(field_of(entry))
    }

    /// A field as an entry, of which large values are shared.
    pub(in crate::store) fn entry_of(&self, field: &[u8]) -> Option<Entry> {
        let found = self.table().find(self.hasher.hash(field), field)?;
        Some(self.table().entry(found).copy_as(field))
    }

    /// Sets a field. True if it is new.
    pub(in crate::store) fn set(
        &self,
        field: &[u8],
        value: Value<'_>,
        expire_at: Option<UnixMs>,
    ) -> bool {
        self.change(|table, hasher| {
            let hash = hasher.hash(field);
            let found = table.find(hash, field);
            self.pins.before_change(hash, field, hasher, || found.map(|found| table.entry(found)));
            match found {
                Some(found) => {
                    table.overwrite(found, value, expire_at);
                    false
                }
                None => {
                    table.put(hasher, hash, Entry::new(field, value, expire_at));
                    true
                }
            }
        })
    }

    /// Adds a copy of a field of another hash. It shares a large value, and takes the memory of a
    /// copy all the same.
    pub(super) fn add_copy(&self, field: &Entry) {
        let copy = field.copy_as(field.key());
        copy.take_copys_memory();
        self.change(|table, hasher| table.put(hasher, hasher.hash(copy.key()), copy));
    }

    /// Removes a field, and returns it.
    pub(in crate::store) fn remove(&self, field: &[u8]) -> Option<Entry> {
        self.change(|table, hasher| {
            let hash = hasher.hash(field);
            let found = table.find(hash, field)?;
            self.pins.before_change(hash, field, hasher, || Some(table.entry(found)));
            Some(table.remove(hasher, hash, found))
        })
    }

    /// Sets or clears the expiry of a field.
    pub(in crate::store) fn set_expiry(&self, field: &[u8], expire_at: Option<UnixMs>) {
        self.change(|table, hasher| {
            let hash = hasher.hash(field);
            if let Some(found) = table.find(hash, field) {
                self.pins.before_change(hash, field, hasher, || Some(table.entry(found)));
                table.set_expire_at(found, expire_at);
            }
        });
    }

    /// Removes some fields that were due before `horizon`, a segment of the table at most; see
    /// [`Table::remove_due`].
    pub(in crate::store) fn remove_due(
        &self,
        horizon: UnixMs,
        position: &mut usize,
        removed: &mut dyn FnMut(Entry),
    ) -> bool {
        self.change(|table, hasher| {
            table.remove_due(hasher, horizon, position, &mut || false, &mut |field| {
                self.pins.after_removal(hasher, &field);
                removed(field);
            })
        })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = FieldRef<'_>> {
        self.table().entries().map(field_of)
    }

    /// See [`Fields::scan`](super::Fields::scan).
    pub(super) fn scan<'a>(
        &'a self,
        cursor: FieldCursor,
        visit: &mut dyn FnMut(FieldRef<'a>),
    ) -> Option<FieldCursor> {
        self.table().scan_bucket(&self.hasher, cursor, &mut |entry| visit(field_of(entry)))
    }

    /// See [`Fields::drawn`](super::Fields::drawn).
    ///
    /// A place in the order is drawn, and a field of the bucket there; more often from buckets that
    /// have more fields for their share of the order, so that all fields are as likely.
    pub(super) fn drawn(&self, draw: &mut dyn FnMut() -> u64) -> Option<FieldRef<'_>> {
        let (mut found, mut tries) = (Vec::new(), 0);
        loop {
            let at = draw() as u32;
            let start = self.table().bucket_start(at);
            found.clear();
            let end = self.scan(start, &mut |field| found.push(field));
            // Four times as many as a share of `width` of the order has on average, and more than a
            // bucket holds: more than there are in nearly all buckets. In a table that has lost
            // most of its fields the average alone would say none.
            let width = end.map_or(1 << 32, u64::from) - u64::from(start);
            let most = (4 * self.table().len() as u64 * width) >> 32;
            tries += 1;
            let drawn = draw() % most.max(LEAST_DRAWN_FROM);
            if let Some(field) = found.get(drawn as usize) {
                return Some(*field);
            }
            if tries > 1000 {
                // Few fields are left in a large table.
                let number = draw() % (self.table().len() as u64).max(1);
                return self.iter().nth(number as usize);
            }
        }
    }
}

impl Referred for LargeHash {
    fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    fn parts_due(&self) -> UnixMs {
        self.table().next_due()
    }

    fn pack(&self, position: &mut usize, more: &mut dyn FnMut() -> bool) -> bool {
        self.change(|table, _| table.pack_keys(position, more))
    }
}

/// The field that an entry of a table is.
pub(super) fn field_of(entry: EntryRef<'_>) -> FieldRef<'_> {
    let expire_at = entry.expire_at();
    let (name, value) = entry.into_parts();
    FieldRef { name, value, expire_at }
}

impl Drop for LargeHash {
    fn drop(&mut self) {
        leave(std::mem::take(self.table.get_mut()));
    }
}
