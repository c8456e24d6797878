//! Commands on hashes, after Redis's t_hash.c.

mod drawn;
mod expiry;
mod expiry_time;
mod get_set;
mod listed;
mod live;
mod parts;
mod read;
mod scan;
mod write;

pub(super) use drawn::HRANDFIELD;
pub(super) use expiry::{HEXPIRE, HEXPIREAT, HPERSIST, HPEXPIRE, HPEXPIREAT};
pub(super) use expiry_time::{HEXPIRETIME, HPEXPIRETIME, HPTTL, HTTL};
pub(super) use get_set::{HGETEX, HSETEX};
pub(super) use live::LiveFields;
pub use parts::FieldParts;
pub(super) use read::{HEXISTS, HGET, HGETALL, HKEYS, HLEN, HMGET, HSTRLEN, HVALS};
pub(super) use scan::HSCAN;
pub(super) use write::{HDEL, HGETDEL, HINCRBY, HINCRBYFLOAT, HMSET, HSET, HSETNX};

use super::{Arg, ArgKind, Error, OneKey, Reply, arg};

const KEY: Arg = arg("key", ArgKind::Key);
const FIELD: Arg = arg("field", ArgKind::String);
const VALUE: Arg = arg("value", ArgKind::String);

/// What a command that changes a hash does.
type HashEdit = fn(&mut OneKey<'_>, &mut dyn Reply) -> Result<(), Error>;
