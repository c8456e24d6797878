//! The host's global lock as the compiler knows it: what only its holder may do asks for the proof.

use std::marker::PhantomData;

/// Proof that this thread holds the host's global lock for as long as `'a`: the host's main thread
/// while the host calls us, or a worker between TryLock and Unlock. It is nothing at run time, and
/// cannot leave its thread.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Locked<'a>(PhantomData<(&'a (), *const ())>);

impl Locked<'_> {
    /// The proof, made of the caller's word.
    ///
    /// # Safety
    /// This thread holds the global lock for all of the lifetime, or there is no host, and no other
    /// thread claims the lock of the same engine meanwhile: whoever has the proof waits for
    /// tokens, and two that do so at one time could both be let into one shard.
    #[inline]
    pub const unsafe fn assume() -> Self {
        Locked(PhantomData)
    }
}

/// For unit tests.
// SAFETY: there is no host, and each has its engine for itself.
#[cfg(test)]
pub(crate) const LOCKED: Locked<'static> = unsafe { Locked::assume() };
