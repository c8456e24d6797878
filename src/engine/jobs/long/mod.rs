//! The long commands, cut into parts and slices.

mod chunks;
mod copy;
mod dump;
mod each;
mod field_lists;
mod fields;
mod free;
mod keys;
mod keyspace_digest;
mod lcs;
mod lost;
mod mget;
mod on_main;
mod populate;
mod random;
mod scan;
mod visits;

pub use fields::{FieldSink, FieldsReader};
pub use lost::{remove_lost_keys, remove_lost_keys_now};
pub use scan::ScanState;

use field_lists::FieldList;

use super::work::{Slice, Work};
use crate::command::{
    Action, Dumped, Error, Long, LongKeys, OnAllKeys, PopulateArgs, Reply, ScanArgs, digested_db,
    flush_waits, key_pattern,
};
use crate::engine::Engine;
use crate::engine::call::Call;
use crate::engine::context::Config;
use crate::engine::ledger::ChangedBy;
use crate::store::{Remains, Table};
use crate::sync::Locked;

/// Whether a call is long work, whether or not its tokens are free.
pub fn is_long(call: &Call<'_>) -> bool {
    call.row().long.is_known(&call.args, &call.limits)
}

/// The long work of a call. A flush takes effect here and now, so it needs the global lock; its
/// work is then to free the memory.
///
/// # Errors
/// An error in the arguments.
pub fn long_work(
    engine: &Engine,
    call: &Call<'_>,
    locked: Option<Locked<'_>>,
) -> Result<Work, Error> {
    let work = work_of(engine, call, locked)?;
    Ok(Work { sees_passed: call.now.sees_passed(), ..work })
}

fn work_of(engine: &Engine, call: &Call<'_>, locked: Option<Locked<'_>>) -> Result<Work, Error> {
    let which = match (call.row().action, call.row().long) {
        (Action::AllKeys(which), _) => which,
        (Action::EachKey(each), _) => return Ok(each::work(engine, call, each)),
        (_, Long::Found(LongKeys::Lcs)) => return lcs::work(engine, call),
        (_, Long::FoundAlone(LongKeys::Mget)) => return Ok(mget::work(engine, call)),
        (_, Long::FoundAlone(LongKeys::Copy)) => return Ok(copy::work(engine, call)),
        (_, Long::FoundAlone(LongKeys::Dump)) => {
            return Ok(fields::work(engine, call, Dumped::default()));
        }
        (_, Long::FoundAlone(LongKeys::Fields(parts))) => {
            return Ok(fields::work(engine, call, FieldList::new(parts)));
        }
        _ => return Err(Error::Internal),
    };
    match which {
        OnAllKeys::Keys => {
            Ok(keys::work(engine, call.db, key_pattern(call.args.get(1), &call.limits)?))
        }
        OnAllKeys::Scan => {
            Ok(scan::work(engine, call.db, &ScanArgs::parse(&call.args, &call.limits)?))
        }
        OnAllKeys::Populate => {
            Ok(populate::work(engine, call.db, PopulateArgs::parse(&call.args, &call.limits)?))
        }
        OnAllKeys::FlushDb => flush(engine, call, locked, Some(call.db)),
        OnAllKeys::FlushAll => flush(engine, call, locked, None),
        OnAllKeys::RandomKey => Ok(random::work(engine, call.db)),
        OnAllKeys::KeyspaceDigest => {
            let Config { databases, cluster, .. } = *engine.config();
            Ok(keyspace_digest::work(engine, digested_db(&call.args, databases, cluster)?))
        }
        OnAllKeys::DbSize | OnAllKeys::CountKeysInSlot | OnAllKeys::SwapDb => Err(Error::Internal),
    }
}

fn flush(
    engine: &Engine,
    call: &Call<'_>,
    locked: Option<Locked<'_>>,
    only: Option<u32>,
) -> Result<Work, Error> {
    let waits = flush_waits(&call.args)?;
    let remains = engine.ledger.flush(locked.ok_or(Error::Internal)?, only, ChangedBy::Midi);
    // Read now: a client that starts caching later has cached none of these.
    let cached = engine.ledger.notifications.is_tracked();
    if waits {
        return Ok(free::work(engine, remains, cached));
    }
    start_freeing(engine, remains, cached);
    Ok(free::work(engine, Vec::new(), false))
}

/// Frees tables that a flush of the host took out, on the workers, bit by bit. The host itself
/// notifies clients that cache its keys.
pub fn free_later(engine: &Engine, remains: Vec<Remains>) {
    start_freeing(engine, remains, false);
}

/// Frees tables that logged flushes have taken out.
pub(in crate::engine) fn free_flushed(engine: &Engine) {
    let tables = engine.ledger.log.take_flushed();
    let remains = tables.into_iter().map(Table::into_remains).collect();
    start_freeing(engine, remains, engine.ledger.notifications.is_tracked());
}

/// Frees tables on the workers. If clients may have `cached` these keys, they are notified.
fn start_freeing(engine: &Engine, remains: Vec<Remains>, cached: bool) {
    if !remains.is_empty() {
        engine.jobs.start_own(engine.context(), "free", free::work(engine, remains, cached));
    }
}

/// The task of work whose reply is just `OK`.
fn say_ok(reply: &mut dyn Reply, _: &Slice<'_>) -> bool {
    reply.ok();
    true
}
