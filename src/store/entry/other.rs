//! Entries whose value is not a string.
//!
//! Such a value is bytes in the block, or a reference there: the address of something that is
//! large, and that other entries may refer to as well.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use super::shape::{HAS_EXPIRY, Shape};
use super::{Entry, NO_STRING, REFERENCE, TIMED_HASH, TYPE};
use crate::store::{UnixMs, Value};

// SAFETY: through a shared reference the block is only read, and so is what it refers to, but for
// the fields of a large hash, which the holder of the shard alone changes.
unsafe impl Sync for Entry {}

/// What an entry may refer to.
pub(in crate::store) trait Referred: Any + Send + Sync {
    /// The memory that it takes, in bytes; on any thread.
    fn bytes(&self) -> usize;

    /// Not later than when the first part of it expires.
    fn parts_due(&self) -> UnixMs;

    /// [`Table::pack`](crate::store::Table::pack) for its parts: from `*position` on, 0 at first
    /// and when all are done. Only for the holder of the shard.
    fn pack(&self, position: &mut usize, more: &mut dyn FnMut() -> bool) -> bool;
}

/// How many references there are in the process.
static REFERENCES: AtomicUsize = AtomicUsize::new(0);

/// Whether any entry of the process refers to something.
pub(in crate::store) fn any_reference() -> bool {
    REFERENCES.load(Relaxed) > 0
}

/// A reference as it stands in a block: one of those that the [`Arc`] counts.
type Address = *const dyn Referred;

/// A value that is not a string.
#[derive(Clone, Copy)]
pub(in crate::store) enum OtherValue<'a> {
    /// Bytes in the entry's block.
    Block(&'a [u8]),
    /// What the entry refers to.
    Reference(&'a dyn Referred),
}

impl Entry {
    /// A new entry with a value in its block. `kind` are its type's bits of the first byte.
    pub(in crate::store) fn of_block(
        kind: u8,
        key: &[u8],
        block: &[u8],
        expire_at: Option<UnixMs>,
    ) -> Self {
        let mut entry = Entry::new(key, Value::Inline(block), expire_at);
        entry.set_type(kind);
        entry
    }

    /// A new entry that refers to this.
    pub(in crate::store) fn of_reference(
        kind: u8,
        key: &[u8],
        referred: Arc<dyn Referred>,
        expire_at: Option<UnixMs>,
    ) -> Self {
        debug_assert!(kind & REFERENCE != 0);
        let mut entry = Entry::of_block(kind, key, &[0; size_of::<Address>()], expire_at);
        let place = entry.place_of_address();
        // SAFETY: the value's bytes have room for it.
        unsafe { place.write_unaligned(Arc::into_raw(referred)) };
        REFERENCES.fetch_add(1, Relaxed);
        entry
    }

    /// The value of an entry that is no string.
    #[inline]
    pub(in crate::store) fn other_value(&self) -> OtherValue<'_> {
        if self.flags() & REFERENCE == 0 {
            return OtherValue::Block(self.value().bytes());
        }
        // SAFETY: the entry's own reference keeps it.
        OtherValue::Reference(unsafe { &*self.address() })
    }

    fn place_of_address(&mut self) -> *mut Address {
        let at = self.shape().value_at();
        // SAFETY: the value is within the block.
        unsafe { self.0.as_ptr().add(at).cast() }
    }

    fn address(&self) -> Address {
        let at = self.shape().value_at();
        // SAFETY: `of_reference` wrote it, or it was copied from such an entry.
        unsafe { self.0.as_ptr().add(at).cast::<Address>().read_unaligned() }
    }

    /// Counts one more reference, if the entry has one: its bytes have been copied from another.
    pub(super) fn share_reference(&self) {
        if self.flags() & REFERENCE != 0 {
            // SAFETY: the address is that of an Arc, to which the other entry refers.
            unsafe { Arc::increment_strong_count(self.address()) };
            REFERENCES.fetch_add(1, Relaxed);
        }
    }

    /// Lets go of what the entry refers to; the entry is about to be dropped.
    #[cold]
    pub(super) fn drop_reference(&mut self) {
        // SAFETY: as above; the entry's own reference ends here.
        unsafe { Arc::decrement_strong_count(self.address()) };
        REFERENCES.fetch_sub(1, Relaxed);
    }

    /// The memory of what the entry refers to, in bytes.
    #[cold]
    pub(super) fn bytes_of_reference(&self) -> usize {
        match self.other_value() {
            OtherValue::Block(_) => 0,
            OtherValue::Reference(referred) => referred.bytes(),
        }
    }

    /// Whether the value is a block that begins with the time at which the first part of it
    /// expires.
    #[inline]
    pub(in crate::store) fn is_timed_block(&self) -> bool {
        self.flags() & TYPE == TIMED_HASH
    }

    /// Not later than when the first part of the value expires; [`UnixMs::MAX`] for never.
    #[inline]
    pub(in crate::store) fn parts_due(&self) -> UnixMs {
        if self.flags() & NO_STRING == 0 { UnixMs::MAX } else { self.due_of_other() }
    }

    #[cold]
    fn due_of_other(&self) -> UnixMs {
        match self.other_value() {
            OtherValue::Reference(referred) => referred.parts_due(),
            OtherValue::Block(block) if self.is_timed_block() => {
                block.first_chunk().map_or(UnixMs::MAX, |due| UnixMs::from_le_bytes(*due))
            }
            OtherValue::Block(_) => UnixMs::MAX,
        }
    }

    /// Has what the entry refers to packed; see [`Referred::pack`].
    pub(in crate::store) fn pack_parts(
        &self,
        position: &mut usize,
        more: &mut dyn FnMut() -> bool,
    ) -> bool {
        if self.flags() & REFERENCE == 0 {
            return true;
        }
        match self.other_value() {
            OtherValue::Reference(referred) => referred.pack(position, more),
            OtherValue::Block(_) => true,
        }
    }

    /// Overwrites a part of the value in the block with as many bytes, which are not in this entry.
    ///
    /// # Panics
    /// If the part is not within the value, or as long as the bytes.
    pub(in crate::store) fn overwrite_block(&mut self, part: Range<usize>, bytes: &[u8]) {
        let shape = self.shape();
        let (start, len) = (shape.value_at(), self.value_len());
        assert!(self.flags() & REFERENCE == 0 && part.end <= len && part.len() == bytes.len());
        // SAFETY: the part is within the value, and the value in the block; the bytes are in
        // another.
        unsafe {
            let place = self.0.as_ptr().add(start + part.start);
            place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }

    /// Replaces the value in the block by one that is not in this entry. May move the entry to
    /// another block.
    pub(in crate::store) fn set_block(&mut self, kind: u8, block: &[u8]) {
        let (old, expire_at) = (self.shape(), self.expire_at());
        let key = self.part(old.key_at(), old.key_len);
        let new = Shape::of(key, Value::Inline(block), old.flags & HAS_EXPIRY != 0);
        if new.block() != old.block() {
            *self = Entry::of_block(kind, key, block, expire_at);
            return;
        }
        let key = key.as_ptr();
        // SAFETY: the block is large enough, and the key is this entry's own.
        unsafe { self.fill(new, key, Value::Inline(block), expire_at) };
        self.set_type(kind);
    }
}
