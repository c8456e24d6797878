//! A bucket of a segment: one cache line with the tags and addresses of nine entries.
//!
//! ```text
//! Bucket, 64 bytes: tags 9 × 1 │ passed 1 │ addresses 9 × 6
//! ```
//!
//! Three bits of the six bytes are not needed for an address: they are the slot's [`SlotMarks`], so
//! eviction judges a bucket's keys by this line alone.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use super::arena;
use super::entry::OtherValue;
use super::{Entry, Origin, SharedValue, Traits, WrongType};

pub(super) const SLOTS: usize = 9;

/// See the drawing above. One array, so that the tags load as one word. Atomic, so that a read can
/// note that it has found a key; only the thread that holds the shard does.
pub(super) struct Bucket([AtomicU8; 64]);

/// What eviction knows of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotMarks(u8);

impl SlotMarks {
    /// It was used since the hand of its class last passed.
    pub(super) const HIT: SlotMarks = SlotMarks(1);
    /// It is of the main class: it was used while it was on probation.
    pub(super) const MAIN: SlotMarks = SlotMarks(1 << 1);
    /// It has an expiry.
    pub(super) const EXPIRES: SlotMarks = SlotMarks(1 << 2);

    const ALL: u8 = 0b111;

    #[inline]
    pub(super) fn has(self, any: SlotMarks) -> bool {
        self.0 & any.0 != 0
    }

    /// The same, of a key that has an expiry, or has none.
    #[inline]
    fn expiring(self, expires: bool) -> SlotMarks {
        SlotMarks(self.0 & !SlotMarks::EXPIRES.0 | if expires { SlotMarks::EXPIRES.0 } else { 0 })
    }

    /// Those of an entry that is new to its table: on probation.
    #[inline]
    pub(super) fn of_new(entry: &Entry) -> SlotMarks {
        SlotMarks::default().expiring(entry.expire_at().is_some())
    }
}

/// The offset of `passed`, after the tags.
const PASSED_AT: usize = SLOTS;

/// The offset of the addresses. Each is moved up so far that the marks have room below it.
const ADDRESSES_AT: usize = SLOTS + 1;
const ADDRESS_BYTES: usize = 6;
const MOVED_UP: u32 = (SlotMarks::ALL as usize + 1).ilog2() - arena::ALIGN.ilog2();

const _: () = assert!(ADDRESSES_AT + SLOTS * ADDRESS_BYTES == 64);

impl Bucket {
    pub(super) const fn new() -> Self {
        Bucket([const { AtomicU8::new(0) }; 64])
    }

    #[inline]
    fn bytes(&self) -> &[u8; 64] {
        // SAFETY: atomics have the layout of their integers. The only write through a shared
        // reference is that of `EntryRef::note_use`, by the thread that holds the shard, while no
        // reference to the bytes is in use: none leaves this type.
        unsafe { &*(&raw const self.0).cast() }
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8; 64] {
        // SAFETY: as above, and the bucket is borrowed alone.
        unsafe { &mut *(&raw mut self.0).cast() }
    }

    /// A bit for each slot with this tag; tag 0 finds the free ones.
    #[inline]
    pub(super) fn matching(&self, tag: u8) -> u32 {
        let (line, _) = self.bytes().as_chunks::<16>();
        equal_bytes(&line[0], tag) & ((1 << SLOTS) - 1)
    }

    /// A bit for each slot that has a key.
    #[inline]
    pub(super) fn used(&self) -> u32 {
        !self.matching(0) & ((1 << SLOTS) - 1)
    }

    pub(super) fn is_used(&self, slot: usize) -> bool {
        self.bytes()[slot] != 0
    }

    /// Counts a key that goes to a later bucket because this one is full. A count that has reached
    /// the highest value stays: searches pass the bucket forever.
    pub(super) fn pass(&mut self) {
        let passed = &mut self.bytes_mut()[PASSED_AT];
        *passed = passed.saturating_add(1);
    }

    /// A key that passed the bucket is removed.
    pub(super) fn unpass(&mut self) {
        let passed = &mut self.bytes_mut()[PASSED_AT];
        if *passed != u8::MAX {
            *passed -= 1;
        }
    }

    /// Whether keys are in later buckets because this one was full.
    #[inline]
    pub(super) fn was_passed(&self) -> bool {
        self.bytes()[PASSED_AT] != 0
    }

    #[inline(always)]
    fn address(&self, slot: usize) -> u64 {
        // One load of eight bytes that end with the address. There are always two bytes before it.
        let end = ADDRESSES_AT + (slot + 1) * ADDRESS_BYTES;
        let (_, wide) = self.bytes()[..end].split_at(end - 8);
        let wide = u64::from_le_bytes(wide.try_into().unwrap_or_default());
        wide >> (16 + MOVED_UP) & !(arena::ALIGN as u64 - 1)
    }

