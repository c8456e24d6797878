//! Numbers of any width at any bit of a value: BITFIELD and BITFIELD_RO, after Redis's bitops.c.

use smallvec::SmallVec;

use super::bitmap::bit_offset;
use super::bits::{Field, Overflow};
use super::string::ELEMENT_BYTES;
use super::{
    Access, Action, Arg, ArgKind, Args, Command, Error, Event, Flags, Keys, Limits, LooksUp,
    OneKey, ReadKey, ReadsKey, Reply, Run, arg, docs, parse_integer, word,
};
use crate::limits::PART_NAME_BYTES;
use crate::store::{Origin, ValueParts};

const KEY: Arg = arg("key", ArgKind::Key);
const ENCODING: Arg = arg("encoding", ArgKind::String);
const OFFSET: Arg = arg("offset", ArgKind::Integer);

const GET: Arg = arg("get", ArgKind::Block(&[ENCODING, OFFSET])).token("GET");

const WRITE: &[Arg] = &[
    arg(
        "overflow",
        ArgKind::OneOf(&[word("wrap", "WRAP"), word("sat", "SAT"), word("fail", "FAIL")]),
    )
    .token("OVERFLOW")
    .optional(),
    arg(
        "write-operation",
        ArgKind::OneOf(&[
            arg("set", ArgKind::Block(&[ENCODING, OFFSET, arg("value", ArgKind::Integer)]))
                .token("SET"),
            arg("incrby", ArgKind::Block(&[ENCODING, OFFSET, arg("increment", ArgKind::Integer)]))
                .token("INCRBY"),
        ]),
    ),
];

pub(super) static BITFIELD: Command = Command {
    name: "bitfield",
    arity: -2,
    keys: Keys::Fields,
    looks_up: LooksUp::FirstWithoutWrite,
    docs: docs("Reads, writes and adds to numbers of any width at any bit of a key's value.")
        .costs("O(1) for each operation, if the value does not grow")
        .takes(&[
            KEY,
            arg("operation", ArgKind::OneOf(&[GET, arg("write", ArgKind::Block(WRITE))]))
                .optional()
                .multiple(),
        ]),
    action: Action::OneKey(Run::Edit(bitfield)),
    ..Command::on_bitmaps(Flags { write: true, deny_oom: true, ..Flags::NONE })
};

pub(super) static BITFIELD_RO: Command = Command {
    name: "bitfield_ro",
    arity: -2,
    keys: Keys::One(Access::Read),
    docs: docs("Reads numbers of any width at any bit of a key's value.")
        .costs("O(1) for each operation")
        .takes(&[KEY, GET.optional().multiple()]),
    action: Action::OneKey(Run::Read(bitfield_ro)),
    ..Command::on_bitmaps(Flags { readonly: true, fast: true, ..Flags::NONE })
};

/// One operation.
#[derive(Clone, Copy)]
struct FieldStep {
    field: Field,
    /// The offset of its first bit.
    at: u64,
    /// Its write; `None` for GET.
    write: Option<Write>,
}

#[derive(Clone, Copy)]
struct Write {
    number: i64,
    /// Whether the number is added to the field (INCRBY).
    adds: bool,
    overflow: Overflow,
}

type Steps = SmallVec<[FieldStep; 4]>;

/// The results of the steps; `None` is a number that was not written because it did not fit.
type Answers = SmallVec<[Option<i64>; 4]>;

fn bitfield(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let steps = parse(&cx.args, cx.limits)?;
    let ends = steps.iter().filter(|step| step.write.is_some()).map(FieldStep::end);
    match ends.max() {
        None => read(&cx.as_read(), &steps, reply),
        Some(end) => write(cx, &steps, end.div_ceil(8) as usize, reply),
    }
}

fn bitfield_ro(cx: &ReadKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let steps = parse(&cx.args, cx.limits)?;
    if steps.iter().any(|step| step.write.is_some()) {
        return Err(Error::FieldsReadOnly);
    }
    read(cx, &steps, reply)
}

fn read(cx: &ReadKey<'_>, steps: &Steps, reply: &mut dyn Reply) -> Result<(), Error> {
    cx.limits.reply(steps.len() * ELEMENT_BYTES)?;
    let value = cx.string()?;
    let bytes = value.as_ref().map_or(&[][..], |value| value.bytes());
    write_answers(&steps.iter().map(|step| Some(step.field.read(bytes, step.at))).collect(), reply);
    Ok(())
}

