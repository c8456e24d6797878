//! The command table: the list of all commands, and the lookup of a command by its name.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{
    Action, Args, Command, Doors, all_keys, bitfield, bitmap, connection, counter, digest, dump,
    get, hash, increx, item, journal, key, keyspace_digest, lcs, object, populate, pubsub, range,
    rename, scripting, server, set, slow_log, string,
};

/// Passes the rows of the host door to a macro, in the order of their numbers.
macro_rules! rows_of_host {
    ($then:ident) => {
        $then! {
            string::GET string::SET string::MGET set::MSET
            key::DEL key::UNLINK key::EXISTS key::TOUCH key::TYPE
            key::EXPIRE key::PEXPIRE key::EXPIREAT key::PEXPIREAT
            key::TTL key::PTTL key::EXPIRETIME key::PEXPIRETIME key::PERSIST
            rename::RENAME rename::RENAMENX rename::COPY rename::MOVE
            object::OBJECT object::MEMORY
            dump::DUMP dump::RESTORE
            all_keys::KEYS all_keys::SCAN all_keys::RANDOMKEY all_keys::DBSIZE
            keyspace_digest::KEYSPACEDIGEST
            all_keys::FLUSHDB all_keys::FLUSHALL all_keys::SWAPDB populate::POPULATE
            all_keys::IMPORT all_keys::EXPORT all_keys::JOBS all_keys::INFO all_keys::HELP
            counter::INCR counter::DECR counter::INCRBY counter::DECRBY counter::INCRBYFLOAT
            increx::INCREX
            range::APPEND range::STRLEN range::GETRANGE range::SUBSTR range::SETRANGE
            set::SETNX set::SETEX set::PSETEX set::GETSET set::MSETNX set::MSETEX
            get::GETDEL get::GETEX
            digest::DIGEST digest::DELEX
            lcs::LCS
            digest::DELIFEQ
            bitmap::SETBIT bitmap::GETBIT bitmap::BITCOUNT bitmap::BITPOS bitmap::BITOP
            bitfield::BITFIELD bitfield::BITFIELD_RO
            journal::JOURNAL
            all_keys::COUNTKEYSINSLOT
            journal::UNSUPPORTED journal::LISTEN
            hash::HSET hash::HMSET hash::HSETNX hash::HGET hash::HMGET hash::HDEL hash::HGETDEL
            hash::HEXISTS hash::HLEN hash::HSTRLEN hash::HKEYS hash::HVALS hash::HGETALL
            hash::HINCRBY hash::HINCRBYFLOAT hash::HRANDFIELD hash::HSCAN
            hash::HEXPIRE hash::HPEXPIRE hash::HEXPIREAT hash::HPEXPIREAT hash::HPERSIST
            hash::HTTL hash::HPTTL hash::HEXPIRETIME hash::HPEXPIRETIME
            hash::HGETEX hash::HSETEX
            slow_log::SLOWLOG
        }
    };
}
pub(crate) use rows_of_host;

macro_rules! references {
    ($($family:ident::$row:ident)*) => { [$(&$family::$row),*] };
}

macro_rules! count {
    ($($family:ident::$row:ident)*) => { [$(stringify!($row)),*].len() };
}

/// The number of commands of the host door.
const OF_HOST: usize = rows_of_host!(count);

static ROWS_OF_HOST: [&Command; OF_HOST] = rows_of_host!(references);

/// The rows that only the memcached port has.
static ROWS_OF_ITEMS: [Command; item::ROWS.len()] = item::ROWS;

/// The number of the first command about the server.
const SERVER: usize = OF_HOST + connection::ROWS.len();

/// The number of the first command about scripts.
const SCRIPTING: usize = SERVER + server::ROWS.len();

/// The number of the first command about channels.
const PUBSUB: usize = SCRIPTING + scripting::ROWS.len();

/// The number of commands of the host door and of the ports that speak RESP.
const OF_RESP: usize = PUBSUB + pubsub::ROWS.len();