    /// The byte of a slot that has its marks.
    #[inline]
    fn marks_at(slot: usize) -> usize {
        ADDRESSES_AT + slot * ADDRESS_BYTES
    }

    /// The marks of a slot that has a key.
    #[inline]
    pub(super) fn marks(&self, slot: usize) -> SlotMarks {
        SlotMarks(self.bytes()[Self::marks_at(slot)] & SlotMarks::ALL)
    }

    /// Sets or clears a mark of a slot that has a key.
    #[inline]
    pub(super) fn set_mark(&mut self, slot: usize, mark: SlotMarks, is_set: bool) {
        let byte = &mut self.bytes_mut()[Self::marks_at(slot)];
        *byte = *byte & !mark.0 | if is_set { mark.0 } else { 0 };
    }

    #[inline]
    fn set_address(&mut self, slot: usize, address: u64, marks: SlotMarks) {
        debug_assert!(address.is_multiple_of(arena::ALIGN as u64));
        let word = address << MOVED_UP | u64::from(marks.0);
        let (low, high) = (&word.to_le_bytes()[..ADDRESS_BYTES], word >> 48);
        // User space ends at 2^47 on x86-64, and at 2^48 on arm64, unless a program asks the kernel
        // for more, which no allocator does.
        assert!(high == 0, "an address above user space");
        let at = ADDRESSES_AT + slot * ADDRESS_BYTES;
        self.bytes_mut()[at..at + ADDRESS_BYTES].copy_from_slice(low);
    }

    /// The entry in a slot that has one.
    #[inline(always)]
    pub(super) fn entry(&self, slot: usize) -> EntryRef<'_> {
        debug_assert!(self.is_used(slot));
        // SAFETY: a slot with a tag holds the address that `put` stored there, and EntryRef only
        // reads it, and never drops it.
        let entry = unsafe { Entry::from_address(self.address(slot)) };
        EntryRef { entry: ManuallyDrop::new(entry), marks: &self.0[Self::marks_at(slot)] }
    }

    /// The same, to be changed. Its key must stay.
    #[inline(always)]
    pub(super) fn entry_mut(&mut self, slot: usize) -> EntryMut<'_> {
        // SAFETY: the slot is in use; EntryMut keeps it borrowed and writes the address back when
        // it is dropped.
        let entry = unsafe { Entry::from_address(self.address(slot)) };
        EntryMut { entry: ManuallyDrop::new(entry), bucket: self, slot }
    }

    /// Moves the entries that are in chunks that are to be emptied.
    fn pack(&mut self) {
        for slot in bits(self.used()) {
            if arena::is_leaving(self.address(slot) as usize) {
                self.entry_mut(slot).relocate();
            }
        }
    }

    /// Puts an entry into a free slot, with marks that fit it.
    pub(super) fn put(&mut self, slot: usize, tag: u8, (entry, marks): Marked) {
        self.bytes_mut()[slot] = tag;
        self.set_address(slot, entry.into_address(), marks);
    }

    /// Takes the entry out of a slot that has one.
    pub(super) fn take(&mut self, slot: usize) -> Marked {
        debug_assert!(self.is_used(slot));
        self.bytes_mut()[slot] = 0;
        // SAFETY: the slot owned the entry, and has just been marked free.
        (unsafe { Entry::from_address(self.address(slot)) }, self.marks(slot))
    }
}

/// An entry out of a bucket, and the marks that go with it.
pub(super) type Marked = (Entry, SlotMarks);

/// Buckets in a row, in one block of the arena.
pub(super) struct Buckets {
    first: NonNull<Bucket>,
    count: usize,
}

// SAFETY: a row alone owns its block, and entries are Send.
unsafe impl Send for Buckets {}
// SAFETY: through a shared reference the row is only read, but for the marks that the holder of the
// shard alone writes (`EntryRef::note_use`).
unsafe impl Sync for Buckets {}

impl Buckets {
    /// Empty ones.
    pub(super) fn new(count: usize) -> Self {
        let first = arena::take(count * size_of::<Bucket>()).cast::<Bucket>();
        for at in 0..count {
            // SAFETY: the block has room for so many, and nothing is in it yet.
            unsafe { first.add(at).write(Bucket::new()) };
        }
        Buckets { first, count }
    }
}

