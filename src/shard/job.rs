//! Long work in short slices, shared out among the workers.
//!
//! A job's *parts* run on the workers, a slice each turn, round-robin with the
//! parts of other jobs. When the last part is done, its worker makes the reply,
//! in slices too.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::call::Taking;
use super::engine::{Engine, HeldShard};
use super::lock::{Locked, Seat};
use super::worker::Message;
use crate::command::{Action, Args, COMMANDS, Error, Keyspace, Reply};
use crate::limits::SLICE;
use crate::store::Now;

/// How a slice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is more to do.
    More,
    /// There is more to do, but not now: what is needed was busy.
    Blocked,
    /// This part is finished.
    Done,
}

/// What every part of a job shares, and how its reply is made.
pub trait Task: Send + Sync {
    /// Goes on with the reply, as far as the slice allows. True when it is complete.
    fn reply(&self, reply: &mut dyn Reply, slice: &Slice<'_>) -> bool;
}

/// One worker's share of a job.
pub trait Part: Send {
    /// Works until the slice is over.
    fn slice(&mut self, slice: &Slice<'_>) -> Progress;

    /// Whether it goes on when its job was stopped.
    fn must_finish(&self) -> bool {
        false
    }
}

/// Long work, ready to be started.
pub struct Work {
    /// What the parts share.
    pub task: Arc<dyn Task>,
    /// The shares; each goes to the worker of its place, modulo their number.
    pub parts: Vec<Box<dyn Part>>,
    /// What `done` counts up to.
    pub total: u64,
    /// The worker of the first part.
    pub first_worker: usize,
}

/// A job's reply sink, on whichever worker.
pub trait JobReply: Send {
    /// The sink.
    fn sink(&mut self) -> &mut dyn Reply;
    /// Whether its client may still read it after [`JobOwner::gone`] was set: then it has only said that
    /// it will send no more.
    fn is_awaited(&self) -> bool {
        false
    }
    /// The reply is complete.
    fn finish(self: Box<Self>);
}

/// A running job, as MIDI.JOBS shows it.
pub struct Job {
    /// Its number, from 1.
    pub id: u64,
    /// The command's number; `None` for work of midi's own, which nobody may cancel.
    pub command: Option<usize>,
    /// What it is called.
    pub name: &'static str,
    /// The client's database.
    pub db: u32,
    /// The client's id at its door; 0 for work of midi's own.
    pub client: u64,
    /// Its client's door.
    pub door: JobDoor,
    /// When it began.
    pub started: Instant,
    /// How much there is to do, in units of the command's own.
    pub total: AtomicU64,
    /// How much is done.
    pub done: AtomicU64,
    parts_left: AtomicUsize,
    stop: AtomicU8,
    /// Set by the door when nobody waits for the job any more.
    client_gone: Arc<AtomicBool>,
    /// A part ended before it was done, because of that or because the job was stopped.
    cut_short: AtomicBool,
    refusal: Mutex<Option<Error>>,
    task: Arc<dyn Task>,
    reply: Mutex<Option<Box<dyn JobReply>>>,
}

const GO_ON: u8 = 0;
const CANCELLED: u8 = 1;
const REFUSED: u8 = 2;

impl Job {
    /// Stops it: MIDI.JOBS CANCEL.
    pub fn cancel(&self) {
        let _ = self.stop.compare_exchange(GO_ON, CANCELLED, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Stops it because of an error, which becomes its reply.
    pub fn refuse(&self, error: Error) {
        self.refusal.lock().get_or_insert(error);
        let _ = self.stop.compare_exchange(GO_ON, REFUSED, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// How long it has been running.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) != GO_ON || self.client_gone.load(Ordering::Relaxed)
    }

    /// What it answers instead of a result, if it was stopped.
    fn error(&self) -> Option<Error> {
        match self.stop.load(Ordering::Relaxed) {
            GO_ON => self.cut_short.load(Ordering::Relaxed).then_some(Error::JobLeft(self.id)),
            CANCELLED => Some(Error::JobCancelled(self.id)),
            _ => Some(self.refusal.lock().unwrap_or(Error::Internal)),
        }
    }
}

/// All running jobs.
#[derive(Default)]
pub struct Jobs {
    running: Mutex<Vec<Arc<Job>>>,
    started: AtomicU64,
}

impl Jobs {
    /// The running jobs, oldest first.
    pub fn list(&self) -> Vec<Arc<Job>> {
        self.running.lock().clone()
    }

    /// How many were ever started.
    pub fn started(&self) -> u64 {
        self.started.load(Ordering::Relaxed)
    }

    fn add(&self, job: &Arc<Job>) {
        self.running.lock().push(Arc::clone(job));
    }

    fn remove(&self, job: &Job) {
        self.running.lock().retain(|other| other.id != job.id);
    }
}

/// How long a slice may take.
#[derive(Clone, Copy)]
enum Time<'a> {
    Until(Instant),
    /// As long as it takes: this thread holds the global lock.
    Endless(Locked<'a>),
}

/// The time a slice has, and the means to use it.
pub struct Slice<'a> {
    /// The keyspace.
    pub engine: &'a Engine,
    /// The thread's books.
    pub seat: &'a Seat,
    /// The job, where it is one that can be watched and stopped.
    pub job: Option<&'a Job>,
    time: Time<'a>,
    refusal: Cell<Option<Error>>,
}

impl<'a> Slice<'a> {
    /// A slice of a worker's turn.
    pub(super) fn short(engine: &'a Engine, seat: &'a Seat, job: Option<&'a Job>) -> Self {
        Slice { engine, seat, job, time: Time::Until(Instant::now() + SLICE), refusal: Cell::new(None) }
    }

    /// All the time in the world.
    pub fn endless(engine: &'a Engine, locked: Locked<'a>) -> Self {
        let seat = engine.main_seat(locked);
        Slice { engine, seat, job: None, time: Time::Endless(locked), refusal: Cell::new(None) }
    }

    /// Whether it is time to stop.
    pub fn spent(&self) -> bool {
        matches!(self.time, Time::Until(deadline) if Instant::now() >= deadline)
    }

    /// The proof, where the work runs to its end on the thread that holds the global lock.
    pub fn locked(&self) -> Option<Locked<'a>> {
        match self.time {
            Time::Until(_) => None,
            Time::Endless(locked) => Some(locked),
        }
    }

    /// Whether the work runs to its end on the thread that holds the global lock.
    pub fn is_endless(&self) -> bool {
        self.locked().is_some()
    }

    /// How it comes by tokens of several shards.
    pub(super) fn taking(&self) -> Taking<'a> {
        self.locked().map_or(Taking::WORKER, Taking::Wait)
    }

