//! Overwriting a value in place.

use std::ptr;

use super::Entry;
use super::shape::{WIDE_KEY, WIDE_VALUE, key_at, key_len_bytes};
use crate::store::arena::block_bytes;

impl Entry {
    /// [`Entry::overwrite`] for what is most common: both values are in the block, both are strings
    /// that were set as they are, neither has an expiry, and all parts stay where they are. False
    /// if that is not so; then nothing is done.
    #[inline(always)]
    pub(in crate::store) fn overwrite_bytes(&mut self, bytes: &[u8]) -> bool {
        let wide = if bytes.len() > u8::MAX as usize { WIDE_VALUE } else { 0 };
        let (flags, key) = (self.flags(), self.flags() & WIDE_KEY);
        if flags != wide | key {
            return false;
        }
        let (value_at, len) = (key_at(flags) + self.key_len(flags), self.len_in_block(flags));
        if bytes.len() != len && block_bytes(value_at + bytes.len()) != block_bytes(value_at + len)
        {
            return false;
        }
        let block = self.0.as_ptr();
        // SAFETY: the block has room for the value, whose length is as wide as the one before; the
        // value is never in this block.
        unsafe {
            let at = block.add(1 + key_len_bytes(flags));
            if wide == 0 {
                at.write(bytes.len() as u8);
            } else {
                at.cast::<u32>().write_unaligned(bytes.len() as u32);
            }
            ptr::copy_nonoverlapping(bytes.as_ptr(), block.add(value_at), bytes.len());
        }
        true
    }
}
