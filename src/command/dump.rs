//! DUMP and RESTORE, after Redis's cluster.c. `payload/` has the payloads.

use super::{
    Access, Action, ArgKind, Args, Command, Docs, Error, Event, Flags, Keys, LoggedAs, OneKey,
    Reply, Run,
};
use super::{arg, payload, tips, word};
use crate::store::{SharedValue, Value};

pub(super) static DUMP: Command = Command {
    name: "dump",
    arity: 2,
    keys: Keys::One(Access::Read),
    tips: &[tips::ANY_OUTPUT],
    docs: Docs {
        summary: "Returns a value in the form that RESTORE takes, midi's and the host's; it is \
                  Redis 7.0's, packed where that saves room.",
        complexity: "O(N), N being the length of the value",
        args: &[arg("key", ArgKind::Key)],
    },
    action: Action::OneKey(Run::Read(dump)),
    ..Command::on_keys(Flags { readonly: true, ..Flags::NONE })
};

pub(super) static RESTORE: Command = Command {
    name: "restore",
    arity: -4,
    keys: Keys::One(Access::Overwrite),
    categories: "keyspace write slow dangerous",
    docs: Docs {
        summary: "Creates a key from what DUMP returned, midi's or that of a host up to Redis 8 \
                  and Valkey 9. Only strings are accepted. IDLETIME and FREQ are dropped.",
        complexity: "O(N), N being the length of the value",
        args: &[
            arg("key", ArgKind::Key),
            arg("ttl", ArgKind::Integer),
            arg("serialized-value", ArgKind::String),
            word("replace", "REPLACE").optional(),
            word("absttl", "ABSTTL").optional(),
            arg("seconds", ArgKind::Integer).token("IDLETIME").optional(),
            arg("frequency", ArgKind::Integer).token("FREQ").optional(),
        ],
    },
    logged_as: LoggedAs::Packed(3),
    action: Action::OneKey(Run::Edit(restore)),
    ..Command::on_keys(Flags { write: true, deny_oom: true, ..Flags::NONE })
};

fn dump(cx: &OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    match cx.string()? {
        None => reply.null(),
        Some(value) => {
            // Checked before the work, because packing takes longer than replying.
            cx.limits.reply(value.len())?;
            reply.bulk(&payload::of(value.bytes()));
        }
    }
    Ok(())
}

fn restore(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let options = RestoreOptions::parse(&cx.args)?;
    if cx.key.is_there() && !options.replace {
        return Err(Error::BusyKey);
    }
    let ttl = cx.args.integer(2)?;
    if ttl < 0 {
        return Err(Error::InvalidTtl);
    }
    let payload = cx.args.get(3);
    cx.limits.key(cx.key.name())?;
    // Checking and unpacking a large payload is for a worker, like a large reply.
    cx.limits.reply(payload.len())?;
    let value = payload::value(payload, cx.limits)?;

    let base = if options.absolute { 0 } else { cx.now().ms() };
    let expire_at = (ttl > 0).then(|| base.saturating_add(ttl));
    if expire_at.is_some_and(|at| cx.now().deletes(at)) {
        cx.delete();
        reply.ok();
        return Ok(());
    }
    let large = value.len() >= cx.limits.keep_bytes;
    let shared;
    let value = if large {
        shared = SharedValue::new(value.into_owned());
        Value::Shared(&shared)
    } else {
        Value::Inline(&value)
    };
    cx.key.set(value, expire_at);
    cx.tell(Event::RESTORE);
    reply.ok();
    Ok(())
}

/// RESTORE's options.
#[derive(Default)]
struct RestoreOptions {
    replace: bool,
    absolute: bool,
    idle_time: bool,
    frequency: bool,
}

impl RestoreOptions {
    fn parse(args: &Args<'_>) -> Result<Self, Error> {
        let mut options = RestoreOptions::default();
        let mut at = 4;
        while at < args.len() {
            let more = at + 1 < args.len();
            if args.is(at, "replace") {
                options.replace = true;
            } else if args.is(at, "absttl") {
                options.absolute = true;
            } else if args.is(at, "idletime") && more && !options.frequency {
                at += 1;
                if args.integer(at)? < 0 {
                    return Err(Error::InvalidIdleTime);
                }
                options.idle_time = true;
            } else if args.is(at, "freq") && more && !options.idle_time {
                at += 1;
                if !(0..=255).contains(&args.integer(at)?) {
                    return Err(Error::InvalidFrequency);
                }
                options.frequency = true;
            } else {
                return Err(Error::Syntax);
            }
            at += 1;
        }
        Ok(options)
    }
}
