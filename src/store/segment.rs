//! A piece of a table: up to 32 buckets of one cache line each.
//!
//! A key's home bucket follows from its hash. If that is full, the key goes to the next bucket with
//! room, and every full bucket on the way counts it as passed. A search goes on only from a bucket
//! that a key has passed, and removing a key uncounts it, so there are no tombstones (the scheme of
//! Folly's F14). Most searches read two cache lines: the bucket and the entry.

use super::UnixMs;
use super::bucket::{Bucket, Buckets, EntryMut, EntryRef, Marked, SLOTS, SlotMarks, bits};
use super::hash::{KeyHash, KeyHasher};
use crate::limits::LINES_OF_STRING;

/// A full-grown segment has 2^5 buckets: 2 KiB, which is the largest slot of the arena, and few
/// enough keys to split in some ten microseconds.
pub(super) const MAX_BUCKET_BITS: u8 = 5;

/// Keys per bucket at which a segment grows: 8 of 9 slots.
const FULL_PER_BUCKET: usize = 8;

/// Where a key is in its segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct BucketSlot {
    bucket: u16,
    slot: u8,
    /// Whether the entry has an expiry to check.
    pub(super) may_expire: bool,
}

impl BucketSlot {
    /// The slot in its bucket.
    pub(super) fn slot(self) -> u8 {
        self.slot
    }

    #[inline]
    fn of(bucket: usize, slot: usize, entry: &EntryRef<'_>) -> Self {
        BucketSlot { bucket: bucket as u16, slot: slot as u8, may_expire: entry.may_expire() }
    }
}

/// All keys of a table whose order begins with the same `depth` bits.
pub(super) struct Segment {
    buckets: Buckets,
    used: u32,
    /// The first order value of this segment.
    pub(super) start: u32,
    /// How many leading bits of the order all keys here share.
    pub(super) depth: u8,
    bucket_bits: u8,
    /// Not later than the first expiry among the keys here.
    pub(super) next_due: UnixMs,
    /// Not later than the first expiry among the parts of their values.
    pub(super) parts_due: UnixMs,
}

impl Segment {
    /// An empty segment of `2^bucket_bits` buckets.
    pub(super) fn new(start: u32, depth: u8, bucket_bits: u8) -> Self {
        Segment::of(Buckets::new(1 << bucket_bits), start, depth, bucket_bits)
    }

    /// The placeholder for a segment that was merged away.
    pub(super) fn unused() -> Self {
        Segment::of(Buckets::default(), 0, 0, 0)
    }

    fn of(buckets: Buckets, start: u32, depth: u8, bucket_bits: u8) -> Self {
        Segment {
            buckets,
            used: 0,
            start,
            depth,
            bucket_bits,
            next_due: UnixMs::MAX,
            parts_due: UnixMs::MAX,
        }
    }

    pub(super) fn used(&self) -> usize {
        self.used as usize
    }

    pub(super) fn bucket_bits(&self) -> u8 {
        self.bucket_bits
    }

    pub(super) fn is_full(&self) -> bool {
        self.used() >= self.buckets.len() * FULL_PER_BUCKET
    }

    /// The fewest bucket bits with which a segment has room for so many keys, as far as a segment
    /// can.
    pub(super) fn bucket_bits_for(keys: usize) -> u8 {
        let fits = |&bits: &u8| keys < Segment::capacity(bits);
        (0..MAX_BUCKET_BITS).find(fits).unwrap_or(MAX_BUCKET_BITS)
    }

    /// How many keys a segment of this many buckets takes before it grows.
    pub(super) fn capacity(bucket_bits: u8) -> usize {
        FULL_PER_BUCKET << bucket_bits
    }

    /// Bytes of the buckets.
    pub(super) fn bytes(&self) -> i64 {
        size_of_val(&*self.buckets) as i64
    }

    /// One past the last order value of this segment.
    pub(super) fn end(&self) -> u64 {
        u64::from(self.start) + (1 << (32 - self.depth))
    }

    #[inline]
    fn home(&self, order: u32) -> usize {
        let leading = (u64::from(order) << (self.depth + self.bucket_bits)) >> 32;
        leading as usize & (self.buckets.len() - 1)
    }

    #[inline]
    fn next(&self, bucket: usize) -> usize {
        (bucket + 1) & (self.buckets.len() - 1)
    }

