//! Values that are numbers: the INCR family, after Redis's t_string.c.

use super::extended::Extended;
use super::{
    Access, Action, Arg, ArgKind, Command, Error, Event, Flags, Keys, OneKey, ReadsKey, Reply, Run,
    arg, docs, parse_integer,
};
use crate::store::{Origin, Value};

const KEY: Arg = arg("key", ArgKind::Key);

const fn row(
    name: &'static str,
    arity: i32,
    summary: &'static str,
    args: &'static [Arg],
    action: fn(&mut OneKey<'_>, &mut dyn Reply) -> Result<(), Error>,
) -> Command {
    Command {
        name,
        arity,
        keys: Keys::One(Access::ReadOverwrite),
        docs: docs(summary).takes(args),
        action: Action::OneKey(Run::Edit(action)),
        ..Command::on_strings(Flags { write: true, deny_oom: true, fast: true, ..Flags::NONE })
    }
}

pub(super) static INCR: Command = row(
    "incr",
    2,
    "Adds one to the integer value of a key; 0 if there is no key.",
    &[KEY],
    |cx, reply| add(cx, reply, 1),
);

pub(super) static DECR: Command = row(
    "decr",
    2,
    "Subtracts one from the integer value of a key; 0 if there is no key.",
    &[KEY],
    |cx, reply| add(cx, reply, -1),
);

pub(super) static INCRBY: Command = row(
    "incrby",
    3,
    "Adds a number to the integer value of a key; 0 if there is no key.",
    &[KEY, arg("increment", ArgKind::Integer)],
    incrby,
);

pub(super) static DECRBY: Command = row(
    "decrby",
    3,
    "Subtracts a number from the integer value of a key; 0 if there is no key.",
    &[KEY, arg("decrement", ArgKind::Integer)],
    decrby,
);

pub(super) static INCRBYFLOAT: Command = row(
    "incrbyfloat",
    3,
    "Adds a number with a fraction to the value of a key; 0 if there is no key.",
    &[KEY, arg("increment", ArgKind::Double)],
    incrbyfloat,
);

fn incrby(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let increment = cx.args.integer(2)?;
    add(cx, reply, increment)
}

fn decrby(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let decrement = cx.args.integer(2)?;
    add(cx, reply, decrement.checked_neg().ok_or(Error::DecrementOverflow)?)
}

fn add(cx: &mut OneKey<'_>, reply: &mut dyn Reply, increment: i64) -> Result<(), Error> {
    let before = match cx.string()? {
        None => 0,
        Some(value) => parse_integer(value.bytes()).ok_or(Error::NotAnInteger)?,
    };
    let sum = before.checked_add(increment).ok_or(Error::IncrementOverflow)?;
    cx.replace(Value::Inline(itoa::Buffer::new().format(sum).as_bytes()))?;
    cx.tell(Event::INCRBY);
    reply.integer(sum);
    Ok(())
}

fn incrbyfloat(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let before = match cx.string()? {
        None => Extended::ZERO,
        Some(value) => Extended::parse(value.bytes()).ok_or(Error::NotAFloat)?,
    };
    let increment = Extended::parse(cx.args.get(2)).ok_or(Error::NotAFloat)?;
    let sum = before.plus(increment).ok_or(Error::NotFinite)?.text();
    cx.replace(Value::Inline(sum.as_bytes()))?;
    cx.key.set_origin(Origin::Computed);
    cx.tell(Event::INCRBYFLOAT);
    reply.bulk(sum.as_bytes());
    Ok(())
}
