//! POPULATE: its row and its arguments. `engine/jobs/long` makes the keys.

use super::all_keys::row;
use super::glob::KeySet;
use super::{
    Access, Action, ArgKind, Args, Command, Error, Flags, Limits, Long, OnAllKeys, Walk, WalkStep,
    arg, docs,
};

/// The step at each key.
const SET: &[WalkStep] = &[WalkStep { command: "midi.set", access: Access::Overwrite }];

pub(super) static POPULATE: Command = Command {
    twins: &["restore"],
    walk: Some(&Walk { keys: populated, argument: 2, steps: |_| SET, hash_steps: |_| SET }),
    long: Long::Always,
    ..row(
        "populate",
        -2,
        Flags { write: true, deny_oom: true, ..Flags::NONE },
        "keyspace write slow dangerous",
        docs("Makes keys prefix:0, prefix:1 and so on, as DEBUG POPULATE does, on all cores.")
            .costs("O(N), N being the number of keys")
            .takes(&[
                arg("count", ArgKind::Integer),
                arg("prefix", ArgKind::String).optional(),
                arg("size", ArgKind::Integer).optional(),
            ]),
        Action::AllKeys(OnAllKeys::Populate),
    )
};

/// POPULATE's arguments, after DEBUG POPULATE in Redis's debug.c.
#[derive(Clone)]
pub struct PopulateArgs {
    /// The number of keys.
    pub count: u64,
    prefix: Vec<u8>,
    size: Option<usize>,
}

/// DEBUG POPULATE prints keys into a buffer of 128 bytes, its end mark included.
const POPULATE_KEY_BYTES: usize = 127;

/// The beginning of POPULATE's keys. As in Redis, a NUL ends it.
fn populate_prefix<'a>(args: &Args<'a>) -> &'a [u8] {
    let prefix = if args.len() > 2 { args.get(2) } else { b"key" };
    prefix.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// The keys that POPULATE makes.
fn populated<'a>(args: &Args<'a>) -> KeySet<'a> {
    let mut beginning = [populate_prefix(args), b":"].concat();
    beginning.truncate(POPULATE_KEY_BYTES);
    KeySet::Beginning(beginning.into())
}

impl PopulateArgs {
    /// Parses count, prefix and size.
    pub fn parse(args: &Args<'_>, limits: &Limits) -> Result<Self, Error> {
        if args.len() > 4 {
            return Err(Error::Syntax);
        }
        let positive = |at| {
            args.integer(at)
                .map_err(|_| Error::NotPositive)
                .and_then(|number| u64::try_from(number).map_err(|_| Error::NotPositive))
        };
        let count = positive(1)?;
        let size = if args.len() > 3 { positive(3)? as usize } else { 0 };
        limits.value(size)?;
        let prefix = populate_prefix(args).to_vec();
        let populate = PopulateArgs { count, prefix, size: (size > 0).then_some(size) };
        let mut longest = Vec::new();
        populate.key(count.saturating_sub(1), &mut longest);
        limits.key(&longest)?;
        Ok(populate)
    }

    /// The approximate size of a value, at least 1.
    pub fn value_bytes(&self) -> usize {
        self.size.unwrap_or(16)
    }

    /// Replaces `key` with key number `number`.
    pub fn key(&self, number: u64, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(&self.prefix[..self.prefix.len().min(POPULATE_KEY_BYTES)]);
        key.push(b':');
        key.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        key.truncate(POPULATE_KEY_BYTES);
    }

    /// Replaces `value` with value number `number`: `value:N`, cut or filled with zero bytes to the
    /// size.
    pub fn value(&self, number: u64, value: &mut Vec<u8>) {
        value.clear();
        value.extend_from_slice(b"value:");
        value.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        if let Some(size) = self.size {
            value.resize(size, 0);
        }
    }
}
