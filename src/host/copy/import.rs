//! MIDI.IMPORT: from the host into midi.

use std::borrow::Cow;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::Ordering;
use std::time::Instant;

use midi_module_api as raw;

use super::super::api::{Ctx, Level, RawCtx, RawString, api, log, reply_text, take_reply};
use super::super::guarded;
use super::super::instance::instance;
use super::super::lock::LockWork;
use super::super::rights::RightsNow;
use super::super::slots::migrating::migrates;
use super::super::string::{HostString, OwnString};
use super::job::{Asker, CopyState, Copying, start};
use super::moves::Moving;
use super::native;
use crate::command::{Error, ImportArgs, Transcript, logged_name, unpacked_hash};
use crate::engine::{Call, Engine, Gate, Intent, Progress, Slice};
use crate::store::{Edit, UnixMs, Value};

/// A value of this size or more has a plain encoding in every host, so it can be read in place.
/// Reading a shorter one in place would change its encoding.
const PLAIN_BYTES: usize = 1024;

/// MIDI.IMPORT pattern [COUNT n] [REPLACE] [MOVE] [SLOT n]. `None` if a job will answer.
///
/// # Errors
/// Why it was refused, or ended early.
pub fn import(
    engine: &Engine,
    caller: Asker<'_>,
    call: &Call<'_>,
) -> Result<Option<Transcript>, Error> {
    let (ctx, copy) = (caller.ctx, CopyState::new(&caller, call)?);
    // SAFETY: DbSize needs a context only.
    let total = ctx.in_db(call.db, || unsafe { api!(RedisModule_DbSize)(ctx.raw()) });
    // SAFETY: no arguments.
    let cursor = Cursor(unsafe { api!(RedisModule_ScanCursorCreate)() });
    start(engine, caller, call, Import { copy, cursor, finished: false }, total)
}

struct Import {
    copy: CopyState,
    cursor: Cursor,
    finished: bool,
}

/// RM_Scan's cursor. It refers to no key, so it may be kept between slices.
struct Cursor(*mut raw::RedisModuleScanCursor);

// SAFETY: a plain number inside, used under the lock.
unsafe impl Send for Cursor {}

impl Drop for Cursor {
    fn drop(&mut self) {
        // SAFETY: made by ScanCursorCreate; this frees memory only.
        unsafe { api!(RedisModule_ScanCursorDestroy)(self.0) };
    }
}

/// The findings of one step of the scan.
struct Found<'a> {
    args: &'a ImportArgs,
    now: UnixMs,
    seen: u64,
    other_types: u64,
    strings: Vec<(OwnString, Option<UnixMs>, usize)>,
    hashes: Vec<(OwnString, Option<UnixMs>)>,
}

unsafe extern "C" fn on_scanned(
    _: *mut RawCtx,
    name: *mut RawString,
    key: *mut raw::RedisModuleKey,
    found: *mut c_void,
) {
    // SAFETY: `found` is Import::step's, which waits for the scan; name and key are the host's,
    // valid for this call; the name is held to outlive it.
    guarded((), || unsafe {
        let found = &mut *found.cast::<Found<'_>>();
        found.seen += 1;
        let Some(name) = HostString::new(name) else { return };
        if key.is_null() || !found.args.want(name.bytes()) {
            return;
        }
        let expire_at = api!(RedisModule_GetAbsExpire)(key);
        let expire_at = (expire_at >= 0).then_some(expire_at);
        if expire_at.is_some_and(|at| at < found.now) {
            return; // Expired for any reader.
        }
        let len = api!(RedisModule_ValueLength)(key);
        match api!(RedisModule_KeyType)(key) {
            raw::REDISMODULE_KEYTYPE_STRING => found.strings.push((name.hold(), expire_at, len)),
            // Valkey's COPY makes it of a hash whose fields have all expired. It cannot be dumped.
            raw::REDISMODULE_KEYTYPE_HASH if len == 0 => {}
            raw::REDISMODULE_KEYTYPE_HASH => found.hashes.push((name.hold(), expire_at)),
            _ => found.other_types += 1,
        }
    });
}

impl Import {
    /// One step of the scan: one bucket of the host's table.
    fn step(&mut self, ctx: Ctx<'_>, rights: &RightsNow) {
        let mut found = Found {
            args: &self.copy.args,
            now: (instance().engine.config().clock)(),
            seen: 0,
            other_types: 0,
            strings: Vec::new(),
            hashes: Vec::new(),
        };
        // SAFETY: the lock is held; the callback gets what it expects.
        let more = unsafe {
            let private = ptr::from_mut(&mut found).cast();
            api!(RedisModule_Scan)(ctx.raw(), self.cursor.0, Some(on_scanned), private)
        };
        let Found { seen, other_types, strings, hashes, .. } = found;
        self.copy.scanned += seen;
        self.copy.counts.other_types += other_types;
        for (name, expire_at, len) in strings {
            if self.goes_on(ctx, rights, name.get(), false) {
                self.copy(ctx, name.get(), expire_at, len);
            }
        }
        for (name, expire_at) in hashes {
            if self.goes_on(ctx, rights, name.get(), true) {
                let copied = self.copy_hash(ctx, name.get(), expire_at);
                copied.unwrap_or_else(|error| self.end_at(ctx, name.get(), error));
            }
        }
        self.finished = more == 0 || self.copy.counts.copied >= self.copy.args.count;
    }

