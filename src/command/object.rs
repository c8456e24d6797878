//! OBJECT and MEMORY: the internals of a key, after Redis's object.c. Each is one command with a
//! subcommand as its first argument.

use super::row::Subcommands;
use super::{
    Access, Action, Arg, ArgKind, Args, Command, Docs, Error, Flags, Keys, Limits, LooksUp,
    ReadKey, ReadsKey, Reply, Run, arg, parse_integer, word,
};
use crate::store::{Fields, Origin, Type, WrongType};

const OBJECT_SUBCOMMANDS: &[Arg] = &[
    word("encoding", "ENCODING"),
    word("freq", "FREQ"),
    word("idletime", "IDLETIME"),
    word("refcount", "REFCOUNT"),
    word("help", "HELP"),
];

const MEMORY_SUBCOMMANDS: &[Arg] = &[word("usage", "USAGE"), word("help", "HELP")];

pub(super) static OBJECT: Command = Command {
    name: "object",
    arity: -2,
    keys: Keys::Second(Access::Look),
    subcommands: Some(&OF_OBJECT),
    docs: Docs {
        summary: "Describes a value as Redis would. ENCODING is int, embstr (up to 44 bytes; some \
                  newer hosts have another limit) or raw; of a hash listpack, listpackex or \
                  hashtable. REFCOUNT is 2147483647 for the numbers 0 \
                  to 9999, which Redis shares, and 1 otherwise. FREQ is 0 to 3, under a policy \
                  that goes by how often keys are used. midi does not track IDLETIME.",
        complexity: "O(1)",
        args: &[
            arg("subcommand", ArgKind::OneOf(OBJECT_SUBCOMMANDS)),
            arg("key", ArgKind::Key).optional(),
        ],
    },
    action: Action::OneKey(Run::Read(object)),
    uses: false,
    ..Command::on_keys(Flags { readonly: true, ..Flags::NONE })
};

pub(super) static MEMORY: Command = Command {
    name: "memory",
    looks_up: LooksUp::Nothing,
    arity: -2,
    keys: Keys::Second(Access::Look),
    categories: "read slow",
    subcommands: Some(&OF_MEMORY),
    docs: Docs {
        summary: "USAGE returns the bytes that a key takes: its entry, its value if that has a \
                  buffer of its own (whole, although copies share it), and its part of the table.",
        complexity: "O(1)",
        args: &[
            arg("subcommand", ArgKind::OneOf(MEMORY_SUBCOMMANDS)),
            arg("key", ArgKind::Key).optional(),
            arg("count", ArgKind::Integer).token("SAMPLES").optional(),
        ],
    },
    action: Action::OneKey(Run::Read(memory)),
    uses: false,
    ..Command::on_keys(Flags { readonly: true, ..Flags::NONE })
};

static OF_OBJECT: Subcommands = Subcommands {
    own: &[("encoding", 3), ("freq", 3), ("idletime", 3), ("refcount", 3), ("help", 2)],
    of_host: &[],
};

static OF_MEMORY: Subcommands = Subcommands {
    own: &[("usage", -3), ("help", 2)],
    of_host: &["doctor", "malloc-stats", "purge", "stats"],
};

const OBJECT_HELP: &[&str] = &[
    "ENCODING <key>",
    "    How Redis would keep the value: int, embstr or raw.",
    "FREQ <key>",
    "    How often the key was used, 0 to 3, under an LFU policy or allkeys-auto.",
    "IDLETIME <key>",
    "    Refused: midi does not note when a key is used.",
    "REFCOUNT <key>",
    "    The reference count that the value would have in Redis.",
    "HELP",
    "    These lines.",
];

const MEMORY_HELP: &[&str] = &[
    "USAGE <key> [SAMPLES <count>]",
    "    The bytes that the key takes.",
    "HELP",
    "    These lines.",
];

/// The length of the longest text of a 64-bit integer.
const INT_BYTES: usize = 20;
/// Redis keeps values up to this length in one block with their header (`embstr`).
const EMBSTR_BYTES: usize = 44;
/// Redis keeps one copy of each number from 0 to this one.
const LAST_SHARED_NUMBER: i64 = 9999;
/// The reference count that Redis reports for those numbers.
const SHARED_REFERENCES: i64 = i32::MAX as i64;

