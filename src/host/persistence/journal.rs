//! The host's log of writes, the AOF: how midi's writes get into it.
//!
//! ```text
//! host's door ── own effect, and the tail before it ──► RM_Replicate, in the command's context
//! ports, jobs, queued commands ──► tail ── BEFORE_SLEEP ──► RM_Replicate, in the event's context
//!                                                              │ the host writes, and syncs
//! AFTER_SLEEP ─► what was logged before is safe ◄──────────────┘
//! ```
//!
//! A context calls RM_Replicate once, unless what it logs must be together and cannot be one text.
//! The host wraps several calls in MULTI and EXEC, and Redis, up to 8.6 at least, cannot repair a
//! file that ends inside of these: it later drops what was appended. So a command that finds a tail
//! logs it, and its own effect, as one MIDI.JOURNAL.

use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::sync::atomic::Ordering;
use std::time::Instant;

use redis_module::raw;
use smallvec::SmallVec;

use super::super::api::{Ctx, Level, RawCtx, api, log as log_line};
use super::super::config::table::REPLY_AFTER_IGNORED;
use super::super::instance::instance;
use super::super::pause;
use super::super::string::{HostString, OwnString};
use super::save_points;
use crate::command::record::{Record, Records, is_text_of};
use crate::engine::{Gates, Locked, Logged, Mode, Wrote, as_command};
use crate::limits::{AOF_LOOKED_AT_EVERY, GATHERED_BYTES};

thread_local! {
    /// Where this thread may log.
    static PLACE: Cell<Option<LogPlace>> = const { Cell::new(None) };

    /// When the main thread last looked whether the host can write to its AOF.
    static LOOKED_AT_AOF: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// A context in which a thread may log.
#[derive(Clone, Copy)]
struct LogPlace {
    ctx: *mut RawCtx,
    /// The command that the host has called in it, without its prefix, and its arguments, the name
    /// included.
    command: Option<(&'static str, *const [HostString<'static>])>,
}

/// The most arguments of a command that stands for a record, but for BITOP.
const ARGUMENTS: usize = 5;

/// While it lives, this thread logs in this context.
pub struct Logging {
    outer: Option<LogPlace>,
}

impl Logging {
    /// What the thread does from now on is logged in the context of an event in which midi may log.
    /// `None` if nothing is logged.
    #[inline]
    pub fn begin(ctx: Ctx<'_>) -> Option<Self> {
        Self::at(LogPlace { ctx: ctx.raw(), command: None })
    }

