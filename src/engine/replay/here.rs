//! Replaying a text on the thread that holds the global lock, while others read.

use arrayvec::ArrayVec;
use memchr::memmem;

use super::{ReplayError, Replayed, TextError};
use crate::command::record::{PART_VERSION, Record, Records, version_of};
use crate::engine::{Engine, Taking};
use crate::limits::AHEAD;
use crate::sync::Locked;

/// Replays a text on this thread. The records of a group are seen all at once. A part of a longer
/// text is kept until the last one comes.
///
/// # Errors
/// The text cannot be replayed; a part of it may have been.
pub fn replay_here(engine: &Engine, locked: Locked<'_>, text: &[u8]) -> Result<(), TextError> {
    let whole = engine.ledger.log.gathered.lock().add(text)?;
    whole.map_or(Ok(()), |text| replay_whole(engine, locked, &text))
}

fn replay_whole(engine: &Engine, locked: Locked<'_>, text: &[u8]) -> Result<(), TextError> {
    let mut here = Here {
        engine,
        locked,
        text_bytes: text.len(),
        db: 0,
        records: ArrayVec::new(),
        offsets: ArrayVec::new(),
    };
    here.all(&mut Records::new(text)?)
}

/// A text that is being replayed.
struct Here<'e, 't> {
    engine: &'e Engine,
    locked: Locked<'e>,
    text_bytes: usize,
    /// The database of the next record.
    db: u32,
    /// Records that will be replayed together, so that what the later ones need is fetched from
    /// memory while the first ones run; and where they begin in the text.
    records: ArrayVec<Replayed<'t>, AHEAD>,
    offsets: ArrayVec<usize, AHEAD>,
}

impl<'t> Here<'_, 't> {
    fn all(&mut self, records: &mut Records<'t>) -> Result<(), TextError> {
        loop {
            let offset = Records::position(records).offset();
            let Some(record) = records.next() else { return self.replay_gathered() };
            let record = record?;
            if record == Record::Multi {
                self.replay_gathered()?;
                self.group(records)?;
                continue;
            }
            let is_last = Records::position(records).offset() == self.text_bytes;
            if is_last {
                self.replay_gathered()?;
                let done = self.engine.replay_of_all(self.locked, self.db, record);
                if done.map_err(at(offset))? {
                    return Ok(());
                }
            }
            self.add(record, offset)?;
        }
    }

    /// The records up to EXEC. A unit keeps the tokens that it takes until it ends.
    fn group(&mut self, records: &mut Records<'t>) -> Result<(), TextError> {
        let (engine, locked) = (self.engine, self.locked);
        engine.shards().as_one(locked, || self.until_exec(records))
    }

    fn until_exec(&mut self, records: &mut Records<'t>) -> Result<(), TextError> {
        loop {
            let offset = Records::position(records).offset();
            match records.next().transpose()? {
                None | Some(Record::Exec) => return self.replay_gathered(),
                Some(record) => self.add(record, offset)?,
            }
        }
    }

    /// Replays a record, at once or together with those behind it.
    fn add(&mut self, record: Record<'t>, offset: usize) -> Result<(), TextError> {
        let Record::BitOp { args } = record else { return self.gather(record, offset) };
        self.replay_gathered()?;
        self.engine.replay_bit_op(self.locked, self.db, args).map_err(at(offset))
    }

    /// Adds a record to those that will be replayed together.
    fn gather(&mut self, record: Record<'t>, offset: usize) -> Result<(), TextError> {
        let replayed = self.engine.to_replay(self.db, record).map_err(at(offset))?;
        if let Record::Select { db } = record {
            self.db = db;
        }
        let Some(replayed) = replayed else { return Ok(()) };
        let is_alone = replayed.is_of_two();
        if is_alone || self.records.is_full() {
            self.replay_gathered()?;
        }
        self.engine.shards().prefetch(replayed.shard());
        self.records.push(replayed);
        self.offsets.push(offset);
        if is_alone { self.replay_gathered() } else { Ok(()) }
    }

    fn replay_gathered(&mut self) -> Result<(), TextError> {
        if self.records.is_empty() {
            return Ok(());
        }
        let (done, error) = self.engine.replay(
            self.engine.main_slot(self.locked),
            &self.records,
            Taking::Wait(self.locked),
        );
        let offset = self.offsets.get(done).copied().unwrap_or(self.text_bytes);
        self.records.clear();
        self.offsets.clear();
        error.map_or(Ok(()), |error| Err(at(offset)(error)))
    }
}

fn at(offset: usize) -> impl Fn(ReplayError) -> TextError {
    move |error| TextError::Replay { error, offset }
}

/// Whether only [`replay_here`] can replay a text: its last record may be about all keys, or one
/// may be about any number of keys, or it is a part.
pub fn is_for_here(text: &[u8]) -> bool {
    match version_of(text) {
        Some(1) => may_be_of_all(text),
        None | Some(PART_VERSION) => true,
        Some(_) => may_be_of_all(text) || memmem::find(text, b"\r\nBITOP\r\n").is_some(),
    }
}

fn may_be_of_all(text: &[u8]) -> bool {
    /// The last record has at most this many bytes then.
    const BYTES: usize = 64;
    let end = &text[text.len().saturating_sub(BYTES)..];
    let has = |name: &[u8]| end.windows(name.len()).any(|part| part == name);
    has(b"\r\nFLUSHDB\r\n") || has(b"\r\nFLUSHALL\r\n") || has(b"\r\nSWAPDB\r\n")
}