/// All commands: those of the host door first, then those that only the ports have, at last those
/// that only the memcached port has. A command's index here is its number.
pub static COMMANDS: [&Command; OF_RESP + item::ROWS.len()] = {
    let mut all = [ROWS_OF_HOST[0]; OF_RESP + item::ROWS.len()];
    let mut number = 0;
    while number < all.len() {
        all[number] = if number < OF_HOST {
            ROWS_OF_HOST[number]
        } else if number < SERVER {
            &connection::ROWS[number - OF_HOST]
        } else if number < SCRIPTING {
            &server::ROWS[number - SERVER]
        } else if number < PUBSUB {
            &scripting::ROWS[number - SCRIPTING]
        } else if number < OF_RESP {
            &pubsub::ROWS[number - PUBSUB]
        } else {
            &ROWS_OF_ITEMS[number - OF_RESP]
        };
        number += 1;
    }
    all
};

/// The commands of the host door, in the order of their numbers.
pub fn host_commands() -> impl ExactSizeIterator<Item = &'static Command> {
    ROWS_OF_HOST.into_iter()
}

/// Checks what every row must have, and the order of the rows.
const _: () = {
    let mut number = 0;
    while number < COMMANDS.len() {
        let row = COMMANDS[number];
        assert!(!row.name.is_empty() && row.arity != 0, "a row says its name and its arity");
        assert!(!row.categories.is_empty() && !row.docs.summary.is_empty(), "and what it is");
        assert!(
            matches!(row.doors, Doors::Port) == (number >= OF_HOST && number < OF_RESP),
            "the host's come first"
        );
        assert!(matches!(row.doors, Doors::Memcached) == (number >= OF_RESP), "memcached's last");
        assert!(
            matches!(row.doors, Doors::Port) == matches!(row.action, Action::Port(_)),
            "and what it does"
        );
        number += 1;
    }
};

/// The prefix of the host door's commands. Ports accept it too.
pub const PREFIX: &str = "midi.";

/// The longest name that the lookup's packed form holds, in bytes.
const NAME_BYTES: usize = 16;

/// The size of a lookup table: a power of two, of which only a few places are taken.
const PLACES: usize = (4 * COMMANDS.len()).next_power_of_two();

/// An empty place.
const NONE: u16 = u16::MAX;

/// A hash table of commands' numbers by their packed names. It is made at compile time, so nothing
/// is set up or checked at run time.
struct ByName([u16; PLACES]);

/// The commands that are called with `midi.` before their name, and those that are called by their
/// name alone.
static PREFIXED: ByName = ByName::of(Doors::Port);
static PLAIN: ByName = ByName::of(Doors::OnlyPrefixed);

impl ByName {
    /// The ports' commands but those with these doors. Subcommands are found through their
    /// container.
    const fn of(others: Doors) -> Self {
        let mut places = [NONE; PLACES];
        let mut number = 0;
        while number < COMMANDS.len() {
            let row = COMMANDS[number];
            let is_named = !matches!(row.doors, Doors::Host | Doors::Memcached);
            if is_named && row.doors as u8 != others as u8 && !is_subcommand(row.name) {
                let mut place = first_place(packed(row.name.as_bytes()));
                while places[place] != NONE {
                    place = (place + 1) % PLACES;
                }
                places[place] = number as u16;
            }
            number += 1;
        }
        ByName(places)
    }

    #[inline]
    fn find(&self, name: &[u8]) -> Option<usize> {
        if name.len() > NAME_BYTES || name.is_empty() {
            return None;
        }
        let wanted = packed(name);
        let mut place = first_place(wanted);
        loop {
            let number = self.0[place] as usize;
            let known = NAMES.get(number)?;
            if *known == wanted && COMMANDS[number].name.len() == name.len() {
                return (!is_withdrawn(number)).then_some(number);
            }
            place = (place + 1) % PLACES;
        }
    }
}

/// The packed names. Those of subcommands are never looked up.
static NAMES: [(u64, u64); COMMANDS.len()] = {
    let mut names = [(0, 0); COMMANDS.len()];
    let mut number = 0;
    while number < COMMANDS.len() {
        names[number] = packed(COMMANDS[number].name.as_bytes());
        number += 1;
    }
    names
};

