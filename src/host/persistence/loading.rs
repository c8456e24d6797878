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
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use redis_module::raw;

use super::super::api::{Ctx, Level};
use super::super::instance::instance;
use super::replaying;
use super::sync::SYNC;
use crate::engine::{Locked, Staging, free_later};
use crate::journal::snapshot::{self, LoadStats, Source};
use crate::limits::LOADING_LOGGED_EVERY;

static STATE: Mutex<LoadState> = Mutex::new(LoadState {
    loaded: None,
    is_swap: false,
    keeps_old: false,
    is_sync: false,
    distrusted: false,
    replaces: false,
});

/// How many loads are under way of which the outermost is that of an AOF. A host may log a DEBUG
/// RELOAD: then there are two, and the host forgets the outer one when the inner one ends.
static AOF_DEPTH: AtomicUsize = AtomicUsize::new(0);

/// Whether a section is being read, and what has been read of it.
static IS_READING: AtomicBool = AtomicBool::new(false);
static KEYS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static EXPECTED: AtomicU64 = AtomicU64::new(0);
/// What the last section had, and how long it took to read it.
static LAST_KEYS: AtomicU64 = AtomicU64::new(0);
static LAST_MILLIS: AtomicU64 = AtomicU64::new(0);

/// What the host is loading.
struct LoadState {
    /// The keys that have been read, until they take effect.
    loaded: Option<Staging>,
    /// The old data is served meanwhile: `repl-diskless-load swapdb`.
    is_swap: bool,
    /// The same, until the next load begins: hosts differ in whether REPL_ASYNC_LOAD or LOADING
    /// reports a failure first.
    keeps_old: bool,
    /// It comes from a master.
    is_sync: bool,
    /// Its sender does not trust these keys.
    distrusted: bool,
    /// The command that loads it says that it replaces keys that exist (DEBUG RELOAD MERGE).
    replaces: bool,
}

/// Where data comes from that the host loads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LoadedFrom {
    /// Its own RDB.
    Rdb,
    /// Its own AOF.
    Aof,
    /// Its master.
    Master,
}

/// DEBUG RELOAD is about to be executed or refused; whether it replaces keys that exist.
pub fn before_reload(replaces: bool) {
    STATE.lock().replaces = replaces;
}

/// The host begins to load data.
pub fn begin(locked: Locked<'_>, from: LoadedFrom) {
    replaying::end();
    drop_loaded(locked);
    let mut state = STATE.lock();
    state.is_sync = from == LoadedFrom::Master;
    state.keeps_old = state.is_swap;
    if from == LoadedFrom::Aof || is_of_aof() {
        AOF_DEPTH.fetch_add(1, Ordering::Relaxed);
    }
}