/// Runs steps of which at least one writes. They need a value of `len` bytes.
fn write(
    cx: &mut OneKey<'_>,
    steps: &Steps,
    len: usize,
    reply: &mut dyn Reply,
) -> Result<(), Error> {
    cx.limits.reply(steps.len() * ELEMENT_BYTES)?;
    let grows = cx.string()?.is_none_or(|value| value.len() < len);
    cx.limits.value(len)?;
    let mut answers = Answers::new();
    let mut changed = false;
    cx.change_bytes(&written_parts(steps), |bytes| {
        for step in steps {
            let (answer, changes) = step.take(bytes, grows);
            answers.push(answer);
            changed |= changes;
        }
        changed
    })?;
    cx.key.set_origin(Origin::Edited);
    // As in Redis, there is no event if the value has grown but no number was written.
    if changed {
        cx.tell(Event::SETBIT);
    }
    write_answers(&answers, reply);
    Ok(())
}

/// The bytes that these steps may write. Parts with less between them than naming one more takes
/// are one.
fn written_parts(steps: &Steps) -> ValueParts {
    let mut fields: ValueParts = steps
        .iter()
        .filter(|step| step.write.is_some())
        .map(|step| ((step.at / 8) as u32, step.end().div_ceil(8) as u32))
        .collect();
    fields.sort_unstable();
    let mut parts = ValueParts::new();
    for (start, end) in fields {
        match parts.last_mut() {
            Some((_, last)) if start <= last.saturating_add(PART_NAME_BYTES) => {
                *last = (*last).max(end);
            }
            _ => parts.push((start, end)),
        }
    }
    parts
}

fn write_answers(answers: &Answers, reply: &mut dyn Reply) {
    reply.array(answers.len());
    for answer in answers {
        match answer {
            Some(number) => reply.integer(*number),
            None => reply.null(),
        }
    }
}

impl FieldStep {
    /// The offset of the bit after its field.
    fn end(&self) -> u64 {
        self.at + u64::from(self.field.bits)
    }

    /// Runs the step. A step that writes needs a value that contains its field. Returns the result,
    /// and whether the value changed; in a value that has just grown every write is a change.
    fn take(&self, bytes: &mut [u8], has_grown: bool) -> (Option<i64>, bool) {
        let old = self.field.read(bytes, self.at);
        let Some(write) = self.write else { return (Some(old), false) };
        let wanted = match write {
            Write { adds: true, number, .. } => i128::from(old) + i128::from(number),
            Write { number, .. } => self.field.meant(number),
        };
        let Some(new) = self.field.fit(wanted, write.overflow) else { return (None, false) };
        self.field.write(bytes, self.at, new);
        (Some(if write.adds { new } else { old }), has_grown || new != old)
    }
}

/// Parses the arguments after the key.
fn parse(args: &Args<'_>, limits: &Limits) -> Result<Steps, Error> {
    let mut steps = Steps::new();
    let mut overflow = Overflow::Wrap;
    let mut at = 2;
    while at < args.len() {
        let left = args.len() - at - 1;
        if args.is(at, "overflow") && left >= 1 {
            overflow = parse_overflow(args, at + 1)?;
            at += 2;
            continue;
        }
        let (writes, adds) = match () {
            _ if args.is(at, "get") && left >= 2 => (false, false),
            _ if args.is(at, "set") && left >= 3 => (true, false),
            _ if args.is(at, "incrby") && left >= 3 => (true, true),
            _ => return Err(Error::Syntax),
        };
        let field = parse_field(args.get(at + 1))?;
        let offset = args.get(at + 2);
        let place = match offset.strip_prefix(b"#") {
            Some(number) => bit_offset(number, field.bits, limits)?,
            None => bit_offset(offset, 1, limits)?,
        };
        let number = if writes { args.integer(at + 3)? } else { 0 };
        let write = writes.then_some(Write { number, adds, overflow });
        steps.push(FieldStep { field, at: place, write });
        at += if writes { 4 } else { 3 };
    }
    Ok(steps)
}

/// `i` and up to 64, or `u` and up to 63.
fn parse_field(text: &[u8]) -> Result<Field, Error> {
    let (signed, bits, most) = match text {
        [b'i', bits @ ..] => (true, bits, 64),
        [b'u', bits @ ..] => (false, bits, 63),
        _ => return Err(Error::InvalidField),
    };
    let bits =
        parse_integer(bits).filter(|bits| (1..=most).contains(bits)).ok_or(Error::InvalidField)?;
    Ok(Field { signed, bits: bits as u32 })
}

fn parse_overflow(args: &Args<'_>, at: usize) -> Result<Overflow, Error> {
    match () {
        _ if args.is(at, "wrap") => Ok(Overflow::Wrap),
        _ if args.is(at, "sat") => Ok(Overflow::Saturate),
        _ if args.is(at, "fail") => Ok(Overflow::Fail),
        _ => Err(Error::InvalidOverflow),
    }
}
