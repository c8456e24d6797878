//! One share's way through the texts.

use std::sync::Arc;

use arrayvec::ArrayVec;

use super::queue::Queue;
use super::{Replayed, TextError};
use crate::command::record::{Record, Records, RecordsPosition};
use crate::engine::Slice;
use crate::limits::AHEAD;

/// How far a share is.
pub(super) struct Share {
    /// Its worker's number.
    number: usize,
    /// The text that it is in, and its number.
    text: Option<(u64, Arc<Vec<u8>>)>,
    cursor: ReadTo,
    /// Whether the other share waits at the next record of two shares, once this one is there.
    is_last: Option<bool>,
    /// A thread goes on with it; still set after a panic.
    is_running: bool,
}

/// How far a share has read a text.
#[derive(Clone, Copy, Default)]
struct ReadTo {
    /// `None` before its version.
    at: Option<RecordsPosition>,
    /// The database there.
    db: u32,
    /// Records of two shares before this place, in all texts.
    met: u64,
}

impl ReadTo {
    fn offset(self) -> usize {
        self.at.map_or(0, RecordsPosition::offset)
    }
}

/// Records that are replayed together, and the place before each.
#[derive(Default)]
struct RecordBatch<'a> {
    records: ArrayVec<Replayed<'a>, AHEAD>,
    places: ArrayVec<ReadTo, AHEAD>,
}

impl Share {
    pub(super) fn new(number: usize) -> Self {
        let cursor = ReadTo::default();
        Share { number, text: None, cursor, is_last: None, is_running: false }
    }

    /// Goes on, through at most so many texts, until the slice is over. False if it got no further:
    /// no text, a busy token, or another share that is not as far.
    pub(super) fn go_on(&mut self, queue: &Queue, slice: &Slice<'_>, texts: usize) -> bool {
        if std::mem::replace(&mut self.is_running, true) {
            queue.fail(0, TextError::Internal);
        }
        let mut any = false;
        for _ in 0..texts {
            if self.text.is_none() {
                self.text = queue.text(self.number);
            }
            let Some((number, text)) = self.text.clone() else { break };
            let is_through = self.read(&text, queue, slice, &mut any).unwrap_or_else(|error| {
                queue.fail(number, error);
                false
            });
            if !is_through {
                break;
            }
            self.text = None;
            self.cursor.at = None;
            queue.done(self.number);
            any = true;
        }
        self.is_running = false;
        any
    }

    /// Replays its records of a text. True if it is through.
    fn read(
        &mut self,
        text: &[u8],
        queue: &Queue,
        slice: &Slice<'_>,
        any: &mut bool,
    ) -> Result<bool, TextError> {
        loop {
            let batch = self.gather(text, slice)?;
            let Some(&first) = batch.places.first() else { return Ok(true) };
            let done = match &batch.records[..] {
                [record] if self.is_of_two_shares(record, slice) => {
                    self.meet(record, first, queue, slice)?
                }
                records => replay(records, &batch.places, slice)?,
            };
            *any |= done > 0;
            if let Some(&next) = batch.places.get(done) {
                self.cursor = next;
                return Ok(false);
            }
            if slice.spent() {
                return Ok(false);
            }
        }
    }

    fn is_of_two_shares(&self, record: &Replayed<'_>, slice: &Slice<'_>) -> bool {
        slice.engine.shards().owner(record.shard())
            != slice.engine.shards().owner(record.other_shard())
    }

    /// Reads on until it has a batch of its own records, or is at the end of the text. A record of
    /// two keys is a batch by itself. The cursor is then behind the batch.
    fn gather<'t>(
        &mut self,
        text: &'t [u8],
        slice: &Slice<'_>,
    ) -> Result<RecordBatch<'t>, TextError> {
        let engine = slice.engine;
        let mut records = match self.cursor.at {
            Some(at) => Records::go_on(text, at),
            None => Records::new(text)?,
        };
        let mut batch = RecordBatch::default();
        while !batch.records.is_full() {
            let place = ReadTo { at: Some(records.position()), ..self.cursor };
            let Some(record) = records.next() else { break };
            let record = record?;
            if let Record::Select { db } = record {
                self.cursor.db = db;
            }
            let replayed = engine
                .to_replay(self.cursor.db, record)
                .map_err(|error| TextError::Replay { error, offset: place.offset() })?;
            if let Some(replayed) = replayed {
                let owners = [replayed.shard(), replayed.other_shard()]
                    .map(|shard| engine.shards().owner(shard));
                if owners.contains(&self.number) {
                    if replayed.is_of_two() && !batch.records.is_empty() {
                        self.cursor.at = place.at;
                        return Ok(batch);
                    }
                    engine.shards().prefetch(replayed.shard());
                    batch.records.push(replayed);
                    batch.places.push(place);
                }
                self.cursor.met += u64::from(owners[0] != owners[1]);
                if replayed.is_of_two() && !batch.records.is_empty() {
                    break;
                }
            }
        }
        self.cursor.at = Some(records.position());
        Ok(batch)
    }

    /// Replays a record of two shares, if this one is the last to get there. Returns how many
    /// records are done.
    fn meet(
        &mut self,
        record: &Replayed<'_>,
        place: ReadTo,
        queue: &Queue,
        slice: &Slice<'_>,
    ) -> Result<usize, TextError> {
        let number = place.met;
        if *self.is_last.get_or_insert_with(|| queue.meet(number)) {
            if replay(&[*record], &[place], slice)? == 0 {
                return Ok(0);
            }
            queue.met(number);
            // The other share's worker may nap.
            slice.engine.context().wake_ports();
        } else if queue.must_wait(number) {
            return Ok(0);
        }
        self.is_last = None;
        Ok(1)
    }
}

/// Replays records; returns how many, up to the first one with a busy token.
fn replay(
    records: &[Replayed<'_>],
    places: &[ReadTo],
    slice: &Slice<'_>,
) -> Result<usize, TextError> {
    match slice.engine.replay(slice.slot, records, slice.taking()) {
        (done, None) => Ok(done),
        (done, Some(error)) => {
            let offset = places.get(done).map_or(0, |place| place.offset());
            Err(TextError::Replay { error, offset })
        }
    }
}
