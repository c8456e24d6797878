//! Puts the keys of frames into their shards.

use std::sync::Arc;

use super::error::{Fault, LoadError};
use super::format::{self, Body, Content, EntryHead, Tally};
use super::intake::{Intake, RawFrame};
use super::numbers::ENTRIES;
use crate::engine::{Part, Progress, Slice, StagedKey, StagedShard, Staging};
use crate::limits::LOAD_KEYS_AT_ONCE;
use crate::store::{FieldRef, KeyHash, SharedValue, Value, prefetch};

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
        let has_batch = self.refill().is_ok();
        while has_batch && self.step() {}
        has_batch
    }

    fn refill(&mut self) -> Result<(), Progress> {
        self.staging = Some(self.intake.take(&mut self.frames)?);
        Ok(())
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
            staging.sort(&mut self.planned, &mut self.sorted, |entry| entry.hash);
            return Ok(true);
        }
        if self.done < self.sorted.len() {
            self.insert_some(&staging)?;
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
                    if head.content != Content::Unknown {
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
                match head.content {
                    Content::String => insert_large(staging, db, &head, value)?,
                    Content::Unknown => {}
                    // Hashes are never written so.
                    other => return Err(Fault::UnknownType(other.number())),
                }
                db
            }
            (_, None) => 0,
        };
        self.databases.push(db);
        Ok(())
    }

    /// Puts some entries of the next shard into it.
    fn insert_some(&mut self, staging: &Staging) -> Result<(), LoadError> {
        let rest = &self.sorted[self.done..];
        let shard = staging.shard_of(rest[0].hash);
        let same = |entry: &&PlannedEntry| staging.shard_of(entry.hash) == shard;
        let count = rest.iter().take(LOAD_KEYS_AT_ONCE).take_while(same).count();
        if let Some(next) = rest.get(count) {
            staging.prefetch(staging.shard_of(next.hash));
        }
        // The entries that come next, probably.
        for entry in rest.iter().skip(count).take(count) {
            prefetch_entry(&self.frames[entry.frame as usize].bytes, entry.left);
        }
        let mut held = staging.lock(shard);
        for entry in &rest[..count] {
            held.prefetch(self.databases[entry.frame as usize], entry.hash);
        }
        for entry in &rest[..count] {
            let (db, frame) =
                (self.databases[entry.frame as usize], &self.frames[entry.frame as usize]);
            let keep_bytes = self.intake.keep_bytes;
            let inserted = entry_at(&frame.bytes, entry.left).and_then(|(head, value)| {
                let is_new = match head.content {
                    Content::String => Value::lend(value.into(), keep_bytes, |value| {
                        held.insert(db, entry.hash, &staged(&head, value))
                    }),
                    _ => insert_fields(&mut held, (db, entry.hash), &head, value, keep_bytes)?,
                };
                if is_new { Ok(()) } else { Err(Fault::duplicate(db, shard, head.key)) }
            });
            inserted.map_err(|fault| frame.error(fault))?;
        }
        self.done += count;
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

/// Prefetches the lines of a short entry: one of 80 bytes often begins late in the first of them.
fn prefetch_entry(frame: &[u8], left: u32) {
    let place = Body::rest(frame, left as usize).start();
    for line in 0..3 {
        prefetch(place.wrapping_add(line * 64));
    }
}

/// Adds a hash, or some of its fields. False if the hash, or one of the fields, is there.
fn insert_fields(
    held: &mut StagedShard<'_>,
    (db, hash): (u32, KeyHash),
    head: &EntryHead<'_>,
    fields: &[u8],
    keep_bytes: usize,
) -> Result<bool, Fault> {
    let mut is_new = !fields.is_empty();
    let is_whole = head.content == Content::Hash;
    held.insert_with(db, hash, head.key, |edit| {
        if is_whole && edit.is_there() {
            return Ok(false);
        }
        for field in format::fields_of_hash(fields) {
            let FieldRef { name, value, expire_at } = field?;
            let set = Value::lend(value.into(), keep_bytes, |value| {
                edit.set_field(name, value, expire_at)
            });
            is_new &= set == Ok(true);
        }
        if edit.expiry() != head.expire_at {
            edit.expire_at(head.expire_at);
        }
        Ok(is_new)
    })
}

fn staged<'a>(head: &EntryHead<'a>, value: Value<'a>) -> StagedKey<'a> {
    StagedKey { key: head.key, value, expire_at: head.expire_at, traits: head.traits }
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
    let is_new = staging.lock(shard).insert(db, hash, &new);
    if is_new { Ok(()) } else { Err(Fault::duplicate(db, shard, head.key)) }
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
            if self.staging.is_none()
                && let Err(progress) = self.refill()
            {
                return progress;
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
    use super::super::intake::Offered;
    use super::*;
    use crate::command::Cluster;
    use crate::engine::{Config, Engine, Settings};
    use crate::store::Traits;

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
        let content = Content::String;
        let head = EntryHead { key, expire_at: None, traits: Traits::default(), content };
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
        assert!(inserter.refill().is_ok() && inserter.step());
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
        assert!(inserter.refill().is_ok());
        let ending = Arc::clone(&intake);
        let ended = std::thread::spawn(move || ending.end());
        while inserter.step() {}
        assert_eq!(ended.join().unwrap(), Ok(Tally { keys: 1, expiring: 0, bytes: 8 }));
        assert!(matches!(inserter.refill(), Err(Progress::Done)));
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
