//! The inboxes of workers, and what they sleep on.

use std::io;

use crate::sync::{Inbox, Waker};

/// The workers' inboxes and wakers.
pub struct Workers<M> {
    queues: Vec<WorkerQueue<M>>,
}

pub(super) struct WorkerQueue<M> {
    pub(super) inbox: Inbox<M>,
    pub(super) waker: Waker,
}

impl<M> Workers<M> {
    pub(super) fn new(count: usize) -> io::Result<Self> {
        let queue = |_| Ok(WorkerQueue { inbox: Inbox::default(), waker: Waker::new()? });
        Ok(Workers { queues: (0..count).map(queue).collect::<io::Result<_>>()? })
    }

    pub(super) fn send(&self, worker: usize, message: M) {
        let queue = &self.queues[worker];
        if queue.inbox.push(message) {
            queue.waker.wake();
        }
    }

    pub(super) fn wake_all(&self) {
        self.queues.iter().for_each(|queue| queue.waker.wake());
    }

    pub(super) fn len(&self) -> usize {
        self.queues.len()
    }

    /// The inbox and waker of a worker.
    pub(super) fn queue(&self, worker: usize) -> &WorkerQueue<M> {
        &self.queues[worker]
    }

    /// What wakes a worker.
    pub fn waker(&self, worker: usize) -> &Waker {
        &self.queues[worker].waker
    }
}
