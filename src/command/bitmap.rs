//! Values as bit strings: SETBIT, GETBIT, BITCOUNT, BITPOS and BITOP, after Redis's bitops.c.

use std::ops::Range;

use smallvec::SmallVec;

use super::bits::{self, Operation};
use super::range::with_made;
use super::record::{Record, Words};
use super::{
    Access, Action, Arg, ArgKind, Args, Command, Docs, Error, Event, Flags, Keys, Limits, LoggedAs,
    LooksUp, ManyKeys, OneKey, ReadKey, ReadsKey, Reply, Run, arg, docs, parse_integer, word,
};
use crate::store::{Origin, StringRef};

const KEY: Arg = arg("key", ArgKind::Key);
const OFFSET: Arg = arg("offset", ArgKind::Integer);
const START: Arg = arg("start", ArgKind::Integer);
const END: Arg = arg("end", ArgKind::Integer);
const UNIT: Arg =
    arg("unit", ArgKind::OneOf(&[word("byte", "BYTE"), word("bit", "BIT")])).optional();

pub(super) static SETBIT: Command = Command {
    name: "setbit",
    arity: 4,
    keys: Keys::One(Access::ReadOverwrite),
    docs: Docs {
        summary: "Writes one bit of a key's value, which is padded with zeros up to there, and \
                  returns the old bit.",
        complexity: "O(1) if the value does not grow",
        args: &[KEY, OFFSET, arg("value", ArgKind::Integer)],
    },
    action: Action::OneKey(Run::Edit(setbit)),
    ..Command::on_bitmaps(Flags { write: true, deny_oom: true, ..Flags::NONE })
};

pub(super) static GETBIT: Command = Command {
    name: "getbit",
    arity: 3,
    keys: Keys::One(Access::Read),
    docs: docs("Returns one bit of a key's value; bits beyond its end are 0.")
        .takes(&[KEY, OFFSET]),
    action: Action::OneKey(Run::Read(getbit)),
    ..Command::on_bitmaps(Flags { readonly: true, fast: true, ..Flags::NONE })
};

pub(super) static BITCOUNT: Command = Command {
    name: "bitcount",
    arity: -2,
    keys: Keys::One(Access::Read),
    docs: docs("Counts the bits of a key's value, or of a part of it, that are 1.")
        .costs("O(N), N being the length of the part")
        .takes(&[KEY, arg("range", ArgKind::Block(&[START, END, UNIT])).optional()]),
    action: Action::OneKey(Run::Read(bitcount)),
    ..Command::on_bitmaps(Flags { readonly: true, ..Flags::NONE })
};

pub(super) static BITPOS: Command = Command {
    name: "bitpos",
    arity: -3,
    keys: Keys::One(Access::Read),
    docs: docs("Finds the first bit of a key's value, or of a part of it, that is 0 or 1.")
        .costs("O(N), N being the length of the part")
        .takes(&[
            KEY,
            arg("bit", ArgKind::Integer),
            arg(
                "range",
                ArgKind::Block(&[START, arg("end-unit", ArgKind::Block(&[END, UNIT])).optional()]),
            )
            .optional(),
        ]),
    action: Action::OneKey(Run::Read(bitpos)),
    ..Command::on_bitmaps(Flags { readonly: true, ..Flags::NONE })
};

pub(super) static BITOP: Command = Command {
    name: "bitop",
    looks_up: LooksUp::BehindFirst,
    arity: -4,
    keys: Keys::MadeOf(Access::Overwrite, Access::Read),
    docs: Docs {
        summary: "Combines the values of several keys bit by bit and gives the result to a key, at \
                  one moment.",
        complexity: "O(N), N being the length of all values together",
        args: &[
            arg(
                "operation",
                ArgKind::OneOf(&[
                    word("and", "AND"),
                    word("or", "OR"),
                    word("xor", "XOR"),
                    word("not", "NOT"),
                    word("diff", "DIFF"),
                    word("diff1", "DIFF1"),
                    word("andor", "ANDOR"),
                    word("one", "ONE"),
                ]),
            ),
            arg("destkey", ArgKind::Key),
            arg("key", ArgKind::SecondKey).multiple(),
        ],
    },
    logged_as: LoggedAs::Shorter(combined),
    action: Action::ManyKeys(Run::Edit(bitop)),
    ..Command::on_bitmaps(Flags { write: true, deny_oom: true, ..Flags::NONE })
};

