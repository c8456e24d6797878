//! One database of one shard: an extendible directory of small segments.
//!
//! The directory's 2^depth cells map the leading bits of a key's order to segments. A full segment
//! splits in two by itself, so no insert ever pays for more than one segment (and, rarely, for
//! copying the directory's 4-byte cells). Two sparse neighbours merge again.
//!
//! A cursor is a value of the order: keys before it have been visited, keys at or after it have
//! not. Splits and merges do not move keys in the order, so a scan visits every key that exists
//! from its start to its end exactly once.

mod evict;
mod growth;
mod pack;
mod parts;
mod traits;

use super::bucket::{EntryRef, Marked, SlotMarks};
use super::census::Census;
use super::hash::{KeyHash, KeyHasher};
use super::look::Home;
use super::remains::Remains;
use super::segment::{BucketSlot, MAX_BUCKET_BITS, Segment};
use super::{Entry, UnixMs, Value};
use crate::limits::LINES_OF_STRING;
pub use evict::{Evicted, First, Victims};
pub use pack::PackPosition;

/// Directory bits. 2^24 segments of one shard hold four billion keys.
const MAX_DEPTH: u8 = 24;

/// No index in `segments`.
const NO_SEGMENT: u32 = u32::MAX;

/// The keys of one database in one shard.
pub struct Table {
    directory: Vec<u32>,
    segments: Vec<Segment>,
    /// How many keys are on probation: see [`evict`].
    probation: u32,
    hands: evict::Hands,
    depth: u8,
    /// How many segments have the directory's depth; at zero the directory halves.
    deepest: u32,
    /// The first segment that was merged away; its `start` is the next one. `NO_SEGMENT` for none.
    unused: u32,
    census: Census,
    /// The census when the gains were last taken.
    booked: Census,
    /// See [`Table::presize`].
    expected: u32,
    next_due: UnixMs,
    /// The same for the parts of values.
    parts_due: UnixMs,
}

impl Default for Table {
    fn default() -> Self {
        Table {
            directory: Vec::new(),
            segments: Vec::new(),
            depth: 0,
            deepest: 0,
            unused: NO_SEGMENT,
            census: Census::default(),
            booked: Census::default(),
            expected: 0,
            next_due: UnixMs::MAX,
            parts_due: UnixMs::MAX,
            probation: 0,
            hands: evict::Hands::default(),
        }
    }
}

/// Where a key is. Valid until the table next changes.
#[derive(Clone, Copy)]
pub struct FoundEntry {
    segment: u32,
    place: BucketSlot,
}

impl FoundEntry {
    /// Whether the entry has an expiry to check.
    #[inline]
    pub(super) fn may_expire(self) -> bool {
        self.place.may_expire
    }
}

impl Table {
    /// Number of keys, including those that are due but not removed yet.
    pub fn len(&self) -> usize {
        self.census.keys as usize
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.census.keys == 0
    }

    /// The table's keys and bytes.
    #[inline]
    pub fn census(&self) -> Census {
        self.census
    }

    /// The keys and bytes that the table has gained since [`Table::take_gained`].
    #[inline]
    pub fn gained(&self) -> Census {
        self.census - self.booked
    }

    /// Takes the gains; a thread that changes a table counts them before it releases the shard.
    #[inline(never)]
    pub fn take_gained(&mut self) -> Census {
        self.census - std::mem::replace(&mut self.booked, self.census)
    }

    /// Not later than the first expiry of any key, or part of a value; [`UnixMs::MAX`] for none.
    pub fn next_due(&self) -> UnixMs {
        self.next_due.min(self.parts_due)
    }

    #[inline]
    fn cell(&self, order: u32) -> usize {
        ((u64::from(order) << self.depth) >> 32) as usize
    }

