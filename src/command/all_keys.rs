//! Commands over all shards, and those that only a door can carry out: their rows and their
//! arguments. `engine/jobs/long` runs them in slices.

use arrayvec::ArrayVec;

use super::args::{parse_integer, split_sign};
use super::glob::{KeySet, Pattern};
use super::{
    Access, Action, Arg, ArgKind, Args, Command, Docs, DoorCommand, Doors, Error, Flags, Limits,
    Long, OnAllKeys, OtherDbs, Walk, WalkStep, arg, docs, tips, word,
};
use crate::limits::SCAN_AT_ONCE;

const FLUSH: &[Arg] =
    &[arg("flush-type", ArgKind::OneOf(&[word("async", "ASYNC"), word("sync", "SYNC")]))
        .optional()];

const COPY: &[Arg] = &[
    arg("pattern", ArgKind::Pattern),
    arg("count", ArgKind::Integer).token("COUNT").optional(),
    word("replace", "REPLACE").optional(),
    word("move", "MOVE").optional(),
    arg("slot", ArgKind::Integer).token("SLOT").optional(),
];

pub(super) const fn row(
    name: &'static str,
    arity: i32,
    flags: Flags,
    categories: &'static str,
    docs: Docs,
    action: Action,
) -> Command {
    Command { name, arity, flags, categories, group: "server", docs, action, ..Command::USUAL }
}

pub(super) static KEYS: Command = Command {
    group: "generic",
    tips: &[tips::ALL_SHARDS, tips::ANY_ORDER],
    long: Long::Always,
    ..row(
        "keys",
        2,
        Flags { readonly: true, ..Flags::NONE },
        "keyspace read slow dangerous",
        docs("Returns all keys that match a pattern; other commands go on meanwhile.")
            .costs("O(N), N being the number of keys in the database")
            .takes(&[arg("pattern", ArgKind::Pattern)]),
        Action::AllKeys(OnAllKeys::Keys),
    )
};

pub(super) static SCAN: Command = Command {
    group: "generic",
    tips: &[tips::ANY_OUTPUT, tips::SPECIAL_REQUEST],
    long: Long::If(is_long_scan),
    ..row(
        "scan",
        -2,
        Flags { readonly: true, ..Flags::NONE },
        "keyspace read slow",
        docs("Iterates over the keys of the database.")
            .costs("O(1) for every call, O(N) for a complete iteration")
            .takes(&[
                arg("cursor", ArgKind::Integer),
                arg("pattern", ArgKind::Pattern).token("MATCH").optional(),
                arg("count", ArgKind::Integer).token("COUNT").optional(),
                arg("type", ArgKind::String).token("TYPE").optional(),
            ]),
        Action::AllKeys(OnAllKeys::Scan),
    )
};

pub(super) static RANDOMKEY: Command = Command {
    group: "generic",
    tips: &[tips::ALL_SHARDS, tips::ANY_OUTPUT],
    ..row(
        "randomkey",
        1,
        Flags { readonly: true, ..Flags::NONE },
        "keyspace read slow",
        docs("Returns a key drawn at random."),
        Action::AllKeys(OnAllKeys::RandomKey),
    )
};

pub(super) static DBSIZE: Command = Command {
    tips: &[tips::ALL_SHARDS, tips::SUM],
    ..row(
        "dbsize",
        1,
        Flags { readonly: true, fast: true, ..Flags::NONE },
        "keyspace read fast",
        docs("Returns the number of keys in the database.")
            .costs("O(T), T being the number of threads"),
        Action::AllKeys(OnAllKeys::DbSize),
    )
};

pub(super) static COUNTKEYSINSLOT: Command = Command {
    twins: &["cluster|countkeysinslot"],
    ..row(
        "countkeysinslot",
        2,
        Flags { readonly: true, ..Flags::NONE },
        "slow",
        docs("Returns the number of midi's keys in a slot of the cluster, in all databases.")
            .costs("O(D), D being the number of databases")
            .takes(&[arg("slot", ArgKind::Integer)]),
        Action::AllKeys(OnAllKeys::CountKeysInSlot),
    )
};

