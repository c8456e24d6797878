//! Commands on keys of any type: DEL, EXISTS, TOUCH, TYPE and the expiry family, after Redis's db.c
//! and expire.c.

use super::{
    Access, Action, Arg, ArgKind, Args, Command, Docs, Error, Event, Flags, Keys, Long, OneKey,
    ReadKey, ReadsKey, Reply, Run, arg, docs, has_many_keys, tips, word,
};
use crate::store::UnixMs;

const KEY: Arg = arg("key", ArgKind::Key);
const KEYS: &[Arg] = &[KEY.multiple()];

const CONDITION: Arg = arg(
    "condition",
    ArgKind::OneOf(&[word("nx", "NX"), word("xx", "XX"), word("gt", "GT"), word("lt", "LT")]),
)
.optional();

pub(super) static DEL: Command = Command {
    name: "del",
    arity: -2,
    keys: Keys::All(Access::Remove),
    tips: &[tips::MULTI_SHARD, tips::SUM],
    long: Long::If(has_many_keys),
    docs: docs("Deletes keys.").costs("O(N), N being the number of keys").takes(KEYS),
    action: Action::EachKey(Run::Edit(|cx| cx.delete())),
    ..Command::on_keys(Flags { write: true, ..Flags::NONE })
};

pub(super) static UNLINK: Command = Command {
    name: "unlink",
    arity: -2,
    keys: Keys::All(Access::Remove),
    tips: &[tips::MULTI_SHARD, tips::SUM],
    long: Long::If(has_many_keys),
    docs: docs("Deletes keys; the same as DEL, since midi's values are freed in constant time.")
        .costs("O(N), N being the number of keys")
        .takes(KEYS),
    action: Action::EachKey(Run::Edit(|cx| cx.delete())),
    ..Command::on_keys(Flags { write: true, fast: true, ..Flags::NONE })
};

pub(super) static EXISTS: Command = Command {
    name: "exists",
    arity: -2,
    keys: Keys::All(Access::Look),
    tips: &[tips::MULTI_SHARD, tips::SUM],
    long: Long::If(has_many_keys),
    docs: docs("Counts how many of the keys exist; one named twice counts twice.")
        .costs("O(N), N being the number of keys")
        .takes(KEYS),
    action: Action::EachKey(Run::Read(|cx| cx.is_there())),
    uses: false,
    ..Command::on_keys(Flags { readonly: true, fast: true, ..Flags::NONE })
};

pub(super) static TOUCH: Command = Command {
    name: "touch",
    arity: -2,
    keys: Keys::All(Access::Look),
    tips: &[tips::MULTI_SHARD, tips::SUM],
    long: Long::If(has_many_keys),
    docs: docs("Counts how many of the keys exist, and notes for eviction that they were used.")
        .costs("O(N), N being the number of keys")
        .takes(KEYS),
    action: Action::EachKey(Run::Read(|cx| cx.is_there())),
    always_uses: true,
    ..Command::on_keys(Flags { readonly: true, fast: true, ..Flags::NONE })
};

pub(super) static TYPE: Command = Command {
    name: "type",
    arity: 2,
    keys: Keys::One(Access::Look),
    docs: docs("Returns the type of a key's value: string, hash, or none.").takes(&[KEY]),
    action: Action::OneKey(Run::Read(type_of)),
    uses: false,
    ..Command::on_keys(Flags { readonly: true, fast: true, ..Flags::NONE })
};

pub(super) static EXPIRE: Command = Command {
    name: "expire",
    arity: -3,
    keys: Keys::One(Access::Update),
    docs: docs("Sets a key's time to live in seconds.").takes(&[
        KEY,
        arg("seconds", ArgKind::Integer),
        CONDITION,
    ]),
    action: Action::OneKey(Run::Edit(|cx, reply| expire(cx, reply, true, 1000))),
    ..Command::on_keys(Flags { write: true, fast: true, ..Flags::NONE })
};

