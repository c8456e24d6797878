//! GET, SET and their multi-key forms, after Redis's t_string.c.

use super::{
    Access, Action, Arg, ArgKind, Args, Command, Docs, Error, Event, Flags, Keys, ManyKeys, OneKey, Reply,
    arg, word,
};
use crate::store::{Now, UnixMs, Value};

const SET_CONDITION: &[Arg] = &[word("nx", "NX"), word("xx", "XX")];

const SET_EXPIRY: &[Arg] = &[
    arg("seconds", ArgKind::Integer).token("EX"),
    arg("milliseconds", ArgKind::Integer).token("PX"),
    arg("unix-time-seconds", ArgKind::UnixTime).token("EXAT"),
    arg("unix-time-milliseconds", ArgKind::UnixTime).token("PXAT"),
    word("keepttl", "KEEPTTL"),
];

const PAIR: &[Arg] = &[arg("key", ArgKind::Key), arg("value", ArgKind::String)];

pub(super) static GET: Command = Command {
    name: "get",
    arity: 2,
    flags: Flags { readonly: true, fast: true, ..Flags::NONE },
    keys: Keys::One(Access::Read),
    categories: "read string fast",
    docs: Docs {
        summary: "Returns the value of a key.",
        complexity: "O(1)",
        args: &[arg("key", ArgKind::Key)],
    },
    action: Action::OneKey(get),
};

pub(super) static SET: Command = Command {
    name: "set",
    arity: -3,
    flags: Flags { write: true, deny_oom: true, ..Flags::NONE },
    keys: Keys::One(Access::ReadOverwrite),
    categories: "write string slow",
    docs: Docs {
        summary: "Sets the value of a key, on conditions and with an expiry if wanted.",
        complexity: "O(1)",
        args: &[
            arg("key", ArgKind::Key),
            arg("value", ArgKind::String),
            arg("condition", ArgKind::OneOf(SET_CONDITION)).optional(),
            word("get", "GET").optional(),
            arg("expiration", ArgKind::OneOf(SET_EXPIRY)).optional(),
        ],
    },
    action: Action::OneKey(set),
};

pub(super) static MGET: Command = Command {
    name: "mget",
    arity: -2,
    flags: Flags { readonly: true, fast: true, ..Flags::NONE },
    keys: Keys::All(Access::Read),
    categories: "read string fast",
    docs: Docs {
        summary: "Returns the values of several keys, as they are at one moment.",
        complexity: "O(N), N being the number of keys",
        args: &[arg("key", ArgKind::Key).multiple()],
    },
    action: Action::ManyKeys(mget),
};

pub(super) static MSET: Command = Command {
    name: "mset",
    arity: -3,
    flags: Flags { write: true, deny_oom: true, ..Flags::NONE },
    keys: Keys::Pairs(Access::Overwrite),
    categories: "write string slow",
    docs: Docs {
        summary: "Sets the values of several keys at one moment.",
        complexity: "O(N), N being the number of keys",
        args: &[arg("data", ArgKind::Block(PAIR)).multiple()],
    },
    action: Action::ManyKeys(mset),
};

fn get(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    match cx.find() {
        None => reply.null(),
        Some(found) => {
            let entry = cx.table.entry(found);
            cx.limits.reply(entry.value().bytes().len())?;
            reply.value(&entry);
        }
    }
    Ok(())
}

/// What an element takes in a reply beside its value, roughly.
const ELEMENT_BYTES: usize = 8;

fn mget(cx: &mut ManyKeys<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let keys = cx.args.from(1);
    let mut bytes = keys.len() * ELEMENT_BYTES;
    for (number, key) in keys.iter().enumerate() {
        let (hash, table) = cx.tables.table(number);
        if let Some(found) = table.find_live(cx.hasher, hash, key, cx.now) {
            bytes += table.entry(found).value().bytes().len();
        }
    }
    cx.limits.reply(bytes)?;
    reply.array(keys.len());
    for (number, key) in keys.iter().enumerate() {
        let (hash, table) = cx.tables.table(number);
        match table.find(hash, key) {
            Some(found) => reply.value(&table.entry(found)),
            None => reply.null(),
        }
    }
    Ok(())
}

