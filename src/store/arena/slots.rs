//! Spans: slots of one class, with a list of the free ones.

use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::Relaxed;

use super::Arena;
use super::ballast::Ballast;
use super::chunk::{Chunks, span_of};
use super::classes::{ALIGN, CLASSES, MAX_SMALL, class_of, class_within};
use super::leaving::is_leaving;
use super::system::CHUNK_BYTES;

/// The head of a span.
pub(super) struct Span {
    /// The neighbours in the list of the class's spans with room.
    next: *mut Span,
    previous: *mut Span,
    start: NonNull<u8>,
    /// The size of a slot.
    slot_bytes: u16,
    /// How many slots there are, how many are in use, and how many were ever.
    capacity: u16,
    used: u16,
    begun: u16,
    /// The first free slot of those that were in use: its distance from the start, in units
    /// of [`ALIGN`]. Each begins with the distance of the next.
    free: u16,
    units: u8,
}

/// No slot.
const NONE: u16 = u16::MAX;

impl Span {
    pub(super) const UNUSED: Span = Span {
        next: ptr::null_mut(),
        previous: ptr::null_mut(),
        start: NonNull::dangling(),
        slot_bytes: 0,
        capacity: 0,
        used: 0,
        begun: 0,
        free: NONE,
        units: 0,
    };

    #[inline]
    fn is_full(&self) -> bool {
        self.used == self.capacity
    }

    /// Bytes of the slots in use.
    pub(super) fn used_bytes(&self) -> usize {
        usize::from(self.used) * usize::from(self.slot_bytes)
    }

    /// Takes a slot of a span that is not full.
    #[inline]
    fn take(&mut self) -> NonNull<u8> {
        self.used += 1;
        let at = if self.free == NONE {
            self.begun += 1;
            usize::from(self.begun - 1) * usize::from(self.slot_bytes)
        } else {
            usize::from(self.free) * ALIGN
        };
        // SAFETY: the slot is in the span.
        let slot = unsafe { self.start.add(at) };
        sanitizer::unpoison(slot, self.slot_bytes.into());
        if self.free != NONE {
            // SAFETY: `free` wrote it there.
            self.free = unsafe { slot.cast::<u16>().read() };
        }
        slot
    }

    /// # Safety
    /// The slot is of this span, and nothing uses it any more.
    #[inline]
    unsafe fn free(&mut self, slot: NonNull<u8>) {
        self.used -= 1;
        // SAFETY: the slot is in the span, and has room for an aligned number.
        unsafe {
            if cfg!(debug_assertions) {
                slot.write_bytes(FREED, self.slot_bytes.into());
            }
            slot.cast::<u16>().write(self.free);
            self.free = (slot.offset_from_unsigned(self.start) / ALIGN) as u16;
        }
        sanitizer::poison(slot, self.slot_bytes.into());
    }
}

/// Unused memory that an arena may have before sizes share spans, besides a sixteenth of what is in
/// use.
const ROOM: usize = 2 * CHUNK_BYTES;

/// What freed slots hold in builds with debug assertions.
const FREED: u8 = 0xdd;

/// The slots of an arena.
pub(super) struct Slots {
    /// For each class the first of its spans with room.
    first: [*mut Span; CLASSES],
    chunks: Chunks,
    ballast: Ballast,
}

impl Slots {
    pub(super) const fn new() -> Self {
        Slots { first: [ptr::null_mut(); CLASSES], chunks: Chunks::new(), ballast: Ballast::new() }
    }

    /// A slot of so many bytes, which are those of a class.
    #[inline]
    pub(super) fn take(&mut self, bytes: usize, arena: &'static Arena) -> NonNull<u8> {
        let mut class = class_of(bytes);
        if self.first[class].is_null() {
            class = self.make_room(bytes, arena);
        }
        // SAFETY: spans on the lists are those of chunks that are mapped, and `self` alone changes
        // them.
        let span = unsafe { &mut *self.first[class] };
        let slot = span.take();
        if span.is_full() {
            self.unlink(span);
        }
        self.note_used(arena, span.slot_bytes as isize);
        slot
    }

    /// The class to take a slot of when the block's own has no room. Where much of the arena is
    /// unused, this is a larger class that has room; else its own, which gets a span. With blocks
    /// of all sizes, a span of each class would take 56 MiB.
    #[cold]
    fn make_room(&mut self, bytes: usize, arena: &'static Arena) -> usize {
        let larger = if has_much_room(arena) { self.larger_class(bytes) } else { None };
        larger.unwrap_or_else(|| {
            self.add_span(bytes, arena);
            class_of(bytes)
        })
    }

    /// The next larger class with room, by an eighth at most. None for powers of two, whose slots
    /// are aligned to 64.
    fn larger_class(&self, bytes: usize) -> Option<usize> {
        if bytes.is_power_of_two() {
            return None;
        }
        (class_of(bytes) + 1..=class_within(bytes + bytes / 8))
            .find(|class| !self.first[*class].is_null())
    }

