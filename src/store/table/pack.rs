//! Moving what is in [chunks](crate::store::give_up_chunks) that are to be emptied.

use super::Table;
use crate::store::entry::any_reference;

/// How far [`Table::pack`] has come.
#[derive(Default)]
pub struct PackPosition {
    /// The keys of the segments before it are done; and if `are_keys_done`, the parts of their
    /// values.
    segment: usize,
    are_keys_done: bool,
    /// How many of the segment's entries are done.
    entries: usize,
    /// How far the next one is done.
    part: usize,
}

impl Table {
    /// Moves keys and values out of chunks that are to be emptied, bit by bit, from `*position` on,
    /// while `more` returns true. True when all are done; `*position` is then as at first.
    pub fn pack(&mut self, position: &mut PackPosition, more: &mut dyn FnMut() -> bool) -> bool {
        if !position.are_keys_done && !self.pack_keys(&mut position.segment, more) {
            return false;
        }
        position.are_keys_done = true;
        // To find them, every block is read.
        if any_reference() && !self.pack_parts(position, more) {
            return false;
        }
        *position = PackPosition::default();
        true
    }

    /// [`Table::pack`] without what entries refer to.
    pub(in crate::store) fn pack_keys(
        &mut self,
        position: &mut usize,
        more: &mut dyn FnMut() -> bool,
    ) -> bool {
        for segment in self.segments.iter_mut().skip(*position) {
            segment.pack();
            *position += 1;
            if !more() {
                return false;
            }
        }
        *position = 0;
        true
    }

    fn pack_parts(&mut self, position: &mut PackPosition, more: &mut dyn FnMut() -> bool) -> bool {
        for segment in self.segments.iter().skip(position.segment) {
            for entry in segment.entries().skip(position.entries) {
                if !entry.pack_parts(&mut position.part, more) {
                    return false;
                }
                position.entries += 1;
            }
            (position.segment, position.entries) = (position.segment + 1, 0);
            if !more() {
                return false;
            }
        }
        true
    }
}
