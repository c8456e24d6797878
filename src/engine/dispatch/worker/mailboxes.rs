//! What a worker does for the mailboxes of shards.

use std::time::Instant;

use super::Worker;
use crate::engine::request::Request;
use crate::engine::shards::HeldShard;
use crate::limits::{PENDING_PER_HOLD, QUEUED_PER_TURN, SLICE};
use crate::sync::Released;

impl Worker<'_> {
    /// Leaves the request to the holder of the shard; if the shard is free, takes it and runs the
    /// request.
    pub(super) fn leave_in_shard(&mut self, request: Box<Request>) {
        let engine = self.engine;
        let shard = engine.shards().of_request(&request);
        if let Some(held) = engine.shards().push(shard, request) {
            self.run_pending(shard, held);
        }
    }

    /// Runs the messages that are pending in shards that other threads have reported, as long as
    /// there is time.
    pub(super) fn visit_shards(&mut self) -> bool {
        let (began, mut progress) = (Instant::now(), false);
        for _ in 0..self.shards.len() {
            let Some(shard) = self.shards.pop_front() else { break };
            // If another thread holds it, that thread finds the messages when it releases the
            // shard.
            match self.engine.shards().try_take_with_pending(shard) {
                Ok(held) => {
                    self.run_pending(shard, held);
                    progress = true;
                }
                // A thread that still reads the shard does not look for messages.
                Err(Released::Pending) => self.shards.push_back(shard),
                Err(Released::Clean) => {}
            }
            if began.elapsed() > QUEUED_PER_TURN {
                break;
            }
        }
        progress
    }

    /// Runs pending messages, up to a number and a time. The rest is for this worker's next turn if
    /// it owns the shard, otherwise for the owner.
    fn run_pending(&mut self, shard: u32, mut held: HeldShard<'_>) {
        let (start, mut only_reads) = (Instant::now(), true);
        for _ in 0..PENDING_PER_HOLD {
            let Some(request) = held.next_pending() else {
                break;
            };
            only_reads &= request.reads_key();
            self.engine.resume_on_held(self.slot, shard, &mut held, request);
            if start.elapsed() > SLICE {
                break;
            }
        }
        self.engine.ledger.before_release(self.slot, &mut held);
        let room = &self.engine.shards().room;
        let released = if only_reads { held.release_read(room) } else { held.release(room) };
        if self.engine.shards().owner(shard) != self.number {
            self.engine.shards().tell_of(shard, released);
        } else if released == Released::Pending {
            self.shards.push_back(shard);
        }
    }
}
