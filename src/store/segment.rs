//! A piece of a table: up to 32 buckets of one cache line each.
//!
//! ```text
//! Bucket, 64 bytes: tags 9 × 1 │ passed 1 │ addresses 9 × 6
//! ```
//!
//! A key's home bucket follows from its hash. If that is full, the key goes to the next bucket with
//! room, and every full bucket on the way counts it in `passed`. A search goes on only from a
//! bucket that a key has passed, and removing a key uncounts it, so there are no tombstones (the
//! scheme of Folly's F14). Most searches read two cache lines: the bucket and the entry.
//!
//! The low three bits of an address are zero. They are reserved for how recently the key was used:
//! eviction can then judge a bucket's keys by this line alone.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use super::entry::{BLOCK_ALIGN, prefetch};
use super::hash::{KeyHash, KeyHasher};
use super::{Entry, Origin, SharedValue, UnixMs, WrongType};

const SLOTS: usize = 9;

/// A full-grown segment has 2^5 buckets: 2 KiB, which is a size class of jemalloc, and few enough
/// keys to split in some ten microseconds.
pub(super) const MAX_BUCKET_BITS: u8 = 5;

/// Keys per bucket at which a segment grows: 8 of 9 slots.
const FULL_PER_BUCKET: usize = 8;

/// A `passed` count that has reached this value stays: searches pass the bucket forever.
const PASSED_STUCK: u8 = u8::MAX;

/// See the drawing above. One array, so that the tags load as one word.
#[derive(Clone, Copy)]
struct Bucket([u8; 64]);

/// The offset of `passed`, after the tags.
const PASSED_AT: usize = SLOTS;

/// The offset of the addresses: the low 48 bits of each.
const ADDRESSES_AT: usize = SLOTS + 1;
const ADDRESS_BYTES: usize = 6;

const _: () = assert!(ADDRESSES_AT + SLOTS * ADDRESS_BYTES == 64);

const EMPTY: Bucket = Bucket([0; 64]);

impl Bucket {
    /// A bit for each slot with this tag; tag 0 finds the free ones.
    #[inline]
    fn matching(&self, tag: u8) -> u32 {
        let (line, _) = self.0.as_chunks::<16>();
        equal_bytes(&line[0], tag) & ((1 << SLOTS) - 1)
    }

    #[inline]
    fn used(&self) -> u32 {
        !self.matching(0) & ((1 << SLOTS) - 1)
    }

    /// How many keys are in later buckets because this one was full.
    #[inline]
    fn passed(&mut self) -> &mut u8 {
        &mut self.0[PASSED_AT]
    }

    #[inline]
    fn was_passed(&self) -> bool {
        self.0[PASSED_AT] != 0
    }

    #[inline]
    fn address(&self, slot: usize) -> u64 {
        // One load of eight bytes that end with the address. There are always two bytes before it.
        let end = ADDRESSES_AT + (slot + 1) * ADDRESS_BYTES;
        let (_, wide) = self.0[..end].split_at(end - 8);
        u64::from_le_bytes(wide.try_into().unwrap_or_default()) >> 16
    }

    fn set_address(&mut self, slot: usize, address: u64) {
        let (low, high) = (&address.to_le_bytes()[..ADDRESS_BYTES], address >> 48);
        // User space ends below 2^48 on x86-64 and arm64 unless a program asks the kernel for more,
        // which no allocator does.
        assert!(high == 0, "an address above 48 bits");
        debug_assert!(address.is_multiple_of(BLOCK_ALIGN as u64));
        let at = ADDRESSES_AT + slot * ADDRESS_BYTES;
        self.0[at..at + ADDRESS_BYTES].copy_from_slice(low);
    }

    #[inline]
    fn entry(&self, slot: usize) -> EntryRef<'_> {
        debug_assert!(self.0[slot] != 0);
        // SAFETY: a slot with a tag holds the address that `put` stored there, and EntryRef only
        // reads it, and never drops it.
        let entry = unsafe { Entry::from_address(self.address(slot)) };
        EntryRef { entry: ManuallyDrop::new(entry), bucket: PhantomData }
    }

    fn put(&mut self, slot: usize, tag: u8, entry: Entry) {
        self.0[slot] = tag;
        self.set_address(slot, entry.into_address());
    }

    fn take(&mut self, slot: usize) -> Entry {
        debug_assert!(self.0[slot] != 0);
        self.0[slot] = 0;
        // SAFETY: the slot owned the entry, and has just been marked free.
        unsafe { Entry::from_address(self.address(slot)) }
    }
}

