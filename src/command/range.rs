//! Parts of values: APPEND, STRLEN, GETRANGE, SETRANGE, after Redis's t_string.c.

use super::{
    Access, Action, Arg, ArgKind, Command, Docs, Error, Event, Flags, Keys, Limits, OneKey,
    ReadKey, ReadsKey, Reply, Run, arg, docs,
};
use crate::limits::{GROWING_BYTES, GROWTH_DIVISOR};
use crate::store::{Origin, Value, ValuePart};

const KEY: Arg = arg("key", ArgKind::Key);
const VALUE: Arg = arg("value", ArgKind::String);
const RANGE: &[Arg] = &[KEY, arg("start", ArgKind::Integer), arg("end", ArgKind::Integer)];

pub(super) static APPEND: Command = Command {
    name: "append",
    arity: 3,
    keys: Keys::One(Access::Extend),
    docs: docs("Appends bytes to a key's value; creates the key if it does not exist.")
        .costs("O(1) for each byte appended, on average")
        .takes(&[KEY, VALUE]),
    action: Action::OneKey(Run::Edit(append)),
    slow_by_value: true,
    ..Command::on_strings(Flags { write: true, deny_oom: true, fast: true, ..Flags::NONE })
};

pub(super) static STRLEN: Command = Command {
    name: "strlen",
    arity: 2,
    keys: Keys::One(Access::Look),
    docs: docs("Returns the length of a key's value in bytes.").takes(&[KEY]),
    action: Action::OneKey(Run::Read(strlen)),
    ..Command::on_strings(Flags { readonly: true, fast: true, ..Flags::NONE })
};

const fn get_range(name: &'static str, summary: &'static str) -> Command {
    Command {
        name,
        arity: 4,
        keys: Keys::One(Access::Read),
        docs: docs(summary).costs("O(N), N being the length of the part").takes(RANGE),
        action: Action::OneKey(Run::Read(getrange)),
        ..Command::on_strings(Flags { readonly: true, ..Flags::NONE })
    }
}

pub(super) static GETRANGE: Command =
    get_range("getrange", "Returns a part of a key's value; negative offsets count from the end.");

pub(super) static SUBSTR: Command =
    get_range("substr", "Returns a part of a key's value: GETRANGE's old name.");

pub(super) static SETRANGE: Command = Command {
    name: "setrange",
    arity: 4,
    keys: Keys::One(Access::Update),
    docs: Docs {
        summary: "Overwrites a part of a key's value, which is padded with zero bytes up to there \
                  if it is shorter.",
        complexity: "O(N), N being the length of the part",
        args: &[KEY, arg("offset", ArgKind::Integer), VALUE],
    },
    action: Action::OneKey(Run::Edit(setrange)),
    ..Command::on_strings(Flags { write: true, deny_oom: true, ..Flags::NONE })
};

fn append(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let bytes = cx.args.get(2);
    let before = cx.len()?;
    let len = match before {
        Some(before) => {
            let len = cx.write_at(before, bytes)?;
            cx.key.set_origin(Origin::Edited);
            len
        }
        None => {
            cx.limits.value(bytes.len())?;
            let kept = cx.args.keep(2, cx.limits.keep_bytes);
            cx.replace(kept.as_ref().map_or(Value::Inline(bytes), Value::Shared))?;
            bytes.len()
        }
    };
    cx.tell(Event::APPEND);
    reply.integer(len as i64);
    Ok(())
}

fn strlen(cx: &ReadKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    reply.integer(cx.len()?.unwrap_or(0) as i64);
    Ok(())
}

fn getrange(cx: &ReadKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let (start, end) = (cx.args.integer(2)?, cx.args.integer(3)?);
    match cx.string()? {
        None => reply.bulk(b""),
        Some(value) => {
            let part = part(value.bytes(), start, end);
            cx.limits.reply(part.len())?;
            reply.bulk(part);
        }
    }
    Ok(())
}

/// The bytes from `start` to `end`, both included; negative ones count from the end.
fn part(bytes: &[u8], start: i64, end: i64) -> &[u8] {
    let len = bytes.len() as i64;
    let from_start = |offset: i64| if offset < 0 { (len + offset).max(0) } else { offset };
    // Offsets before the beginning mean the first byte, unless both count from the end and `start`
    // is after `end`.
    if start < 0 && end < 0 && start > end {
        return &[];
    }
    let (start, end) = (from_start(start), from_start(end).min(len - 1));
    if start > end { &[] } else { &bytes[start as usize..=end as usize] }
}

fn setrange(cx: &mut OneKey<'_>, reply: &mut dyn Reply) -> Result<(), Error> {
    let offset = usize::try_from(cx.args.integer(2)?).map_err(|_| Error::OffsetOutOfRange)?;
    let bytes = cx.args.get(3);
    let before = cx.len()?;
    let len = if bytes.is_empty() { before.unwrap_or(0) } else { cx.write_at(offset, bytes)? };
    if !bytes.is_empty() {
        cx.key.set_origin(Origin::Edited);
        cx.tell(Event::SETRANGE);
    }
    reply.integer(len as i64);
    Ok(())
}

