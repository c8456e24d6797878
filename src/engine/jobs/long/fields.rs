//! HGETALL, HKEYS and HVALS of a hash that has many fields: they are read a few at a time, all as
//! they were when the job began (see [`FieldsPin`]), and then the reply is made.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::chunks::KeyChunks;
use crate::command::{Error, FieldParts, Reply};
use crate::engine::call::KeptCall;
use crate::engine::{Call, Engine, Part, Progress, Slice, Work};
use crate::store::{Edit, FieldRef, FieldsPin, KeptTooMuch, Now};

/// These parts of all fields of the call's key.
pub(super) fn work(engine: &Engine, call: &Call<'_>, parts: FieldParts) -> Work {
    let found = Arc::new(Mutex::new(KeyChunks::default()));
    let part = FieldsPart {
        call: KeptCall::of(call, usize::MAX),
        parts,
        stage: ReadStage::Begin,
        chunks: KeyChunks::default(),
        found: Arc::clone(&found),
    };
    let say = move |reply: &mut dyn Reply, slice: &Slice<'_>| {
        let begin = |reply: &mut dyn Reply, elements| parts.begin(reply, elements / parts.count());
        found.lock().say(reply, Some(slice), begin)
    };
    // The total is set once the key has been found.
    Work::on_one_worker(engine.shards().owner_of(call.first_key()), say, 0, part)
}

struct FieldsPart {
    call: KeptCall,
    parts: FieldParts,
    stage: ReadStage,
    /// What it has read.
    chunks: KeyChunks,
    found: Arc<Mutex<KeyChunks>>,
}

enum ReadStage {
    /// The key has not been looked up.
    Begin,
    /// It reads the fields as they are seen at that time.
    Read(Box<FieldsPin>, Now),
    End,
}

/// The shard was busy.
struct Busy;

impl Part for FieldsPart {
    fn slice(&mut self, slice: &Slice<'_>) -> Progress {
        let mut progress = Progress::Blocked;
        while self.step(slice).is_ok() {
            if matches!(self.stage, ReadStage::End) {
                *self.found.lock() = std::mem::take(&mut self.chunks);
                return Progress::Done;
            }
            progress = Progress::More;
            if slice.spent() {
                break;
            }
        }
        progress
    }
}

impl FieldsPart {
    fn step(&mut self, slice: &Slice<'_>) -> Result<(), Busy> {
        match &mut self.stage {
            ReadStage::Begin => self.stage = self.begin(slice)?,
            ReadStage::Read(pin, now) => {
                let (parts, chunks) = (self.parts, &mut self.chunks);
                let mut visit = |field: FieldRef<'_>| add(field, now, parts, chunks);
                if pin.needs_shard() {
                    let kept = read_some(pin, slice, &mut visit)?;
                    let has_room = |kept| chunks.least_bytes() + kept <= slice.most_reply();
                    if !kept.is_ok_and(has_room) {
                        slice.refuse(Error::ReplyTooLarge);
                        self.stage = ReadStage::End;
                    }
                } else if !pin.visit_changed(&mut visit) {
                    self.stage = ReadStage::End;
                }
            }
            ReadStage::End => {}
        }
        Ok(())
    }

    /// Looks the key up: its fields are read as they are at this moment.
    fn begin(&mut self, slice: &Slice<'_>) -> Result<ReadStage, Busy> {
        let (engine, key) = (slice.engine, self.call.args.get(1));
        let (shard, db) = (engine.shards().of_key(key), self.call.db);
        let mut held = engine.shards().take(shard, slice.taking()).ok_or(Busy)?;
        // Read while the shard is held.
        let (now, parts, chunks) = (slice.now(), self.parts, &mut self.chunks);
        let stage = engine.ledger.look(slice.slot, &mut held, db, key, &now, |edit| {
            slice.slot.looked_up(edit.is_there());
            begin_with(edit, slice, &mut |field| add(field, edit.now(), parts, chunks))
        });
        slice.release(shard, held);
        Ok(stage.unwrap_or(ReadStage::End))
    }
}

/// Adds the parts of a field, if its client sees it.
#[inline]
fn add(field: FieldRef<'_>, now: &Now, parts: FieldParts, chunks: &mut KeyChunks) {
    if field.is_live(now) {
        parts.of(field, |part| chunks.push(part));
    }
}

/// Pins the fields. Few are visited at once.
fn begin_with(
    edit: &Edit<'_>,
    slice: &Slice<'_>,
    visit: &mut dyn FnMut(FieldRef<'_>),
) -> ReadStage {
    match (edit.fields(), edit.pin_fields(slice.most_reply())) {
        (Err(error), _) => slice.refuse(error.into()),
        (Ok(Some(fields)), Some(pin)) => {
            if let Some(job) = slice.job {
                job.total.store(fields.len() as u64, Ordering::Relaxed);
            }
            return ReadStage::Read(Box::new(pin), edit.now().clone());
        }
        (Ok(fields), _) => fields.iter().for_each(|fields| fields.iter().for_each(&mut *visit)),
    }
    ReadStage::End
}

/// Visits some fields that have not changed, as many as the slice allows. Returns how many bytes
/// the pin keeps of the others, if it can go on.
fn read_some(
    pin: &mut FieldsPin,
    slice: &Slice<'_>,
    visit: &mut dyn FnMut(FieldRef<'_>),
) -> Result<Result<usize, KeptTooMuch>, Busy> {
    let shards = slice.engine.shards();
    let mut kept = Ok(0);
    let Some(home) = pin.home() else { return Ok(kept) };
    let shard = shards.of(home);
    let held = slice.take(shard).ok_or(Busy)?;
    // The key may have been renamed before the shard was held.
    while pin.home() == Some(home) && pin.needs_shard() {
        let mut count = 0;
        kept = pin.visit_some(&held, &mut |field| {
            count += 1;
            visit(field);
        });
        slice.advance(count);
        if kept.is_err() || slice.spent() {
            break;
        }
    }
    // The reply waits for what had happened at its moment. What happened since does not concern it.
    shards.let_go(shard, held);
    Ok(kept)
}
