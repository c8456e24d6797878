//! A step of a job that the main thread does, because it may wait for tokens.

use std::mem::replace;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::engine::context::MainTask;
use crate::engine::{Engine, Locked, Slice};

/// A step that the main thread has been asked to do: its result, and the position in the log that
/// the job's reply must wait for.
pub(super) struct OnMain<T>(Arc<Mutex<Answer<(T, u64)>>>);

/// The main thread's answer.
pub(super) enum Answer<T> {
    /// There is none yet.
    NotYet,
    /// It cannot be done now: a script holds shards, say. Try again.
    NotNow,
    /// The result.
    Done(T),
}

impl<T: Send + 'static> OnMain<T> {
    /// Makes the task of the step; `None` of `step` means that it cannot be done now.
    pub(super) fn new(
        step: impl FnOnce(&Slice<'_>) -> Option<T> + Send + 'static,
    ) -> (Self, MainTask) {
        let answer = Arc::new(Mutex::new(Answer::NotYet));
        let own = OnMain(Arc::clone(&answer));
        let task: MainTask = Box::new(move |locked, engine, host| {
            // Else the job has been stopped.
            if Arc::strong_count(&answer) > 1 {
                // A script that takes too long has the host.
                *answer.lock() = host.map_or(Answer::NotNow, |_| answer_of(locked, engine, step));
            }
        });
        (own, task)
    }

    /// Takes the answer; the job's reply then waits for what the step has seen. A task that is gone
    /// without one has failed: try again.
    pub(super) fn take(&self, slice: &Slice<'_>) -> Answer<T> {
        let is_gone = Arc::strong_count(&self.0) == 1;
        match replace(&mut *self.0.lock(), Answer::NotYet) {
            Answer::NotYet if !is_gone => Answer::NotYet,
            Answer::NotYet | Answer::NotNow => Answer::NotNow,
            Answer::Done((result, seen)) => {
                slice.slot.log.see(seen);
                Answer::Done(result)
            }
        }
    }
}

fn answer_of<T>(
    locked: Locked<'_>,
    engine: &Engine,
    step: impl FnOnce(&Slice<'_>) -> Option<T>,
) -> Answer<(T, u64)> {
    if engine.shards().is_in_unit(locked) {
        return Answer::NotNow;
    }
    let slice = Slice::endless(engine, locked);
    // The job's reply waits for what this step sees. No reply of the main thread's does.
    let before = slice.slot.take_seen();
    let result = step(&slice);
    let seen = slice.slot.take_seen();
    slice.slot.log.see(before);
    result.map_or(Answer::NotNow, |result| Answer::Done((result, seen)))
}