/// The number of subcommands that follow each command.
static SUBCOMMANDS: [usize; COMMANDS.len()] = {
    let mut counts = [0; COMMANDS.len()];
    let (mut number, mut container) = (0, 0);
    while number < COMMANDS.len() {
        if is_subcommand(COMMANDS[number].name) {
            counts[container] += 1;
        } else {
            container = number;
        }
        number += 1;
    }
    counts
};

const fn is_subcommand(name: &str) -> bool {
    let name = name.as_bytes();
    let mut at = 0;
    while at < name.len() && name[at] != b'|' {
        at += 1;
    }
    at < name.len()
}

/// The place at which the search begins.
#[inline]
const fn first_place(packed: (u64, u64)) -> usize {
    let mixed = (packed.0 ^ packed.1.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (u64::BITS - PLACES.ilog2())) as usize
}

/// Commands that are no longer found.
static WITHDRAWN: [AtomicBool; COMMANDS.len()] = [const { AtomicBool::new(false) }; COMMANDS.len()];

/// From now on neither the command of this number nor its subcommands are found.
pub fn withdraw(number: usize) {
    let all = number..=number + SUBCOMMANDS[number];
    all.for_each(|number| WITHDRAWN[number].store(true, Ordering::Relaxed));
}

/// The number of the row of this name in [`COMMANDS`], whether or not ports have it. A linear
/// search: for constants, for the start and for rare records.
pub const fn number_of(name: &str) -> Option<usize> {
    let mut number = 0;
    while number < COMMANDS.len() {
        if is_same(COMMANDS[number].name.as_bytes(), name.as_bytes()) {
            return Some(number);
        }
        number += 1;
    }
    None
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// The number in [`COMMANDS`] of the command `midi.name`, if ports have it. Case does not matter.
#[inline]
pub fn find(name: &[u8]) -> Option<usize> {
    PREFIXED.find(name)
}

/// Whether a command has been withdrawn.
#[inline]
pub fn is_withdrawn(number: usize) -> bool {
    WITHDRAWN[number].load(Ordering::Relaxed)
}

/// The numbers of a command's subcommands that have not been withdrawn.
pub fn subcommands(number: usize) -> impl Iterator<Item = usize> {
    let all = number + 1..number + 1 + SUBCOMMANDS[number];
    all.filter(|&sub| !is_withdrawn(sub))
}

/// A command with the name that a client of a port used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its number in [`COMMANDS`].
    pub number: usize,
    /// The prefix before its standard name: [`PREFIX`] or nothing.
    pub prefix: &'static str,
}

impl Named {
    /// Finds the command of this name, with or without `midi.`. Case does not matter.
    #[inline]
    pub fn find(name: &[u8]) -> Option<Named> {
        if let Some((prefix, rest)) = name.split_at_checked(PREFIX.len())
            && prefix.eq_ignore_ascii_case(PREFIX.as_bytes())
        {
            return PREFIXED.find(rest).map(|number| Named { number, prefix: PREFIX });
        }
        PLAIN.find(name).map(|number| Named { number, prefix: "" })
    }

    /// Its row.
    #[inline]
    pub fn row(self) -> &'static Command {
        COMMANDS[self.number]
    }

    /// Its name with the prefix; a subcommand's is `container|subcommand`.
    pub fn full_name(self) -> String {
        format!("{}{}", self.prefix, self.row().name)
    }
}

/// The result of a lookup by a command's name and first argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundCommand {
    /// The command.
    Command(Named),
    /// The command has subcommands, but none of that name.
    NoSuchSubcommand,
}

/// The command that these arguments call on a port, if any.
#[inline]
pub fn find_call(args: &Args<'_>) -> Option<FoundCommand> {
    let named = Named::find(args.get(0))?;
    if args.len() == 1 || SUBCOMMANDS[named.number] == 0 {
        return Some(FoundCommand::Command(named));
    }
    let is_it = |&sub: &usize| COMMANDS[sub].split().is_some_and(|(_, own)| args.is(1, own));
    let found = subcommands(named.number).find(is_it);
    Some(found.map_or(FoundCommand::NoSuchSubcommand, |number| {
        FoundCommand::Command(Named { number, ..named })
    }))
}

