//! The memory of entries and buckets: slots of equal size in spans, spans in chunks of 2 MiB on
//! huge pages.
//!
//! ```text
//! Arena ── Chunk, 2 MiB: head 2 KiB │ units 32 × 64 KiB ── Span, 1 or 4 units ── slots of a class
//! ```
//!
//! The classes are a few bytes apart (`classes.rs`); larger blocks come from the host's allocator.
//! A chunk belongs to one arena. A thread takes slots from an arena of its own, and frees those of
//! any.
//!
//! Nobody waits for an arena. Whoever finds the one that it wants busy takes a slot from the next,
//! or leaves the slot that it frees on a list, which is emptied by the next one who has the arena.
//! So a token may be held here, and a forked child can go on where the fork has caught another
//! thread inside an arena.
//!
//! Chunks are mapped, not taken from the host's allocator, which would count whole blocks: removing
//! half of the keys would make no room below `maxmemory`. What the host counts instead is the
//! [`ballast`].

mod ballast;
mod chunk;
mod classes;
mod leaving;
mod slots;
mod spare;
mod system;

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::{Cell, UnsafeCell};
use std::ptr::{self, NonNull};
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use crossbeam_utils::CachePadded;

pub(super) use classes::ALIGN;
pub use classes::{MAX_SLOT, block_bytes};
pub(super) use leaving::is_leaving;
use slots::Slots;
pub use spare::prepare_chunk;

/// More than there are threads that use them at a time, so that one is always free.
const ARENAS: usize = 512;

/// Some microseconds.
const RELOCATION_TRIES: usize = 200;

/// Some chunks, and the slots in them.
struct Arena {
    is_busy: AtomicBool,
    /// Slots that were freed while the arena was busy.
    left: AtomicPtr<LeftSlot>,
    counts: Counts,
    slots: UnsafeCell<Slots>,
}

/// The beginning of a slot that was left: the next one.
struct LeftSlot(*mut LeftSlot);

/// What an arena has, for everybody to read. Only the thread that is in the arena writes.
struct Counts {
    /// Bytes of the slots in use.
    used: AtomicUsize,
    chunks: AtomicUsize,
    /// Of these, how many the system gave as a huge page.
    huge: AtomicUsize,
}

/// The memory of all arenas, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaUsage {
    /// Slots in use.
    pub used: usize,
    /// Memory taken from the system.
    pub mapped: usize,
    /// Of that, what the system gave as huge pages. A fork may have split some since.
    pub huge: usize,
}

// SAFETY: `slots` is touched only between `try_enter` and the drop of what that gives.
unsafe impl Sync for Arena {}

static ALL: [CachePadded<Arena>; ARENAS] = [const { CachePadded::new(Arena::new()) }; ARENAS];

/// How many threads have been given an arena.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The number of the thread's own arena; `ARENAS` before it has one.
    static HOME: Cell<usize> = const { Cell::new(ARENAS) };
}

#[inline]
fn home() -> usize {
    HOME.with(|home| {
        if home.get() == ARENAS {
            home.set(THREADS.fetch_add(1, Relaxed) % ARENAS);
        }
        home.get()
    })
}

/// A block of this many bytes, a size that [`block_bytes`] gives, aligned to [`ALIGN`]. One
/// whose size is a power of two, from 64 to [`MAX_SLOT`], is aligned to 64.
#[inline]
pub(super) fn take(bytes: usize) -> NonNull<u8> {
    if bytes > MAX_SLOT {
        return take_large(bytes);
    }
    let entered = ALL[home()].try_enter().unwrap_or_else(enter_another);
    entered.slots.take(bytes, entered.arena)
}

/// Frees a block that [`take`] gave for this many bytes.
///
/// # Safety
/// Nothing may use the block any more.
#[inline]
pub(super) unsafe fn free(block: NonNull<u8>, bytes: usize) {
    if bytes > MAX_SLOT {
        // SAFETY: such blocks come from `take_large`, with the same layout.
        return unsafe { dealloc(block.as_ptr(), layout(bytes)) };
    }
    let arena = chunk::arena_of(block);
    match arena.try_enter() {
        // SAFETY: the slot is in use, and is of that arena.
        Some(entered) => unsafe { entered.slots.free(block, arena) },
        None => arena.leave(block),
    }
}

