//! MIDI.EXPORT: from midi into the host.

use std::collections::VecDeque;
use std::mem::{replace, take};
use std::time::Instant;

use midi_module_api as raw;

use super::super::api::Ctx;
use super::super::instance::instance;
use super::super::lock::LockWork;
use super::super::rights::RightsNow;
use super::job::{Asker, CopyState, Copying, start};
use super::moves::Moving;
use super::native;
use crate::command::{Dumped, Error, Transcript, payload_of_hash};
use crate::engine::{Call, Engine, FieldsReader, Gate, Intent, Progress, Slice};
use crate::limits::EXPORTED_AT_ONCE_BYTES;
use crate::store::{EntryRef, Fields, SharedValue, Type, UnixMs, WrongType};

/// How many keys EXPORT reads from the shards before it tries to take the lock.
const EXPORT_BATCH: usize = 256;
/// It reads no more keys once their copies have this many bytes. Where the client cannot wait, a
/// batch has no other end.
const EXPORT_BATCH_BYTES: usize = 1 << 20;

/// MIDI.EXPORT pattern [COUNT n] [REPLACE] [MOVE] [SLOT n]. `None` if a job will answer.
///
/// # Errors
/// Why it was refused, or ended early.
pub fn export(
    engine: &Engine,
    caller: Asker<'_>,
    call: &Call<'_>,
) -> Result<Option<Transcript>, Error> {
    let copy = CopyState::new(&caller, call)?;
    let total = engine.ledger.books.census(call.db).keys as u64;
    let export = Export { copy, shard: 0, place: 0, batch: VecDeque::new(), age: 0 };
    start(engine, caller, call, export, total)
}

struct Export {
    copy: CopyState,
    shard: u32,
    place: u32,
    /// Read from midi, to be written to the host.
    batch: VecDeque<Item>,
    /// The engine's age when the batch was read.
    age: u64,
}

struct Item {
    key: Vec<u8>,
    found: GatheredValue,
}

/// The value of a key that goes to the host.
enum GatheredValue {
    /// It is read when it is put: if the key is to be moved, the value counts at the moment when it
    /// leaves midi.
    AtPut,
    /// A hash with many fields, which are read a few at a time before it is put.
    Fields(Box<(FieldsReader, Dumped)>),
    /// It has been read.
    Copy(KeyCopy),
}

/// The value and the expiry that a key had.
struct KeyCopy {
    value: CopiedValue,
    expire_at: Option<UnixMs>,
}

/// A value on its way to the host.
enum CopiedValue {
    /// A string.
    Bytes(Vec<u8>),
    /// A large string.
    Shared(SharedValue),
    /// The payload of a hash, for RESTORE.
    Hash(Vec<u8>),
}

impl KeyCopy {
    fn of(entry: EntryRef<'_>) -> Result<Self, WrongType> {
        let expire_at = entry.expire_at();
        if entry.value_type() == Type::Hash {
            let payload =
                payload_of_hash(Fields::of(entry)?, &instance().engine.settings().limits(0));
            return Ok(KeyCopy { value: CopiedValue::Hash(payload), expire_at });
        }
        let value = entry.string()?;
        let copied = || CopiedValue::Bytes(value.bytes().to_vec());
        let value = value.shared().map_or_else(copied, CopiedValue::Shared);
        Ok(KeyCopy { value, expire_at })
    }

    /// The bytes that were copied for it.
    fn bytes(&self) -> usize {
        match &self.value {
            CopiedValue::Bytes(bytes) | CopiedValue::Hash(bytes) => bytes.len(),
            CopiedValue::Shared(_) => 0,
        }
    }

    fn is_hash(&self) -> bool {
        matches!(self.value, CopiedValue::Hash(_))
    }
}

