//! MIDI.IMPORT and MIDI.EXPORT: string keys from the host into midi and back.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use redis_module::raw;

use super::api::{Ctx, Level, RawCtx, RawString, api, log, must_not_replicate, reply_text};
use super::door::door;
use super::lock::{LockPart, LockWork};
use super::rights::{Rights, RightsNow};
use super::string::{HostString, OwnString};
use crate::command::glob::Pattern;
use crate::command::{Error, ImportArgs, Reply, Tape};
use crate::shard::{Call, Engine, JobOwner, JobReply, Progress, Slice, Task, Work};
use crate::store::{SharedValue, UnixMs, Value, WrongType};

/// From here on a value's encoding is plain in every host, so that it can be
/// read where it lies; reading a short one so would change its encoding.
const PLAIN_BYTES: usize = 1024;

/// Keys that EXPORT takes out of a shard before it asks for the lock.
const EXPORT_BATCH: usize = 256;

/// What a copy answers.
#[derive(Default)]
struct Tally {
    copied: u64,
    present: u64,
    not_strings: u64,
}

impl Tally {
    fn say(&self, reply: &mut dyn Reply) {
        reply.array(3);
        for count in [self.copied, self.present, self.not_strings] {
            reply.integer(count as i64);
        }
    }
}

/// Either direction.
trait Copying: LockWork {
    fn tally(&self) -> &Tally;
    fn error(&self) -> Option<Error>;
}

struct CopyTask<C: Copying>(Arc<Mutex<C>>);

impl<C: Copying> Task for CopyTask<C> {
    fn reply(&self, reply: &mut dyn Reply, _: &Slice<'_>) -> bool {
        let copy = self.0.lock();
        match copy.error() {
            Some(error) => reply.error(&error.text("", &crate::command::Args::new(&[]))),
            None => copy.tally().say(reply),
        }
        true
    }
}

/// Who wants a copy, and how they can be answered.
pub struct Caller<'a> {
    /// A context that holds the lock.
    pub ctx: Ctx<'a>,
    /// Whose rights count; those of the context's client where `None`.
    pub user: Option<&'a [u8]>,
    /// Has the client wait for a job. `None`: it must be answered here and now.
    pub wait: Option<Wait<'a>>,
}

/// Makes a client wait: whom the job is for, and how it answers.
pub type Wait<'a> = &'a mut dyn FnMut() -> (JobOwner, Box<dyn JobReply>);

impl Caller<'_> {
    fn rights(&self) -> Rights {
        self.user.map_or_else(|| Rights::of_client(self.ctx), Rights::of_user)
    }
}

/// Starts a copy as a job, or runs it here where the client cannot wait.
fn start<C: Copying + 'static>(
    engine: &Engine,
    caller: Caller<'_>,
    call: &Call<'_>,
    mut copy: C,
    total: u64,
) -> Result<Option<Tape>, Error> {
    let Some(wait) = caller.wait.filter(|_| !engine.config.safemode) else {
        let started = Instant::now();
        let locked = caller.ctx.locked();
        let endless = Slice::endless(engine, locked);
        while !copy.is_done() {
            copy.prepare(&endless);
            copy.slice(caller.ctx, None);
        }
        engine.book_long(engine.main_seat(locked), call.command, started);
        if let Some(error) = copy.error() {
            return Err(error);
        }
        let mut tape = Tape::default();
        copy.tally().say(&mut tape);
        return Ok(Some(tape));
    };
    engine.room_for_job(call.command)?;
    let copy = Arc::new(Mutex::new(copy));
    let work = Work {
        parts: vec![Box::new(LockPart::new(caller.ctx, copy.clone()))],
        task: Arc::new(CopyTask(copy)),
        total,
        first_worker: engine.jobs.started() as usize % engine.config.workers,
    };
    let (owner, reply) = wait();
    engine.start_job(call.command, owner, work, reply);
    Ok(None)
}