pub(super) static PEXPIRE: Command = Command {
    name: "pexpire",
    arity: -3,
    keys: Keys::One(Access::Update),
    docs: docs("Sets a key's time to live in milliseconds.").takes(&[
        KEY,
        arg("milliseconds", ArgKind::Integer),
        CONDITION,
    ]),
    action: Action::OneKey(Run::Edit(|cx, reply| expire(cx, reply, true, 1))),
    ..Command::on_keys(Flags { write: true, fast: true, ..Flags::NONE })
};

pub(super) static EXPIREAT: Command = Command {
    name: "expireat",
    arity: -3,
    keys: Keys::One(Access::Update),
    docs: docs("Sets when a key expires, in seconds since 1970.").takes(&[
        KEY,
        arg("unix-time-seconds", ArgKind::UnixTime),
        CONDITION,
    ]),
    action: Action::OneKey(Run::Edit(|cx, reply| expire(cx, reply, false, 1000))),
    ..Command::on_keys(Flags { write: true, fast: true, ..Flags::NONE })
};

pub(super) static PEXPIREAT: Command = Command {
    name: "pexpireat",
    arity: -3,
    keys: Keys::One(Access::Update),
    docs: docs("Sets when a key expires, in milliseconds since 1970.").takes(&[
        KEY,
        arg("unix-time-milliseconds", ArgKind::UnixTime),
        CONDITION,
    ]),
    action: Action::OneKey(Run::Edit(|cx, reply| expire(cx, reply, false, 1))),
    ..Command::on_keys(Flags { write: true, fast: true, ..Flags::NONE })
};

pub(super) static TTL: Command = Command {
    name: "ttl",
    arity: 2,
    keys: Keys::One(Access::Read),
    tips: &[tips::ANY_OUTPUT],
    docs: docs("Returns a key's time to live in seconds: -1 without one, -2 without the key.")
        .takes(&[KEY]),
    action: Action::OneKey(Run::Read(|cx, reply| answer(reply, time_to_live(cx).map(seconds)))),
    uses: false,
    ..Command::on_keys(Flags { readonly: true, fast: true, ..Flags::NONE })
};

pub(super) static PTTL: Command = Command {
    name: "pttl",
    arity: 2,
    keys: Keys::One(Access::Read),
    tips: &[tips::ANY_OUTPUT],
    docs: docs("Returns a key's time to live in milliseconds: -1 without one, -2 without the key.")
        .takes(&[KEY]),
    action: Action::OneKey(Run::Read(|cx, reply| answer(reply, time_to_live(cx)))),
    uses: false,
    ..Command::on_keys(Flags { readonly: true, fast: true, ..Flags::NONE })
};

pub(super) static EXPIRETIME: Command = Command {
    name: "expiretime",
    arity: 2,
    keys: Keys::One(Access::Read),
    docs: Docs {
        summary: "Returns when a key expires, in seconds since 1970: -1 for never, -2 without the \
                  key.",
        complexity: "O(1)",
        args: &[KEY],
    },
    action: Action::OneKey(Run::Read(|cx, reply| answer(reply, expire_at(cx).map(seconds)))),
    uses: false,
    ..Command::on_keys(Flags { readonly: true, fast: true, ..Flags::NONE })
};

pub(super) static PEXPIRETIME: Command = Command {
    name: "pexpiretime",
    arity: 2,
    keys: Keys::One(Access::Read),
    docs: Docs {
        summary: "Returns when a key expires, in milliseconds since 1970: -1 for never, -2 without \
                  the key.",
        complexity: "O(1)",
        args: &[KEY],
    },
    action: Action::OneKey(Run::Read(|cx, reply| answer(reply, expire_at(cx)))),
    uses: false,
    ..Command::on_keys(Flags { readonly: true, fast: true, ..Flags::NONE })
};

