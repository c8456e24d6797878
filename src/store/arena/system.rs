//! What arenas ask of the system.

use std::ptr;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// New memory of this size, at a multiple of it.
pub(super) fn map_aligned(bytes: usize) -> Option<*mut u8> {
    let map = |len| {
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping, wherever the system wants it.
        unsafe { mmap_anonymous(ptr::null_mut(), len, rights, flags) }
            .ok()
            .map(|at| at.cast::<u8>())
    };
    // Linux aligns mappings of this size since 6.7.
    let exact = map(bytes)?;
    if exact.addr().is_multiple_of(bytes) {
        return Some(exact);
    }
    // SAFETY: mapped right above; nobody uses it.
    unsafe { munmap(exact.cast(), bytes).ok()? };
    let wide = map(2 * bytes)?;
    let before = wide.addr().next_multiple_of(bytes) - wide.addr();
    // SAFETY: these parts of the mapping above are around what is wanted, and nobody uses them.
    unsafe {
        let wanted = wide.add(before);
        if before > 0 {
            munmap(wide.cast(), before).ok()?;
        }
        munmap(wanted.add(bytes).cast(), bytes - before).ok()?;
        Some(wanted)
    }
}

/// The size of the system's small pages. (rustix reads it from where valgrind has something else.)
pub(super) fn page_bytes() -> usize {
    // SAFETY: it only reads; every system answers this.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Whether the page with this byte is in memory.
pub(super) fn is_resident(byte: *mut u8) -> bool {
    let page = page_bytes();
    let mut pages = [0];
    // SAFETY: one page, which is mapped, needs one byte for the answer.
    let failed = unsafe {
        libc::mincore(byte.map_addr(|at| at & !(page - 1)).cast(), page, pages.as_mut_ptr())
    };
    failed == 0 && pages[0] & 1 != 0
}
