//! The large form of a hash: a table of its own.
//!
//! ```text
//! Entry ── Arc ── LargeHash ── Table ── Entry of a field: its name and its value
//! ```
//!
//! Several entries may refer to one. Only one of them is in a shard's table; the others are states
//! that a log of changes keeps (of a key that was renamed, say), and wait until that entry's
//! changes have been taken back. So the holder of the shard alone reads and changes the fields.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};

use super::FieldRef;
use crate::limits::FREED_AT_ONCE_FIELDS;
use crate::store::entry::Referred;
use crate::store::{Entry, EntryRef, KeyHasher, Remains, Table, UnixMs, Value};

/// How far a scan over the fields has come: the fields before it have been visited.
pub type FieldCursor = u32;

/// A draw counts on at least so many fields in a bucket: the slots of one, and of its neighbour.
const LEAST_DRAWN_FROM: u64 = 18;

/// The fields of a large hash.
pub struct LargeHash {
    hasher: KeyHasher,
    /// The memory that it takes, for those who may not read the table.
    bytes: AtomicUsize,
    table: UnsafeCell<Table>,
}

// SAFETY: the table is reached only through the entry in the shard's table, by the holder of the
// shard; other threads read `bytes`, and may drop the last reference.
unsafe impl Sync for LargeHash {}

impl LargeHash {
    /// One without fields.
    pub(in crate::store) fn new(hasher: KeyHasher) -> Self {
        let bytes = AtomicUsize::new(size_of::<Self>());
        LargeHash { hasher, bytes, table: UnsafeCell::default() }
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

    /// The table of the fields.
    pub(super) fn table(&self) -> &Table {
        // SAFETY: only the holder of the shard comes here, and `change` lends the table to nobody
        // who would come here meanwhile.
        unsafe { &*self.table.get() }
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
            match table.find(hash, field) {
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

    /// Removes a field, and returns it.
    pub(in crate::store) fn remove(&self, field: &[u8]) -> Option<Entry> {
        self.change(|table, hasher| {
            let hash = hasher.hash(field);
            let found = table.find(hash, field)?;
            Some(table.remove(hasher, hash, found))
        })
    }

    /// Sets or clears the expiry of a field.
    pub(in crate::store) fn set_expiry(&self, field: &[u8], expire_at: Option<UnixMs>) {
        self.change(|table, hasher| {
            if let Some(found) = table.find(hasher.hash(field), field) {
                table.set_expire_at(found, expire_at);
            }
        });
    }

    /// Removes some fields that were due before `horizon`, a segment of the table at most.
    pub(in crate::store) fn remove_due(&self, horizon: UnixMs, removed: &mut dyn FnMut(Entry)) {
        self.change(|table, hasher| {
            table.remove_due(hasher, horizon, &mut 0, &mut || false, removed);
        });
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
}

/// The field that an entry of the table is.
fn field_of(entry: EntryRef<'_>) -> FieldRef<'_> {
    let expire_at = entry.expire_at();
    let (name, value) = entry.into_parts();
    FieldRef { name, value, expire_at }
}

/// Hashes that nothing refers to any more, to be freed bit by bit.
static LEFT: Unfreed = Unfreed::new();

/// Tables that wait for their end.
struct Unfreed {
    list: Mutex<Vec<Remains>>,
    /// Whether the list has any, for a look without its lock; written with it alone.
    has_any: AtomicBool,
}

impl Unfreed {
    const fn new() -> Self {
        Unfreed { list: Mutex::new(Vec::new()), has_any: AtomicBool::new(false) }
    }

    fn push(&self, mut list: MutexGuard<'_, Vec<Remains>>, remains: Remains) {
        list.push(remains);
        self.has_any.store(true, Relaxed);
    }

    fn pop(&self) -> Option<Remains> {
        let mut list = self.list.lock();
        let popped = list.pop();
        self.has_any.store(!list.is_empty(), Relaxed);
        popped
    }

    /// See [`free_left`].
    fn free(&self, more: &mut dyn FnMut() -> bool) -> bool {
        while let Some(mut remains) = self.pop() {
            while !remains.is_empty() {
                remains.free_some();
                if !more() {
                    if !remains.is_empty() {
                        self.push(self.list.lock(), remains);
                    }
                    return false;
                }
            }
        }
        true
    }
}

impl Drop for LargeHash {
    /// Frees a hash of few fields; leaves another to [`free_left`].
    fn drop(&mut self) {
        let table = std::mem::take(self.table.get_mut());
        if table.len() <= FREED_AT_ONCE_FIELDS {
            return;
        }
        // Nobody waits here: a token may be held. A forked child may find the list locked forever.
        for _ in 0..1000 {
            if let Some(list) = LEFT.list.try_lock() {
                LEFT.push(list, table.into_remains());
                return;
            }
            std::hint::spin_loop();
        }
    }
}

/// Whether [`free_left`] has anything to do.
#[inline]
pub fn has_left() -> bool {
    LEFT.has_any.load(Relaxed)
}

/// Frees large hashes that nothing refers to any more, a few hundred fields at a time, while `more`
/// returns true. It has freed all that nobody else is freeing if it returns true.
pub fn free_left(more: &mut dyn FnMut() -> bool) -> bool {
    LEFT.free(more)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that finds nothing, while another frees the last one, does not hide that.
    #[test]
    fn what_a_thread_has_no_time_for_is_not_forgotten() {
        let hash = LargeHash::new(KeyHasher::default());
        for number in 0..3000 {
            hash.set(format!("field:{number}").as_bytes(), Value::Inline(b""), None);
        }
        let (left, mut hash) = (Unfreed::new(), hash);
        let table = std::mem::take(hash.table.get_mut());
        left.push(left.list.lock(), table.into_remains());
        let mut slices = 0;
        while left.has_any.load(Relaxed) {
            slices += 1;
            assert!(!left.free(&mut || !left.free(&mut || true)));
        }
        assert!(slices > 10 && left.list.lock().is_empty(), "{slices} slices");
    }
}
