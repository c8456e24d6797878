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
    /// How far it is. What its thread did before it raised it so far is visible.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Raises it. A thread that [`Waiting::is_announced`] does not find from now on sees the new
    /// number when it looks after its announcement.
    pub fn raise(&self, to: u64) {
        self.0.store(to, Ordering::Release);
        // The pair of that in `announce`: of the two threads one sees what the other has done.
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
        fence(Ordering::SeqCst);
    }

    /// Whether the thread is to be told that the number has grown.
    pub fn is_announced(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
