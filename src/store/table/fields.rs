//! What a table has for hashes: its keys may be hashes, and one that belongs to a hash has fields
//! for keys.

use super::{FoundEntry, Table};
use crate::store::{Entry, KeyHasher};

impl Table {
    /// Changes the value of a key, and counts the bytes that it gains; its expiry stays.
    pub(in crate::store) fn change_other<R>(
        &mut self,
        found: FoundEntry,
        change: impl FnOnce(&mut Entry) -> R,
    ) -> R {
        let mut entry = self.segments[found.segment as usize].entry_mut(found.place);
        let before = entry.weight();
        let result = change(&mut entry);
        self.census.bytes += entry.weight() as i64 - before as i64;
        result
    }

    /// A field that was found, and its value.
    pub(in crate::store) fn field(&self, found: FoundEntry) -> (&[u8], &[u8]) {
        self.segments[found.segment as usize].entry(found.place).into_field()
    }

    /// All fields and their values.
    pub(in crate::store) fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.entries().map(|entry| entry.into_field())
    }

    /// Visits the fields from `cursor` to the end of its bucket; returns the next cursor, `None` at
    /// the end.
    pub(in crate::store) fn scan_fields<'a>(
        &'a self,
        hasher: &KeyHasher,
        cursor: u32,
        visit: &mut dyn FnMut(&'a [u8], &'a [u8]),
    ) -> Option<u32> {
        let &at = self.directory.get(self.cell(cursor))?;
        let end = self.segments[at as usize].visit_bucket(hasher, cursor, &mut |entry| {
            let (field, value) = entry.into_field();
            visit(field, value);
        });
        u32::try_from(end).ok()
    }
}
