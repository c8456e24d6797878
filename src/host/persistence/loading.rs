//! Loading midi's keys: at the start, by DEBUG RELOAD, and from a master.
//!
//! The section is read into a second keyspace, which takes the place of the first when the host
//! has loaded everything. So nothing half-loaded is ever served, and a `repl-diskless-load
//! swapdb` that is aborted leaves the old keys as they were.
//!
//! ```text
//! LOADING *_START ─► aux_load ─┬─ LOADING ENDED, REPL_ASYNC_LOAD COMPLETED: exchanged
//!                              └─ LOADING FAILED, REPL_ASYNC_LOAD ABORTED: dropped
//! ```
//!
//! While an AOF is loaded, FLUSHALL and the like act on what its base has already brought: they
//! find the keyspaces exchanged.

use std::sync::Arc;
use std::time::Instant;

use midi_module_api as raw;
use parking_lot::MutexGuard;

use super::super::api::{Ctx, Level};
use super::super::instance::instance;
use super::super::state::persistence::{LoadState, LoadedFrom};
use super::replay::{self, sync};
use crate::engine::{Locked, Staging, free_later};
use crate::limits::LOADING_LOGGED_EVERY;
use crate::snapshot::{self, LoadStats, Source};

/// What the host is loading, and has loaded.
fn state() -> MutexGuard<'static, LoadState> {
    instance().loads.lock()
}

/// The host begins to load data.
pub fn begin(locked: Locked<'_>, from: LoadedFrom) {
    replay::end();
    drop_loaded(locked);
    instance().engine.ledger.log.gathered.lock().clear();
    let errors = sync::errors(instance().ctx(locked));
    let mut state = state();
    state.from = Some(from);
    state.errors_before = errors;
    state.keeps_old = state.is_swap;
    instance().doing.load_begins(from == LoadedFrom::Aof);
}

/// `repl-diskless-load swapdb` begins: the old data stays until the new is complete.
pub fn begin_swap(locked: Locked<'_>) {
    drop_loaded(locked);
    state().is_swap = true;
}

/// Reads the section, on all workers.
///
/// # Errors
/// Why it is refused, for the log.
pub fn load(locked: Locked<'_>, version: i32, source: &mut dyn Source) -> Result<(), String> {
    let engine = &instance().engine;
    if state().loaded.is_some() {
        return Err("there is a second section".into());
    }
    let staging = Arc::new(Staging::new(engine.shards()));
    let began = Instant::now();
    let mut log = ProgressLog { next: began + LOADING_LOGGED_EVERY };
    state().progress = Some(LoadStats::default());
    let read = snapshot::load(engine, locked, version, &staging, source, &mut |stats| {
        log.progress(stats);
    });
    state().progress = None;
    let stats = read.map_err(|error| error.to_string())?;
    let staging = Arc::into_inner(staging).ok_or("internal error: it is still being read")?;
    check_duplicates(locked, &staging)?;
    let took = began.elapsed();
    let text = format!("Read {} keys in {:.3} seconds", stats.keys, took.as_secs_f64());
    instance().log(Level::Notice, &text);
    let mut state = state();
    state.loaded = Some(staging);
    state.distrusted = stats.distrusted;
    state.last = (stats.keys, took.as_millis() as u64);
    Ok(())
}

/// The host's rule for its own keys: a key that exists is replaced if the command says so, else the
/// data is refused. Only DEBUG RELOAD NOFLUSH finds keys at all.
fn check_duplicates(locked: Locked<'_>, staging: &Staging) -> Result<(), String> {
    let may_replace = {
        let state = state();
        state.is_swap || state.replaces
    };
    if !may_replace && staging.is_any_in(&instance().engine.ledger, locked) {
        return Err("it has keys that exist already".into());
    }
    Ok(())
}

