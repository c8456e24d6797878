//! The slowest command since the host last asked, for its LATENCY.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Keeps the longest time that reached the host's `latency-monitor-threshold`.
///
/// LATENCY has one sample a second of an event, the longest. So one number is enough between two
/// ticks of the host's cron.
#[derive(Default)]
pub struct LatencyMonitor {
    /// In milliseconds; 0 if nothing is kept.
    threshold: AtomicU64,
    /// In milliseconds; 0 if there is none.
    longest: AtomicU64,
}

impl LatencyMonitor {
    /// Takes over the host's setting, in milliseconds; 0 keeps nothing.
    pub fn set(&self, threshold: u64) {
        self.threshold.store(threshold, Ordering::Relaxed);
    }

    /// Whether times are wanted.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.threshold.load(Ordering::Relaxed) != 0
    }

    /// A command took so long.
    #[inline]
    pub fn note(&self, took: Duration) {
        let (threshold, millis) = (self.threshold.load(Ordering::Relaxed), took.as_millis() as u64);
        if threshold != 0 && millis >= threshold {
            self.longest.fetch_max(millis, Ordering::Relaxed);
        }
    }

    /// Takes the longest time, in milliseconds.
    pub fn take_longest(&self) -> Option<u64> {
        let is_none = self.longest.load(Ordering::Relaxed) == 0;
        let longest = if is_none { 0 } else { self.longest.swap(0, Ordering::Relaxed) };
        (longest != 0).then_some(longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_time_is_kept_until_it_is_taken() {
        let monitor = LatencyMonitor::default();
        monitor.note(Duration::from_secs(1));
        assert_eq!((monitor.is_on(), monitor.take_longest()), (false, None));
        monitor.set(10);
        [9, 12, 30, 20].into_iter().for_each(|millis| monitor.note(Duration::from_millis(millis)));
        assert_eq!((monitor.take_longest(), monitor.take_longest()), (Some(30), None));
    }
}
