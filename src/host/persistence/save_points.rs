//! Save points. The host counts the changes of its own keys, and saves after so many of them. A
//! module's are counted where it replicates something, one for each call. So midi replicates
//! nothing, once for each change of its keys.
//!
//! Where nothing consumes a log of writes, RM_ReplicateVerbatim does just that. Else it would write
//! to that log, and RM_Replicate is told to leave out both the AOF and the replicas. That costs
//! forty times as much, so it is done only until the save point with the most changes is reached.

use std::sync::atomic::{AtomicU64, Ordering};

use redis_module::raw;

use super::super::api::{Ctx, api};
use super::super::instance::instance;
use super::backlog;
use crate::limits::{CHANGES_AT_ONCE, CHANGES_AT_ONCE_WITH_BACKLOG};

/// Changes that the host has counted. It may be ahead of midi's own count: see [`host_logged`].
static COUNTED: AtomicU64 = AtomicU64::new(0);

/// The most changes that a save point of the host's waits for. At least 1: one may be set later,
/// and INFO says whether there is anything to save.
static NEEDED: AtomicU64 = AtomicU64::new(u64::MAX);

/// Changes that the host has counted since it last began to save.
static SINCE_SAVE: AtomicU64 = AtomicU64::new(0);

/// While changes do not count: how many the host had not counted before; else [`COUNTING`].
static UNCOUNTED: AtomicU64 = AtomicU64::new(COUNTING);
const COUNTING: u64 = u64::MAX;

/// The host's save points, as its setting `save` lists them: seconds and changes, in turn. `None`
/// if the host does not report them: then each change counts.
pub fn configure(save: Option<&[u8]>) {
    let most = save.map_or(u64::MAX, |save| {
        let changes = save.split(u8::is_ascii_whitespace).skip(1).step_by(2);
        let changes = changes.filter_map(|number| std::str::from_utf8(number).ok()?.parse().ok());
        changes.max().unwrap_or(0)
    });
    NEEDED.store(most.max(1), Ordering::Relaxed);
}

/// The host begins to save: if it succeeds, it counts from here.
pub fn save_begins() {
    SINCE_SAVE.store(0, Ordering::Relaxed);
    COUNTED.fetch_min(instance().engine.ledger.books.changes(), Ordering::Relaxed);
}

/// The host has logged something of midi's. It counts that as one change, whatever is in it.
pub fn host_logged() {
    COUNTED.fetch_add(1, Ordering::Relaxed);
    SINCE_SAVE.fetch_add(1, Ordering::Relaxed);
}

/// The host has saved everything, without a fork: nobody could write meanwhile.
pub fn all_is_saved() {
    COUNTED.store(instance().engine.ledger.books.changes(), Ordering::Relaxed);
}

/// Changes that the host has not counted. It wraps around if the host is ahead.
#[inline]
fn not_counted() -> u64 {
    instance().engine.ledger.books.changes().wrapping_sub(COUNTED.load(Ordering::Relaxed))
}

/// What changes until [`go_on_counting`] the host is not to count.
pub fn stop_counting() {
    let uncounted = not_counted();
    // Only the first of several calls.
    let _ = UNCOUNTED.compare_exchange(COUNTING, uncounted, Ordering::Relaxed, Ordering::Relaxed);
}

/// What changes from now on counts, and what was to be counted before [`stop_counting`]; `anew`:
/// but that, because the host counts from 0.
pub fn go_on_counting(anew: bool) {
    let uncounted = UNCOUNTED.swap(COUNTING, Ordering::Relaxed);
    if uncounted != COUNTING {
        let uncounted = if anew { 0 } else { uncounted };
        let changes = instance().engine.ledger.books.changes();
        COUNTED.store(changes.wrapping_sub(uncounted), Ordering::Relaxed);
    }
}

/// Has the host count the changes since the last time, as many as may be counted at once. In an
/// event's context.
#[inline]
pub fn add_changes(ctx: Ctx<'_>) {
    let new = not_counted();
    if new != 0 && new <= i64::MAX as u64 {
        add(ctx, new);
    }
}

#[cold]
fn add(ctx: Ctx<'_>, new: u64) {
    let consumed = backlog::may_be_there() || ctx.flags() & raw::REDISMODULE_CTX_FLAGS_AOF != 0;
    let most = if consumed { CHANGES_AT_ONCE_WITH_BACKLOG } else { CHANGES_AT_ONCE };
    if consumed && SINCE_SAVE.load(Ordering::Relaxed) >= NEEDED.load(Ordering::Relaxed) {
        COUNTED.fetch_add(new, Ordering::Relaxed);
        return;
    }
    // The host counts one when it logs the tail.
    let is_one_to_come = consumed && instance().engine.ledger.log.tail_bytes() > 0;
    let now = (new - u64::from(is_one_to_come)).min(most);
    for _ in 0..now {
        // SAFETY: an event's context; nothing is written to any log, see above. The format names
        // no arguments.
        unsafe {
            if consumed {
                let (command, nowhere) = (c"PING".as_ptr(), c"AR".as_ptr());
                api!(RedisModule_Replicate)(ctx.raw(), command, nowhere);
            } else {
                api!(RedisModule_ReplicateVerbatim)(ctx.raw());
            }
        }
    }
    COUNTED.fetch_add(now, Ordering::Relaxed);
    SINCE_SAVE.fetch_add(now, Ordering::Relaxed);
}
