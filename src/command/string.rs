//! GET, SET and MGET, after Redis's t_string.c.

use super::digest::{COMPARISONS, Comparison};
use super::{
    Access, Action, Arg, ArgKind, Args, ByOptions, Command, Error, Event, Flags, Keys, Long,
    LongKeys, LooksUp, ManyKeys, OneKey, ReadKey, ReadsKey, Reply, Run, arg, docs, tips, word,
};
use crate::limits::MGET_FREE_BYTES;
use crate::store::{Now, SharedValue, StringRef, UnixMs, Value};
use smallvec::SmallVec;

pub(super) const EXISTENCE: &[Arg] = &[word("nx", "NX"), word("xx", "XX")];

const SET_CONDITION: &[Arg] =
    &[EXISTENCE[0], EXISTENCE[1], COMPARISONS[0], COMPARISONS[1], COMPARISONS[2], COMPARISONS[3]];

/// The options that [`ExpiryOption::parse`] accepts.
pub(super) const EXPIRY: [Arg; 4] = [
    arg("seconds", ArgKind::Integer).token("EX"),
    arg("milliseconds", ArgKind::Integer).token("PX"),
    arg("unix-time-seconds", ArgKind::UnixTime).token("EXAT"),
    arg("unix-time-milliseconds", ArgKind::UnixTime).token("PXAT"),
];

pub(super) const SET_EXPIRY: &[Arg] =
    &[EXPIRY[0], EXPIRY[1], EXPIRY[2], EXPIRY[3], word("keepttl", "KEEPTTL")];

pub(super) const PAIR: &[Arg] = &[arg("key", ArgKind::Key), arg("value", ArgKind::String)];

pub(super) static GET: Command = Command {
    name: "get",
    arity: 2,
    keys: Keys::One(Access::Read),
    docs: docs("Returns the value of a key.").takes(&[arg("key", ArgKind::Key)]),
    action: Action::OneKey(Run::Read(get)),
    reads_value: true,
    ..Command::on_strings(Flags { readonly: true, fast: true, ..Flags::NONE })
};

pub(super) static SET: Command = Command {
    name: "set",
    looks_up: LooksUp::FirstWithGet,
    arity: -3,
    keys: Keys::ByOptions(ByOptions {
        most: Access::ReadOverwrite,
        plain: Access::Overwrite,
        words: &[
            ("get", Access::ReadOverwrite),
            ("ifeq", Access::Update),
            ("ifne", Access::Update),
            ("ifdeq", Access::Update),
            ("ifdne", Access::Update),
        ],
        first: 3,
    }),
    docs: docs("Sets the value of a key, optionally on conditions and with an expiry.").takes(&[
        arg("key", ArgKind::Key),
        arg("value", ArgKind::String),
        arg("condition", ArgKind::OneOf(SET_CONDITION)).optional(),
        word("get", "GET").optional(),
        arg("expiration", ArgKind::OneOf(SET_EXPIRY)).optional(),
    ]),
    action: Action::OneKey(Run::Edit(set)),
    sets_value: true,
    ..Command::on_strings(Flags { write: true, deny_oom: true, ..Flags::NONE })
};

pub(super) static MGET: Command = Command {
    name: "mget",
    arity: -2,
    keys: Keys::All(Access::Read),
    tips: &[tips::MULTI_SHARD],
    long: Long::FoundAlone(LongKeys::Mget),
    docs: docs("Returns the values of several keys, as they are at one moment.")
        .costs("O(N), N being the number of keys")
        .takes(&[arg("key", ArgKind::Key).multiple()]),
    action: Action::ManyKeys(Run::Read(mget)),
    reads_values: true,
    ..Command::on_strings(Flags { readonly: true, fast: true, ..Flags::NONE })
};

/// Replies with the key's value, or null.
///
/// # Errors
/// [`Error::WrongType`] or [`Error::ReplyTooLarge`], before anything is written.
pub(super) fn get(cx: &ReadKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    match cx.string()? {
        None => reply.null(),
        Some(value) => {
            if cx.limits.has_reply_limit() {
                cx.limits.reply(value.len())?;
            }
            reply.value(&value);
        }
    }
    Ok(())
}

/// The approximate size of an array element in a reply, without its value.
pub(super) const ELEMENT_BYTES: usize = 8;

