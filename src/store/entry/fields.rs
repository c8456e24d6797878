//! Entries whose value is a hash.
//!
//! A small hash is a [`Block`] in the entry. Of a large one the entry has the address, as 8 bytes:
//! one reference of those that an [`Arc`] counts.

use std::cell::Cell;
use std::sync::Arc;

use super::shape::{HAS_EXPIRY, Shape};
use super::{Entry, LARGE_HASH, SMALL_HASH, TYPE};
use crate::store::fields::{Block, Fields, LargeHash};
use crate::store::{KeyHasher, UnixMs, Value, WrongType};

thread_local! {
    /// Memory for blocks that are being made.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl Entry {
    /// A hash with one field.
    pub(in crate::store) fn of_field(
        hasher: &KeyHasher,
        key: &[u8],
        field: &[u8],
        value: Value<'_>,
    ) -> Self {
        if let Value::Inline(bytes) = value
            && Block::EMPTY.has_room(None, field, bytes)
        {
            let mut block = SCRATCH.take();
            Block::EMPTY.with(None, field, bytes, &mut block);
            let entry = Entry::of_block(key, &block, None);
            SCRATCH.set(block);
            return entry;
        }
        let large = LargeHash::new(hasher.clone());
        large.set(field, value);
        Entry::of_large(key, large, None)
    }

    fn of_block(key: &[u8], block: &[u8], expire_at: Option<UnixMs>) -> Self {
        let mut entry = Entry::new(key, Value::Inline(block), expire_at);
        entry.set_type(SMALL_HASH);
        entry
    }

    fn of_large(key: &[u8], large: LargeHash, expire_at: Option<UnixMs>) -> Self {
        let address = Arc::into_raw(Arc::new(large)).expose_provenance().to_ne_bytes();
        let mut entry = Entry::new(key, Value::Inline(&address), expire_at);
        entry.set_type(LARGE_HASH);
        entry
    }

    /// The fields of a hash.
    ///
    /// # Errors
    /// [`WrongType`] if the value is not a hash.
    #[inline]
    pub(in crate::store) fn fields(&self) -> Result<Fields<'_>, WrongType> {
        match self.flags() & TYPE {
            SMALL_HASH => Ok(Fields::Small(Block::new(self.value().bytes()))),
            LARGE_HASH => Ok(Fields::Large(self.large())),
            _ => Err(WrongType),
        }
    }

    fn address_of_large(&self) -> *const LargeHash {
        let address = self.value().bytes().first_chunk().copied().unwrap_or_default();
        std::ptr::with_exposed_provenance(usize::from_ne_bytes(address))
    }

    /// The hash that an entry of [`LARGE_HASH`] refers to.
    fn large(&self) -> &LargeHash {
        debug_assert!(self.flags() & TYPE == LARGE_HASH);
        // SAFETY: `of_large` wrote the address, and the entry's reference keeps the hash.
        unsafe { &*self.address_of_large() }
    }

    /// One more reference to what the entry refers to, if it does: its bytes have been copied to
    /// another entry.
    pub(super) fn share_reference(&self) {
        if self.flags() & TYPE == LARGE_HASH {
            // SAFETY: as in `large`; the address is that of an Arc.
            unsafe { Arc::increment_strong_count(self.address_of_large()) };
        }
    }

    /// Lets go of what the entry refers to, which is about to be dropped.
    #[cold]
    pub(super) fn drop_reference(&mut self) {
        // SAFETY: as in `share_reference`; the entry's own reference ends here.
        unsafe { Arc::decrement_strong_count(self.address_of_large()) };
    }

    /// The memory of what the entry refers to, in bytes.
    #[cold]
    pub(super) fn bytes_of_reference(&self) -> usize {
        self.large().bytes()
    }

    /// A copy of a hash that shares nothing with it; of any other value, what
    /// [`Entry::copy_as`] makes.
    pub(in crate::store) fn apart_as(&self, hasher: &KeyHasher, key: &[u8]) -> Self {
        match self.fields() {
            Ok(fields @ Fields::Large(_)) => {
                Entry::of_large(key, fields.copied(hasher), self.expire_at())
            }
            _ => self.copy_as(key),
        }
    }

    /// A field of a hash, as an entry of its own.
    pub(in crate::store) fn field(&self, field: &[u8]) -> Option<Entry> {
        match self.fields().ok()? {
            Fields::Small(block) => {
                let place = block.find(field)?;
                Some(Entry::new(field, Value::Inline(block.value(place)), None))
            }
            Fields::Large(large) => large.entry_of(field),
        }
    }

    /// Sets a field of a hash; true if it is new. May move the entry to another block.
    pub(in crate::store) fn set_field(
        &mut self,
        hasher: &KeyHasher,
        field: &[u8],
        value: Value<'_>,
    ) -> bool {
        let block = match self.fields() {
            Ok(Fields::Small(block)) => block,
            Ok(Fields::Large(large)) => return large.set(field, value),
            Err(WrongType) => return false,
        };
        let place = block.find(field);
        match value {
            Value::Inline(bytes) if block.has_room(place, field, bytes) => {
                let mut new = SCRATCH.take();
                block.with(place, field, bytes, &mut new);
                self.set_block(&new);
                SCRATCH.set(new);
            }
            _ => {
                let large = Fields::Small(block).copied(hasher);
                large.set(field, value);
                *self = Entry::of_large(self.key(), large, self.expire_at());
            }
        }
        place.is_none()
    }

    /// Removes a field of a hash that has others, and returns it. May move the entry to another
    /// block.
    pub(in crate::store) fn remove_field(&mut self, field: &[u8]) -> Option<Entry> {
        let block = match self.fields().ok()? {
            Fields::Small(block) => block,
            Fields::Large(large) => return large.remove(field),
        };
        let place = block.find(field)?;
        let removed = Entry::new(field, Value::Inline(block.value(place)), None);
        let mut new = SCRATCH.take();
        block.without(place, &mut new);
        self.set_block(&new);
        SCRATCH.set(new);
        Some(removed)
    }

    /// Replaces the block of a small hash by one that is not in this entry.
    fn set_block(&mut self, block: &[u8]) {
        let (old, expire_at) = (self.shape(), self.expire_at());
        let key = self.part(old.key_at(), old.key_len);
        let new = Shape::of(key, Value::Inline(block), old.flags & HAS_EXPIRY != 0);
        if new.block() != old.block() {
            *self = Entry::of_block(key, block, expire_at);
            return;
        }
        let key = key.as_ptr();
        // SAFETY: the block is large enough, and the key is this entry's own.
        unsafe { self.fill(new, key, Value::Inline(block), expire_at) };
        self.set_type(SMALL_HASH);
    }
}