impl Buckets {
    /// Moves entries, and the row itself, out of chunks that are to be emptied.
    pub(super) fn pack(&mut self) {
        self.iter_mut().for_each(Bucket::pack);
        let bytes = self.count * size_of::<Bucket>();
        if self.count > 0 && arena::is_leaving(self.first.addr().get()) {
            // SAFETY: `new` took it, with this size; the old block is forgotten.
            if let Some(block) = unsafe { arena::relocate(self.first.cast(), bytes) } {
                self.first = block.cast();
            }
        }
    }
}

impl Default for Buckets {
    fn default() -> Self {
        Buckets { first: NonNull::dangling(), count: 0 }
    }
}

impl Deref for Buckets {
    type Target = [Bucket];
    #[inline]
    fn deref(&self) -> &[Bucket] {
        // SAFETY: `new` wrote so many.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

impl DerefMut for Buckets {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Bucket] {
        // SAFETY: `new` wrote so many, and the row alone has them.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.count) }
    }
}

impl Drop for Buckets {
    fn drop(&mut self) {
        if self.count > 0 {
            // SAFETY: `new` took it, with the same size.
            unsafe { arena::free(self.first.cast(), self.count * size_of::<Bucket>()) };
        }
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
    marks: &'a AtomicU8,
}

impl<'a> EntryRef<'a> {
    /// Notes for eviction that the key was used. The holder of the shard alone may call it.
    #[inline]
    pub fn note_use(&self) {
        let marks = self.marks.load(Relaxed);
        if marks & SlotMarks::HIT.0 == 0 {
            self.marks.store(marks | SlotMarks::HIT.0, Relaxed);
        }
    }

    /// Whether the last look by eviction is followed by a use.
    #[inline]
    pub fn is_use_noted(&self) -> bool {
        self.marks.load(Relaxed) & SlotMarks::HIT.0 != 0
    }

    /// How often the key was used, as far as eviction tells: 0 to 3, and 0 for one that was not.
    #[inline]
    pub fn frequency(&self) -> u8 {
        self.marks.load(Relaxed) & (SlotMarks::HIT.0 | SlotMarks::MAIN.0)
    }

    /// The entry, if its value is a string.
    ///
    /// # Errors
    /// [`WrongType`] if it is not.
    #[inline(always)]
    pub fn string(self) -> Result<StringRef<'a>, WrongType> {
        self.entry.check_string()?;
        Ok(StringRef(self))
    }

    /// The value, if it is no string.
    #[inline]
    pub(super) fn into_other(self) -> OtherValue<'a> {
        let value = self.entry.other_value();
        // SAFETY: it is in the entry's block, or what that refers to. Both stay until the entry is
        // changed, for which its bucket would have to be borrowed alone.
        unsafe { std::mem::transmute::<OtherValue<'_>, OtherValue<'a>>(value) }
    }

    /// The key and the value's bytes.
    pub(super) fn into_parts(self) -> (&'a [u8], &'a [u8]) {
        let (key, value) = (self.entry.key(), self.entry.value().bytes());
        // SAFETY: as in `into_other`.
        unsafe {
            (
                std::slice::from_raw_parts(key.as_ptr(), key.len()),
                std::slice::from_raw_parts(value.as_ptr(), value.len()),
            )
        }
    }
}

impl Clone for EntryRef<'_> {
    #[inline]
    fn clone(&self) -> Self {
        // SAFETY: as in `Bucket::entry`, whose borrow it shares: it only reads the entry, and never
        // drops it.
        let entry = unsafe { std::ptr::read(&raw const *self.entry) };
        EntryRef { entry: ManuallyDrop::new(entry), marks: self.marks }
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

    /// See [`EntryRef::note_use`].
    #[inline]
    pub fn note_use(&self) {
        self.0.note_use();
    }

    /// The whole entry.
    pub fn entry(&self) -> &Entry {
        &self.0
    }

    /// How the value came about.
    pub fn origin(&self) -> Origin {
        self.0.origin()
    }

    /// What is known of the value.
    #[inline]
    pub fn traits(&self) -> Traits {
        self.0.traits()
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

impl EntryMut<'_> {
    /// The entry has not moved: its slot has its address.
    #[inline(always)]
    pub(super) fn stays(self) {
        std::mem::forget(self);
    }
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
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: `entry` is not used again: `self` is being dropped.
        let entry = unsafe { ManuallyDrop::take(&mut self.entry) };
        let marks = self.bucket.marks(self.slot).expiring(entry.expire_at().is_some());
        self.bucket.set_address(self.slot, entry.into_address(), marks);
    }
}

/// The numbers of the bits in a set.
pub(super) fn bits(mut set: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (set != 0).then(|| {
            let at = set.trailing_zeros() as usize;
            set &= set - 1;
            at
        })
    })
}
