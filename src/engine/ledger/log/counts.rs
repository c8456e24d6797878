//! Counters of the log, for INFO.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::tail::PublishedRun;

/// Counters since the start.
#[derive(Default)]
pub(in crate::engine::ledger) struct Counts {
    batches: AtomicU64,
    runs: AtomicU64,
    records: AtomicU64,
    text_bytes: AtomicU64,
    until_logged_us: AtomicU64,
    until_safe_us: AtomicU64,
    safe_steps: AtomicU64,
    pub(in crate::engine::ledger) taken_back: AtomicU64,
}

/// What is known of the log, for INFO.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogCounts {
    /// Runs that the host does not have yet.
    pub tail_runs: usize,
    /// Their bytes.
    pub tail_bytes: usize,
    /// How long the oldest of them has waited.
    pub tail_age: Duration,
    /// Texts given to the host so far.
    pub batches: u64,
    /// Runs logged so far.
    pub runs: u64,
    /// Records logged so far.
    pub records: u64,
    /// Bytes of texts so far.
    pub text_bytes: u64,
    /// Microseconds from a run to its place in the host's log, all runs of ports added up.
    pub until_logged_us: u64,
    /// Microseconds from the host's log to safety, all steps added up.
    pub until_safe_us: u64,
    /// How often more became safe.
    pub safe_steps: u64,
    /// Runs that were taken back so far: for saves, by demotions, and by DEBUG LOADAOF.
    pub taken_back: u64,
    /// The last positions: given, logged, safe.
    pub positions: (u64, u64, u64),
}

impl Counts {
    /// A text of these runs was logged.
    pub(in crate::engine::ledger) fn add(&self, batch: &[PublishedRun], text_bytes: usize) {
        let now = Instant::now();
        let waited: Duration = batch.iter().map(|published| now - published.at).sum();
        let records: u64 = batch.iter().map(|published| u64::from(published.run.records)).sum();
        self.add_text(batch.len() as u64, records, text_bytes);
        add(&self.until_logged_us, waited.as_micros() as u64);
    }

    /// A run of one record was logged at once.
    pub(in crate::engine::ledger) fn add_one(&self, text_bytes: usize) {
        self.add_text(1, 1, text_bytes);
    }

    fn add_text(&self, runs: u64, records: u64, text_bytes: usize) {
        for (count, number) in [
            (&self.batches, 1),
            (&self.runs, runs),
            (&self.records, records),
            (&self.text_bytes, text_bytes as u64),
        ] {
            add(count, number);
        }
    }

    /// More of the log became safe, this long after the host had it.
    pub(in crate::engine::ledger) fn add_safe_step(&self, waited: Duration) {
        add(&self.until_safe_us, waited.as_micros() as u64);
        add(&self.safe_steps, 1);
    }

    /// What was counted.
    pub(in crate::engine::ledger) fn read(&self) -> LogCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        LogCounts {
            batches: read(&self.batches),
            runs: read(&self.runs),
            records: read(&self.records),
            text_bytes: read(&self.text_bytes),
            until_logged_us: read(&self.until_logged_us),
            until_safe_us: read(&self.until_safe_us),
            safe_steps: read(&self.safe_steps),
            taken_back: read(&self.taken_back),
            ..LogCounts::default()
        }
    }
}

/// Only the holder of the global lock counts here, so nothing is lost between reading and writing.
fn add(count: &AtomicU64, number: u64) {
    count.store(count.load(Ordering::Relaxed) + number, Ordering::Relaxed);
}
