//! Everything in the module uses the host's allocator, so that `used_memory` and `maxmemory`
//! include all of it. Without a host (tests, benches) it uses the system's. The choice never
//! changes once something is allocated.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use midi_module_api as raw;

/// Every allocator aligns to this, without being asked.
const LEAST: usize = 8;

/// Most allocators align to this. If a Redis with the C library's allocator cannot ask it for the
/// size of a block, as with musl, it puts 8 bytes with the size in front: then nothing is.
const USUAL: usize = 16;

/// What the host's allocator aligns to; 0 until [`learn_alignment`] has looked.
static NATURAL: AtomicUsize = AtomicUsize::new(0);

/// The global allocator: the host's, or the system's without a host.
pub struct HostAlloc;

#[inline]
fn has_host() -> bool {
    // SAFETY: set once, in RedisModule_OnLoad, before Rust code allocates.
    unsafe { { raw::RedisModule_Alloc }.is_some() }
}

/// Finds out what the host's allocator aligns to.
///
/// # Safety
/// No layout of a larger alignment than [`LEAST`] may have been allocated before the first call.
/// Later ones change nothing.
pub(super) unsafe fn learn_alignment() {
    if NATURAL.load(Relaxed) == 0 {
        // SAFETY: the two belong together.
        NATURAL.store(unsafe { alignment_of(host_alloc, host_free) }, Relaxed);
    }
}

/// What an allocator aligns blocks to whose sizes are multiples of it. Of several blocks of a size,
/// as one may be aligned by chance.
///
/// # Safety
/// `free` must take what `alloc` gives.
unsafe fn alignment_of(alloc: fn(usize) -> *mut u8, free: unsafe fn(*mut u8)) -> usize {
    let mut address_bits = 0;
    for size in (1..=32).map(|n| n * USUAL).chain([4 << 10, 64 << 10, 1 << 20]) {
        let blocks: [_; 4] = std::array::from_fn(|_| alloc(size));
        for block in blocks {
            address_bits |= block.addr();
            // SAFETY: the caller's promise.
            unsafe { free(block) };
        }
    }
    if address_bits.is_multiple_of(USUAL) { USUAL } else { LEAST }
}

/// Whether the alignment needs extra room: the block is then moved up inside a larger one.
#[inline]
fn over_aligned(layout: Layout) -> bool {
    layout.align() > LEAST && layout.align() > NATURAL.load(Relaxed)
}

/// The host's memory for an alignment that not all allocators have by themselves. Few layouts are
/// of that kind: not inlined, to keep the way of the others short.
#[inline(never)]
fn alloc_aligned(layout: Layout) -> *mut u8 {
    if !over_aligned(layout) {
        return host_alloc(padded(layout.size(), layout.align()));
    }
    let block = host_alloc(layout.size() + layout.align());
    if block.is_null() {
        return block;
    }
    // SAFETY: it is larger by `align`, which is more than the host's own alignment.
    unsafe { move_up(block, layout.align()) }
}

/// The size to ask for if the host aligns the block by itself. It does so only for multiples of the
/// alignment: the jemalloc inside Redis has blocks of 24, 40 and 56 bytes, too.
#[inline]
fn padded(size: usize, align: usize) -> usize {
    (size + align - 1) & !(align - 1)
}

/// Moves an over-aligned block up, and stores in front of it how far.
///
/// # Safety
/// The block must have room for `align` bytes more than will be used, and be aligned to [`LEAST`];
/// `align` is a larger power of two.
unsafe fn move_up(block: *mut u8, align: usize) -> *mut u8 {
    let shift = align - (block.addr() & (align - 1));
    // SAFETY: 8 <= shift <= align, so the word in front of the result lies inside the block.
    unsafe {
        let moved = block.add(shift);
        moved.cast::<usize>().sub(1).write(shift);
        moved
    }
}

/// The host's block of one that was moved up.
///
/// # Safety
/// [`move_up`] must have returned it.
unsafe fn move_back(moved: *mut u8) -> *mut u8 {
    // SAFETY: the shift stands in front of it.
    unsafe { moved.sub(moved.cast::<usize>().sub(1).read()) }
}

#[inline]
fn host_alloc(bytes: usize) -> *mut u8 {
    // SAFETY: called only if `has_host` holds.
    unsafe { raw::RedisModule_Alloc.map_or(ptr::null_mut(), |alloc| alloc(bytes).cast()) }
}

/// # Safety
/// `block` must come from [`host_alloc`], and nothing may use it any more.
#[inline]
unsafe fn host_free(block: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(free) = raw::RedisModule_Free {
            free(block.cast::<c_void>());
        }
    }
}