/// A load is over.
fn leave() {
    if is_of_aof() {
        AOF_DEPTH.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether an AOF is being loaded.
pub fn is_of_aof() -> bool {
    AOF_DEPTH.load(Ordering::Relaxed) > 0
}

/// `repl-diskless-load swapdb` begins: the old data stays until the new is complete.
pub fn begin_swap(locked: Locked<'_>) {
    drop_loaded(locked);
    STATE.lock().is_swap = true;
}

/// Reads the section, on all workers.
///
/// # Errors
/// Why it is refused, for the log.
pub fn load(locked: Locked<'_>, version: i32, source: &mut dyn Source) -> Result<(), String> {
    let engine = &instance().engine;
    if STATE.lock().loaded.is_some() {
        return Err("there is a second section".into());
    }
    let staging = Arc::new(Staging::new(engine.shards()));
    let began = Instant::now();
    let mut log = ProgressLog { next: began + LOADING_LOGGED_EVERY };
    IS_READING.store(true, Ordering::Relaxed);
    let read = snapshot::load(engine, locked, version, &staging, source, &mut |stats| {
        log.progress(stats);
    });
    IS_READING.store(false, Ordering::Relaxed);
    let stats = read.map_err(|error| error.to_string())?;
    let staging = Arc::into_inner(staging).ok_or("internal error: it is still being read")?;
    check_duplicates(locked, &staging)?;
    LAST_KEYS.store(stats.keys, Ordering::Relaxed);
    LAST_MILLIS.store(began.elapsed().as_millis() as u64, Ordering::Relaxed);
    let text = format!("Read {} keys in {:.3} seconds", stats.keys, began.elapsed().as_secs_f64());
    instance().log(Level::Notice, &text);
    let mut state = STATE.lock();
    state.loaded = Some(staging);
    state.distrusted = stats.distrusted;
    Ok(())
}

/// The host's rule for its own keys: a key that exists is replaced if the command says so, else the
/// data is refused. Only DEBUG RELOAD NOFLUSH finds keys at all.
fn check_duplicates(locked: Locked<'_>, staging: &Staging) -> Result<(), String> {
    let may_replace = {
        let state = STATE.lock();
        state.is_swap || state.replaces
    };
    if !may_replace && staging.is_any_in(&instance().engine.ledger, locked) {
        return Err("it has keys that exist already".into());
    }
    Ok(())
}

/// The host has loaded everything.
pub fn end(locked: Locked<'_>) {
    if STATE.lock().is_swap {
        return; // REPL_ASYNC_LOAD reports the end.
    }
    take_effect(locked);
    replaying::end();
    leave();
    let mut state = STATE.lock();
    state.replaces = false;
    let distrusted = std::mem::take(&mut state.distrusted);
    if std::mem::take(&mut state.is_sync) || distrusted {
        SYNC.loaded(distrusted);
    }
}

/// The host's data is exchanged for what was loaded, or, if `aborted`, stays.
pub fn end_swap(locked: Locked<'_>, aborted: bool) {
    STATE.lock().is_swap = false;
    if aborted {
        return drop_loaded(locked);
    }
    let loaded = STATE.lock().loaded.take();
    let engine = &instance().engine;
    // Without a section the master has none of midi's keys.
    let old =
        loaded.unwrap_or_else(|| Staging::new(engine.shards())).install(&engine.ledger, locked);
    free_later(engine, old);
    let mut state = STATE.lock();
    state.is_sync = false;
    SYNC.loaded(std::mem::take(&mut state.distrusted));
}

/// The load has failed.
pub fn fail(locked: Locked<'_>) {
    replaying::end();
    drop_loaded(locked);
    leave();
    let mut state = STATE.lock();
    state.replaces = false;
    if std::mem::take(&mut state.is_sync) && !state.keeps_old {
        let text = "The full sync failed: midi has no keys until the next one succeeds.";
        instance().log(Level::Warning, text);
    }
}

/// Makes what has been loaded the keyspace. Keys that are there already stay beside it. What an AOF
/// has brought since then has taken effect when this returns.
pub fn take_effect(locked: Locked<'_>) {
    replaying::settle(locked);
    let engine = &instance().engine;
    let loaded = {
        let mut state = STATE.lock();
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
        let mut state = STATE.lock();
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
        KEYS.store(stats.keys, Ordering::Relaxed);
        BYTES.store(stats.bytes, Ordering::Relaxed);
        EXPECTED.store(stats.expected_keys, Ordering::Relaxed);
        if Instant::now() >= self.next {
            self.next += LOADING_LOGGED_EVERY;
            let text = format!("Reading keys: {} of {}", stats.keys, stats.expected_keys);
            instance().log(Level::Notice, &text);
        }
    }
}

/// What has been read of a section, if one is being read: keys, bytes, and how many keys it has.
pub fn progress() -> Option<(u64, u64, u64)> {
    let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
    IS_READING.load(Ordering::Relaxed).then(|| (read(&KEYS), read(&BYTES), read(&EXPECTED)))
}

/// Keys of the last section that was read, and how many milliseconds that took.
pub fn last() -> (u64, u64) {
    (LAST_KEYS.load(Ordering::Relaxed), LAST_MILLIS.load(Ordering::Relaxed))
}
