//! Reading fields.

use super::{FIELD, FieldParts, KEY};
use crate::command::string::ELEMENT_BYTES;
use crate::command::{
    Access, Action, Arg, Command, Error, Flags, Keys, Long, LongKeys, ReadKey, ReadsKey, Reply,
    Run, docs, tips,
};
use crate::store::FieldRef;

type Read = fn(&ReadKey<'_>, &mut dyn Reply) -> Result<(), Error>;

const fn row(
    name: &'static str,
    arity: i32,
    summary: &'static str,
    args: &'static [Arg],
    action: Read,
) -> Command {
    Command {
        name,
        arity,
        keys: Keys::One(Access::Read),
        docs: docs(summary).takes(args),
        action: Action::OneKey(Run::Read(action)),
        ..Command::on_hashes(Flags { readonly: true, fast: true, ..Flags::NONE })
    }
}

/// A row of a command that returns something of all fields.
const fn row_of_all(
    name: &'static str,
    summary: &'static str,
    parts: FieldParts,
    action: Read,
) -> Command {
    let flags = Flags { readonly: true, ..Flags::NONE };
    Command {
        docs: docs(summary).costs("O(N), N being the number of fields").takes(&[KEY]),
        categories: Command::on_hashes(flags).categories,
        flags,
        tips: &[tips::ANY_ORDER],
        long: Long::FoundAlone(LongKeys::Fields(parts)),
        ..row(name, 2, summary, &[KEY], action)
    }
}

pub(in crate::command) static HGET: Command =
    row("hget", 3, "Returns the value of a field.", &[KEY, FIELD], |cx, reply| {
        match cx.fields()?.and_then(|fields| fields.get(cx.args.get(2))) {
            None => reply.null(),
            Some(value) => {
                cx.limits.reply(value.len())?;
                reply.bulk(value);
            }
        }
        Ok(())
    });

pub(in crate::command) static HMGET: Command = Command {
    docs: docs("Returns the values of several fields.")
        .costs("O(N), N being the number of fields asked for")
        .takes(&[KEY, FIELD.multiple()]),
    ..row("hmget", -3, "Returns the values of several fields.", &[], hmget)
};

pub(in crate::command) static HEXISTS: Command = Command {
    keys: Keys::One(Access::Look),
    ..row("hexists", 3, "Tells whether there is a field.", &[KEY, FIELD], |cx, reply| {
        let value = cx.fields()?.and_then(|fields| fields.get(cx.args.get(2)));
        reply.integer(value.is_some().into());
        Ok(())
    })
};

pub(in crate::command) static HLEN: Command = Command {
    keys: Keys::One(Access::Look),
    ..row("hlen", 2, "Returns the number of fields.", &[KEY], |cx, reply| {
        reply.integer(cx.fields()?.map_or(0, |fields| fields.len()) as i64);
        Ok(())
    })
};

pub(in crate::command) static HSTRLEN: Command = Command {
    keys: Keys::One(Access::Look),
    ..row("hstrlen", 3, "Returns the length of a field's value.", &[KEY, FIELD], |cx, reply| {
        let value = cx.fields()?.and_then(|fields| fields.get(cx.args.get(2)));
        reply.integer(value.map_or(0, <[u8]>::len) as i64);
        Ok(())
    })
};

pub(in crate::command) static HKEYS: Command =
    row_of_all("hkeys", "Returns the names of all fields.", FieldParts::Names, |cx, reply| {
        list(cx, reply, FieldParts::Names)
    });

pub(in crate::command) static HVALS: Command =
    row_of_all("hvals", "Returns the values of all fields.", FieldParts::Values, |cx, reply| {
        list(cx, reply, FieldParts::Values)
    });

pub(in crate::command) static HGETALL: Command =
    row_of_all("hgetall", "Returns all fields and their values.", FieldParts::Both, |cx, reply| {
        list(cx, reply, FieldParts::Both)
    });

fn hmget(cx: &ReadKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let fields = cx.fields()?;
    let value = |&name: &&[u8]| fields.and_then(|fields| fields.get(name));
    let names = cx.args.from(2);
    if cx.limits.has_reply_limit() {
        let bytes = names.iter().map(|name| ELEMENT_BYTES + value(name).map_or(0, <[u8]>::len));
        cx.limits.reply(bytes.sum())?;
    }
    reply.array(names.len());
    for name in names {
        match value(name) {
            Some(value) => reply.bulk(value),
            None => reply.null(),
        }
    }
    Ok(())
}

/// Replies with all fields.
///
/// # Errors
/// [`Error::LongWork`] if they are many, or long, and the command can become a job.
fn list(cx: &ReadKey<'_>, reply: &mut dyn Reply, parts: FieldParts) -> Result<(), Error> {
    let Some(fields) = cx.fields()? else {
        parts.begin(reply, 0);
        return Ok(());
    };
    if cx.reads_long(fields.len()) {
        return Err(Error::LongWork);
    }
    if cx.limits.has_reply_limit() {
        let size = |field: FieldRef<'_>| {
            let mut bytes = 0;
            parts.of(field, |part| bytes += ELEMENT_BYTES + part.len());
            bytes
        };
        check_reply(cx, fields.iter().map(size))?;
    }
    parts.begin(reply, fields.count());
    fields.iter().for_each(|field| parts.of(field, |part| reply.bulk(part)));
    Ok(())
}

/// Refuses a reply of elements of these sizes that must not be made on this thread. It looks at no
/// more of them than are needed for that.
fn check_reply(cx: &ReadKey<'_>, sizes: impl Iterator<Item = usize>) -> Result<(), Error> {
    let mut bytes = 0;
    for size in sizes {
        bytes += size;
        cx.limits.reply(bytes)?;
    }
    Ok(())
}
