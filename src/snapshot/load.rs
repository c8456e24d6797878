//! Reading a snapshot: the thread that reads leaves the frames to the workers, and does a part of
//! their work itself when it is faster than they are.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::error::{Fault, LoadError};
use super::format::{self, Body, Header, Tally};
use super::inserter::Inserter;
use super::intake::{Intake, Offered, RawFrame};
use super::numbers::{BEGUN_TEXT, END, ENTRIES, HEADER, LARGE_ENTRY, VERSION};
use crate::engine::{Engine, Staging, Work, without_reply};
use crate::sync::Locked;

/// Where a snapshot's strings come from: the module's section of the host's RDB.
pub trait Source {
    /// The next string. `None` if the file ends here, or cannot be read.
    fn next(&mut self) -> Option<Vec<u8>>;

    /// Whether nothing is left after the end frame, as far as the source can tell. The host itself
    /// looks for its mark there; to ask it for one more string would be an error.
    fn is_at_end(&mut self) -> bool {
        true
    }
}

/// What has been loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadStats {
    /// Frames that were read.
    pub frames: u64,
    /// Keys in their shards, and those of unknown types that were skipped.
    pub keys: u64,
    /// Those with an expiry.
    pub expiring: u64,
    /// Bytes of all these keys and their values.
    pub bytes: u64,
    /// How many keys there will be, as the header says.
    pub expected_keys: u64,
    /// The writer was a replica whose master may have changed keys without its knowledge.
    pub distrusted: bool,
}

/// Reads a section of that version into `staging`, on all workers. Returns when every key is in its
/// shard; then nobody has the staging but the caller. The reader takes no lock while it waits for
/// `source`. After each frame, `progress` gets what has been loaded so far.
///
/// If the workers do not run, or have other things to do, the caller's thread does all the work.
///
/// # Errors
/// What is wrong with the section. The staging then has some of the keys, and is of no use.
pub fn load(
    engine: &Engine,
    _: Locked<'_>,
    version: i32,
    staging: &Arc<Staging>,
    source: &mut dyn Source,
    progress: &mut dyn FnMut(LoadStats),
) -> Result<LoadStats, LoadError> {
    if !(1..=VERSION).contains(&version) {
        return Err(Fault::Version(version).into());
    }
    let mut reader = Reader { source, frames: 0 };
    let header = reader.header(engine.config().databases)?;
    let keep_bytes = engine.settings().keep_bytes.load(Ordering::Relaxed);
    let workers = engine.config().workers;
    // The header's databases are no more than there are.
    let databases = header.databases as u32;
    let intake = Arc::new(Intake::new(staging, databases, keep_bytes, workers));
    let closing = EndOnDrop(&intake);
    engine.jobs.start_own(engine.context(), "load", work(engine, &intake, header.keys));
    let mut own = Inserter::new(&intake);
    let read = reader.frames(&header, staging, &intake, &mut own, |frames, tally| {
        progress(stats(frames, tally, &header));
    });
    match &read {
        Ok(_) => while own.run_batch() {},
        Err(error) => intake.fail(error.clone()),
    }
    drop(closing);
    let found = intake.end()?;
    let end = read?;
    end.check(reader.frames - 1, found)?;
    if !reader.source.is_at_end() {
        return Err(Fault::AfterEnd.at(reader.frames + 1, None));
    }
    let stats = stats(reader.frames, found, &header);
    progress(stats);
    Ok(stats)
}

fn stats(frames: u64, tally: Tally, header: &Header) -> LoadStats {
    let Tally { keys, expiring, bytes } = tally;
    let &Header { keys: expected_keys, distrusted, .. } = header;
    LoadStats { frames, keys, expiring, bytes, expected_keys, distrusted }
}

/// The workers' part.
fn work(engine: &Engine, intake: &Arc<Intake>, total: u64) -> Work {
    Work::on_every_worker(engine, Arc::new(without_reply), total, |_| Inserter::new(intake))
}

/// Ends the workers' part, also if the source panics.
struct EndOnDrop<'a>(&'a Intake);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        let _ = self.0.end();
    }
}

/// The number of the first frame that can have keys: only the header is before it.
const FIRST_WITH_KEYS: u64 = 2;

struct Reader<'a> {
    source: &'a mut dyn Source,
    /// How many frames have been read.
    frames: u64,
}

/// The end frame.
struct EndFrame {
    number: u64,
    /// What it says: frames before it, and what they have.
    frames: u64,
    tally: Tally,
}

impl EndFrame {
    fn check(&self, frames: u64, found: Tally) -> Result<(), LoadError> {
        let counts = [
            ("frames before this one", self.frames, frames),
            ("keys", self.tally.keys, found.keys),
            ("keys with an expiry", self.tally.expiring, found.expiring),
            ("bytes of keys and values", self.tally.bytes, found.bytes),
        ];
        match counts.into_iter().find(|(_, said, found)| said != found) {
            Some((what, said, found)) => {
                Err(Fault::Count { what, said, found }.at(self.number, Some(END)))
            }
            None => Ok(()),
        }
    }
}

