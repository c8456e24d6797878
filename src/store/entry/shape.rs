//! Where the parts of a block lie, as the first byte and the lengths behind it tell.

use super::super::arena::block_bytes;
use super::{UnixMs, Value, ValueRef};

pub(super) const HAS_EXPIRY: u8 = 1 << 0;
pub(super) const WIDE_KEY: u8 = 1 << 1;
pub(super) const WIDE_VALUE: u8 = 1 << 2;
pub(super) const SHARED: u8 = 1 << 3;

const EXPIRY_BYTES: usize = size_of::<UnixMs>();
pub(super) const SHARED_BYTES: usize = size_of::<ValueRef>();

pub(super) const fn key_len_bytes(flags: u8) -> usize {
    if flags & WIDE_KEY != 0 { 4 } else { 1 }
}

pub(super) const fn value_len_bytes(flags: u8) -> usize {
    match flags & (SHARED | WIDE_VALUE) {
        0 => 1,
        WIDE_VALUE => 4,
        _ => 0,
    }
}

/// The flags that define the layout.
pub(super) const LAYOUT: u8 = HAS_EXPIRY | WIDE_KEY | WIDE_VALUE | SHARED;

/// The number of their combinations.
const FLAGS: usize = LAYOUT as usize + 1;

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
pub(super) fn key_at(flags: u8) -> usize {
    KEY_AT[flags as usize % FLAGS] as usize
}

/// Where the expiry lies, in a block that has one: right in front of the key.
#[inline]
pub(super) fn expiry_at(flags: u8) -> usize {
    key_at(flags) - EXPIRY_BYTES
}

/// Where the parts of a block lie.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) flags: u8,
    pub(super) key_len: usize,
    /// The value's size in the block, in bytes.
    pub(super) value_len: usize,
    /// The size of the traits behind it, in bytes.
    pub(super) traits: usize,
}

impl Shape {
    /// The shape of a new block.
    ///
    /// Lengths above `u32::MAX` do not fit. The settings of the command layer's limits end there.
    pub(super) fn of(key: &[u8], value: Value<'_>, with_expiry: bool) -> Self {
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
        Shape { flags, key_len: key.len(), value_len, traits: 0 }
    }

    #[inline]
    pub(super) fn key_at(self) -> usize {
        key_at(self.flags)
    }

    #[inline]
    pub(super) fn value_at(self) -> usize {
        self.key_at() + self.key_len
    }

    #[inline]
    pub(super) fn traits_at(self) -> usize {
        self.value_at() + self.value_len
    }

    #[inline]
    pub(super) fn block(self) -> usize {
        block_bytes(self.traits_at() + self.traits)
    }
}
