//! The one way to run a command. A door defines how its client is answered, and how it waits. Which
//! thread runs the command, at once or later, is decided here, for every door and for queued
//! commands.
//!
//! ```text
//! a door: run ──────► gate ─► attempt ─► Done: answered
//! a pipeline: go_on ─────────────┐  │
//!                                ▼  ▼
//!                               next ─┬─ Queue ─► shard's mailbox, or a worker ──┐
//!   ▲                                 ├─ Main ──► the main thread's inbox ───────┤
//!   │                                 └─ Job ───► slices on the workers          │
//!   └────────────── resume ◄─────────────────────────────────────────────────────┘
//! ```
//!
//! The outcomes of an attempt (rows), and the next step, by the thread that made it and for whom
//! (columns):
//!
//! ```text
//!           | main, host's door | worker, port    | worker, queue             | main, queue
//! ----------+-------------------+-----------------+---------------------------+-------------
//! Busy      | Queue             | Queue           | Queue; Main after 8 tries | – (it waits)
//! TooLarge  | Queue             | – (any size)    | – (any size)              | – (any size)
//! Long      | Job               | Job; flush:Main | Job; host's, flush: Main  | Job
//! NeedsMain | – (it is main)    | Main            | Main                      | – (it is main)
//! ```
//!
//! A client that may not wait (MULTI, scripts, SAFEMODE) never gets this far: its command waits for
//! tokens, and runs to its end, on the thread that called it. EXEC on a port runs its commands
//! together (`transaction.rs`), or, if that is impossible, as a unit on the main thread.

mod all_keys;
mod attempt;
mod batch;
mod eviction;
mod packing;
mod panics;
mod short;
mod together;
mod transaction;
mod worker;

use std::sync::atomic::Ordering;
use std::time::Instant;

pub(super) use batch::Batch;
use eviction::evict_on_main;
pub(in crate::engine) use panics::Panic;
pub use together::Together;
#[cfg(test)]
pub(in crate::engine) use together::tests::Lines;
pub use transaction::{Apart, Holding, ShardNumbers, Watching};

use super::Engine;
use super::call::{Call, KeptCall, Outcome, Taking};
use super::context::ForMain;
use super::jobs::{JobOwner, JobReply, Work, is_long, long_work};
use super::ledger::{Gate, Intent};
use super::request::{Origin, Request};
use super::shards::HeldShard;
use super::slot::ThreadSlot;
use super::slow_log::Called;
use crate::command::{
    Action, COMMANDS, DoorCommand, Error, Flags, Limits, OnAllKeys, OwnedArgs, Reply, Transcript,
};
use crate::limits::MAIN_ARGUMENTS;
use crate::sync::Locked;

/// A client whose command runs, through its door.
pub trait Caller {
    /// Its reply.
    type Reply<'r>: Reply
    where
        Self: 'r;

    /// Its reply, to write to.
    fn reply(&mut self) -> Self::Reply<'_>;

    /// Takes back the part of its reply that has been written: the command runs elsewhere.
    fn take_back(&mut self);

    /// Whether it may be answered later.
    fn may_wait(&self) -> bool;

    /// Has it wait for its command, which goes to the main thread, or to a thread that can take its
    /// shard. `None` if it turns out that it cannot wait.
    fn wait(&mut self, whom: WaitsFor) -> Option<Origin>;

    /// Has it wait for a job; returns the job's owner and reply, or `None` as [`Caller::wait`].
    fn wait_for_job(&mut self, db: u32) -> Option<(JobOwner, Box<dyn JobReply>)>;

    /// Holds up the command, and all that the client has sent after it, until the gates change.
    fn hold_up(&mut self);

    /// Runs a command that needs the host.
    fn run_by_host(&mut self, call: &Call<'_>, which: DoorCommand);
}

/// The thread that a client waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum WaitsFor {
    /// The holder of a shard.
    Shard,
    /// The main thread.
    Main,
}

/// The next step of a call after an attempt.
enum Next {
    /// Nothing: it has been answered.
    Answered,
    /// It waits for tokens, or for a thread that may write a reply of this size.
    Queue,
    /// The main thread goes on with it.
    Main,
    /// It is a job.
    Job(Work),
}

/// The outcome of going on with a queued command.
pub(in crate::engine) enum Resumed {
    /// It has its reply.
    Answered(Box<Request>),
    /// It must wait once more.
    Busy(Box<Request>),
    /// Another thread goes on with it.
    HandedOn,
}

