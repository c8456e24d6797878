//! Commands that wait for a shard: in its mailbox, where its holder finds them, or with a worker.

use super::{HeldShard, Shards};
use crate::engine::context::Message;
use crate::engine::request::Request;
use crate::sync::{Left, Pushed};

impl Shards {
    /// Queues a counted command whose token was busy. A command on one shard waits in its shard's
    /// mailbox, where the holder finds it; others go to a worker.
    pub fn enqueue(&self, request: Box<Request>) {
        if !request.is_on_one_shard() {
            let (worker, message) = self.addressed(request);
            self.context.workers.send(worker, message);
            return;
        }
        let shard = self.of_request(&request);
        if let Left::Free(request) = self.leave(shard, request) {
            self.context.workers.send(self.owner(shard), Message::Run(request));
        }
    }

    /// Leaves a request in its shard's mailbox, unless the shard is free.
    pub(in crate::engine) fn leave(&self, shard: u32, request: Box<Request>) -> Left<Box<Request>> {
        self.get(shard).token.leave(request)
    }

    /// Leaves a request in its shard's mailbox, and takes the shard if it is free.
    pub fn push(&self, shard: u32, request: Box<Request>) -> Option<HeldShard<'_>> {
        match self.get(shard).token.push(request) {
            Pushed::Taken(taken) => self.alone(shard, taken),
            Pushed::Queued => None,
        }
    }

    /// The shard that a request needs, or needs first.
    pub(in crate::engine) fn of_request(&self, request: &Request) -> u32 {
        request.first_key().map_or_else(|| self.drawn(fastrand::u32(..)), |key| self.of_key(key))
    }

    /// Queues many counted commands at once: one message and at most one wake-up for each worker.
    pub fn enqueue_batch(&self, requests: impl Iterator<Item = Box<Request>>) {
        let mut batches: Vec<Vec<Message>> = Vec::new();
        batches.resize_with(self.context.config.workers, Vec::new);
        for request in requests {
            let (worker, message) = self.addressed(request);
            batches[worker].push(message);
        }
        for (worker, batch) in batches.into_iter().enumerate() {
            if !batch.is_empty() {
                self.context.workers.send(worker, Message::Batch(batch));
            }
        }
    }

    /// The worker that had best run a command: the owner of its first key's shard, or any if it has
    /// no key.
    fn addressed(&self, request: Box<Request>) -> (usize, Message) {
        (self.owner(self.of_request(&request)), Message::Run(request))
    }
}