/// Packs a name of 1 to 16 bytes into two numbers. Two names of the same length that consist of
/// letters are packed alike only if they are equal, apart from case: setting bit 5 of every byte
/// makes letters lower case, and makes no letter of another byte. A `_` is taken for a byte 0x7f,
/// which only makes such a command known by another name, too.
#[inline]
const fn packed(name: &[u8]) -> (u64, u64) {
    const LOWER_CASE: u64 = 0x2020_2020_2020_2020;
    if let (Some(first), Some(last)) = (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        return (u64::from_le_bytes(*first) | LOWER_CASE, u64::from_le_bytes(*last) | LOWER_CASE);
    }
    if let (Some(first), Some(last)) = (name.first_chunk::<4>(), name.last_chunk::<4>()) {
        let both = u32::from_le_bytes(*first) as u64 | (u32::from_le_bytes(*last) as u64) << 32;
        return (both | LOWER_CASE, name.len() as u64);
    }
    // Up to three bytes: the first, the middle and the last.
    let (first, last) = (name[0] as u64, name[name.len() - 1] as u64);
    let middle = name[name.len() / 2] as u64;
    (first | middle << 8 | last << 16 | LOWER_CASE, name.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(words: &[&str]) -> Option<FoundCommand> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        find_call(&Args::new(&words))
    }

    fn upper(words: &[&str]) -> Option<FoundCommand> {
        let words: Vec<String> = words.iter().map(|word| word.to_uppercase()).collect();
        found(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    #[test]
    fn every_command_is_found_by_its_names() {
        for (number, row) in COMMANDS.iter().enumerate() {
            assert!(is_subcommand(row.name) || row.name.len() <= NAME_BYTES);
            let words: Vec<&str> = row.name.split('|').collect();
            let prefixed = format!("midi.{}", row.name);
            for (words, prefix, doors) in
                [(&words[..], "", Doors::OnlyPrefixed), (&[&prefixed], PREFIX, Doors::Port)]
            {
                if matches!(row.doors, Doors::Host | Doors::Memcached) {
                    assert_eq!((found(words), upper(words)), (None, None), "{words:?}");
                } else if row.doors != doors {
                    let named = Some(FoundCommand::Command(Named { number, prefix }));
                    assert_eq!((found(words), upper(words)), (named, named), "{words:?}");
                }
            }
        }
        for (wrong, right) in
            [("exists\0", "exists"), ("gett", "get"), ("ge", "get"), ("g\0t", "get")]
        {
            assert!(find(right.as_bytes()).is_some());
            assert_eq!(find(wrong.as_bytes()), None, "{wrong}");
        }
        for name in ["nosuch", "get\0", "", "midi.get", "ping", "client|list", &"x".repeat(100)] {
            assert_eq!(find(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn subcommands_are_found_behind_their_container() {
        for (number, row) in COMMANDS.iter().enumerate() {
            if let Some((container, _)) = row.split() {
                let of = number_of(container).expect("the container");
                assert!(subcommands(of).any(|sub| sub == number), "{}", row.name);
            }
        }
        assert_eq!(found(&["client", "nosuch"]), Some(FoundCommand::NoSuchSubcommand));
        for command in [&["client"][..], &["ping", "id"], &["get", "nosuch"]] {
            assert!(matches!(found(command), Some(FoundCommand::Command(_))), "{command:?}");
        }
        for name in ["client|id", "midi.ping", "midi.", "\0", "", "clienu", "averyverylongname"] {
            assert_eq!(found(&[name]), None, "{name}");
        }
    }

    #[test]
    fn rows_make_sense() {
        for row in COMMANDS {
            assert!(!(row.flags.write && row.flags.readonly), "{}", row.name);
            assert!(row.docs.summary.ends_with('.'), "{}", row.name);
            let keyed =
                matches!(row.action, Action::OneKey(_) | Action::EachKey(_) | Action::ManyKeys(_));
            assert!(!keyed || row.keys != super::super::Keys::None, "{}", row.name);
        }
    }
}
