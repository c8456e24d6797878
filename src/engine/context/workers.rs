//! The inboxes of workers, their wakers, and the messages to them.

use std::io;

use crate::engine::jobs::Progress;
use crate::engine::request::Request;
use crate::engine::{Engine, ThreadSlot};
use crate::sync::{Inbox, Waker};

/// A message to a worker.
pub enum Message {
    /// Run this command.
    Run(Box<Request>),
    /// More of the log is safe: replies may be sent.
    Safe,
    /// Handle all of these.
    Batch(Vec<Message>),
    /// A port's command has run and is back on the worker of its connection.
    Completed(Box<Request>),
    /// Write this request's reply, which is too large for the main thread.
    Reply(Box<Request>),
    /// Messages wait in this shard's mailbox.
    Shard(u32),
    /// Free the tables that logged flushes have taken out.
    Free,
    /// Take part in a job.
    Part(Box<dyn JobPart>),
    /// End the thread.
    Stop,
}

/// A worker's part of a job.
pub trait JobPart: Send {
    /// One slice. `Done` when this part is finished for good.
    fn slice(&mut self, engine: &Engine, slot: &ThreadSlot) -> Progress;

    /// After a panic in a slice: the job ends with an error, and its client is answered.
    fn failed(&mut self, engine: &Engine, slot: &ThreadSlot) -> Progress;
}

/// The workers' inboxes and wakers.
pub struct Workers<M> {
    queues: Vec<WorkerQueue<M>>,
}

pub(in crate::engine) struct WorkerQueue<M> {
    pub(in crate::engine) inbox: Inbox<M>,
    pub(in crate::engine) waker: Waker,
}

impl<M> Workers<M> {
    /// Their wakers' descriptors are at least `first_descriptor`.
    pub(super) fn new(count: usize, first_descriptor: usize) -> io::Result<Self> {
        let queue = |_| {
            let waker = Waker::above(first_descriptor as i32)?;
            Ok(WorkerQueue { inbox: Inbox::default(), waker })
        };
        Ok(Workers { queues: (0..count).map(queue).collect::<io::Result<_>>()? })
    }

    pub(in crate::engine) fn send(&self, worker: usize, message: M) {
        let queue = &self.queues[worker];
        if queue.inbox.push(message) {
            queue.waker.wake();
        }
    }

    /// Sends a message to a random worker.
    pub(in crate::engine) fn send_to_any(&self, message: M) {
        self.send(fastrand::usize(..self.queues.len()), message);
    }

    pub(super) fn wake_all(&self) {
        self.queues.iter().for_each(|queue| queue.waker.wake());
    }

    pub(in crate::engine) fn len(&self) -> usize {
        self.queues.len()
    }

    /// The inbox and waker of a worker.
    pub(in crate::engine) fn queue(&self, worker: usize) -> &WorkerQueue<M> {
        &self.queues[worker]
    }

    /// The waker of a worker.
    pub fn waker(&self, worker: usize) -> &Waker {
        &self.queues[worker].waker
    }
}
