//! Writing to the host's log: a text as MIDI.JOURNAL, a record as the command of midi's that says
//! the same. Each function returns false if the host refuses.

use std::ffi::{CStr, c_int};

use midi_module_api as raw;
use smallvec::SmallVec;

use super::super::super::api::{Ctx, api};
use super::super::super::string::OwnString;
use super::super::save_points;
use crate::command::parse_integer;
use crate::command::record::{Record, RecordText, Records, Words};
use crate::store::{Traits, UnixMs};

/// The most arguments of a command that stands for a record, but for BITOP.
const ARGUMENTS: usize = 5;

/// Has the host log the command that it has called, as it stands: that takes a tenth of what
/// another command takes.
pub fn replicate_command(ctx: Ctx<'_>) -> bool {
    // SAFETY: the context is that of a command.
    has_logged(unsafe { api!(RedisModule_ReplicateVerbatim)(ctx.raw()) })
}

/// Whether the host has logged something, by its answer.
fn has_logged(answer: c_int) -> bool {
    let done = answer == raw::REDISMODULE_OK;
    if done {
        save_points::host_logged();
    }
    done
}

/// Has the host log a text.
pub(super) fn replicate_text(ctx: Ctx<'_>, text: &[u8]) -> bool {
    replicate(ctx, c"MIDI.JOURNAL", &[text])
}

/// Has the host log each record of a text as a command: a migration of slots takes along only what
/// names its keys. The log does not tell then how values came about.
pub(super) fn replicate_each(ctx: Ctx<'_>, text: &[u8]) -> bool {
    let Ok(records) = Records::new(text) else { return false };
    let (previous, mut all, mut one) = (ctx.selected_db(), true, Vec::new());
    let mut are_all_fields = true;
    let mut log = |record: Record<'_>| {
        one.clear();
        record.write(&mut one);
        all &= replicate_record(ctx, Words::of_record(&one));
    };
    for record in records.flatten() {
        match record {
            Record::Select { db } => _ = ctx.select_db(db),
            // The host makes one transaction of all.
            Record::Multi | Record::Exec => {}
            Record::Set { key, value, expire_at, .. } => {
                log(Record::Set { key, value, expire_at, traits: Traits::default() });
            }
            Record::SetRanges { key, pieces } => {
                for (offset, bytes) in pieces.iter() {
                    log(Record::SetRange { key, offset: offset as u32, bytes });
                }
            }
            Record::HPexpireAt { .. } | Record::HPersist { .. } => {
                are_all_fields &= replicate_expiry(ctx, record);
            }
            record => log(record),
        }
    }
    ctx.select_db(previous);
    all && are_all_fields
}

/// Has the host log a record of fields' expiry as the command, which has other words.
fn replicate_expiry(ctx: Ctx<'_>, record: Record<'_>) -> bool {
    let (name, key, at, fields) = match record {
        Record::HPexpireAt { key, at, fields } => (c"MIDI.HPEXPIREAT", key, Some(at), fields),
        Record::HPersist { key, fields } => (c"MIDI.HPERSIST", key, None, fields),
        _ => return false,
    };
    let (at, count) = (at.map(|at| at.to_string()), fields.iter().count().to_string());
    let mut args: Vec<&[u8]> = vec![key];
    args.extend(at.as_ref().map(|at| at.as_bytes()));
    args.extend([b"FIELDS", count.as_bytes()]);
    args.extend(fields.iter());
    replicate(ctx, name, &args)
}

/// Whether a command of midi's says the same as the one record of this text.
pub(super) fn is_as_command(text: &RecordText) -> bool {
    // SET takes no such expiry, which an import can set with PEXPIREAT.
    let is_early = |expire_at: UnixMs| expire_at <= 0;
    let Some(text) = text.plain() else {
        // A SET. Its last word is a time or its value, if it has no traits.
        let words: SmallVec<[&[u8]; ARGUMENTS]> = text.words().iter().collect();
        let expire_at = words.get(4).and_then(|word| parse_integer(word));
        return matches!(words.len(), 3 | 5) && !expire_at.is_some_and(is_early);
    };
    match Records::without_head(text).next() {
        Some(Ok(Record::Set { traits, expire_at, .. })) => {
            traits == Traits::default() && !expire_at.is_some_and(is_early)
        }
        // The command does nothing then, the record changes how the value came about.
        Some(Ok(Record::SetRange { bytes, .. })) => !bytes.is_empty(),
        // An older midi does not have the commands.
        Some(Ok(record)) => record.version() <= 2 && !matches!(record, Record::SetRanges { .. }),
        _ => false,
    }
}

/// Has the host log a record for which [`is_as_command`] is true: the command has the same words.
pub(super) fn replicate_record(ctx: Ctx<'_>, words: Words<'_>) -> bool {
    let mut words = words.iter();
    let name = [b"MIDI.", words.next().unwrap_or_default(), b"\0"].concat();
    let args: SmallVec<[&[u8]; ARGUMENTS]> = words.collect();
    CStr::from_bytes_with_nul(&name).is_ok_and(|name| replicate(ctx, name, &args))
}

/// Has the host log a command of midi's. It refuses a command that has been renamed.
fn replicate(ctx: Ctx<'_>, name: &CStr, args: &[&[u8]]) -> bool {
    let strings: SmallVec<[OwnString; ARGUMENTS]> =
        args.iter().map(|text| OwnString::new(text)).collect();
    // SAFETY: the context is valid; the host takes references of its own to these strings, which
    // are pointers to its strings, as `v` wants them, with their number.
    has_logged(unsafe {
        api!(RedisModule_Replicate)(
            ctx.raw(),
            name.as_ptr(),
            c"v".as_ptr(),
            strings.as_ptr(),
            strings.len(),
        )
    })
}
