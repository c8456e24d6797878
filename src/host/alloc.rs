//! Everything in the module uses the host's allocator, so that `used_memory` and `maxmemory`
//! include all of it. Without a host (tests, benches) it uses the system's. The choice never
//! changes once something is allocated.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;
use std::ptr;

use midi_module_api as raw;

/// The alignment that the host's allocator always gives.
const NATURAL: usize = 16;

/// The global allocator: the host's, or the system's without a host.
pub struct HostAlloc;

#[inline]
fn has_host() -> bool {
    // SAFETY: set once, in RedisModule_OnLoad, before Rust code allocates.
    unsafe { { raw::RedisModule_Alloc }.is_some() }
}

/// Whether the alignment needs extra room: the block is then moved up inside a larger one, and the
/// shift in bytes is stored in front of it.
fn over_aligned(layout: Layout) -> bool {
    layout.align() > NATURAL
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
        if !over_aligned(layout) {
            // The host aligns only blocks of at least this size to 16.
            return host_alloc(layout.size().max(layout.align()));
        }
        let block = host_alloc(layout.size() + layout.align());
        if block.is_null() {
            return block;
        }
        let shift = layout.align() - (block as usize & (layout.align() - 1));
        // SAFETY: 16 <= shift <= align (blocks are 16-aligned, alignments
        // larger powers of two), so the result and the word in front of it
        // lie inside the block.
        unsafe {
            let moved = block.add(shift);
            moved.cast::<usize>().sub(1).write(shift);
            moved
        }
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
        // SAFETY: `alloc` put the shift in front of the block.
        unsafe { host_free(block.sub(block.cast::<usize>().sub(1).read())) };
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: all set in OnLoad; see `has_host`.
        match unsafe { raw::RedisModule_Calloc } {
            // SAFETY: plain C calloc; large blocks come zeroed from the kernel.
            Some(calloc) if !over_aligned(layout) => unsafe {
                calloc(1, layout.size().max(layout.align())).cast()
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
                realloc(block.cast(), new_size.max(layout.align())).cast()
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