/// MIDI.IMPORT pattern [COUNT n] [REPLACE]. `None` where a job will answer.
///
/// # Errors
/// Why it was not done, or not to its end.
pub fn import(engine: &Engine, caller: Caller<'_>, call: &Call<'_>) -> Result<Option<Tape>, Error> {
    let args = ImportArgs::parse(&call.args, &call.limits)?;
    let total = keys_of_host(caller.ctx, call.db);
    let import = Import::new(args, call.db, caller.rights());
    start(engine, caller, call, import, total)
}

/// How many keys a database of the host's has.
fn keys_of_host(ctx: Ctx<'_>, db: u32) -> u64 {
    let previous = ctx.selected_db();
    ctx.select_db(db);
    // SAFETY: DbSize needs a context only.
    let keys = unsafe { api!(RedisModule_DbSize)(ctx.raw()) };
    ctx.select_db(previous);
    keys
}

struct Import {
    args: ImportArgs,
    db: u32,
    rights: Rights,
    cursor: Cursor,
    scanned: u64,
    tally: Tally,
    finished: bool,
    error: Option<Error>,
}

/// RM_Scan's cursor. It knows no key, so it may be kept between slices.
struct Cursor(*mut raw::RedisModuleScanCursor);

// SAFETY: a plain number inside, used under the lock.
unsafe impl Send for Cursor {}

impl Drop for Cursor {
    fn drop(&mut self) {
        // SAFETY: made by ScanCursorCreate; this frees memory only.
        unsafe { api!(RedisModule_ScanCursorDestroy)(self.0) };
    }
}

/// What one step of the scan found.
struct Found<'a> {
    pattern: &'a Pattern,
    now: UnixMs,
    seen: u64,
    not_strings: u64,
    strings: Vec<(OwnString, Option<UnixMs>, usize)>,
}

unsafe extern "C" fn on_scanned(
    _: *mut RawCtx,
    name: *mut RawString,
    key: *mut raw::RedisModuleKey,
    found: *mut c_void,
) {
    // SAFETY: `found` is Import::step's, which waits for the scan; name and key
    // are the host's, good for this call; the name is held to outlive it.
    super::guarded((), || unsafe {
        let found = &mut *found.cast::<Found<'_>>();
        found.seen += 1;
        let Some(name) = HostString::new(name) else { return };
        if key.is_null() || !found.pattern.matches(name.bytes()) {
            return;
        }
        let expire_at = api!(RedisModule_GetAbsExpire)(key);
        let expire_at = (expire_at >= 0).then_some(expire_at);
        if expire_at.is_some_and(|at| at < found.now) {
            return; // Gone for any reader.
        }
        if api!(RedisModule_KeyType)(key) != raw::REDISMODULE_KEYTYPE_STRING as c_int {
            found.not_strings += 1;
            return;
        }
        let len = api!(RedisModule_ValueLength)(key);
        found.strings.push((name.hold(), expire_at, len));
    });
}

impl Import {
    fn new(args: ImportArgs, db: u32, rights: Rights) -> Self {
        Import {
            args,
            db,
            rights,
            // SAFETY: no arguments.
            cursor: Cursor(unsafe { api!(RedisModule_ScanCursorCreate)() }),
            scanned: 0,
            tally: Tally::default(),
            finished: false,
            error: None,
        }
    }

    /// One step of the scan: one bucket of the host's table.
    fn step(&mut self, ctx: Ctx<'_>, rights: &RightsNow<'_>) {
        let mut found = Found {
            pattern: &self.args.pattern,
            now: (door().engine.config.clock)(),
            seen: 0,
            not_strings: 0,
            strings: Vec::new(),
        };
        // SAFETY: the lock is held; the callback gets what it expects.
        let more = unsafe {
            let private = ptr::from_mut(&mut found).cast();
            api!(RedisModule_Scan)(ctx.raw(), self.cursor.0, Some(on_scanned), private)
        };
        self.scanned += found.seen;
        self.tally.not_strings += found.not_strings;
        for (name, expire_at, len) in found.strings {
            if !rights.allow(name.get()) {
                self.error = Some(Error::NoPermission);
            }
            if self.tally.copied < self.args.count && self.error.is_none() {
                self.copy(ctx, name.get(), expire_at, len);
            }
        }
        self.finished = more == 0 || self.tally.copied >= self.args.count;
    }

