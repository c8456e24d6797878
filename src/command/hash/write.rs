//! Changing fields.

use super::listed::{FIELDS, listed_at_end};
use super::{FIELD, HashEdit, KEY, LiveFields, VALUE};
use crate::command::extended::Extended;
use crate::command::{
    Access, Action, Arg, ArgKind, Command, Error, Event, Flags, Keys, OneKey, ReadsKey, Reply, Run,
    arg, docs, parse_integer,
};
use crate::store::Value;

const fn row(
    name: &'static str,
    arity: i32,
    summary: &'static str,
    args: &'static [Arg],
    action: HashEdit,
) -> Command {
    Command {
        name,
        arity,
        keys: Keys::One(Access::Update),
        docs: docs(summary).takes(args),
        action: Action::OneKey(Run::Edit(action)),
        ..Command::on_hashes(Flags { write: true, deny_oom: true, fast: true, ..Flags::NONE })
    }
}

const PAIRS: &[Arg] = &[KEY, arg("data", ArgKind::Block(&[FIELD, VALUE])).multiple()];

pub(in crate::command) static HSET: Command = Command {
    docs: docs("Sets fields; returns how many of them are new.")
        .costs("O(N), N being the number of fields that are set")
        .takes(PAIRS),
    ..row("hset", -4, "Sets fields.", PAIRS, |cx, reply| {
        let new = set_pairs(cx)?;
        reply.integer(new);
        Ok(())
    })
};

pub(in crate::command) static HMSET: Command = Command {
    docs: docs("Sets fields: HSET's old name; replies OK.")
        .costs("O(N), N being the number of fields that are set")
        .takes(PAIRS),
    ..row("hmset", -4, "Sets fields.", PAIRS, |cx, reply| {
        set_pairs(cx)?;
        reply.ok();
        Ok(())
    })
};

pub(in crate::command) static HSETNX: Command = Command {
    keys: Keys::One(Access::Extend),
    ..row("hsetnx", 4, "Sets a field if it is not there.", &[KEY, FIELD, VALUE], hsetnx)
};

pub(in crate::command) static HDEL: Command = Command {
    keys: Keys::One(Access::RemoveIf),
    docs: docs("Removes fields; returns how many were there.")
        .costs("O(N), N being the number of fields to be removed")
        .takes(&[KEY, FIELD.multiple()]),
    ..Command {
        flags: Flags { write: true, fast: true, ..Flags::NONE },
        ..row("hdel", -3, "Removes fields.", &[], hdel)
    }
};

pub(in crate::command) static HGETDEL: Command = Command {
    // Hosts before Redis 8 do not have it.
    twins: &["hgetdel", "hdel"],
    keys: Keys::One(Access::Take),
    flags: Flags { write: true, fast: true, ..Flags::NONE },
    docs: docs("Returns the values of fields, and removes these.")
        .costs("O(N), N being the number of fields")
        .takes(&[KEY, FIELDS]),
    ..row("hgetdel", -5, "Returns and removes fields.", &[], hgetdel)
};

pub(in crate::command) static HINCRBY: Command = Command {
    keys: Keys::One(Access::ReadOverwrite),
    ..row(
        "hincrby",
        4,
        "Adds a number to the integer value of a field; 0 if there is no field.",
        &[KEY, FIELD, arg("increment", ArgKind::Integer)],
        hincrby,
    )
};

pub(in crate::command) static HINCRBYFLOAT: Command = Command {
    keys: Keys::One(Access::ReadOverwrite),
    ..row(
        "hincrbyfloat",
        4,
        "Adds a number with a fraction to the value of a field; 0 if there is no field.",
        &[KEY, FIELD, arg("increment", ArgKind::Double)],
        hincrbyfloat,
    )
};

