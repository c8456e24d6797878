//! Setting and removing the expiry of fields: HEXPIRE and its like, and HPERSIST.

use super::KEY;
use super::listed::{FIELDS, TimeKind, listed, listed_at_end};
use crate::command::string::ELEMENT_BYTES;
use crate::command::{
    Access, Action, Arg, ArgKind, Args, Command, Error, Event, Flags, Keys, OneKey, ReadsKey,
    Reply, Run, arg, docs, word,
};
use crate::store::UnixMs;

const fn row(
    name: &'static str,
    arity: i32,
    twins: &'static [&'static str],
    summary: &'static str,
    args: &'static [Arg],
    action: super::HashEdit,
) -> Command {
    Command {
        name,
        arity,
        // Hosts before Redis 7.4 do not have it.
        twins,
        keys: Keys::One(Access::Update),
        docs: docs(summary).costs("O(N), N being the number of fields").takes(args),
        action: Action::OneKey(Run::Edit(action)),
        ..Command::on_hashes(Flags { write: true, fast: true, ..Flags::NONE })
    }
}

const CONDITION: Arg = arg(
    "condition",
    ArgKind::OneOf(&[word("nx", "NX"), word("xx", "XX"), word("gt", "GT"), word("lt", "LT")]),
)
.optional();

pub(in crate::command) static HEXPIRE: Command = row(
    "hexpire",
    -6,
    &["hexpire", "hset"],
    "Sets the time to live of fields in seconds.",
    &[KEY, arg("seconds", ArgKind::Integer), CONDITION, FIELDS],
    |cx, reply| expire(cx, reply, TimeKind::EX),
);

pub(in crate::command) static HPEXPIRE: Command = row(
    "hpexpire",
    -6,
    &["hpexpire", "hset"],
    "Sets the time to live of fields in milliseconds.",
    &[KEY, arg("milliseconds", ArgKind::Integer), CONDITION, FIELDS],
    |cx, reply| expire(cx, reply, TimeKind::PX),
);

pub(in crate::command) static HEXPIREAT: Command = row(
    "hexpireat",
    -6,
    &["hexpireat", "hset"],
    "Sets when fields expire, in seconds since 1970.",
    &[KEY, arg("unix-time-seconds", ArgKind::UnixTime), CONDITION, FIELDS],
    |cx, reply| expire(cx, reply, TimeKind::EXAT),
);

pub(in crate::command) static HPEXPIREAT: Command = row(
    "hpexpireat",
    -6,
    &["hpexpireat", "hset"],
    "Sets when fields expire, in milliseconds since 1970.",
    &[KEY, arg("unix-time-milliseconds", ArgKind::UnixTime), CONDITION, FIELDS],
    |cx, reply| expire(cx, reply, TimeKind::PXAT),
);

pub(in crate::command) static HPERSIST: Command = row(
    "hpersist",
    -5,
    &["hpersist", "hset"],
    "Removes the time to live of fields.",
    &[KEY, FIELDS],
    persist,
);

impl OneKey<'_> {
    /// Gives a field that is there an expiry. True if that has passed, so that it was removed.
    pub(super) fn expire_or_remove(&mut self, name: &[u8], at: UnixMs) -> bool {
        let is_passed = self.now().deletes(at);
        if is_passed {
            self.key.remove_field(name);
        } else {
            self.key.expire_field(name, Some(at));
        }
        is_passed
    }

    /// Notes the one event of fields that got this expiry, and that the key went with the last.
    pub(super) fn tell_of_expiry(&mut self, at: UnixMs) {
        if self.now().deletes(at) {
            self.tell(Event::HDEL);
            self.tell_if_removed();
        } else {
            self.tell(Event::HEXPIRE);
        }
    }
}

fn expire(cx: &mut OneKey<'_>, reply: &mut dyn Reply, kind: TimeKind) -> Result<(), Error> {
    cx.fields()?;
    let at = kind.time(cx, 2)?;
    let (names, condition) = options(&cx.args)?;
    cx.limits.reply(names.len() * ELEMENT_BYTES)?;
    let mut is_changed = false;
    reply.array(names.len());
    for name in names {
        let code = match cx.fields()?.and_then(|fields| fields.expiry(name)) {
            None => -2,
            Some(current) if condition.is_some_and(|given| !given.allows(current, at)) => 0,
            Some(_) => {
                is_changed = true;
                if cx.expire_or_remove(name, at) { 2 } else { 1 }
            }
        };
        reply.integer(code);
    }
    if is_changed {
        cx.tell_of_expiry(at);
    }
    Ok(())
}

/// The names and the condition of HEXPIRE, in any order.
fn options<'a>(args: &Args<'a>) -> Result<(&'a [&'a [u8]], Option<FieldCondition>), Error> {
    let (mut names, mut condition, mut are_several) = (None, None, false);
    let mut at = 3;
    while at < args.len() {
        if args.is(at, "fields") {
            if names.is_some() {
                return Err(Error::FieldsTwice);
            }
            if at + 2 >= args.len() {
                return Err(Error::NothingBehindFields);
            }
            let found = listed(args, at, 1, Error::NoFieldsToExpire)?;
            at = found.end;
            names = Some(&args.from(found.start)[..found.len()]);
        } else {
            let given = FieldCondition::parse(args, at).ok_or(Error::UnknownArgument(at))?;
            are_several |= condition.is_some_and(|before| before != given);
            condition = Some(given);
            at += 1;
        }
    }
    let names = names.ok_or(Error::MissingFields)?;
    if are_several { Err(Error::SeveralConditions) } else { Ok((names, condition)) }
}

/// NX, XX, GT and LT of HEXPIRE. A field without expiry counts as living forever.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldCondition {
    Without,
    With,
    Later,
    Earlier,
}

impl FieldCondition {
    fn parse(args: &Args<'_>, at: usize) -> Option<Self> {
        match () {
            _ if args.is(at, "nx") => Some(FieldCondition::Without),
            _ if args.is(at, "xx") => Some(FieldCondition::With),
            _ if args.is(at, "gt") => Some(FieldCondition::Later),
            _ if args.is(at, "lt") => Some(FieldCondition::Earlier),
            _ => None,
        }
    }

    /// Whether the new expiry may be set.
    fn allows(self, current: Option<UnixMs>, new: UnixMs) -> bool {
        match self {
            FieldCondition::Without => current.is_none(),
            FieldCondition::With => current.is_some(),
            FieldCondition::Later => current.is_some_and(|current| new > current),
            FieldCondition::Earlier => current.is_none_or(|current| new < current),
        }
    }
}

fn persist(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    cx.fields()?;
    let names = listed_at_end(&cx.args)?;
    cx.limits.reply(names.len() * ELEMENT_BYTES)?;
    let mut is_changed = false;
    reply.array(names.len());
    for name in names {
        reply.integer(match cx.fields()?.and_then(|fields| fields.expiry(name)) {
            None => -2,
            Some(None) => -1,
            Some(Some(_)) => {
                is_changed |= cx.key.expire_field(name, None);
                1
            }
        });
    }
    if is_changed {
        cx.tell(Event::HPERSIST);
    }
    Ok(())
}
