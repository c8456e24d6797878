//! Keys whose values have parts, which may expire by themselves.

use super::{FoundEntry, Table};
use crate::store::{Entry, KeyHash, UnixMs};

impl Table {
    /// Changes the value of a key, and counts the bytes that it gains; its expiry stays.
    pub(in crate::store) fn change_other<R>(
        &mut self,
        found: FoundEntry,
        change: impl FnOnce(&mut Entry) -> R,
    ) -> R {
        let mut entry = self.segments[found.segment as usize].entry_mut(found.place);
        let before = entry.weight();
        let result = change(&mut entry);
        self.census.bytes += entry.weight() as i64 - before as i64;
        let due = entry.parts_due();
        drop(entry);
        self.note_parts_due(found.segment as usize, due);
        result
    }

    /// Notes that a part of a value is due then.
    pub(super) fn note_parts_due(&mut self, segment: usize, due: UnixMs) {
        let segment = &mut self.segments[segment];
        segment.parts_due = segment.parts_due.min(due);
        self.parts_due = self.parts_due.min(due);
    }

    /// Calls `due` with the keys that have parts that were due before `horizon`, segment by
    /// segment, while `more` returns true. The caller removes these parts; a key that is left as it
    /// is must be noted again with [`Table::note_parts`]. True when the last segment is done.
    pub fn find_due_parts(
        &mut self,
        horizon: UnixMs,
        more: &mut dyn FnMut() -> bool,
        due: &mut dyn FnMut(&[u8]),
    ) -> bool {
        if self.parts_due >= horizon {
            return true;
        }
        for segment in &mut self.segments {
            if segment.parts_due < horizon {
                segment.find_due_parts(horizon, due);
                if !more() {
                    return false;
                }
            }
        }
        let first = self.segments.iter().map(|segment| segment.parts_due).min();
        self.parts_due = first.unwrap_or(UnixMs::MAX);
        true
    }

    /// Has [`Table::find_due_parts`] look at a key again.
    pub fn note_parts(&mut self, hash: KeyHash, key: &[u8]) {
        if let Some(found) = self.find(hash, key) {
            let due = self.entry(found).parts_due();
            self.note_parts_due(found.segment as usize, due);
        }
    }
}
