//! What a record does to a key.

use std::convert::Infallible;

use super::super::Event;
use super::super::range::{extend_to, with_made};
use super::Record;
use crate::limits::MAX_STRING_BYTES;
use crate::store::{Edit, Origin, SharedValue, Value};

/// A record would make a value longer than any may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueTooLong;

impl Record<'_> {
    /// Does to its key what a record of one key says, whether or not the key exists. A value of
    /// `keep_bytes` or more gets a buffer of its own.
    ///
    /// # Errors
    /// The value would be too long; the key is unchanged.
    #[inline]
    pub fn apply_to(&self, key: &mut Edit<'_>, keep_bytes: usize) -> Result<(), ValueTooLong> {
        match *self {
            Record::Set { value, expire_at, origin, .. } => {
                if value.len() < keep_bytes {
                    key.set(Value::Inline(value), expire_at);
                } else {
                    let value = SharedValue::new(value.to_vec());
                    key.set(Value::Shared(&value), expire_at);
                }
                if origin != Origin::Given {
                    key.set_origin(origin);
                }
            }
            Record::Append { bytes, .. } => write(key, None, bytes)?,
            Record::SetRange { offset, bytes, .. } => write(key, Some(offset as usize), bytes)?,
            Record::PexpireAt { at, .. } => key.expire_at(Some(at)),
            Record::Persist { .. } => key.expire_at(None),
            Record::Del { .. } => {
                key.remove();
            }
            Record::Select { .. }
            | Record::Multi
            | Record::Exec
            | Record::Rename { .. }
            | Record::Copy { .. }
            | Record::Move { .. }
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
            | Record::FlushDb
            | Record::FlushAll
            | Record::SwapDb { .. } => (None, None),
            Record::Set { .. } => first(Event::SET),
            Record::Del { .. } => first(Event::DEL),
            Record::PexpireAt { .. } => first(Event::EXPIRE),
            Record::Persist { .. } => first(Event::PERSIST),
            Record::Append { .. } => first(Event::APPEND),
            Record::SetRange { .. } => first(Event::SETRANGE),
            Record::Rename { .. } => (Some(Event::RENAME_FROM), Some(Event::RENAME_TO)),
            Record::Copy { .. } => (None, Some(Event::COPY_TO)),
            Record::Move { .. } => (Some(Event::MOVE_FROM), Some(Event::MOVE_TO)),
        }
    }
}

/// Writes bytes into a value, at its end if no offset is given. A missing key is created, and a
/// short value padded with zeros.
fn write(key: &mut Edit<'_>, offset: Option<usize>, bytes: &[u8]) -> Result<(), ValueTooLong> {
    let before = key.read().and_then(|entry| Some(entry.string().ok()?.len())).unwrap_or(0);
    let offset = offset.unwrap_or(before);
    let end = offset.checked_add(bytes.len()).filter(|&end| end <= MAX_STRING_BYTES as usize);
    let end = end.ok_or(ValueTooLong)?;
    let edit = |value: &mut Vec<u8>| {
        extend_to(value, end);
        value[offset..end].copy_from_slice(bytes);
        Ok::<_, Infallible>(())
    };
    if key.change(edit).is_none() {
        let old = key.read().and_then(|entry| Some(entry.string().ok()?.bytes().to_vec()));
        let mut value = old.unwrap_or_default();
        let Ok(()) = edit(&mut value);
        with_made(value, |value| key.set(value, key.expiry()));
    }
    key.set_origin(Origin::Edited);
    Ok(())
}
