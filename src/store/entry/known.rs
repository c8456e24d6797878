//! What an entry tells of its value besides the bytes.

use super::shape::SHARED;
use super::shape::Shape;
use super::{
    COMPUTED, EDITED, Entry, LARGE_HASH, REFERENCE, SMALL_HASH, TIMED_HASH, TYPE, WITH_TRAITS,
};
use crate::store::{Origin, Traits, Type, Value};

impl Origin {
    pub(super) fn flags(self) -> u8 {
        match self {
            Origin::Given => 0,
            Origin::Edited => EDITED,
            Origin::Computed => COMPUTED,
        }
    }
}

impl Entry {
    /// The type of the value.
    pub fn value_type(&self) -> Type {
        match self.flags() & TYPE {
            #[cfg(test)]
            super::OTHER => Type::Other,
            SMALL_HASH | TIMED_HASH | LARGE_HASH => Type::Hash,
            _ => Type::String,
        }
    }

    /// How the value came about.
    pub(in crate::store) fn origin(&self) -> Origin {
        match self.flags() & TYPE {
            EDITED => Origin::Edited,
            COMPUTED => Origin::Computed,
            WITH_TRAITS => self.traits().origin,
            _ => Origin::Given,
        }
    }

    /// Notes how a string came about, until it is overwritten.
    pub(in crate::store) fn set_origin(&mut self, origin: Origin) {
        if self.flags() & TYPE == WITH_TRAITS {
            // They take as many bytes whatever the origin is.
            return self.write_traits(self.shape(), Traits { origin, ..self.traits() });
        }
        if self.check_string().is_ok() {
            self.set_type(origin.flags());
        }
    }

    /// What is known of the value.
    #[inline]
    pub fn traits(&self) -> Traits {
        if self.flags() & TYPE == WITH_TRAITS {
            self.written_traits()
        } else {
            self.origin().into()
        }
    }

    #[cold]
    fn written_traits(&self) -> Traits {
        let shape = self.shape();
        Traits::read(self.part(shape.traits_at(), shape.traits))
    }

    /// How many bytes the traits that begin at this byte of the block take.
    #[cold]
    pub(super) fn traits_len(&self, at: usize) -> usize {
        Traits::bytes_from(self.part(at, 1)[0])
    }

    /// Notes what is known of a string. May move the entry to another block. Returns the bytes that
    /// the entry gained, as [`Entry::weight`] counts.
    pub(in crate::store) fn set_traits(&mut self, traits: Traits) -> i64 {
        if self.check_string().is_err() {
            return 0;
        }
        let old = self.shape();
        let new = Shape { traits: traits.written().len(), ..old };
        let gained = new.block() as i64 - old.block() as i64;
        if gained == 0 {
            self.write_traits(new, traits);
            return 0;
        }
        let new = self.copy_with(self.key(), self.expire_at(), traits);
        // It has no room for an expiry that is unset.
        let gained = new.bytes() as i64 - self.bytes() as i64;
        *self = new;
        gained
    }

    /// Bytes that the entry takes from the allocator (a shared buffer is not counted).
    #[inline]
    pub fn bytes(&self) -> usize {
        self.shape().block()
    }

    /// The bytes of the key's memory that follow from the entry alone: its block, and its value if
    /// that has a buffer of its own. Each copy of a value counts: see [`ValueRef`].
    #[inline]
    pub fn weight(&self) -> usize {
        let shape = self.shape();
        shape.block() + self.buffer_bytes(shape.flags)
    }

    #[inline]
    pub(super) fn buffer_bytes(&self, flags: u8) -> usize {
        if flags & (SHARED | REFERENCE) == 0 {
            return 0;
        }
        if flags & REFERENCE != 0 {
            return self.bytes_of_reference();
        }
        self.with_shared(|shared| Value::Shared(shared.value()).buffer_bytes())
    }
}
