//! What one thread has of the log.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::open_run::OpenRun;

/// What one thread has of the log. Only that thread uses it.
#[derive(Default)]
pub struct ThreadLog {
    /// The run that is under way.
    pub(super) run: Mutex<Box<OpenRun>>,
    /// The newest position that the thread's replies must wait for.
    seen: AtomicU64,
}

impl ThreadLog {
    /// Replies of this thread must wait for this position.
    pub(in crate::engine) fn see(&self, position: u64) {
        if position > self.seen.load(Ordering::Relaxed) {
            self.seen.store(position, Ordering::Relaxed);
        }
    }

    /// The position that what has been run since the last call must wait for; 0 for none.
    #[inline]
    pub fn take_seen(&self) -> u64 {
        let seen = self.seen.load(Ordering::Relaxed);
        if seen != 0 {
            self.seen.store(0, Ordering::Relaxed);
        }
        seen
    }
}