    /// Whether a key is to be copied.
    fn goes_on(
        &mut self,
        ctx: Ctx<'_>,
        rights: &RightsNow,
        name: HostString<'_>,
        is_hash: bool,
    ) -> bool {
        if !rights.allow(name.bytes(), self.copy.db, is_hash) {
            self.copy.error = Some(Error::NoPermission);
        } else if migrates(ctx, name.bytes()) {
            self.end_at(ctx, name, Error::SlotMigrates);
        }
        self.copy.counts.copied < self.copy.args.count && self.copy.error.is_none()
    }

    /// Ends the copy at a key. The reply is a fixed text, so the log names the key, if that is the
    /// reason.
    fn end_at(&mut self, ctx: Ctx<'_>, name: HostString<'_>, error: Error) {
        self.copy.error = Some(error);
        if matches!(error, Error::HostRefused | Error::OutOfMemory) {
            return;
        }
        let (key, cause) = (logged_name(name.bytes()), error.bare_text());
        let cause = String::from_utf8_lossy(&cause);
        log(ctx, Level::Warning, &format!("MIDI.IMPORT ended at key '{key}': {cause}"));
    }

    /// Copies or moves a hash, in one go. Of a move the host is asked first, as in
    /// [`Import::move_key`].
    fn copy_hash(
        &mut self,
        ctx: Ctx<'_>,
        name: HostString<'_>,
        expire_at: Option<UnixMs>,
    ) -> Result<(), Error> {
        let (engine, locked, key, db) =
            (&instance().engine, ctx.locked(), name.bytes(), self.copy.db);
        let limits = engine.settings().limits(usize::MAX);
        limits.key(key)?;
        let is_present = || engine.ledger.read_key(locked, db, key, |_| ()).is_some();
        let (replace, counts) = (self.copy.args.replace, &mut self.copy.counts);
        if !replace && is_present() {
            counts.present += 1;
            return Ok(());
        }
        // `None` if it expired a moment ago.
        let Some(payload) = native::dump(ctx, name)? else { return Ok(()) };
        let hash = unpacked_hash(&payload, &limits)?;
        let fields = hash.fields(&limits)?;
        let put = |replace: bool| {
            let fill = |edit: &mut Edit<'_>| {
                for it in &fields {
                    Value::lend(it.value.bytes().into(), limits.keep_bytes, |value| {
                        // The key has just been removed: it is no other type.
                        let _ = edit.set_field(it.field.bytes(), value, it.expire_at);
                    });
                }
            };
            engine.ledger.put_hash(locked, db, key, fill, expire_at, replace)
        };
        // A client of the ports may have set the key meanwhile.
        if !self.copy.args.moves {
            let count = if put(replace) { &mut counts.copied } else { &mut counts.present };
            *count += 1;
            return Ok(());
        }
        engine.shards().as_one(locked, || {
            if !replace && is_present() {
                counts.present += 1;
            } else if native::delete(ctx, name)? {
                put(true);
                counts.copied += 1;
            }
            Ok(())
        })
    }

    fn copy(&mut self, ctx: Ctx<'_>, name: HostString<'_>, expire_at: Option<UnixMs>, len: usize) {
        let engine = &instance().engine;
        let key = name.bytes();
        let limits = engine.settings().limits(usize::MAX);
        if let Err(error) = limits.key(key).and_then(|()| limits.value(len)) {
            return self.end_at(ctx, name, error);
        }
        if self.copy.args.moves {
            return engine
                .shards()
                .as_one(ctx.locked(), || self.move_key(ctx, name, expire_at, len));
        }
        with_value(ctx, name, len, &mut |value| {
            if self.put(ctx, key, value.into(), expire_at, self.copy.args.replace) {
                self.copy.counts.copied += 1;
            } else {
                self.copy.counts.present += 1;
            }
        });
    }

    /// Sets a key of midi's, one that exists only if `replace`. True if it was set.
    fn put(
        &self,
        ctx: Ctx<'_>,
        key: &[u8],
        value: Cow<'_, [u8]>,
        expire_at: Option<UnixMs>,
        replace: bool,
    ) -> bool {
        let engine = &instance().engine;
        let keep_bytes = engine.settings().keep_bytes.load(Ordering::Relaxed);
        Value::lend(value, keep_bytes, |value| {
            engine.ledger.put(ctx.locked(), self.copy.db, key, value, expire_at, replace)
        })
    }

    /// Moves a key. The host may refuse to remove it, midi does not refuse to set it: so the host
    /// is asked first. Nobody sees the key in neither.
    fn move_key(
        &mut self,
        ctx: Ctx<'_>,
        name: HostString<'_>,
        expire_at: Option<UnixMs>,
        len: usize,
    ) {
        let (engine, locked, key) = (&instance().engine, ctx.locked(), name.bytes());
        if !self.copy.args.replace
            && engine.ledger.read_key(locked, self.copy.db, key, |_| ()).is_some()
        {
            self.copy.counts.present += 1;
            return;
        }
        let mut value = None;
        with_value(ctx, name, len, &mut |bytes| value = Some(bytes.to_vec()));
        let Some(value) = value else { return };
        match native::delete(ctx, name) {
            Ok(true) => {
                self.put(ctx, key, value.into(), expire_at, true);
                self.copy.counts.copied += 1;
            }
            Ok(false) => {} // It expired a moment ago.
            Err(error) => self.copy.error = Some(error),
        }
    }
}

