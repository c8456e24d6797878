//! Changes of what is known of a value besides its bytes.

use smallvec::smallvec;

use super::{ChangeKind, Edit, Keeping};
use crate::store::{Before, FoundEntry, Origin, Traits};

impl Edit<'_> {
    /// Notes what is known of the value of a key that exists.
    pub fn set_traits(&mut self, traits: Traits) {
        if let Some(found) = self.found() {
            let table = &*self.table;
            self.done.keep(|| Before::Traits(Box::new(table.entry(found).traits())));
            self.apply(ChangeKind::Traits, |table| table.set_traits(found, traits));
        }
    }

    /// The number of the last change of a key that exists, drawn now if it has none. That is no
    /// change: nothing is counted or logged.
    pub fn number(&mut self, draw: impl FnOnce() -> u64) -> Option<u64> {
        let found = self.found()?;
        let traits = self.table.entry(found).traits();
        if traits.number != 0 {
            return Some(traits.number);
        }
        let number = draw();
        self.table.set_traits(found, Traits { number, ..traits });
        Some(number)
    }

    /// Notes how the key's value came about.
    #[inline]
    pub fn set_origin(&mut self, origin: Origin) {
        let Some(found) = self.found() else { return };
        if self.done.keeping != Keeping::Nothing {
            self.note_origin(found, origin);
        }
        self.table.set_origin(found, origin);
    }

    /// For the log, if nothing that is kept of this edit has the origin that the value had.
    fn note_origin(&mut self, found: FoundEntry, origin: Origin) {
        let entry = self.table.entry(found);
        let (had, before) = (entry.origin(), entry.value_len());
        if had != origin && matches!(self.done.kind, ChangeKind::Nothing | ChangeKind::Expiry) {
            self.done.keep(|| Before::Origin(had));
            // A part without any bytes, which would take marks away where it is replayed.
            let kind = if entry.traits().are_marked() {
                ChangeKind::Whole
            } else {
                ChangeKind::Parts { parts: smallvec![(0, 0)], before }
            };
            self.done.kind.and(kind);
        }
    }
}
