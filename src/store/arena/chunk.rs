//! Chunks: 2 MiB of the system's memory each, and the units in them that spans are made of.

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::Relaxed;

use super::slots::Span;
use super::spare::{self, Ready};
use super::system::CHUNK_BYTES;
use super::{Arena, leaving};

/// The size of a unit.
pub(super) const UNIT_BYTES: usize = 64 << 10;

pub(super) const UNITS: usize = CHUNK_BYTES / UNIT_BYTES;

/// What the head takes of the first unit.
pub(super) const HEAD_BYTES: usize = 2048;

/// A bit for each unit.
const ALL_UNITS: u32 = u32::MAX;

const _: () = assert!(UNITS == ALL_UNITS.count_ones() as usize);
const _: () = assert!(size_of::<Chunk>() <= HEAD_BYTES);

/// The head of a chunk.
pub(super) struct Chunk {
    arena: &'static Arena,
    /// The neighbours in the arena's list of chunks with free units.
    next: *mut Chunk,
    previous: *mut Chunk,
    /// Its place among all chunks of the arena.
    place: usize,
    /// The units that no span has.
    free: u32,
    is_huge: bool,
    /// For each unit the first one of its span.
    firsts: [u8; UNITS],
    /// For the first unit of each span.
    spans: [Span; UNITS],
}

/// The chunks of an arena.
pub(super) struct Chunks {
    all: Vec<*mut Chunk>,
    /// The first of those that have free units, and are not to be emptied.
    first: *mut Chunk,
    /// One of these that has no span. It is kept for the next one.
    empty: *mut Chunk,
}

/// How many chunks are looked at for several units in a row.
const LOOKED_AT: usize = 8;

/// The head of the chunk that a slot is in.
#[inline]
fn head_of(slot: NonNull<u8>) -> *mut Chunk {
    slot.as_ptr().map_addr(|address| address & !(CHUNK_BYTES - 1)).cast()
}

/// The arena of a slot that is in use.
#[inline]
pub(super) fn arena_of(slot: NonNull<u8>) -> &'static Arena {
    // SAFETY: a chunk with a slot in use stays mapped, and its arena does not change.
    unsafe { (*head_of(slot)).arena }
}

/// The span of a slot that is in use.
///
/// # Safety
/// The caller is in the slot's arena.
#[inline]
pub(super) unsafe fn span_of(slot: NonNull<u8>) -> *mut Span {
    let chunk = head_of(slot);
    let unit = slot.as_ptr().addr() / UNIT_BYTES % UNITS;
    // SAFETY: the chunk is mapped, and only who is in the arena changes its head.
    unsafe { &raw mut (*chunk).spans[(*chunk).firsts[unit] as usize % UNITS] }
}

impl Chunks {
    pub(super) const fn new() -> Self {
        Chunks { all: Vec::new(), first: ptr::null_mut(), empty: ptr::null_mut() }
    }

    /// Takes 1 or 4 units in a row. Gives the place of their span's head, where they begin, and how
    /// many bytes they have.
    pub(super) fn take(
        &mut self,
        units: usize,
        arena: &'static Arena,
    ) -> (*mut Span, NonNull<u8>, usize) {
        let (chunk, unit) = self.find(units).unwrap_or_else(|| {
            let chunk = map(arena, self.all.len());
            self.all.push(chunk);
            self.link(chunk);
            (chunk, 0)
        });
        if chunk == self.empty {
            self.empty = ptr::null_mut();
        }
        // SAFETY: chunks on the list are mapped, and `self` alone changes them.
        let is_taken = unsafe {
            (*chunk).free &= !(bits(units) << unit);
            (&mut (*chunk).firsts)[unit..unit + units].fill(unit as u8);
            (*chunk).free == 0
        };
        if is_taken {
            self.unlink(chunk);
        }
        let taken = if unit == 0 { HEAD_BYTES } else { 0 };
        // SAFETY: the unit and its span's head are in the chunk.
        unsafe {
            let start = NonNull::new_unchecked(chunk.cast::<u8>().add(unit * UNIT_BYTES + taken));
            (&raw mut (*chunk).spans[unit], start, units * UNIT_BYTES - taken)
        }
    }

    /// The first chunk with so many free units in a row, and the first of these.
    fn find(&self, units: usize) -> Option<(*mut Chunk, usize)> {
        let mut chunk = self.first;
        for _ in 0..LOOKED_AT {
            // SAFETY: chunks on the list are mapped.
            let free = unsafe { chunk.as_ref()? }.free;
            let pairs = free & free >> 1;
            let fitting = if units == 1 { free } else { pairs & pairs >> 2 };
            if fitting != 0 {
                return Some((chunk, fitting.trailing_zeros() as usize));
            }
            // SAFETY: as above.
            chunk = unsafe { (*chunk).next };
        }
        None
    }

    /// Gives back the units of a span that has no slot in use.
    ///
    /// # Safety
    /// The span is of a chunk of this arena.
    pub(super) unsafe fn give_back(&mut self, start: NonNull<u8>, units: usize) {
        let chunk = head_of(start);
        let unit = start.as_ptr().addr() / UNIT_BYTES % UNITS;
        // SAFETY: the chunk is mapped, and `self` alone changes it.
        let (before, free) = unsafe {
            let before = (*chunk).free;
            (*chunk).free |= bits(units) << unit;
            (before, (*chunk).free)
        };
        let is_leaving = leaving::is_leaving(chunk.addr());
        if before == 0 && !is_leaving {
            self.link(chunk);
        }
        if free != ALL_UNITS {
            return;
        }
        if is_leaving {
            self.remove(chunk);
        } else if self.empty.is_null() {
            self.empty = chunk;
        } else {
            self.unlink(chunk);
            self.remove(chunk);
        }
    }

