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
mod copy;
mod large;
mod pin;
mod unfreed;
#[cfg(test)]
mod world;

use std::any::Any;

use block::Block;
pub use change::NewField;
pub use copy::{HashCopy, Unended};
pub use large::FieldCursor;
use large::LargeHash;
pub(super) use pin::note_home;
pub use pin::{FieldsPin, KeptTooMuch};
pub use unfreed::{free_left, has_left};

use super::entry::OtherValue;
use super::{Entry, EntryRef, Now, Type, UnixMs, WrongType};

/// A field of a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldRef<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// When it expires; `None` for never.
    pub expire_at: Option<UnixMs>,
}

impl FieldRef<'_> {
    /// Whether a client sees it at this time: its expiry has not passed.
    #[inline]
    pub fn is_live(&self, now: &Now) -> bool {
        self.expire_at.is_none_or(|at| !now.hides(at))
    }
}

/// The fields of a hash, to be read: also those that have expired and are not removed yet.
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
        let is_timed = entry.is_timed_block();
        Fields::of_value(value_type, is_timed, entry.into_other())
    }

    /// Those of an entry outside of a table.
    pub(super) fn of_entry(entry: &'a Entry) -> Result<Self, WrongType> {
        Fields::of_value(entry.value_type(), entry.is_timed_block(), entry.other_value())
    }

    fn of_value(
        value_type: Type,
        is_timed: bool,
        value: OtherValue<'a>,
    ) -> Result<Self, WrongType> {
        match value {
            _ if value_type != Type::Hash => Err(WrongType),
            OtherValue::Block(block) => Ok(Fields::Small(Block::new(block, is_timed))),
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

    /// A field.
    pub fn find(self, name: &[u8]) -> Option<FieldRef<'a>> {
        match self {
            Fields::Small(block) => block.find(name).map(|place| block.field(place)),
            Fields::Large(large) => large.find(name),
        }
    }

    /// Whether any field may have an expiry.
    pub fn may_expire(self) -> bool {
        match self {
            Fields::Small(block) => block.is_timed(),
            Fields::Large(large) => large.table().census().expiring > 0,
        }
    }

    /// Not later than the first expiry of any field; `None` if none has one.
    pub fn least_due(self) -> Option<UnixMs> {
        match self {
            Fields::Small(block) => block.iter().filter_map(|field| field.expire_at).min(),
            Fields::Large(large) => self.may_expire().then(|| large.table().next_due()),
        }
    }

    /// All fields. The order is that in which they were added, while the hash is
    /// small.
    pub fn iter(self) -> impl Iterator<Item = FieldRef<'a>> {
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
        visit: &mut dyn FnMut(FieldRef<'a>),
    ) -> Option<FieldCursor> {
        match self {
            Fields::Small(block) => {
                block.iter().for_each(visit);
                None
            }
            Fields::Large(large) => large.scan(cursor, visit),
        }
    }

    /// A field, drawn so that all are as likely. `draw` gives random numbers.
    pub fn drawn(self, draw: &mut dyn FnMut() -> u64) -> Option<FieldRef<'a>> {
        match self {
            Fields::Small(block) => {
                let at = (draw() % block.len() as u64) as usize;
                block.iter().nth(at)
            }
            Fields::Large(large) => large.drawn(draw),
        }
    }

    /// Whether it has more fields than this, or a field or value with more bytes. It looks at each
    /// only if there are no more fields.
    pub fn is_above(self, fields: usize, bytes: usize) -> bool {
        self.len() > fields
            || self.iter().any(|field| field.name.len().max(field.value.len()) > bytes)
    }
}
