//! The sizes that blocks have.

/// The alignment of every slot, in bytes, and the distance between two classes of small slots.
/// A bucket keeps an address in 48 bits, three of them for marks. On x86-64 addresses of programs
/// have 47 bits, so two of them may be missing below; elsewhere they have 48.
pub(in crate::store) const ALIGN: usize = if cfg!(target_arch = "x86_64") { 4 } else { 8 };

/// The largest slot, in bytes.
pub const MAX_SLOT: usize = 2048;

/// The largest small slot. Above it less than a hundredth is lost with classes further apart, and
/// each class has a span that is not full.
pub(super) const MAX_SMALL: usize = 512;

/// The distance between two classes of larger slots.
const WIDE_STEP: usize = 8;

/// The smallest slot: a free one has a pointer in it.
const LEAST: usize = size_of::<usize>();

const SMALL_CLASSES: usize = MAX_SMALL / ALIGN;

pub(super) const CLASSES: usize = SMALL_CLASSES + (MAX_SLOT - MAX_SMALL) / WIDE_STEP + 1;

/// The size that a block of `bytes` takes: that of its class, above the largest one that of
/// jemalloc, which Redis and Valkey use: four steps per doubling. Other allocators round no coarser
/// than that.
#[inline]
pub fn block_bytes(bytes: usize) -> usize {
    let step = if bytes <= MAX_SMALL {
        ALIGN
    } else if bytes <= MAX_SLOT {
        WIDE_STEP
    } else {
        bytes.next_power_of_two() / 8
    };
    // Steps are powers of two, which the compiler cannot know: no division.
    (bytes.max(LEAST) + step - 1) & !(step - 1)
}

/// The class of slots of this size, which is one that [`block_bytes`] gives.
#[inline]
pub(super) fn class_of(slot_bytes: usize) -> usize {
    debug_assert!(slot_bytes <= MAX_SLOT && slot_bytes == block_bytes(slot_bytes));
    class_within(slot_bytes)
}

/// The class of the largest slots that have no more than this many bytes.
#[inline]
pub(super) fn class_within(bytes: usize) -> usize {
    if bytes <= MAX_SMALL {
        bytes / ALIGN
    } else {
        SMALL_CLASSES + (bytes.min(MAX_SLOT) - MAX_SMALL) / WIDE_STEP
    }
}
