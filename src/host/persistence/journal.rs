//! The host's log of writes, the AOF: how midi's writes get into it.
//!
//! ```text
//! host's door ── own effect, and the tail before it ──► RM_Replicate, in the command's context
//! ports, jobs, queued commands ──► tail ── BEFORE_SLEEP ──► RM_Replicate, in the event's context
//!                                                              │ the host writes, and syncs
//! AFTER_SLEEP ─► what was logged before is safe ◄──────────────┘
//! ```
//!
//! RM_Replicate is called at most once in a context. The host wraps several in MULTI and EXEC, and
//! Redis, up to 8.6 at least, cannot repair a file that ends inside of these: it later drops what
//! was appended. So a command that finds a tail logs it, and its own effect, as one MIDI.JOURNAL.

use std::cell::Cell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

use arrayvec::ArrayVec;
use redis_module::raw;

use super::super::api::{Ctx, Level, RawCtx, api, log as log_line, must_not_replicate};
use super::super::config::table::REPLY_AFTER_IGNORED;
use super::super::instance::instance;
use super::super::string::OwnString;
use super::save_points;
use crate::command::record::Record;
use crate::engine::{Gates, Locked, Logged, Mode, Wrote};

thread_local! {
    /// The context in which this thread may log; null if there is none.
    static CONTEXT: Cell<*mut RawCtx> = const { Cell::new(std::ptr::null_mut()) };
}

/// Whether the clients were paused before the last EXEC began.
static PAUSED_BEFORE_EXEC: AtomicBool = AtomicBool::new(false);

/// Whether the host syncs nothing while a child of it lives, although its policy is `always`.
static SKIPS_FSYNCS: AtomicBool = AtomicBool::new(false);

/// The most arguments of a command that stands for a record.
const ARGUMENTS: usize = 5;

/// While it lives, this thread logs in this context.
pub struct Logging {
    outer: *mut RawCtx,
}

impl Logging {
    /// What the thread does from now on is logged in the context of a command, or of an event in
    /// which midi may log. `None` if nothing is logged.
    #[inline]
    pub fn begin(ctx: Ctx<'_>) -> Option<Self> {
        (instance().engine.mode() != Mode::Fast)
            .then(|| Logging { outer: CONTEXT.replace(ctx.raw()) })
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        CONTEXT.set(self.outer);
    }
}

/// An EXEC is about to be executed.
pub fn before_exec(locked: Locked<'_>) {
    if instance().engine.mode() != Mode::Fast {
        PAUSED_BEFORE_EXEC.store(must_not_replicate(locked), Ordering::Relaxed);
    }
}

/// Whether the host lets a module log in this context. It ends its process otherwise. During a
/// pause only the transaction that has begun it may.
pub fn may_log(ctx: Ctx<'_>) -> bool {
    !must_not_replicate(ctx.locked())
        || ctx.flags() & raw::REDISMODULE_CTX_FLAGS_MULTI != 0
            && !PAUSED_BEFORE_EXEC.load(Ordering::Relaxed)
}

/// Whether there is a context in which this thread may log.
pub fn may_log_here(_: Locked<'_>) -> bool {
    let ctx = CONTEXT.get();
    // SAFETY: as in `write`.
    !ctx.is_null() && may_log(unsafe { Ctx::new(ctx) })
}

/// Writes to the host's log.
pub fn write(locked: Locked<'_>, logged: Logged<'_>) -> Wrote {
    let ctx = CONTEXT.get();
    if ctx.is_null() {
        return Wrote::Refused;
    }
    let _ = locked;
    // SAFETY: `Logging` was made of a context that is valid while it lives.
    let ctx = unsafe { Ctx::new(ctx) };
    if !may_log(ctx) || !logged.is_own_only && is_called_by_module(ctx) {
        return Wrote::Refused;
    }
    match logged.command.filter(|&(db, _)| db == ctx.selected_db()) {
        Some((_, record)) => replicate_record(ctx, record),
        None => replicate(ctx, c"MIDI.JOURNAL", &[logged.text]),
    }
}

/// Whether another module has called the command. If it did not ask for replication, the host
/// logs nothing of what is done here, and reports nothing: that is not for the writes of others.
fn is_called_by_module(ctx: Ctx<'_>) -> bool {
    const UNIT: u32 = raw::REDISMODULE_CTX_FLAGS_MULTI | raw::REDISMODULE_CTX_FLAGS_LUA;
    ctx.flags() & (UNIT | raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING)
        == raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING
}

