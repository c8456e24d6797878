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
mod large;

pub(super) use block::Block;
pub use large::{LargeHash, free_left, has_left};

use super::{KeyHasher, Value};

/// The fields of a hash, to be read.
#[derive(Clone, Copy)]
pub enum Fields<'a> {
    /// In the entry.
    Small(Block<'a>),
    /// In a table of their own.
    Large(&'a LargeHash),
}

/// How far a scan over the fields has come: the fields before it have been visited.
pub type FieldCursor = u32;

impl<'a> Fields<'a> {
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

    /// A copy that no other entry refers to.
    pub(super) fn copied(self, hasher: &KeyHasher) -> LargeHash {
        let copy = LargeHash::new(hasher.clone());
        for (field, value) in self.iter() {
            copy.set(field, Value::Inline(value));
        }
        copy
    }
}