impl Reader<'_> {
    /// The next string as a frame, of which only the kind has been looked at. If it is a large
    /// entry, with its value.
    fn frame(&mut self) -> Result<RawFrame, LoadError> {
        self.frames += 1;
        let number = self.frames;
        let bytes = self.source.next().ok_or_else(|| Fault::Ends.at(number, None))?;
        let mut frame = RawFrame { number, bytes, value: None };
        if frame.kind() == Some(LARGE_ENTRY) {
            let value = self.source.next();
            frame.value = Some(value.ok_or_else(|| frame.error(Fault::Ends))?);
        }
        Ok(frame)
    }

    fn header(&mut self, there: u32) -> Result<Header, LoadError> {
        let frame = self.frame()?;
        let read = || {
            let (kind, body) = format::open(&frame.bytes)?;
            if kind != HEADER {
                return Err(Fault::NoHeader);
            }
            let header = format::read_header(body)?;
            if header.databases > there.into() {
                return Err(Fault::TooManyDatabases { needed: header.databases, there });
            }
            Ok(header)
        };
        read().map_err(|fault| frame.error(fault))
    }

    /// Reads all frames to the end, and leaves them to the intake.
    fn frames(
        &mut self,
        header: &Header,
        staging: &Staging,
        intake: &Intake,
        own: &mut Inserter,
        mut progress: impl FnMut(u64, Tally),
    ) -> Result<EndFrame, LoadError> {
        loop {
            let frame = self.frame()?;
            let fault = |fault: Fault| frame.error(fault);
            match frame.kind() {
                None => return Err(fault(Fault::Short)),
                Some(END) => return read_end(&frame).map_err(fault),
                Some(HEADER) => {
                    let checked = format::open(&frame.bytes).and(Err(Fault::SecondHeader));
                    return checked.map_err(fault);
                }
                Some(ENTRIES | LARGE_ENTRY) if self.frames == FIRST_WITH_KEYS => {
                    if is_of_last_database(&frame, header) {
                        staging.expect_keys(header.keys);
                    }
                }
                Some(ENTRIES | LARGE_ENTRY) => {}
                Some(BEGUN_TEXT) => {
                    let (_, bytes) = format::open(&frame.bytes).map_err(fault)?;
                    staging.gathered.lock().extend_from_slice(bytes);
                    continue;
                }
                Some(kind) if format::may_skip(kind) => {}
                Some(kind) => {
                    let checked = format::open(&frame.bytes).and(Err(Fault::UnknownKind(kind)));
                    return checked.map_err(fault);
                }
            }
            hand_on(intake, own, frame)?;
            progress(self.frames, intake.tally());
        }
    }
}

/// Whether the keys of this frame, whose checksum nobody has looked at yet, are in the section's
/// last database. If they are the first keys of all, there is no other database.
fn is_of_last_database(frame: &RawFrame, header: &Header) -> bool {
    let body = frame.bytes.get(1..).map(Body::new);
    // The header's databases are no more than there are.
    let db = body.and_then(|mut body| body.database(header.databases as u32).ok());
    db.is_some_and(|db| u64::from(db) + 1 == header.databases)
}

fn read_end(frame: &RawFrame) -> Result<EndFrame, Fault> {
    let (_, body) = format::open(&frame.bytes)?;
    let (frames, tally) = format::read_end(body)?;
    Ok(EndFrame { number: frame.number, frames, tally })
}

/// Leaves a frame to the workers. While too much waits for them, does a part of it.
fn hand_on(intake: &Intake, own: &mut Inserter, mut frame: RawFrame) -> Result<(), LoadError> {
    loop {
        match intake.offer(frame) {
            Offered::Taken => return Ok(()),
            Offered::Failed => return intake.end().map(drop),
            Offered::Full(back) => frame = back,
        }
        own.run_batch();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_keys_tell_whether_there_is_one_database() {
        let is_only = |db, databases| {
            let mut bytes = Vec::new();
            format::begin(&mut bytes, ENTRIES, db);
            let frame = RawFrame { number: FIRST_WITH_KEYS, bytes, value: None };
            is_of_last_database(&frame, &Header { databases, distrusted: false, keys: 9 })
        };
        assert!(is_only(0, 1) && is_only(7, 8));
        assert!(!is_only(0, 2) && !is_only(8, 8) && !is_only(0, 0));
        let empty = RawFrame { number: FIRST_WITH_KEYS, bytes: Vec::new(), value: None };
        assert!(!is_of_last_database(&empty, &Header { databases: 1, distrusted: false, keys: 9 }));
    }
}