    /// The time of what is done in it.
    pub fn now(&self) -> Now {
        let lazy = || Now::lazy(self.engine.config.clock);
        self.locked().map_or_else(lazy, |locked| self.engine.main_now(locked))
    }

    /// A shard's token, marked as held by long work; `None` when busy.
    pub fn take(&self, shard: u32) -> Option<HeldShard<'a>> {
        match self.time {
            Time::Until(_) => self.engine.shard(shard).token.try_take_long(),
            Time::Endless(locked) => Some(self.engine.take_waiting(locked, shard)),
        }
    }

    /// Stops the work; the error becomes its reply.
    pub fn refuse(&self, error: Error) {
        match self.job {
            Some(job) => job.refuse(error),
            None => self.refusal.set(Some(error)),
        }
    }

    /// Whether there is memory left for writes. Where this thread holds the
    /// global lock the host is asked; elsewhere the main thread is told to.
    pub fn has_credit(&self) -> bool {
        let Some(locked) = self.locked() else {
            return self.engine.has_credit();
        };
        if !self.engine.credit_left() {
            self.engine.ask_host(locked);
        }
        true
    }

    /// Counts finished units.
    pub fn advance(&self, units: u64) {
        if let Some(job) = self.job {
            job.done.fetch_add(units, Ordering::Relaxed);
        }
    }
}

/// Whose clients a job's client is one of: each door has ids of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobDoor {
    /// It is work of midi's own.
    #[default]
    None,
    /// The host's.
    Host,
    /// Those of midi's ports.
    Port,
}

impl JobDoor {
    /// As MIDI.JOBS and INFO call it.
    pub fn name(self) -> &'static str {
        match self {
            JobDoor::None => "none",
            JobDoor::Host => "host",
            JobDoor::Port => "port",
        }
    }
}

/// Who a job is for.
#[derive(Default)]
pub struct JobOwner {
    /// The client's database.
    pub db: u32,
    /// The client's id at its door; 0 for work of midi's own.
    pub client: u64,
    /// That door.
    pub door: JobDoor,
    /// Set when the client goes away.
    pub gone: Arc<AtomicBool>,
}

impl Engine {
    /// Whether one more long command may start. A flush always may: it has its effect at once, and an
    /// administrator must be able to empty a keyspace whose clients have started all the jobs there can be.
    ///
    /// # Errors
    /// [`Error::TooManyJobs`] at the limit.
    pub fn room_for_job(&self, command: usize) -> Result<(), Error> {
        if matches!(COMMANDS[command].action, Action::Keyspace(Keyspace::FlushDb | Keyspace::FlushAll)) {
            return Ok(());
        }
        let max = self.settings.max_jobs.load(Ordering::Relaxed);
        let clients = self.jobs.running.lock().iter().filter(|job| job.command.is_some()).count();
        if clients >= max { Err(Error::TooManyJobs(max)) } else { Ok(()) }
    }

    /// Starts a job for a client; `reply` gets its reply on some worker.
    pub fn start_job(&self, command: usize, owner: JobOwner, work: Work, reply: Box<dyn JobReply>) {
        self.launch(Some(command), COMMANDS[command].name, owner, work, Some(reply));
    }