    fn copy(&mut self, ctx: Ctx<'_>, name: HostString<'_>, expire_at: Option<UnixMs>, len: usize) {
        let engine = &door().engine;
        let key = name.bytes();
        let limits = engine.settings.limits(usize::MAX);
        if let Err(error) = limits.key(key).and_then(|()| limits.value(len)) {
            return self.error = Some(error);
        }
        let mut put = |value: &[u8]| {
            if engine.put(ctx.locked(), self.db, key, Value::Inline(value), expire_at, self.args.replace) {
                self.tally.copied += 1;
            } else {
                self.tally.present += 1;
            }
        };
        // Where GET is renamed the host's key has its encoding changed: better than not to be copied.
        if len >= PLAIN_BYTES || !with_value_of_get(ctx, name, &mut put) {
            with_value_in_place(ctx, name, &mut put);
        }
    }
}

fn with_value_in_place(ctx: Ctx<'_>, name: HostString<'_>, put: &mut dyn FnMut(&[u8])) {
    // SAFETY: the lock is held; the key is closed before anything else happens.
    unsafe {
        let key: *mut raw::RedisModuleKey =
            api!(RedisModule_OpenKey)(ctx.raw(), name.raw(), raw::REDISMODULE_READ as c_int).cast();
        if key.is_null() {
            return; // It expired a moment ago.
        }
        let mut len = 0;
        let value = api!(RedisModule_StringDMA)(key, &mut len, raw::REDISMODULE_READ as c_int);
        if !value.is_null() {
            put(std::slice::from_raw_parts(value.cast(), len));
        }
        api!(RedisModule_CloseKey)(key);
    }
}

/// False where the host does not let us call GET.
fn with_value_of_get(ctx: Ctx<'_>, name: HostString<'_>, put: &mut dyn FnMut(&[u8])) -> bool {
    // SAFETY: the lock is held; the format says one string; the reply's text
    // lives until the reply is freed.
    unsafe {
        let reply = api!(RedisModule_Call)(ctx.raw(), c"GET".as_ptr(), c"s".as_ptr(), name.raw());
        if reply.is_null() {
            return false;
        }
        let kind = api!(RedisModule_CallReplyType)(reply) as isize;
        if kind == raw::REDISMODULE_REPLY_STRING {
            put(reply_text(reply));
        }
        api!(RedisModule_FreeCallReply)(reply);
        kind != raw::REDISMODULE_REPLY_ERROR
    }
}

impl LockWork for Import {
    fn slice(&mut self, ctx: Ctx<'_>, deadline: Option<Instant>) {
        let rights = match self.rights.now(ctx.locked()) {
            Ok(rights) => rights,
            Err(error) => return self.error = Some(error),
        };
        let previous = ctx.selected_db();
        ctx.select_db(self.db);
        let engine = &door().engine;
        while !self.is_done() && (deadline.is_none() || engine.has_credit()) {
            if deadline.is_none() && !engine.has_credit() {
                super::gates::ask_host(ctx.locked());
            }
            if let Some(error) = engine.write_refusal(true) {
                self.error = Some(error);
            } else {
                self.step(ctx, &rights);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break;
            }
        }
        ctx.select_db(previous);
    }

    fn prepare(&mut self, slice: &Slice<'_>) -> Progress {
        let may_write = || slice.engine.has_credit() && !slice.engine.has_much_news();
        if slice.is_endless() || may_write() { Progress::Done } else { Progress::Blocked }
    }

    fn is_done(&self) -> bool {
        self.finished || self.error.is_some()
    }

    fn advanced(&mut self) -> u64 {
        std::mem::take(&mut self.scanned)
    }
}

impl Copying for Import {
    fn tally(&self) -> &Tally {
        &self.tally
    }