/// The host has loaded everything.
pub fn end(locked: Locked<'_>) {
    if state().is_swap {
        return; // REPL_ASYNC_LOAD reports the end.
    }
    take_effect(locked);
    replay::end();
    instance().doing.load_ends();
    let mut state = state();
    state.replaces = false;
    let distrusted = std::mem::take(&mut state.distrusted);
    let (from, errors_before) = (state.from.take(), state.errors_before);
    drop(state);
    let ctx = instance().ctx(locked);
    if instance().gates.is_role_known(ctx.flags()) {
        forget_begun_text(ctx);
    }
    if from == Some(LoadedFrom::Master) || distrusted {
        instance().sync.loaded(distrusted);
    }
    if from == Some(LoadedFrom::Aof) {
        replay::check_databases(ctx, errors_before);
    }
}

/// If the host, which knows its role, is a master: the rest of a text that was begun will not come.
/// It was never acknowledged.
pub fn forget_begun_text(ctx: Ctx<'_>) {
    if ctx.flags() & raw::REDISMODULE_CTX_FLAGS_SLAVE == 0 {
        instance().engine.ledger.log.gathered.lock().clear();
    }
}

/// The host's data is exchanged for what was loaded, or, if `aborted`, stays.
pub fn end_swap(locked: Locked<'_>, aborted: bool) {
    state().is_swap = false;
    if aborted {
        return drop_loaded(locked);
    }
    let loaded = state().loaded.take();
    let engine = &instance().engine;
    // Without a section the master has none of midi's keys.
    let old =
        loaded.unwrap_or_else(|| Staging::new(engine.shards())).install(&engine.ledger, locked);
    free_later(engine, old);
    let mut state = state();
    state.from = None;
    instance().sync.loaded(std::mem::take(&mut state.distrusted));
}

/// The load has failed.
pub fn fail(locked: Locked<'_>) {
    replay::end();
    drop_loaded(locked);
    instance().doing.load_ends();
    let mut state = state();
    state.replaces = false;
    if state.from.take() == Some(LoadedFrom::Master) && !state.keeps_old {
        let text = "The full sync failed: midi has no keys until the next one succeeds.";
        instance().log(Level::Warning, text);
    }
}

/// Makes what has been loaded the keyspace. Keys that are there already stay beside it. When
/// this returns, all texts of the AOF so far have taken effect.
pub fn take_effect(locked: Locked<'_>) {
    replay::settle(locked);
    let engine = &instance().engine;
    let loaded = {
        let mut state = state();
        if state.is_swap { None } else { state.loaded.take() }
    };
    let Some(loaded) = loaded else { return };
    if engine.ledger.books.keys() == 0 {
        free_later(engine, loaded.install(&engine.ledger, locked));
    } else {
        loaded.merge(&engine.ledger, locked);
    }
}

/// The host is about to empty databases. If that is for a full sync, it logs what midi loses: some
/// hosts take a server that has only midi's keys for empty, and do not keep them until the load
/// has succeeded.
pub fn before_flush(ctx: Ctx<'_>) {
    const FOR_SYNC: u32 = raw::REDISMODULE_CTX_FLAGS_REPLICA_IS_TRANSFERRING;
    let keys = instance().engine.ledger.books.keys();
    if keys > 0 && ctx.flags() & FOR_SYNC != 0 {
        let text = format!("A full sync takes the place of midi's {keys} keys");
        instance().log(Level::Notice, &text);
    }
}

fn drop_loaded(_: Locked<'_>) {
    let loaded = {
        let mut state = state();
        state.distrusted = false;
        state.loaded.take()
    };
    if let Some(loaded) = loaded {
        free_later(&instance().engine, loaded.into_remains());
    }
}

/// Notes the progress of loading, for INFO and the log.
struct ProgressLog {
    next: Instant,
}

impl ProgressLog {
    fn progress(&mut self, stats: LoadStats) {
        state().progress = Some(stats);
        if Instant::now() >= self.next {
            self.next += LOADING_LOGGED_EVERY;
            let text = format!("Reading keys: {} of {}", stats.keys, stats.expected_keys);
            instance().log(Level::Notice, &text);
        }
    }
}
