//! Work on the host's own keyspace, under its global lock, from workers.
//!
//! A slice lasts 200 µs at most, and workers only ever *try* to take the lock. After a slice the
//! lock stays free until the main loop has turned, or until a pause has passed in which a main
//! thread that was woken meanwhile would have taken it. A busy main thread leaves the lock free
//! only for a moment, when it polls: then it runs a slice of the starving work itself before it
//! sleeps.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::api::Ctx;
use super::context::DetachedCtx;
use super::instance::instance;
use super::state::{Gauge, part};
use super::unit;
use crate::engine::{Locked, Part, Progress, Slice};
use crate::limits::{LOCK_PAUSE, LOCK_SLICE, LOCK_STARVING};

part! {
    /// The state of such work. Workers write to it, too.
    pub struct LockWorks {
        /// Turns of the main loop so far.
        turns: Gauge = Gauge::new(0),
        /// The last slice of any work: in which turn it ran, and when it ended.
        last: Mutex<Option<(u64, Instant)>> = Mutex::new(None),
        /// All work under the lock that is not finished, next first.
        works: Mutex<Vec<Arc<Mutex<dyn LockWork>>>> = Mutex::new(Vec::new()),
        /// Contexts that are no longer needed. They are freed under the lock. Not crossbeam's
        /// queue: there are as many as there is work, all freed at once.
        spent_contexts: Mutex<Vec<DetachedCtx>> = Mutex::new(Vec::new()),
        /// Detached contexts that have not been freed. If there are none, no such work exists, and
        /// a turn of the main loop, which always checks, takes no mutex.
        contexts: Gauge = Gauge::new(0),
    }
}

static LOCK: LockWorks = LockWorks::new();

/// Work on the host's keyspace.
pub trait LockWork: Send {
    /// Works until `deadline`, or without a time limit if `None`. The context holds the lock during
    /// this call; nothing that belongs to the host may be kept for the next.
    fn slice(&mut self, ctx: Ctx<'_>, deadline: Option<Instant>);

    /// Does what needs no lock, before the next slice.
    fn prepare(&mut self, slice: &Slice<'_>) -> Progress;

    /// Whether all is done.
    fn is_done(&self) -> bool;

    /// How many keys were finished since the last call.
    fn advanced(&mut self) -> u64;
}

/// The main loop has turned.
pub fn main_turned(_: Locked<'_>) {
    LOCK.turns.set(LOCK.turns.get() + 1);
}

/// The part of a job that works under the lock, on a worker.
pub struct LockPart {
    work: Arc<Mutex<dyn LockWork>>,
    /// Until it is dropped.
    ctx: Option<DetachedCtx>,
}

impl LockPart {
    /// A part that does `work`.
    pub fn new(ctx: Ctx<'_>, work: Arc<Mutex<dyn LockWork>>) -> Self {
        LOCK.works.lock().push(Arc::clone(&work));
        LOCK.contexts.add(1);
        LockPart { work, ctx: Some(DetachedCtx::new(ctx)) }
    }

    /// Runs a slice if the last one was long enough ago and the lock is free.
    fn try_slice(&self, work: &mut dyn LockWork) -> bool {
        if too_early() {
            return false;
        }
        let Some(hold) = self.ctx.as_ref().and_then(DetachedCtx::try_lock) else {
            return false;
        };
        // A unit that ran after BEFORE_SLEEP may still be open. Behind a save the keyspace stays
        // closed, and nothing is logged, until the main loop turns.
        let is_closed = instance().doing.is_closed_by_save();
        if is_closed || !unit::end_if_over(hold.ctx().locked()) {
            return false;
        }
        let slice = AssertUnwindSafe(|| work.slice(hold.ctx(), Some(Instant::now() + LOCK_SLICE)));
        let result = catch_unwind(slice);
        slice_ended();
        let engine = &instance().engine;
        if engine.ledger.notifications.is_listening() {
            engine.context().outside.wake_main(); // It notifies the host of the changes.
        }
        drop(hold);
        match result {
            Ok(()) => true,
            // The worker answers the client; here only the lock matters.
            Err(panic) => resume_unwind(panic),
        }
    }
}

impl Part for LockPart {
    fn slice(&mut self, slice: &Slice<'_>) -> Progress {
        // The main thread may be running it.
        let Some(mut work) = self.work.try_lock() else {
            return Progress::Blocked;
        };
        slice.advance(work.advanced());
        if work.is_done() {
            return Progress::Done;
        }
        match work.prepare(slice) {
            Progress::Done if self.try_slice(&mut *work) => Progress::More,
            Progress::Done => Progress::Blocked,
            other => other,
        }
    }
}

impl Drop for LockPart {
    fn drop(&mut self) {
        LOCK.works.lock().retain(|work| !Arc::ptr_eq(work, &self.work));
        LOCK.spent_contexts.lock().extend(self.ctx.take());
    }
}

fn slice_ended() {
    *LOCK.last.lock() = Some((LOCK.turns.get(), Instant::now()));
}

fn too_early() -> bool {
    let turn = LOCK.turns.get();
    LOCK.last.lock().is_some_and(|(last, ended)| last == turn && ended.elapsed() < LOCK_PAUSE)
}

/// Before the main loop sleeps: runs a slice of work that has not got the lock for a while because
/// the main loop hardly sleeps.
pub fn run_starving(ctx: Ctx<'_>) {
    if LOCK.contexts.get() == 0 {
        return;
    }
    for spent in std::mem::take(&mut *LOCK.spent_contexts.lock()) {
        spent.free(ctx.locked());
        LOCK.contexts.set(LOCK.contexts.get() - 1);
    }
    let starving = LOCK.last.lock().is_none_or(|(_, ended)| ended.elapsed() > LOCK_STARVING);
    let mut works = LOCK.works.lock();
    if works.is_empty() || !starving {
        return;
    }
    works.rotate_left(1);
    let next = works.last().map(Arc::clone);
    drop(works);
    if let Some(mut work) = next.as_ref().and_then(|work| work.try_lock()) {
        work.slice(ctx, Some(Instant::now() + LOCK_SLICE));
        slice_ended();
    }
}
