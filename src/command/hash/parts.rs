//! What the commands that list all fields say of each.

use crate::command::Reply;
use crate::store::FieldRef;

/// What a command that lists all fields says of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldParts {
    /// Its name and its value: HGETALL.
    Both,
    /// Its name: HKEYS.
    Names,
    /// Its value: HVALS.
    Values,
}

impl FieldParts {
    /// Calls `say` with each element of the reply that is about this field.
    #[inline]
    pub fn of(self, field: FieldRef<'_>, mut say: impl FnMut(&[u8])) {
        if self != FieldParts::Values {
            say(field.name);
        }
        if self != FieldParts::Names {
            say(field.value);
        }
    }

    /// Begins a reply about so many fields.
    pub fn begin(self, reply: &mut dyn Reply, fields: usize) {
        match self {
            FieldParts::Both => reply.map(fields),
            FieldParts::Names | FieldParts::Values => reply.array(fields),
        }
    }

    /// How many elements there are for a field.
    pub fn count(self) -> usize {
        if self == FieldParts::Both { 2 } else { 1 }
    }
}