/// The minimum size of an array element: a null of RESP3.
pub const LEAST_ELEMENT_BYTES: usize = 3;

fn mget(cx: &ManyKeys<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let keys = cx.args.from(1).len();
    if cx.limits.has_reply_limit() {
        return small_mget(cx, keys, reply);
    }
    let mut room = cx.limits.max_bytes_at_once;
    reply.array(keys);
    for number in 0..keys {
        let Some(value) = cx.string(number) else {
            reply.null();
            continue;
        };
        let bytes = value.bytes();
        if bytes.len() <= MGET_FREE_BYTES {
            reply.bulk(bytes);
            continue;
        }
        let large = bytes.len() - MGET_FREE_BYTES;
        if large > room {
            // The caller takes back what has been written.
            return Err(Error::LongWork);
        }
        room -= large;
        reply.value(&value);
    }
    Ok(())
}

/// MGET with a limited reply, whose size is checked before any of it is written.
fn small_mget(cx: &ManyKeys<'_>, keys: usize, reply: &mut dyn Reply) -> Result<(), Error> {
    let values: SmallVec<[Option<StringRef<'_>>; 16]> =
        (0..keys).map(|number| cx.string(number)).collect();
    let bytes: usize = values.iter().flatten().map(StringRef::len).sum();
    cx.limits.reply(bytes + keys * ELEMENT_BYTES)?;
    reply.array(keys);
    for value in &values {
        match value {
            Some(value) => reply.value(value),
            None => reply.null(),
        }
    }
    Ok(())
}

/// The element of MGET's reply for a key.
pub type Copied = Option<SharedValue>;

impl ManyKeys<'_> {
    /// The elements of MGET's reply, to be written later, if the reply is at most `most` bytes.
    ///
    /// # Errors
    /// [`Error::ReplyTooLarge`].
    pub fn copied(&self, most: usize) -> Result<Vec<Copied>, Error> {
        let mut bytes = 0;
        let keys = self.args.from(1).len();
        let copied = (0..keys).map(|number| {
            let value = self.string(number);
            bytes += LEAST_ELEMENT_BYTES + value.as_ref().map_or(0, StringRef::len);
            if bytes > most {
                return Err(Error::ReplyTooLarge);
            }
            Ok(value.map(|value| value.to_shared()))
        });
        copied.collect()
    }

    /// The value of key number `number`; `None` if the key does not exist or, as in Redis's MGET,
    /// is of another type.
    fn string(&self, number: usize) -> Option<StringRef<'_>> {
        self.keys.read(number)?.string().ok()
    }
}

fn set(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    if cx.args.len() > 3 {
        return set_with_options(cx, reply);
    }
    cx.check_set(2)?;
    cx.set(2, None, false);
    reply.ok();
    Ok(())
}

#[inline(never)]
fn set_with_options(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let options = SetOptions::parse(&cx.args, 3)?;
    let expire_at = options.expiry.map(|expiry| expiry.at(&cx.args, cx.now())).transpose()?;
    cx.check_set(2)?;

    let allowed = options.allow(cx)?;
    if options.get {
        get(&cx.as_read(), reply)?;
    }
    if !allowed {
        if !options.get {
            reply.null();
        }
        return Ok(());
    }

    cx.set(2, expire_at, options.keep_ttl);
    if !options.get {
        reply.ok();
    }
    Ok(())
}

impl OneKey<'_> {
    /// Refuses a key that is too long, or a value at index `argument` that is.
    #[inline]
    pub(super) fn check_set(&self, argument: usize) -> Result<(), Error> {
        self.limits.key(self.key.name())?;
        self.limits.value(self.args.get(argument).len())
    }

    /// Sets the key to the value at index `argument`. Without an expiry the old one may stay.
    #[inline]
    pub(super) fn set(&mut self, argument: usize, expire_at: Option<UnixMs>, keep_ttl: bool) {
        let kept = self.args.keep(argument, self.limits.keep_bytes);
        let value = kept.as_ref().map_or(Value::Inline(self.args.get(argument)), Value::Shared);
        let kept_expiry = if keep_ttl { self.key.expiry() } else { None };
        self.key.set(value, expire_at.or(kept_expiry));
        self.tell(Event::SET);
        if expire_at.is_some() {
            self.tell(Event::EXPIRE);
        }
    }
}

