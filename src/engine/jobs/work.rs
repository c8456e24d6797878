//! Long work in short slices, divided among the workers: how a job runs.
//!
//! A job's *parts* run on the workers, one slice a turn, round-robin with the parts of other jobs.
//! The worker of the last part to end makes the reply, in slices too.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use super::{GO_ON, Job, JobDoor, JobOwner, JobReply, Jobs, Progress};
use crate::command::{Args, COMMANDS, Error, Reply};
use crate::engine::Engine;
use crate::engine::call::{Author, Call, KeptCall, Taking};
use crate::engine::context::{Context, ForMain, JobPart, Message};
use crate::engine::ledger::{Gate, Intent};
use crate::engine::shards::HeldShard;
use crate::engine::slot::ThreadSlot;
use crate::engine::slow_log::Called;
use crate::limits::SLICE;
use crate::store::Now;
use crate::sync::Locked;

/// The side of a job that its parts share; it makes the reply.
pub trait Task: Send + Sync {
    /// Goes on with the reply, as far as the slice allows. True when it is complete.
    fn reply(&self, reply: &mut dyn Reply, slice: &Slice<'_>) -> bool;
}

impl<F: Fn(&mut dyn Reply, &Slice<'_>) -> bool + Send + Sync> Task for F {
    fn reply(&self, reply: &mut dyn Reply, slice: &Slice<'_>) -> bool {
        self(reply, slice)
    }
}

/// The task of work that nobody waits for.
pub fn without_reply(_: &mut dyn Reply, _: &Slice<'_>) -> bool {
    true
}

/// One worker's part of a job.
pub trait Part: Send {
    /// Works until the slice is over.
    fn slice(&mut self, slice: &Slice<'_>) -> Progress;

    /// Whether it goes on after its job was stopped.
    fn must_finish(&self) -> bool {
        false
    }
}

/// Long work, ready to be started.
pub struct Work {
    /// The side that the parts share.
    pub task: Arc<dyn Task>,
    /// The parts; part `n` goes to worker `first_worker + n`, modulo the number of workers.
    pub parts: Vec<Box<dyn Part>>,
    /// The value of [`Job::done`] at the end.
    pub total: u64,
    /// The worker of the first part.
    pub first_worker: usize,
    /// Whether its client sees keys whose expiry has passed.
    pub sees_passed: bool,
}

impl Work {
    /// Work with a part for each worker, made by `part` from the worker's number.
    pub fn on_every_worker<P: Part + 'static>(
        engine: &Engine,
        task: Arc<dyn Task>,
        total: u64,
        part: impl FnMut(usize) -> P,
    ) -> Self {
        let parts = (0..engine.config().workers).map(part);
        let parts = parts.map(|part| Box::new(part) as Box<dyn Part>).collect();
        Work { task, parts, total, first_worker: 0, sees_passed: false }
    }

    /// Work with one part, for this worker.
    pub fn on_one_worker(
        worker: usize,
        task: impl Task + 'static,
        total: u64,
        part: impl Part + 'static,
    ) -> Self {
        let parts: Vec<Box<dyn Part>> = vec![Box::new(part)];
        Work { task: Arc::new(task), parts, total, first_worker: worker, sees_passed: false }
    }

    /// Runs it to its end on this thread, which holds the global lock: in SAFEMODE, MULTI, scripts,
    /// and wherever no client may be blocked.
    pub fn run_to_end(self, engine: &Engine, locked: Locked<'_>, reply: &mut dyn Reply) {
        let slice = Slice::endless(engine, locked).seeing_passed(self.sees_passed);
        for mut part in self.parts {
            while slice.refusal.get().is_none() && part.slice(&slice) != Progress::Done {}
        }
        match slice.refusal.get() {
            Some(error) => reply.error(&error.bare_text()),
            None => while !self.task.reply(reply, &slice) {},
        }
    }
}

/// The time of a slice, with the engine for its work.
pub struct Slice<'a> {
    /// The engine.
    pub engine: &'a Engine,
    /// The thread's slot.
    pub slot: &'a ThreadSlot,
    /// The job, if the work is one that can be listed and stopped.
    pub job: Option<&'a Job>,
    sees_passed: bool,
    /// `None` for as long as it takes.
    deadline: Option<Instant>,
    refusal: Cell<Option<Error>>,
}

impl<'a> Slice<'a> {
    /// A slice of a worker's turn.
    pub(super) fn short(engine: &'a Engine, slot: &'a ThreadSlot, job: Option<&'a Job>) -> Self {
        let deadline = Some(Instant::now() + SLICE);
        Slice { engine, slot, job, sees_passed: false, deadline, refusal: Cell::new(None) }
    }

