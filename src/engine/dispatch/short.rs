//! What GET, and SET without options, do where nothing else is to be done: see `Engine::run_short`.

use crate::command::Reply;
use crate::engine::call::Call;
use crate::engine::slot::ThreadSlot;
use crate::store::{EntryRef, KeyHash, Table, set_in_place};

/// Replies with a key's value, or null. False if the key has expired, is of another type, or is too
/// long for this thread's replies.
#[inline(always)]
pub(super) fn say_value<R: Reply + ?Sized>(
    slot: &ThreadSlot,
    table: Option<&Table>,
    call: &Call<'_>,
    hash: KeyHash,
    notes_use: bool,
    reply: &mut R,
) -> bool {
    let Some(entry) = looked(table, hash, call.args.get(1)) else {
        slot.misses.add(1);
        reply.null();
        return true;
    };
    if entry.is_expired(&call.now) {
        return false;
    }
    let Ok(value) = entry.string() else { return false };
    let is_short = !call.limits.has_reply_limit() || value.len() <= call.limits.max_reply_bytes;
    if is_short {
        if notes_use {
            value.note_use();
        }
        slot.hits.add(1);
        reply.value(&value);
    }
    is_short
}

// No closure, which would be a call.
#[inline(always)]
fn looked<'t>(table: Option<&'t Table>, hash: KeyHash, name: &[u8]) -> Option<EntryRef<'t>> {
    table?.look(hash, name)
}

/// Sets a value in the place of the one before.
#[inline(always)]
pub(super) fn set_value<R: Reply + ?Sized>(
    table: &mut Table,
    call: &Call<'_>,
    hash: KeyHash,
    notes_use: bool,
    reply: &mut R,
) -> bool {
    let (name, value, limits) = (call.args.get(1), call.args.get(2), &call.limits);
    let is_done = call.args.len() == 3
        && name.len() <= limits.max_key_bytes
        && value.len() < limits.keep_bytes.min(limits.max_value_bytes)
        && set_in_place(table, hash, name, value, notes_use);
    if is_done {
        reply.ok();
    }
    is_done
}
