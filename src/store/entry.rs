//! One key with its value and expiry, in one block of the [`arena`].
//!
//! ```text
//! flags and type 1 │ key length 1 or 4 │ value length 1 or 4 │ expiry 0 or 8 │ key │ value │ traits
//! ```
//!
//! A large value that is shared is a 16-byte [`ValueRef`] in the value's place, without a length.
//! For a key and value below 256 bytes the header is 3 bytes. Blocks are rounded up to the arena's
//! size classes, so that a value can be overwritten in place within its class.
//! Traits, if there is more of them than an origin, are in `traits.rs`.
//!
//! The first byte is full. How recently a key was used, which eviction needs, is beside the entry's
//! address in the bucket: see `bucket.rs`.

mod known;
mod other;
mod overwrite;
mod shape;

use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

use super::arena;
use super::shared::ValueRef;
use super::{SharedValue, Traits, UnixMs, Value, WrongType};

pub(super) use other::{OtherValue, Referred, any_reference};
use shape::{
    HAS_EXPIRY, SHARED, SHARED_BYTES, Shape, WIDE_KEY, WIDE_VALUE, expiry_at, key_at,
    key_len_bytes, value_len_bytes,
};

/// The upper half: the type of the value. 0 to 3 are strings, by their [`Origin`]; 4 to 7 are other
/// types whose value is in the block, 8 to 15 those that have a reference there.
const TYPE: u8 = 0b1111 << 4;
const NO_STRING: u8 = 0b1100 << 4;
/// How a string came about; neither flag if it was set as it is.
const EDITED: u8 = 1 << 4;
const COMPUTED: u8 = 1 << 5;
/// Both: a string with traits behind it, which tell.
const WITH_TRAITS: u8 = EDITED | COMPUTED;

/// A hash in the block.
pub(super) const SMALL_HASH: u8 = 0b0100 << 4;
/// The same, of which fields have an expiry: the block begins with the first of these times.
pub(super) const TIMED_HASH: u8 = 0b0101 << 4;
/// A reference to a large hash.
pub(super) const LARGE_HASH: u8 = 0b1000 << 4;
/// The flag of all such references.
const REFERENCE: u8 = 0b1000 << 4;

/// The value of an expiry field that is present but unset (after PERSIST).
const NO_EXPIRY: UnixMs = UnixMs::MIN;

#[cfg(test)]
const OTHER: u8 = 0b0111 << 4;

/// An owned entry: a thin pointer to its block.
pub struct Entry(NonNull<u8>);

// SAFETY: an entry alone owns its block, and a shared value inside is Send + Sync.
unsafe impl Send for Entry {}

/// Prefetches the cache line at an address, which need not be mapped.
#[inline]
pub fn prefetch<T>(place: *const T) {
    let place: *const i8 = place.cast();
    // SAFETY: only a hint: it is harmless for any address.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch(place, _MM_HINT_T0);
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) place,
            options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = place;
}

impl Entry {
    /// A new block with this content.
    #[inline]
    pub fn new(key: &[u8], value: Value<'_>, expire_at: Option<UnixMs>) -> Self {
        Entry::with_traits(key, value, expire_at, Traits::default())
    }

    /// A new block with this content.
    #[inline(always)]
    pub(super) fn with_traits(
        key: &[u8],
        value: Value<'_>,
        expire_at: Option<UnixMs>,
        traits: Traits,
    ) -> Self {
        let mut shape = Shape::of(key, value, expire_at.is_some());
        let traits = (traits != Traits::default()).then_some(traits);
        shape.traits = traits.map_or(0, |traits| traits.written().len());
        let mut entry = Entry(arena::take(shape.block()));
        // SAFETY: the block was made for this shape, and the key is a slice of its length.
        unsafe { entry.fill(shape, key.as_ptr(), value, expire_at) };
        if let Some(traits) = traits {
            entry.write_traits(shape, traits);
        }
        entry
    }

    /// An entry with the same value and expiry under another key; a shared buffer is shared.
    pub fn copy_as(&self, key: &[u8]) -> Self {
        self.copy_with(key, self.expire_at(), self.traits())
    }

    fn copy_with(&self, key: &[u8], expire_at: Option<UnixMs>, traits: Traits) -> Self {
        let shared = self.shared_value();
        let value = shared.as_ref().map_or_else(|| self.value(), Value::Shared);
        let mut copy = Entry::with_traits(key, value, expire_at, traits);
        if self.check_string().is_err() {
            copy.set_type(self.flags());
            self.share_reference();
        }
        copy
    }

