//! Chunks that are ready: mapped, with their memory, and of no arena yet.
//!
//! At the first write to a chunk the system fills a whole huge page with zeros. That takes 0.2 ms,
//! and 5 ms in a virtual machine whose own host has no memory behind that page yet. Whoever needs a
//! chunk may be the host's main thread, and may hold tokens. So workers make some ready, without a
//! token, and chunks that have become empty are kept before any goes back to the system.

use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use rustix::mm::{Advice, madvise, munmap};

use super::system::{CHUNK_BYTES, is_resident, map_aligned};

/// As many as one thread that only writes needs in the time in which an idle worker looks.
const SPARE_CHUNKS: usize = 4;

static SPARES: Spares = Spares::new();

/// Places for chunks. A place has null or the address of one, with [`HUGE`] added.
struct Spares([AtomicPtr<u8>; SPARE_CHUNKS]);

/// The system gave it as a huge page.
const HUGE: usize = 1;

/// Memory for a chunk. Its bytes may be any.
pub(super) struct Ready {
    pub at: NonNull<u8>,
    pub is_huge: bool,
}

impl Ready {
    /// Takes it from the system. `None` if that has none.
    pub(super) fn map() -> Option<Ready> {
        let at = NonNull::new(map_aligned(CHUNK_BYTES)?)?;
        // SAFETY: the memory is the caller's alone. Where the system refuses huge pages, it gives
        // small ones.
        let is_huge = unsafe {
            let _ = madvise(at.as_ptr().cast(), CHUNK_BYTES, Advice::LinuxHugepage);
            at.write(0);
            // The first write has made all of it resident only if it is one page.
            is_resident(at.as_ptr().add(CHUNK_BYTES - 1))
        };
        Some(Ready { at, is_huge })
    }

    /// Keeps it for the next one who needs a chunk, or gives it back to the system.
    pub(super) fn leave(self) {
        if !SPARES.keep(&self) {
            // It fails only if the system cannot split a mapping; the memory is then lost.
            // SAFETY: nothing of it is in use.
            let _ = unsafe { munmap(self.at.as_ptr().cast(), CHUNK_BYTES) };
        }
    }
}

/// One that is ready.
pub(super) fn take() -> Option<Ready> {
    SPARES.take()
}

/// Makes a chunk ready, if there is room for one. For a thread that holds no token.
pub fn prepare_chunk() {
    if SPARES.have_room() {
        Ready::map().into_iter().for_each(Ready::leave);
    }
}

impl Spares {
    const fn new() -> Self {
        Spares([const { AtomicPtr::new(ptr::null_mut()) }; SPARE_CHUNKS])
    }

    fn have_room(&self) -> bool {
        self.0.iter().any(|place| place.load(Relaxed).is_null())
    }

    fn take(&self) -> Option<Ready> {
        let chunk = self.0.iter().find_map(|place| {
            // Who finds nothing writes nothing.
            let is_empty = place.load(Relaxed).is_null();
            if is_empty { None } else { NonNull::new(place.swap(ptr::null_mut(), Acquire)) }
        })?;
        let is_huge = chunk.addr().get() & HUGE != 0;
        let at = NonNull::new(chunk.as_ptr().map_addr(|address| address & !HUGE))?;
        Some(Ready { at, is_huge })
    }

    /// False if there is no room for it.
    fn keep(&self, chunk: &Ready) -> bool {
        let marked = chunk.at.as_ptr().map_addr(|address| address | usize::from(chunk.is_huge));
        self.0.iter().any(|place| {
            place.load(Relaxed).is_null()
                && place.compare_exchange(ptr::null_mut(), marked, Release, Relaxed).is_ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZero;

    use super::*;

    #[test]
    fn chunks_are_kept_until_all_places_are_taken() {
        let spares = Spares::new();
        assert!(spares.take().is_none() && spares.have_room());
        let ready = |place: usize| Ready {
            at: NonNull::without_provenance(
                NonZero::new((place + 1) * CHUNK_BYTES).expect("not 0"),
            ),
            is_huge: place.is_multiple_of(2),
        };
        assert!((0..SPARE_CHUNKS).all(|place| spares.keep(&ready(place))));
        assert!(!spares.have_room() && !spares.keep(&ready(SPARE_CHUNKS)));
        for place in 0..SPARE_CHUNKS {
            let taken = spares.take().expect("it was kept");
            assert_eq!((taken.at, taken.is_huge), (ready(place).at, ready(place).is_huge));
            assert!(spares.have_room());
        }
        assert!(spares.take().is_none());
    }

    #[test]
    fn what_the_system_gives_is_a_chunk() {
        let ready = Ready::map().expect("memory");
        assert!(ready.at.addr().get().is_multiple_of(CHUNK_BYTES));
        // SAFETY: all of it is ours.
        unsafe { ready.at.write_bytes(1, CHUNK_BYTES) };
        ready.leave();
    }
}
