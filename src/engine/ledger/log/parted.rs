//! Long texts on their way to the host, a part in a turn of the main loop: so nobody has all of
//! their bytes at once, and the main thread does not stand still for them.
//!
//! The runs stay in the tail until the host has the last part. Until then they are not logged:
//! nothing of them is acknowledged, and they can be taken back. Whoever reads the parts has them
//! take effect with the last one, which is where their positions say. So nothing else of midi's is
//! logged between the parts: what cannot wait is logged together with all that is left.
//!
//! What is saved meanwhile has the runs taken back, and the parts that the host has: whoever loads
//! it goes on from there. To begin again instead might never end: the parts let the AOF grow, and
//! that has the host rewrite it.

use std::time::Duration;

use super::Logged;
use super::tail::{Log, PublishedRun, Tail};
use super::text::write_records;
use crate::command::record::{RECORD_VERSION, RecordText, header, part_head};
use crate::limits::{JOURNAL_TEXT_BYTES, PARTED_BYTES, REFERRED_BYTES, TEXT_PART_BYTES};

/// A long text that the host has a part of.
pub(super) struct Parted {
    text: RecordText,
    /// How many runs, from the first of the tail on, are in it.
    pub(super) runs: usize,
    /// How many bytes the host has.
    given: usize,
}

impl Parted {
    /// Writes all that is left, and the runs of `batch` behind its own, as the last part.
    pub(super) fn write_last(mut self, batch: &[PublishedRun], out: &mut RecordText) {
        write_records(&batch[self.runs..], &mut self.text);
        self.write_part(true, self.text.len() - self.given, out);
    }

    fn write_part(&self, is_last: bool, len: usize, out: &mut RecordText) {
        part_head(is_last, self.given, len, &mut out.own);
        self.text.write_range(self.given, len, &mut out.own);
        out.own.extend_from_slice(b"\r\n");
    }
}

impl Tail {
    /// Begins a long text, if the next one of about `most` bytes is one. Not if a unit were torn
    /// apart: the host must get all of that in one event.
    fn begin_parts(&mut self, most: usize) -> Option<Parted> {
        if self.runs.front()?.run.text.len() <= PARTED_BYTES {
            return None;
        }
        let runs = self.count_of_text(most);
        if self.is_unit_torn() || self.with_whole_unit(runs) > runs {
            return None;
        }
        for published in self.runs.iter_mut().take(runs) {
            if published.run.text.len() >= REFERRED_BYTES {
                published.run.text.share_own();
            }
        }
        let mut text = RecordText::default();
        // A newer version than its records need costs nothing: the parts are newer still.
        header(RECORD_VERSION, &mut text.own);
        write_records(&self.runs.make_contiguous()[..runs], &mut text);
        Some(Parted { text, runs, given: 0 })
    }

    /// Whether the last run is in a text of which the host has a part.
    pub(super) fn is_last_parted(&self) -> bool {
        self.parted.as_ref().is_some_and(|parted| parted.runs == self.runs.len())
    }

    /// Takes the text of which the host has a part.
    pub(super) fn take_begun(&mut self) -> Option<Parted> {
        self.parted.take().filter(|parted| parted.given > 0)
    }
}

impl Log {
    /// Gives the next part of a long text to `write`; begins one if the next text is long. Returns
    /// whether it was taken; `None` if there is none, or only the last part of one is left. Behind
    /// the first part it asks whether there is room for another.
    pub(super) fn give_part(
        &self,
        most: usize,
        has_room: &dyn Fn() -> bool,
        write: &mut dyn FnMut(Logged<'_>) -> bool,
    ) -> Option<bool> {
        let mut tail = self.tail.lock();
        let mut parted = tail.parted.take().or_else(|| tail.begin_parts(most))?;
        drop(tail);
        let is_part = parted.text.len() - parted.given > TEXT_PART_BYTES;
        let is_taken = is_part.then(|| {
            if parted.given > 0 && !has_room() {
                return false;
            }
            let mut text = self.text.lock();
            parted.write_part(false, TEXT_PART_BYTES, &mut text);
            let is_taken = write(Logged::Text { text: &text, is_own_only: false });
            if is_taken {
                parted.given += TEXT_PART_BYTES;
                self.past.lock().counts.add(0, 0, text.len(), Duration::ZERO);
            }
            text.clear(4 * JOURNAL_TEXT_BYTES);
            is_taken
        });
        self.tail.lock().parted = Some(parted);
        is_taken
    }

    /// What the host has of a long text is of no use: it is begun again.
    pub(in crate::engine::ledger) fn begin_parts_again(&self) {
        self.tail.lock().parted = None;
    }

    /// Some bytes of a text whose last part is not in the log yet, from this offset on; none behind
    /// the last part. To be called by the holder of the global lock, or in a forked child.
    pub fn begun_text(&self, offset: usize, most: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Never busy there: see `take_back_in_child`.
        let (Some(gathered), Some(tail)) = (self.gathered.try_lock(), self.tail.try_lock()) else {
            return bytes;
        };
        match &tail.parted {
            Some(parted) => {
                let len = parted.given.saturating_sub(offset).min(most);
                parted.text.write_range(offset, len, &mut bytes);
            }
            // A replica has it from its master.
            None => bytes.extend(gathered.bytes().iter().skip(offset).take(most)),
        }
        bytes
    }
}
