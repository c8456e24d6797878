//! One thread's part of the log.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::run::OpenRun;
use crate::sync::Waiting;

/// One thread's part of the log. Only that thread uses it.
#[derive(Default)]
pub struct ThreadLog {
    /// The run that is under way.
    pub(in crate::engine::ledger) run: Mutex<Box<OpenRun>>,
    /// The newest position that the thread's replies must wait for.
    seen: AtomicU64,
    /// Whether the thread must still tell the main thread that there is a tail.
    pub(in crate::engine::ledger) announces: AtomicBool,
    /// Whether the thread has replies that wait until more is safe.
    pub(in crate::engine) holds: Waiting,
}

impl ThreadLog {
    /// Replies of this thread must wait for this position.
    pub(in crate::engine) fn see(&self, position: u64) {
        if position > self.seen.load(Ordering::Relaxed) {
            self.seen.store(position, Ordering::Relaxed);
        }
    }

    /// Whether the thread must still tell the main thread that there is a tail.
    pub(in crate::engine) fn announces(&self) -> bool {
        self.announces.load(Ordering::Relaxed)
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
