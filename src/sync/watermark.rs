//! A number that only grows, and threads that wait until it has grown far enough.
//!
//! The thread that raises it tells only those that have announced that they wait.

use super::primitives::{AtomicBool, AtomicU64, Ordering, fence};

/// A number that one thread raises.
pub struct Watermark(AtomicU64);

/// Whether a thread waits for a [`Watermark`].
pub struct Waiting(AtomicBool);

impl Default for Watermark {
    fn default() -> Self {
        Watermark(AtomicU64::new(0))
    }
}

impl Watermark {
    /// The number. The caller sees all that the raising thread did before it raised it so far.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Raises it. If [`Waiting::is_announced`] is false for a thread from now on, that thread sees
    /// the new number when it looks after its announcement.
    pub fn raise(&self, to: u64) {
        self.0.store(to, Ordering::Release);
        // With the fence in `announce`: of the two threads at least one sees the other's store.
        fence(Ordering::SeqCst);
    }
}

impl Default for Waiting {
    fn default() -> Self {
        Waiting(AtomicBool::new(false))
    }
}

impl Waiting {
    /// Announces whether this thread waits. It must look at the number once more before it sleeps.
    pub fn announce(&self, waits: bool) {
        self.0.store(waits, Ordering::Relaxed);
        // With the fence in `raise`.
        fence(Ordering::SeqCst);
    }

    /// Whether the thread is to be told that the number has grown.
    pub fn is_announced(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