/// Extends a value with zeros to at least `len` bytes, in a buffer with room to grow.
fn lengthen(value: &mut Vec<u8>, len: usize, limits: &Limits) -> Result<(), Error> {
    let before = value.len();
    // The new bytes are written; if the buffer is too small, the old ones are moved too.
    limits.touch(len.saturating_sub(before))?;
    if len > value.capacity() {
        limits.touch(before)?;
    }
    extend_to(value, len);
    Ok(())
}

/// Extends a value with zeros to at least `len` bytes.
pub(super) fn extend_to(value: &mut Vec<u8>, len: usize) {
    let before = value.len();
    if len > value.capacity() {
        value.reserve_exact((len - before).max(before / GROWTH_DIVISOR));
    }
    if len > before {
        value.resize(len, 0);
    }
}

/// Lends a new value, as a buffer that can grow if it is large.
pub(super) fn with_made<R>(value: Vec<u8>, lend: impl FnOnce(Value<'_>) -> R) -> R {
    Value::lend(value.into(), GROWING_BYTES, lend)
}

impl OneKey<'_> {
    /// Sets the key's value and keeps its expiry.
    pub(super) fn replace(&mut self, value: Value<'_>) -> Result<(), Error> {
        if !self.key.is_there() {
            self.limits.key(self.key.name())?;
        }
        self.key.set(value, self.key.expiry());
        Ok(())
    }

    /// The length of a value that ends with `bytes` bytes at `offset`. Fails if it is above the
    /// limit.
    fn checked_len(&self, offset: usize, bytes: usize) -> Result<usize, Error> {
        let len = offset.saturating_add(bytes);
        self.limits.value(len)?;
        Ok(len)
    }

    /// Writes bytes into the key's value, which is created if it is missing and grows as needed.
    /// Returns its length.
    pub(super) fn write_at(&mut self, offset: usize, bytes: &[u8]) -> Result<usize, Error> {
        let end = self.checked_len(offset, bytes.len())?;
        if bytes.is_empty() {
            // An APPEND of nothing counts as a change for WATCH too.
            self.key.touch();
            return Ok(self.len()?.unwrap_or(0));
        }
        let mut len = 0;
        self.change_bytes(&[(offset as u32, end as u32)], |value| {
            value[offset..end].copy_from_slice(bytes);
            len = value.len();
            true
        })?;
        Ok(len)
    }

    /// Lets `change` write into these parts of the key's value, which is created if it is missing
    /// and extended with zeros to at least the end of the last one. If the value did not grow and
    /// `change` returns false, the key counts as unchanged.
    ///
    /// # Errors
    /// Before `change` is called: it is too much work for this thread. The caller has checked that
    /// the value may be so long.
    pub(super) fn change_bytes(
        &mut self,
        parts: &[ValuePart],
        mut change: impl FnMut(&mut [u8]) -> bool,
    ) -> Result<(), Error> {
        let (limits, len) = (*self.limits, parts.last().map_or(0, |&(_, end)| end as usize));
        // The error `None` means that nothing was changed.
        let mut edit = |value: &mut Vec<u8>| {
            let grows = len > value.len();
            lengthen(value, len, &limits)?;
            if change(value) || grows { Ok(()) } else { Err(None) }
        };
        let edited = match self.key.change(parts, &mut edit) {
            Some(edited) => edited,
            None => {
                let mut value = self.copied(len)?;
                let edited = edit(&mut value);
                if edited.is_ok() || !self.key.is_there() {
                    if !self.key.is_there() {
                        self.limits.key(self.key.name())?;
                    }
                    with_made(value, |value| self.key.rewrite(parts, value));
                }
                edited
            }
        };
        edited.or_else(|refused| refused.map_or(Ok(()), Err))
    }

    /// A copy of the key's value, with room for `len` bytes; or `len` zeros for a missing key,
    /// whose memory pages are allocated only when they are accessed.
    fn copied(&self, len: usize) -> Result<Vec<u8>, Error> {
        let Some(old) = self.string()? else {
            self.limits.touch(len)?;
            return Ok(vec![0; len]);
        };
        let capacity = old.len().max(len);
        self.limits.touch(capacity)?;
        let mut value = Vec::with_capacity(capacity);
        value.extend_from_slice(old.bytes());
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn parts_by_offsets_from_both_ends() {
        let text = b"This is a string";
        for (start, end, expected) in [
            (0, 3, &b"This"[..]),
            (-3, -1, b"ing"),
            (0, -1, text),
            (10, 100, b"string"),
            (-100, 3, b"This"),
            (-100, -200, b""),
            (-200, -100, b"T"),
            (5, 3, b""),
            (16, 16, b""),
            (i64::MIN, i64::MAX, text),
            (i64::MAX, i64::MIN, b""),
            (i64::MIN, i64::MIN, b"T"),
        ] {
            assert_eq!(part(text, start, end), expected, "{start} {end}");
        }
        assert_eq!(part(b"", 0, -1), b"");
        assert_eq!(part(b"", -1, -1), b"");
    }
}