impl OneKey<'_> {
    /// Checks what a field and its value may not be; and the key, if it is to be made.
    pub(super) fn check_field(&self, field: &[u8], value: &[u8]) -> Result<(), Error> {
        self.limits.value(field.len().max(value.len()))?;
        if self.key.is_there() { Ok(()) } else { self.limits.key(self.key.name()) }
    }

    /// Sets a field to what its number was made; it keeps its expiry.
    fn set_number(&mut self, number: &[u8]) -> Result<(), Error> {
        let field = self.args.get(2);
        self.check_field(field, number)?;
        let expire_at = self.fields()?.and_then(|fields| fields.expiry(field)).flatten();
        self.key.set_field(field, Value::Inline(number), expire_at)?;
        Ok(())
    }

    /// Notes that the key went with its last field.
    pub(super) fn tell_if_removed(&mut self) {
        if !self.key.is_there() {
            self.tell(Event::DEL);
        }
    }
}

/// Returns how many fields are new.
fn set_pairs(cx: &mut OneKey<'_>) -> Result<i64, Error> {
    let args = cx.args;
    if !args.len().is_multiple_of(2) {
        return Err(Error::Arity);
    }
    let may_hide = cx.fields()?.is_some_and(LiveFields::may_expire);
    for at in (2..args.len()).step_by(2) {
        cx.check_field(args.get(at), args.get(at + 1))?;
    }
    let mut new = 0;
    for at in (2..args.len()).step_by(2) {
        let kept = args.keep(at + 1, cx.limits.keep_bytes);
        let value = kept.as_ref().map_or(Value::Inline(args.get(at + 1)), Value::Shared);
        let is_hidden = may_hide && cx.fields()?.is_some_and(|fields| fields.hide(args.get(at)));
        let is_new = cx.key.set_field(args.get(at), value, None)?;
        new += i64::from(is_new || is_hidden);
    }
    cx.tell(Event::HSET);
    Ok(new)
}

fn hsetnx(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let args = cx.args;
    let is_there = cx.fields()?.is_some_and(|fields| fields.get(args.get(2)).is_some());
    if !is_there {
        set_pairs(cx)?;
    }
    reply.integer((!is_there).into());
    Ok(())
}

fn hdel(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let mut removed = 0;
    if cx.fields()?.is_some() {
        for field in cx.args.from(2) {
            let is_there = cx.fields()?.is_some_and(|fields| fields.get(field).is_some());
            removed += i64::from(is_there && cx.key.remove_field(field));
        }
    }
    if removed > 0 {
        cx.tell(Event::HDEL);
        cx.tell_if_removed();
    }
    reply.integer(removed);
    Ok(())
}

fn hgetdel(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let fields = cx.fields()?;
    let names = listed_at_end(&cx.args)?;
    let bytes = |name: &&[u8]| fields.and_then(|fields| fields.get(name)).map_or(0, <[u8]>::len);
    cx.limits.reply(names.iter().map(bytes).sum())?;
    let mut removed = 0;
    reply.array(names.len());
    for name in names {
        match cx.fields()?.and_then(|fields| fields.get(name)) {
            Some(value) => {
                reply.bulk(value);
                removed += i64::from(cx.key.remove_field(name));
            }
            None => reply.null(),
        }
    }
    if removed > 0 {
        cx.tell(Event::HDEL);
        cx.tell_if_removed();
    }
    Ok(())
}

fn hincrby(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let increment = cx.args.integer(3)?;
    let before = match cx.fields()?.and_then(|fields| fields.get(cx.args.get(2))) {
        None => 0,
        Some(value) => parse_integer(value).ok_or(Error::FieldNotAnInteger)?,
    };
    let sum = before.checked_add(increment).ok_or(Error::IncrementOverflow)?;
    cx.set_number(itoa::Buffer::new().format(sum).as_bytes())?;
    cx.tell(Event::HINCRBY);
    reply.integer(sum);
    Ok(())
}

fn hincrbyfloat(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let increment = Extended::parse(cx.args.get(3)).ok_or(Error::NotAFloat)?;
    if increment == Extended::Infinite {
        return Err(Error::InfiniteFieldIncrement);
    }
    let before = match cx.fields()?.and_then(|fields| fields.get(cx.args.get(2))) {
        None => Extended::ZERO,
        Some(value) => Extended::parse(value).ok_or(Error::FieldNotAFloat)?,
    };
    let sum = before.plus(increment).ok_or(Error::NotFinite)?.text();
    cx.set_number(sum.as_bytes())?;
    cx.tell(Event::HINCRBYFLOAT);
    reply.bulk(sum.as_bytes());
    Ok(())
}