fn replicate_record(ctx: Ctx<'_>, record: Record<'_>) -> Wrote {
    let number = |number: i64| itoa::Buffer::new().format(number).to_owned();
    match record {
        Record::Set { key, value, expire_at: None, .. } => {
            replicate(ctx, c"MIDI.SET", &[key, value])
        }
        Record::Set { key, value, expire_at: Some(at), .. } => {
            replicate(ctx, c"MIDI.SET", &[key, value, b"PXAT", number(at).as_bytes()])
        }
        Record::Del { key } => replicate(ctx, c"MIDI.DEL", &[key]),
        Record::PexpireAt { key, at } => {
            replicate(ctx, c"MIDI.PEXPIREAT", &[key, number(at).as_bytes()])
        }
        Record::Persist { key } => replicate(ctx, c"MIDI.PERSIST", &[key]),
        Record::Append { key, bytes } => replicate(ctx, c"MIDI.APPEND", &[key, bytes]),
        Record::SetRange { key, offset, bytes } => {
            replicate(ctx, c"MIDI.SETRANGE", &[key, number(offset.into()).as_bytes(), bytes])
        }
        Record::Rename { key, to } => replicate(ctx, c"MIDI.RENAME", &[key, to]),
        Record::Copy { key, to, db } => {
            let db = number(db.into());
            replicate(ctx, c"MIDI.COPY", &[key, to, b"DB", db.as_bytes(), b"REPLACE"])
        }
        Record::Move { key, db } => {
            replicate(ctx, c"MIDI.MOVE", &[key, number(db.into()).as_bytes()])
        }
        Record::FlushDb => replicate(ctx, c"MIDI.FLUSHDB", &[]),
        Record::FlushAll => replicate(ctx, c"MIDI.FLUSHALL", &[]),
        Record::SwapDb { a, b } => {
            let (a, b) = (number(a.into()), number(b.into()));
            replicate(ctx, c"MIDI.SWAPDB", &[a.as_bytes(), b.as_bytes()])
        }
        Record::Select { .. } | Record::Multi | Record::Exec => Wrote::Refused,
    }
}

/// Has the host log a command of midi's. It refuses a command that has been renamed.
fn replicate(ctx: Ctx<'_>, name: &CStr, args: &[&[u8]]) -> Wrote {
    let strings: ArrayVec<OwnString, ARGUMENTS> =
        args.iter().map(|text| OwnString::new(text)).collect();
    // SAFETY: the context is valid; the host takes references of its own to these strings, which
    // are pointers to its strings, as `v` wants them, with their number.
    let done = unsafe {
        api!(RedisModule_Replicate)(
            ctx.raw(),
            name.as_ptr(),
            c"v".as_ptr(),
            strings.as_ptr(),
            strings.len(),
        )
    };
    if done != raw::REDISMODULE_OK as i32 {
        return Wrote::Refused;
    }
    save_points::host_logged();
    Wrote::Taken
}

/// The main loop is about to sleep: logs the tail, as far as it may, and what follows at once.
/// True if the main loop should not sleep.
pub fn before_sleep(ctx: Ctx<'_>) -> bool {
    let engine = &*instance().engine;
    let Some(_logging) = Logging::begin(ctx) else { return false };
    if engine.gates().has(Gates::AOF_ERROR) {
        // What the host cannot write now, a rewrite of the AOF would write twice.
        return engine.log.before_sleep();
    }
    let left = engine.log_tail(ctx.locked());
    engine.log.before_sleep() | left
}

/// The main loop has slept, and the host has written its log before.
pub fn after_sleep(locked: Locked<'_>) {
    let engine = &*instance().engine;
    if engine.mode() != Mode::Fast {
        engine.after_sleep(locked);
    }
}

/// The system's number of the error that keeps the host from writing to its AOF; 0 if it is not
/// known. INFO has no more than that there is one, but the host names it to whoever wants to write.
pub fn error_number(ctx: Ctx<'_>) -> i32 {
    /// More than there are.
    const NUMBERS: std::ops::Range<i32> = 1..200;
    let text = ctx.refusal_of(c"MIDI.JOURNAL");
    let is_it = |number: &i32| {
        let reason = std::io::Error::from_raw_os_error(*number).to_string();
        let reason = reason.split(" (os error").next().unwrap_or_default();
        text.ends_with(reason.as_bytes())
    };
    NUMBERS.into_iter().find(is_it).unwrap_or(0)
}

/// The host's settings: whether its policy is `always`, and whether it syncs nothing while a child
/// lives. Says so if that takes a promise away.
pub fn settings_are(ctx: Ctx<'_>, is_always: bool, skips_fsyncs: bool) {
    let engine = &instance().engine;
    let runs_ahead = engine.settings.port.reply_after_run.load(Ordering::Relaxed);
    if is_always && !engine.log.reads_wait() && runs_ahead {
        log_line(ctx, Level::Notice, REPLY_AFTER_IGNORED);
    }
    engine.log.set_reads_wait(is_always);
    let skips = is_always && skips_fsyncs;
    if skips && !SKIPS_FSYNCS.swap(skips, Ordering::Relaxed) {
        let text = "With no-appendfsync-on-rewrite yes, appendfsync always does not sync the AOF \
                    while a child saves: a power failure may then take back what was acknowledged.";
        log_line(ctx, Level::Warning, text);
    }
    SKIPS_FSYNCS.store(skips, Ordering::Relaxed);
}

/// Whether the host syncs nothing while a child of it lives, although its policy is `always`.
pub fn skips_fsyncs() -> bool {
    SKIPS_FSYNCS.load(Ordering::Relaxed)
}
