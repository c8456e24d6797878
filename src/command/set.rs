//! The other forms of SET: SETNX, SETEX, PSETEX, GETSET, MSET and MSETNX after Redis 7.0's
//! t_string.c, MSETEX after Redis 8.4's.

use super::keys::pair_count;
use super::string::{EXISTENCE, ExpiryOption, PAIR, SET_EXPIRY, SetOptions, get};
use super::{
    Access, Action, Arg, ArgKind, Command, Docs, Error, Event, Flags, Keys, LooksUp, ManyKeys,
    OneKey, ReadsKey, Reply, Run, arg, docs, tips,
};
use crate::store::Value;

const KEY: Arg = arg("key", ArgKind::Key);
const VALUE: Arg = arg("value", ArgKind::String);

pub(super) static SETNX: Command = Command {
    name: "setnx",
    arity: 3,
    keys: Keys::One(Access::Insert),
    docs: docs("Sets the value of a key if the key does not exist.").takes(&[KEY, VALUE]),
    action: Action::OneKey(Run::Edit(setnx)),
    ..Command::on_strings(Flags { write: true, deny_oom: true, fast: true, ..Flags::NONE })
};

const fn set_expiring(
    name: &'static str,
    summary: &'static str,
    args: &'static [Arg],
    action: fn(&mut OneKey<'_>, &mut dyn Reply) -> Result<(), Error>,
) -> Command {
    Command {
        name,
        arity: 4,
        keys: Keys::One(Access::Overwrite),
        docs: docs(summary).takes(args),
        action: Action::OneKey(Run::Edit(action)),
        ..Command::on_strings(Flags { write: true, deny_oom: true, ..Flags::NONE })
    }
}

pub(super) static SETEX: Command = set_expiring(
    "setex",
    "Sets the value of a key and how many seconds it will live.",
    &[KEY, arg("seconds", ArgKind::Integer), VALUE],
    |cx, reply| set_with_expiry(cx, reply, true),
);

pub(super) static PSETEX: Command = set_expiring(
    "psetex",
    "Sets the value of a key and how many milliseconds it will live.",
    &[KEY, arg("milliseconds", ArgKind::Integer), VALUE],
    |cx, reply| set_with_expiry(cx, reply, false),
);

pub(super) static GETSET: Command = Command {
    name: "getset",
    looks_up: LooksUp::First,
    arity: 3,
    keys: Keys::One(Access::ReadOverwrite),
    docs: docs("Sets the value of a key and returns the old value.").takes(&[KEY, VALUE]),
    action: Action::OneKey(Run::Edit(getset)),
    ..Command::on_strings(Flags { write: true, deny_oom: true, fast: true, ..Flags::NONE })
};

pub(super) static MSET: Command = Command {
    name: "mset",
    arity: -3,
    keys: Keys::Pairs(Access::Overwrite),
    tips: &[tips::MULTI_SHARD, tips::ALL_SUCCEEDED],
    docs: docs("Sets the values of several keys at one moment.")
        .costs("O(N), N being the number of keys")
        .takes(&[arg("data", ArgKind::Block(PAIR)).multiple()]),
    action: Action::ManyKeys(Run::Edit(mset)),
    ..Command::on_strings(Flags { write: true, deny_oom: true, ..Flags::NONE })
};

pub(super) static MSETNX: Command = Command {
    name: "msetnx",
    arity: -3,
    keys: Keys::Pairs(Access::Insert),
    tips: &[tips::MULTI_SHARD, tips::LEAST],
    docs: docs("Sets the values of several keys at one moment if none of the keys exists.")
        .costs("O(N), N being the number of keys")
        .takes(&[arg("data", ArgKind::Block(PAIR)).multiple()]),
    action: Action::ManyKeys(Run::Edit(msetnx)),
    ..Command::on_strings(Flags { write: true, deny_oom: true, ..Flags::NONE })
};

pub(super) static MSETEX: Command = Command {
    name: "msetex",
    arity: -4,
    tips: &[tips::MULTI_SHARD, tips::ALL_SUCCEEDED],
    keys: Keys::CountedPairs(Access::Overwrite),
    twins: &["msetex", "mset"],
    docs: Docs {
        summary: "Sets the values of several keys at one moment, on conditions and with an expiry \
                  if wanted.",
        complexity: "O(N), N being the number of keys",
        args: &[
            arg("numkeys", ArgKind::Integer),
            arg("data", ArgKind::Block(PAIR)).multiple(),
            arg("condition", ArgKind::OneOf(EXISTENCE)).optional(),
            arg("expiration", ArgKind::OneOf(SET_EXPIRY)).optional(),
        ],
    },
    action: Action::ManyKeys(Run::Edit(msetex)),
    ..Command::on_strings(Flags { write: true, deny_oom: true, ..Flags::NONE })
};

fn setnx(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    cx.check_set(2)?;
    let is_new = !cx.key.is_there();
    if is_new {
        cx.set(2, None, false);
    }
    reply.integer(i64::from(is_new));
    Ok(())
}

fn set_with_expiry(cx: &mut OneKey<'_>, reply: &mut dyn Reply, seconds: bool) -> Result<(), Error> {
    let expire_at = ExpiryOption { argument: 2, seconds, relative: true }.at(&cx.args, cx.now())?;
    cx.check_set(3)?;
    cx.set(3, Some(expire_at), false);
    reply.ok();
    Ok(())
}

fn getset(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    cx.check_set(2)?;
    get(&cx.as_read(), reply)?;
    cx.set(2, None, false);
    Ok(())
}

fn mset(cx: &mut ManyKeys<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let pairs = Pairs { first: 1, count: cx.whole_pairs()? };
    cx.set_pairs(pairs, &SetOptions::default())?;
    reply.ok();
    Ok(())
}

fn msetnx(cx: &mut ManyKeys<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let options = SetOptions { only_new: true, ..SetOptions::default() };
    let pairs = Pairs { first: 1, count: cx.whole_pairs()? };
    reply.integer(i64::from(cx.set_pairs(pairs, &options)?));
    Ok(())
}

fn msetex(cx: &mut ManyKeys<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let pairs = Pairs { first: 2, count: pair_count(&cx.args)? };
    let options = SetOptions::parse(&cx.args, pairs.first + 2 * pairs.count)?;
    if options.get || options.comparison.is_some() {
        return Err(Error::Syntax);
    }
    reply.integer(i64::from(cx.set_pairs(pairs, &options)?));
    Ok(())
}

/// The pairs of key and value among the arguments.
#[derive(Clone, Copy)]
struct Pairs {
    first: usize,
    count: usize,
}

impl ManyKeys<'_> {
    /// The number of pairs of MSET and MSETNX. A key without a value is reported after all other
    /// errors of the call; within MULTI, by EXEC.
    fn whole_pairs(&self) -> Result<usize, Error> {
        let given = self.args.from(1).len();
        if given.is_multiple_of(2) { Ok(given / 2) } else { Err(Error::Arity) }
    }

    /// Sets all pairs, or none if the options refuse one of their keys because it exists or does
    /// not. Returns whether they were set.
    fn set_pairs(&mut self, pairs: Pairs, options: &SetOptions) -> Result<bool, Error> {
        let expire_at = options.expiry.map(|expiry| expiry.at(&self.args, self.now)).transpose()?;
        let keys = || (0..pairs.count).map(|number| (number, pairs.first + 2 * number));
        for (_, at) in keys() {
            self.limits.key(self.args.get(at))?;
            self.limits.value(self.args.get(at + 1).len())?;
        }
        if options.only_new || options.only_existing {
            let mut found = keys().map(|(number, _)| self.edit(number).is_there());
            if found.any(|is_there| is_there == options.only_new) {
                return Ok(false);
            }
        }
        for (number, at) in keys() {
            let kept = self.args.keep(at + 1, self.limits.keep_bytes);
            let value = kept.as_ref().map_or(Value::Inline(self.args.get(at + 1)), Value::Shared);
            let mut key = self.edit(number);
            let kept_expiry = if options.keep_ttl { key.expiry() } else { None };
            key.set(value, expire_at.or(kept_expiry));
            drop(key);
            self.tell(number, Event::SET);
            if expire_at.is_some() {
                self.tell(number, Event::EXPIRE);
            }
        }
        Ok(true)
    }
}
