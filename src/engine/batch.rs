//! `midi.dispatch pool`: the commands of one turn of the main loop, which go to the workers
//! together.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::request::Request;

/// Requests stay boxed from end to end.
type Requests = Vec<Box<Request>>;

/// Commands gathered until the main loop's next turn. Not crossbeam's queue: one thread has them.
#[derive(Default)]
pub struct Batch {
    requests: Mutex<Requests>,
    /// Whether there are any; every turn reads this without the lock.
    has_any: AtomicBool,
}

impl Batch {
    /// Adds one. True if it is the first.
    pub(super) fn add(&self, request: Box<Request>) -> bool {
        let mut requests = self.requests.lock();
        requests.push(request);
        self.has_any.store(true, Ordering::Relaxed);
        requests.len() == 1
    }

    /// Takes them all; `None` if there are none.
    #[inline]
    pub(super) fn take(&self) -> Option<Requests> {
        if !self.has_any.load(Ordering::Relaxed) {
            return None;
        }
        self.has_any.store(false, Ordering::Relaxed);
        Some(std::mem::take(&mut *self.requests.lock()))
    }
}