/// Parses an offset in units of `unit` bits. Bits beyond the longest allowed value are out of
/// range.
pub(super) fn bit_offset(text: &[u8], unit: u32, limits: &Limits) -> Result<u64, Error> {
    let offset = parse_integer(text).and_then(|number| number.checked_mul(unit.into()));
    let offset = offset.and_then(|offset| u64::try_from(offset).ok());
    offset
        .filter(|offset| offset / 8 < limits.max_value_bytes as u64)
        .ok_or(Error::BitOffsetOutOfRange)
}

fn setbit(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let at = bit_offset(cx.args.get(2), 1, cx.limits)?;
    let on = match cx.args.integer(3) {
        Ok(0) => false,
        Ok(1) => true,
        _ => return Err(Error::NotABit),
    };
    let len = (at / 8) as usize + 1;
    let value = cx.string()?;
    let was = value.as_ref().is_some_and(|value| bits::bit(value.bytes(), at));
    let has_it = value.is_some_and(|value| value.len() >= len);
    if !has_it || was != on {
        cx.change_bytes(&[(len as u32 - 1, len as u32)], |value| {
            bits::set_bit(value, at, on);
            true
        })?;
        cx.tell(Event::SETBIT);
    }
    // Redis changes the encoding before it checks whether the bit changes.
    cx.key.set_origin(Origin::Edited);
    reply.integer(was.into());
    Ok(())
}

fn getbit(cx: &ReadKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let at = bit_offset(cx.args.get(2), 1, cx.limits)?;
    reply.integer(cx.string()?.is_some_and(|value| bits::bit(value.bytes(), at)).into());
    Ok(())
}

/// The unit of a range's offsets.
#[derive(Clone, Copy)]
enum BitUnit {
    Byte,
    Bit,
}

impl BitUnit {
    /// Parses the unit at argument `at`; bytes if the argument is missing.
    fn parse(args: &Args<'_>, at: usize) -> Result<Self, Error> {
        match () {
            _ if at >= args.len() || args.is(at, "byte") => Ok(BitUnit::Byte),
            _ if args.is(at, "bit") => Ok(BitUnit::Bit),
            _ => Err(Error::Syntax),
        }
    }

    /// The bits from `start` to `end`, both included, of a value of `bytes` bytes; negative offsets
    /// count from the end.
    fn range(self, start: i64, end: i64, bytes: usize) -> Range<u64> {
        let (count, bits) = match self {
            BitUnit::Byte => (bytes as i64, 8),
            BitUnit::Bit => (8 * bytes as i64, 1),
        };
        let from_start = |offset: i64| if offset < 0 { (count + offset).max(0) } else { offset };
        let (start, end) = (from_start(start), from_start(end).min(count - 1));
        if start > end { 0..0 } else { start as u64 * bits..(end as u64 + 1) * bits }
    }
}

/// All bits of a value.
fn all_bits(value: &[u8]) -> Range<u64> {
    0..8 * value.len() as u64
}

impl Limits {
    /// Refuses to read more bits than this thread may.
    fn look_at(&self, bits: &Range<u64>) -> Result<(), Error> {
        self.touch(((bits.end - bits.start) / 8) as usize)
    }
}

fn bitcount(cx: &ReadKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let value = cx.string()?;
    // Redis 7.0 checks the other arguments only if the key exists.
    let Some(value) = value.as_ref().map(|value| value.bytes()) else {
        reply.integer(0);
        return Ok(());
    };
    let counted = match cx.args.len() {
        2 => all_bits(value),
        4 | 5 => {
            let (start, end) = (cx.args.integer(2)?, cx.args.integer(3)?);
            // Redis 7.0 checks this before the unit.
            if start < 0 && end < 0 && start > end {
                0..0
            } else {
                BitUnit::parse(&cx.args, 4)?.range(start, end, value.len())
            }
        }
        _ => return Err(Error::Syntax),
    };
    cx.limits.look_at(&counted)?;
    reply.integer(bits::count(value, counted) as i64);
    Ok(())
}

