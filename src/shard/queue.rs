//! Commands that could not run at once: where they wait, and how they come home; and errands to the main thread.

use std::sync::atomic::Ordering;

use super::call::{Call, Outcome};
use super::engine::{Engine, Errand, ForMain, HeldShard, Message};
use super::host::Host;
use super::job::JobDoor;
use super::refusals::Refusal;
use super::request::{Home, Request, Verdict};
use super::seat::Seat;
use crate::command::{Args, Error, Tape};
use crate::store::Now;
use crate::sync::{Left, Locked};

impl Engine {
    /// Runs a queued command that needs one shard in the hands of its shard's holder.
    pub(super) fn run_pending(
        &self,
        seat: &Seat,
        shard: u32,
        held: &mut HeldShard<'_>,
        mut request: Box<Request>,
    ) {
        if request.is_abandoned() {
            return self.done(seat, request, Tape::default());
        }
        let (args, mut tape) = (std::mem::take(&mut request.args), self.tape_for(&request));
        let outcome = args.with(|args| {
            let call = self.call_of(&request, args);
            if let Some(error) = self.late_refusal(&call) {
                call.refuse(error, &mut tape);
                return Outcome::Done;
            }
            let hash = self.hasher.hash(call.first_key());
            self.run_one(seat, &call, hash, shard, held, &mut tape)
        });
        if outcome == Outcome::NeedsMain {
            request.args = args;
            return self.needs_main(request);
        }
        self.done(seat, request, tape);
    }

    /// What a client of that door may be answered, in bytes.
    pub fn most_reply(&self, door: JobDoor) -> usize {
        match door {
            JobDoor::Port => self.settings.port.most_output(),
            JobDoor::Host => self.settings.host_output.load(Ordering::Relaxed),
            JobDoor::None => usize::MAX,
        }
    }

    /// Where a request's reply is said: a client is not answered more than may wait for it.
    pub fn tape_for(&self, request: &Request) -> Tape {
        Tape::up_to(self.most_reply(if request.is_of_host() { JobDoor::Host } else { JobDoor::Port }))
    }

    /// The call that a request stands for, on a worker: any reply size will do.
    pub fn call_of<'a>(&self, request: &Request, args: Args<'a>) -> Call<'a> {
        Call {
            command: request.command,
            args,
            db: request.db,
            now: Now::lazy(self.config.clock),
            limits: self.settings.limits(usize::MAX).alone(),
            prefix: request.prefix,
            author: request.author,
        }
    }

    /// Sends a request home with its reply.
    pub(super) fn done(&self, seat: &Seat, mut request: Box<Request>, tape: Tape) {
        request.finish(seat, tape);
        self.send_home(std::iter::once(request));
    }

    /// Sends requests home: one message and at most one wake-up for all. A main thread that
    /// is woken for the first of many would take the processor from the worker.
    pub(super) fn send_home(&self, requests: impl Iterator<Item = Box<Request>>) {
        let for_main = requests.filter_map(|request| match request.home {
            Home::Worker { worker, .. } if request.verdict != Verdict::NeedsMain => {
                self.workers.send(worker, Message::Home(request));
                None
            }
            _ => Some(ForMain::Request(request)),
        });
        if self.main.push_all(for_main) {
            self.wake_main();
        }
    }

    /// Sends a request of a port back to it, once the main thread has run it.
    pub fn send_back(&self, request: Box<Request>) {
        self.send_home(std::iter::once(request));
    }

    /// Has the main thread do something, between two commands.
    pub fn send_errand(&self, errand: Errand) {
        if self.main.push(ForMain::Errand(errand)) {
            self.wake_main();
        }
    }

    /// Sends a request to the main thread, which alone can go on with it.
    pub fn needs_main(&self, mut request: Box<Request>) {
        request.verdict = Verdict::NeedsMain;
        self.send_home(std::iter::once(request));
    }

    /// Takes a request out of the books when it has come home.
    pub fn came_home(&self) {
        self.queued_now.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts one more command that will be queued.
    ///
    /// # Errors
    /// [`Error::TooManyQueued`] at the limit.
    pub fn book_queued(&self, seat: &Seat) -> Result<(), Error> {
        let max = self.settings.max_queued.load(Ordering::Relaxed);
        if self.queued_now() >= max {
            return Err(Error::TooManyQueued(max));
        }
        seat.queued.add(1);
        self.queued_now.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Queues a command whose token was busy, once it is booked. A command on one shard waits in its
    /// shard's mailbox, where the holder finds it; others go to a worker.
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
        request
            .first_key()
            .map_or_else(|| fastrand::u32(..) & self.mask, |key| self.shard_of(self.hasher.hash(key)))
    }

    /// Writes a finished request's reply on a worker, because it is too large
    /// for the main thread; then it comes home again.
    pub fn reply_on_worker(&self, request: Box<Request>) {
        let worker = fastrand::usize(..self.config.workers);
        self.workers.send(worker, Message::Reply(request));
    }

    /// Queues many booked commands at once: one message and at most one wake-up for each worker.
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

    /// The worker that a command is best run by: the owner of its first key's
    /// shard; any, where it has none.
    fn addressed(&self, request: Box<Request>) -> (usize, Message) {
        (self.owner(self.shard_of_request(&request)), Message::Run(request))
    }
}

impl Engine {
    /// Has the host note that a user was refused something. Any thread may say so.
    pub fn note_refusal(&self, refusal: Refusal) {
        if self.refusals.add(refusal) {
            self.send_errand(Box::new(tell));
        }
    }
}

/// While a script keeps the host from it, nobody is told.
fn tell(locked: Locked<'_>, engine: &Engine, host: Option<&dyn Host>) {
    let (some, more) = engine.refusals.take_some();
    if let Some(host) = host {
        some.iter().for_each(|refusal| host.refused(locked, refusal));
    }
    if more {
        engine.send_errand(Box::new(tell));
    }
}