// SAFETY: every method returns memory of the layout's size and alignment from one of two
// allocators, and `dealloc` and `realloc` find the same one.
unsafe impl GlobalAlloc for HostAlloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !has_host() {
            // SAFETY: the caller's promise about the layout.
            return unsafe { System.alloc(layout) };
        }
        if layout.align() <= LEAST {
            return host_alloc(layout.size());
        }
        alloc_aligned(layout)
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !has_host() {
            // SAFETY: allocated there, with this layout.
            return unsafe { System.dealloc(block, layout) };
        }
        if !over_aligned(layout) {
            // SAFETY: `alloc` returned the host's block unmoved.
            return unsafe { host_free(block) };
        }
        // SAFETY: `alloc` moved it up.
        unsafe { host_free(move_back(block)) };
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: all set in OnLoad; see `has_host`.
        match unsafe { raw::RedisModule_Calloc } {
            // SAFETY: plain C calloc; large blocks come zeroed from the kernel.
            Some(calloc) if !over_aligned(layout) => unsafe {
                calloc(1, padded(layout.size(), layout.align())).cast()
            },
            _ => {
                // SAFETY: the caller's promise about the layout.
                let block = unsafe { self.alloc(layout) };
                if !block.is_null() {
                    // SAFETY: just allocated with that size.
                    unsafe { ptr::write_bytes(block, 0, layout.size()) };
                }
                block
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: all set in OnLoad; see `has_host`.
        match unsafe { raw::RedisModule_Realloc } {
            // SAFETY: the block is the host's own, not moved up.
            Some(realloc) if !over_aligned(layout) => unsafe {
                realloc(block.cast(), padded(new_size, layout.align())).cast()
            },
            // SAFETY: without a host all blocks are the system's.
            None => unsafe { System.realloc(block, layout, new_size) },
            Some(_) => {
                // SAFETY: size and alignment make a valid layout by the caller's promise.
                let new_layout =
                    unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
                // SAFETY: both blocks have at least the smaller size.
                unsafe {
                    let new = self.alloc(new_layout);
                    if !new.is_null() {
                        ptr::copy_nonoverlapping(block, new, layout.size().min(new_size));
                        self.dealloc(block, layout);
                    }
                    new
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static TAKEN: AtomicUsize = AtomicUsize::new(0);

    /// A host that aligns to 16 by chance only: every fourth block is 8 bytes above.
    fn odd_alloc(size: usize) -> *mut u8 {
        let above = if TAKEN.fetch_add(1, Relaxed) % 4 == 3 { 8 } else { 0 };
        // SAFETY: room for what is above.
        unsafe { libc::malloc(size + 8).cast::<u8>().add(above) }
    }

    unsafe fn odd_free(block: *mut u8) {
        // SAFETY: a block of `odd_alloc`; those of the C library are aligned to 16.
        unsafe { libc::free(block.sub(block.addr() % 16).cast()) }
    }

    fn even_alloc(size: usize) -> *mut u8 {
        // SAFETY: always sound.
        unsafe { libc::malloc(size).cast() }
    }

    unsafe fn even_free(block: *mut u8) {
        // SAFETY: a block of `even_alloc`.
        unsafe { libc::free(block.cast()) }
    }

    #[test]
    fn a_hosts_alignment_is_found() {
        // SAFETY: the functions belong together.
        unsafe {
            assert_eq!(alignment_of(odd_alloc, odd_free), 8);
            assert_eq!(alignment_of(even_alloc, even_free), 16);
        }
    }

    #[test]
    fn blocks_of_any_host_are_aligned_as_asked() {
        for align in (4..=12).map(|log| 1 << log) {
            for size in [1, 24, 36, 64, 1000].repeat(4) {
                let block = odd_alloc(size + align);
                // SAFETY: as large as `move_up` wants it, and written to inside only.
                unsafe {
                    let moved = move_up(block, align);
                    assert!(moved.addr().is_multiple_of(align));
                    assert!(moved.addr() + size <= block.addr() + size + align);
                    ptr::write_bytes(moved, 0xaa, size);
                    assert_eq!(move_back(moved), block);
                    odd_free(block);
                }
            }
        }
    }

    #[test]
    fn only_what_no_host_aligns_by_itself_has_extra_room_before_it_is_known() {
        let layout = |size, align| Layout::from_size_align(size, align).unwrap();
        assert!(!over_aligned(layout(24, 8)));
        assert!(over_aligned(layout(24, 16)));
        assert_eq!([padded(36, 16), padded(48, 16), padded(36, 8), padded(3, 1)], [48, 48, 40, 3]);
    }
}
