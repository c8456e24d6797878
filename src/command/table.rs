//! The command table: the one list of what there is.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{
    Command, bitfield, bitmap, counter, digest, dump, get, key, keyspace, lcs, object, range, rename, set,
    string,
};

/// Every command. A command's place here is its number, for counters.
pub static COMMANDS: [&Command; 68] = [
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
    &digest::DELIFEQ,
    &bitmap::SETBIT,
    &bitmap::GETBIT,
    &bitmap::BITCOUNT,
    &bitmap::BITPOS,
    &bitmap::BITOP,
    &bitfield::BITFIELD,
    &bitfield::BITFIELD_RO,
];

/// Longest name that the look-up's packed form holds.
pub(super) const NAME_BYTES: usize = 16;

/// Places of the look-up's table: a power of two, and few of them taken.
const PLACES: usize = 1 << PLACE_BITS;
const PLACE_BITS: u32 = 9;

/// Stands for no command.
const NONE: u8 = u8::MAX;

const _: () = assert!(COMMANDS.len() <= PLACES / 4 && COMMANDS.len() < NONE as usize);

/// Numbers of commands by their packed names. Made by the compiler: nothing to be set up
/// or asked for at run time.
static BY_NAME: [u8; PLACES] = places();

const fn places() -> [u8; PLACES] {
    let mut places = [NONE; PLACES];
    let mut number = 0;
    while number < COMMANDS.len() {
        let mut place = first_place(packed(COMMANDS[number].name.as_bytes()));
        while places[place] != NONE {
            place = (place + 1) % PLACES;
        }
        places[place] = number as u8;
        number += 1;
    }
    places
}

/// The names, packed.
static NAMES: [(u64, u64); COMMANDS.len()] = {
    let mut names = [(0, 0); COMMANDS.len()];
    let mut number = 0;
    while number < COMMANDS.len() {
        names[number] = packed(COMMANDS[number].name.as_bytes());
        number += 1;
    }
    names
};

/// Where to begin looking.
#[inline]
const fn first_place(packed: (u64, u64)) -> usize {
    (packed.0 ^ packed.1.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize
        >> (u64::BITS - PLACE_BITS)
}

/// Commands that are not to be found any more.
static WITHDRAWN: [AtomicBool; COMMANDS.len()] = [const { AtomicBool::new(false) }; COMMANDS.len()];

/// From now on [`find`] does not know the command of that number.
pub fn withdraw(number: usize) {
    WITHDRAWN[number].store(true, Ordering::Relaxed);
}

/// The number in [`COMMANDS`] of the command of that standard name, in any case.
#[inline]
pub fn find(name: &[u8]) -> Option<usize> {
    if name.len() > NAME_BYTES || name.is_empty() {
        return None;
    }
    let wanted = packed(name);
    let mut place = first_place(wanted);
    loop {
        let number = BY_NAME[place] as usize;
        let known = NAMES.get(number)?;
        if *known == wanted && COMMANDS[number].name.len() == name.len() {
            return (!WITHDRAWN[number].load(Ordering::Relaxed)).then_some(number);
        }
        place = (place + 1) % PLACES;
    }
}

/// A name of 1 to 16 bytes as two numbers: of two names of one length, only the same ones are
/// packed alike. Letters are in lower case: setting bit 5 of every byte does that, and makes
/// no letter of anything that is not one.
#[inline]
pub(super) const fn packed(name: &[u8]) -> (u64, u64) {
    const LOWER_CASE: u64 = 0x2020_2020_2020_2020;
    if let (Some(first), Some(last)) = (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        return (u64::from_le_bytes(*first) | LOWER_CASE, u64::from_le_bytes(*last) | LOWER_CASE);
    }
    if let (Some(first), Some(last)) = (name.first_chunk::<4>(), name.last_chunk::<4>()) {
        let both = u32::from_le_bytes(*first) as u64 | (u32::from_le_bytes(*last) as u64) << 32;
        return (both | LOWER_CASE, name.len() as u64);
    }
    // The first, the middle and the last of up to three.
    let (first, last) = (name[0] as u64, name[name.len() - 1] as u64);
    let middle = name[name.len() / 2] as u64;
    (first | middle << 8 | last << 16 | LOWER_CASE, name.len() as u64)
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
        for (wrong, right) in [("exists\0", "exists"), ("gett", "get"), ("ge", "get"), ("g\0t", "get")] {
            assert!(find(right.as_bytes()).is_some());
            assert_eq!(find(wrong.as_bytes()), None, "{wrong}");
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
