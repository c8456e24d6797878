//! Saves: without a fork, while the keyspace is closed, and in children; and what became of them,
//! for INFO.

use std::ffi::CStr;

use super::super::api::{Ctx, clock_ms};
use super::super::instance::instance;
use super::super::state::persistence::SavedFile;
use super::report::report;
use super::save_points;
use crate::engine::{AllHeld, Engine};

/// The host begins to save without a fork: until the main loop turns again nobody may write. (It
/// does not turn after the save of SHUTDOWN, and what was written then would be lost.)
pub fn begin(ctx: Ctx<'_>) {
    save_points::add_changes(ctx);
    save_points::save_begins();
    let doing = &instance().doing;
    // DEBUG RELOAD loads nothing but what it saves, and the tail is logged after it.
    let takes_back = doing.save_begins(!doing.reloads());
    instance().gates.doing_changed(ctx);
    if takes_back {
        with_all_held(ctx, |engine, all| engine.ledger.take_back(ctx.locked(), all));
    }
}

/// The host is about to empty its databases, or to load data. If a DEBUG command does that, the
/// host counts no changes.
pub fn before_load() {
    let doing = &instance().doing;
    if doing.reloads() || doing.loads_aof() {
        save_points::stop_counting();
    }
}

/// The host has loaded data, or has failed to. After DEBUG LOADAOF it counts from 0.
pub fn after_load() {
    let doing = &instance().doing;
    save_points::go_on_counting(doing.loads_aof());
    doing.debug_has_loaded();
}

/// Changes the keyspace by the tail, which must not be in the file: a log that is read after the
/// file has it.
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
    if instance().doing.save_ends() {
        with_all_held(ctx, |engine, all| engine.ledger.make_again(ctx.locked(), all));
    }
    if succeeded {
        save_points::all_is_saved();
    }
    note_counted(ctx.info_number(c"persistence", COUNTED));
    note(SavedFile::Rdb, succeeded);
}

/// The field of the host's INFO that counts saves to RDB files.
pub const COUNTED: &CStr = c"rdb_saves";

/// The host has forked a child, which may be a save.
pub fn child_was_born(ctx: Ctx<'_>) {
    // A thread that is not the main thread has not looked before it forked.
    instance().gates.doing_changed(ctx);
    let info = ctx.info(c"persistence");
    let runs = |field| info.number(field) == Some(1);
    let child = if runs(c"rdb_bgsave_in_progress") {
        save_points::save_begins();
        // Else it sends a replica its keys: the host tells them apart in no other way.
        has_counted(info.number(COUNTED)).then_some(SavedFile::Rdb)
    } else {
        runs(c"aof_rewrite_in_progress").then_some(SavedFile::Aof)
    };
    instance().saves.lock().child = child;
}

/// Notes how many saves the host has counted, while it has no child. CONFIG RESETSTAT has it count
/// from 0.
pub fn note_counted(counted: Option<u64>) {
    instance().saves.lock().counted = counted.unwrap_or(0);
}

/// Whether the host has counted a save since it was last noted how many. Also if it reports none.
fn has_counted(counted: Option<u64>) -> bool {
    let before = instance().saves.lock().counted;
    note_counted(counted);
    counted != Some(before)
}

/// A child has ended. The host knows by now what came of it.
pub fn child_died(ctx: Ctx<'_>) {
    // A save that failed may stop writes.
    instance().gates.may_change();
    let Some(child) = instance().saves.lock().child.take() else {
        // What it has reported is in no file.
        report().take();
        return;
    };
    let status = match child {
        SavedFile::Rdb => c"rdb_last_bgsave_status",
        SavedFile::Aof => c"aof_last_bgrewrite_status",
    };
    note(child, ctx.info_text(c"persistence", status).is_some_and(|text| text == b"ok"));
}

fn note(what: SavedFile, succeeded: bool) {
    let mut saves = instance().saves.lock();
    saves.have_failed[what as usize] = !succeeded;
    saves.failed += u64::from(!succeeded);
    if let Some(written) = report().take().filter(|_| succeeded) {
        (saves.time, saves.last) = (clock_ms() as u64 / 1000, written);
    }
}