fn object(cx: &ReadKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let which = OF_OBJECT.find(&cx.args)?;
    if which == "help" {
        say_help(&cx.args, OBJECT_HELP, reply);
        return Ok(());
    }
    let Some(entry) = cx.entry() else {
        reply.null();
        return Ok(());
    };
    let (its_type, frequency) = (entry.value_type(), entry.frequency());
    if which == "encoding" && its_type == Type::Hash {
        let name = encoding_of_hash(Fields::of(entry)?, cx.limits);
        reply.bulk(name.as_bytes());
        return Ok(());
    }
    match (which, entry.string()) {
        ("encoding", Ok(value)) => reply.bulk(encoding(value.bytes(), value.origin()).as_bytes()),
        ("refcount", Ok(value)) => reply.integer(references(value.bytes(), value.origin())),
        ("encoding", Err(WrongType)) => reply.bulk(its_type.name().as_bytes()),
        ("refcount", Err(WrongType)) => reply.integer(1),
        ("freq", _) if cx.limits.counts_uses => reply.integer(frequency.into()),
        ("freq", _) => return Err(Error::FrequencyNotTracked),
        _ => return Err(Error::IdleTimeNotTracked),
    }
    Ok(())
}

fn memory(cx: &ReadKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    if OF_MEMORY.find(&cx.args)? == "help" {
        say_help(&cx.args, MEMORY_HELP, reply);
        return Ok(());
    }
    check_samples(&cx.args)?;
    match cx.bytes() {
        None => reply.null(),
        Some(bytes) => reply.integer(bytes as i64),
    }
    Ok(())
}

/// Replies with the help lines, under a heading.
pub(super) fn say_help(args: &Args<'_>, lines: &[&str], reply: &mut dyn Reply) {
    let name = String::from_utf8_lossy(args.get(0)).to_uppercase();
    reply.array(lines.len() + 1);
    reply.bulk(format!("{name} <subcommand> [<arg> ...]. Subcommands:").as_bytes());
    for line in lines {
        reply.bulk(line.as_bytes());
    }
}

/// USAGE's option is checked and has no effect: a string has no parts to sample.
fn check_samples(args: &Args<'_>) -> Result<(), Error> {
    let mut at = 3;
    while at < args.len() {
        if !args.is(at, "samples") || at + 1 == args.len() {
            return Err(Error::Syntax);
        }
        if args.integer(at + 1)? < 0 {
            return Err(Error::Syntax);
        }
        at += 2;
    }
    Ok(())
}

fn number(value: &[u8]) -> Option<i64> {
    if value.len() <= INT_BYTES { parse_integer(value) } else { None }
}

fn encoding(value: &[u8], origin: Origin) -> &'static str {
    match number(value) {
        _ if origin == Origin::Edited => "raw",
        Some(_) if origin == Origin::Given => "int",
        _ if value.len() <= EMBSTR_BYTES => "embstr",
        _ => "raw",
    }
}

/// What the host would call a hash, by its limits.
fn encoding_of_hash(fields: Fields<'_>, limits: &Limits) -> &'static str {
    match fields.is_above(limits.listpack_entries, limits.listpack_value) {
        true => "hashtable",
        false if fields.may_expire() => "listpackex",
        false => "listpack",
    }
}

fn references(value: &[u8], origin: Origin) -> i64 {
    let shared = number(value).is_some_and(|number| (0..=LAST_SHARED_NUMBER).contains(&number));
    if shared && origin == Origin::Given { SHARED_REFERENCES } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_as_redis_chooses_them() {
        for (value, name, count) in [
            ("0", "int", SHARED_REFERENCES),
            ("9999", "int", SHARED_REFERENCES),
            ("10000", "int", 1),
            ("-1", "int", 1),
            ("-9223372036854775808", "int", 1),
            ("9223372036854775808", "embstr", 1),
            ("01", "embstr", 1),
            ("", "embstr", 1),
            ("12345678901234567890123456789012345678901234", "embstr", 1),
            ("123456789012345678901234567890123456789012345", "raw", 1),
        ] {
            assert_eq!(
                (
                    encoding(value.as_bytes(), Origin::Given),
                    references(value.as_bytes(), Origin::Given)
                ),
                (name, count),
                "{value}"
            );
        }
    }
}