/// SET's options, as Redis 7.0 accepts them, with the comparisons of 8.4.
#[derive(Default)]
pub(super) struct SetOptions {
    pub(super) only_new: bool,
    pub(super) only_existing: bool,
    pub(super) comparison: Option<Comparison>,
    pub(super) get: bool,
    pub(super) keep_ttl: bool,
    pub(super) expiry: Option<ExpiryOption>,
}

impl SetOptions {
    /// Parses the arguments from `at` on.
    pub(super) fn parse(args: &Args<'_>, mut at: usize) -> Result<Self, Error> {
        let mut options = SetOptions::default();
        while at < args.len() {
            if args.is(at, "nx") && !options.only_existing {
                options.only_new = true;
            } else if args.is(at, "xx") && !options.only_new {
                options.only_existing = true;
            } else if args.is(at, "get") {
                options.get = true;
            } else if args.is(at, "keepttl") && options.expiry.is_none() {
                options.keep_ttl = true;
            } else if let Some(comparison) = Comparison::parse(args, at) {
                options.compare(comparison, at + 1 < args.len())?;
                at += 1;
            } else {
                options.expiry =
                    Some(ExpiryOption::parse(args, at, options.expiry, options.keep_ttl)?);
                at += 1;
            }
            at += 1;
        }
        Ok(options)
    }

    /// Accepts a comparison. As in Redis, the same one may be repeated, and the last one counts; NX
    /// or XX may follow it, but not precede it.
    fn compare(&mut self, comparison: Comparison, has_value: bool) -> Result<(), Error> {
        let other = self.comparison.is_some_and(|before| !before.is_like(comparison));
        if self.only_new || self.only_existing || other || !has_value {
            return Err(Error::Syntax);
        }
        self.comparison = Some(comparison);
        Ok(())
    }

    /// Whether the key may be set.
    fn allow(&self, cx: &OneKey<'_>) -> Result<bool, Error> {
        if !self.only_new && !self.only_existing && self.comparison.is_none() {
            return Ok(true);
        }
        let needs_key = self.only_existing || self.comparison.is_some_and(Comparison::needs_key);
        let is_there = cx.key.is_there();
        if self.only_new && is_there || needs_key && !is_there {
            return Ok(false);
        }
        match self.comparison {
            Some(comparison) => comparison.holds_for(cx),
            None => Ok(true),
        }
    }
}

/// An expiry option: the index of its number, and the unit and base of that number.
#[derive(Clone, Copy)]
pub(super) struct ExpiryOption {
    pub(super) argument: usize,
    pub(super) seconds: bool,
    pub(super) relative: bool,
}

impl ExpiryOption {
    /// Parses EX, PX, EXAT or PXAT at argument `at`. As in Redis, the same one may be repeated, and
    /// the last one counts; `before` is the one given before. With `excluded` an option was given
    /// that forbids these.
    pub(super) fn parse(
        args: &Args<'_>,
        at: usize,
        before: Option<ExpiryOption>,
        excluded: bool,
    ) -> Result<Self, Error> {
        let (seconds, relative) = match () {
            _ if args.is(at, "ex") => (true, true),
            _ if args.is(at, "px") => (false, true),
            _ if args.is(at, "exat") => (true, false),
            _ if args.is(at, "pxat") => (false, false),
            _ => return Err(Error::Syntax),
        };
        let other =
            before.is_some_and(|before| (before.seconds, before.relative) != (seconds, relative));
        if excluded || other || at + 1 == args.len() {
            return Err(Error::Syntax);
        }
        Ok(ExpiryOption { argument: at + 1, seconds, relative })
    }

    /// The time of expiry, in milliseconds since 1970.
    pub(super) fn at(self, args: &Args<'_>, now: &Now) -> Result<UnixMs, Error> {
        let number = args.integer(self.argument)?;
        let ms = if self.seconds { number.checked_mul(1000) } else { Some(number) };
        let at = match ms {
            Some(ms) if number > 0 && self.relative => ms.checked_add(now.ms()),
            ms => ms,
        };
        at.filter(|&at| at > 0).ok_or(Error::InvalidExpireTime)
    }
}