    /// Gives a chunk without spans, which is not on the list, back to the system.
    fn remove(&mut self, chunk: *mut Chunk) {
        // SAFETY: all chunks are mapped, and `self` alone changes them.
        unsafe {
            let place = (*chunk).place;
            self.all.swap_remove(place);
            if let Some(&moved) = self.all.get(place) {
                (*moved).place = place;
            }
        }
        leaving::unmark(chunk.addr());
        // SAFETY: no span is in it, and nothing refers to it any more.
        unsafe { unmap(NonNull::new_unchecked(chunk)) };
    }

    /// Gives up the emptiest chunks, as many as are not needed; calls `give_up` with each span in
    /// them. True if there are chunks to be emptied.
    pub(super) fn give_up(&mut self, mut give_up: impl FnMut(*mut Span)) -> bool {
        // SAFETY: all chunks are mapped, and `self` alone changes them.
        let used =
            |chunk: *mut Chunk| unsafe { spans(chunk).map(|span| (*span).used_bytes()).sum() };
        let is_leaving = |chunk: &*mut Chunk| leaving::is_leaving(chunk.addr());
        let before = self.all.iter().filter(|chunk| is_leaving(chunk)).count();
        let staying = self.all.iter().filter(|chunk| !is_leaving(chunk));
        let mut staying: Vec<(usize, *mut Chunk)> =
            staying.map(|&chunk| (used(chunk), chunk)).collect();
        let all_used = staying.iter().map(|(used, _)| used).sum();
        let spare = leaving::spare(staying.len(), all_used);
        staying.sort_unstable();
        let mut any = before > 0;
        // The empty one is kept.
        let worth = |used: usize| used > 0 && used <= leaving::WORTH_MOVING;
        for &(_, chunk) in staying.iter().take(spare).filter(|(used, _)| worth(*used)) {
            any = true;
            // SAFETY: as above. Chunks with free units that are not leaving are on the list.
            unsafe {
                spans(chunk).for_each(&mut give_up);
                if (*chunk).free != 0 {
                    self.unlink(chunk);
                }
            }
            leaving::mark(chunk.addr());
        }
        any
    }

    /// Puts a chunk in front of the list of those with free units.
    fn link(&mut self, chunk: *mut Chunk) {
        // SAFETY: both chunks are mapped, and `self` alone changes them.
        unsafe {
            (*chunk).previous = ptr::null_mut();
            (*chunk).next = self.first;
            if let Some(next) = self.first.as_mut() {
                next.previous = chunk;
            }
        }
        self.first = chunk;
    }

    fn unlink(&mut self, chunk: *mut Chunk) {
        // SAFETY: the chunk and its neighbours on the list are mapped, and `self` alone changes
        // them.
        unsafe {
            let (next, previous) = ((*chunk).next, (*chunk).previous);
            if let Some(next) = next.as_mut() {
                next.previous = previous;
            }
            match previous.as_mut() {
                Some(previous) => previous.next = next,
                None => self.first = next,
            }
        }
    }
}

/// The spans of a chunk.
///
/// # Safety
/// The chunk stays mapped meanwhile.
unsafe fn spans(chunk: *mut Chunk) -> impl Iterator<Item = *mut Span> {
    (0..UNITS).filter_map(move |unit| {
        // SAFETY: the caller's promise.
        unsafe {
            let is_first = (*chunk).free & (1 << unit) == 0 && (*chunk).firsts[unit] == unit as u8;
            is_first.then(|| &raw mut (*chunk).spans[unit])
        }
    })
}

/// So many bits.
fn bits(units: usize) -> u32 {
    (1 << units) - 1
}

/// A new chunk without spans, with this place among those of its arena.
fn map(arena: &'static Arena, place: usize) -> *mut Chunk {
    let Some(Ready { at, is_huge }) = spare::take().or_else(Ready::map) else {
        handle_alloc_error(Layout::new::<[u8; CHUNK_BYTES]>());
    };
    let chunk = at.cast::<Chunk>().as_ptr();
    // SAFETY: the memory is the caller's alone, and aligned.
    unsafe {
        chunk.write(Chunk {
            arena,
            next: ptr::null_mut(),
            previous: ptr::null_mut(),
            place,
            free: ALL_UNITS,
            is_huge,
            firsts: [0; UNITS],
            spans: [const { Span::UNUSED }; UNITS],
        });
    }
    count(arena, is_huge, 1);
    chunk
}

/// # Safety
/// Nothing of the chunk is in use.
unsafe fn unmap(chunk: NonNull<Chunk>) {
    // SAFETY: the caller's promise.
    let (arena, is_huge) = unsafe { ((*chunk.as_ptr()).arena, (*chunk.as_ptr()).is_huge) };
    count(arena, is_huge, -1);
    Ready { at: chunk.cast(), is_huge }.leave();
}

fn count(arena: &Arena, is_huge: bool, gained: isize) {
    let add = |count: &std::sync::atomic::AtomicUsize| {
        count.store(count.load(Relaxed).wrapping_add_signed(gained), Relaxed);
    };
    add(&arena.counts.chunks);
    if is_huge {
        add(&arena.counts.huge);
    }
}
