//! Changes of what is known of a value besides its bytes.

use super::{FoundEntry, Table};
use crate::store::{Origin, Traits};

impl Table {
    /// Notes how a key's value came about.
    pub(in crate::store) fn set_origin(&mut self, found: FoundEntry, origin: Origin) {
        self.segments[found.segment as usize].entry_mut(found.place).set_origin(origin);
    }

    /// Notes what is known of a key's value.
    #[cold]
    pub(in crate::store) fn set_traits(&mut self, found: FoundEntry, traits: Traits) {
        let mut entry = self.segments[found.segment as usize].entry_mut(found.place);
        self.census.bytes += entry.set_traits(traits);
    }
}
