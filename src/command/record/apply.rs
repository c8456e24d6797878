//! What a record does to a key.

use std::borrow::Cow;
use std::convert::Infallible;

use super::super::range::{extend_to, with_made};
use super::super::{Event, Limits, payload};
use super::{Record, Words};
use crate::limits::MAX_STRING_BYTES;
use crate::store::{Edit, Origin, Traits, UnixMs, Value, ValueParts, WrongType};

/// Why a record cannot be applied to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CannotApply {
    /// The value would be longer than any may be.
    TooLong,
    /// Its payload is not one of RESTORE.
    Payload,
    /// The key has a value of another type.
    Type,
}

impl Record<'_> {
    /// Does to its key what a record of one key says, whether or not the key exists. A value of
    /// `keep_bytes` or more gets a buffer of its own.
    ///
    /// # Errors
    /// Why it cannot be applied; the key is unchanged.
    #[inline]
    pub fn apply_to(&self, key: &mut Edit<'_>, keep_bytes: usize) -> Result<(), CannotApply> {
        match *self {
            Record::Set { value, expire_at, traits, .. } => {
                put_value(key, Cow::Borrowed(value), expire_at, traits, keep_bytes);
            }
            Record::Append { bytes, .. } => write(key, &[(end_of(key), bytes)])?,
            Record::SetRange { offset, bytes, .. } => write(key, &[(offset as usize, bytes)])?,
            Record::SetRanges { pieces, .. } => {
                write(key, &pieces.iter().collect::<Vec<_>>())?;
            }
            Record::Restore { payload, expire_at, .. } => {
                let value = payload::value(payload, &Limits::NONE);
                let value = value.map_err(|_| CannotApply::Payload)?;
                put_value(key, value, expire_at, Traits::default(), keep_bytes);
            }
            Record::HSet { pairs, .. } => set_fields(key, pairs, keep_bytes)?,
            Record::HDel { fields, .. } => {
                may_have_fields(key)?;
                for field in fields.iter() {
                    key.remove_field(field);
                }
            }
            Record::HPexpireAt { at, fields, .. } => expire_fields(key, fields, Some(at))?,
            Record::HPersist { fields, .. } => expire_fields(key, fields, None)?,
            Record::PexpireAt { at, .. } => key.expire_at(Some(at)),
            Record::Persist { .. } => key.expire_at(None),
            Record::Traits { expire_at, traits, .. } => {
                key.set_traits(traits);
                if key.expiry() != expire_at {
                    key.expire_at(expire_at);
                }
            }
            Record::Del { .. } => {
                key.remove();
            }
            Record::Select { .. }
            | Record::Multi
            | Record::Exec
            | Record::Rename { .. }
            | Record::Copy { .. }
            | Record::Move { .. }
            | Record::BitOp { .. }
            | Record::FlushDb
            | Record::FlushAll
            | Record::SwapDb { .. } => {}
        }
        Ok(())
    }

    /// What listeners are notified of: the event of the first key, and that of the second.
    pub fn events(&self) -> (Option<Event>, Option<Event>) {
        let first = |event| (Some(event), None);
        match self {
            Record::Select { .. }
            | Record::Multi
            | Record::Exec
            | Record::Traits { .. }
            | Record::BitOp { .. }
            | Record::FlushDb
            | Record::FlushAll
            | Record::SwapDb { .. } => (None, None),
            Record::Set { .. } => first(Event::SET),
            Record::Del { .. } => first(Event::DEL),
            Record::PexpireAt { .. } => first(Event::EXPIRE),
            Record::Persist { .. } => first(Event::PERSIST),
            Record::Append { .. } => first(Event::APPEND),
            Record::SetRange { .. } => first(Event::SETRANGE),
            Record::HSet { .. } => first(Event::HSET),
            Record::HDel { .. } => first(Event::HDEL),
            Record::HPexpireAt { .. } => first(Event::HEXPIRE),
            Record::HPersist { .. } => first(Event::HPERSIST),
            Record::SetRanges { .. } => first(Event::SETBIT),
            Record::Restore { .. } => first(Event::RESTORE),
            Record::Rename { .. } => (Some(Event::RENAME_FROM), Some(Event::RENAME_TO)),
            Record::Copy { .. } => (None, Some(Event::COPY_TO)),
            Record::Move { .. } => (Some(Event::MOVE_FROM), Some(Event::MOVE_TO)),
        }
    }
}

/// Sets a value; one of `keep_bytes` or more gets a buffer of its own.
#[inline]
pub fn put_value(
    key: &mut Edit<'_>,
    value: Cow<'_, [u8]>,
    expire_at: Option<UnixMs>,
    traits: Traits,
    keep_bytes: usize,
) {
    Value::lend(value, keep_bytes, |value| key.set_with(value, expire_at, traits));
}

/// Sets fields of a hash: each word is a field, and the next one its value.
fn set_fields(key: &mut Edit<'_>, pairs: Words<'_>, keep_bytes: usize) -> Result<(), CannotApply> {
    let mut words = pairs.iter();
    while let (Some(field), Some(value)) = (words.next(), words.next()) {
        Value::lend(value.into(), keep_bytes, |value| key.set_field(field, value, None))
            .map_err(|WrongType| CannotApply::Type)?;
    }
    Ok(())
}

fn expire_fields(
    key: &mut Edit<'_>,
    fields: Words<'_>,
    expire_at: Option<UnixMs>,
) -> Result<(), CannotApply> {
    may_have_fields(key)?;
    for field in fields.iter() {
        key.expire_field(field, expire_at);
    }
    Ok(())
}

/// Refuses a key with a value that is not a hash.
fn may_have_fields(key: &Edit<'_>) -> Result<(), CannotApply> {
    key.fields().map(|_| ()).map_err(|WrongType| CannotApply::Type)
}

/// Where a string ends.
fn end_of(key: &Edit<'_>) -> usize {
    key.read().and_then(|entry| Some(entry.string().ok()?.len())).unwrap_or(0)
}

/// Writes pieces into a value, each at its offset. A missing key is created, and a short value
/// padded with zeros.
fn write(key: &mut Edit<'_>, pieces: &[(usize, &[u8])]) -> Result<(), CannotApply> {
    let (mut parts, mut end) = (ValueParts::new(), 0);
    for &(offset, bytes) in pieces {
        let stop = offset.checked_add(bytes.len()).filter(|&it| it <= MAX_STRING_BYTES as usize);
        end = end.max(stop.ok_or(CannotApply::TooLong)?);
        parts.push((offset as u32, end as u32));
    }
    let edit = |value: &mut Vec<u8>| {
        extend_to(value, end);
        for &(offset, bytes) in pieces {
            value[offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        Ok::<_, Infallible>(())
    };
    if key.change(&parts, edit).is_none() {
        let old = key.read().map(|entry| entry.string()).transpose();
        let old = old.map_err(|WrongType| CannotApply::Type)?.map(|value| value.bytes().to_vec());
        // The pages of a new value are allocated only where they are written.
        let mut value = old.unwrap_or_else(|| vec![0; end]);
        let Ok(()) = edit(&mut value);
        with_made(value, |value| key.rewrite(&parts, value));
    }
    key.set_origin(Origin::Edited);
    Ok(())
}
