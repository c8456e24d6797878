//! A thread's slot in the engine.

use std::marker::PhantomData;
use std::ops::Deref;

use super::counters::ThreadCounts;
use crate::sync::Locked;

/// A thread's slot in the engine: its counters, which only this thread writes. It cannot leave its
/// thread. The slot of the holder of the global lock is given out only in exchange for the proof of
/// holding it, so that slot is a proof itself.
#[repr(transparent)]
pub struct ThreadSlot(ThreadCounts, PhantomData<*const ()>);

impl ThreadSlot {
    #[inline]
    pub(super) fn of(counts: &ThreadCounts) -> &ThreadSlot {
        // SAFETY: `ThreadSlot` is transparent over `ThreadCounts`: the marker has no size.
        unsafe { &*std::ptr::from_ref(counts).cast() }
    }

    /// Whether this is the slot of the holder of the global lock.
    #[inline]
    pub(super) fn is_main(&self) -> bool {
        self.number == 0
    }

    /// The position in the log that replies must wait for, of all that this thread has run since
    /// the last call; 0 for none.
    #[inline]
    pub fn take_seen(&self) -> u64 {
        self.log.take_seen()
    }

    /// Notes whether this thread has replies that wait until more of the log is safe. It must look
    /// once more how far the log is safe before it sleeps.
    pub fn holds_replies(&self, holds: bool) {
        self.log.holds.announce(holds);
    }

    /// The proof, if this is the slot of the holder of the global lock.
    #[inline]
    pub(super) fn locked(&self) -> Option<Locked<'_>> {
        // SAFETY: only `Books::main_slot` gives that slot out, in exchange for the proof; and it
        // cannot leave the thread.
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