    /// A slice without an end, for the thread that holds the global lock.
    pub fn endless(engine: &'a Engine, locked: Locked<'a>) -> Self {
        let (slot, refusal) = (engine.main_slot(locked), Cell::new(None));
        Slice { engine, slot, job: None, sees_passed: false, deadline: None, refusal }
    }

    /// The same slice, for a client that sees keys whose expiry has passed, or for another.
    fn seeing_passed(self, sees_passed: bool) -> Self {
        Slice { sees_passed, ..self }
    }

    /// Whether the slice is over.
    pub fn spent(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// The proof, if the work runs to its end on the thread that holds the global lock.
    pub fn locked(&self) -> Option<Locked<'a>> {
        self.slot.locked()
    }

    /// Whether the work runs to its end on the thread that holds the global lock.
    pub fn is_endless(&self) -> bool {
        self.deadline.is_none()
    }

    /// How it takes tokens of several shards.
    pub fn taking(&self) -> Taking<'a> {
        self.locked().map_or(Taking::WORKER, Taking::Wait)
    }

    /// The time of the commands in it.
    pub fn now(&self) -> Now {
        self.engine.shards().now_on(self.slot).seeing_passed(self.sees_passed)
    }

    /// A job's call, with these arguments, at this time.
    pub(super) fn call<'c>(&self, call: &KeptCall, args: Args<'c>) -> Call<'c> {
        let now = self.now().seeing_passed(call.sees_passed).silent(call.is_silent);
        call.again(args, now, self.engine.settings().limits(usize::MAX), Author::Nobody)
    }

    /// A shard's token, marked as held by long work; `None` if it is busy.
    pub fn take(&self, shard: u32) -> Option<HeldShard<'a>> {
        let shards = self.engine.shards();
        match self.locked() {
            None => shards.try_take_long(shard),
            Some(locked) => Some(shards.take_waiting(locked, shard)),
        }
    }

    /// Releases a shard that [`Slice::take`] took.
    pub(super) fn release(&self, shard: u32, held: HeldShard<'_>) {
        self.engine.ledger.release(self.slot, shard, held);
    }

    /// Stops the work; the error becomes its reply.
    pub fn refuse(&self, error: Error) {
        match self.job {
            Some(job) => job.refuse(error),
            None => self.refusal.set(Some(error)),
        }
    }

    /// Whether its writes may go on; `grows` says whether they may need memory. A thread that holds
    /// the global lock does not wait, and asks the host for memory itself.
    pub fn gate(&self, grows: bool) -> Gate {
        let ledger = &self.engine.ledger;
        let Some(locked) = self.locked() else { return ledger.gate(Intent::Slice(grows)) };
        if grows && !ledger.admission.credit_left() {
            self.engine.context().outside.ask_host(locked);
        }
        ledger.gate(Intent::Write(grows))
    }

    /// The most bytes that may wait for the job's client.
    pub fn most_reply(&self) -> usize {
        self.job.map_or(usize::MAX, |job| self.engine.context().most_reply(job.owner.door))
    }

    /// Counts finished units of progress.
    pub fn advance(&self, units: u64) {
        if let Some(job) = self.job {
            job.done.fetch_add(units, Ordering::Relaxed);
        }
    }
}

impl Jobs {
    /// Starts a job for a client; a worker writes its reply to `reply`.
    pub fn start(
        &self,
        context: &Context,
        called: Called,
        owner: JobOwner,
        work: Work,
        reply: Box<dyn JobReply>,
    ) {
        let name = COMMANDS[called.command].name;
        self.launch(context, Some(called), name, owner, work, Some(reply));
    }

    /// Starts midi's own work.
    pub fn start_own(&self, context: &Context, name: &'static str, work: Work) {
        self.launch(context, None, name, JobOwner::default(), work, None);
    }

    fn launch(
        &self,
        context: &Context,
        called: Option<Called>,
        name: &'static str,
        owner: JobOwner,
        work: Work,
        reply: Option<Box<dyn JobReply>>,
    ) {
        let job = Arc::new(Job {
            id: self.started.fetch_add(1, Ordering::Relaxed) + 1,
            command: called.as_ref().map(|called| called.command),
            name,
            owner,
            words: called.map(|called| called.words).unwrap_or_default(),
            started: Instant::now(),
            total: AtomicU64::new(work.total),
            done: AtomicU64::new(0),
            stop: AtomicU8::new(GO_ON),
            cut_short: AtomicBool::new(false),
            refusal: Mutex::new(None),
        });
        self.add(&job);
        let parts_left = AtomicUsize::new(work.parts.len());
        let common = Arc::new(Common {
            job,
            task: work.task,
            sees_passed: work.sees_passed,
            parts_left,
            reply: Mutex::new(reply),
            seen: AtomicU64::new(0),
        });
        for (number, part) in work.parts.into_iter().enumerate() {
            let worker = (work.first_worker + number) % context.config.workers;
            let part = RunningPart { common: Arc::clone(&common), stage: PartStage::Work(part) };
            context.workers.send(worker, Message::Part(Box::new(part)));
        }
    }
}

