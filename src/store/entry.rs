//! One key with its value and expiry, in one block of the host's allocator.
//!
//! ```text
//! flags and type 1 │ key length 1 or 4 │ value length 1 or 4 │ expiry 0 or 8 │ key │ value
//! ```
//!
//! A large value that is shared is a 16-byte [`SharedValue`] in the value's place, without a
//! length. For a key and value below 256 bytes the header is 3 bytes. Blocks are rounded up to the
//! host allocator's own size classes, so that a value can be overwritten in place within its class.
//!
//! The first byte is full. How recently a key was used, which eviction will need, goes beside the
//! entry's address in the bucket, where three bits are free: see `segment.rs`.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};

use super::{SharedValue, UnixMs};

const HAS_EXPIRY: u8 = 1 << 0;
const WIDE_KEY: u8 = 1 << 1;
const WIDE_VALUE: u8 = 1 << 2;
const SHARED: u8 = 1 << 3;
/// The upper half: the type of the value. 0 to 3 are strings, by their [`Origin`]; 4 to 15 are for
/// other types.
const TYPE: u8 = 0b1111 << 4;
const NO_STRING: u8 = 0b1100 << 4;
/// How a string came about; neither flag if it was set as it is.
const EDITED: u8 = 1 << 4;
const COMPUTED: u8 = 1 << 5;

/// The value of an expiry field that is present but unset (after PERSIST).
const NO_EXPIRY: UnixMs = UnixMs::MIN;

const EXPIRY_BYTES: usize = size_of::<UnixMs>();
const SHARED_BYTES: usize = size_of::<SharedValue>();

/// A value to be stored in an entry, or a view of the one inside.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    /// Bytes to be copied into the entry's block.
    Inline(&'a [u8]),
    /// A buffer to be shared, not copied.
    Shared(&'a SharedValue),
}

impl<'a> Value<'a> {
    /// The value's bytes, wherever they are.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Value::Inline(bytes) => bytes,
            Value::Shared(shared) => shared.bytes(),
        }
    }
}

/// How a value came about. Only OBJECT ENCODING reports it, because Redis keeps such values in
/// other forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It was set as it is, or is an integer that was computed.
    Given,
    /// A part of it was written.
    Edited,
    /// It was computed as a floating-point number.
    Computed,
}

impl Origin {
    fn flags(self) -> u8 {
        match self {
            Origin::Given => 0,
            Origin::Edited => EDITED,
            Origin::Computed => COMPUTED,
        }
    }
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Bytes.
    String,
    /// A type that no command makes, to test that commands check types.
    #[cfg(test)]
    Other,
}

#[cfg(test)]
const OTHER: u8 = 0b0101 << 4;

impl Type {
    /// The name in TYPE.
    pub fn name(self) -> &'static str {
        match self {
            Type::String => "string",
            #[cfg(test)]
            Type::Other => "other",
        }
    }
}

/// The value is not of the type that the caller needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongType;

/// An owned entry: a thin pointer to its block.
pub struct Entry(NonNull<u8>);

// SAFETY: an entry alone owns its block, and a shared value inside is Send + Sync.
unsafe impl Send for Entry {}

const fn key_len_bytes(flags: u8) -> usize {
    if flags & WIDE_KEY != 0 { 4 } else { 1 }
}

const fn value_len_bytes(flags: u8) -> usize {
    match flags & (SHARED | WIDE_VALUE) {
        0 => 1,
        WIDE_VALUE => 4,
        _ => 0,
    }
}

/// The number of combinations of the flags that define the layout: those up to `SHARED`.
const FLAGS: usize = 16;

/// The offset of the key for each combination of flags: every command that finds a key needs it,
/// more than once.
const KEY_AT: [u8; FLAGS] = {
    let mut bytes = [0; FLAGS];
    let mut flags = 0;
    while flags < FLAGS {
        let expiry = if flags as u8 & HAS_EXPIRY != 0 { EXPIRY_BYTES } else { 0 };
        bytes[flags] =
            (1 + key_len_bytes(flags as u8) + value_len_bytes(flags as u8) + expiry) as u8;
        flags += 1;
    }
    bytes
};

#[inline]
fn key_at(flags: u8) -> usize {
    KEY_AT[flags as usize % FLAGS] as usize
}

/// The offset of the expiry, in a block that has one: just before the key.
#[inline]
fn expiry_at(flags: u8) -> usize {
    key_at(flags) - EXPIRY_BYTES
}

/// The layout of a block.
#[derive(Clone, Copy)]
struct Shape {
    flags: u8,
    key_len: usize,
    /// The value's size in the block, in bytes.
    value_len: usize,
}