impl Engine {
    /// Runs a client's call, whose form and rights the door has checked: here and now, or elsewhere
    /// and later.
    #[inline]
    pub fn run<C: Caller>(&self, slot: &ThreadSlot, call: &mut Call<'_>, client: &mut C) {
        match self.gate(slot, call.row().flags) {
            Gate::Go => {}
            Gate::Wait => return client.hold_up(),
            Gate::Refuse(error) => {
                call.reject(slot, error, &mut client.reply());
                return;
            }
        }
        if let Action::Door(which) = call.row().action {
            return client.run_by_host(call, which);
        }
        let is_alone =
            |locked: Locked<'_>| self.config().safemode || self.shards().is_in_unit(locked);
        if !slot.locked().is_some_and(is_alone) {
            let outcome = match self.not_here(slot, call) {
                Some(outcome) if client.may_wait() => outcome,
                _ => self.attempt(slot, call, taking(slot), &mut client.reply()),
            };
            if outcome == Outcome::Done {
                evict_on_main(&self.ledger, slot);
                return slot.ran_at_once(1);
            }
            if client.may_wait() {
                return self.go_on(slot, call, outcome, client);
            }
        }
        self.run_here(slot, call, client);
    }

    /// Runs a call to its end here, for a client that may not wait.
    fn run_here<C: Caller>(&self, slot: &ThreadSlot, call: &mut Call<'_>, client: &mut C) {
        call.limits = Limits { max_reply_bytes: usize::MAX, ..call.limits.in_one_go() };
        if let Some(locked) = slot.locked() {
            self.run_waiting(locked, call, &mut client.reply());
        }
    }

    /// Goes on with a call after an attempt that did not complete it, for a client that may wait.
    #[cold]
    pub fn go_on<C: Caller>(
        &self,
        slot: &ThreadSlot,
        call: &mut Call<'_>,
        outcome: Outcome,
        client: &mut C,
    ) {
        client.take_back();
        let next = self.next(slot, call, outcome, false, &mut client.reply());
        match next {
            Next::Answered => {}
            Next::Queue => self.hand_on(slot, call, WaitsFor::Shard, client),
            Next::Main => self.hand_on(slot, call, WaitsFor::Main, client),
            Next::Job(work) => match (client.wait_for_job(call.db), slot.locked()) {
                (Some((owner, reply)), _) => {
                    let called = Called::of(call.command, call.prefix, &call.args);
                    self.jobs.start(self.context(), called, owner, work, reply)
                }
                (None, Some(locked)) => {
                    let started = Instant::now();
                    work.run_to_end(self, locked, &mut client.reply());
                    slot.ran_long(call.command, started);
                    slot.ran_at_once(1);
                }
                (None, None) => {}
            },
        }
    }

    /// Sends a call to the thread that its client waits for. If the client cannot wait, the call
    /// runs here.
    fn hand_on<C: Caller>(
        &self,
        slot: &ThreadSlot,
        call: &mut Call<'_>,
        whom: WaitsFor,
        client: &mut C,
    ) {
        // A command for the main thread is not refused for the number of queued commands.
        let max = match whom {
            WaitsFor::Shard => self.settings().max_queued.load(Ordering::Relaxed),
            WaitsFor::Main => usize::MAX,
        };
        if let Err(error) = self.ledger.books.book_queued(slot, max) {
            call.reject(slot, error, &mut client.reply());
            return;
        }
        let Some(origin) = client.wait(whom) else {
            self.ledger.books.completed();
            return self.run_here(slot, call, client);
        };
        let request = Box::new(Request::new(call, origin));
        match whom {
            WaitsFor::Shard => self.send_queued(slot, request),
            WaitsFor::Main => self.context().send_to_main(ForMain::Run(request)),
        }
    }

    /// Runs a command to its end, however long it takes.
    pub fn run_waiting(&self, locked: Locked<'_>, call: &Call<'_>, reply: &mut dyn Reply) {
        let slot = self.main_slot(locked);
        if let Some(error) = self.ledger.refusal_in_unit(locked, call) {
            call.reject(slot, error, reply);
            return;
        }
        if self.attempt_outlined(slot, call, Taking::Wait(locked), reply) == Outcome::Long {
            let started = Instant::now();
            match long_work(self, call, Some(locked)) {
                Ok(work) => work.run_to_end(self, locked, reply),
                Err(error) => {
                    slot.failed(call.command);
                    call.refuse(error, reply);
                }
            }
            slot.ran_long(call.command, started);
        }
        evict_on_main(&self.ledger, slot);
        slot.ran_at_once(1);
    }

