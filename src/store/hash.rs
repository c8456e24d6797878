use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use foldhash::quality::RandomState;

/// A key's 64-bit hash, cut into the fields that place the key:
///
/// ```text
/// bit 63 ──────────── 32 │ 31 ── 24 │ 23 ────── 8 │ 7 ── 0
///   order: segment, then │  unused  │    shard    │  tag
///   bucket; SCAN's order │          │             │
/// ```
///
/// The fields do not overlap, so keys of one shard are still spread evenly over its segments, and
/// tags within a bucket are independent of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHash(u64);

impl KeyHash {
    /// The shard, of `mask + 1` (a power of two, at most 65,536).
    #[inline]
    pub fn shard(self, mask: u32) -> u32 {
        (self.0 >> 8) as u32 & mask & 0xffff
    }

    /// The position in the table's scan order.
    #[inline]
    pub(super) fn order(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The byte kept beside the address in the slot. Never 0: that marks a free slot.
    #[inline]
    pub(super) fn tag(self) -> u8 {
        (self.0 as u8).max(1)
    }
}

/// A [`KeyHash`] that another thread may set.
#[derive(Default)]
pub(super) struct SharedKeyHash(AtomicU64);

impl SharedKeyHash {
    /// It.
    pub(super) fn get(&self) -> KeyHash {
        KeyHash(self.0.load(Relaxed))
    }

    /// Sets it.
    pub(super) fn set(&self, hash: KeyHash) {
        self.0.store(hash.0, Relaxed);
    }
}

/// Hashes keys with a random seed of this process, so that no client can choose keys that collide
/// without looking: the cursors of SCAN tell parts of hashes, from which a client that may call it
/// could learn the seed.
#[derive(Clone, Default)]
pub struct KeyHasher(RandomState);

impl KeyHasher {
    /// The key's hash.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        let mut hasher = self.0.build_hasher();
        hasher.write(key);
        KeyHash(hasher.finish())
    }
}
