//! Which chunks are to be emptied.
//!
//! Slots of the same chunk live for different times, so a chunk may keep few of them, and stays
//! whole. An arena that has much more room than it needs gives up its emptiest chunks: no slot is
//! taken from them any more. Whoever goes through the tables
//! ([`Table::pack`](super::super::Table::pack)) moves what is in them to other chunks of the arena,
//! and the last slot that is freed frees the chunk.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::system::CHUNK_BYTES;

/// Addresses have 48 bits: see `bucket.rs`.
const WORDS: usize = (1 << 48) / CHUNK_BYTES / 64;

/// A bit for each place where a chunk could be. So an address alone tells, whatever it is of, and
/// no block is read. The system gives memory to those parts of it that were written to.
static LEAVING: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

fn bit(address: usize) -> (&'static AtomicU64, u64) {
    let chunk = address / CHUNK_BYTES;
    (&LEAVING[chunk / 64 % WORDS], 1 << (chunk % 64))
}

/// Whether the address is in a chunk that is to be emptied.
#[inline]
pub(crate) fn is_leaving(address: usize) -> bool {
    let (word, bit) = bit(address);
    word.load(Relaxed) & bit != 0
}

pub(super) fn mark(chunk: usize) {
    let (word, bit) = bit(chunk);
    word.fetch_or(bit, Relaxed);
}

/// For a chunk that is unmapped.
pub(super) fn unmark(chunk: usize) {
    let (word, bit) = bit(chunk);
    if word.load(Relaxed) & bit != 0 {
        word.fetch_and(!bit, Relaxed);
    }
}

/// A chunk with more in use is not worth moving: what that takes elsewhere is nearly as much.
pub(super) const WORTH_MOVING: usize = CHUNK_BYTES / 20 * 17;

/// Of so many chunks with so many bytes in use, how many may go. A little more than what is in
/// use stays, and two, so that the next pass does not follow at once.
pub(super) fn spare(chunks: usize, used: usize) -> usize {
    let needed = (used + used / 32).div_ceil(CHUNK_BYTES) + 2;
    chunks.saturating_sub(needed)
}
