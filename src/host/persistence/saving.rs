//! Saves: without a fork, while the keyspace is closed, and in children; and what became of them,
//! for INFO.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::super::api::{Ctx, clock_ms};
use super::super::gates::GATES;
use super::super::instance::instance;
use super::report::report;
use super::save_points;
use crate::engine::{AllHeld, Engine};

/// The field of the host's INFO that tells what came of the child, if that is a save.
static CHILD_STATUS: Mutex<Option<&'static CStr>> = Mutex::new(None);

/// Whether the tail of the log has been taken back for a save without a fork.
static TAIL_IS_BACK: AtomicBool = AtomicBool::new(false);

/// Whether DEBUG RELOAD has been called in this turn of the main loop.
static RELOADS: AtomicBool = AtomicBool::new(false);

/// Whether DEBUG LOADAOF has.
static LOADS_AOF: AtomicBool = AtomicBool::new(false);

/// The last save that succeeded: milliseconds since the epoch (0: none yet), keys, bytes,
/// microseconds.
static LAST: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
static FAILED: AtomicU64 = AtomicU64::new(0);
static LAST_FAILED: AtomicBool = AtomicBool::new(false);

/// The host begins to save without a fork: until the main loop turns again nobody may write. (It
/// does not turn after the save of SHUTDOWN, and what was written then would be lost.)
pub fn begin(ctx: Ctx<'_>) {
    save_points::add_changes(ctx);
    save_points::save_begins();
    GATES.begin_saving(ctx);
    // What DEBUG RELOAD saves is all that is there after it, and the tail is logged then.
    if !is_reload() && !TAIL_IS_BACK.swap(true, Ordering::Relaxed) {
        with_all_held(ctx, |engine, all| engine.ledger.take_back(ctx.locked(), all));
    }
}

/// DEBUG RELOAD is about to be executed or refused.
pub fn before_reload() {
    RELOADS.store(true, Ordering::Relaxed);
}

/// Whether DEBUG RELOAD may be running.
pub fn is_reload() -> bool {
    RELOADS.load(Ordering::Relaxed)
}

/// DEBUG LOADAOF is about to be executed or refused.
pub fn before_load_aof() {
    LOADS_AOF.store(true, Ordering::Relaxed);
}

/// Whether DEBUG LOADAOF may be running.
pub fn loads_aof() -> bool {
    LOADS_AOF.load(Ordering::Relaxed)
}

/// The host is about to empty its databases, or to load data. If a DEBUG command does that, the
/// host counts no changes.
pub fn before_load() {
    if is_reload() || loads_aof() {
        save_points::stop_counting();
    }
}

/// The host has loaded data, or has failed to. After DEBUG LOADAOF it counts from 0.
pub fn after_load() {
    save_points::go_on_counting(loads_aof());
}

/// The main loop turns: no command is running.
pub fn turn_ends() {
    RELOADS.store(false, Ordering::Relaxed);
    LOADS_AOF.store(false, Ordering::Relaxed);
}

/// What the host's log does not have yet must not be in the file either: a log that is read after
/// it has that.
fn with_all_held(ctx: Ctx<'_>, change: impl FnOnce(&Engine, &mut AllHeld<'_>)) {
    let engine = &instance().engine;
    if !engine.ledger.log.is_tail_empty() {
        let mut all = engine.shards().hold_all(ctx.locked());
        change(engine, &mut all);
        all.release();
    }
}

/// A save without a fork is over.
pub fn end(ctx: Ctx<'_>, succeeded: bool) {
    if TAIL_IS_BACK.swap(false, Ordering::Relaxed) {
        with_all_held(ctx, |engine, all| engine.ledger.make_again(ctx.locked(), all));
    }
    if succeeded {
        save_points::all_is_saved();
    }
    note(succeeded);
}

/// The host has forked a child, which may be a save.
pub fn child_was_born(ctx: Ctx<'_>) {
    let runs = |field| ctx.info_number(c"persistence", field) == Some(1);
    *CHILD_STATUS.lock() = if runs(c"rdb_bgsave_in_progress") {
        save_points::save_begins();
        Some(c"rdb_last_bgsave_status")
    } else if runs(c"aof_rewrite_in_progress") {
        Some(c"aof_last_bgrewrite_status")
    } else {
        None
    };
}

/// A child has ended. The host knows by now what came of it.
pub fn child_died(ctx: Ctx<'_>) {
    let status = CHILD_STATUS.lock().take();
    if let Some(status) = status {
        note(ctx.info_text(c"persistence", status).is_some_and(|text| text == b"ok"));
    }
}

fn note(succeeded: bool) {
    let Some(written) = report().take().filter(|_| succeeded) else {
        if !succeeded {
            FAILED.fetch_add(1, Ordering::Relaxed);
        }
        LAST_FAILED.store(!succeeded, Ordering::Relaxed);
        return;
    };
    let values = [clock_ms() as u64, written.keys, written.bytes, written.micros];
    LAST.iter().zip(values).for_each(|(field, value)| field.store(value, Ordering::Relaxed));
    LAST_FAILED.store(false, Ordering::Relaxed);
}

/// What is known of saves.
pub struct Saves {
    /// Whether the last save that ended has failed.
    pub last_failed: bool,
    /// Saves that failed.
    pub failed: u64,
    /// When the last save ended that succeeded, in seconds since the epoch; 0 for none.
    pub time: u64,
    /// Its keys.
    pub keys: u64,
    /// Its bytes, before the host compressed them.
    pub bytes: u64,
    /// How long it took to write midi's section, in microseconds.
    pub micros: u64,
}

/// What is known of saves so far.
pub fn saves() -> Saves {
    let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
    let [millis, keys, bytes, micros] = LAST.each_ref().map(read);
    Saves {
        last_failed: LAST_FAILED.load(Ordering::Relaxed),
        failed: read(&FAILED),
        time: millis / 1000,
        keys,
        bytes,
        micros,
    }
}
