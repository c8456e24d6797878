//! `midi.dispatch pool`: the commands of one turn of the main loop, which go to the workers
//! together.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::engine::context::Context;
use crate::engine::request::Request;
use crate::engine::shards::Shards;

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
    /// Adds one. Commands also run after BEFORE_SLEEP: the first must not wait until something else
    /// wakes the main loop.
    pub(super) fn add(&self, context: &Context, request: Box<Request>) {
        let mut requests = self.requests.lock();
        requests.push(request);
        self.has_any.store(true, Ordering::Relaxed);
        if requests.len() == 1 && context.main.is_asleep() {
            context.outside.wake_main();
        }
    }

    /// Sends them all to the workers.
    #[inline]
    pub(super) fn send(&self, shards: &Shards) {
        if self.has_any.load(Ordering::Relaxed) {
            self.has_any.store(false, Ordering::Relaxed);
            shards.enqueue_batch(std::mem::take(&mut *self.requests.lock()).into_iter());
        }
    }
}
