//! What reads of one key, and SET without options, do where nothing else is to be done.

use crate::command::{Command, ReadKey, Reply};
use crate::engine::call::Call;
use crate::engine::ledger::Ledger;
use crate::engine::shards::HeldShard;
use crate::engine::slot::ThreadSlot;
use crate::limits::{SHARED_READ_ARGUMENTS, SHARED_READ_BYTES};
use crate::store::{EntryRef, KeyHash, Table, set_in_place};

/// Runs a command that only reads its key on a shard that threads may read together. False if it
/// has to take the shard; then nothing is done.
///
/// Not inlined: a second copy of the look-up beside the first made both slower, by a tenth.
#[inline(never)]
pub(super) fn read_shared(
    ledger: &Ledger,
    slot: &ThreadSlot,
    call: &Call<'_>,
    hash: KeyHash,
    shard: u32,
    reply: &mut dyn Reply,
) -> bool {
    let Some(shared) = ledger.shards.try_share(slot, shard, 0) else { return false };
    let is_done = !ledger.admission.is_emptied() && {
        let notes_use = ledger.eviction.notes_uses() && call.is_use();
        read_key(slot, shared.table(call.db), call, hash, notes_use, reply)
    };
    ledger.end_read(slot, shared);
    is_done
}

/// Runs it on a key. False if the key has expired, is long, has a use that is not noted, or the
/// command failed; then nothing is done.
#[inline(always)]
fn read_key(
    slot: &ThreadSlot,
    table: Option<&Table>,
    call: &Call<'_>,
    hash: KeyHash,
    notes_use: bool,
    reply: &mut dyn Reply,
) -> bool {
    let row = call.row();
    let entry = looked(table, hash, call.first_key());
    let needs_holder =
        |entry: &EntryRef<'_>| entry.is_expired(&call.now) || notes_use && !entry.is_use_noted();
    if entry.as_ref().is_some_and(needs_holder) {
        return false;
    }
    let start = slot.begin(call.command);
    let cx = ReadKey::new(entry, table, call.args, &call.limits, &call.now);
    let is_done = run_read(slot, row, &cx, reply);
    if is_done {
        slot.end(call.command, start);
    }
    is_done
}

/// Runs a command that only reads on its key, where others may read the shard, too, and counts the
/// look-up. False if the command failed or may take long; then nothing is done.
#[inline(always)]
pub(super) fn run_read(
    slot: &ThreadSlot,
    row: &Command,
    cx: &ReadKey<'_>,
    reply: &mut dyn Reply,
) -> bool {
    let is_done = is_short(row, cx) && row.action.read(cx, reply).is_ok();
    if is_done && row.looks_up_first(&cx.args) {
        slot.looked_up(cx.is_there());
    }
    is_done
}

/// Whether a read takes so little time that others may wait for it without sleeping.
#[inline(always)]
fn is_short(row: &Command, cx: &ReadKey<'_>) -> bool {
    cx.args.len() <= SHARED_READ_ARGUMENTS
        && (row.flags.fast || cx.weight() <= SHARED_READ_BYTES)
        && !(row.long_by_arguments && cx.args.len() > 2)
}

/// Runs a command that needs one shard, which the caller holds: GET, or SET without options, if
/// there is nothing to do but to read the value, or to write it over the one before. False if
/// it has to run in the general way; then nothing is done.
#[inline(always)]
pub(super) fn run_short<R: Reply + ?Sized>(
    ledger: &Ledger,
    slot: &ThreadSlot,
    call: &Call<'_>,
    hash: KeyHash,
    held: &mut HeldShard<'_>,
    reply: &mut R,
) -> bool {
    let row = call.row();
    if !(row.reads_value || row.sets_value) || !ledger.is_plain() {
        return false;
    }
    let notes_use = ledger.eviction.notes_uses() && call.is_use();
    let start = slot.begin(call.command);
    if row.reads_value {
        if !say_value(slot, held.table(call.db), call, hash, notes_use, reply) {
            return false;
        }
    } else {
        if !held.watched.is_empty()
            || ledger.refusal_in_database(call).is_some()
            || !set_value(held.db(call.db), call, hash, notes_use, reply)
        {
            return false;
        }
        slot.changed.add(1);
    }
    slot.end(call.command, start);
    true
}

/// Replies with a key's value, or null. False if the key has expired, is of another type, or is too
/// long for this thread's replies.
#[inline(always)]
fn say_value<R: Reply + ?Sized>(
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
fn set_value<R: Reply + ?Sized>(
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