pub(super) static PERSIST: Command = Command {
    name: "persist",
    arity: 2,
    keys: Keys::One(Access::Update),
    docs: docs("Removes a key's time to live.").takes(&[KEY]),
    action: Action::OneKey(Run::Edit(persist)),
    ..Command::on_keys(Flags { write: true, fast: true, ..Flags::NONE })
};

fn type_of(cx: &ReadKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    reply.simple(cx.entry().map_or("none", |entry| entry.value_type().name()));
    Ok(())
}

/// Replies with a time, or with the code of its absence.
fn answer(reply: &mut dyn Reply, time: Result<i64, i64>) -> Result<(), Error> {
    reply.integer(time.unwrap_or_else(|code| code));
    Ok(())
}

/// Rounded to the nearest second, as Redis does. Unsigned, because adding half a second may
/// overflow an `i64`.
fn seconds(ms: i64) -> i64 {
    ((ms.max(0) as u64 + 500) / 1000) as i64
}

/// Milliseconds to live. The error is TTL's code: -2 for a missing key, -1 for one without expiry.
fn time_to_live(cx: &ReadKey<'_>) -> Result<i64, i64> {
    expire_at(cx).map(|at| (at - cx.now().ms()).max(0))
}

/// When the key expires. The error is TTL's code: -2 for a missing key, -1 for one without expiry.
fn expire_at(cx: &ReadKey<'_>) -> Result<UnixMs, i64> {
    cx.entry().ok_or(-2)?.expire_at().ok_or(-1)
}

fn persist(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let expires = cx.key.expiry().is_some();
    if expires {
        cx.key.expire_at(None);
        cx.tell(Event::PERSIST);
    }
    reply.integer(i64::from(expires));
    Ok(())
}

/// The number counts from now on, if it is `relative`, or from 1970. A time that is not in the
/// future deletes the key at once, although an expiring key exists to the end of its last
/// millisecond.
fn expire(
    cx: &mut OneKey<'_>,
    reply: &mut dyn Reply,
    relative: bool,
    unit_ms: i64,
) -> Result<(), Error> {
    let base = if relative { cx.now().ms() } else { 0 };
    let conditions = Conditions::parse(&cx.args)?;
    let number = cx.args.integer(2)?;
    let at = number
        .checked_mul(unit_ms)
        .and_then(|ms| ms.checked_add(base))
        .ok_or(Error::InvalidExpireTime)?;
    let allowed = cx.key.read().is_some_and(|entry| conditions.allow(entry.expire_at(), at));
    if allowed {
        if cx.now().deletes(at) {
            cx.delete();
        } else {
            // Valkey keeps a key that is imported with an expiry before 1970 as of 1970.
            cx.key.expire_at(Some(at.max(0)));
            cx.tell(Event::EXPIRE);
        }
    }
    reply.integer(i64::from(allowed));
    Ok(())
}

/// NX, XX, GT and LT of the expiry family.
#[derive(Default)]
struct Conditions {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

impl Conditions {
    fn parse(args: &Args<'_>) -> Result<Self, Error> {
        let mut given = Conditions::default();
        for at in 3..args.len() {
            match () {
                _ if args.is(at, "nx") => given.nx = true,
                _ if args.is(at, "xx") => given.xx = true,
                _ if args.is(at, "gt") => given.gt = true,
                _ if args.is(at, "lt") => given.lt = true,
                _ => return Err(Error::UnsupportedOption(at)),
            }
        }
        if given.nx && (given.xx || given.gt || given.lt) {
            return Err(Error::NxWithOthers);
        }
        if given.gt && given.lt {
            return Err(Error::GtWithLt);
        }
        Ok(given)
    }

    /// Whether the new expiry may be set. A key without expiry counts as living forever.
    fn allow(&self, current: Option<UnixMs>, new: UnixMs) -> bool {
        match current {
            None => !self.xx && !self.gt,
            Some(current) => !(self.nx || self.gt && new <= current || self.lt && new >= current),
        }
    }
}
