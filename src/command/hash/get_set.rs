//! HGETEX and HSETEX: values and expiry of fields in one command.

use std::ops::Range;

use super::listed::{FIELDS, NUMFIELDS, TimeKind, listed};
use super::{FIELD, KEY, VALUE};
use crate::command::string::{ELEMENT_BYTES, EXPIRY, SET_EXPIRY};
use crate::command::{
    Access, Action, Arg, ArgKind, Command, Error, Event, Flags, Keys, OneKey, ReadsKey, Reply, Run,
    arg, docs, word,
};
use crate::store::{UnixMs, Value};

const GET_EXPIRY: &[Arg] =
    &[EXPIRY[0], EXPIRY[1], EXPIRY[2], EXPIRY[3], word("persist", "PERSIST")];

const EXISTENCE: &[Arg] = &[word("fnx", "FNX"), word("fxx", "FXX")];

const PAIRS: Arg = arg(
    "fields",
    ArgKind::Block(&[NUMFIELDS, arg("data", ArgKind::Block(&[FIELD, VALUE])).multiple()]),
)
.token("FIELDS");

pub(in crate::command) static HGETEX: Command = Command {
    name: "hgetex",
    arity: -5,
    // Hosts before Redis 8 and Valkey 9 do not have it.
    twins: &["hgetex", "hset"],
    keys: Keys::One(Access::ReadOverwrite),
    docs: docs("Returns the values of fields, and sets or removes their time to live if wanted.")
        .costs("O(N), N being the number of fields")
        .takes(&[KEY, arg("expiration", ArgKind::OneOf(GET_EXPIRY)).optional(), FIELDS]),
    action: Action::OneKey(Run::Edit(hgetex)),
    ..Command::on_hashes(Flags { write: true, fast: true, ..Flags::NONE })
};

pub(in crate::command) static HSETEX: Command = Command {
    name: "hsetex",
    arity: -6,
    twins: &["hsetex", "hset"],
    keys: Keys::One(Access::Update),
    docs: docs("Sets fields, on conditions and with a time to live if wanted.")
        .costs("O(N), N being the number of fields that are set")
        .takes(&[
            KEY,
            arg("condition", ArgKind::OneOf(EXISTENCE)).optional(),
            arg("expiration", ArgKind::OneOf(SET_EXPIRY)).optional(),
            PAIRS,
        ]),
    action: Action::OneKey(Run::Edit(hsetex)),
    ..Command::on_hashes(Flags { write: true, deny_oom: true, fast: true, ..Flags::NONE })
};

/// One of the two commands, in the terms of their arguments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Get,
    Set,
}

impl Which {
    /// The arguments of a field.
    fn each(self) -> usize {
        if self == Which::Get { 1 } else { 2 }
    }

    /// The word that stands for no new expiry.
    fn word(self) -> &'static str {
        if self == Which::Get { "PERSIST" } else { "KEEPTTL" }
    }
}

/// The options of the two commands, in any order. As in Redis, both know the words of the other
/// one, and refuse them at last.
#[derive(Default)]
struct FieldOptions {
    /// The arguments that are the fields.
    fields: Option<Range<usize>>,
    /// The time of EX, PX, EXAT or PXAT.
    time: Option<UnixMs>,
    persist: bool,
    keep_ttl: bool,
    /// FXX is true, FNX false.
    existing: Option<bool>,
}

impl FieldOptions {
    fn parse(cx: &OneKey<'_>, which: Which) -> Result<(Range<usize>, FieldOptions), Error> {
        let mut options = FieldOptions::default();
        let mut at = 2;
        while at < cx.args.len() {
            at = options.take(cx, which, at)?;
        }
        let fields = options.fields.take().ok_or(Error::MissingFields)?;
        let is_foreign = match which {
            Which::Get => options.keep_ttl || options.existing.is_some(),
            Which::Set => options.persist,
        };
        if is_foreign { Err(Error::OptionOfAnother) } else { Ok((fields, options)) }
    }

