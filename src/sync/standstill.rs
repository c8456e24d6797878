//! A standstill: no thread holds a token and none gets one, although nothing is written to the
//! tokens. The process can be forked then, however many tokens there are.
//!
//! ```text
//! the thread that stops             a thread that takes a token
//! raises the flag                   writes HELD into the word
//! reads each word:                  reads the flag:
//!   is it held? waits for its holder  is it up? gives the token back at once
//! ```
//!
//! Each of the two writes before it reads what the other writes, in sequentially consistent order:
//! so at least one of them sees the other.

use super::primitives::{AtomicBool, Ordering};

/// A flag that all look at who take tokens, or read shards without, except the holder of the host's
/// global lock, who raises it.
pub struct StopFlag(AtomicBool);

impl Default for StopFlag {
    fn default() -> Self {
        StopFlag(AtomicBool::new(false))
    }
}

impl StopFlag {
    /// Raises it. Who has taken a token and did not see the flag is seen by
    /// [`Token::is_at_rest`](super::Token::is_at_rest) from now on.
    pub fn raise(&self) {
        self.0.store(true, Ordering::SeqCst);
        fence_of_models();
    }

    /// Lowers it.
    pub fn lower(&self) {
        // Release: who takes a token next sees what was done at the standstill.
        self.0.store(false, Ordering::Release);
    }

    /// Whether it is up. To be asked by whoever has just taken a token, before it is used.
    #[inline]
    pub fn is_up(&self) -> bool {
        fence_of_models();
        self.0.load(Ordering::SeqCst)
    }
}

/// Loom has sequential consistency in fences only. Processors have it in these accesses: where they
/// are x86, in the CAS that takes the token.
#[inline(always)]
pub(super) fn fence_of_models() {
    #[cfg(loom)]
    super::primitives::fence(Ordering::SeqCst);
}

/// Proof that this thread alone may touch the data of all tokens: a forked child, whose parent was
/// at a standstill. There the data can be had without its token.
pub struct OnlyThread(());

impl OnlyThread {
    /// The proof, on the caller's word.
    ///
    /// # Safety
    /// There is no other proof. As long as this one exists, no thread holds a token or takes one.
    pub unsafe fn assume() -> Self {
        OnlyThread(())
    }
}
