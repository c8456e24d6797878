//! A worker, as its port sees it.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::shared::{PortCounts, Shared, count};
use super::subscribers::Subscribers;
use crate::engine::{Engine, Refusal, ThreadSlot};

/// A worker, and what all workers share.
pub struct PortWorker {
    /// What all workers share.
    pub shared: Arc<Shared>,
    /// The worker's number.
    pub number: usize,
    /// The subscribers among its connections.
    pub subscribers: RefCell<Subscribers>,
}

impl PortWorker {
    /// The keyspace.
    #[inline]
    pub fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    /// The worker's place in the engine.
    #[inline]
    pub fn slot(&self) -> &ThreadSlot {
        self.engine().worker_slot(self.number)
    }

    /// The worker's counters.
    #[inline]
    pub fn counts(&self) -> &PortCounts {
        self.shared.counts(self.number)
    }

    /// Gives back the place of a connection of its own.
    pub fn leave_place(&self) {
        self.shared.leave_place();
        self.counts().connected.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a connection that is closed for a limit.
    pub fn note_limit(&self) {
        count(&self.counts().closed_for_limits, 1);
    }

    /// Counts a refusal, of a key or a command, and has the host note it.
    pub fn note_refusal(&self, is_of_key: bool, refusal: impl FnOnce() -> Refusal) {
        count(&self.counts().denied, 1);
        if is_of_key {
            count(&self.counts().denied_keys, 1);
        }
        self.engine().note_refusal(refusal);
    }
}
