//! Frames on their way from the thread that reads them to those that put their keys into shards.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::error::{Fault, LoadError};
use super::format::{self, Body, EntryHead, Tally};
use super::numbers::ENTRIES;
use crate::engine::{Part, Progress, Slice, StagedKey, Staging};
use crate::limits::{LOAD_BATCH_BYTES, LOAD_RUN_KEYS, LOAD_WAITING_BYTES};
use crate::store::{KeyHash, SharedValue, Value, prefetch};

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
    databases: u32,
    /// Values of this size or more are not copied, as everywhere.
    keep_bytes: usize,
    workers: usize,
    state: Mutex<IntakeState>,
    /// Notified when no thread has a batch any more.
    all_idle: Condvar,
}

struct IntakeState {
    /// `None` at the end: then no thread can get it any more.
    staging: Option<Arc<Staging>>,
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

/// What an [`Inserter`] got.
enum Refill {
    Batch,
    /// Nothing waits now.
    Nothing,
    /// There will be nothing any more.
    Ended,
}

impl Intake {
    pub(super) fn new(
        staging: &Arc<Staging>,
        databases: u32,
        keep_bytes: usize,
        workers: usize,
    ) -> Self {
        Intake {
            databases,
            keep_bytes,
            workers,
            state: Mutex::new(IntakeState {
                staging: Some(Arc::clone(staging)),
                frames: VecDeque::new(),
                bytes: 0,
                busy: 0,
                tally: Tally::default(),
                error: None,
            }),
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

    /// Ends it: waits until no thread has a batch. What still waits is dropped. From then on nobody
    /// has the staging from here.
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

    /// Takes some frames, as many as wait for each thread, up to a limit.
    fn take(&self, into: &mut Vec<RawFrame>) -> (Refill, Option<Arc<Staging>>) {
        let mut state = self.state.lock();
        if state.error.is_some() {
            return (Refill::Ended, None);
        }
        let Some(staging) = state.staging.clone() else { return (Refill::Ended, None) };
        let fair = state.frames.len().div_ceil(self.workers + 1);
        let mut bytes = 0;
        while into.len() < fair && bytes < LOAD_BATCH_BYTES {
            let Some(frame) = state.frames.pop_front() else { break };
            bytes += frame.len();
            into.push(frame);
        }
        if into.is_empty() {
            return (Refill::Nothing, None);
        }
        state.bytes -= bytes;
        state.busy += 1;
        (Refill::Batch, Some(staging))
    }

    /// A thread no longer has its batch.
    fn put_down(&self, tally: Tally) {
        let mut state = self.state.lock();
        state.tally.add(tally);
        state.busy -= 1;
        if state.busy == 0 {
            self.all_idle.notify_all();
        }
    }
}

/// An entry whose shard is known.
#[derive(Clone, Copy)]
struct PlannedEntry {
    hash: KeyHash,
    /// Its frame in the batch, and where its body's rest, from this entry on, begins.
    frame: u32,
    left: u32,
}

/// Puts the keys of frames into their shards, batch by batch, in small steps.
///
/// The keys of a batch are sorted by shard, so that each shard is locked once for several of them,
/// whose places are fetched together.
pub(super) struct Inserter {
    intake: Arc<Intake>,
    /// The staging, while there is a batch.
    staging: Option<Arc<Staging>>,
    frames: Vec<RawFrame>,
    /// The database of each frame that has been decoded.
    databases: Vec<u32>,
    planned: Vec<PlannedEntry>,
    sorted: Vec<PlannedEntry>,
    /// How many of the sorted entries are in their shards.
    done: usize,
    tally: Tally,
}

impl Inserter {
    pub(super) fn new(intake: &Arc<Intake>) -> Self {
        Inserter {
            intake: Arc::clone(intake),
            staging: None,
            frames: Vec::new(),
            databases: Vec::new(),
            planned: Vec::new(),
            sorted: Vec::new(),
            done: 0,
            tally: Tally::default(),
        }
    }

    /// Runs one batch to its end. False if none waits.
    pub(super) fn run_batch(&mut self) -> bool {
        if !matches!(self.refill(), Refill::Batch) {
            return false;
        }
        while self.step() {}
        true
    }

    fn refill(&mut self) -> Refill {
        let (refill, staging) = self.intake.take(&mut self.frames);
        self.staging = staging;
        refill
    }

    /// Goes on with the batch. False when it is done, or has failed.
    fn step(&mut self) -> bool {
        match self.try_step() {
            Ok(true) => return true,
            Ok(false) => {}
            Err(error) => self.intake.fail(error),
        }
        self.put_down();
        false
    }

    fn try_step(&mut self) -> Result<bool, LoadError> {
        let Some(staging) = self.staging.clone() else { return Ok(false) };
        if self.databases.len() < self.frames.len() {
            let frame = &mut self.frames[self.databases.len()];
            let (number, kind, value) = (frame.number, frame.kind(), frame.value.take());
            self.decode(&staging, value).map_err(|fault| fault.at(number, kind))?;
            return Ok(true);
        }
        if !self.planned.is_empty() {
            self.done = 0;
            staging.sort(&mut self.planned, &mut self.sorted, |entry| entry.hash);
            return Ok(true);
        }
        if self.done < self.sorted.len() {
            self.insert_run(&staging)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Checks the next frame and plans its entries; a large entry is put into its shard at once.
    fn decode(&mut self, staging: &Staging, value: Option<Vec<u8>>) -> Result<(), Fault> {
        let frame = self.databases.len() as u32;
        let (kind, body) = format::open(&self.frames[frame as usize].bytes)?;
        let mut body = Body::new(body);
        // Of a kind that may be skipped: nothing else that is unknown was left here.
        let db = match (kind, value) {
            (ENTRIES, _) => {
                let db = body.database(self.intake.databases)?;
                while !body.is_empty() {
                    let left = u32::try_from(body.len()).map_err(|_| Fault::TooLong)?;
                    let (head, value) = body.entry()?;
                    self.tally.add(head.tally(value.len()));
                    if !head.skipped {
                        let hash = staging.hash(head.key);
                        self.planned.push(PlannedEntry { hash, frame, left });
                    }
                }
                db
            }
            (_, Some(value)) => {
                let db = body.database(self.intake.databases)?;
                let head = body.large_entry(&value)?;
                self.tally.add(head.tally(value.len()));
                if !head.skipped {
                    insert_large(staging, db, &head, value)?;
                }
                db
            }
            (_, None) => 0,
        };
        self.databases.push(db);
        Ok(())
    }

    /// Puts some entries of the next shard into it.
    fn insert_run(&mut self, staging: &Staging) -> Result<(), LoadError> {
        let rest = &self.sorted[self.done..];
        let shard = staging.shard_of(rest[0].hash);
        let same = |entry: &&PlannedEntry| staging.shard_of(entry.hash) == shard;
        let run = rest.iter().take(LOAD_RUN_KEYS).take_while(same).count();
        if let Some(next) = rest.get(run) {
            staging.prefetch(staging.shard_of(next.hash));
        }
        // The entries of the next run, probably.
        for entry in rest.iter().skip(run).take(run) {
            prefetch_entry(&self.frames[entry.frame as usize].bytes, entry.left);
        }
        let mut held = staging.lock(shard);
        for entry in &rest[..run] {
            held.prefetch(self.databases[entry.frame as usize], entry.hash);
        }
        for entry in &rest[..run] {
            let (db, frame) =
                (self.databases[entry.frame as usize], &self.frames[entry.frame as usize]);
            let inserted = entry_at(&frame.bytes, entry.left).and_then(|(head, value)| {
                let shared = (value.len() >= self.intake.keep_bytes)
                    .then(|| SharedValue::new(value.to_vec()));
                let value = shared.as_ref().map_or(Value::Inline(value), Value::Shared);
                let new = staged(&head, value);
                let is_new = held.insert(db, entry.hash, &new);
                if is_new { Ok(()) } else { Err(Fault::duplicate(db, shard, head.key)) }
            });
            inserted.map_err(|fault| frame.error(fault))?;
        }
        self.done += run;
        Ok(())
    }

    fn put_down(&mut self) {
        self.frames.clear();
        self.databases.clear();
        self.planned.clear();
        self.sorted.clear();
        self.done = 0;
        // Before the other threads are told: then only the caller of the load has it.
        if self.staging.take().is_some() {
            self.intake.put_down(std::mem::take(&mut self.tally));
        }
    }
}

/// An entry of an entries frame that was decoded before.
fn entry_at(frame: &[u8], left: u32) -> Result<(EntryHead<'_>, &[u8]), Fault> {
    Body::rest(frame, left as usize).entry()
}

/// Prefetches the lines of a short entry.
fn prefetch_entry(frame: &[u8], left: u32) {
    let place = Body::rest(frame, left as usize).start();
    prefetch(place);
    prefetch(place.wrapping_add(64));
}

fn staged<'a>(head: &EntryHead<'a>, value: Value<'a>) -> StagedKey<'a> {
    StagedKey { key: head.key, value, expire_at: head.expire_at, origin: head.origin }
}

fn insert_large(
    staging: &Staging,
    db: u32,
    head: &EntryHead<'_>,
    value: Vec<u8>,
) -> Result<(), Fault> {
    let hash = staging.hash(head.key);
    let shard = staging.shard_of(hash);
    let value = SharedValue::new(value);
    let new = staged(head, Value::Shared(&value));
    if staging.lock(shard).insert(db, hash, &new) {
        Ok(())
    } else {
        Err(Fault::duplicate(db, shard, head.key))
    }
}

/// A batch that is given up unfinished, because of a panic or because its worker ends, is missing.
impl Drop for Inserter {
    fn drop(&mut self) {
        if self.staging.is_some() {
            self.intake.fail(Fault::Internal.into());
            self.put_down();
        }
    }
}

impl Part for Inserter {
    fn slice(&mut self, slice: &Slice<'_>) -> Progress {
        loop {
            if self.staging.is_none() {
                match self.refill() {
                    Refill::Batch => {}
                    Refill::Nothing => return Progress::Blocked,
                    Refill::Ended => return Progress::Done,
                }
            }
            let before = self.done;
            if self.step() {
                slice.advance(self.done.saturating_sub(before) as u64);
            }
            if slice.spent() {
                return Progress::More;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::{begin, put_entry, seal};
    use super::*;
    use crate::command::Cluster;
    use crate::engine::{Config, Engine, Settings};
    use crate::store::Origin;

    fn engine() -> Engine {
        let config = Config {
            workers: 1,
            shards: 4,
            databases: 1,
            cluster: Cluster::Off,
            safemode: false,
            clock: || 0,
        };
        Engine::new(config, Settings::default(), Box::new(|| {})).expect("eventfds")
    }

    fn frame(number: u64, key: &[u8]) -> RawFrame {
        let head = EntryHead { key, expire_at: None, origin: Origin::Given, skipped: false };
        let mut bytes = Vec::new();
        begin(&mut bytes, ENTRIES, 0);
        put_entry(&mut bytes, &head, b"value");
        seal(&mut bytes);
        RawFrame { number, bytes, value: None }
    }

    #[test]
    fn a_thread_that_gives_its_batch_up_ends_the_load() {
        let staging = Arc::new(Staging::new(engine().shards()));
        let intake = Arc::new(Intake::new(&staging, 1, usize::MAX, 1));
        let mut inserter = Inserter::new(&intake);
        assert!(matches!(intake.offer(frame(2, b"key")), Offered::Taken));
        assert!(matches!(inserter.refill(), Refill::Batch) && inserter.step());
        drop(inserter);
        assert!(matches!(intake.offer(frame(3, b"key")), Offered::Failed));
        assert_eq!(intake.end(), Err(Fault::Internal.into()));
        assert!(Arc::into_inner(staging).is_some());
    }

    #[test]
    fn a_load_ends_when_the_last_batch_is_done_and_then_nobody_has_the_staging() {
        let staging = Arc::new(Staging::new(engine().shards()));
        let intake = Arc::new(Intake::new(&staging, 1, usize::MAX, 1));
        let mut inserter = Inserter::new(&intake);
        assert!(matches!(intake.offer(frame(2, b"key")), Offered::Taken));
        assert!(matches!(inserter.refill(), Refill::Batch));
        let ending = Arc::clone(&intake);
        let ended = std::thread::spawn(move || ending.end());
        while inserter.step() {}
        assert_eq!(ended.join().unwrap(), Ok(Tally { keys: 1, expiring: 0, bytes: 8 }));
        assert!(matches!(inserter.refill(), Refill::Ended));
        assert_eq!(Arc::into_inner(staging).expect("nobody else has it").keys(), 1);
    }

    #[test]
    fn of_two_errors_the_first_in_the_section_is_told() {
        let staging = Arc::new(Staging::new(engine().shards()));
        let intake = Intake::new(&staging, 1, usize::MAX, 1);
        for number in [7, 5, 9] {
            intake.fail(Fault::Checksum.at(number, None));
        }
        assert_eq!(intake.end(), Err(Fault::Checksum.at(5, None)));
    }
}
