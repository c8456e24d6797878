//! Commands that could not run at once: where they wait, and how they return to their origin; and
//! tasks for the main thread.

use std::sync::atomic::Ordering;

use super::call::Call;
use super::host::Host;
use super::job::{JobDoor, JobReply};
use super::refusals::Refusal;
use super::request::{Origin, Request};
use super::slot::ThreadSlot;
use super::state::{Engine, ForMain, MainTask, Message};
use crate::command::{Args, Transcript};
use crate::store::Now;
use crate::sync::{Left, Locked};

impl Engine {
    /// The largest reply that a client of that door may get, in bytes.
    pub fn most_reply(&self, door: JobDoor) -> usize {
        match door {
            JobDoor::Port => self.settings.port.most_output(),
            JobDoor::Host => self.settings.host_output.load(Ordering::Relaxed),
            JobDoor::None => usize::MAX,
        }
    }

    /// The transcript for a request's reply, limited to what may wait for its client.
    pub(super) fn transcript_for(&self, request: &Request) -> Transcript {
        Transcript::up_to(match &request.origin {
            Origin::Main(client) => client.most_reply(),
            Origin::Worker { .. } => self.most_reply(JobDoor::Port),
        })
    }

    /// The call of a request, for a worker, which may make a reply of any size.
    pub fn call_of<'a>(&self, request: &Request, args: Args<'a>) -> Call<'a> {
        let limits = self.settings.limits(usize::MAX);
        Call {
            command: request.command,
            args,
            db: request.db,
            now: Now::lazy(self.config.clock),
            limits: if self.config.safemode { limits } else { limits.alone() },
            prefix: request.prefix,
            author: request.author(),
        }
    }

    /// Sends requests that have their replies to their origins: one message and at most one wake-up
    /// for all. If the main thread were woken for the first of many, it would take the processor
    /// from the worker.
    pub(super) fn send_back(&self, requests: impl Iterator<Item = Box<Request>>) {
        let for_main = requests.filter_map(|request| match request.origin {
            Origin::Main(_) => Some(ForMain::Answer(request)),
            Origin::Worker { worker, .. } => {
                self.workers.send(worker, Message::Completed(request));
                None
            }
        });
        if self.main.push_all(for_main) {
            self.outside.wake_main();
        }
    }

    /// Sends a request to the main thread, because only that can go on with it.
    pub(super) fn send_to_main(&self, request: Box<Request>) {
        if self.main.push(ForMain::Run(request)) {
            self.outside.wake_main();
        }
    }

    /// Has the main thread finish a job's reply once this position is logged.
    pub(super) fn send_to_main_when_logged(&self, position: u64, reply: Box<dyn JobReply>) {
        if self.main.push(ForMain::Finish(position, reply)) {
            self.outside.wake_main();
        }
    }

    /// Has the main thread run a task between two commands.
    pub fn send_main_task(&self, main_task: MainTask) {
        if self.main.push(ForMain::Task(main_task)) {
            self.outside.wake_main();
        }
    }

    /// Whether `midi.dispatch` is `pool`.
    #[inline]
    pub(super) fn is_pool(&self) -> bool {
        self.settings.pool.load(Ordering::Relaxed)
    }

    /// Queues a counted command; with `midi.dispatch pool`, those of the main thread go to
    /// the workers together.
    pub(super) fn send_queued(&self, slot: &ThreadSlot, request: Box<Request>) {
        if !slot.is_main() || !self.is_pool() {
            return self.enqueue(request);
        }
        // Commands also run after BEFORE_SLEEP; the batch must not wait until something else wakes
        // the main loop.
        if self.batch.add(request) && self.main.is_asleep() {
            self.outside.wake_main();
        }
    }

    /// Sends the commands that `pool` has gathered. To be called between commands.
    #[inline]
    pub fn send_batch(&self, _: Locked<'_>) {
        if let Some(batch) = self.batch.take() {
            self.enqueue_batch(batch.into_iter());
        }
    }

    /// Queues a counted command whose token was busy. A command on one shard waits in its shard's
    /// mailbox, where the holder finds it; others go to a worker.
    pub fn enqueue(&self, request: Box<Request>) {
        if !request.is_on_one_shard() {
            let (worker, message) = self.addressed(request);
            self.workers.send(worker, message);
            return;
        }
        let shard = self.shard_of_request(&request);
        if let Left::Free(request) = self.shard(shard).token.leave(request) {
            self.workers.send(self.owner(shard), Message::Run(request));
        }
    }

    /// The shard that a request needs, or needs first.
    pub(super) fn shard_of_request(&self, request: &Request) -> u32 {
        request.first_key().map_or_else(
            || fastrand::u32(..) & self.mask,
            |key| self.shard_of(self.hasher.hash(key)),
        )
    }

    /// Writes a finished request's reply on a worker, because it is too large for the main thread;
    /// then the request returns to its origin.
    pub(super) fn reply_on_worker(&self, request: Box<Request>) {
        let worker = fastrand::usize(..self.config.workers);
        self.workers.send(worker, Message::Reply(request));
    }

    /// Queues many counted commands at once: one message and at most one wake-up for each worker.
    pub fn enqueue_batch(&self, requests: impl Iterator<Item = Box<Request>>) {
        let mut batches: Vec<Vec<Message>> = Vec::new();
        batches.resize_with(self.config.workers, Vec::new);
        for request in requests {
            let (worker, message) = self.addressed(request);
            batches[worker].push(message);
        }
        for (worker, batch) in batches.into_iter().enumerate() {
            if !batch.is_empty() {
                self.workers.send(worker, Message::Batch(batch));
            }
        }
    }

    /// The worker that had best run a command: the owner of its first key's shard, or any if it has
    /// no key.
    fn addressed(&self, request: Box<Request>) -> (usize, Message) {
        (self.owner(self.shard_of_request(&request)), Message::Run(request))
    }
}

impl Engine {
    /// Has the host note that a user was refused something. On any thread.
    pub fn note_refusal(&self, refusal: impl FnOnce() -> Refusal) {
        if self.refusals.add(refusal) {
            self.send_main_task(Box::new(report_refusals));
        }
    }

    /// A tick of the host's cron: the host may take more refusals.
    pub fn allow_more_refusals(&self, _: Locked<'_>) {
        if self.refusals.tick() {
            self.send_main_task(Box::new(report_refusals));
        }
    }
}

/// While a script keeps the host busy, these refusals are dropped.
fn report_refusals(locked: Locked<'_>, engine: &Engine, host: Option<&dyn Host>) {
    let (some, more) = engine.refusals.take_some();
    if let Some(host) = host {
        some.iter().for_each(|refusal| host.refused(locked, refusal));
    }
    if more {
        engine.send_main_task(Box::new(report_refusals));
    }
}