/// Calls `put` with the value of a string key, unless that is gone.
fn with_value(ctx: Ctx<'_>, name: HostString<'_>, len: usize, put: &mut dyn FnMut(&[u8])) {
    // If GET is renamed, this changes the encoding of the host's key: better than not copying it.
    if len >= PLAIN_BYTES || !with_value_of_get(ctx, name, put) {
        with_value_in_place(ctx, name, put);
    }
}

fn with_value_in_place(ctx: Ctx<'_>, name: HostString<'_>, put: &mut dyn FnMut(&[u8])) {
    // SAFETY: the lock is held; the key is closed before anything else happens.
    unsafe {
        let key: *mut raw::RedisModuleKey =
            api!(RedisModule_OpenKey)(ctx.raw(), name.raw(), raw::REDISMODULE_READ).cast();
        if key.is_null() {
            return; // It expired a moment ago.
        }
        let mut len = 0;
        let value = api!(RedisModule_StringDMA)(key, &mut len, raw::REDISMODULE_READ);
        if !value.is_null() {
            put(std::slice::from_raw_parts(value.cast(), len));
        }
        api!(RedisModule_CloseKey)(key);
    }
}

/// False if the host does not let us call GET.
fn with_value_of_get(ctx: Ctx<'_>, name: HostString<'_>, put: &mut dyn FnMut(&[u8])) -> bool {
    // SAFETY: the lock is held; the format names one string; the reply's text lives as long as it.
    let answered = unsafe {
        let reply = api!(RedisModule_Call)(ctx.raw(), c"GET".as_ptr(), c"s".as_ptr(), name.raw());
        take_reply(reply, |reply| {
            let kind = api!(RedisModule_CallReplyType)(reply);
            if kind == raw::REDISMODULE_REPLY_STRING {
                put(reply_text(reply));
            }
            kind != raw::REDISMODULE_REPLY_ERROR
        })
    };
    answered.unwrap_or(false)
}

impl LockWork for Import {
    fn slice(&mut self, ctx: Ctx<'_>, deadline: Option<Instant>) {
        let engine = &instance().engine;
        let heeds_pauses = self.copy.args.moves
            || deadline.is_some() && engine.ledger.admission.are_workers_paused();
        let Some(rights) = self.copy.begin_slice(ctx, deadline, heeds_pauses) else { return };
        let _moving = self.copy.args.moves.then(|| Moving::begin(ctx));
        ctx.in_db(self.copy.db, || {
            while !self.is_done() && (deadline.is_none() || engine.ledger.has_credit()) {
                if deadline.is_none() && !engine.ledger.has_credit() {
                    instance().gates.ask_host(ctx.locked());
                }
                let refusal = match engine.ledger.gate(Intent::Write(true)) {
                    Gate::Refuse(error) => Some(error),
                    _ => engine.ledger.refusal_in(self.copy.db),
                };
                if refusal.is_some() {
                    self.copy.error = refusal;
                } else {
                    self.step(ctx, &rights);
                }
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    break;
                }
            }
        });
    }

    fn prepare(&mut self, slice: &Slice<'_>) -> Progress {
        if slice.gate(true) == Gate::Wait { Progress::Blocked } else { Progress::Done }
    }

    fn is_done(&self) -> bool {
        self.finished || self.copy.error.is_some()
    }

    fn advanced(&mut self) -> u64 {
        std::mem::take(&mut self.copy.scanned)
    }
}

impl Copying for Import {
    fn state(&self) -> &CopyState {
        &self.copy
    }
}
