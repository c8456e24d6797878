//! GETDEL and GETEX, after Redis's t_string.c.

use std::sync::atomic::{AtomicBool, Ordering};

use super::string::{EXPIRY, ExpiryOption, get};
use super::{
    Access, Action, Arg, ArgKind, Args, Command, Error, Event, Flags, Keys, LooksUp, OneKey,
    ReadsKey, Reply, Run, arg, docs, word,
};

const KEY: Arg = arg("key", ArgKind::Key);

const GETEX_EXPIRY: &[Arg] =
    &[EXPIRY[0], EXPIRY[1], EXPIRY[2], EXPIRY[3], word("persist", "PERSIST")];

pub(super) static GETDEL: Command = Command {
    name: "getdel",
    looks_up: LooksUp::First,
    arity: 2,
    keys: Keys::One(Access::Take),
    docs: docs("Returns the value of a key and deletes the key.").takes(&[KEY]),
    action: Action::OneKey(Run::Edit(getdel)),
    ..Command::on_strings(Flags { write: true, fast: true, ..Flags::NONE })
};

pub(super) static GETEX: Command = Command {
    name: "getex",
    looks_up: LooksUp::First,
    arity: -2,
    keys: Keys::One(Access::ReadOverwrite),
    docs: docs("Returns the value of a key and optionally changes its expiry.")
        .takes(&[KEY, arg("expiration", ArgKind::OneOf(GETEX_EXPIRY)).optional()]),
    action: Action::OneKey(Run::Edit(getex)),
    ..Command::on_strings(Flags { write: true, fast: true, ..Flags::NONE })
};

fn getdel(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    get(&cx.as_read(), reply)?;
    cx.delete();
    Ok(())
}

/// Whether GETEX checks its expiry before it looks for the key.
static CHECKS_FIRST: AtomicBool = AtomicBool::new(false);

/// From now on GETEX refuses a wrong expiry of a key that does not exist, too, as Valkey's does
/// from 9.1 on. Redis answers null.
pub fn getex_checks_first() {
    CHECKS_FIRST.store(true, Ordering::Relaxed);
}

fn getex(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let options = GetexOptions::parse(&cx.args)?;
    let expire_at = options.expiry.map(|expiry| expiry.at(&cx.args, cx.now())).transpose();
    if CHECKS_FIRST.load(Ordering::Relaxed) {
        expire_at?;
    }
    if cx.string()?.is_none() {
        reply.null();
        return Ok(());
    }
    let expire_at = expire_at?;
    get(&cx.as_read(), reply)?;
    match expire_at {
        Some(at) if cx.now().deletes(at) => _ = cx.delete(),
        Some(_) => {
            cx.key.expire_at(expire_at);
            cx.tell(Event::EXPIRE);
        }
        None if options.persist && cx.key.expiry().is_some() => {
            cx.key.expire_at(None);
            cx.tell(Event::PERSIST);
        }
        None => {}
    }
    Ok(())
}

#[derive(Default)]
struct GetexOptions {
    persist: bool,
    expiry: Option<ExpiryOption>,
}

impl GetexOptions {
    fn parse(args: &Args<'_>) -> Result<Self, Error> {
        let mut options = GetexOptions::default();
        let mut at = 2;
        while at < args.len() {
            if args.is(at, "persist") && options.expiry.is_none() {
                options.persist = true;
            } else {
                options.expiry =
                    Some(ExpiryOption::parse(args, at, options.expiry, options.persist)?);
                at += 1;
            }
            at += 1;
        }
        Ok(options)
    }
}
