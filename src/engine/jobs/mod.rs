//! Running jobs: their owners, their progress, and how they are stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

mod long;
mod work;

use crate::command::{Action, COMMANDS, Error, Long, OnAllKeys, Reply};
use crate::engine::context::Settings;
use crate::engine::slow_log::{CalledFrom, LoggedWords};

pub use long::{
    FieldSink, FieldsReader, ScanState, free_later, long_work, remove_lost_keys,
    remove_lost_keys_now,
};
pub(super) use long::{free_flushed, is_long};
pub use work::{Part, Slice, Task, Work, without_reply};

/// How a slice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is more to do.
    More,
    /// There is more to do, but not now: a token or another resource is busy.
    Blocked,
    /// This part is finished.
    Done,
}

/// A job's reply. Any worker may write to it.
pub trait JobReply: Send {
    /// The reply, to write to.
    fn sink(&mut self) -> &mut dyn Reply;
    /// Whether its client may still read it after [`JobOwner::gone`] was set: then the client has
    /// only closed its sending side.
    fn is_awaited(&self) -> bool {
        false
    }
    /// The reply is larger than may wait for its client: the client gets none of it, and its
    /// connection is closed. `finish` follows.
    fn close(&mut self);
    /// Its client may see nothing of the reply before this position of the log is safe. Called
    /// before anything is written; of several calls, the highest position counts.
    fn waits_for(&mut self, _position: u64) {}
    /// The reply is complete.
    fn finish(self: Box<Self>);
}

/// A running job, as MIDI.JOBS lists it.
pub struct Job {
    /// Its number, from 1.
    pub id: u64,
    /// The command's number; `None` for midi's own work, which no client may cancel.
    pub command: Option<usize>,
    /// Its name.
    pub name: &'static str,
    /// Its client.
    pub owner: JobOwner,
    /// Its arguments, for the slow log.
    pub(super) words: LoggedWords,
    /// When it began.
    pub started: Instant,
    /// How much there is to do, in units that depend on the command.
    pub total: AtomicU64,
    /// How much is done.
    pub done: AtomicU64,
    pub(super) stop: AtomicU8,
    /// A part ended before it was done, because the client is gone or the job was stopped.
    pub(super) cut_short: AtomicBool,
    pub(super) refusal: Mutex<Option<Error>>,
}

pub(super) const GO_ON: u8 = 0;
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

    /// It has done what it was for: a cancellation came too late.
    pub(super) fn took_effect(&self) {
        let _ = self.stop.compare_exchange(CANCELLED, GO_ON, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// How long it has been running.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) != GO_ON || self.owner.gone.load(Ordering::Relaxed)
    }

    /// The error that replaces its result, if it was stopped.
    pub(super) fn error(&self) -> Option<Error> {
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
    pub(super) running: Mutex<Vec<Arc<Job>>>,
    pub(super) started: AtomicU64,
    /// How many of the running jobs are clients'.
    pub(super) of_clients: AtomicUsize,
}

impl Jobs {
    /// Whether one more long command may start. A flush always may: it takes effect at once, and an
    /// administrator must be able to empty a keyspace whose clients have started all the jobs that
    /// are allowed. For [`Long::FoundAlone`] the limit was checked before the command was
    /// found to be long.
    ///
    /// # Errors
    /// [`Error::TooManyJobs`] at the limit.
    pub fn room_for(&self, settings: &Settings, command: usize) -> Result<(), Error> {
        let row = COMMANDS[command];
        let is_flush =
            matches!(row.action, Action::AllKeys(OnAllKeys::FlushDb | OnAllKeys::FlushAll));
        if is_flush || matches!(row.long, Long::FoundAlone(_)) {
            Ok(())
        } else {
            self.have_room(settings)
        }
    }

    /// Whether a client may have one more job.
    #[inline]
    pub(super) fn have_room(&self, settings: &Settings) -> Result<(), Error> {
        let max = settings.max_jobs.load(Ordering::Relaxed);
        if self.of_clients.load(Ordering::Relaxed) >= max {
            Err(Error::TooManyJobs(max))
        } else {
            Ok(())
        }
    }

    /// The running jobs, oldest first.
    pub fn list(&self) -> Vec<Arc<Job>> {
        self.running.lock().clone()
    }

    /// How many jobs were ever started.
    pub fn started(&self) -> u64 {
        self.started.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, job: &Arc<Job>) {
        self.of_clients.fetch_add(usize::from(job.command.is_some()), Ordering::Relaxed);
        self.running.lock().push(Arc::clone(job));
    }

    pub(super) fn remove(&self, job: &Job) {
        let mut running = self.running.lock();
        let before = running.len();
        running.retain(|other| other.id != job.id);
        // Counted once for each job, even if it is removed twice.
        if running.len() < before {
            self.of_clients.fetch_sub(usize::from(job.command.is_some()), Ordering::Relaxed);
        }
    }
}

/// The door of a job's client. Each door has ids of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobDoor {
    /// No door: midi's own work.
    #[default]
    None,
    /// The host's door.
    Host,
    /// midi's ports.
    Port,
}

impl JobDoor {
    /// The name in MIDI.JOBS and INFO.
    pub fn name(self) -> &'static str {
        match self {
            JobDoor::None => "none",
            JobDoor::Host => "host",
            JobDoor::Port => "port",
        }
    }
}

/// The client of a job.
#[derive(Default)]
pub struct JobOwner {
    /// The client's database.
    pub db: u32,
    /// The client's id at its door; 0 for midi's own work.
    pub client: u64,
    /// The client's door.
    pub door: JobDoor,
    /// The client, as the slow log names it.
    pub from: CalledFrom,
    /// Set by the door when no client waits for the job any more.
    pub gone: Arc<AtomicBool>,
}