    /// An entry that no command makes.
    #[cfg(test)]
    pub(crate) fn other(key: &[u8], value: Value<'_>, expire_at: Option<UnixMs>) -> Self {
        let mut entry = Entry::new(key, value, expire_at);
        entry.set_type(OTHER);
        entry
    }

    /// Sets the type bits from `flags`; the other bits of `flags` are ignored.
    fn set_type(&mut self, flags: u8) {
        let flags = self.flags() & !TYPE | flags & TYPE;
        // SAFETY: every block has its first byte; the type bits do not affect the layout.
        unsafe { self.0.as_ptr().write(flags) }
    }

    /// Writes traits into a block that has room for them behind its value: the block is of this
    /// shape, or of one whose block has the same size.
    fn write_traits(&mut self, shape: Shape, traits: Traits) {
        let bytes = traits.written();
        if bytes.is_empty() {
            return self.set_type(traits.origin.flags());
        }
        assert!(bytes.len() == shape.traits);
        self.set_type(WITH_TRAITS);
        // SAFETY: the block has as many bytes as the shape, which has room for these behind the
        // value.
        unsafe {
            let to = self.0.as_ptr().add(shape.traits_at());
            ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Writes all parts of a block whose old content is no longer needed (nothing in it is
    /// dropped). `key` points to `shape.key_len` bytes, perhaps in this very block: so it is not a
    /// slice, which would promise that its bytes are not written to meanwhile.
    ///
    /// # Safety
    /// `key` is as described, and the block has `shape.block()` bytes.
    unsafe fn fill(
        &mut self,
        shape: Shape,
        key: *const u8,
        value: Value<'_>,
        expire_at: Option<UnixMs>,
    ) {
        let block = self.0.as_ptr();
        // SAFETY: every offset below is within `shape.block()` bytes, which the caller guarantees
        // for this block. `key` may be in this very block (overwrite), so it is moved first, with
        // overlap allowed, and only then are the bytes before it written. `value` is never in this
        // block.
        unsafe {
            let key_at = block.add(shape.key_at());
            if !ptr::eq(key, key_at) {
                ptr::copy(key, key_at, shape.key_len);
            }
            block.write(shape.flags);
            let mut at = block.add(1);
            if shape.flags & WIDE_KEY != 0 {
                at.cast::<u32>().write_unaligned(shape.key_len as u32);
            } else {
                at.write(shape.key_len as u8);
            }
            at = at.add(key_len_bytes(shape.flags));
            match value_len_bytes(shape.flags) {
                0 => {}
                1 => at.write(shape.value_len as u8),
                _ => at.cast::<u32>().write_unaligned(shape.value_len as u32),
            }
            if shape.flags & HAS_EXPIRY != 0 {
                block
                    .add(expiry_at(shape.flags))
                    .cast::<UnixMs>()
                    .write_unaligned(expire_at.unwrap_or(NO_EXPIRY));
            }
            let to = block.add(shape.value_at());
            match value {
                Value::Inline(bytes) => ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()),
                Value::Shared(shared) => {
                    to.cast::<ValueRef>().write_unaligned(ValueRef::new(shared));
                }
            }
        }
    }

    #[inline]
    fn shape(&self) -> Shape {
        let flags = self.flags();
        let (key_len, value_len) = (self.key_len(flags), self.len_in_block(flags));
        let mut shape = Shape { flags, key_len, value_len, traits: 0 };
        if flags & TYPE == WITH_TRAITS {
            shape.traits = self.traits_len(shape.traits_at());
        }
        shape
    }

    #[inline]
    fn flags(&self) -> u8 {
        // SAFETY: `fill` wrote it.
        unsafe { self.0.as_ptr().read() }
    }

    #[inline]
    fn key_len(&self, flags: u8) -> usize {
        // SAFETY: `fill` wrote the length there, in the width that the flags give.
        unsafe {
            let at = self.0.as_ptr().add(1);
            if flags & WIDE_KEY != 0 {
                at.cast::<u32>().read_unaligned() as usize
            } else {
                at.read() as usize
            }
        }
    }

    /// The value's size in the block, in bytes.
    #[inline]
    fn len_in_block(&self, flags: u8) -> usize {
        // SAFETY: as in `key_len`.
        unsafe {
            let at = self.0.as_ptr().add(1 + key_len_bytes(flags));
            match flags & (SHARED | WIDE_VALUE) {
                0 => at.read() as usize,
                WIDE_VALUE => at.cast::<u32>().read_unaligned() as usize,
                _ => SHARED_BYTES,
            }
        }
    }

    #[inline]
    fn part(&self, at: usize, len: usize) -> &[u8] {
        // SAFETY: callers pass offsets of this block's own shape; `fill` wrote the bytes, and they
        // are borrowed with the entry.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().add(at), len) }
    }

    /// Prefetches the entry's first cache lines, at least two: a short entry may cross into a
    /// second one.
    #[inline(always)]
    pub(super) fn prefetch(&self, lines: usize) {
        let line = |number| prefetch(self.0.as_ptr().wrapping_add(64 * number));
        line(0);
        line(1);
        (2..lines).for_each(line);
    }

    /// The key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        let flags = self.flags();
        self.part(key_at(flags), self.key_len(flags))
    }

    /// Whether this is its key. Most keys have 8 to 16 bytes: comparing those by two numbers, which
    /// may overlap, needs no call.
    #[inline(always)]
    pub(super) fn has_key(&self, name: &[u8]) -> bool {
        let key = self.key();
        if key.len() != name.len() {
            return false;
        }
        match (first_and_last(key), first_and_last(name)) {
            (Some(own), Some(other)) if key.len() <= 16 => own == other,
            _ => key == name,
        }
    }

    /// The value of a string. Only this and [`EntryRef::string`](super::EntryRef::string) give it.
    ///
    /// # Errors
    /// [`WrongType`] if the value is not a string.
    #[inline]
    pub fn string(&self) -> Result<&[u8], WrongType> {
        self.check_string()?;
        Ok(self.value().bytes())
    }

    /// Fails if the value is not a string.
    #[inline]
    pub(super) fn check_string(&self) -> Result<(), WrongType> {
        if self.flags() & NO_STRING == 0 { Ok(()) } else { Err(WrongType) }
    }

    /// The value's bytes, whatever its type.
    #[inline]
    pub(super) fn value(&self) -> Value<'_> {
        let shape = self.shape();
        if shape.flags & SHARED == 0 {
            return Value::Inline(self.part(shape.value_at(), shape.value_len));
        }
        // The field is unaligned, so it cannot be borrowed as a ValueRef; the buffer it points to
        // can.
        Value::Inline(self.with_shared(|shared| {
            let bytes = shared.value().bytes();
            // SAFETY: the buffer lives until this entry drops or overwrites its reference, which
            // needs `&mut self`; SharedBytes promises that it does not move.
            unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) }
        }))
    }

    /// The value's length in bytes, wherever they are.
    #[inline]
    pub(super) fn value_len(&self) -> usize {
        let flags = self.flags();
        if flags & SHARED != 0 {
            self.with_shared(|shared| shared.value().bytes().len())
        } else {
            self.len_in_block(flags)
        }
    }

    /// The shared buffer, with one more reference, if the value is one.
    pub(super) fn shared_value(&self) -> Option<SharedValue> {
        (self.flags() & SHARED != 0).then(|| self.with_shared(|shared| shared.value().clone()))
    }

    /// Takes the memory that a copy takes as long as both are there: see [`ValueRef`]. To be called
    /// for a copy before it is put beside the entry that it was made of.
    pub fn take_copys_memory(&self) {
        if self.flags() & SHARED != 0 {
            self.with_shared(ValueRef::make_room);
        }
    }

    #[cold]
    fn with_shared<R>(&self, look: impl FnOnce(&ValueRef) -> R) -> R {
        look(&self.value_ref(self.shape()))
    }

    /// A copy, bit by bit, of the reference to the shared buffer, which the entry keeps unless it
    /// overwrites or frees the field next.
    #[inline]
    fn value_ref(&self, shape: Shape) -> ManuallyDrop<ValueRef> {
        debug_assert!(shape.flags & SHARED != 0);
        // SAFETY: SHARED means that `fill` wrote a ValueRef there. ManuallyDrop keeps its count
        // unchanged.
        ManuallyDrop::new(unsafe {
            self.0.as_ptr().add(shape.value_at()).cast::<ValueRef>().read_unaligned()
        })
    }

    /// Whether the entry has an expiry field, set or not.
    #[inline]
    pub(super) fn may_expire(&self) -> bool {
        self.flags() & HAS_EXPIRY != 0
    }

    /// Changes the shared buffer in place, if this entry has its only reference and its owner
    /// allows changes.
    pub(super) fn change_shared<R>(&mut self, change: impl FnOnce(&mut Vec<u8>) -> R) -> Option<R> {
        let shape = self.shape();
        if shape.flags & SHARED == 0 {
            return None;
        }
        // No reader of this entry reads the buffer meanwhile, because of `&mut self`. The field
        // itself, a reference, does not change.
        self.value_ref(shape).bytes_mut().map(change)
    }

    /// When the entry expires; `None` for never.
    #[inline]
    pub fn expire_at(&self) -> Option<UnixMs> {
        let flags = self.flags();
        if flags & HAS_EXPIRY == 0 {
            return None;
        }
        // SAFETY: HAS_EXPIRY means that the field is there.
        let at = unsafe { self.0.as_ptr().add(expiry_at(flags)).cast::<UnixMs>().read_unaligned() };
        (at != NO_EXPIRY).then_some(at)
    }

    /// Whether the entry no longer exists for a reader at that time. In the millisecond of its
    /// expiry it still does, as in Redis.
    #[inline(always)]
    pub fn is_expired(&self, now: &super::Now) -> bool {
        self.expire_at().is_some_and(|at| now.hides(at))
    }

    /// Sets or clears the expiry. May move the entry to another block. Returns the bytes that the
    /// entry gained, as [`Entry::weight`] counts.
    pub(super) fn set_expire_at(&mut self, expire_at: Option<UnixMs>) -> i64 {
        let flags = self.flags();
        if flags & HAS_EXPIRY != 0 {
            // SAFETY: HAS_EXPIRY means that the field is there.
            unsafe {
                self.0
                    .as_ptr()
                    .add(expiry_at(flags))
                    .cast::<UnixMs>()
                    .write_unaligned(expire_at.unwrap_or(NO_EXPIRY));
            }
        } else if expire_at.is_some() {
            let new = self.copy_with(self.key(), expire_at, self.traits());
            let gained = new.bytes() as i64 - self.bytes() as i64;
            *self = new;
            return gained;
        }
        0
    }

    /// Sets a string value and an expiry; in place if the block's size class stays the same.
    /// Returns the bytes that the entry gained, as [`Entry::weight`] counts.
    pub(super) fn overwrite(&mut self, value: Value<'_>, expire_at: Option<UnixMs>) -> i64 {
        let old = self.shape();
        let key = self.part(old.key_at(), old.key_len);
        let new = Shape::of(key, value, expire_at.is_some());
        let buffers = value.buffer_bytes() as i64 - self.buffer_bytes(old.flags) as i64;
        let gained = new.block() as i64 - old.block() as i64;
        if gained != 0 {
            *self = Entry::new(key, value, expire_at);
            return gained + buffers;
        }
        let key = key.as_ptr();
        // Dropped last: the new value may be the same buffer.
        let _old = self.take_shared(old);
        // SAFETY: the block is large enough, and the key is this entry's own.
        unsafe { self.fill(new, key, value, expire_at) };
        buffers
    }

    /// Both callers overwrite or free the field next, so the reference is dropped once.
    fn take_shared(&mut self, shape: Shape) -> Option<ValueRef> {
        (shape.flags & SHARED != 0).then(|| ManuallyDrop::into_inner(self.value_ref(shape)))
    }

    /// Moves to another block of the same size, unless the arena is busy.
    pub(super) fn relocate(&mut self) {
        // SAFETY: the arena gave the block for this size. Its bytes are the entry wherever they
        // are, and the old block is forgotten.
        if let Some(block) = unsafe { arena::relocate(self.0, self.bytes()) } {
            self.0 = block;
        }
    }

    /// The block's address; [`Entry::from_address`] takes it back.
    #[inline]
    pub(super) fn into_address(self) -> u64 {
        let address = self.0.as_ptr().expose_provenance() as u64;
        std::mem::forget(self);
        address
    }

    /// The entry that [`Entry::into_address`] gave up.
    ///
    /// # Safety
    /// `address` must come from `into_address`. At any time only one owner may be made of it; a
    /// second one may only be read, and must be forgotten.
    #[inline]
    pub(super) unsafe fn from_address(address: u64) -> Self {
        let block = ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: it was a NonNull when it was given up.
        Entry(unsafe { NonNull::new_unchecked(block) })
    }
}

/// The first and the last eight bytes, as numbers.
#[inline(always)]
fn first_and_last(bytes: &[u8]) -> Option<(u64, u64)> {
    Some((u64::from_le_bytes(*bytes.first_chunk()?), u64::from_le_bytes(*bytes.last_chunk()?)))
}

impl Drop for Entry {
    fn drop(&mut self) {
        let shape = self.shape();
        drop(self.take_shared(shape));
        if shape.flags & REFERENCE != 0 {
            self.drop_reference();
        }
        // SAFETY: taken in `new` with the same block size; `overwrite` in place keeps that size.
        unsafe { arena::free(self.0, shape.block()) }
    }
}

#[cfg(test)]
mod tests;
