//! The host's global lock as the compiler knows it: what only its holder may do asks for the proof.

use std::marker::PhantomData;
use std::ops::Deref;

use super::counters::SeatCounts;
use super::inbox::Inbox;
use super::queue::ForMain;

/// Proof that this thread holds the host's global lock for as long as `'a`: the host's main thread while the host
/// calls us, or a worker between TryLock and Unlock. It is nothing at run time, and cannot leave its thread.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Locked<'a>(PhantomData<(&'a (), *const ())>);

impl Locked<'_> {
    /// The proof, made of the caller's word.
    ///
    /// # Safety
    /// This thread holds the global lock for all of the lifetime, or there is no host, and no other thread
    /// claims the lock of the same engine meanwhile: whoever has the proof waits for tokens, and two that do so
    /// at one time could both be let into one shard.
    #[inline]
    pub const unsafe fn assume() -> Self {
        Locked(PhantomData)
    }
}

/// For unit tests.
// SAFETY: there is no host, and each has its engine for itself.
#[cfg(test)]
pub(super) const LOCKED: Locked<'static> = unsafe { Locked::assume() };

/// A thread's seat at the engine: its counters, which it alone writes. It cannot leave its thread, so the seat of
/// the holder of the global lock, which is given out for the proof of that only, is a proof itself.
#[repr(transparent)]
pub struct Seat(SeatCounts, PhantomData<*const ()>);

impl Seat {
    #[inline]
    pub(super) fn of(counts: &SeatCounts) -> &Seat {
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
        // SAFETY: `Engine::main_seat` alone gives that seat out, for the proof; and it cannot leave the thread.
        self.is_main().then(|| unsafe { Locked::assume() })
    }
}

impl Deref for Seat {
    type Target = SeatCounts;

    #[inline]
    fn deref(&self) -> &SeatCounts {
        &self.0
    }
}

/// Messages for the host's main thread. Anybody may leave one; the holder of the global lock takes them out.
#[derive(Default)]
pub struct MainInbox(Inbox<ForMain>);

impl MainInbox {
    /// Leaves a message. True when the caller must wake the main thread.
    #[must_use]
    pub(super) fn push(&self, message: ForMain) -> bool {
        self.0.push(message)
    }

    /// The same with several, the oldest first.
    #[must_use]
    pub(super) fn push_all(&self, messages: impl Iterator<Item = ForMain>) -> bool {
        self.0.push_all(messages)
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the main thread has said that it sleeps.
    pub fn is_asleep(&self) -> bool {
        self.0.is_asleep()
    }

    /// Takes all messages, the oldest first.
    pub fn take(&self, _: Locked<'_>) -> std::collections::VecDeque<ForMain> {
        self.0.take()
    }

    /// See [`Inbox::may_sleep`].
    pub fn may_sleep(&self, _: Locked<'_>) -> bool {
        self.0.may_sleep()
    }

    /// See [`Inbox::awake`].
    pub fn awake(&self, _: Locked<'_>) {
        self.0.awake();
    }
}