/// A bit for each byte of `line` that equals `byte`.
#[cfg(target_arch = "x86_64")]
#[inline]
fn equal_bytes(line: &[u8; 16], byte: u8) -> u32 {
    use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8};
    // SAFETY: these need SSE2, which every x86-64 processor has; the load takes 16 bytes at any
    // address.
    unsafe {
        let line = _mm_loadu_si128(line.as_ptr().cast());
        _mm_movemask_epi8(_mm_cmpeq_epi8(line, _mm_set1_epi8(byte as i8))) as u32
    }
}

/// A bit for each byte of `line` that equals `byte`.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn equal_bytes(line: &[u8; 16], byte: u8) -> u32 {
    line.iter().enumerate().fold(0, |bits, (at, &other)| bits | u32::from(other == byte) << at)
}

/// A shared reference to an entry in its slot.
pub struct EntryRef<'a> {
    entry: ManuallyDrop<Entry>,
    bucket: PhantomData<&'a Bucket>,
}

impl<'a> EntryRef<'a> {
    /// The entry, if its value is a string.
    ///
    /// # Errors
    /// [`WrongType`] if it is not.
    #[inline(always)]
    pub fn string(self) -> Result<StringRef<'a>, WrongType> {
        self.entry.check_string()?;
        Ok(StringRef(self))
    }
}

/// A shared reference to an entry whose value is a string. Values are read only through this.
pub struct StringRef<'a>(EntryRef<'a>);

impl StringRef<'_> {
    /// The value.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.0.value().bytes()
    }

    /// The value's length in bytes.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "no caller asks")]
    pub fn len(&self) -> usize {
        self.0.value_len()
    }

    /// The value's buffer, with one more reference, if the value is shared.
    pub fn shared(&self) -> Option<SharedValue> {
        self.0.shared_value()
    }

    /// The value as a buffer that outlives the hold of the shard: shared if it is, otherwise a
    /// copy.
    pub fn to_shared(&self) -> SharedValue {
        self.shared().unwrap_or_else(|| SharedValue::new(self.bytes().to_vec()))
    }

    /// The whole entry.
    pub fn entry(&self) -> &Entry {
        &self.0
    }

    /// How the value came about.
    pub fn origin(&self) -> Origin {
        self.0.origin()
    }
}

impl Deref for EntryRef<'_> {
    type Target = Entry;
    fn deref(&self) -> &Entry {
        &self.entry
    }
}

/// An entry that may move to another block. On drop, its slot gets its address.
pub(super) struct EntryMut<'a> {
    entry: ManuallyDrop<Entry>,
    bucket: &'a mut Bucket,
    slot: usize,
}

impl Deref for EntryMut<'_> {
    type Target = Entry;
    fn deref(&self) -> &Entry {
        &self.entry
    }
}

impl DerefMut for EntryMut<'_> {
    fn deref_mut(&mut self) -> &mut Entry {
        &mut self.entry
    }
}

impl Drop for EntryMut<'_> {
    fn drop(&mut self) {
        // SAFETY: `entry` is not used again: `self` is being dropped.
        let entry = unsafe { ManuallyDrop::take(&mut self.entry) };
        self.bucket.set_address(self.slot, entry.into_address());
    }
}

/// Where a key is in its segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct BucketSlot {
    bucket: u16,
    slot: u8,
    /// Whether the entry has an expiry to check.
    pub(super) may_expire: bool,
}

/// All keys of a table whose order begins with the same `depth` bits.
pub(super) struct Segment {
    buckets: Box<[Bucket]>,
    used: u32,
    /// The first order value of this segment.
    pub(super) start: u32,
    /// How many leading bits of the order all keys here share.
    pub(super) depth: u8,
    bucket_bits: u8,
    /// Not later than the first expiry among the keys here.
    pub(super) next_due: UnixMs,
}

impl Segment {
    /// An empty segment of `2^bucket_bits` buckets.
    pub(super) fn new(start: u32, depth: u8, bucket_bits: u8) -> Self {
        Segment {
            buckets: vec![EMPTY; 1 << bucket_bits].into_boxed_slice(),
            used: 0,
            start,
            depth,
            bucket_bits,
            next_due: UnixMs::MAX,
        }
    }

