//! Runs that the host has, kept for their memory.

use super::open_run::OpenRun;

/// Runs that are kept to be used again, and thereby their memory; and how many bytes what they keep
/// of keys may have. Who uses one again frees that: it costs the main thread more than the rest.
const SPARE_RUNS: usize = 256;
const SPARE_BYTES: usize = 4 << 20;

/// Runs to be used again. Not crossbeam's queue: they have a bound in bytes, too.
#[derive(Default)]
pub(in crate::engine::ledger) struct SpareRuns {
    /// Each with the bytes that it still keeps.
    runs: Vec<(Box<OpenRun>, usize)>,
    bytes: usize,
}

impl SpareRuns {
    /// Adds a run that keeps so many bytes.
    pub(in crate::engine::ledger) fn push(&mut self, mut run: Box<OpenRun>, mut bytes: usize) {
        if self.runs.len() >= SPARE_RUNS {
            return;
        }
        if self.bytes + bytes > SPARE_BYTES {
            run.clear();
            bytes = 0;
        }
        self.bytes += bytes;
        self.runs.push((run, bytes));
    }

    /// Takes one out, with what it still keeps.
    pub(in crate::engine::ledger) fn pop(&mut self) -> Option<Box<OpenRun>> {
        let (run, bytes) = self.runs.pop()?;
        self.bytes -= bytes;
        Some(run)
    }

    /// Frees what they keep.
    pub(in crate::engine::ledger) fn clear(&mut self) {
        self.bytes = 0;
        self.runs.iter_mut().for_each(|(run, bytes)| {
            run.clear();
            *bytes = 0;
        });
    }
}
