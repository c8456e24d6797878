//! MIDI.EXPORT: from midi into the host.

use std::collections::VecDeque;
use std::ffi::CStr;
use std::ptr;
use std::time::Instant;

use redis_module::raw;

use super::super::api::{Ctx, Level, api, log, must_not_replicate, reply_text};
use super::super::instance::instance;
use super::super::lock::LockWork;
use super::super::rights::Rights;
use super::job::{Asker, CopyCounts, Copying, start};
use crate::command::{Error, ImportArgs, Transcript};
use crate::engine::{Call, Engine, Progress, Slice};
use crate::store::{SharedValue, UnixMs, WrongType};

/// How many keys EXPORT reads from the shards before it tries to take the lock.
const EXPORT_BATCH: usize = 256;

/// MIDI.EXPORT pattern [COUNT n] [REPLACE]. `None` if a job will answer.
///
/// # Errors
/// Why it was refused, or ended early.
pub fn export(
    engine: &Engine,
    caller: Asker<'_>,
    call: &Call<'_>,
) -> Result<Option<Transcript>, Error> {
    let args = ImportArgs::parse(&call.args, &call.limits)?;
    let total = engine.books.census(call.db).keys as u64;
    let export = Export {
        args,
        db: call.db,
        rights: caller.rights(),
        shard: 0,
        place: 0,
        scanned: 0,
        batch: VecDeque::new(),
        age: 0,
        counts: CopyCounts::default(),
        error: None,
    };
    start(engine, caller, call, export, total)
}

struct Export {
    args: ImportArgs,
    db: u32,
    rights: Rights,
    shard: u32,
    place: u32,
    scanned: u64,
    /// Read from midi, to be written to the host.
    batch: VecDeque<Item>,
    /// The engine's age when the batch was read.
    age: u64,
    counts: CopyCounts,
    error: Option<Error>,
}

struct Item {
    key: Vec<u8>,
    value: Result<Vec<u8>, SharedValue>,
    expire_at: Option<UnixMs>,
}

impl Export {
    fn enough(&self) -> bool {
        self.counts.copied >= self.args.count
    }

