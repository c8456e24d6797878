//! A thread's slot at the engine.

use std::marker::PhantomData;
use std::ops::Deref;

use super::counters::ThreadCounts;
use crate::sync::Locked;

/// A thread's slot at the engine: its counters, which it alone writes. It cannot leave its thread,
/// so the slot of the holder of the global lock, which is given out for the proof of that only, is
/// a proof itself.
#[repr(transparent)]
pub struct ThreadSlot(ThreadCounts, PhantomData<*const ()>);

impl ThreadSlot {
    #[inline]
    pub(super) fn of(counts: &ThreadCounts) -> &ThreadSlot {
        // SAFETY: the same memory by another name: the marker takes none.
        unsafe { &*std::ptr::from_ref(counts).cast() }
    }

    /// Whether it is the holder's of the global lock.
    #[inline]
    pub(super) fn is_main(&self) -> bool {
        self.number == 0
    }

    /// The proof, where it is the holder's of the global lock.
    #[inline]
    pub(super) fn locked(&self) -> Option<Locked<'_>> {
        // SAFETY: `Engine::main_slot` alone gives that slot out, for the proof; and it cannot leave
        // the thread.
        self.is_main().then(|| unsafe { Locked::assume() })
    }
}

impl Deref for ThreadSlot {
    type Target = ThreadCounts;

    #[inline]
    fn deref(&self) -> &ThreadCounts {
        &self.0
    }
}
