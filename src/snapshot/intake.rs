//! Frames on their way from the thread that reads them to those that put their keys into shards.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::error::{Fault, LoadError};
use super::format::Tally;
use crate::engine::{Progress, Staging};
use crate::limits::{LOAD_BATCH_BYTES, LOAD_WAITING_BYTES};

/// A frame that was read, with neither its checksum nor its content looked at.
pub(super) struct RawFrame {
    /// Its number, from 1.
    pub(super) number: u64,
    pub(super) bytes: Vec<u8>,
    /// The string behind it, if it is a large entry.
    pub(super) value: Option<Vec<u8>>,
}

impl RawFrame {
    pub(super) fn kind(&self) -> Option<u8> {
        self.bytes.first().copied()
    }

    fn len(&self) -> usize {
        self.bytes.len() + self.value.as_ref().map_or(0, Vec::len)
    }

    /// An error in it.
    pub(super) fn error(&self, fault: Fault) -> LoadError {
        fault.at(self.number, self.kind())
    }
}

/// The frames that wait, and what has become of the others.
pub(super) struct Intake {
    /// Databases that the section has.
    pub(super) databases: u32,
    /// Values of this size or more are not copied, as everywhere.
    pub(super) keep_bytes: usize,
    workers: usize,
    state: Mutex<IntakeState>,
    /// Notified when no thread has a batch any more.
    all_idle: Condvar,
}

#[derive(Default)]
struct IntakeState {
    /// `None` at the end: then no thread can get it any more.
    staging: Option<Arc<Staging>>,
    /// Not crossbeam's queue: its bound is in bytes, and a thread takes its share of what waits.
    frames: VecDeque<RawFrame>,
    /// Bytes of these.
    bytes: usize,
    /// Threads that have a batch.
    busy: usize,
    /// What was put into shards.
    tally: Tally,
    error: Option<LoadError>,
}

/// What became of a frame that was to be left for the workers.
pub(super) enum Offered {
    /// It waits for them.
    Taken,
    /// Too much waits.
    Full(RawFrame),
    /// The load has failed.
    Failed,
}

impl Intake {
    pub(super) fn new(
        staging: &Arc<Staging>,
        databases: u32,
        keep_bytes: usize,
        workers: usize,
    ) -> Self {
        let staging = Some(Arc::clone(staging));
        Intake {
            databases,
            keep_bytes,
            workers,
            state: Mutex::new(IntakeState { staging, ..IntakeState::default() }),
            all_idle: Condvar::new(),
        }
    }

    /// Leaves a frame for the workers, unless too much waits. A frame above the limit waits alone.
    pub(super) fn offer(&self, frame: RawFrame) -> Offered {
        let mut state = self.state.lock();
        if state.error.is_some() {
            return Offered::Failed;
        }
        if state.bytes + frame.len() > LOAD_WAITING_BYTES && !state.frames.is_empty() {
            return Offered::Full(frame);
        }
        state.bytes += frame.len();
        state.frames.push_back(frame);
        Offered::Taken
    }

    /// What has been put into shards.
    pub(super) fn tally(&self) -> Tally {
        self.state.lock().tally
    }

    /// Notes that the load has failed. Of several errors the one in the first frame is kept.
    pub(super) fn fail(&self, error: LoadError) {
        let number = |error: &LoadError| error.place.map_or(u64::MAX, |place| place.number);
        let mut state = self.state.lock();
        if state.error.as_ref().is_none_or(|known| number(&error) < number(known)) {
            state.error = Some(error);
        }
        state.frames.clear();
    }

    /// Ends it: waits until no thread has a batch. Frames that still wait are dropped. From then
    /// on nobody has the staging from here.
    ///
    /// # Errors
    /// The error that a thread met.
    pub(super) fn end(&self) -> Result<Tally, LoadError> {
        let mut state = self.state.lock();
        state.frames.clear();
        state.staging = None;
        while state.busy > 0 {
            self.all_idle.wait(&mut state);
        }
        state.error.clone().map_or(Ok(state.tally), Err)
    }

    /// Takes some frames, as many as wait for each thread, up to a limit, and the staging that they
    /// go to. Otherwise says what a thread without a batch has to do.
    pub(super) fn take(&self, into: &mut Vec<RawFrame>) -> Result<Arc<Staging>, Progress> {
        let mut state = self.state.lock();
        let staging = state.staging.clone().filter(|_| state.error.is_none());
        let staging = staging.ok_or(Progress::Done)?;
        let fair = state.frames.len().div_ceil(self.workers + 1);
        let mut bytes = 0;
        while into.len() < fair && bytes < LOAD_BATCH_BYTES {
            let Some(frame) = state.frames.pop_front() else { break };
            bytes += frame.len();
            into.push(frame);
        }
        if into.is_empty() {
            return Err(Progress::Blocked);
        }
        state.bytes -= bytes;
        state.busy += 1;
        Ok(staging)
    }

    /// A thread no longer has its batch.
    pub(super) fn put_down(&self, tally: Tally) {
        let mut state = self.state.lock();
        state.tally.add(tally);
        state.busy -= 1;
        if state.busy == 0 {
            self.all_idle.notify_all();
        }
    }
}