impl GatheredValue {
    /// Of a key that is to be copied, and about how many bytes the copy takes.
    fn copied(db: u32, entry: EntryRef<'_>) -> Result<(Self, usize), WrongType> {
        let weight = entry.weight();
        if entry.value_type() == Type::Hash && weight > EXPORTED_AT_ONCE_BYTES {
            let reading = (FieldsReader::for_nobody(db, entry.key()), Dumped::default());
            return Ok((GatheredValue::Fields(Box::new(reading)), weight));
        }
        let copy = KeyCopy::of(entry)?;
        let bytes = copy.bytes();
        Ok((GatheredValue::Copy(copy), bytes))
    }

    /// Of a key that is to be moved.
    fn moved(entry: EntryRef<'_>) -> Result<(Self, usize), WrongType> {
        if entry.value_type() != Type::Hash {
            entry.string()?;
        }
        Ok((GatheredValue::AtPut, 0))
    }
}

impl Export {
    fn enough(&self) -> bool {
        self.copy.counts.copied >= self.copy.args.count
    }

    /// Reads a batch of keys from the shards.
    fn gather(&mut self, slice: &Slice<'_>) -> Progress {
        let now = slice.now();
        self.age = slice.engine.ledger.age();
        let mut bytes = 0;
        while self.batch.len() < EXPORT_BATCH
            && bytes < EXPORT_BATCH_BYTES
            && self.shard < slice.engine.shards().count()
        {
            let Some(mut held) = slice.take(self.shard) else {
                return if self.batch.is_empty() { Progress::Blocked } else { Progress::Done };
            };
            let (copy, batch) = (&mut self.copy, &mut self.batch);
            let next = held.db(copy.db).scan_bucket(
                &slice.engine.shards().hasher,
                self.place,
                &mut |entry| {
                    copy.scanned += 1;
                    if !copy.args.want(entry.key()) || entry.is_expired(&now) {
                        return;
                    }
                    let key = entry.key().to_vec();
                    let found = if copy.args.moves {
                        GatheredValue::moved(entry)
                    } else {
                        GatheredValue::copied(copy.db, entry)
                    };
                    match found {
                        Ok((found, more)) => {
                            bytes += more;
                            batch.push_back(Item { key, found });
                        }
                        Err(WrongType) => copy.counts.other_types += 1,
                    }
                },
            );
            slice.engine.ledger.release(slice.slot, self.shard, held);
            match next {
                Some(place) => self.place = place,
                None => {
                    self.shard += 1;
                    self.place = 0;
                }
            }
            if slice.spent() {
                break;
            }
        }
        Progress::Done
    }

    /// Goes on with those hashes of the batch that are read a few fields at a time.
    fn read_fields(&mut self, slice: &Slice<'_>) -> Progress {
        for item in &mut self.batch {
            let GatheredValue::Fields(reading) = &mut item.found else { continue };
            let (reader, dumped) = &mut **reading;
            let read = match reader.read(slice, dumped) {
                Ok(Progress::Done) => take(dumped),
                Ok(progress) => return progress,
                Err(_) => Dumped::Nothing,
            };
            item.found = match read {
                Dumped::Hash(writer) => {
                    let value = CopiedValue::Hash(writer.finish());
                    GatheredValue::Copy(KeyCopy { value, expire_at: reader.expire_at() })
                }
                // It is gone, or it is no hash any more.
                Dumped::Nothing | Dumped::Other(_) => GatheredValue::AtPut,
            };
        }
        Progress::Done
    }

    fn put(&mut self, ctx: Ctx<'_>, rights: &RightsNow, item: &Item) {
        // RM_Call uses the memory state from when the command began.
        if ctx.flags() & raw::REDISMODULE_CTX_FLAGS_OOM != 0 {
            return self.copy.error = Some(Error::OutOfMemory);
        }
        match &item.found {
            GatheredValue::Copy(found) => drop(self.set(ctx, rights, &item.key, found)),
            GatheredValue::AtPut | GatheredValue::Fields(_) => {
                let shards = instance().engine.shards();
                shards.as_one(ctx.locked(), || self.put_from_midi(ctx, rights, &item.key));
            }
        }
    }

