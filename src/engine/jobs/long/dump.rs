//! DUMP of a hash that has many fields.

use std::mem::take;

use super::fields::FieldSink;
use crate::command::{Dumped, Limits, Reply};
use crate::engine::Slice;
use crate::limits::DUMPED_AT_ONCE_BYTES;
use crate::store::{EntryRef, FieldRef, Fields, Now, SharedValue, WrongType};

impl FieldSink for Dumped {
    /// It packs their values.
    const IS_SLOW: bool = true;

    fn begin(&mut self, fields: Fields<'_>, limits: &Limits) {
        *self = Dumped::begin(fields, limits);
    }

    fn other(&mut self, entry: EntryRef<'_>) -> Result<(), WrongType> {
        *self = Dumped::of_other(entry)?;
        Ok(())
    }

    /// Adds it also if its expiry has passed, as the host does.
    #[inline]
    fn add(&mut self, field: FieldRef<'_>, _: &Now) {
        Dumped::add(self, field);
    }

    fn make_room(&mut self) {
        self.reserve(DUMPED_AT_ONCE_BYTES);
    }

    fn least_bytes(&self) -> usize {
        self.written()
    }

    fn say(&mut self, reply: &mut dyn Reply, _: &Slice<'_>) -> bool {
        match take(self).finish() {
            Some(payload) => reply.shared(&SharedValue::new(payload)),
            None => reply.null(),
        }
        true
    }
}