    /// The first step of a look-up: the key's home bucket. Worth it if several keys are looked up
    /// together.
    #[inline]
    pub fn home(&self, hash: KeyHash) -> Home<'_> {
        match self.directory.get(self.cell(hash.order())) {
            Some(&segment) => Home::of(self.segments[segment as usize].home_bucket(hash)),
            None => Home::default(),
        }
    }

    /// Prefetches the line that a look-up of this key reads first.
    #[inline]
    pub fn prefetch(&self, hash: KeyHash) {
        self.home(hash).prefetch();
    }

    /// Prefetches the first cache lines of the entry itself, a little later.
    #[inline]
    pub fn prefetch_entry(&self, hash: KeyHash, lines: usize) {
        self.home(hash).candidate(hash).prefetch(lines);
    }

    /// Finds a key, expired or not.
    #[inline(always)]
    pub fn find(&self, hash: KeyHash, key: &[u8]) -> Option<FoundEntry> {
        let &segment = self.directory.get(self.cell(hash.order()))?;
        let place = self.segments[segment as usize].find(hash, key)?;
        Some(FoundEntry { segment, place })
    }

    /// The entry of a key, expired or not.
    #[inline(always)]
    pub fn look(&self, hash: KeyHash, key: &[u8]) -> Option<EntryRef<'_>> {
        let found = self.find(hash, key)?;
        Some(self.entry(found))
    }

    /// Removes a key because it was due.
    pub(super) fn expire(&mut self, hasher: &KeyHasher, hash: KeyHash, found: FoundEntry) -> Entry {
        self.census.expired += 1;
        self.remove(hasher, hash, found)
    }

    /// The entry that was found.
    #[inline(always)]
    pub fn entry(&self, found: FoundEntry) -> EntryRef<'_> {
        self.segments[found.segment as usize].entry(found.place)
    }

    /// The memory of a key of this table: its entry, its value if that is shared, and its part of
    /// the buckets.
    pub fn bytes_of(&self, entry: &Entry) -> usize {
        let buckets: i64 = self.segments.iter().map(Segment::bytes).sum();
        entry.weight() + (buckets as usize).div_ceil(self.len())
    }

    /// Adds an entry whose key [`Table::find`] did not find.
    pub(super) fn put(&mut self, hasher: &KeyHasher, hash: KeyHash, entry: Entry) {
        self.census.keys += 1;
        self.census.bytes += entry.weight() as i64;
        self.note_expiry(None, entry.expire_at());
        self.probation += 1;
        self.parts_due = self.parts_due.min(entry.parts_due());
        let segment = self.segment_with_room(hasher, hash.order());
        let marks = SlotMarks::of_new(&entry);
        self.segments[segment].insert(hash, (entry, marks));
    }

    /// Replaces the value and the expiry of a key.
    #[inline(always)]
    pub(super) fn overwrite(
        &mut self,
        found: FoundEntry,
        value: Value<'_>,
        expire_at: Option<UnixMs>,
    ) {
        match (value, expire_at) {
            (Value::Inline(bytes), None) if self.overwrite_bytes(found, bytes) => {}
            _ => self.overwrite_all(found, value, expire_at),
        }
    }

    /// Writes a value over another, if nothing but its bytes changes: see
    /// [`Entry::overwrite_bytes`].
    #[inline(always)]
    pub(super) fn overwrite_bytes(&mut self, found: FoundEntry, bytes: &[u8]) -> bool {
        let segment = &mut self.segments[found.segment as usize];
        let mut entry = segment.entry_mut(found.place);
        let is_done = entry.overwrite_bytes(bytes);
        entry.stays();
        is_done
    }

    #[inline(never)]
    fn overwrite_all(&mut self, found: FoundEntry, value: Value<'_>, expire_at: Option<UnixMs>) {
        self.change(found, expire_at, |entry| entry.overwrite(value, expire_at));
    }

    /// Changes a value in place, if it is a shared buffer that allows that; see
    /// [`Entry::change_shared`].
    pub(super) fn change_shared<R>(
        &mut self,
        found: FoundEntry,
        change: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> Option<R> {
        let mut entry = self.segments[found.segment as usize].entry_mut(found.place);
        let before = entry.weight();
        let result = entry.change_shared(change)?;
        self.census.bytes += entry.weight() as i64 - before as i64;
        Some(result)
    }

    /// Sets or clears the expiry of a key.
    pub(super) fn set_expire_at(&mut self, found: FoundEntry, expire_at: Option<UnixMs>) {
        self.change(found, expire_at, |entry| entry.set_expire_at(expire_at));
    }

    /// `change` returns how many bytes the entry gained.
    #[inline]
    fn change(
        &mut self,
        found: FoundEntry,
        expire_at: Option<UnixMs>,
        change: impl FnOnce(&mut Entry) -> i64,
    ) {
        let segment = &mut self.segments[found.segment as usize];
        let mut entry = segment.entry_mut(found.place);
        let expiry = entry.expire_at();
        self.census.bytes += change(&mut entry);
        drop(entry);
        if let Some(at) = expire_at {
            segment.next_due = segment.next_due.min(at);
        }
        self.note_expiry(expiry, expire_at);
    }

    fn note_expiry(&mut self, before: Option<UnixMs>, after: Option<UnixMs>) {
        self.census.expiring += i64::from(after.is_some()) - i64::from(before.is_some());
        if let Some(at) = after {
            self.next_due = self.next_due.min(at);
        }
    }

    /// Removes a key.
    pub(super) fn remove(&mut self, hasher: &KeyHasher, hash: KeyHash, found: FoundEntry) -> Entry {
        let removed = self.segments[found.segment as usize].remove(hash, found.place);
        self.forget(&removed);
        self.shrink(hasher, found.segment as usize);
        removed.0
    }

    fn forget(&mut self, (entry, marks): &Marked) {
        self.census.keys -= 1;
        self.census.bytes -= entry.weight() as i64;
        self.census.expiring -= i64::from(marks.has(SlotMarks::EXPIRES));
        self.probation -= u32::from(!marks.has(SlotMarks::MAIN));
    }

    /// The segment for keys of that order, grown until one more fits.
    fn segment_with_room(&mut self, hasher: &KeyHasher, order: u32) -> usize {
        if self.directory.is_empty() {
            self.directory.push(0);
            self.segments.push(Segment::new(0, 0, 0));
            self.census.bytes += self.segments[0].bytes();
            self.deepest = 1;
        }
        loop {
            let at = self.directory[self.cell(order)] as usize;
            if !self.segments[at].is_full() {
                return at;
            }
            self.grow(hasher, at);
        }
    }

    fn resize(&mut self, hasher: &KeyHasher, at: usize, bucket_bits: u8) {
        let old = &mut self.segments[at];
        let mut new = Segment::new(old.start, old.depth, bucket_bits);
        self.census.bytes += new.bytes() - old.bytes();
        for entry in old.drain() {
            new.insert(hasher.hash(entry.0.key()), entry);
        }
        *old = new;
    }

    fn double_directory(&mut self) {
        self.directory = self.directory.iter().flat_map(|&at| [at, at]).collect();
        self.depth += 1;
        self.deepest = 0;
    }

    /// Sets every cell of a segment's range to it.
    fn point_cells_to(&mut self, at: u32) {
        let segment = &self.segments[at as usize];
        let first = self.cell(segment.start);
        let cells = 1 << (self.depth - segment.depth);
        self.directory[first..first + cells].fill(at);
    }

    /// Frees memory if a segment has become sparse.
    fn shrink(&mut self, hasher: &KeyHasher, at: usize) {
        let segment = &self.segments[at];
        if segment.used() > Segment::capacity(segment.bucket_bits()) / 4 {
            return;
        }
        if self.is_empty() {
            let census = Census { expired: self.census.expired, ..Census::default() };
            *self = Table { census, booked: self.booked, ..Table::default() };
        } else if segment.depth > 0 {
            self.merge(hasher, at);
        } else if segment.bucket_bits() > 0 {
            self.resize(hasher, at, segment.bucket_bits() - 1);
        }
    }

    /// Merges a segment with its other half, if that has not split further and both together fill
    /// no more than half of one segment.
    fn merge(&mut self, hasher: &KeyHasher, at: usize) {
        let (start, depth) = (self.segments[at].start, self.segments[at].depth);
        let sibling = start ^ (1 << (32 - depth));
        let other = self.directory[self.cell(sibling)] as usize;
        let both = self.segments[at].used() + self.segments[other].used();
        if self.segments[other].depth != depth || both > Segment::capacity(MAX_BUCKET_BITS) / 2 {
            return;
        }
        let mut merged = Segment::new(start.min(sibling), depth - 1, MAX_BUCKET_BITS);
        for half in [at, other] {
            let mut half = std::mem::replace(&mut self.segments[half], Segment::unused());
            self.census.bytes -= half.bytes();
            for entry in half.drain() {
                merged.insert(hasher.hash(entry.0.key()), entry);
            }
        }
        self.census.bytes += merged.bytes();
        self.segments[at] = merged;
        self.segments[other].start = std::mem::replace(&mut self.unused, other as u32);
        self.point_cells_to(at as u32);
        if depth == self.depth {
            self.deepest -= 2;
            while self.deepest == 0 && self.depth > 0 {
                self.halve_directory();
            }
        }
    }

    fn halve_directory(&mut self) {
        self.directory = self.directory.iter().copied().step_by(2).collect();
        self.depth -= 1;
        let live = |at: &&Segment| at.bytes() > 0;
        self.deepest =
            self.segments.iter().filter(live).filter(|segment| segment.depth == self.depth).count()
                as u32;
    }

    /// The first cursor of the bucket that `cursor` falls into.
    pub fn bucket_start(&self, cursor: u32) -> u32 {
        let segment = self.directory.get(self.cell(cursor)).map(|&at| &self.segments[at as usize]);
        segment.map_or(0, |segment| segment.bucket_start(cursor))
    }

    /// Visits the keys from `cursor` to the end of its bucket (about eight), expired ones included.
    /// Returns the next cursor, `None` at the end.
    pub fn scan_bucket<'a>(
        &'a self,
        hasher: &KeyHasher,
        cursor: u32,
        visit: &mut dyn FnMut(EntryRef<'a>),
    ) -> Option<u32> {
        let &at = self.directory.get(self.cell(cursor))?;
        let end = self.segments[at as usize].visit_bucket(hasher, cursor, visit);
        u32::try_from(end).ok()
    }

    /// Visits the keys from `cursor` to the end of its segment (usually up to 256), expired ones
    /// included. Returns the next cursor, `None` at the end.
    pub fn scan_segment(
        &self,
        hasher: &KeyHasher,
        cursor: u32,
        visit: &mut dyn FnMut(EntryRef<'_>),
    ) -> Option<u32> {
        let &at = self.directory.get(self.cell(cursor))?;
        let segment = &self.segments[at as usize];
        segment.entries().for_each(|entry| entry.prefetch(LINES_OF_STRING));
        for entry in segment.entries() {
            if cursor == segment.start || hasher.hash(entry.key()).order() >= cursor {
                visit(entry);
            }
        }
        u32::try_from(segment.end()).ok()
    }

    /// Removes keys that were due before `horizon`, segment by segment from `*position` on, while
    /// `more` returns true; calls `expired` with each. True when the last segment is done;
    /// `next_due` is then up to date and `*position` 0.
    ///
    /// Beside [`Edit`](super::Edit) only this, [`evict`](Self::evict) and
    /// [`set_in_place`](super::set_in_place) change single keys. Here too each change must be
    /// reported.
    pub fn remove_due(
        &mut self,
        hasher: &KeyHasher,
        horizon: UnixMs,
        position: &mut usize,
        more: &mut dyn FnMut() -> bool,
        expired: &mut dyn FnMut(Entry),
    ) -> bool {
        while *position < self.segments.len() {
            let at = *position;
            if self.segments[at].next_due >= horizon {
                *position += 1;
                continue;
            }
            // It may have merged with one that has due keys: it is looked at again.
            self.remove_due_of(hasher, horizon, at, expired);
            if !more() {
                return false;
            }
        }
        *position = 0;
        self.next_due = self.segments.iter().map(|s| s.next_due).min().unwrap_or(UnixMs::MAX);
        true
    }

    fn remove_due_of(
        &mut self,
        hasher: &KeyHasher,
        horizon: UnixMs,
        at: usize,
        expired: &mut dyn FnMut(Entry),
    ) {
        let mut segment = std::mem::replace(&mut self.segments[at], Segment::unused());
        let mut removed = 0;
        segment.remove_due(hasher, horizon, |entry| {
            self.forget(&entry);
            expired(entry.0);
            removed += 1;
        });
        self.segments[at] = segment;
        self.census.expired += removed;
        if removed > 0 {
            self.shrink(hasher, at);
        }
    }

    /// All keys, expired ones included.
    pub fn entries(&self) -> impl Iterator<Item = EntryRef<'_>> {
        self.segments.iter().flat_map(Segment::entries)
    }

    /// Gives up all keys, to be put elsewhere.
    pub fn into_entries(self) -> impl Iterator<Item = Entry> {
        self.segments.into_iter().flat_map(|mut segment| segment.drain()).map(|(entry, _)| entry)
    }

    /// Gives up all keys, to be freed bit by bit.
    pub fn into_remains(self) -> Remains {
        Remains::new(self.len(), self.segments)
    }
}

#[cfg(test)]
mod tests;