    /// The gate of a command. On the host's door, the host has checked its own reasons.
    #[inline]
    fn gate(&self, slot: &ThreadSlot, flags: Flags) -> Gate {
        self.ledger.gate(if slot.is_main() { Intent::OfHost(flags) } else { Intent::OfPort(flags) })
    }

    /// The outcome of a command that this thread should not even try.
    #[inline]
    fn not_here(&self, slot: &ThreadSlot, call: &Call<'_>) -> Option<Outcome> {
        if !slot.is_main() {
            return self.config().safemode.then_some(Outcome::NeedsMain);
        }
        if !self.is_pool() && !is_broad(call) {
            return None;
        }
        Some(if is_long(call) { Outcome::Long } else { Outcome::Busy })
    }

    /// See the table above. `for_host`: it is queued for a client of the host's door. Only the main
    /// thread can have such a client wait for a job.
    fn next(
        &self,
        slot: &ThreadSlot,
        call: &Call<'_>,
        outcome: Outcome,
        for_host: bool,
        reply: &mut dyn Reply,
    ) -> Next {
        match outcome {
            Outcome::Done => Next::Answered,
            Outcome::Busy | Outcome::TooLarge => Next::Queue,
            Outcome::NeedsMain => Next::Main,
            Outcome::Long if !slot.is_main() && (for_host || is_for_main_first(call.command)) => {
                Next::Main
            }
            Outcome::Long => {
                // A flush takes effect here, so a refusal of the job must come first.
                let room = self.jobs.room_for(self.settings(), call.command);
                match room.and_then(|()| long_work(self, call, slot.locked())) {
                    Ok(work) => Next::Job(work),
                    Err(error) => {
                        call.reject(slot, error, reply);
                        Next::Answered
                    }
                }
            }
        }
    }