fn bitpos(cx: &ReadKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let wanted = match cx.args.integer(2)? {
        0 => false,
        1 => true,
        _ => return Err(Error::NoBitToFind),
    };
    let value = cx.string()?;
    let Some(value) = value.as_ref().map(|value| value.bytes()) else {
        reply.integer(if wanted { -1 } else { 0 });
        return Ok(());
    };
    let ends = cx.args.len() > 4;
    let searched = match cx.args.len() {
        3 => all_bits(value),
        4..=6 => {
            let start = cx.args.integer(3)?;
            let unit = BitUnit::parse(&cx.args, 5)?;
            unit.range(start, if ends { cx.args.integer(4)? } else { -1 }, value.len())
        }
        _ => return Err(Error::Syntax),
    };
    cx.limits.look_at(&searched)?;
    // Zeros follow the value, unless the range has an end.
    let behind = if wanted || ends || searched.is_empty() { -1 } else { searched.end as i64 };
    reply.integer(bits::find(value, searched, wanted).map_or(behind, |at| at as i64));
    Ok(())
}

/// The operations of BITOP by name. DIFF, DIFF1, ANDOR and ONE are of Redis 8.2.
const OPERATIONS: [(&str, Operation); 8] = [
    ("and", Operation::And),
    ("or", Operation::Or),
    ("xor", Operation::Xor),
    ("not", Operation::Not),
    ("diff", Operation::Diff),
    ("diff1", Operation::Diff1),
    ("andor", Operation::AndOr),
    ("one", Operation::One),
];

fn operation(args: &Args<'_>) -> Result<Operation, Error> {
    let named = OPERATIONS.iter().find(|(name, _)| args.is(1, name));
    let &(_, operation) = named.ok_or(Error::Syntax)?;
    let keys = args.from(3).len();
    match operation {
        Operation::Not if keys > 1 => Err(Error::BitopNotOfSeveral),
        Operation::Diff | Operation::Diff1 | Operation::AndOr if keys < 2 => Err(Error::BitopOfOne),
        _ => Ok(operation),
    }
}

fn combined<'a>(args: &Args<'a>, _: u32) -> Record<'a> {
    Record::BitOp { args: Words::List(args.from(1)) }
}

fn bitop(cx: &mut ManyKeys<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let result = cx.combined(operation(&cx.args)?)?;
    for number in 0..cx.args.from(2).len() {
        cx.edit(number).remove_if_hidden();
    }
    let len = result.len();
    let mut key = cx.edit(0);
    if len > 0 {
        with_made(result, |value| key.set(value, None));
        key.set_origin(Origin::Edited);
        drop(key);
        cx.tell(0, Event::SET);
    } else {
        let removed = key.remove();
        drop(key);
        if removed {
            cx.tell(0, Event::DEL);
        }
    }
    reply.integer(len as i64);
    Ok(())
}

impl ManyKeys<'_> {
    /// The result of BITOP; missing keys count as empty.
    fn combined(&self, operation: Operation) -> Result<Vec<u8>, Error> {
        let sources = 1..self.args.from(2).len();
        let found = |number| self.keys.read(number).map(|entry| entry.string()).transpose();
        let found = sources.map(found).collect::<Result<SmallVec<[_; 8]>, _>>()?;
        let values: SmallVec<[&[u8]; 8]> =
            found.iter().map(|value| value.as_ref().map_or(&[][..], StringRef::bytes)).collect();
        let longest = values.iter().map(|value| value.len()).max().unwrap_or(0);
        if longest > 0 {
            self.limits.key(self.args.get(2))?;
            self.limits.value(longest)?;
        }
        self.limits.touch(longest + values.iter().map(|value| value.len()).sum::<usize>())?;
        Ok(bits::combine(operation, &values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_by_offsets_from_both_ends() {
        for (unit, start, end, expected) in [
            (BitUnit::Byte, 0, -1, 0..32),
            (BitUnit::Byte, 1, 2, 8..24),
            (BitUnit::Byte, -2, 100, 16..32),
            (BitUnit::Byte, -100, -100, 0..8),
            (BitUnit::Byte, 4, 4, 0..0),
            (BitUnit::Byte, 2, 1, 0..0),
            (BitUnit::Bit, 0, -1, 0..32),
            (BitUnit::Bit, 3, 9, 3..10),
            (BitUnit::Bit, -3, -2, 29..31),
            (BitUnit::Bit, i64::MIN, i64::MAX, 0..32),
            (BitUnit::Bit, i64::MAX, i64::MIN, 0..0),
        ] {
            assert_eq!(unit.range(start, end, 4), expected, "{start} {end}");
            assert_eq!(unit.range(start, end, 0), 0..0, "{start} {end}");
        }
    }
}
