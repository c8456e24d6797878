//! Save points. The host counts the changes of its own keys, and saves after so many of them. A
//! module's are counted where it replicates something, one for each call. So midi replicates
//! nothing, once for each change of its keys.
//!
//! Where nothing consumes a log of writes, RM_ReplicateVerbatim does just that. Else it would write
//! to that log, and RM_Replicate is told to leave out both the AOF and the replicas. That costs
//! forty times as much, so it is done only until the save point with the most changes is reached.

use midi_module_api as raw;

use super::super::api::{Ctx, api};
use super::super::instance::instance;
use crate::limits::{CHANGES_AT_ONCE, CHANGES_AT_ONCE_WITH_BACKLOG};

/// The host's save points, as its setting `save` lists them: seconds and changes, in turn. `None`
/// if the host does not report them: then each change counts.
pub fn configure(save: Option<&[u8]>) {
    let most = save.map_or(u64::MAX, |save| {
        let changes = save.split(u8::is_ascii_whitespace).skip(1).step_by(2);
        let changes = changes.filter_map(|number| std::str::from_utf8(number).ok()?.parse().ok());
        changes.max().unwrap_or(0)
    });
    instance().save_points.needed.set(most.max(1));
}

/// The host begins to save: if it succeeds, it counts from here.
pub fn save_begins() {
    let (points, changes) = (&instance().save_points, instance().engine.ledger.books.changes());
    points.since_save.set(0);
    points.counted.set(points.counted.get().min(changes));
}

/// The host has logged something of midi's. It counts that as one change, whatever is in it.
pub fn host_logged() {
    let points = &instance().save_points;
    points.counted.add(1);
    points.since_save.add(1);
}

/// The host has saved everything, without a fork: nobody could write meanwhile.
pub fn all_is_saved() {
    instance().save_points.counted.set(instance().engine.ledger.books.changes());
}

/// The host is not to count changes until [`go_on_counting`].
pub fn stop_counting() {
    // Only the first of several calls.
    instance().save_points.uncounted.lock().get_or_insert_with(new_changes);
}

/// The host is to count changes again, and those that it had not counted before [`stop_counting`].
/// `anew`: without these, because it counts from 0.
pub fn go_on_counting(anew: bool) {
    let points = &instance().save_points;
    if let Some(uncounted) = points.uncounted.lock().take() {
        let uncounted = if anew { 0 } else { uncounted };
        let changes = instance().engine.ledger.books.changes();
        points.counted.set(changes.wrapping_sub(uncounted));
    }
}

/// Changes that the host has not counted; huge if it is ahead.
#[inline]
fn new_changes() -> u64 {
    instance().engine.ledger.books.changes().wrapping_sub(instance().save_points.counted.get())
}

/// Has the host count the changes since the last time, as many as may be counted at once. In an
/// event's context.
#[inline]
pub fn add_changes(ctx: Ctx<'_>) {
    let new = new_changes();
    if new != 0 && new <= i64::MAX as u64 {
        add(ctx, new);
    }
}

#[cold]
fn add(ctx: Ctx<'_>, new: u64) {
    let here = instance();
    let points = &here.save_points;
    let consumed = here.backlog.may_be_there() || ctx.flags() & raw::REDISMODULE_CTX_FLAGS_AOF != 0;
    let most = if consumed { CHANGES_AT_ONCE_WITH_BACKLOG } else { CHANGES_AT_ONCE };
    if consumed && points.since_save.get() >= points.needed.get() {
        return points.counted.add(new);
    }
    // The host counts one when it logs the tail.
    let is_one_to_come = consumed && here.engine.ledger.log.tail_bytes() > 0;
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
    points.counted.add(now);
    points.since_save.add(now);
}