/// Moves what is in a block to another one of the same arena, unless that stays busy.
///
/// # Safety
/// [`take`] gave the block for this many bytes, a slot's at most, and nothing uses it any more if
/// this returns another one.
pub(super) unsafe fn relocate(block: NonNull<u8>, bytes: usize) -> Option<NonNull<u8>> {
    let arena = chunk::arena_of(block);
    // A chunk stays for the sake of one slot, so that is worth some tries.
    let entered = (0..RELOCATION_TRIES).find_map(|_| {
        std::hint::spin_loop();
        arena.try_enter()
    })?;
    let other = entered.slots.take(bytes, arena);
    // SAFETY: both have so many bytes, and are not the same: the first one is in use.
    unsafe {
        other.copy_from_nonoverlapping(block, bytes);
        entered.slots.free(block, arena);
    }
    Some(other)
}

/// The arenas that threads have had so far.
fn in_use() -> &'static [CachePadded<Arena>] {
    &ALL[..THREADS.load(Relaxed).min(ARENAS)]
}

/// Has all arenas give up the chunks that they have too many of. True if there are chunks to be
/// emptied, perhaps from an earlier time.
pub fn give_up_chunks() -> bool {
    let mut any = false;
    for arena in in_use() {
        // A busy one is asked again the next time.
        if let Some(entered) = arena.try_enter() {
            any |= entered.slots.give_up_chunks();
        }
    }
    any
}

/// Has the host count what is in use in each arena to within a quarter of a MiB, instead of half of
/// one.
pub fn count_exactly() {
    for arena in in_use() {
        if let Some(entered) = arena.try_enter() {
            entered.slots.count_exactly(arena);
        }
    }
}

/// Any arena that is not busy. There are more of them than threads.
#[cold]
fn enter_another() -> Entered<'static> {
    ALL.iter().cycle().find_map(|arena| arena.try_enter()).expect("the search has no end")
}

#[cold]
fn take_large(bytes: usize) -> NonNull<u8> {
    let layout = layout(bytes);
    // SAFETY: the size is not 0.
    NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, ALIGN).expect("blocks are far below isize::MAX")
}

/// The memory of all arenas.
pub fn usage() -> ArenaUsage {
    let mut all = ArenaUsage::default();
    for arena in in_use() {
        all.used += arena.counts.used.load(Relaxed);
        all.mapped += arena.counts.chunks.load(Relaxed) * system::CHUNK_BYTES;
        all.huge += arena.counts.huge.load(Relaxed) * system::CHUNK_BYTES;
    }
    all
}

/// An arena that this thread has to itself.
struct Entered<'a> {
    arena: &'static Arena,
    slots: &'a mut Slots,
}

impl Arena {
    const fn new() -> Self {
        Arena {
            is_busy: AtomicBool::new(false),
            left: AtomicPtr::new(ptr::null_mut()),
            counts: Counts {
                used: AtomicUsize::new(0),
                chunks: AtomicUsize::new(0),
                huge: AtomicUsize::new(0),
            },
            slots: UnsafeCell::new(Slots::new()),
        }
    }

    #[inline]
    fn try_enter(&'static self) -> Option<Entered<'static>> {
        if self.is_busy.swap(true, Acquire) {
            return None;
        }
        // SAFETY: nobody else has set the flag, and nobody touches the slots without having set it.
        // The drop of what is returned clears it.
        let mut entered = Entered { arena: self, slots: unsafe { &mut *self.slots.get() } };
        if !self.left.load(Relaxed).is_null() {
            entered.free_left();
        }
        Some(entered)
    }

    /// Leaves a slot that is free to the next one who enters.
    #[cold]
    fn leave(&self, block: NonNull<u8>) {
        let left = block.cast::<LeftSlot>().as_ptr();
        let mut next = self.left.load(Relaxed);
        loop {
            // SAFETY: every slot has room for a pointer, and nobody uses this one.
            unsafe { left.write_unaligned(LeftSlot(next)) };
            match self.left.compare_exchange_weak(next, left, Release, Relaxed) {
                Ok(_) => return,
                Err(other) => next = other,
            }
        }
    }
}

impl Entered<'_> {
    #[cold]
    fn free_left(&mut self) {
        let mut next = self.arena.left.swap(ptr::null_mut(), Acquire);
        while let Some(left) = NonNull::new(next) {
            // SAFETY: `leave` put it on the list; its beginning is read before it is freed.
            unsafe {
                next = left.read_unaligned().0;
                self.slots.free(left.cast(), self.arena);
            }
        }
    }
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        self.arena.is_busy.store(false, Release);
    }
}

#[cfg(test)]
mod tests;