    /// Takes the option at this argument; returns where the next one stands.
    fn take(&mut self, cx: &OneKey<'_>, which: Which, at: usize) -> Result<usize, Error> {
        let args = &cx.args;
        if args.is(at, "fields") {
            return self.take_fields(cx, which, at);
        }
        if args.is(at, "fnx") || args.is(at, "fxx") {
            let before = self.existing.replace(args.is(at, "fxx"));
            return if before.is_some() { Err(Error::FxxAndFnx) } else { Ok(at + 1) };
        }
        let (persist, keep_ttl) = (args.is(at, "persist"), args.is(at, "keepttl"));
        let kind = TimeKind::of_option(args, at);
        if !persist && !keep_ttl && kind.is_none() {
            return Err(Error::UnknownArgument(at));
        }
        // PERSIST and KEEPTTL do not exclude each other: one of them is foreign.
        let is_second =
            self.time.is_some() || self.persist && !keep_ttl || self.keep_ttl && !persist;
        if is_second {
            return Err(Error::SeveralExpiries(which.word()));
        }
        self.persist |= persist;
        self.keep_ttl |= keep_ttl;
        let Some(kind) = kind else { return Ok(at + 1) };
        if at + 1 == args.len() {
            return Err(Error::MissingExpireTime);
        }
        self.time = Some(kind.time(cx, at + 1)?);
        Ok(at + 2)
    }

    fn take_fields(&mut self, cx: &OneKey<'_>, which: Which, at: usize) -> Result<usize, Error> {
        if self.fields.is_some() {
            return Err(Error::FieldsTwice);
        }
        if at + 1 >= cx.args.len() {
            return Err(Error::Arity);
        }
        let found = listed(&cx.args, at, which.each(), Error::InvalidNumberOfFields)?;
        let end = found.end;
        self.fields = Some(found);
        Ok(end)
    }
}

fn hgetex(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let fields = cx.fields()?;
    let (listed, options) = FieldOptions::parse(cx, Which::Get)?;
    let names = &cx.args.from(listed.start)[..listed.len()];
    let bytes = |name: &&[u8]| {
        ELEMENT_BYTES + fields.and_then(|fields| fields.get(name)).map_or(0, <[u8]>::len)
    };
    cx.limits.reply(names.iter().map(bytes).sum())?;
    let mut is_changed = false;
    reply.array(names.len());
    for name in names {
        match cx.fields()?.and_then(|fields| fields.get(name)) {
            Some(value) => {
                reply.bulk(value);
                is_changed |= change_expiry(cx, name, &options)?;
            }
            None => reply.null(),
        }
    }
    match options.time {
        _ if !is_changed => {}
        Some(time) => cx.tell_of_expiry(time),
        None => cx.tell(Event::HPERSIST),
    }
    Ok(())
}

/// Changes the expiry of a field that is there, if it is to be changed. Returns whether it has.
fn change_expiry(cx: &mut OneKey<'_>, name: &[u8], options: &FieldOptions) -> Result<bool, Error> {
    if let Some(time) = options.time {
        cx.expire_or_remove(name, time);
        return Ok(true);
    }
    if !options.persist {
        return Ok(false);
    }
    let expires = cx.fields()?.and_then(|fields| fields.expiry(name)).flatten().is_some();
    Ok(expires && cx.key.expire_field(name, None))
}

fn hsetex(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let args = cx.args;
    let (listed, options) = FieldOptions::parse(cx, Which::Set)?;
    let fields = cx.fields()?;
    let pairs = || listed.clone().step_by(2);
    let is_there = |at: usize| fields.is_some_and(|fields| fields.get(args.get(at)).is_some());
    if options.existing.is_some_and(|existing| pairs().any(|at| is_there(at) != existing)) {
        reply.integer(0);
        return Ok(());
    }
    for at in pairs() {
        cx.check_field(args.get(at), args.get(at + 1))?;
    }
    for at in pairs() {
        set_listed(cx, at, &options)?;
    }
    cx.tell(Event::HSET);
    if let Some(time) = options.time {
        cx.tell_of_expiry(time);
    }
    reply.integer(1);
    Ok(())
}

/// Sets the field at argument `at` to the next one. A time that has passed removes it: there is no
/// need to set it first. As on the host, that is a write even if the field was not there.
fn set_listed(cx: &mut OneKey<'_>, at: usize, options: &FieldOptions) -> Result<(), Error> {
    let (args, name) = (cx.args, cx.args.get(at));
    if options.time.is_some_and(|time| cx.now().deletes(time)) {
        if !cx.key.remove_field(name) {
            cx.key.touch();
        }
        return Ok(());
    }
    let expire_at = if options.keep_ttl {
        cx.fields()?.and_then(|fields| fields.expiry(name)).flatten()
    } else {
        options.time
    };
    let kept = args.keep(at + 1, cx.limits.keep_bytes);
    let value = kept.as_ref().map_or(Value::Inline(args.get(at + 1)), Value::Shared);
    cx.key.set_field(name, value, expire_at)?;
    Ok(())
}