    /// Starts work of midi's own.
    pub fn start_own_job(&self, name: &'static str, work: Work) {
        self.launch(None, name, JobOwner::default(), work, None);
    }

    fn launch(
        &self,
        command: Option<usize>,
        name: &'static str,
        owner: JobOwner,
        work: Work,
        reply: Option<Box<dyn JobReply>>,
    ) {
        let job = Arc::new(Job {
            id: self.jobs.started.fetch_add(1, Ordering::Relaxed) + 1,
            command,
            name,
            db: owner.db,
            client: owner.client,
            door: owner.door,
            started: Instant::now(),
            total: AtomicU64::new(work.total),
            done: AtomicU64::new(0),
            parts_left: AtomicUsize::new(work.parts.len()),
            stop: AtomicU8::new(GO_ON),
            client_gone: owner.gone,
            cut_short: AtomicBool::new(false),
            refusal: Mutex::new(None),
            task: work.task,
            reply: Mutex::new(reply),
        });
        self.jobs.add(&job);
        for (number, part) in work.parts.into_iter().enumerate() {
            let worker = (work.first_worker + number) % self.config.workers;
            let share = Share { job: Arc::clone(&job), stage: Stage::Work(part) };
            self.workers.send(worker, Message::Share(Box::new(share)));
        }
    }

    /// Runs long work to its end on this thread, which holds the global lock:
    /// SAFEMODE, MULTI, scripts, and wherever no client may be blocked.
    pub fn run_to_end(&self, locked: Locked<'_>, work: Work, reply: &mut dyn Reply) {
        let slice = Slice::endless(self, locked);
        for mut part in work.parts {
            while slice.refusal.get().is_none() && part.slice(&slice) != Progress::Done {}
        }
        match slice.refusal.get() {
            Some(error) => reply.error(&error.text("", &Args::new(&[]))),
            None => while !work.task.reply(reply, &slice) {},
        }
    }
}

/// A part on its worker.
pub(super) struct Share {
    job: Arc<Job>,
    stage: Stage,
}

enum Stage {
    Work(Box<dyn Part>),
    Reply(Box<dyn JobReply>),
}

impl Share {
    /// One slice. `Done` when this share is finished for good.
    pub(super) fn slice(&mut self, engine: &Engine, seat: &Seat) -> Progress {
        let slice = Slice::short(engine, seat, Some(&self.job));
        match &mut self.stage {
            Stage::Work(part) if self.job.stopped() && !part.must_finish() => {
                self.job.cut_short.store(true, Ordering::Relaxed);
                self.finish_part(engine, seat)
            }
            Stage::Work(part) => match part.slice(&slice) {
                Progress::Done => self.finish_part(engine, seat),
                other => other,
            },
            // The reply of a client that went away need not be complete.
            Stage::Reply(reply) if self.job.client_gone.load(Ordering::Relaxed) && !reply.is_awaited() => {
                self.finish_job(engine, seat)
            }
            Stage::Reply(reply) => {
                if self.job.task.reply(reply.sink(), &slice) {
                    self.finish_job(engine, seat)
                } else {
                    Progress::More
                }
            }
        }
    }

    /// After a panic in a slice: the job ends with an error, and its client is answered.
    pub(super) fn failed(&mut self, engine: &Engine, seat: &Seat) -> Progress {
        self.job.refuse(Error::Internal);
        match self.stage {
            Stage::Work(_) => self.finish_part(engine, seat),
            Stage::Reply(_) => self.finish_job(engine, seat),
        }
    }

    /// The last part to be done makes the reply.
    fn finish_part(&mut self, engine: &Engine, seat: &Seat) -> Progress {
        if self.job.parts_left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return Progress::Done;
        }
        let Some(mut reply) = self.job.reply.lock().take() else {
            engine.jobs.remove(&self.job);
            return Progress::Done;
        };
        let error = self.job.error();
        if let Some(error) = error {
            reply.sink().error(&error.text(self.job.name, &Args::new(&[])));
        }
        // The part is freed before the reply is made.
        self.stage = Stage::Reply(reply);
        if error.is_some() { self.finish_job(engine, seat) } else { Progress::More }
    }

    fn finish_job(&mut self, engine: &Engine, seat: &Seat) -> Progress {
        engine.jobs.remove(&self.job);
        if let Some(command) = self.job.command {
            seat.called(command);
            seat.timed(command, self.job.started.elapsed());
        }
        if let Stage::Reply(reply) = std::mem::replace(&mut self.stage, Stage::Work(Box::new(Nothing))) {
            reply.finish();
        }
        Progress::Done
    }
}

/// The part of a finished job.
struct Nothing;

impl Part for Nothing {
    fn slice(&mut self, _: &Slice<'_>) -> Progress {
        Progress::Done
    }
}
