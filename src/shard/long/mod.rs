//! The long commands, cut into parts and slices.

mod free;
mod keys;
mod populate;
mod scan;

pub use scan::ScanState;

use super::engine::{Call, Engine};
use super::job::{Slice, Task, Work};
use crate::command::{Action, Error, Keyspace, PopulateArgs, Reply, ScanArgs, flush_waits, key_pattern};
use crate::store::Remains;

/// Long work that a call asks for. For the holder of the global lock: a flush
/// happens here and now, and what is left to do is to free the memory.
///
/// # Errors
/// What is wrong with the arguments.
pub fn long_work(engine: &Engine, call: &Call<'_>) -> Result<Work, Error> {
    let Action::Keyspace(which) = call.row().action else {
        return Err(Error::Internal);
    };
    match which {
        Keyspace::Keys => Ok(keys::work(engine, call.db, key_pattern(call.args.get(1), &call.limits)?)),
        Keyspace::Scan => Ok(scan::work(engine, call.db, &ScanArgs::parse(&call.args, &call.limits)?)),
        Keyspace::Populate => {
            Ok(populate::work(engine, call.db, PopulateArgs::parse(&call.args, &call.limits)?))
        }
        Keyspace::FlushDb => flush(engine, call, Some(call.db)),
        Keyspace::FlushAll => flush(engine, call, None),
        Keyspace::RandomKey | Keyspace::DbSize => Err(Error::Internal),
    }
}

fn flush(engine: &Engine, call: &Call<'_>, only: Option<u32>) -> Result<Work, Error> {
    let waits = flush_waits(&call.args)?;
    let remains = engine.flush(only);
    if waits {
        return Ok(free::work(engine, remains));
    }
    engine.free_later(remains);
    Ok(free::work(engine, Vec::new()))
}

impl Engine {
    /// Frees what a flush took out, on the workers, bit by bit.
    pub fn free_later(&self, remains: Vec<Remains>) {
        if !remains.is_empty() {
            self.start_own_job("free", free::work(self, remains));
        }
    }
}

/// A task whose reply is just `OK`.
struct SayOk;

impl Task for SayOk {
    fn reply(&self, reply: &mut dyn Reply, _: &Slice<'_>) -> bool {
        reply.ok();
        true
    }
}