    /// A key's home bucket.
    #[inline]
    pub(super) fn home_bucket(&self, hash: KeyHash) -> &Bucket {
        &self.buckets[self.home(hash.order())]
    }

    /// Finds a key. Most are where the first look goes: that is inlined, the rest is not.
    #[inline(always)]
    pub(super) fn find(&self, hash: KeyHash, key: &[u8]) -> Option<BucketSlot> {
        let home = self.home(hash.order());
        let bucket = &self.buckets[home];
        let matching = bucket.matching(hash.tag());
        if matching != 0 {
            let slot = matching.trailing_zeros() as usize;
            let entry = bucket.entry(slot);
            if entry.has_key(key) {
                return Some(BucketSlot::of(home, slot, &entry));
            }
        } else if !bucket.was_passed() {
            return None;
        }
        self.find_further(home, hash, key)
    }

    #[inline(never)]
    fn find_further(&self, home: usize, hash: KeyHash, key: &[u8]) -> Option<BucketSlot> {
        let mut at = home;
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[at];
            for slot in bits(bucket.matching(hash.tag())) {
                let entry = bucket.entry(slot);
                if entry.has_key(key) {
                    return Some(BucketSlot::of(at, slot, &entry));
                }
            }
            if !bucket.was_passed() {
                return None;
            }
            at = self.next(at);
        }
        None
    }

    /// The entry at a place that [`Segment::find`] gave.
    #[inline(always)]
    pub(super) fn entry(&self, place: BucketSlot) -> EntryRef<'_> {
        self.buckets[place.bucket as usize].entry(place.slot as usize)
    }

    /// The entry at a place, to be changed. Its key must stay.
    #[inline(always)]
    pub(super) fn entry_mut(&mut self, place: BucketSlot) -> EntryMut<'_> {
        self.buckets[place.bucket as usize].entry_mut(place.slot as usize)
    }

    /// Inserts an entry. The segment must have room.
    pub(super) fn insert(&mut self, hash: KeyHash, entry: Marked) {
        assert!(self.used() < self.buckets.len() * SLOTS);
        if entry.1.has(SlotMarks::EXPIRES)
            && let Some(at) = entry.0.expire_at()
        {
            self.next_due = self.next_due.min(at);
        }
        self.parts_due = self.parts_due.min(entry.0.parts_due());
        let mut at = self.home(hash.order());
        loop {
            let bucket = &mut self.buckets[at];
            let free = bucket.matching(0);
            if free != 0 {
                bucket.put(free.trailing_zeros() as usize, hash.tag(), entry);
                break;
            }
            bucket.pass();
            at = self.next(at);
        }
        self.used += 1;
    }

    /// Takes an entry out.
    pub(super) fn remove(&mut self, hash: KeyHash, place: BucketSlot) -> Marked {
        let mut at = self.home(hash.order());
        while at != place.bucket as usize {
            self.buckets[at].unpass();
            at = self.next(at);
        }
        self.used -= 1;
        self.buckets[at].take(place.slot as usize)
    }

    /// The first key in the bucket that `order` falls into, from slot `from` on, whose marks
    /// `stops` wants.
    pub(super) fn next_marked(
        &self,
        order: u32,
        from: u8,
        stops: impl Fn(SlotMarks) -> bool,
    ) -> Option<(BucketSlot, SlotMarks)> {
        let at = self.home(order);
        let bucket = &self.buckets[at];
        let mut slots = bits(bucket.used() >> from << from);
        let slot = slots.find(|&slot| stops(bucket.marks(slot)))?;
        let marks = bucket.marks(slot);
        let may_expire = marks.has(SlotMarks::EXPIRES);
        Some((BucketSlot { bucket: at as u16, slot: slot as u8, may_expire }, marks))
    }

    /// Sets or clears a mark of a key.
    pub(super) fn set_mark(&mut self, place: BucketSlot, mark: SlotMarks, is_set: bool) {
        self.buckets[place.bucket as usize].set_mark(place.slot as usize, mark, is_set);
    }

    /// The keys that have an expiry, and when that is.
    pub(super) fn expiring(&self) -> impl Iterator<Item = (BucketSlot, UnixMs)> {
        self.buckets.iter().enumerate().flat_map(|(at, bucket)| {
            let slots =
                bits(bucket.used()).filter(|&slot| bucket.marks(slot).has(SlotMarks::EXPIRES));
            slots.filter_map(move |slot| {
                let place = BucketSlot { bucket: at as u16, slot: slot as u8, may_expire: true };
                Some((place, bucket.entry(slot).expire_at()?))
            })
        })
    }

    /// See [`Table::pack`](super::Table::pack).
    pub(super) fn pack(&mut self) {
        self.buckets.pack();
    }

    /// All entries.
    pub(super) fn entries(&self) -> impl Iterator<Item = EntryRef<'_>> {
        self.buckets
            .iter()
            .flat_map(|bucket| bits(bucket.used()).map(move |slot| bucket.entry(slot)))
    }

    /// The marks of all entries.
    #[cfg(test)]
    pub(super) fn all_marks(&self) -> impl Iterator<Item = SlotMarks> {
        let of = |bucket| bits(Bucket::used(bucket)).map(|slot| bucket.marks(slot));
        self.buckets.iter().flat_map(of)
    }

    /// Takes all entries out, in no order; the segment is then empty. Whoever takes them reads
    /// them, so they are prefetched, all together.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Marked> + use<> {
        self.entries().for_each(|entry| entry.prefetch(LINES_OF_STRING));
        self.used = 0;
        (self.next_due, self.parts_due) = (UnixMs::MAX, UnixMs::MAX);
        let mut buckets = std::mem::take(&mut self.buckets);
        (0..buckets.len() * SLOTS).filter_map(move |at| {
            let bucket = &mut buckets[at / SLOTS];
            bucket.is_used(at % SLOTS).then(|| bucket.take(at % SLOTS))
        })
    }

    /// Calls `due` with the keys that have parts that were due before `horizon`, and makes
    /// `parts_due` what the others have.
    pub(super) fn find_due_parts(&mut self, horizon: UnixMs, due: &mut dyn FnMut(&[u8])) {
        self.parts_due = UnixMs::MAX;
        let mut first = UnixMs::MAX;
        for entry in self.entries() {
            match entry.parts_due() {
                at if at < horizon => due(entry.key()),
                at => first = first.min(at),
            }
        }
        self.parts_due = first;
    }

    /// Removes the keys that are due at `now`, and makes `next_due` exact.
    pub(super) fn remove_due(
        &mut self,
        hasher: &KeyHasher,
        now: UnixMs,
        mut removed: impl FnMut(Marked),
    ) {
        let mut next_due = UnixMs::MAX;
        for at in 0..self.buckets.len() {
            for slot in bits(self.buckets[at].used()) {
                let entry = self.buckets[at].entry(slot);
                match entry.expire_at() {
                    Some(due) if due < now => {
                        let hash = hasher.hash(entry.key());
                        let place =
                            BucketSlot { bucket: at as u16, slot: slot as u8, may_expire: true };
                        removed(self.remove(hash, place));
                    }
                    Some(due) => next_due = next_due.min(due),
                    None => {}
                }
            }
        }
        self.next_due = next_due;
    }

    /// How many order values fall into one bucket. A segment that had to outgrow its order values
    /// has buckets that are no key's home.
    fn bucket_width(&self) -> u64 {
        let order_bits = 32 - self.depth;
        1 << (order_bits - self.bucket_bits.min(order_bits))
    }

    /// The first order value of the bucket that `order` falls into.
    pub(super) fn bucket_start(&self, order: u32) -> u32 {
        order & !(self.bucket_width() - 1) as u32
    }

    /// One past the last order value of the bucket that `order` falls into.
    pub(super) fn bucket_end(&self, order: u32) -> u64 {
        u64::from(self.bucket_start(order)) + self.bucket_width()
    }

    /// Visits the keys whose home is the bucket that `order` falls into, from `order` on. Returns
    /// the first order value after that bucket.
    pub(super) fn visit_bucket<'a>(
        &'a self,
        hasher: &KeyHasher,
        order: u32,
        visit: &mut dyn FnMut(EntryRef<'a>),
    ) -> u64 {
        let (home, end) = (self.home(order), self.bucket_end(order));
        let mut at = home;
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[at];
            bits(bucket.used()).for_each(|slot| bucket.entry(slot).prefetch(LINES_OF_STRING));
            for slot in bits(bucket.used()) {
                let entry = bucket.entry(slot);
                let its = hasher.hash(entry.key()).order();
                if its >= order && u64::from(its) < end && self.home(its) == home {
                    visit(entry);
                }
            }
            if !bucket.was_passed() {
                break;
            }
            at = self.next(at);
        }
        end
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        self.drain().for_each(drop);
    }
}
