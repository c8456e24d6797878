//! The inboxes of workers, and what they sleep on.

use std::io;

use crate::sync::{Inbox, Waker};

/// The workers' inboxes, and what they sleep on.
pub struct Workers<M> {
    desks: Vec<Desk<M>>,
}

pub(super) struct Desk<M> {
    pub(super) inbox: Inbox<M>,
    pub(super) waker: Waker,
}

impl<M> Workers<M> {
    pub(super) fn new(count: usize) -> io::Result<Self> {
        let desk = |_| Ok(Desk { inbox: Inbox::default(), waker: Waker::new()? });
        Ok(Workers { desks: (0..count).map(desk).collect::<io::Result<_>>()? })
    }

    pub(super) fn send(&self, worker: usize, message: M) {
        let desk = &self.desks[worker];
        if desk.inbox.push(message) {
            desk.waker.wake();
        }
    }

    pub(super) fn wake_all(&self) {
        self.desks.iter().for_each(|desk| desk.waker.wake());
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.desks.len()
    }

    /// What a worker takes its messages from.
    pub(super) fn desk(&self, worker: usize) -> &Desk<M> {
        &self.desks[worker]
    }

    /// What ends the sleep of a worker.
    pub fn waker(&self, worker: usize) -> &Waker {
        &self.desks[worker].waker
    }
}