    /// Goes on with a queued command; `attempt` runs it.
    pub(super) fn resume(
        &self,
        slot: &ThreadSlot,
        mut request: Box<Request>,
        panic: Panic,
        attempt: impl FnOnce(&Call<'_>, &mut Transcript) -> Outcome,
    ) -> Resumed {
        if request.is_abandoned() {
            request.call.args = OwnedArgs::default();
            return Resumed::Answered(request);
        }
        let (mut transcript, mut outcome) =
            (self.context().transcript_for(&request), Outcome::Done);
        let began = self.slow_log.is_on().then(Instant::now);
        slot.take_seen();
        let next = self.context().with_call_of(&request, |call| {
            panic.guard(call, &mut transcript, |transcript| {
                match self.ledger.gate(Intent::Late(call)) {
                    Gate::Refuse(error) => {
                        call.reject(slot, error, transcript);
                        Next::Answered
                    }
                    Gate::Go | Gate::Wait => {
                        outcome =
                            if request.is_long { Outcome::Long } else { attempt(call, transcript) };
                        if outcome == Outcome::Long {
                            *transcript = self.context().transcript_for(&request);
                        }
                        self.next(slot, call, outcome, request.is_of_host(), transcript)
                    }
                }
            })
        });
        match next {
            Next::Answered => {
                if let Some(began) = began.filter(|_| outcome == Outcome::Done) {
                    request.took(began.elapsed(), &self.slow_log);
                }
                request.call.args = OwnedArgs::default();
                request.reply = transcript;
                request.seen = slot.take_seen();
                return Resumed::Answered(request);
            }
            Next::Queue => return Resumed::Busy(request),
            Next::Main => {
                request.is_long =
                    outcome == Outcome::Long && !is_for_main_first(request.call.command);
                self.context().send_to_main(ForMain::Run(request));
            }
            Next::Job(work) => {
                self.ledger.books.completed();
                self.start_queued_job(slot, *request, work);
            }
        }
        Resumed::HandedOn
    }

    /// Starts a job for the client of a queued command.
    fn start_queued_job(&self, slot: &ThreadSlot, request: Request, work: Work) {
        let KeptCall { command, db, prefix, args, .. } = request.call;
        let called = args.with(|args| Called::of(command, prefix, &args));
        let (owner, mut reply) = match (request.origin, slot.locked()) {
            (Origin::Worker { client, .. }, _) => client.wait_for_job(db),
            (Origin::Main(client), Some(locked)) => client.wait_for_job(locked, db),
            // A worker sends these to the main thread.
            (Origin::Main(_), None) => return,
        };
        // A flush has taken effect already.
        reply.waits_for(slot.take_seen());
        self.jobs.start(self.context(), called, owner, work, reply);
    }

    /// Goes on with a queued command on a thread that holds its shard.
    pub(super) fn resume_on_held(
        &self,
        slot: &ThreadSlot,
        shard: u32,
        held: &mut HeldShard<'_>,
        request: Box<Request>,
    ) {
        let resumed = self.resume(slot, request, Panic::Fatal, |call, transcript| {
            let hash = self.shards().hasher.hash(call.first_key());
            let outcome = self.run_with_room(slot, call, hash, shard, held, transcript);
            // The reply may be on its way before the shard is released, and must know its position.
            self.ledger.before_release(slot, held);
            outcome
        });
        match resumed {
            Resumed::Answered(mut request) => {
                request.finish(slot);
                self.context().send_back(std::iter::once(request));
            }
            Resumed::Busy(request) => self.send_queued(slot, request),
            Resumed::HandedOn => {}
        }
    }

    /// Goes on with a queued command that only the main thread can run. `on_panic` counts a panic.
    pub fn resume_on_main(&self, locked: Locked<'_>, request: Box<Request>, on_panic: fn()) {
        let slot = self.main_slot(locked);
        let resumed = self.resume(slot, request, Panic::Caught(on_panic), |call, transcript| {
            if self.config().safemode {
                self.run_waiting(locked, call, transcript);
                return Outcome::Done;
            }
            self.attempt_outlined(slot, call, Taking::Wait(locked), transcript)
        });
        evict_on_main(&self.ledger, slot);
        match resumed {
            Resumed::Answered(request) if request.is_of_host() && request.reply.is_large() => {
                self.context().reply_on_worker(request);
            }
            Resumed::Answered(request) => self.answer(locked, request),
            Resumed::Busy(request) => self.send_queued(slot, request),
            Resumed::HandedOn => {}
        }
    }

    /// Whether `midi.dispatch` is `pool`.
    #[inline]
    fn is_pool(&self) -> bool {
        self.settings().pool.load(Ordering::Relaxed)
    }

    /// Queues a counted command; with `midi.dispatch pool`, those of the main thread go to
    /// the workers together.
    fn send_queued(&self, slot: &ThreadSlot, request: Box<Request>) {
        if slot.is_main() && self.is_pool() {
            self.batch.add(self.context(), request);
        } else {
            self.shards().enqueue(request);
        }
    }

    /// Sends the commands that `pool` has gathered. To be called between commands.
    #[inline]
    pub fn send_batch(&self, _: Locked<'_>) {
        self.batch.send(self.shards());
    }

    /// Answers a queued command that has its reply. Only the main thread answers clients of the
    /// host's door, once the host's log has the position that they wait for.
    pub fn answer(&self, locked: Locked<'_>, mut request: Box<Request>) {
        if !request.is_of_host() {
            return self.context().send_back(std::iter::once(request));
        }
        if let (Some(slow), Origin::Main(client)) = (request.slow.take(), &request.origin) {
            self.slow_log.add(slow.0, slow.1, client.called_from(locked));
        }
        if request.seen > self.ledger.log.logged() {
            let seen = request.seen;
            let main = &self.context().main;
            return main.keep_until_logged(seen, ForMain::Answer(request));
        }
        self.ledger.books.completed();
        let Request { origin, mut reply, seen, .. } = *request;
        if self.ledger.log.is_undone(seen) {
            reply = Transcript::default();
            reply.error(&Error::Unblocked.bare_text());
        }
        if let Origin::Main(client) = origin {
            client.answer(locked, reply);
        }
    }

    /// Answers a queued command with an error instead of running it.
    pub fn refuse(&self, locked: Locked<'_>, mut request: Box<Request>, error: Error) {
        let mut transcript = Transcript::default();
        self.context().with_call_of(&request, |call| call.refuse(error, &mut transcript));
        request.call.args = OwnedArgs::default();
        request.reply = transcript;
        self.answer(locked, request);
    }
}

/// How the thread of this slot takes tokens.
#[inline]
fn taking(slot: &ThreadSlot) -> Taking<'static> {
    if slot.is_main() { Taking::MAIN } else { Taking::WORKER }
}

/// Whether a command has so many keys that a worker should run it, not the main thread.
#[inline]
fn is_broad(call: &Call<'_>) -> bool {
    call.args.len() > MAIN_ARGUMENTS && matches!(call.row().action, Action::ManyKeys(_))
}

/// Whether only the main thread can begin this long work: it takes effect at once and everywhere,
/// before its long part begins.
fn is_for_main_first(command: usize) -> bool {
    matches!(
        COMMANDS[command].action,
        Action::AllKeys(OnAllKeys::FlushDb | OnAllKeys::FlushAll | OnAllKeys::SwapDb)
    )
}