    /// As [`Logging::begin`], in the context of a command of midi's: its name without the prefix,
    /// and its arguments.
    #[inline]
    pub fn begin_command(
        ctx: Ctx<'_>,
        name: &'static str,
        argv: &[HostString<'_>],
    ) -> Option<Self> {
        let argv: *const [HostString<'_>] = argv;
        Self::at(LogPlace { ctx: ctx.raw(), command: Some((name, argv as *const _)) })
    }

    fn at(place: LogPlace) -> Option<Self> {
        let is_logged = instance().engine.mode() != Mode::Fast;
        is_logged.then(|| Logging { outer: PLACE.replace(Some(place)) })
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        PLACE.set(self.outer);
    }
}

/// Whether the host lets a module log in this context. It ends its process otherwise. During a
/// pause only the transaction that has begun it may.
pub fn may_log(ctx: Ctx<'_>) -> bool {
    !pause::is_on(ctx.locked())
        || ctx.flags() & raw::REDISMODULE_CTX_FLAGS_MULTI != 0
            && !instance().pause.was_on_before_exec.get()
}

/// Whether there is a context in which this thread may log.
pub fn may_log_here(_: Locked<'_>) -> bool {
    // SAFETY: `Logging` was made of a context that is valid while it lives.
    PLACE.get().is_some_and(|place| may_log(unsafe { Ctx::new(place.ctx) }))
}

/// Writes to the host's log.
pub fn write(_: Locked<'_>, logged: Logged<'_>) -> Wrote {
    let Some(place) = PLACE.get() else { return Wrote::Refused };
    // SAFETY: as in `may_log_here`.
    let ctx = unsafe { Ctx::new(place.ctx) };
    let is_of_others = || !logged.is_own_only() && !is_handing_over();
    if !may_log(ctx) || is_of_others() && is_called_by_module(ctx) {
        return Wrote::Refused;
    }
    let as_command = match logged {
        Logged::Record { db, text, .. } if db == ctx.selected_db() => {
            if place.is_command(text) {
                return replicate_command(ctx);
            }
            as_command(text)
        }
        _ => None,
    };
    match as_command {
        Some(record) => replicate_record(ctx, record),
        None if instance().slots.leaving.get() => replicate_each(ctx, &logged.text()),
        None => replicate(ctx, c"MIDI.JOURNAL", &[&logged.text()]),
    }
}

impl LogPlace {
    /// Whether the command that the host has called says just what this record says.
    fn is_command(&self, record: &[u8]) -> bool {
        let Some((name, argv)) = self.command else { return false };
        // SAFETY: `Logging` was made of arguments that are valid while it lives.
        let argv = unsafe { &*argv };
        is_text_of(record, name, argv.iter().skip(1).map(|arg| arg.bytes()))
    }
}

/// Has the host log the command that it has called, as it stands: that takes a tenth of what
/// another command takes.
pub fn replicate_command(ctx: Ctx<'_>) -> Wrote {
    // SAFETY: the context is that of a command.
    let done = unsafe { api!(RedisModule_ReplicateVerbatim)(ctx.raw()) };
    wrote(done)
}

/// What an answer of the host to a call for its log says.
fn wrote(done: c_int) -> Wrote {
    if done != raw::REDISMODULE_OK as c_int {
        return Wrote::Refused;
    }
    save_points::host_logged();
    Wrote::Taken
}

/// Whether another module has called the command. If it did not ask for replication, the host
/// logs nothing of what is done here, and reports nothing: that is not for the writes of others.
pub fn is_called_by_module(ctx: Ctx<'_>) -> bool {
    const UNIT: u32 = raw::REDISMODULE_CTX_FLAGS_MULTI | raw::REDISMODULE_CTX_FLAGS_LUA;
    ctx.flags() & (UNIT | raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING)
        == raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING
}

/// Has the host log each record of a text as a command: a migration of slots takes along only what
/// names its keys. How values came about does not get into the log then.
fn replicate_each(ctx: Ctx<'_>, text: &[u8]) -> Wrote {
    let Ok(records) = Records::new(text) else { return Wrote::Refused };
    let previous = ctx.selected_db();
    let mut all = Wrote::Taken;
    for record in records.flatten() {
        match record {
            Record::Select { db } => _ = ctx.select_db(db),
            // The host makes one transaction of all.
            Record::Multi | Record::Exec => {}
            Record::SetRanges { key, pieces } => {
                for (offset, bytes) in pieces.iter() {
                    let part = Record::SetRange { key, offset: offset as u32, bytes };
                    if replicate_record(ctx, part) == Wrote::Refused {
                        all = Wrote::Refused;
                    }
                }
            }
            record => {
                if replicate_record(ctx, record) == Wrote::Refused {
                    all = Wrote::Refused;
                }
            }
        }
    }
    ctx.select_db(previous);
    all
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
        Record::Restore { key, payload, expire_at } => {
            let at = number(expire_at.unwrap_or(0));
            let args: [&[u8]; 5] = [key, at.as_bytes(), payload, b"REPLACE", b"ABSTTL"];
            replicate(ctx, c"MIDI.RESTORE", &args)
        }
        Record::BitOp { args } => replicate(ctx, c"MIDI.BITOP", &args.iter().collect::<Vec<_>>()),
        // No command says so: see `as_command`.
        Record::Select { .. } | Record::Multi | Record::Exec | Record::SetRanges { .. } => {
            Wrote::Refused
        }
    }
}

/// Has the host log a command of midi's. It refuses a command that has been renamed.
fn replicate(ctx: Ctx<'_>, name: &CStr, args: &[&[u8]]) -> Wrote {
    let strings: SmallVec<[OwnString; ARGUMENTS]> =
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
    wrote(done)
}

/// The main loop is about to sleep: logs the tail, as far as it may, and what follows at once.
/// True if the main loop should not sleep.
pub fn before_sleep(ctx: Ctx<'_>) -> bool {
    let engine = &*instance().engine;
    let Some(_logging) = Logging::begin(ctx) else { return false };
    if engine.gates().has(Gates::AOF_ERROR) {
        // What the host cannot write now, a rewrite of the AOF would write twice.
        return engine.ledger.log.before_sleep();
    }
    let logs = logs_in_this_turn();
    let left = logs && engine.ledger.log_tail(ctx.locked());
    if logs && engine.ledger.log.is_tail_empty() {
        instance().journal.tail_is_due.set(false);
    }
    engine.ledger.log.before_sleep() | left
}

/// Hands the tail over by calls of MIDI.JOURNAL, a part at a time: what a command logs, the host
/// takes when that command ends.
pub fn hand_over(ctx: Ctx<'_>) {
    let log = &instance().engine.ledger.log;
    instance().journal.hands_over.set(true);
    while !log.is_tail_empty() {
        let before = log.logged();
        ctx.call_logging(c"MIDI.JOURNAL");
        if log.logged() == before {
            break;
        }
    }
    instance().journal.hands_over.set(false);
}

fn is_handing_over() -> bool {
    instance().journal.hands_over.get()
}

/// If the host has called this command for [`hand_over`], logs a part of the tail.
#[cold]
pub fn hands_over(ctx: Ctx<'_>) -> bool {
    if is_handing_over() {
        let _logging = Logging::begin(ctx);
        instance().engine.ledger.log_tail(ctx.locked());
    }
    is_handing_over()
}

/// Whether the tail is to be logged when this turn ends: not while a worker gathers more for it.
pub fn logs_in_this_turn() -> bool {
    let bytes = instance().engine.ledger.log.tail_bytes();
    bytes >= GATHERED_BYTES || bytes > 0 && instance().journal.tail_is_due.get()
}

/// A task of a port has ended. A command that moved keys of the host's has logged its own part:
/// what its EXEC did after it belongs to that.
pub fn after_task(locked: Locked<'_>) {
    if let Some(_logging) = Logging::begin(instance().ctx(locked)) {
        instance().engine.ledger.log_rest_of_unit(locked);
    }
}

/// What the host does not have in its log by now will never be there, for this reason: that is
/// taken back. So the keys of a new replica are what the stream says at the host's offset.
pub fn drop_tail(ctx: Ctx<'_>, reason: &str) {
    let lost = instance().engine.ledger.drop_tail(ctx.locked());
    if lost > 0 {
        let text = format!(
            "{reason}: {lost} runs of writes that were not logged yet were taken back. Their \
             clients are answered -UNBLOCKED."
        );
        log_line(ctx, Level::Warning, &text);
    }
}

/// The main loop has slept, and the host has written its log before.
pub fn after_sleep(locked: Locked<'_>) {
    let engine = &*instance().engine;
    if engine.mode() != Mode::Fast {
        engine.ledger.after_sleep(locked);
    }
}

/// Whether the host's AOF must be looked at: the host has written to it, if it could, and the last
/// look was some time ago. To be asked before [`after_sleep`]: who has a reply then finds the doors
/// closed. (With `always` the host ends its process if it cannot write.)
pub fn is_aof_to_be_looked_at() -> bool {
    let engine = &instance().engine;
    let log = &engine.ledger.log;
    if !engine.gates().has(Gates::AOF_ON) || log.reads_wait() || log.logged() <= log.safe() {
        return false;
    }
    let now = Instant::now();
    let is_due = LOOKED_AT_AOF.get().is_none_or(|last| now - last >= AOF_LOOKED_AT_EVERY);
    if is_due {
        LOOKED_AT_AOF.set(Some(now));
    }
    is_due
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
/// lives, `None` if it does not report that. Says so if that takes a promise away.
pub fn settings_are(ctx: Ctx<'_>, is_always: bool, skips_fsyncs: Option<bool>) {
    let engine = &instance().engine;
    let runs_ahead = engine.settings().port.reply_after_run.load(Ordering::Relaxed);
    if is_always && !engine.ledger.log.reads_wait() && runs_ahead {
        log_line(ctx, Level::Notice, REPLY_AFTER_IGNORED);
    }
    engine.ledger.log.set_reads_wait(is_always);
    // Only `always` has a promise that this takes away.
    let skips = if is_always { skips_fsyncs } else { Some(false) };
    let before = std::mem::replace(&mut *instance().journal.skips_fsyncs.lock(), skips);
    if skips == Some(true) && before != skips {
        let text = "With no-appendfsync-on-rewrite yes, appendfsync always does not sync the AOF \
                    while a child saves: a power failure may then take back what was acknowledged.";
        log_line(ctx, Level::Warning, text);
    }
}
