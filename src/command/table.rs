//! The command table: the one list of what there is.

use std::sync::LazyLock;

use hashbrown::HashMap;

use super::{Command, counter, digest, dump, get, key, keyspace, lcs, object, range, rename, set, string};

/// Every command. A command's place here is its number, for counters.
pub static COMMANDS: [&Command; 60] = [
    &string::GET,
    &string::SET,
    &string::MGET,
    &string::MSET,
    &key::DEL,
    &key::UNLINK,
    &key::EXISTS,
    &key::TOUCH,
    &key::TYPE,
    &key::EXPIRE,
    &key::PEXPIRE,
    &key::EXPIREAT,
    &key::PEXPIREAT,
    &key::TTL,
    &key::PTTL,
    &key::EXPIRETIME,
    &key::PEXPIRETIME,
    &key::PERSIST,
    &rename::RENAME,
    &rename::RENAMENX,
    &rename::COPY,
    &rename::MOVE,
    &object::OBJECT,
    &object::MEMORY,
    &dump::DUMP,
    &dump::RESTORE,
    &keyspace::KEYS,
    &keyspace::SCAN,
    &keyspace::RANDOMKEY,
    &keyspace::DBSIZE,
    &keyspace::FLUSHDB,
    &keyspace::FLUSHALL,
    &keyspace::SWAPDB,
    &keyspace::POPULATE,
    &keyspace::IMPORT,
    &keyspace::EXPORT,
    &keyspace::JOBS,
    &keyspace::INFO,
    &keyspace::HELP,
    &counter::INCR,
    &counter::DECR,
    &counter::INCRBY,
    &counter::DECRBY,
    &counter::INCRBYFLOAT,
    &range::APPEND,
    &range::STRLEN,
    &range::GETRANGE,
    &range::SUBSTR,
    &range::SETRANGE,
    &set::SETNX,
    &set::SETEX,
    &set::PSETEX,
    &set::GETSET,
    &set::MSETNX,
    &set::MSETEX,
    &get::GETDEL,
    &get::GETEX,
    &digest::DIGEST,
    &digest::DELEX,
    &lcs::LCS,
];

/// Longest name that the look-up's packed form holds.
const NAME_BYTES: usize = 16;

static BY_NAME: LazyLock<HashMap<u128, usize>> = LazyLock::new(|| {
    let named = |(number, command): (usize, &&Command)| (packed(command.name.as_bytes()), number);
    COMMANDS.iter().enumerate().map(named).collect()
});

/// The number in [`COMMANDS`] of the command of that standard name, in any case.
#[inline]
pub fn find(name: &[u8]) -> Option<usize> {
    if name.len() > NAME_BYTES {
        return None;
    }
    BY_NAME.get(&packed(name)).copied()
}

/// The name as one number, letters in lower case. Setting bit 5 of every byte
/// does that, and makes no letter of anything that is not one.
#[inline]
fn packed(name: &[u8]) -> u128 {
    let mut bytes = [0; NAME_BYTES];
    for (to, from) in bytes.iter_mut().zip(name) {
        *to = from | 0x20;
    }
    u128::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_by_its_name() {
        for (number, command) in COMMANDS.iter().enumerate() {
            assert!(command.name.len() <= NAME_BYTES);
            assert_eq!(find(command.name.as_bytes()), Some(number));
            assert_eq!(find(command.name.to_uppercase().as_bytes()), Some(number));
        }
        assert_eq!(find(b"nosuch"), None);
        assert_eq!(find(b"get\0"), None);
        assert_eq!(find(b""), None);
        assert_eq!(find(&[b'x'; 100]), None);
    }

    #[test]
    fn rows_make_sense() {
        for command in COMMANDS {
            assert!(!(command.flags.write && command.flags.readonly), "{}", command.name);
            assert!(command.docs.summary.ends_with('.'), "{}", command.name);
            assert!(command.arity != 0, "{}", command.name);
        }
    }
}
