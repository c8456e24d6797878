//! When fields expire: HTTL, HPTTL, HEXPIRETIME and HPEXPIRETIME.

use super::KEY;
use super::listed::{FIELDS, TimeKind, listed_at_end};
use crate::command::string::ELEMENT_BYTES;
use crate::command::{
    Access, Action, Command, Error, Flags, Keys, ReadKey, ReadsKey, Reply, Run, docs, tips,
};

const fn row(
    name: &'static str,
    twins: &'static [&'static str],
    summary: &'static str,
    action: fn(&ReadKey<'_>, &mut dyn Reply) -> Result<(), Error>,
) -> Command {
    Command {
        name,
        arity: -5,
        // Hosts before Redis 7.4 do not have it.
        twins,
        keys: Keys::One(Access::Read),
        docs: docs(summary).costs("O(N), N being the number of fields").takes(&[KEY, FIELDS]),
        action: Action::OneKey(Run::Read(action)),
        ..Command::on_hashes(Flags { readonly: true, fast: true, ..Flags::NONE })
    }
}

pub(in crate::command) static HTTL: Command = Command {
    tips: &[tips::ANY_OUTPUT],
    ..row(
        "httl",
        &["httl", "hget"],
        "Returns the time to live of fields in seconds: -1 without one, -2 without the field.",
        |cx, reply| times(cx, reply, TimeKind::EX),
    )
};

pub(in crate::command) static HPTTL: Command = Command {
    tips: &[tips::ANY_OUTPUT],
    ..row(
        "hpttl",
        &["hpttl", "hget"],
        "Returns the time to live of fields in milliseconds: -1 without one, -2 without the field.",
        |cx, reply| times(cx, reply, TimeKind::PX),
    )
};

pub(in crate::command) static HEXPIRETIME: Command = row(
    "hexpiretime",
    &["hexpiretime", "hget"],
    "Returns when fields expire, in seconds since 1970: -1 for never, -2 without the field.",
    |cx, reply| times(cx, reply, TimeKind::EXAT),
);

pub(in crate::command) static HPEXPIRETIME: Command = row(
    "hpexpiretime",
    &["hpexpiretime", "hget"],
    "Returns when fields expire, in milliseconds since 1970: -1 for never, -2 without the field.",
    |cx, reply| times(cx, reply, TimeKind::PXAT),
);

/// Replies with the time of each field; seconds are rounded up, as in Redis.
fn times(cx: &ReadKey<'_>, reply: &mut dyn Reply, kind: TimeKind) -> Result<(), Error> {
    let fields = cx.fields()?;
    let names = listed_at_end(&cx.args)?;
    cx.limits.reply(names.len() * ELEMENT_BYTES)?;
    let base = if kind.relative { cx.now().ms() } else { 0 };
    reply.array(names.len());
    for name in names {
        reply.integer(match fields.and_then(|fields| fields.expiry(name)) {
            None => -2,
            Some(None) => -1,
            Some(Some(at)) => ((at - base).max(0) as u64).div_ceil(kind.unit_ms as u64) as i64,
        });
    }
    Ok(())
}