    fn error(&self) -> Option<Error> {
        self.error
    }
}

/// MIDI.EXPORT pattern [COUNT n] [REPLACE]. `None` where a job will answer.
///
/// # Errors
/// Why it was not done, or not to its end.
pub fn export(engine: &Engine, caller: Caller<'_>, call: &Call<'_>) -> Result<Option<Tape>, Error> {
    let args = ImportArgs::parse(&call.args, &call.limits)?;
    let total = engine.census(call.db).keys as u64;
    let export = Export {
        args,
        db: call.db,
        rights: caller.rights(),
        shard: 0,
        place: 0,
        scanned: 0,
        batch: VecDeque::new(),
        age: 0,
        tally: Tally::default(),
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
    /// Read in midi, to be put into the host.
    batch: VecDeque<Item>,
    /// When the batch was read.
    age: u64,
    tally: Tally,
    error: Option<Error>,
}

struct Item {
    key: Vec<u8>,
    value: Result<Vec<u8>, SharedValue>,
    expire_at: Option<UnixMs>,
}

impl Export {
    fn enough(&self) -> bool {
        self.tally.copied >= self.args.count
    }

    /// Takes a batch of keys out of the shards.
    fn gather(&mut self, slice: &Slice<'_>) -> Progress {
        let now = slice.now();
        self.age = slice.engine.age();
        while self.batch.len() < EXPORT_BATCH && self.shard < slice.engine.shard_count() {
            let Some(mut held) = slice.take(self.shard) else {
                return if self.batch.is_empty() { Progress::Blocked } else { Progress::Done };
            };
            let (pattern, batch, scanned) = (&self.args.pattern, &mut self.batch, &mut self.scanned);
            let not_strings = &mut self.tally.not_strings;
            let next = held.db(self.db).scan_bucket(&slice.engine.hasher, self.place, &mut |entry| {
                *scanned += 1;
                if !pattern.matches(entry.key()) || entry.is_expired(&now) {
                    return;
                }
                let (key, expire_at) = (entry.key().to_vec(), entry.expire_at());
                match entry.string() {
                    Ok(value) => {
                        let value = value.shared().map_or_else(|| Ok(value.bytes().to_vec()), Err);
                        batch.push_back(Item { key, value, expire_at });
                    }
                    Err(WrongType) => *not_strings += 1,
                }
            });
            slice.engine.release(self.shard, held);
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
        // RM_Call judges memory as it was when the command began.
        if ctx.flags() & raw::REDISMODULE_CTX_FLAGS_OOM != 0 {
            return self.error = Some(Error::OutOfMemory);
        }
        let value = item.value.as_ref().map_or_else(|shared| shared.bytes(), Vec::as_slice);
        let condition = if self.args.replace { None } else { Some(c"NX") };
        match set(ctx, &item.key, value, item.expire_at, condition) {
            Ok(true) => self.tally.copied += 1,
            Ok(false) => self.tally.present += 1,
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
    condition: Option<&std::ffi::CStr>,
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
            (Some(at), None) => call(ctx.raw(), command, c"!MESbbcl".as_ptr(), k, kl, v, vl, pxat, at),
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
/// `reply` is an error reply of the host's.
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
            // Clients are paused, and so are jobs. Who cannot wait is refused.
            if deadline.is_none() {
                self.error = Some(Error::HostRefused);
            }
            return;
        }
        let rights = match self.rights.now(ctx.locked()) {
            Ok(rights) => rights,
            Err(error) => return self.error = Some(error),
        };
        if self.age != door().engine.age() {
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
        let all = self.shard >= door().engine.shard_count() && self.batch.is_empty();
        all || self.enough() || self.error.is_some()
    }

    fn advanced(&mut self) -> u64 {
        std::mem::take(&mut self.scanned)
    }
}

impl Copying for Export {
    fn tally(&self) -> &Tally {
        &self.tally
    }

    fn error(&self) -> Option<Error> {
        self.error
    }
}