    /// The placeholder for a segment that was merged away.
    pub(super) fn unused() -> Self {
        Segment {
            buckets: Box::default(),
            used: 0,
            start: 0,
            depth: 0,
            bucket_bits: 0,
            next_due: UnixMs::MAX,
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

    /// Prefetches the line of a key's home bucket.
    #[inline]
    pub(super) fn prefetch(&self, hash: KeyHash) {
        prefetch(&raw const self.buckets[self.home(hash.order())]);
    }

    /// Prefetches the entry that is most likely the key's, once its bucket is in the cache.
    #[inline]
    pub(super) fn prefetch_entry(&self, hash: KeyHash) {
        let bucket = &self.buckets[self.home(hash.order())];
        let matching = bucket.matching(hash.tag());
        if matching != 0 {
            bucket.entry(matching.trailing_zeros() as usize).prefetch();
        }
    }

    /// Finds a key.
    #[inline]
    pub(super) fn find(&self, hash: KeyHash, key: &[u8]) -> Option<BucketSlot> {
        let mut at = self.home(hash.order());
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[at];
            let mut matching = bucket.matching(hash.tag());
            while matching != 0 {
                let slot = matching.trailing_zeros() as usize;
                let entry = bucket.entry(slot);
                if entry.key() == key {
                    let may_expire = entry.may_expire();
                    return Some(BucketSlot { bucket: at as u16, slot: slot as u8, may_expire });
                }
                matching &= matching - 1;
            }
            if !bucket.was_passed() {
                return None;
            }
            at = self.next(at);
        }
        None
    }

    /// The entry at a place that [`Segment::find`] gave.
    #[inline]
    pub(super) fn entry(&self, place: BucketSlot) -> EntryRef<'_> {
        self.buckets[place.bucket as usize].entry(place.slot as usize)
    }

    /// The entry at a place, to be changed. Its key must stay.
    #[inline]
    pub(super) fn entry_mut(&mut self, place: BucketSlot) -> EntryMut<'_> {
        let bucket = &mut self.buckets[place.bucket as usize];
        let slot = place.slot as usize;
        // SAFETY: the slot is in use; EntryMut keeps it borrowed and writes the address back when
        // it is dropped.
        let entry = unsafe { Entry::from_address(bucket.address(slot)) };
        EntryMut { entry: ManuallyDrop::new(entry), bucket, slot }
    }

    /// Inserts a new entry. The segment must have room.
    pub(super) fn insert(&mut self, hash: KeyHash, entry: Entry) {
        assert!(self.used() < self.buckets.len() * SLOTS);
        if let Some(at) = entry.expire_at() {
            self.next_due = self.next_due.min(at);
        }
        let mut at = self.home(hash.order());
        loop {
            let bucket = &mut self.buckets[at];
            let free = bucket.matching(0);
            if free != 0 {
                bucket.put(free.trailing_zeros() as usize, hash.tag(), entry);
                break;
            }
            *bucket.passed() = bucket.passed().saturating_add(1);
            at = self.next(at);
        }
        self.used += 1;
    }

    /// Takes an entry out.
    pub(super) fn remove(&mut self, hash: KeyHash, place: BucketSlot) -> Entry {
        let mut at = self.home(hash.order());
        while at != place.bucket as usize {
            let passed = self.buckets[at].passed();
            if *passed != PASSED_STUCK {
                *passed -= 1;
            }
            at = self.next(at);
        }
        self.used -= 1;
        self.buckets[at].take(place.slot as usize)
    }

    /// All entries.
    pub(super) fn entries(&self) -> impl Iterator<Item = EntryRef<'_>> {
        self.buckets
            .iter()
            .flat_map(|bucket| bits(bucket.used()).map(move |slot| bucket.entry(slot)))
    }

    /// Takes all entries out, in no order; the segment is then empty.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Entry> + use<> {
        self.used = 0;
        self.next_due = UnixMs::MAX;
        let mut buckets = std::mem::take(&mut self.buckets);
        (0..buckets.len() * SLOTS).filter_map(move |at| {
            let bucket = &mut buckets[at / SLOTS];
            (bucket.0[at % SLOTS] != 0).then(|| bucket.take(at % SLOTS))
        })
    }

    /// Removes what is due at `now`, and makes `next_due` exact.
    pub(super) fn remove_due(
        &mut self,
        hasher: &KeyHasher,
        now: UnixMs,
        mut removed: impl FnMut(Entry),
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

    /// How many order values fall into one bucket.
    fn bucket_width(&self) -> u64 {
        1 << (32 - self.depth - self.bucket_bits)
    }

    /// The first order value of the bucket that `order` falls into.
    pub(super) fn bucket_start(&self, order: u32) -> u32 {
        self.start + (self.home(order) as u64 * self.bucket_width()) as u32
    }

    /// Visits the keys whose home is the bucket that `order` falls into, from `order` on. Returns
    /// the first order value after that bucket.
    pub(super) fn visit_bucket(
        &self,
        hasher: &KeyHasher,
        order: u32,
        visit: &mut dyn FnMut(EntryRef<'_>),
    ) -> u64 {
        let home = self.home(order);
        let end = u64::from(self.start) + (home as u64 + 1) * self.bucket_width();
        let mut at = home;
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[at];
            bits(bucket.used()).for_each(|slot| bucket.entry(slot).prefetch());
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

fn bits(mut set: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (set != 0).then(|| {
            let at = set.trailing_zeros() as usize;
            set &= set - 1;
            at
        })
    })
}
