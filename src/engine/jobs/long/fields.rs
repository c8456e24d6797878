//! Reading all fields of a hash that has many: a few at a time, all as they were at one moment (see
//! [`FieldsPin`]). A [`FieldSink`] takes them, and makes the reply of a command from them.

use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use crate::command::{Error, Limits, Reply};
use crate::engine::{Call, Engine, Part, Progress, Slice, Work};
use crate::store::{
    Edit, EntryRef, FieldRef, Fields, FieldsPin, KeptTooMuch, Now, UnixMs, WrongType,
};

/// What becomes of the fields.
pub trait FieldSink {
    /// Whether to add one takes so long that only few are added while the shard is held.
    const IS_SLOW: bool;

    /// The key has these fields, which are added next.
    fn begin(&mut self, fields: Fields<'_>, limits: &Limits);

    /// The key has a value of another type by now.
    ///
    /// # Errors
    /// [`WrongType`] if the sink has no use for it.
    fn other(&mut self, entry: EntryRef<'_>) -> Result<(), WrongType>;

    /// Adds a field of that moment. Its expiry may have passed by then.
    fn add(&mut self, field: FieldRef<'_>, now: &Now);

    /// Gets memory for the next fields: while the shard is held there is no time to move what has
    /// been added.
    fn make_room(&mut self) {}

    /// The least size of the reply so far, in bytes.
    fn least_bytes(&self) -> usize;

    /// Goes on with the reply once all fields were added, as far as the slice allows. True when it
    /// is complete.
    fn say(&mut self, reply: &mut dyn Reply, slice: &Slice<'_>) -> bool;
}

/// Work that reads all fields of the call's key into a sink, which makes the reply.
pub(super) fn work(
    engine: &Engine,
    call: &Call<'_>,
    sink: impl FieldSink + Send + 'static,
) -> Work {
    let (worker, found) = (engine.shards().owner_of(call.first_key()), Arc::new(Mutex::new(None)));
    let part = FieldsPart {
        reader: FieldsReader::new(call.db, call.first_key()),
        sink: Some(sink),
        found: Arc::clone(&found),
    };
    let say = move |reply: &mut dyn Reply, slice: &Slice<'_>| match &mut *found.lock() {
        Some(sink) => sink.say(reply, slice),
        None => true,
    };
    // The total is set once the key has been found.
    Work::on_one_worker(worker, say, 0, part)
}

struct FieldsPart<S> {
    reader: FieldsReader,
    /// Until it goes to `found`.
    sink: Option<S>,
    found: Arc<Mutex<Option<S>>>,
}

impl<S: FieldSink + Send> Part for FieldsPart<S> {
    fn slice(&mut self, slice: &Slice<'_>) -> Progress {
        let Some(sink) = &mut self.sink else { return Progress::Done };
        let progress = self.reader.read(slice, sink);
        if let Some(is_there) = self.reader.is_there.take() {
            slice.slot.looked_up(is_there);
        }
        if let Some(job) = slice.job {
            job.total.store(self.reader.total, Ordering::Relaxed);
        }
        slice.advance(take(&mut self.reader.visited));
        match progress {
            Ok(Progress::Done) => *self.found.lock() = self.sink.take(),
            Ok(progress) => return progress,
            Err(error) => slice.refuse(error),
        }
        Progress::Done
    }
}

/// Reads all fields of a key's hash into a [`FieldSink`].
pub struct FieldsReader {
    db: u32,
    key: Box<[u8]>,
    /// Whether a client gets the reply: then it may be too large.
    is_for_client: bool,
    stage: ReadStage,
    /// Whether there is such a key, once that has been looked up.
    is_there: Option<bool>,
    /// When it expires.
    expire_at: Option<UnixMs>,
    /// How many fields it has.
    total: u64,
    /// How many fields have been visited since somebody asked.
    visited: u64,
}

enum ReadStage {
    /// The key has not been looked up.
    Begin,
    /// It reads the fields as they are seen at that time.
    Read(Box<FieldsPin>, Now),
    End,
}

/// Why it does not go on.
enum ReadStop {
    /// The shard is busy.
    Busy,
    /// For good.
    Refused(Error),
}

impl FieldsReader {
    /// Of this key, for a reply to a client.
    pub fn new(db: u32, key: &[u8]) -> Self {
        let (key, stage, is_for_client) = (key.into(), ReadStage::Begin, true);
        let (is_there, expire_at, total, visited) = (None, None, 0, 0);
        FieldsReader { db, key, is_for_client, stage, is_there, expire_at, total, visited }
    }

    /// Of this key, whose fields no client gets.
    pub fn for_nobody(db: u32, key: &[u8]) -> Self {
        FieldsReader { is_for_client: false, ..FieldsReader::new(db, key) }
    }

    /// The most bytes of the reply and of what has changed since the first field was read.
    fn most(&self, slice: &Slice<'_>) -> usize {
        if self.is_for_client { slice.most_reply() } else { usize::MAX }
    }

    /// When the key was to expire at the moment of its fields.
    pub fn expire_at(&self) -> Option<UnixMs> {
        self.expire_at
    }

    /// Goes on reading, as far as the slice allows. A key that is not there has no fields.
    ///
    /// # Errors
    /// The sink has no use for the key's value, or the reply would be too large: it and the fields
    /// that have changed since the first of them was read.
    pub fn read(
        &mut self,
        slice: &Slice<'_>,
        sink: &mut impl FieldSink,
    ) -> Result<Progress, Error> {
        let mut progress = Progress::Blocked;
        loop {
            match self.step(slice, sink) {
                Err(ReadStop::Busy) => return Ok(progress),
                Err(ReadStop::Refused(error)) => return Err(error),
                Ok(()) if matches!(self.stage, ReadStage::End) => return Ok(Progress::Done),
                Ok(()) => progress = Progress::More,
            }
            if slice.spent() {
                return Ok(progress);
            }
        }
    }

    fn step<S: FieldSink>(&mut self, slice: &Slice<'_>, sink: &mut S) -> Result<(), ReadStop> {
        let most = self.most(slice);
        match &mut self.stage {
            ReadStage::Begin => self.stage = self.begin(slice, sink)?,
            ReadStage::Read(pin, now) if pin.needs_shard() => {
                sink.make_room();
                let kept = read_some(pin, slice, S::IS_SLOW, &mut |field| {
                    self.visited += 1;
                    sink.add(field, now);
                })?;
                if sink.least_bytes().saturating_add(kept) > most {
                    return Err(ReadStop::Refused(Error::ReplyTooLarge));
                }
            }
            ReadStage::Read(pin, now) => {
                if !pin.visit_changed(S::IS_SLOW, &mut |field| sink.add(field, now)) {
                    self.stage = ReadStage::End;
                }
            }
            ReadStage::End => {}
        }
        Ok(())
    }

    /// Looks the key up: its fields are read as they are at this moment.
    fn begin(
        &mut self,
        slice: &Slice<'_>,
        sink: &mut impl FieldSink,
    ) -> Result<ReadStage, ReadStop> {
        let (engine, limits) = (slice.engine, slice.engine.settings().limits(usize::MAX));
        let shard = engine.shards().of_key(&self.key);
        let mut held = engine.shards().take(shard, slice.taking()).ok_or(ReadStop::Busy)?;
        // Read while the shard is held.
        let now = slice.now();
        let (mut is_there, mut expire_at, mut total) = (false, None, 0);
        let stage = engine.ledger.look(slice.slot, &mut held, self.db, &self.key, &now, |edit| {
            is_there = edit.is_there();
            expire_at = edit.read().and_then(|entry| entry.expire_at());
            total = edit.fields().ok().flatten().map_or(0, Fields::len);
            begin_with(edit, self.most(slice), &limits, sink)
        });
        slice.release(shard, held);
        (self.is_there, self.expire_at, self.total) = (Some(is_there), expire_at, total as u64);
        stage.unwrap_or(Ok(ReadStage::End)).map_err(ReadStop::Refused)
    }
}

/// Pins the fields. Few are visited at once.
fn begin_with(
    edit: &Edit<'_>,
    most: usize,
    limits: &Limits,
    sink: &mut impl FieldSink,
) -> Result<ReadStage, Error> {
    let Some(entry) = edit.read() else { return Ok(ReadStage::End) };
    let Ok(Some(fields)) = edit.fields() else {
        sink.other(entry)?;
        return Ok(ReadStage::End);
    };
    sink.begin(fields, limits);
    if let Some(pin) = edit.pin_fields(most) {
        return Ok(ReadStage::Read(Box::new(pin), edit.now().clone()));
    }
    fields.iter().for_each(|field| sink.add(field, edit.now()));
    Ok(ReadStage::End)
}

/// Visits some fields that have not changed, as many as the slice allows. Returns how many bytes
/// the pin keeps of the others.
fn read_some(
    pin: &mut FieldsPin,
    slice: &Slice<'_>,
    few: bool,
    visit: &mut dyn FnMut(FieldRef<'_>),
) -> Result<usize, ReadStop> {
    let shards = slice.engine.shards();
    let mut kept = Ok(0);
    let Some(home) = pin.home() else { return Ok(0) };
    let shard = shards.of(home);
    let held = slice.take(shard).ok_or(ReadStop::Busy)?;
    // The key may have been renamed before the shard was held.
    while pin.home() == Some(home) && pin.needs_shard() {
        kept = pin.visit_some(&held, few, visit);
        if kept.is_err() || slice.spent() {
            break;
        }
    }
    // The reply waits for what had happened at its moment. What happened since does not concern it.
    shards.let_go(shard, held);
    kept.map_err(|KeptTooMuch| ReadStop::Refused(Error::ReplyTooLarge))
}
