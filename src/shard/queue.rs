//! Commands that could not run at once: requests, and their way home.

use std::sync::atomic::Ordering;

use super::call::Call;
use super::counters::Seat;
use super::engine::{Engine, HeldShard};
use super::token::Left;
use super::worker::Message;
use crate::command::{Args, COMMANDS, Error, OwnedArgs, Tape};
use crate::store::Now;

/// Who wants a queued command's completion back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// The host's main thread.
    Main,
}

/// What must happen to a request that came home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It ran: give its reply to the client.
    Done,
    /// Tokens were not to be had together: the main thread must run it.
    NeedsMain,
}

/// A queued command.
pub struct Request {
    /// The command's number.
    pub command: usize,
    /// Its arguments, copied or kept.
    pub args: OwnedArgs,
    /// The client's database.
    pub db: u32,
    /// See [`Call::prefix`].
    pub prefix: &'static str,
    /// Who gets the completion.
    pub home: Home,
    /// The door's own mark, to know the client again.
    pub ticket: usize,
    /// The reply, once it has run.
    pub reply: Tape,
    /// What happened to it.
    pub verdict: Verdict,
    /// How often tokens were not to be had.
    pub(super) tries: u8,
    /// Makes a reply sink on the worker for a reply too large for the home thread.
    pub large: fn(ticket: usize, tape: &Tape),
}

impl Request {
    /// Whether one shard is all it needs.
    pub(super) fn is_on_one_shard(&self) -> bool {
        self.args.with(|args| COMMANDS[self.command].is_on_one_shard(&args))
    }

    /// A copy of a call, for another thread.
    pub fn new(call: &Call<'_>, home: Home, ticket: usize, large: fn(usize, &Tape)) -> Self {
        Request {
            command: call.command,
            args: call.args.to_owned(call.limits.keep_bytes),
            db: call.db,
            prefix: call.prefix,
            home,
            ticket,
            reply: Tape::default(),
            verdict: Verdict::Done,
            tries: 0,
            large,
        }
    }
}

impl Engine {
    /// Runs a queued command that needs one shard in the hands of its shard's holder.
    pub(super) fn run_pending(
        &self,
        seat: &Seat,
        shard: u32,
        held: &mut HeldShard<'_>,
        mut request: Box<Request>,
    ) {
        let (args, mut tape) = (std::mem::take(&mut request.args), Tape::default());
        args.with(|args| {
            let call = self.call_of(&request, args);
            let hash = self.hasher.hash(args.get(1));
            self.run_one(seat, &call, hash, shard, held, &mut tape);
        });
        self.done(seat, request, tape);
    }

    /// The call that a request stands for, on a worker: any reply size will do.
    pub fn call_of<'a>(&self, request: &Request, args: Args<'a>) -> Call<'a> {
        Call {
            command: request.command,
            args,
            db: request.db,
            now: Now::lazy(self.config.clock),
            limits: self.settings.limits(usize::MAX),
            prefix: request.prefix,
        }
    }

    /// Sends a request home with its reply.
    pub(super) fn done(&self, seat: &Seat, mut request: Box<Request>, tape: Tape) {
        seat.ran_queued.add(1);
        request.verdict = Verdict::Done;
        if tape.len() > crate::limits::MAX_MAIN_REPLY_BYTES {
            (request.large)(request.ticket, &tape);
        } else {
            request.reply = tape;
        }
        self.send_home(request);
    }

    pub(super) fn send_home(&self, request: Box<Request>) {
        match request.home {
            Home::Main => {
                if self.main.push(request) {
                    (self.wake_main)();
                }
            }
        }
    }

    /// Takes a request out of the books when it has come home.
    pub fn came_home(&self) {
        self.queued_now.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether one more command may be queued.
    ///
    /// # Errors
    /// [`Error::TooManyQueued`] at the limit.
    pub fn room_in_queue(&self) -> Result<(), Error> {
        let max = self.settings.max_queued.load(Ordering::Relaxed);
        if self.queued_now() >= max {
            return Err(Error::TooManyQueued(max));
        }
        Ok(())
    }

    /// Queues a command whose token was busy. A command on one shard waits in its
    /// shard's mailbox, where the holder finds it; others go to a worker.
    pub fn enqueue(&self, seat: &Seat, request: Box<Request>) {
        self.book_queued(seat);
        if !request.is_on_one_shard() {
            let (worker, message) = self.addressed(request);
            self.workers.send(worker, message);
            return;
        }
        let shard = request.args.with(|args| self.shard_of(self.hasher.hash(args.get(1))));
        if let Left::Free(request) = self.shard(shard).token.leave(request) {
            self.workers.send(self.owner(shard), Message::Run(request));
        }
    }

    fn book_queued(&self, seat: &Seat) {
        seat.queued.add(1);
        self.queued_now.fetch_add(1, Ordering::Relaxed);
    }

    /// Queues many commands at once: one message and at most one wake-up for each worker.
    pub fn enqueue_batch(&self, seat: &Seat, requests: impl Iterator<Item = Box<Request>>) {
        let mut batches: Vec<Vec<Message>> = Vec::new();
        batches.resize_with(self.config.workers, Vec::new);
        for request in requests {
            self.book_queued(seat);
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
        let worker = request.args.with(|args| match COMMANDS[request.command].key_arguments(&args).next() {
            Some(key) => self.owner(self.shard_of(self.hasher.hash(key))),
            None => self.draw() as usize % self.config.workers,
        });
        (worker, Message::Run(request))
    }
}
