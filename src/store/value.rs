//! A value: its bytes, its type and its origin.

use std::borrow::Cow;

use super::{SharedValue, block_bytes};

/// A value on its way into an entry, or a view of the one inside.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    /// Bytes to be copied into the entry's block.
    Inline(&'a [u8]),
    /// A buffer to be shared, not copied.
    Shared(&'a SharedValue),
}

impl<'a> Value<'a> {
    /// Lends bytes as a value; from `keep_bytes` on they get a buffer of their own.
    #[inline]
    pub fn lend<R>(bytes: Cow<'_, [u8]>, keep_bytes: usize, to: impl FnOnce(Value<'_>) -> R) -> R {
        if bytes.len() < keep_bytes {
            return to(Value::Inline(&bytes));
        }
        to(Value::Shared(&SharedValue::new(bytes.into_owned())))
    }

    /// The value's bytes, wherever they are.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Value::Inline(bytes) => bytes,
            Value::Shared(shared) => shared.bytes(),
        }
    }

    /// The memory of the value's own buffer, in bytes; 0 if it has none.
    #[inline]
    pub(super) fn buffer_bytes(self) -> usize {
        match self {
            Value::Inline(_) => 0,
            Value::Shared(shared) => block_bytes(shared.bytes().len()),
        }
    }
}

/// The origin of a value. Only OBJECT ENCODING tells: Redis keeps such values in other forms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// It was set as it is, or is an integer that was computed.
    #[default]
    Given,
    /// A part of it was written.
    Edited,
    /// It was computed as a floating-point number.
    Computed,
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Bytes.
    String,
    /// Fields with values.
    Hash,
    /// Something that no command makes: it keeps the others honest.
    #[cfg(test)]
    Other,
}

impl Type {
    /// The name in TYPE.
    pub fn name(self) -> &'static str {
        match self {
            Type::String => "string",
            Type::Hash => "hash",
            #[cfg(test)]
            Type::Other => "other",
        }
    }
}

/// A value has another type than the one that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongType;