    /// Reads a batch of keys from the shards.
    fn gather(&mut self, slice: &Slice<'_>) -> Progress {
        let now = slice.now();
        self.age = slice.engine.age();
        while self.batch.len() < EXPORT_BATCH && self.shard < slice.engine.shard_count() {
            let Some(mut held) = slice.take(self.shard) else {
                return if self.batch.is_empty() { Progress::Blocked } else { Progress::Done };
            };
            let (pattern, batch, scanned) =
                (&self.args.pattern, &mut self.batch, &mut self.scanned);
            let not_strings = &mut self.counts.not_strings;
            let next =
                held.db(self.db).scan_bucket(&slice.engine.hasher, self.place, &mut |entry| {
                    *scanned += 1;
                    if !pattern.matches(entry.key()) || entry.is_expired(&now) {
                        return;
                    }
                    let (key, expire_at) = (entry.key().to_vec(), entry.expire_at());
                    match entry.string() {
                        Ok(value) => {
                            let value =
                                value.shared().map_or_else(|| Ok(value.bytes().to_vec()), Err);
                            batch.push_back(Item { key, value, expire_at });
                        }
                        Err(WrongType) => *not_strings += 1,
                    }
                });
            slice.engine.release(slice.slot, self.shard, held);
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

    fn put(&mut self, ctx: Ctx<'_>, item: &Item) {
        // RM_Call uses the memory state from when the command began.
        if ctx.flags() & raw::REDISMODULE_CTX_FLAGS_OOM != 0 {
            return self.error = Some(Error::OutOfMemory);
        }
        let value = item.value.as_ref().map_or_else(|shared| shared.bytes(), Vec::as_slice);
        let condition = if self.args.replace { None } else { Some(c"NX") };
        match set(ctx, &item.key, value, item.expire_at, condition) {
            Ok(true) => self.counts.copied += 1,
            Ok(false) => self.counts.present += 1,
            Err(error) => self.error = Some(error),
        }
    }
}

/// The host's own SET, replicated as such. False when NX found the key.
fn set(
    ctx: Ctx<'_>,
    key: &[u8],
    value: &[u8],
    expire_at: Option<UnixMs>,
    condition: Option<&CStr>,
) -> Result<bool, Error> {
    let (k, kl, v, vl) = (key.as_ptr(), key.len(), value.as_ptr(), value.len());
    let (pxat, nx) = (c"PXAT".as_ptr(), condition.map_or(ptr::null(), |word| word.as_ptr()));
    // SAFETY: the lock is held; each format names the arguments that follow:
    // buffers (b), C strings (c), a number (l). The reply is freed once.
    unsafe {
        let call = api!(RedisModule_Call);
        let command = c"SET".as_ptr();
        let reply = match (expire_at, condition) {
            (None, None) => call(ctx.raw(), command, c"!MESbb".as_ptr(), k, kl, v, vl),
            (None, Some(_)) => call(ctx.raw(), command, c"!MESbbc".as_ptr(), k, kl, v, vl, nx),
            (Some(at), None) => {
                call(ctx.raw(), command, c"!MESbbcl".as_ptr(), k, kl, v, vl, pxat, at)
            }
            (Some(at), Some(_)) => {
                call(ctx.raw(), command, c"!MESbbclc".as_ptr(), k, kl, v, vl, pxat, at, nx)
            }
        };
        if reply.is_null() {
            return Err(Error::HostRefused);
        }
        let result = match api!(RedisModule_CallReplyType)(reply) as isize {
            raw::REDISMODULE_REPLY_NULL => Ok(false),
            raw::REDISMODULE_REPLY_ERROR => Err(refusal(ctx, reply)),
            _ => Ok(true),
        };
        api!(RedisModule_FreeCallReply)(reply);
        result
    }
}

/// # Safety
/// `reply` must be an error reply of the host.
unsafe fn refusal(ctx: Ctx<'_>, reply: *mut raw::RedisModuleCallReply) -> Error {
    // SAFETY: the caller vouches for the reply, which lives as long.
    let text = unsafe { reply_text(reply) };
    if text.starts_with(b"OOM") {
        return Error::OutOfMemory;
    }
    let text = String::from_utf8_lossy(text);
    log(ctx, Level::Warning, &format!("MIDI.EXPORT stopped: {text}"));
    Error::HostRefused
}

impl LockWork for Export {
    fn slice(&mut self, ctx: Ctx<'_>, deadline: Option<Instant>) {
        if must_not_replicate(ctx.locked()) {
            // Clients are paused, and so are jobs. A client that cannot wait is refused.
            if deadline.is_none() {
                self.error = Some(Error::HostRefused);
            }
            return;
        }
        let rights = match self.rights.now(ctx.locked()) {
            Ok(rights) => rights,
            Err(error) => return self.error = Some(error),
        };
        if self.age != instance().engine.age() {
            self.batch.clear(); // Flushed meanwhile: it must not come back in the host.
        }
        let previous = ctx.selected_db();
        ctx.select_db(self.db);
        while let Some(item) = self.batch.pop_front() {
            if rights.allow_bytes(&item.key) {
                self.put(ctx, &item);
            } else {
                self.error = Some(Error::NoPermission);
            }
            if self.error.is_some() || self.enough() {
                self.batch.clear();
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break;
            }
        }
        ctx.select_db(previous);
    }

    fn prepare(&mut self, slice: &Slice<'_>) -> Progress {
        if !self.batch.is_empty() {
            return Progress::Done;
        }
        match self.gather(slice) {
            Progress::Done if self.batch.is_empty() && !self.is_done() => Progress::More,
            progress => progress,
        }
    }

    fn is_done(&self) -> bool {
        let all = self.shard >= instance().engine.shard_count() && self.batch.is_empty();
        all || self.enough() || self.error.is_some()
    }

    fn advanced(&mut self) -> u64 {
        std::mem::take(&mut self.scanned)
    }
}

impl Copying for Export {
    fn counts(&self) -> &CopyCounts {
        &self.counts
    }

    fn error(&self) -> Option<Error> {
        self.error
    }
}
