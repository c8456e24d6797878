//! What arenas ask of the system.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::ptr;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// The size of a chunk, and its alignment: that of a huge page.
pub(super) const CHUNK_BYTES: usize = 2 << 20;

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

/// Whether the page with this byte is in memory; false where /proc does not tell. Not asked of
/// mincore: the units of Debian's Redis and Valkey have the kernel kill a server that calls it.
pub(super) fn is_resident(byte: *mut u8) -> bool {
    /// What the system tells of each page, and the bit of it that says "in memory".
    const ENTRY_BYTES: usize = 8;
    const RESIDENT: u64 = 1 << 63;
    let mut entry = [0; ENTRY_BYTES];
    let place = byte.addr() / page_bytes() * ENTRY_BYTES;
    let read = File::open("/proc/self/pagemap")
        .and_then(|pages| pages.read_exact_at(&mut entry, place as u64));
    read.is_ok() && u64::from_ne_bytes(entry) & RESIDENT != 0
}