impl Shape {
    /// The shape of a new block.
    ///
    /// Lengths above `u32::MAX` do not fit. The command layer's limits keep arguments far below it.
    fn of(key: &[u8], value: Value<'_>, with_expiry: bool) -> Self {
        let mut flags = 0;
        if with_expiry {
            flags |= HAS_EXPIRY;
        }
        if key.len() > u8::MAX as usize {
            flags |= WIDE_KEY;
        }
        let value_len = match value {
            Value::Shared(_) => {
                flags |= SHARED;
                SHARED_BYTES
            }
            Value::Inline(bytes) => bytes.len(),
        };
        if value_len > u8::MAX as usize {
            flags |= WIDE_VALUE;
        }
        assert!(key.len() <= u32::MAX as usize && value_len <= u32::MAX as usize);
        Shape { flags, key_len: key.len(), value_len }
    }

    #[inline]
    fn key_at(self) -> usize {
        key_at(self.flags)
    }

    #[inline]
    fn value_at(self) -> usize {
        self.key_at() + self.key_len
    }

    #[inline]
    fn block(self) -> usize {
        block_bytes(self.value_at() + self.value_len)
    }
}

/// The size that a block of `bytes` takes from the allocator: the size classes of jemalloc, which
/// Redis and Valkey use (16-byte steps up to 128, then four steps per doubling). Other allocators
/// round no more coarsely than that.
#[inline]
pub fn block_bytes(bytes: usize) -> usize {
    if bytes <= 8 {
        return 8;
    }
    let step = if bytes <= 128 { 16 } else { bytes.next_power_of_two() / 8 };
    // Steps are powers of two, which the compiler cannot know: no division.
    (bytes + step - 1) & !(step - 1)
}

/// Prefetches the cache line at an address, which need not be mapped.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn prefetch<T>(place: *const T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: only a hint: it is harmless for any address.
    unsafe { _mm_prefetch(place.cast(), _MM_HINT_T0) };
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub fn prefetch<T>(_: *const T) {}

/// Every size class is a multiple of it: a block's address ends in three zero bits.
pub(super) const BLOCK_ALIGN: usize = 8;

fn layout(block: usize) -> Layout {
    Layout::from_size_align(block, BLOCK_ALIGN).expect("entries are far below isize::MAX")
}

impl Entry {
    /// A new block with this content.
    pub fn new(key: &[u8], value: Value<'_>, expire_at: Option<UnixMs>) -> Self {
        let shape = Shape::of(key, value, expire_at.is_some());
        let layout = layout(shape.block());
        // SAFETY: the layout's size is at least 8.
        let block = unsafe { alloc(layout) };
        let Some(block) = NonNull::new(block) else { handle_alloc_error(layout) };
        let mut entry = Entry(block);
        // SAFETY: the block was made for this shape, and the key is a slice of its length.
        unsafe { entry.fill(shape, key.as_ptr(), value, expire_at) };
        entry
    }

    /// An entry with the same value and expiry under another key; a shared buffer is shared.
    pub fn copy_as(&self, key: &[u8]) -> Self {
        let shared = self.shared_value();
        let value = shared.as_ref().map_or_else(|| self.value(), Value::Shared);
        let mut copy = Entry::new(key, value, self.expire_at());
        copy.set_type(self.flags());
        copy
    }

    /// The type of the value.
    pub fn value_type(&self) -> Type {
        match self.flags() & TYPE {
            #[cfg(test)]
            OTHER => Type::Other,
            _ => Type::String,
        }
    }

    /// An entry that no command makes.
    #[cfg(test)]
    pub(crate) fn other(key: &[u8], value: Value<'_>, expire_at: Option<UnixMs>) -> Self {
        let mut entry = Entry::new(key, value, expire_at);
        entry.set_type(OTHER);
        entry
    }

    /// How the value came about.
    pub(super) fn origin(&self) -> Origin {
        match self.flags() & (EDITED | COMPUTED) {
            0 => Origin::Given,
            EDITED => Origin::Edited,
            _ => Origin::Computed,
        }
    }

    /// Notes how a string came about, until it is overwritten.
    pub(super) fn set_origin(&mut self, origin: Origin) {
        if self.check_string().is_ok() {
            self.set_type(origin.flags());
        }
    }