/// A running job, for all its parts.
struct Common {
    job: Arc<Job>,
    task: Arc<dyn Task>,
    sees_passed: bool,
    parts_left: AtomicUsize,
    reply: Mutex<Option<Box<dyn JobReply>>>,
    /// The position in the log that the reply must wait for.
    seen: AtomicU64,
}

/// A part on its worker.
struct RunningPart {
    common: Arc<Common>,
    stage: PartStage,
}

enum PartStage {
    Work(Box<dyn Part>),
    Reply(Box<dyn JobReply>),
    Ended,
}

impl JobPart for RunningPart {
    fn slice(&mut self, engine: &Engine, slot: &ThreadSlot) -> Progress {
        let common = Arc::clone(&self.common);
        let slice = Slice::short(engine, slot, Some(&common.job)).seeing_passed(common.sees_passed);
        match &mut self.stage {
            PartStage::Work(part) if self.common.job.stopped() && !part.must_finish() => {
                self.common.job.cut_short.store(true, Ordering::Relaxed);
                self.finish_part(engine, slot)
            }
            PartStage::Work(part) => {
                slot.take_seen();
                let (log, last_undone) = (&engine.ledger.log, engine.ledger.log.last_undone());
                let progress = part.slice(&slice);
                let seen = slot.take_seen();
                let before = common.seen.fetch_max(seen, Ordering::Relaxed);
                // Also if the server was promoted again, and the rest can be written.
                if log.is_undone(before) || seen > 0 && log.last_undone() != last_undone {
                    common.job.refuse(Error::Unblocked);
                }
                match progress {
                    Progress::Done => self.finish_part(engine, slot),
                    other => other,
                }
            }
            // If the client is gone, its reply need not be complete.
            PartStage::Reply(reply)
                if self.common.job.owner.gone.load(Ordering::Relaxed) && !reply.is_awaited() =>
            {
                self.finish_job(engine, slot)
            }
            PartStage::Reply(reply) => {
                if common.task.reply(reply.sink(), &slice) {
                    self.finish_job(engine, slot)
                } else {
                    Progress::More
                }
            }
            PartStage::Ended => Progress::Done,
        }
    }

    fn failed(&mut self, engine: &Engine, slot: &ThreadSlot) -> Progress {
        self.common.job.refuse(Error::Internal);
        match self.stage {
            PartStage::Work(_) => self.finish_part(engine, slot),
            _ => self.finish_job(engine, slot),
        }
    }
}

impl RunningPart {
    /// The last part to be done makes the reply.
    fn finish_part(&mut self, engine: &Engine, slot: &ThreadSlot) -> Progress {
        // AcqRel: the last part sees all that the others have found.
        if self.common.parts_left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return Progress::Done;
        }
        let Some(mut reply) = self.common.reply.lock().take() else {
            engine.jobs.remove(&self.common.job);
            return Progress::Done;
        };
        reply.waits_for(self.common.seen.load(Ordering::Relaxed));
        let error = self.common.job.error();
        match error {
            Some(Error::ReplyTooLarge) => reply.close(),
            Some(error) => reply.sink().error(&error.text(self.common.job.name, &Args::new(&[]))),
            None => {}
        }
        // The part is freed before the reply is made.
        self.stage = PartStage::Reply(reply);
        if error.is_some() { self.finish_job(engine, slot) } else { Progress::More }
    }

    fn finish_job(&mut self, engine: &Engine, slot: &ThreadSlot) -> Progress {
        engine.jobs.remove(&self.common.job);
        let job = &self.common.job;
        if let Some(command) = job.command {
            slot.called(command);
            if job.error().is_some() {
                slot.failed(command);
            }
            let took = job.elapsed();
            slot.timed(command, took);
            if engine.slow_log.ran_for(took) {
                engine.slow_log.add(took, job.words.clone(), job.owner.from.clone());
            }
        }
        if let PartStage::Reply(reply) = std::mem::replace(&mut self.stage, PartStage::Ended) {
            let (seen, log) = (self.common.seen.load(Ordering::Relaxed), &engine.ledger.log);
            // The main thread answers once the host has it, and tells of nothing undone.
            let waits = seen > log.logged() || log.is_undone(seen);
            if self.common.job.owner.door == JobDoor::Host && waits {
                engine.context().send_to_main(ForMain::Finish(seen, reply));
            } else {
                reply.finish();
            }
        }
        Progress::Done
    }
}
