//! Handing over: how midi's writes get into the host's AOF and replication stream.
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
//!
//! `context` knows where a thread may log, `replicate` how. `before_pause` hands the tail over when
//! clients are about to be paused, `always` has replies wait, `confirmed` is WAIT.

pub mod always;
pub mod before_pause;
pub mod confirmed;
mod context;
mod replicate;

use std::sync::atomic::Ordering;
use std::time::Instant;

pub use context::{Logging, TheLog, is_called_by_module};
pub use replicate::replicate_command;

use super::super::api::{Ctx, Level, log as log_line};
use super::super::config::table::REPLY_AFTER_IGNORED;
use super::super::instance::instance;
use crate::engine::{Gates, Locked, Mode};
use crate::limits::{AOF_LOOKED_AT_EVERY, GATHERED_BYTES};

/// The main loop is about to sleep: logs the tail, as far as it may, and what follows at once.
/// True if the main loop should not sleep.
pub fn before_sleep(ctx: Ctx<'_>) -> bool {
    let engine = &*instance().engine;
    let Some(_logging) = Logging::begin(ctx) else { return false };
    if engine.gates().has(Gates::AOF_ERROR) {
        // A rewrite of the AOF would write twice what the host cannot write now.
        return engine.ledger.log.before_sleep();
    }
    let logs = logs_in_this_turn();
    let left = logs && engine.ledger.log_tail(ctx.locked());
    if logs && engine.ledger.log.is_tail_empty() {
        instance().hand_over.tail_is_due.set(false);
    }
    engine.ledger.log.before_sleep() | left
}

/// Hands the tail over by calls of MIDI.JOURNAL, a part at a time: the host takes what a command
/// logs when that command ends.
pub fn hand_over(ctx: Ctx<'_>) {
    let log = &instance().engine.ledger.log;
    instance().hand_over.calls_journal.set(true);
    while !log.is_tail_empty() {
        // A part of a long text raises no position.
        let before = log.counts().batches;
        ctx.call_logging(c"MIDI.JOURNAL");
        if log.counts().batches == before {
            break;
        }
    }
    instance().hand_over.calls_journal.set(false);
}

/// If the host has called this command for [`hand_over`], logs a part of the tail.
#[cold]
pub fn hands_over(ctx: Ctx<'_>) -> bool {
    let is_ours = instance().hand_over.calls_journal.get();
    if is_ours {
        let _logging = Logging::begin(ctx);
        instance().engine.ledger.log_tail(ctx.locked());
    }
    is_ours
}

/// Whether the tail is to be logged when this turn ends: not while a worker gathers more for it.
pub fn logs_in_this_turn() -> bool {
    let bytes = instance().engine.ledger.log.tail_bytes();
    bytes >= GATHERED_BYTES || bytes > 0 && instance().hand_over.tail_is_due.get()
}

/// A task of a port has ended. If a command in it moved keys of the host's, that has logged its own
/// part, and the rest of its EXEC belongs to it.
pub fn after_task(locked: Locked<'_>) {
    if let Some(_logging) = Logging::begin(instance().ctx(locked)) {
        instance().engine.ledger.log_rest_of_unit(locked);
    }
}

/// Takes the tail back: the host will never have it in its log, for this reason. So the keys of a
/// new replica are what the stream says at the host's offset.
pub fn drop_tail(ctx: Ctx<'_>, reason: &str) {
    let lost = instance().engine.ledger.drop_tail(ctx.locked());
    if lost > 0 {
        let text = format!(
            "{reason}: midi takes back the writes that are not in the log yet ({lost} runs). Their \
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
    let (now, mut last) = (Instant::now(), instance().hand_over.looked_at_aof.lock());
    let is_due = last.is_none_or(|last| now - last >= AOF_LOOKED_AT_EVERY);
    if is_due {
        *last = Some(now);
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
    let before = std::mem::replace(&mut *instance().hand_over.skips_fsyncs.lock(), skips);
    if skips == Some(true) && before != skips {
        let text = "With no-appendfsync-on-rewrite yes, appendfsync always does not sync the AOF \
                    while a child saves: a power failure may then take back what was acknowledged.";
        log_line(ctx, Level::Warning, text);
    }
}
