//! The buffers that a ring receives into: the kernel takes one when bytes have come, so a silent
//! connection has none.

use std::io;
use std::mem::size_of;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::ring::Ring;
use crate::limits::RECEIVED_BYTES;

/// The group of the buffers, the only one of the ring.
pub const GROUP: u16 = 0;

/// A page of memory, at most; the list of the buffers takes whole ones.
const PAGE: usize = 64 << 10;

/// The number of a buffer.
pub type BufferId = u16;

/// No buffer.
const NONE: BufferId = u16::MAX;

/// Buffers of [`RECEIVED_BYTES`] each. Some are the kernel's, the others hold what has come.
pub struct Buffers {
    /// The list that the kernel reads, then the buffers.
    memory: NonNull<u8>,
    /// How many there are, a power of two.
    count: u16,
    /// How many have ever been given to the kernel.
    given: u16,
    /// How many are not the kernel's.
    held: u16,
    /// For those: the next one of the same connection, and how many bytes have come.
    filled: Box<[Filled]>,
}

/// What is in a buffer.
#[derive(Clone, Copy)]
struct Filled {
    next: BufferId,
    bytes: u16,
}

/// The buffers that a connection has received into, oldest first.
pub struct Chain {
    first: BufferId,
    last: BufferId,
    /// How many there are.
    pub count: u16,
    /// How many bytes of the first have been taken.
    taken: u16,
}

// SAFETY: nothing else refers to its memory but the kernel, which does not care for threads.
unsafe impl Send for Buffers {}

impl Buffers {
    /// So many buffers, a power of two, for this ring.
    ///
    /// # Errors
    /// The system's.
    pub fn new(ring: &Ring, count: u16) -> io::Result<Self> {
        let size = Self::size(count);
        let (rights, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: new memory, at any place.
        let memory = unsafe { mmap_anonymous(ptr::null_mut(), size, rights, kind)? };
        let memory = NonNull::new(memory.cast()).expect("mapped memory");
        let filled = vec![Filled { next: NONE, bytes: 0 }; count.into()].into();
        let mut buffers = Buffers { memory, count, given: 0, held: count, filled };
        // A forked child has no use for them, and would have each copied that is written to.
        // SAFETY: only the threads of this process use the memory.
        unsafe { madvise(memory.as_ptr().cast(), size, Advice::LinuxDontFork)? };
        let list = memory.as_ptr() as u64;
        // SAFETY: the memory lives until the ring has ended: see `Uring`.
        unsafe { ring.submitter().register_buf_ring_with_flags(list, count, GROUP, 0)? };
        (0..count).for_each(|id| buffers.give(id));
        Ok(buffers)
    }

    /// The bytes of the list, in whole pages.
    fn list_size(count: u16) -> usize {
        (usize::from(count) * size_of::<BufRingEntry>()).next_multiple_of(PAGE)
    }

    fn size(count: u16) -> usize {
        Self::list_size(count) + usize::from(count) * RECEIVED_BYTES
    }

    /// The place of a buffer.
    fn place(&self, id: BufferId) -> *mut u8 {
        assert!(id < self.count);
        let offset = Self::list_size(self.count) + usize::from(id) * RECEIVED_BYTES;
        // SAFETY: there is such a buffer behind the list.
        unsafe { self.memory.as_ptr().add(offset) }
    }

    /// Gives a buffer to the kernel.
    pub fn give(&mut self, id: BufferId) {
        let (place, list) = (self.place(id), self.memory.as_ptr().cast::<BufRingEntry>());
        let at = usize::from(self.given & (self.count - 1));
        self.given = self.given.wrapping_add(1);
        self.held -= 1;
        // SAFETY: the kernel reads the entry only after the tail has passed it. The tail is where
        // the first entry has nothing else, and is aligned as its type needs.
        unsafe {
            let entry = &mut *list.add(at);
            entry.set_addr(place as u64);
            entry.set_len(RECEIVED_BYTES as u32);
            entry.set_bid(id);
            let tail = BufRingEntry::tail(list).cast_mut();
            AtomicU16::from_ptr(tail).store(self.given, Ordering::Release);
        }
    }

    /// The kernel has taken a buffer.
    pub fn take(&mut self) {
        self.held += 1;
    }

    /// Whether few are left for the kernel: an eighth.
    pub fn are_few(&self) -> bool {
        self.held > self.count - self.count.div_ceil(8)
    }

    /// Whether the kernel has all of them.
    #[cfg(test)]
    pub fn are_all_given(&self) -> bool {
        self.held == 0
    }

    /// Adds a buffer that the kernel has put so many bytes into.
    #[inline]
    pub fn add(&mut self, to: &mut Chain, id: BufferId, bytes: usize) {
        self.filled[usize::from(id)] = Filled { next: NONE, bytes: bytes as u16 };
        if to.count == 0 {
            to.first = id;
        } else {
            self.filled[usize::from(to.last)].next = id;
        }
        to.last = id;
        to.count += 1;
    }

    /// Moves at most `most` bytes to the end of `into`; returns how many. Gives the buffers that
    /// are empty then to the kernel.
    #[inline]
    pub fn move_bytes(&mut self, from: &mut Chain, into: &mut Vec<u8>, most: usize) -> usize {
        let mut moved = 0;
        while moved < most && from.count > 0 {
            let rest = from.taken.into()..self.filled[usize::from(from.first)].bytes.into();
            let now = rest.len().min(most - moved);
            into.extend_from_slice(self.bytes(from.first, rest.start..rest.start + now));
            moved += now;
            if now == rest.len() {
                self.give_first(from);
            } else {
                from.taken += now as u16;
            }
        }
        moved
    }

    /// Gives all buffers of a connection to the kernel.
    pub fn give_all(&mut self, of: &mut Chain) {
        while of.count > 0 {
            self.give_first(of);
        }
    }

    fn give_first(&mut self, of: &mut Chain) {
        let id = of.first;
        of.first = self.filled[usize::from(id)].next;
        (of.count, of.taken) = (of.count - 1, 0);
        self.give(id);
    }

    fn bytes(&self, id: BufferId, range: Range<usize>) -> &[u8] {
        assert!(range.end <= RECEIVED_BYTES);
        // SAFETY: the buffer is ours, so the kernel does not write to it; it has written so many
        // bytes, or they are zero.
        unsafe { std::slice::from_raw_parts(self.place(id).add(range.start), range.len()) }
    }
}

impl Default for Chain {
    fn default() -> Self {
        Chain { first: NONE, last: NONE, count: 0, taken: 0 }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: mapped so; the ring has ended.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), Self::size(self.count)) };
    }
}
