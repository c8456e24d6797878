//! The ports' figures in INFO: what was counted since the last reset, rates, and memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::shared::{PortCounts, Shared};
use crate::limits::{RATE_EVERY, RATE_SAMPLES};

/// What the counters of all workers add up to.
#[derive(Clone, Copy, Default)]
pub struct PortTotals {
    /// Connections that were served.
    pub accepted: u64,
    /// Connections that were refused.
    pub refused: u64,
    /// Commands.
    pub commands: u64,
    /// Bytes received.
    pub received: u64,
    /// Bytes sent.
    pub sent: u64,
    /// Calls of the system that received something.
    pub reads: u64,
    /// Calls of the system that sent something.
    pub writes: u64,
    /// Logins that failed.
    pub failed_logins: u64,
    /// Uses of commands and keys that were not allowed.
    pub denied: u64,
    /// Those of keys.
    pub denied_keys: u64,
}

/// How many of each in a second, of late.
#[derive(Clone, Copy, Default)]
pub struct Rates {
    /// Commands.
    pub commands: u64,
    /// Bytes received.
    pub received: u64,
    /// Bytes sent.
    pub sent: u64,
}

/// The figures at a moment.
pub struct PortFigures {
    /// What was counted since the last reset.
    pub counts: PortTotals,
    /// Rates.
    pub rates: Rates,
    /// Bytes of midi's tables and values, and of connections.
    pub used_memory: u64,
    /// The most that those were.
    pub peak_memory: u64,
    /// Bytes of connections.
    pub buffered: u64,
}

/// What is kept for the figures.
#[derive(Default)]
pub struct Figures {
    before: PortTotals,
    peak: u64,
    last: Option<(Instant, PortTotals)>,
    samples: [Rates; RATE_SAMPLES],
    next: usize,
}

impl PortTotals {
    fn of(shared: &Shared) -> Self {
        let workers = || (0..shared.engine.config().workers).map(|worker| shared.counts(worker));
        let sum = |counter: fn(&PortCounts) -> &AtomicU64| -> u64 {
            workers().map(|counts| counter(counts).load(Ordering::Relaxed)).sum()
        };
        PortTotals {
            accepted: sum(|counts| &counts.accepted),
            refused: sum(|counts| &counts.refused),
            commands: sum(|counts| &counts.commands),
            received: sum(|counts| &counts.received),
            sent: sum(|counts| &counts.sent),
            reads: sum(|counts| &counts.reads),
            writes: sum(|counts| &counts.writes),
            failed_logins: sum(|counts| &counts.failed_logins),
            denied: sum(|counts| &counts.denied),
            denied_keys: sum(|counts| &counts.denied_keys),
        }
    }

    fn since(self, before: PortTotals) -> PortTotals {
        PortTotals {
            accepted: self.accepted - before.accepted,
            refused: self.refused - before.refused,
            commands: self.commands - before.commands,
            received: self.received - before.received,
            sent: self.sent - before.sent,
            reads: self.reads - before.reads,
            writes: self.writes - before.writes,
            failed_logins: self.failed_logins - before.failed_logins,
            denied: self.denied.saturating_sub(before.denied),
            denied_keys: self.denied_keys.saturating_sub(before.denied_keys),
        }
    }
}

/// Bytes of connections, and of them and midi's tables and values together.
fn memory(shared: &Shared) -> (u64, u64) {
    let workers = (0..shared.engine.config().workers).map(|worker| shared.counts(worker));
    let buffered: usize = workers.map(|counts| counts.buffered.load(Ordering::Relaxed)).sum();
    let tables = shared.engine.ledger.books.totals().bytes.max(0) as u64;
    (buffered as u64, tables + buffered as u64)
}

impl Figures {
    /// Takes a sample, if the last one is long enough ago.
    pub fn sample(&mut self, shared: &Shared, now: Instant) {
        let passed = match self.last {
            Some((at, _)) if now - at < RATE_EVERY => return,
            Some((at, _)) => now - at,
            None => Duration::ZERO,
        };
        let totals = PortTotals::of(shared);
        self.peak = self.peak.max(memory(shared).1);
        if let Some((_, before)) = self.last.replace((now, totals)) {
            let rate = |number: u64| (number as f64 / passed.as_secs_f64()) as u64;
            let more = totals.since(before);
            self.samples[self.next] = Rates {
                commands: rate(more.commands),
                received: rate(more.received),
                sent: rate(more.sent),
            };
            self.next = (self.next + 1) % RATE_SAMPLES;
        }
    }

    /// The figures now.
    pub fn now(&mut self, shared: &Shared) -> PortFigures {
        let (buffered, used_memory) = memory(shared);
        self.peak = self.peak.max(used_memory);
        let mean = |number: fn(&Rates) -> u64| {
            self.samples.iter().map(number).sum::<u64>() / RATE_SAMPLES as u64
        };
        let rates = Rates {
            commands: mean(|rates| rates.commands),
            received: mean(|rates| rates.received),
            sent: mean(|rates| rates.sent),
        };
        let counts = PortTotals::of(shared).since(self.before);
        PortFigures { counts, rates, used_memory, peak_memory: self.peak, buffered }
    }

    /// Begins the counts again.
    pub fn reset(&mut self, shared: &Shared) {
        self.before = PortTotals::of(shared);
        self.peak = memory(shared).1;
        self.samples = Default::default();
    }
}
