//! One key with its value and expiry, in one block of the host's allocator.
//!
//! ```text
//! flags 1 │ key length 1 or 4 │ value length 1 or 4 │ expiry 0 or 8 │ key │ value
//! ```
//!
//! A large value that somebody else owns stands as a 16-byte [`SharedValue`] in
//! the value's place, without a length. For a key and value below 256 bytes
//! the header is 3 bytes. Blocks are rounded up to the host allocator's own
//! size classes, so that a value can be overwritten in place within its class.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};

use super::{SharedValue, UnixMs};

const HAS_EXPIRY: u8 = 1 << 0;
const WIDE_KEY: u8 = 1 << 1;
const WIDE_VALUE: u8 = 1 << 2;
const SHARED: u8 = 1 << 3;

/// Stands in an expiry field that is there but unset (after PERSIST).
const NO_EXPIRY: UnixMs = UnixMs::MIN;

const SHARED_BYTES: usize = size_of::<SharedValue>();

/// A value on its way into an entry, or a view of the one inside.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    /// Bytes to be copied into the entry's block.
    Inline(&'a [u8]),
    /// A buffer to be kept as it is.
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

/// An owned entry: a thin pointer to its block.
pub struct Entry(NonNull<u8>);

// SAFETY: an entry owns its block alone, and a shared value inside is Send + Sync.
unsafe impl Send for Entry {}

/// Where the parts of a block lie.
#[derive(Clone, Copy)]
struct Shape {
    flags: u8,
    key_len: usize,
    /// Bytes that the value takes in the block.
    value_len: usize,
}

impl Shape {
    /// The shape of a new block.
    ///
    /// Lengths above `u32::MAX` do not fit. The command layer's limits keep
    /// arguments far below it.
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
    fn key_len_bytes(self) -> usize {
        if self.flags & WIDE_KEY != 0 { 4 } else { 1 }
    }

    #[inline]
    fn value_len_bytes(self) -> usize {
        match self.flags & (SHARED | WIDE_VALUE) {
            0 => 1,
            WIDE_VALUE => 4,
            _ => 0,
        }
    }

    #[inline]
    fn expiry_at(self) -> usize {
        1 + self.key_len_bytes() + self.value_len_bytes()
    }

    #[inline]
    fn key_at(self) -> usize {
        self.expiry_at() + if self.flags & HAS_EXPIRY != 0 { 8 } else { 0 }
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

/// The size that a block of `bytes` takes from the allocator: the size classes
/// of jemalloc, which Redis and Valkey use (16-byte steps up to 128, then four
/// steps per doubling). Other allocators round no coarser than that.
pub fn block_bytes(bytes: usize) -> usize {
    if bytes <= 8 {
        return 8;
    }
    let step = if bytes <= 128 { 16 } else { bytes.next_power_of_two() / 8 };
    bytes.div_ceil(step) * step
}

fn layout(block: usize) -> Layout {
    Layout::from_size_align(block, 1).expect("entries are far below isize::MAX")
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
        entry.fill(shape, key.as_ptr(), value, expire_at);
        entry
    }

    /// Writes all parts of a block whose old content is not needed any more
    /// (nothing in it is dropped). `key` points to `shape.key_len` bytes, perhaps
    /// in this very block; so it is no slice, which would promise that what it
    /// shows is not written to meanwhile.
    fn fill(&mut self, shape: Shape, key: *const u8, value: Value<'_>, expire_at: Option<UnixMs>) {
        let block = self.0.as_ptr();
        // SAFETY: every offset below lies within `shape.block()` bytes, which
        // the caller made sure this block has. `key` may lie in this very
        // block (overwrite), so it is moved first, with overlap allowed, and
        // only then are the bytes before it written. `value` never lies here.
        unsafe {
            ptr::copy(key, block.add(shape.key_at()), shape.key_len);
            block.write(shape.flags);
            let mut at = block.add(1);
            if shape.flags & WIDE_KEY != 0 {
                at.cast::<u32>().write_unaligned(shape.key_len as u32);
            } else {
                at.write(shape.key_len as u8);
            }
            at = at.add(shape.key_len_bytes());
            match shape.value_len_bytes() {
                0 => {}
                1 => at.write(shape.value_len as u8),
                _ => at.cast::<u32>().write_unaligned(shape.value_len as u32),
            }
            if shape.flags & HAS_EXPIRY != 0 {
                block.add(shape.expiry_at()).cast::<UnixMs>().write_unaligned(expire_at.unwrap_or(NO_EXPIRY));
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
        let block = self.0.as_ptr();
        // SAFETY: the block was filled by `fill`, which wrote these fields in
        // the widths that its flags tell.
        unsafe {
            let flags = block.read();
            let at = block.add(1);
            let (key_len, at) = if flags & WIDE_KEY != 0 {
                (at.cast::<u32>().read_unaligned() as usize, at.add(4))
            } else {
                (at.read() as usize, at.add(1))
            };
            let value_len = match flags & (SHARED | WIDE_VALUE) {
                0 => at.read() as usize,
                WIDE_VALUE => at.cast::<u32>().read_unaligned() as usize,
                _ => SHARED_BYTES,
            };
            Shape { flags, key_len, value_len }
        }
    }

    #[inline]
    fn part(&self, at: usize, len: usize) -> &[u8] {
        // SAFETY: callers pass offsets of this block's own shape; the bytes
        // were written by `fill` and are borrowed with the entry.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().add(at), len) }
    }

    /// The key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        let shape = self.shape();
        self.part(shape.key_at(), shape.key_len)
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> Value<'_> {
        let shape = self.shape();
        if shape.flags & SHARED == 0 {
            return Value::Inline(self.part(shape.value_at(), shape.value_len));
        }
        // The field is unaligned, so it cannot be borrowed as a SharedValue;
        // the buffer it points to can.
        Value::Inline(self.with_shared(|shared| {
            let bytes = shared.bytes();
            // SAFETY: the buffer lives until this entry drops or overwrites
            // its reference, which needs `&mut self`; SharedBytes promises
            // that it does not move.
            unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) }
        }))
    }

    /// The shared buffer, counted up, where the value is one.
    pub fn shared_value(&self) -> Option<SharedValue> {
        (self.shape().flags & SHARED != 0).then(|| self.with_shared(SharedValue::clone))
    }

    fn with_shared<R>(&self, look: impl FnOnce(&SharedValue) -> R) -> R {
        let shape = self.shape();
        debug_assert!(shape.flags & SHARED != 0);
        // SAFETY: SHARED says that `fill` wrote a SharedValue there. The bitwise
        // copy is only looked at: ManuallyDrop keeps its count untouched.
        let shared = unsafe {
            std::mem::ManuallyDrop::new(
                self.0.as_ptr().add(shape.value_at()).cast::<SharedValue>().read_unaligned(),
            )
        };
        look(&shared)
    }

    /// Changes the shared buffer in place, where this entry alone holds it and
    /// it can be changed.
    pub fn change_shared<R>(&mut self, change: impl FnOnce(&mut Vec<u8>) -> R) -> Option<R> {
        let shape = self.shape();
        if shape.flags & SHARED == 0 {
            return None;
        }
        // SAFETY: as in `with_shared`; `&mut self` makes sure that nobody looks
        // at the buffer through this entry meanwhile. The field itself, a
        // reference, stays as it is.
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
        let shape = self.shape();
        if shape.flags & HAS_EXPIRY == 0 {
            return None;
        }
        // SAFETY: HAS_EXPIRY says that the field is there.
        let at = unsafe { self.0.as_ptr().add(shape.expiry_at()).cast::<UnixMs>().read_unaligned() };
        (at != NO_EXPIRY).then_some(at)
    }

    /// Whether the entry is no longer there for a reader at that time.
    #[inline]
    pub fn is_expired(&self, now: &super::Now) -> bool {
        self.expire_at().is_some_and(|at| at <= now.ms())
    }

    /// Sets or clears the expiry. May move the entry to another block.
    pub fn set_expire_at(&mut self, expire_at: Option<UnixMs>) {
        let shape = self.shape();
        if shape.flags & HAS_EXPIRY != 0 {
            // SAFETY: HAS_EXPIRY says that the field is there.
            unsafe {
                self.0
                    .as_ptr()
                    .add(shape.expiry_at())
                    .cast::<UnixMs>()
                    .write_unaligned(expire_at.unwrap_or(NO_EXPIRY));
            }
        } else if expire_at.is_some() {
            let shared = self.shared_value();
            let value = match &shared {
                Some(shared) => Value::Shared(shared),
                None => self.value(),
            };
            *self = Entry::new(self.key(), value, expire_at);
        }
    }

    /// Gives the entry another value and expiry; in place where the block's
    /// size class stays the same.
    pub fn overwrite(&mut self, value: Value<'_>, expire_at: Option<UnixMs>) {
        let old = self.shape();
        let key = self.part(old.key_at(), old.key_len);
        let new = Shape::of(key, value, expire_at.is_some());
        if new.block() != old.block() {
            *self = Entry::new(key, value, expire_at);
            return;
        }
        let key = key.as_ptr();
        self.drop_shared(old);
        self.fill(new, key, value, expire_at);
    }

    fn drop_shared(&mut self, shape: Shape) {
        if shape.flags & SHARED != 0 {
            // SAFETY: `fill` wrote a SharedValue there; both callers overwrite
            // or free the field next, so it is dropped once.
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
    /// `address` must come from `into_address`, and at any time at most one
    /// owner may be made of it; a second one only to be looked at, and forgotten.
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
        let values =
            [Value::Inline(b""), Value::Inline(b"0123456789"), Value::Inline(&long), Value::Shared(&shared)];
        let key = b"some key";
        for from in values {
            for to in values {
                for (before, after) in [(None, None), (Some(1), None), (None, Some(2)), (Some(3), Some(4))] {
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
        let mut entry = Entry::new(b"k", Value::Shared(&SharedValue::new(b"buffer".to_vec())), Some(5));
        assert_eq!(entry.change_shared(|bytes| bytes.extend_from_slice(b"!")), Some(()));
        check(&entry, b"k", b"buffer!", Some(5));
        let held = entry.shared_value();
        assert_eq!(entry.change_shared(|bytes| bytes.clear()), None, "somebody else holds it");
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
