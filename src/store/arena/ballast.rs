//! Memory of the host's that nobody writes to: it is there to be counted.
//!
//! The host's `used_memory` and `maxmemory` know what the host's allocator gave, and chunks are not
//! of that. So for what is used in its chunks an arena keeps as much of the host's memory. The
//! system gives no page to memory that nobody touches.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use rustix::mm::{Advice, madvise};

use super::system::page_bytes;

/// The size of a block: how exact the count is.
pub(super) const BLOCK_BYTES: usize = 256 << 10;

const LAYOUT: Layout = match Layout::from_size_align(BLOCK_BYTES, 16) {
    Ok(layout) => layout,
    Err(_) => panic!("a valid layout"),
};

pub(super) struct Ballast {
    blocks: Vec<NonNull<u8>>,
    /// With less in use there are blocks too many, with more too few.
    low: usize,
    high: usize,
}

// SAFETY: the blocks are the ballast's own.
unsafe impl Send for Ballast {}

impl Ballast {
    pub(super) const fn new() -> Self {
        Ballast { blocks: Vec::new(), low: 0, high: 0 }
    }

    /// Makes it as large as what is in use.
    #[inline]
    pub(super) fn follow(&mut self, used: usize) {
        if used < self.low || used > self.high {
            self.adjust(used);
        }
    }

    /// Makes it as large as what is in use to within a block.
    #[cold]
    pub(super) fn adjust(&mut self, used: usize) {
        let blocks = used.div_ceil(BLOCK_BYTES);
        while self.blocks.len() > blocks {
            // SAFETY: `block` gave it, and nothing uses it.
            self.blocks
                .pop()
                .into_iter()
                .for_each(|block| unsafe { dealloc(block.as_ptr(), LAYOUT) });
        }
        while self.blocks.len() < blocks {
            self.blocks.push(block());
        }
        // One block may be too many, so that a count that goes up and down does not cost one each
        // time.
        self.low = blocks.saturating_sub(2) * BLOCK_BYTES;
        self.high = blocks * BLOCK_BYTES;
    }
}

/// A block without any page.
fn block() -> NonNull<u8> {
    // SAFETY: the size is not 0.
    let block =
        NonNull::new(unsafe { alloc(LAYOUT) }).unwrap_or_else(|| handle_alloc_error(LAYOUT));
    let page = page_bytes();
    let before = block.as_ptr().addr().next_multiple_of(page) - block.as_ptr().addr();
    let bytes = (BLOCK_BYTES - before) / page * page;
    // The allocator may have given memory that was used before, with its pages.
    // SAFETY: whole pages of the block, which nobody reads.
    let _ = unsafe { madvise(block.as_ptr().add(before).cast(), bytes, Advice::LinuxDontNeed) };
    block
}

#[cfg(test)]
impl Ballast {
    pub(super) fn bytes(&self) -> usize {
        self.blocks.len() * BLOCK_BYTES
    }
}
