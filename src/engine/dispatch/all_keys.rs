//! Commands over all shards that are short enough to run at once.

use smallvec::SmallVec;

use crate::command::slot::slot_arg;
use crate::command::{Cluster, Error, OnAllKeys, Reply, ScanArgs, swapped_dbs};
use crate::engine::Engine;
use crate::engine::call::{Call, Outcome, Taking};
use crate::engine::jobs::ScanState;
use crate::engine::ledger::ChangedBy;
use crate::engine::slot::ThreadSlot;
use crate::limits::{RANDOM_BUCKETS, RANDOM_DRAWS, SCAN_AT_ONCE, SCAN_SHARDS};
use crate::store::{KeyHasher, Now, Table};

/// Tries to run a command over all shards on this thread.
pub(super) fn attempt(
    engine: &Engine,
    slot: &ThreadSlot,
    call: &Call<'_>,
    taking: Taking<'_>,
    which: OnAllKeys,
    reply: &mut dyn Reply,
) -> Outcome {
    let count = |keys: i64, reply: &mut dyn Reply| {
        if !engine.ledger.see_counted(slot) {
            return Outcome::NeedsMain;
        }
        reply.integer(keys);
        Outcome::Done
    };
    slot.counted(call.command, || {
        let result = match which {
            OnAllKeys::DbSize => Ok(count(engine.ledger.books.census(call.db).keys, reply)),
            OnAllKeys::CountKeysInSlot => {
                count_keys_in_slot(engine, call).map(|keys| count(keys as i64, reply))
            }
            OnAllKeys::RandomKey => Ok(random_key(engine, slot, call, taking, reply)),
            OnAllKeys::Scan => scan(engine, slot, call, taking, reply),
            OnAllKeys::SwapDb => swap(engine, slot, call, reply),
            OnAllKeys::Keys
            | OnAllKeys::KeyspaceDigest
            | OnAllKeys::Populate
            | OnAllKeys::FlushDb
            | OnAllKeys::FlushAll => Ok(Outcome::Long),
        };
        result.unwrap_or_else(|error| call.outcome_of(slot, Err(error), reply))
    })
}

fn count_keys_in_slot(engine: &Engine, call: &Call<'_>) -> Result<u64, Error> {
    let slot = slot_arg(&call.args, 1)?;
    if engine.ledger.slots.are_on() {
        Ok(engine.ledger.slots.keys(slot))
    } else {
        Err(Error::NoCluster)
    }
}

/// Only the main thread exchanges databases, because it may wait for all tokens.
fn swap(
    engine: &Engine,
    slot: &ThreadSlot,
    call: &Call<'_>,
    reply: &mut dyn Reply,
) -> Result<Outcome, Error> {
    if engine.config().cluster != Cluster::Off {
        return Err(Error::NotInCluster("SWAPDB"));
    }
    let (a, b) = swapped_dbs(&call.args, engine.config().databases)?;
    let Some(locked) = slot.locked() else { return Ok(Outcome::Long) };
    if a != b {
        engine.ledger.swap_dbs(locked, a, b, ChangedBy::Midi);
    }
    reply.ok();
    Ok(Outcome::Done)
}

fn scan(
    engine: &Engine,
    slot: &ThreadSlot,
    call: &Call<'_>,
    taking: Taking<'_>,
    reply: &mut dyn Reply,
) -> Result<Outcome, Error> {
    let args = ScanArgs::parse(&call.args, &call.limits)?;
    if args.count > SCAN_AT_ONCE {
        return Ok(Outcome::Long);
    }
    let mut scan = ScanState::new(engine, &args, call.db);
    for visits in 0..SCAN_SHARDS {
        // A shorter reply is correct as long as its cursor is.
        if scan.is_done() || scan.bytes() > call.limits.max_reply_bytes / 2 {
            break;
        }
        let Some(held) = engine.shards().take(scan.shard(), taking) else {
            if visits > 0 {
                break;
            }
            return Ok(Outcome::Busy);
        };
        let shard = scan.shard();
        scan.visit(engine, &held, &call.now, &mut || false);
        engine.ledger.release(slot, shard, held);
    }
    if scan.bytes() > call.limits.max_reply_bytes {
        return Ok(Outcome::TooLarge);
    }
    scan.reply(reply, None);
    Ok(Outcome::Done)
}

/// Draws shards, and a bucket in each, until one gives a key. If that keeps failing, because
/// there are few keys or most have expired, the search for one is long work.
fn random_key(
    engine: &Engine,
    slot: &ThreadSlot,
    call: &Call<'_>,
    taking: Taking<'_>,
    reply: &mut dyn Reply,
) -> Outcome {
    if engine.ledger.books.census(call.db).keys == 0 {
        if !engine.ledger.see_counted(slot) {
            return Outcome::NeedsMain;
        }
        reply.null();
        return Outcome::Done;
    }
    for _ in 0..RANDOM_DRAWS {
        let draw = fastrand::u64(..);
        let shard = engine.shards().drawn(draw as u32);
        let Some(held) = engine.shards().take(shard, taking) else { continue };
        let table = held.table(call.db);
        let key =
            table.and_then(|table| random_entry(table, &engine.shards().hasher, draw, &call.now));
        engine.ledger.release(slot, shard, held);
        if let Some(key) = key {
            reply.bulk(&key);
            return Outcome::Done;
        }
    }
    Outcome::Long
}

/// Any live key of the bucket that a random number falls into, or of one of the next buckets;
/// `None` if none of these has one.
fn random_entry(table: &Table, hasher: &KeyHasher, draw: u64, now: &Now) -> Option<Vec<u8>> {
    let mut cursor = Some(table.bucket_start((draw >> 32) as u32));
    for _ in 0..RANDOM_BUCKETS {
        let at = cursor.unwrap_or(0);
        let mut live: SmallVec<[Vec<u8>; 8]> = SmallVec::new();
        cursor = table.scan_bucket(hasher, at, &mut |entry| {
            if !entry.is_expired(now) {
                live.push(entry.key().to_vec());
            }
        });
        if !live.is_empty() {
            let chosen = (draw as u32 >> 8) as usize % live.len();
            return Some(live.swap_remove(chosen));
        }
    }
    None
}