    /// Copies or moves a key as it is now, unless it is gone. The shard is held from the read to
    /// the removal, so the value that is removed is the one that was copied.
    fn put_from_midi(&mut self, ctx: Ctx<'_>, rights: &RightsNow, key: &[u8]) {
        let (ledger, db) = (&instance().engine.ledger, self.copy.db);
        match ledger.read_key(ctx.locked(), db, key, KeyCopy::of) {
            Some(Ok(found)) => {
                let is_set = self.set(ctx, rights, key, &found);
                if is_set && self.copy.args.moves {
                    ledger.remove(ctx.locked(), db, key);
                }
            }
            Some(Err(WrongType)) => self.copy.counts.other_types += 1,
            None => {}
        }
    }

    /// Sets a key of the host. True if it was set.
    fn set(&mut self, ctx: Ctx<'_>, rights: &RightsNow, key: &[u8], found: &KeyCopy) -> bool {
        if !rights.allow(key, self.copy.db, found.is_hash()) {
            self.copy.error = Some(Error::NoPermission);
            return false;
        }
        let (replaces, at) = (self.copy.args.replace, found.expire_at);
        let condition = (!replaces).then_some(c"NX");
        let set = |bytes| native::set(ctx, key, bytes, at, condition).map(Some);
        let done = match &found.value {
            CopiedValue::Bytes(bytes) => set(bytes),
            CopiedValue::Shared(shared) => set(shared.bytes()),
            CopiedValue::Hash(payload) => native::restore(ctx, key, payload, at, replaces),
        };
        match done {
            Ok(Some(true)) => self.copy.counts.copied += 1,
            Ok(Some(false)) => self.copy.counts.present += 1,
            Ok(None) => self.copy.counts.other_types += 1,
            Err(error) => self.copy.error = Some(error),
        }
        done == Ok(Some(true))
    }

    /// Writes the batch to the host, until `deadline`, or up to a key that is being read: a busy
    /// main thread does not wait for that.
    fn put_batch(&mut self, ctx: Ctx<'_>, rights: &RightsNow, deadline: Option<Instant>) {
        let is_read = |item: &Item| !matches!(item.found, GatheredValue::Fields(_));
        while self.batch.front().is_some_and(is_read)
            && let Some(item) = self.batch.pop_front()
        {
            self.put(ctx, rights, &item);
            if self.copy.error.is_some() || self.enough() {
                self.batch.clear();
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break;
            }
        }
    }
}

impl LockWork for Export {
    fn slice(&mut self, ctx: Ctx<'_>, deadline: Option<Instant>) {
        let Some(rights) = self.copy.begin_slice(ctx, deadline, true) else { return };
        let age = instance().engine.ledger.age();
        if replace(&mut self.age, age) != age {
            // A database was flushed, perhaps this one: what was read must not come back.
            self.batch.iter_mut().for_each(|item| item.found = GatheredValue::AtPut);
        }
        if self.copy.args.moves
            && let Gate::Refuse(error) = instance().engine.ledger.gate(Intent::Write(false))
        {
            return self.copy.error = Some(error);
        }
        let _moving = self.copy.args.moves.then(|| Moving::begin(ctx));
        ctx.in_db(self.copy.db, || self.put_batch(ctx, &rights, deadline));
    }

    fn prepare(&mut self, slice: &Slice<'_>) -> Progress {
        if self.copy.args.moves && slice.gate(false) == Gate::Wait {
            return Progress::Blocked;
        }
        if !self.batch.is_empty() {
            return self.read_fields(slice);
        }
        match self.gather(slice) {
            Progress::Done if self.batch.is_empty() && !self.is_done() => Progress::More,
            Progress::Done => self.read_fields(slice),
            progress => progress,
        }
    }

    fn is_done(&self) -> bool {
        let all = self.shard >= instance().engine.shards().count() && self.batch.is_empty();
        all || self.enough() || self.copy.error.is_some()
    }

    fn advanced(&mut self) -> u64 {
        take(&mut self.copy.scanned)
    }
}

impl Copying for Export {
    fn state(&self) -> &CopyState {
        &self.copy
    }
}