pub(super) static FLUSHDB: Command = Command {
    tips: &[tips::ALL_SHARDS, tips::ALL_SUCCEEDED],
    long: Long::Always,
    ..row(
        "flushdb",
        -1,
        Flags { write: true, ..Flags::NONE },
        "keyspace write slow dangerous",
        docs("Deletes all midi keys of the database, at one moment.")
            .costs("O(S), S being the number of shards; memory is freed in the background")
            .takes(FLUSH),
        Action::AllKeys(OnAllKeys::FlushDb),
    )
};

pub(super) static FLUSHALL: Command = Command {
    tips: &[tips::ALL_SHARDS, tips::ALL_SUCCEEDED],
    long: Long::Always,
    other_dbs: OtherDbs::All,
    ..row(
        "flushall",
        -1,
        Flags { write: true, ..Flags::NONE },
        "keyspace write slow dangerous",
        docs("Deletes all midi keys of all databases, at one moment.")
            .costs("O(S), S being the number of shards; memory is freed in the background")
            .takes(FLUSH),
        Action::AllKeys(OnAllKeys::FlushAll),
    )
};

pub(super) static SWAPDB: Command = Command {
    other_dbs: OtherDbs::Named(swapped),
    ..row(
        "swapdb",
        3,
        Flags { write: true, fast: true, ..Flags::NONE },
        "keyspace write fast dangerous",
        docs("Exchanges the midi keys of two databases, at one moment.")
            .costs("O(S), S being the number of shards")
            .takes(&[arg("index1", ArgKind::Integer), arg("index2", ArgKind::Integer)]),
        Action::AllKeys(OnAllKeys::SwapDb),
    )
};

pub(super) static IMPORT: Command = Command {
    twins: &["restore"],
    walk: Some(&Walk {
        keys: matching,
        argument: 1,
        steps: import_steps,
        hash_steps: import_hash_steps,
    }),
    ..row(
        "import",
        -2,
        Flags { write: true, deny_oom: true, ..Flags::NONE },
        "keyspace write slow dangerous",
        Docs {
            summary: "Copies the host's strings and hashes of the database into midi, or moves \
                      them, with their expiry. Returns how many were copied, skipped because \
                      present, and skipped because of another type.",
            complexity: "O(N), N being the number of the host's keys in the database",
            args: COPY,
        },
        Action::Door(DoorCommand::Import),
    )
};

pub(super) static EXPORT: Command = Command {
    twins: &["restore"],
    walk: Some(&Walk {
        keys: matching,
        argument: 1,
        steps: export_steps,
        hash_steps: export_hash_steps,
    }),
    ..row(
        "export",
        -2,
        Flags { host_write: true, deny_oom: true, ..Flags::NONE },
        "keyspace write slow dangerous",
        Docs {
            summary: "Copies midi's keys of the database to the host, or moves them, with their \
                      expiry. Returns how many were copied, skipped because present, and skipped \
                      because of another type.",
            complexity: "O(N), N being the number of midi's keys in the database",
            args: COPY,
        },
        Action::Door(DoorCommand::Export),
    )
};

pub(super) static JOBS: Command = Command {
    twins: &["client|kill"],
    ..row(
        "jobs",
        -1,
        Flags { admin: true, ..Flags::NONE },
        "admin slow dangerous",
        docs("Lists long commands that are running, or cancels one.")
            .costs("O(N), N being the number of jobs")
            .takes(&[arg("id", ArgKind::Integer).token("CANCEL").optional()]),
        Action::Door(DoorCommand::Jobs),
    )
};

pub(super) static INFO: Command = Command {
    doors: Doors::OnlyPrefixed,
    tips: &[tips::ANY_OUTPUT, tips::ALL_SHARDS, tips::SPECIAL_RESPONSE],
    ..row(
        "info",
        -1,
        Flags::NONE,
        "slow dangerous",
        docs("Returns midi's sections of INFO, without the host's own.")
            .costs("O(T), T being the number of threads")
            .takes(&[arg("section", ArgKind::String).optional().multiple()]),
        Action::Door(DoorCommand::Info),
    )
};

