//! A look-up in steps, each made for many keys before the next one: a step asks for the memory that
//! the next one reads.
//!
//! ```text
//! Table::home ─► prefetch ─► Home::candidate ─► prefetch ─► Candidate::look
//!   bucket        bucket        entry            entry        the key is compared
//! ```
//!
//! What a step has found borrows the table. So none of it outlives a change of the table: the
//! compiler sees to that.

use super::bucket::{Bucket, EntryRef};
use super::entry::prefetch;
use super::hash::KeyHash;

/// The bucket that a key belongs to.
#[derive(Clone, Copy)]
pub struct Home<'t>(&'t Bucket);

/// The home of every key in a table without buckets.
static NO_BUCKET: Bucket = Bucket::new();

impl Default for Home<'_> {
    fn default() -> Self {
        Home(&NO_BUCKET)
    }
}

impl<'t> Home<'t> {
    #[inline]
    pub(super) fn of(bucket: &'t Bucket) -> Self {
        Home(bucket)
    }

    /// Prefetches the bucket.
    #[inline]
    pub fn prefetch(self) {
        prefetch(&raw const *self.0);
    }

    /// The entry in it that is most likely the key's.
    #[inline]
    pub fn candidate(self, hash: KeyHash) -> Candidate<'t> {
        let Home(bucket) = self;
        let matching = bucket.matching(hash.tag());
        let entry = (matching != 0).then(|| bucket.entry(matching.trailing_zeros() as usize));
        let is_only = matching & matching.wrapping_sub(1) == 0 && !bucket.was_passed();
        Candidate { entry, is_only }
    }
}

/// The entry that is most likely a key's.
pub struct Candidate<'t> {
    entry: Option<EntryRef<'t>>,
    /// No other entry can be the key's.
    is_only: bool,
}

/// What the comparison of a key with its candidate says.
pub enum Look<'t> {
    /// This is the key's entry, expired or not.
    Entry(EntryRef<'t>),
    /// The key is not in the table.
    Nothing,
    /// The key may be elsewhere in the table.
    Unknown,
}

impl<'t> Candidate<'t> {
    /// Prefetches the entry's first cache lines.
    #[inline]
    pub fn prefetch(&self, lines: usize) {
        if let Some(entry) = &self.entry {
            entry.prefetch(lines);
        }
    }

    /// Compares the key; once.
    #[inline(always)]
    pub fn look(&mut self, name: &[u8]) -> Look<'t> {
        match self.entry.take() {
            Some(entry) if entry.has_key(name) => Look::Entry(entry),
            _ if self.is_only => Look::Nothing,
            _ => Look::Unknown,
        }
    }
}
