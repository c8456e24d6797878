//! The fields of a hash and their values.
//!
//! A hash has one of two forms:
//!
//! - small: one [`Block`] inside the key's entry;
//! - large: a [`LargeHash`], to which the entry refers. It is a [`Table`](super::Table) whose keys
//!   are the fields.
//!
//! A hash that has become large stays large.

mod block;
pub(super) mod change;
mod large;

use std::any::Any;

use block::Block;
use large::LargeHash;
pub use large::{FieldAndValue, FieldCursor, free_left, has_left};

use super::entry::OtherValue;
use super::{Entry, EntryRef, Type, WrongType};

/// The fields of a hash, to be read.
#[derive(Clone, Copy)]
pub enum Fields<'a> {
    /// In the entry.
    Small(Block<'a>),
    /// In a table of their own.
    Large(&'a LargeHash),
}

impl<'a> Fields<'a> {
    /// Those of a key.
    ///
    /// # Errors
    /// [`WrongType`] if its value is not a hash.
    #[inline]
    pub fn of(entry: EntryRef<'a>) -> Result<Self, WrongType> {
        let value_type = entry.value_type();
        Fields::of_value(value_type, entry.into_other())
    }

    /// Those of an entry outside of a table.
    pub(super) fn of_entry(entry: &'a Entry) -> Result<Self, WrongType> {
        Fields::of_value(entry.value_type(), entry.other_value())
    }

    fn of_value(value_type: Type, value: OtherValue<'a>) -> Result<Self, WrongType> {
        match value {
            _ if value_type != Type::Hash => Err(WrongType),
            OtherValue::Block(block) => Ok(Fields::Small(Block::new(block))),
            OtherValue::Reference(referred) => {
                let large = (referred as &dyn Any).downcast_ref();
                large.map(Fields::Large).ok_or(WrongType)
            }
        }
    }

    /// How many there are; at least one.
    #[expect(clippy::len_without_is_empty, reason = "no hash is empty")]
    pub fn len(self) -> usize {
        match self {
            Fields::Small(block) => block.len(),
            Fields::Large(large) => large.table().len(),
        }
    }

    /// The value of a field.
    pub fn get(self, field: &[u8]) -> Option<&'a [u8]> {
        match self {
            Fields::Small(block) => block.find(field).map(|place| block.value(place)),
            Fields::Large(large) => large.get(field),
        }
    }

    /// All fields and their values. The order is that in which they were added, while the hash is
    /// small.
    pub fn iter(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let (small, large) = match self {
            Fields::Small(block) => (Some(block.iter()), None),
            Fields::Large(large) => (None, Some(large.iter())),
        };
        small.into_iter().flatten().chain(large.into_iter().flatten())
    }

    /// Visits some fields from a cursor on; returns the next cursor, `None` at the end. A field
    /// that is there all the while is visited exactly once, unless the hash becomes large
    /// meanwhile: then perhaps twice.
    pub fn scan(
        self,
        cursor: FieldCursor,
        visit: &mut dyn FnMut(&'a [u8], &'a [u8]),
    ) -> Option<FieldCursor> {
        match self {
            Fields::Small(block) => {
                block.iter().for_each(|(field, value)| visit(field, value));
                None
            }
            Fields::Large(large) => large.scan(cursor, visit),
        }
    }

    /// A field, drawn so that all are as likely. `draw` gives random numbers.
    pub fn drawn(self, draw: &mut dyn FnMut() -> u64) -> (&'a [u8], &'a [u8]) {
        match self {
            Fields::Small(block) => {
                let at = (draw() % block.len() as u64) as usize;
                block.iter().nth(at).unwrap_or_default()
            }
            Fields::Large(large) => large.drawn(draw),
        }
    }

    /// Whether it has more fields than this, or a field or value with more bytes. It looks at each
    /// only if there are no more fields.
    pub fn is_above(self, fields: usize, bytes: usize) -> bool {
        self.len() > fields
            || self.iter().any(|(field, value)| field.len() > bytes || value.len() > bytes)
    }
}