pub(super) static HELP: Command = Command {
    twins: &["command|docs"],
    ..row(
        "help",
        1,
        Flags::NONE,
        "slow",
        docs("Returns a line of help for every command."),
        Action::Door(DoorCommand::Help),
    )
};

/// Makes a pattern of an argument. Fails if it is longer than the limit, from its first star or
/// class on: that part may be tried at each byte of a key, the part before it is tried once.
pub fn key_pattern(text: &[u8], limits: &Limits) -> Result<Pattern, Error> {
    let repeated = text.iter().position(|byte| matches!(byte, b'*' | b'[')).unwrap_or(text.len());
    if text.len() - repeated > limits.max_pattern_bytes {
        return Err(Error::PatternTooLong(limits.max_pattern_bytes));
    }
    Ok(Pattern::new(text))
}

/// The keys that IMPORT and EXPORT may find.
fn matching<'a>(args: &Args<'a>) -> KeySet<'a> {
    KeySet::Matching(args.get(1))
}

/// Whether keys are to be moved; also if the arguments are wrong otherwise.
fn moves(args: &Args<'_>) -> bool {
    (2..args.len()).any(|at| args.is(at, "move"))
}

/// IMPORT's steps at each key. The last one is MOVE's.
fn import_steps(args: &Args<'_>) -> &'static [WalkStep] {
    const STEPS: &[WalkStep] = &[
        WalkStep { command: "get", access: Access::Read },
        WalkStep { command: "midi.set", access: Access::Overwrite },
        WalkStep { command: "del", access: Access::Remove },
    ];
    if moves(args) { STEPS } else { &STEPS[..2] }
}

/// EXPORT's steps at each key. The last one is MOVE's.
fn export_steps(args: &Args<'_>) -> &'static [WalkStep] {
    const STEPS: &[WalkStep] = &[
        WalkStep { command: "midi.get", access: Access::Read },
        WalkStep { command: "set", access: Access::Overwrite },
        WalkStep { command: "midi.del", access: Access::Remove },
    ];
    if moves(args) { STEPS } else { &STEPS[..2] }
}

/// IMPORT's steps at each hash. The last one is MOVE's.
fn import_hash_steps(args: &Args<'_>) -> &'static [WalkStep] {
    const STEPS: &[WalkStep] = &[
        WalkStep { command: "hgetall", access: Access::Read },
        WalkStep { command: "midi.hset", access: Access::Overwrite },
        WalkStep { command: "del", access: Access::Remove },
    ];
    if moves(args) { STEPS } else { &STEPS[..2] }
}

/// EXPORT's steps at each hash. The last one is MOVE's.
fn export_hash_steps(args: &Args<'_>) -> &'static [WalkStep] {
    const STEPS: &[WalkStep] = &[
        WalkStep { command: "midi.hgetall", access: Access::Read },
        WalkStep { command: "hset", access: Access::Overwrite },
        WalkStep { command: "midi.del", access: Access::Remove },
    ];
    if moves(args) { STEPS } else { &STEPS[..2] }
}

/// The option of FLUSHDB and FLUSHALL: whether the reply waits until all memory is freed.
pub fn flush_waits(args: &Args<'_>) -> Result<bool, Error> {
    match args.len() {
        1 => Ok(false),
        2 if args.is(1, "async") => Ok(false),
        2 if args.is(1, "sync") => Ok(true),
        _ => Err(Error::Syntax),
    }
}

/// The two databases of SWAPDB, each below `databases`.
pub fn swapped_dbs(args: &Args<'_>, databases: u32) -> Result<(u32, u32), Error> {
    let number = |at, error| {
        args.integer(at).ok().and_then(|number| i32::try_from(number).ok()).ok_or(error)
    };
    let (a, b) = (number(1, Error::InvalidFirstDb)?, number(2, Error::InvalidSecondDb)?);
    let db =
        |number| u32::try_from(number).ok().filter(|&db| db < databases).ok_or(Error::DbOutOfRange);
    Ok((db(a)?, db(b)?))
}

/// The two databases of SWAPDB, for the check of rights; none if SWAPDB will refuse its arguments.
fn swapped(args: &Args<'_>, _: u32) -> ArrayVec<u32, 2> {
    swapped_dbs(args, u32::MAX).map_or_else(|_| ArrayVec::new(), |(a, b)| [a, b].into())
}

fn is_long_scan(args: &Args<'_>, limits: &Limits) -> bool {
    ScanArgs::parse(args, limits).is_ok_and(|scan| scan.count > SCAN_AT_ONCE)
}

/// SCAN's arguments.
pub struct ScanArgs {
    /// Where to continue; 0 at the beginning.
    pub cursor: u64,
    /// The pattern of the keys to return; all keys without MATCH.
    pub pattern: Pattern,
    /// About how many keys to look at, at least 1.
    pub count: usize,
    /// The type of the keys to return, as TYPE names it; all types without it.
    pub of_type: Option<Box<[u8]>>,
}

impl ScanArgs {
    /// Parses the arguments in Redis's order, so that the first error is the same as Redis's.
    pub fn parse(args: &Args<'_>, limits: &Limits) -> Result<Self, Error> {
        let mut scan = ScanArgs {
            cursor: parse_cursor(args.get(1)).ok_or(Error::InvalidCursor)?,
            pattern: Pattern::new(b"*"),
            count: 10,
            of_type: None,
        };
        let mut at = 2;
        while at < args.len() {
            if args.is(at, "novalues") {
                return Err(Error::NoValuesOfKeys);
            }
            if at + 1 == args.len() {
                return Err(Error::Syntax);
            }
            if args.is(at, "count") {
                let count = args.integer(at + 1)?;
                scan.count =
                    usize::try_from(count).ok().filter(|&count| count >= 1).ok_or(Error::Syntax)?;
            } else if args.is(at, "match") {
                scan.pattern = key_pattern(args.get(at + 1), limits)?;
            } else if args.is(at, "type") {
                scan.of_type = Some(args.get(at + 1).into());
            } else {
                return Err(Error::Syntax);
            }
            at += 2;
        }
        Ok(scan)
    }
}

/// The cursor of SCAN and HSCAN, as Redis from 8.0 on and Valkey read it: with strtoull, which
/// takes white space and a sign in front, wraps a number below zero around, and ends at a NUL. A
/// number below zero in its usual form is refused.
pub(super) fn parse_cursor(text: &[u8]) -> Option<u64> {
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    if parse_integer(text).is_some_and(|number| number < 0) {
        return None;
    }
    // Rust's own notion of white space lacks the vertical tab.
    let blanks = text.iter().take_while(|&&byte| byte == 0x0b || byte.is_ascii_whitespace());
    let (negative, digits) = split_sign(&text[blanks.count()..]);
    if digits.is_empty() {
        return None;
    }
    let mut cursor: u64 = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        cursor = cursor.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
    }
    Some(if negative { cursor.wrapping_neg() } else { cursor })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_as_newer_hosts_read_them() {
        for (text, cursor) in [
            ("0", Some(0)),
            ("", None),
            ("\0", None),
            ("5\0x", Some(5)),
            ("17", Some(17)),
            ("+17", Some(17)),
            ("-0", Some(0)),
            ("-1", None),
            ("-01", Some(u64::MAX)),
            (" -1", Some(u64::MAX)),
            ("-9223372036854775808", None),
            ("-9223372036854775809", Some((1 << 63) - 1)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            (" 1", Some(1)),
            ("\t\n\x0b\x0c\r +1", Some(1)),
            (" ", None),
            ("1 ", None),
            ("x", None),
            ("-", None),
        ] {
            assert_eq!(parse_cursor(text.as_bytes()), cursor, "{text:?}");
        }
    }
}
