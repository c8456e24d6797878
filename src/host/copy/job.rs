//! A copy, in either direction: a job whose only part needs the global lock.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::super::api::Ctx;
use super::super::lock::{LockPart, LockWork};
use super::super::pause;
use super::super::rights::{Rights, RightsNow};
use super::moves;
use crate::command::{Error, ImportArgs, Reply, Transcript};
use crate::engine::{Call, Called, Engine, JobOwner, JobReply, Slice, Task, Work};

/// The counts that a copy replies with.
#[derive(Default)]
pub struct CopyCounts {
    /// Keys that were copied, or moved.
    pub copied: u64,
    /// Keys that were there already.
    pub present: u64,
    /// Keys of types that are not copied.
    pub other_types: u64,
}

impl CopyCounts {
    fn write_to(&self, reply: &mut dyn Reply) {
        reply.array(3);
        for count in [self.copied, self.present, self.other_types] {
            reply.integer(count as i64);
        }
    }
}

/// A copy in either direction.
pub trait Copying: LockWork {
    /// Its part that both directions have.
    fn state(&self) -> &CopyState;
}

/// The part of a copy that both directions have.
pub struct CopyState {
    /// Its arguments.
    pub args: ImportArgs,
    /// The database of its keys.
    pub db: u32,
    rights: Rights,
    /// Keys that were looked at since the last report.
    pub scanned: u64,
    /// The counts for its reply.
    pub counts: CopyCounts,
    /// The reason why it ended early; `None` if it did not.
    pub error: Option<Error>,
}

impl CopyState {
    /// A copy that has not begun.
    ///
    /// # Errors
    /// The reason why it is refused.
    pub fn new(caller: &Asker<'_>, call: &Call<'_>) -> Result<Self, Error> {
        let args = ImportArgs::parse(&call.args, &call.limits)?;
        // A port's clients are no module's.
        if caller.user.is_none() {
            moves::check_caller(&args, caller.ctx)?;
        }
        let rights = Rights::to_walk(caller.ctx, caller.user, call);
        let (scanned, counts) = (0, CopyCounts::default());
        Ok(CopyState { args, db: call.db, rights, scanned, counts, error: None })
    }

    /// The rights for a slice. `None` if there is none now: because clients are paused and it
    /// `heeds_pauses`, or because the copy has failed.
    pub fn begin_slice(
        &mut self,
        ctx: Ctx<'_>,
        deadline: Option<Instant>,
        heeds_pauses: bool,
    ) -> Option<RightsNow> {
        if heeds_pauses && pause::is_on(ctx.locked()) {
            if deadline.is_none() {
                // The client cannot wait.
                self.error = Some(Error::HostRefused);
            }
            return None;
        }
        let rights = self.rights.now(ctx.locked());
        rights.map_err(|error| self.error = Some(error)).ok()
    }
}

struct CopyTask<C: Copying>(Arc<Mutex<C>>);

impl<C: Copying> Task for CopyTask<C> {
    fn reply(&self, reply: &mut dyn Reply, _: &Slice<'_>) -> bool {
        let copy = self.0.lock();
        match copy.state().error {
            Some(error) => reply.error(&error.bare_text()),
            None => copy.state().counts.write_to(reply),
        }
        true
    }
}

/// The caller of a copy, and the way to answer it.
pub struct Asker<'a> {
    /// A context that holds the lock.
    pub ctx: Ctx<'a>,
    /// The user whose rights count; `None` for that of the context's client.
    pub user: Option<&'a [u8]>,
    /// Makes the client wait for a job. `None`: it must be answered at once.
    pub wait: Option<Wait<'a>>,
}

/// Makes a client wait; returns the job's owner and its reply. `None` if it cannot wait.
pub type Wait<'a> = &'a mut dyn FnMut() -> Option<(JobOwner, Box<dyn JobReply>)>;

/// Starts a copy as a job, or runs it at once if the client cannot wait. `None` if the job will
/// answer.
///
/// # Errors
/// Why it was refused, or ended early.
pub fn start<C: Copying + 'static>(
    engine: &Engine,
    caller: Asker<'_>,
    call: &Call<'_>,
    mut copy: C,
    total: u64,
) -> Result<Option<Transcript>, Error> {
    let client = match caller.wait.filter(|_| !engine.config().safemode) {
        None => None,
        Some(wait) => {
            engine.jobs.room_for(engine.settings(), call.command)?;
            wait()
        }
    };
    let Some((owner, reply)) = client else {
        let started = Instant::now();
        let locked = caller.ctx.locked();
        let endless = Slice::endless(engine, locked);
        while !copy.is_done() {
            copy.prepare(&endless);
            copy.slice(caller.ctx, None);
        }
        engine.main_slot(locked).ran_long(call.command, started);
        if let Some(error) = copy.state().error {
            return Err(error);
        }
        let mut transcript = Transcript::default();
        copy.state().counts.write_to(&mut transcript);
        return Ok(Some(transcript));
    };
    let copy = Arc::new(Mutex::new(copy));
    let work = Work {
        parts: vec![Box::new(LockPart::new(caller.ctx, copy.clone()))],
        task: Arc::new(CopyTask(copy)),
        total,
        first_worker: engine.jobs.started() as usize % engine.config().workers,
        sees_passed: false,
    };
    let called = Called::of(call.command, call.prefix, &call.args);
    engine.jobs.start(engine.context(), called, owner, work, reply);
    Ok(None)
}
