//! HSCAN.

use super::KEY;
use crate::command::all_keys::parse_cursor;
use crate::command::glob::Pattern;
use crate::command::{
    Access, Action, ArgKind, Args, Command, Docs, Error, Flags, Keys, Limits, ReadKey, ReadsKey,
    Reply, Run, arg, key_pattern, tips, word,
};
use crate::limits::SCANNED_FIELDS;
use crate::store::FieldCursor;

pub(in crate::command) static HSCAN: Command = Command {
    name: "hscan",
    arity: -3,
    keys: Keys::One(Access::Read),
    tips: &[tips::ANY_OUTPUT],
    docs: Docs {
        summary: "Returns some fields and a cursor for the next call. A field that is there from \
                  the first call to the last is returned at least once.",
        complexity: "O(1) for each call, O(N) for all fields",
        args: &[
            KEY,
            arg("cursor", ArgKind::Integer),
            arg("pattern", ArgKind::Pattern).token("MATCH").optional(),
            arg("count", ArgKind::Integer).token("COUNT").optional(),
            word("novalues", "NOVALUES").optional(),
        ],
    },
    action: Action::OneKey(Run::Read(hscan)),
    ..Command::on_hashes(Flags { readonly: true, ..Flags::NONE })
};

/// HSCAN's options.
struct FieldScan {
    pattern: Pattern,
    /// About how many fields to look at.
    count: usize,
    with_values: bool,
}

impl FieldScan {
    fn parse(args: &Args<'_>, limits: &Limits) -> Result<Self, Error> {
        let mut scan = FieldScan { pattern: Pattern::new(b"*"), count: 10, with_values: true };
        let mut at = 3;
        while at < args.len() {
            let has_next = at + 1 < args.len();
            if args.is(at, "count") && has_next {
                at += 1;
                let count = usize::try_from(args.integer(at)?).ok();
                let count = count.filter(|&count| count >= 1).ok_or(Error::Syntax)?;
                scan.count = count.min(SCANNED_FIELDS);
            } else if args.is(at, "match") && has_next {
                at += 1;
                scan.pattern = key_pattern(args.get(at), limits)?;
            } else if args.is(at, "novalues") {
                scan.with_values = false;
            } else {
                return Err(Error::Syntax);
            }
            at += 1;
        }
        Ok(scan)
    }
}

fn hscan(cx: &ReadKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let cursor = parse_cursor(cx.args.get(2)).ok_or(Error::InvalidCursor)?;
    let Some(fields) = cx.fields()? else {
        say(reply, None, &[]);
        return Ok(());
    };
    let scan = FieldScan::parse(&cx.args, cx.limits)?;
    let (mut found, mut bytes, mut looked_at) = (Vec::new(), 0, 0);
    // A cursor that no call has returned is one that is at its end.
    let mut next = FieldCursor::try_from(cursor).ok();
    while let Some(at) = next.filter(|_| looked_at < scan.count) {
        next = fields.scan(at, &mut looked_at, &mut |field| {
            if scan.pattern.matches(field.name) {
                bytes += field.name.len();
                found.push(field.name);
                if scan.with_values {
                    bytes += field.value.len();
                    found.push(field.value);
                }
            }
        });
        cx.limits.reply(bytes)?;
    }
    say(reply, next, &found);
    Ok(())
}

fn say(reply: &mut dyn Reply, next: Option<FieldCursor>, found: &[&[u8]]) {
    reply.array(2);
    reply.bulk(itoa::Buffer::new().format(next.unwrap_or(0)).as_bytes());
    reply.array(found.len());
    found.iter().for_each(|part| reply.bulk(part));
}
