//! Counters of the log, for INFO.

use std::time::Duration;

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

impl LogCounts {
    /// A text of so many runs was logged, which have waited so long, added up.
    pub(super) fn add(&mut self, runs: u64, records: u64, text_bytes: usize, waited: Duration) {
        self.batches += 1;
        self.runs += runs;
        self.records += records;
        self.text_bytes += text_bytes as u64;
        self.until_logged_us += waited.as_micros() as u64;
    }

    /// More of the log became safe, this long after the host had it.
    pub(super) fn add_safe_step(&mut self, waited: Duration) {
        self.until_safe_us += waited.as_micros() as u64;
        self.safe_steps += 1;
    }
}