    /// Frees a slot.
    ///
    /// # Safety
    /// The slot is of this arena, and nothing uses it any more.
    #[inline]
    pub(super) unsafe fn free(&mut self, slot: NonNull<u8>, arena: &Arena) {
        // SAFETY: the caller's promise; `self` alone changes the spans.
        let span = unsafe { &mut *span_of(slot) };
        let was_full = span.is_full();
        // SAFETY: the caller's promise.
        unsafe { span.free(slot) };
        self.note_used(arena, -(span.slot_bytes as isize));
        if span.used == 0 || was_full {
            self.move_between_lists(span, was_full);
        }
    }

    /// A slot of the span was freed: the first free one, or the last one in use.
    #[cold]
    fn move_between_lists(&mut self, span: &mut Span, was_full: bool) {
        let is_listed = !was_full && !is_leaving(span.start.addr().get());
        if span.used == 0 {
            if is_listed {
                self.unlink(span);
            }
            // SAFETY: a span of this arena, and no slot of it is in use.
            unsafe { self.chunks.give_back(span.start, span.units.into()) };
        } else if !is_leaving(span.start.addr().get()) {
            self.link(span);
        }
    }

    /// Gives up chunks that are not needed; true if there are chunks to be emptied.
    pub(super) fn give_up_chunks(&mut self) -> bool {
        let mut chunks = std::mem::replace(&mut self.chunks, Chunks::new());
        let any = chunks.give_up(|span| {
            // SAFETY: as in `take`.
            let span = unsafe { &mut *span };
            if !span.is_full() {
                self.unlink(span);
            }
        });
        self.chunks = chunks;
        any
    }

    #[inline]
    fn note_used(&mut self, arena: &Arena, gained: isize) {
        let used = arena.counts.used.load(Relaxed).wrapping_add_signed(gained);
        arena.counts.used.store(used, Relaxed);
        self.ballast.follow(used);
    }

    /// Has the host count what is in use to within a block.
    pub(super) fn count_exactly(&mut self, arena: &Arena) {
        self.ballast.adjust(arena.counts.used.load(Relaxed));
    }

    fn add_span(&mut self, slot_bytes: usize, arena: &'static Arena) {
        // Four units for larger slots, so that what is left over at the end is little.
        let units = if slot_bytes <= MAX_SMALL { 1 } else { 4 };
        let (span, start, bytes) = self.chunks.take(units, arena);
        sanitizer::poison(start, bytes);
        // SAFETY: the place for this span's head, which no other span uses.
        let span = unsafe {
            span.write(Span {
                start,
                slot_bytes: slot_bytes as u16,
                capacity: (bytes / slot_bytes) as u16,
                units: units as u8,
                ..Span::UNUSED
            });
            &mut *span
        };
        self.link(span);
    }

    fn first_of(&mut self, span: &Span) -> &mut *mut Span {
        &mut self.first[class_of(span.slot_bytes.into())]
    }

    /// Puts a span that has room in front of its class's list.
    fn link(&mut self, span: &mut Span) {
        let first = self.first_of(span);
        span.previous = ptr::null_mut();
        span.next = *first;
        *first = span;
        // SAFETY: as in `take`; it is another span.
        if let Some(next) = unsafe { span.next.as_mut() } {
            next.previous = span;
        }
    }

    /// Takes a span off its class's list.
    fn unlink(&mut self, span: &mut Span) {
        // SAFETY: as in `take`; the neighbours are other spans.
        let (next, previous) = unsafe { (span.next.as_mut(), span.previous.as_mut()) };
        if let Some(next) = next {
            next.previous = span.previous;
        }
        match previous {
            Some(previous) => previous.next = span.next,
            None => *self.first_of(span) = span.next,
        }
    }
}

/// Whether so much of the arena is unused that sizes share spans.
fn has_much_room(arena: &Arena) -> bool {
    let used = arena.counts.used.load(Relaxed);
    arena.counts.chunks.load(Relaxed) * CHUNK_BYTES > used + used / 16 + ROOM
}

/// The address sanitizer's view of slots, in the builds of scripts/test-long.sh.
mod sanitizer {
    use std::ptr::NonNull;

    #[cfg(midi_asan)]
    unsafe extern "C" {
        fn __asan_poison_memory_region(start: *const u8, bytes: usize);
        fn __asan_unpoison_memory_region(start: *const u8, bytes: usize);
    }

    /// Reports whoever touches these bytes from now on.
    #[inline]
    pub(super) fn poison(start: NonNull<u8>, bytes: usize) {
        #[cfg(midi_asan)]
        // SAFETY: the memory is mapped.
        unsafe {
            __asan_poison_memory_region(start.as_ptr(), bytes);
        }
        let _ = (start, bytes);
    }

    /// Allows it again.
    #[inline]
    pub(super) fn unpoison(start: NonNull<u8>, bytes: usize) {
        #[cfg(midi_asan)]
        // SAFETY: the memory is mapped.
        unsafe {
            __asan_unpoison_memory_region(start.as_ptr(), bytes);
        }
        let _ = (start, bytes);
    }
}