    /// Sets the type bits from `flags`; the other bits of `flags` are ignored.
    fn set_type(&mut self, flags: u8) {
        let flags = self.flags() & !TYPE | flags & TYPE;
        // SAFETY: every block has its first byte; the type bits do not affect the layout.
        unsafe { self.0.as_ptr().write(flags) }
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
                Value::Shared(shared) => to.cast::<SharedValue>().write_unaligned(shared.clone()),
            }
        }
    }

    #[inline]
    fn shape(&self) -> Shape {
        let flags = self.flags();
        Shape { flags, key_len: self.key_len(flags), value_len: self.len_in_block(flags) }
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

    /// Prefetches the entry's first bytes.
    #[inline]
    pub(super) fn prefetch(&self) {
        let block = self.0.as_ptr();
        prefetch(block);
        // A short entry may cross into a second line.
        prefetch(block.wrapping_add(64));
    }

    /// The key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        let flags = self.flags();
        self.part(key_at(flags), self.key_len(flags))
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
        // The field is unaligned, so it cannot be borrowed as a SharedValue; the buffer it points
        // to can.
        Value::Inline(self.with_shared(|shared| {
            let bytes = shared.bytes();
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
            self.with_shared(|shared| shared.bytes().len())
        } else {
            self.len_in_block(flags)
        }
    }

    /// The shared buffer, with one more reference, if the value is one.
    pub(super) fn shared_value(&self) -> Option<SharedValue> {
        (self.flags() & SHARED != 0).then(|| self.with_shared(SharedValue::clone))
    }

    #[cold]
    fn with_shared<R>(&self, look: impl FnOnce(&SharedValue) -> R) -> R {
        let shape = self.shape();
        debug_assert!(shape.flags & SHARED != 0);
        // SAFETY: SHARED means that `fill` wrote a SharedValue there. The bitwise copy is only
        // read: ManuallyDrop keeps its count unchanged.
        let shared = unsafe {
            std::mem::ManuallyDrop::new(
                self.0.as_ptr().add(shape.value_at()).cast::<SharedValue>().read_unaligned(),
            )
        };
        look(&shared)
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
        // SAFETY: as in `with_shared`; `&mut self` guarantees that no reader of this entry reads
        // the buffer meanwhile. The field itself, a reference, does not change.
        let mut shared = unsafe {
            std::mem::ManuallyDrop::new(
                self.0.as_ptr().add(shape.value_at()).cast::<SharedValue>().read_unaligned(),
            )
        };
        shared.bytes_mut().map(change)
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
    #[inline]
    pub fn is_expired(&self, now: &super::Now) -> bool {
        self.expire_at().is_some_and(|at| at < now.ms())
    }

    /// Sets or clears the expiry. May move the entry to another block. Returns the bytes that the
    /// entry gained.
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
            let shared = self.shared_value();
            let value = match &shared {
                Some(shared) => Value::Shared(shared),
                None => self.value(),
            };
            let mut new = Entry::new(self.key(), value, expire_at);
            new.set_type(self.flags());
            let gained = new.bytes() as i64 - self.bytes() as i64;
            *self = new;
            return gained;
        }
        0
    }

    /// Sets a string value and an expiry; in place if the block's size class stays the same.
    /// Returns the bytes that the entry gained.
    pub(super) fn overwrite(&mut self, value: Value<'_>, expire_at: Option<UnixMs>) -> i64 {
        let old = self.shape();
        let key = self.part(old.key_at(), old.key_len);
        let new = Shape::of(key, value, expire_at.is_some());
        let gained = new.block() as i64 - old.block() as i64;
        if gained != 0 {
            *self = Entry::new(key, value, expire_at);
            return gained;
        }
        let key = key.as_ptr();
        self.drop_shared(old);
        // SAFETY: the block is large enough, and the key is this entry's own.
        unsafe { self.fill(new, key, value, expire_at) };
        0
    }

    fn drop_shared(&mut self, shape: Shape) {
        if shape.flags & SHARED != 0 {
            // SAFETY: `fill` wrote a SharedValue there; both callers overwrite or free the field
            // next, so it is dropped once.
            unsafe {
                drop(self.0.as_ptr().add(shape.value_at()).cast::<SharedValue>().read_unaligned());
            }
        }
    }

    /// Bytes that the entry takes from the allocator (a shared buffer is not counted).
    #[inline]
    pub fn bytes(&self) -> usize {
        self.shape().block()
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

impl Drop for Entry {
    fn drop(&mut self) {
        let shape = self.shape();
        self.drop_shared(shape);
        // SAFETY: allocated in `new` with the layout of the same block size;
        // `overwrite` in place keeps that size.
        unsafe { dealloc(self.0.as_ptr(), layout(shape.block())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(entry: &Entry, key: &[u8], value: &[u8], expire_at: Option<UnixMs>) {
        assert_eq!(entry.key(), key);
        assert_eq!(entry.value().bytes(), value);
        assert_eq!(entry.expire_at(), expire_at);
        assert_eq!(entry.bytes(), block_bytes(entry.bytes()));
    }

    #[test]
    fn every_shape_round_trips() {
        for key_len in [0, 1, 255, 256, 70_000] {
            for value_len in [0, 1, 17, 255, 256, 100_000] {
                for expire_at in [None, Some(0), Some(-5), Some(UnixMs::MAX)] {
                    let key = vec![7; key_len];
                    let value = vec![9; value_len];
                    let entry = Entry::new(&key, Value::Inline(&value), expire_at);
                    check(&entry, &key, &value, expire_at);
                }
            }
        }
    }

    #[test]
    fn overwriting_reaches_every_shape_from_every_shape() {
        let shared = SharedValue::new(vec![5; 40_000]);
        let long = vec![1; 300];
        let values = [
            Value::Inline(b""),
            Value::Inline(b"0123456789"),
            Value::Inline(&long),
            Value::Shared(&shared),
        ];
        let key = b"some key";
        for from in values {
            for to in values {
                for (before, after) in
                    [(None, None), (Some(1), None), (None, Some(2)), (Some(3), Some(4))]
                {
                    let mut entry = Entry::new(key, from, before);
                    entry.overwrite(to, after);
                    check(&entry, key, to.bytes(), after);
                }
            }
        }
    }

    #[test]
    fn expiry_comes_and_goes() {
        let mut entry = Entry::new(b"k", Value::Inline(b"v"), None);
        for expire_at in [None, Some(10), None, Some(20)] {
            entry.set_expire_at(expire_at);
            check(&entry, b"k", b"v", expire_at);
        }
    }

    #[test]
    fn an_origin_stays_until_the_value_is_overwritten() {
        for origin in [Origin::Edited, Origin::Computed, Origin::Given] {
            let mut entry = Entry::new(b"k", Value::Inline(b"v"), None);
            entry.set_origin(origin);
            for expire_at in [None, Some(10), None] {
                entry.set_expire_at(expire_at);
                check(&entry, b"k", b"v", expire_at);
                assert_eq!(entry.origin(), origin);
            }
            assert_eq!(entry.copy_as(b"other").origin(), origin);
            entry.overwrite(Value::Inline(b"w"), None);
            assert_eq!(entry.origin(), Origin::Given);
        }
    }

    #[test]
    fn a_type_stays_with_the_value() {
        for value in [Value::Inline(b"v"), Value::Shared(&SharedValue::new(vec![5; 40_000]))] {
            let mut entry = Entry::other(b"k", value, None);
            for expire_at in [None, Some(10), None] {
                entry.set_expire_at(expire_at);
                check(&entry, b"k", value.bytes(), expire_at);
                assert_eq!((entry.value_type(), entry.string()), (Type::Other, Err(WrongType)));
            }
            entry.set_origin(Origin::Edited);
            assert_eq!(entry.copy_as(b"other").value_type(), Type::Other);
            entry.overwrite(Value::Inline(b"w"), None);
            assert_eq!((entry.value_type(), entry.string()), (Type::String, Ok(&b"w"[..])));
        }
    }

    #[test]
    fn shared_buffers_are_freed_with_their_last_entry() {
        let buffer = std::sync::Arc::new(vec![0u8; 10]);
        struct Probe(std::sync::Arc<Vec<u8>>);
        impl crate::store::SharedBytes for Probe {
            fn bytes(&self) -> &[u8] {
                &self.0
            }
        }
        let value = SharedValue::new(Probe(buffer.clone()));
        let mut a = Entry::new(b"a", Value::Shared(&value), None);
        let mut b = Entry::new(b"b", Value::Shared(&a.shared_value().unwrap()), Some(1));
        drop(value);
        a.set_expire_at(Some(3));
        b.overwrite(Value::Inline(b"small"), None);
        assert_eq!(std::sync::Arc::strong_count(&buffer), 2);
        drop(a);
        assert_eq!(std::sync::Arc::strong_count(&buffer), 1);
    }

    #[test]
    fn a_buffer_is_changed_in_place_by_its_only_holder() {
        let mut entry =
            Entry::new(b"k", Value::Shared(&SharedValue::new(b"buffer".to_vec())), Some(5));
        assert_eq!(entry.change_shared(|bytes| bytes.extend_from_slice(b"!")), Some(()));
        check(&entry, b"k", b"buffer!", Some(5));
        let held = entry.shared_value();
        assert_eq!(entry.change_shared(|bytes| bytes.clear()), None, "it is shared");
        drop(held);
        assert_eq!(entry.change_shared(|bytes| bytes.len()), Some(7));
        entry.overwrite(Value::Inline(b"inline"), None);
        assert_eq!(entry.change_shared(|bytes| bytes.clear()), None);
        check(&entry, b"k", b"inline", None);
    }

    #[test]
    fn block_sizes_are_jemalloc_classes() {
        for (bytes, class) in [
            (1, 8),
            (9, 16),
            (17, 32),
            (128, 128),
            (129, 160),
            (160, 160),
            (161, 192),
            (257, 320),
            (1025, 1280),
            (4097, 5120),
        ] {
            assert_eq!(block_bytes(bytes), class, "{bytes}");
        }
    }
}
