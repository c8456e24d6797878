//! HGETALL, HKEYS and HVALS of a hash that has many fields.

use super::chunks::KeyChunks;
use super::fields::FieldSink;
use crate::command::{FieldParts, Limits, Reply};
use crate::engine::Slice;
use crate::store::{EntryRef, FieldRef, Fields, Now, WrongType};

/// These parts of all fields.
pub(super) struct FieldList {
    parts: FieldParts,
    chunks: KeyChunks,
}

impl FieldList {
    pub(super) fn new(parts: FieldParts) -> Self {
        FieldList { parts, chunks: KeyChunks::default() }
    }
}

impl FieldSink for FieldList {
    const IS_SLOW: bool = false;

    fn begin(&mut self, _: Fields<'_>, _: &Limits) {}

    fn other(&mut self, _: EntryRef<'_>) -> Result<(), WrongType> {
        Err(WrongType)
    }

    /// Adds it if its client sees it.
    #[inline]
    fn add(&mut self, field: FieldRef<'_>, now: &Now) {
        if field.is_live(now) {
            self.parts.of(field, |part| self.chunks.push(part));
        }
    }

    fn least_bytes(&self) -> usize {
        self.chunks.least_bytes()
    }

    fn say(&mut self, reply: &mut dyn Reply, slice: &Slice<'_>) -> bool {
        let parts = self.parts;
        let begin = |reply: &mut dyn Reply, elements| parts.begin(reply, elements / parts.count());
        self.chunks.say(reply, Some(slice), begin)
    }
}
