//! The host's global lock in the type system: functions that only its holder may call take the
//! proof.

use std::marker::PhantomData;

/// Proof that this thread holds the host's global lock for as long as `'a`: the host's main thread
/// while the host calls midi, or a worker between TryLock and Unlock. It has no size, and cannot
/// leave its thread.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Locked<'a>(PhantomData<(&'a (), *const ())>);

impl Locked<'_> {
    /// The proof, on the caller's word.
    ///
    /// # Safety
    /// This thread holds the global lock for all of the lifetime. Or there is no host, and no other
    /// thread claims the lock of the same engine meanwhile: a thread with the proof may wait for
    /// tokens, and two such threads at once could both enter one shard.
    #[inline]
    pub const unsafe fn assume() -> Self {
        Locked(PhantomData)
    }
}

/// For unit tests.
// SAFETY: there is no host, and each test has its own engine.
#[cfg(test)]
pub(crate) const LOCKED: Locked<'static> = unsafe { Locked::assume() };