fn mset(cx: &mut ManyKeys<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let pairs = cx.args.from(1).chunks_exact(2);
    for pair in pairs.clone() {
        cx.limits.key(pair[0])?;
        cx.limits.value(pair[1].len())?;
    }
    for (number, pair) in pairs.enumerate() {
        let kept = cx.args.keep(2 + 2 * number, cx.limits.keep_bytes);
        let value = kept.as_ref().map_or(Value::Inline(pair[1]), Value::Shared);
        let (hash, table) = cx.tables.table(number);
        match table.find_live(cx.hasher, hash, pair[0], cx.now) {
            Some(found) => table.overwrite(found, value, None),
            None => table.insert(cx.hasher, hash, pair[0], value, None),
        }
        cx.tell(number, Event::SET);
    }
    reply.ok();
    Ok(())
}

fn set(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let options = if cx.args.len() == 3 { SetOptions::default() } else { SetOptions::parse(&cx.args)? };
    let expire_at = options.expiry.map(|expiry| expiry.at(&cx.args, cx.now)).transpose()?;
    cx.limits.key(cx.key)?;
    cx.limits.value(cx.args.get(2).len())?;

    let found = cx.find();
    if options.get {
        match found {
            None => reply.null(),
            Some(found) => {
                let entry = cx.table.entry(found);
                cx.limits.reply(entry.value().bytes().len())?;
                reply.value(&entry);
            }
        }
    }
    if options.only_new && found.is_some() || options.only_existing && found.is_none() {
        if !options.get {
            reply.null();
        }
        return Ok(());
    }

    let kept = cx.args.keep(2, cx.limits.keep_bytes);
    let value = kept.as_ref().map_or(Value::Inline(cx.args.get(2)), Value::Shared);
    match found {
        Some(found) => {
            let kept_expiry = if options.keep_ttl { cx.table.entry(found).expire_at() } else { None };
            cx.table.overwrite(found, value, expire_at.or(kept_expiry));
        }
        None => cx.table.insert(cx.hasher, cx.hash, cx.key, value, expire_at),
    }
    cx.tell(Event::SET);
    if expire_at.is_some() {
        cx.tell(Event::EXPIRE);
    }
    if !options.get {
        reply.ok();
    }
    Ok(())
}

/// SET's options, as Redis 7.0 accepts them.
#[derive(Default)]
struct SetOptions {
    only_new: bool,
    only_existing: bool,
    get: bool,
    keep_ttl: bool,
    expiry: Option<Expiry>,
}

impl SetOptions {
    fn parse(args: &Args<'_>) -> Result<Self, Error> {
        let mut options = SetOptions::default();
        let mut at = 3;
        while at < args.len() {
            if args.is(at, "nx") && !options.only_existing {
                options.only_new = true;
            } else if args.is(at, "xx") && !options.only_new {
                options.only_existing = true;
            } else if args.is(at, "get") {
                options.get = true;
            } else if args.is(at, "keepttl") && options.expiry.is_none() {
                options.keep_ttl = true;
            } else {
                options.expiry = Some(options.parse_expiry(args, at)?);
                at += 1;
            }
            at += 1;
        }
        Ok(options)
    }

    /// EX, PX, EXAT or PXAT at argument `at`. The same one may come again, and
    /// the last one counts, as in Redis.
    fn parse_expiry(&self, args: &Args<'_>, at: usize) -> Result<Expiry, Error> {
        let (seconds, relative) = match () {
            _ if args.is(at, "ex") => (true, true),
            _ if args.is(at, "px") => (false, true),
            _ if args.is(at, "exat") => (true, false),
            _ if args.is(at, "pxat") => (false, false),
            _ => return Err(Error::Syntax),
        };
        let other =
            self.expiry.is_some_and(|before| (before.seconds, before.relative) != (seconds, relative));
        if self.keep_ttl || other || at + 1 == args.len() {
            return Err(Error::Syntax);
        }
        Ok(Expiry { argument: at + 1, seconds, relative })
    }
}

/// An expiry option: where its number stands and what it counts.
#[derive(Clone, Copy)]
struct Expiry {
    argument: usize,
    seconds: bool,
    relative: bool,
}

impl Expiry {
    fn at(self, args: &Args<'_>, now: &Now) -> Result<UnixMs, Error> {
        let number = args.integer(self.argument)?;
        let ms = if self.seconds { number.checked_mul(1000) } else { Some(number) };
        let at = match ms {
            Some(ms) if number > 0 && self.relative => ms.checked_add(now.ms()),
            ms => ms,
        };
        at.filter(|&at| at > 0).ok_or(Error::InvalidExpireTime)
    }
}
