//! Runs that the host has: what they have left to be freed, and what is counted of them.

use super::counts::LogCounts;
use super::run::{ChangeOfAll, OpenRun};
use crate::store::Table;

/// Runs that are kept to be used again, and thereby their memory; and how many bytes what they keep
/// of keys may have. The thread that uses one again frees that: it costs the main thread more than
/// the rest.
const SPARE_RUNS: usize = 256;
const SPARE_BYTES: usize = 4 << 20;

/// What is left of runs that the host has.
#[derive(Default)]
pub(super) struct Past {
    /// To be used again, each with the bytes that it still keeps. Not crossbeam's queue: they have
    /// a bound in bytes, too.
    runs: Vec<(Box<OpenRun>, usize)>,
    bytes: usize,
    /// Tables that logged flushes have taken out, to be freed.
    pub(super) flushed: Vec<Table>,
    pub(super) counts: LogCounts,
}

impl Past {
    /// Adds a run that keeps so many bytes.
    pub(super) fn push(&mut self, mut run: Box<OpenRun>, mut bytes: usize) {
        if let Some(ChangeOfAll::Emptied(tables)) = run.of_all.take() {
            self.flushed.extend(tables.into_iter().map(|(.., table)| table));
        }
        // Until then an APPEND would copy the value.
        run.text.forget_values();
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

    /// Takes a run out, with what it still keeps.
    pub(super) fn pop(&mut self) -> Option<Box<OpenRun>> {
        let (run, bytes) = self.runs.pop()?;
        self.bytes -= bytes;
        Some(run)
    }

    /// Frees what the runs keep.
    pub(super) fn clear(&mut self) {
        self.bytes = 0;
        self.runs.iter_mut().for_each(|(run, bytes)| {
            run.clear();
            *bytes = 0;
        });
    }
}
