//! The figures of one run of the load generator.

use std::fmt;
use std::sync::atomic::Ordering;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::thread::{Run, Tally};
use super::{Looks, Options};
use crate::process::Usage;

/// Latencies in microseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    /// The number of measurements.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Half were at most this.
    pub p50: f64,
    /// 95 of 100.
    pub p95: f64,
    /// 99 of 100.
    pub p99: f64,
    /// 999 of 1000.
    pub p999: f64,
    /// All of them.
    pub max: f64,
}

impl Latency {
    fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn of(histogram: &Histogram<u64>) -> Latency {
        let us = |percentile: f64| histogram.value_at_percentile(percentile) as f64 / 1000.0;
        Latency {
            count: histogram.len(),
            mean: histogram.mean() / 1000.0,
            p50: us(50.0),
            p95: us(95.0),
            p99: us(99.0),
            p999: us(99.9),
            max: us(100.0),
        }
    }
}

/// The result of a run of the load generator.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// The measured time.
    pub seconds: f64,
    /// Commands answered in that time.
    pub operations: u64,
    /// The same per second.
    pub ops_per_second: f64,
    /// Over all commands that were due in that time, including those answered later.
    pub latency: Latency,
    /// The same for each command of a mix, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency_by_command: Vec<Latency>,
    /// Open loop: how late the load generator itself sent. This is included in the latencies: if it
    /// is large, they describe this machine more than the server.
    #[serde(default, skip_serializing_if = "Latency::is_empty")]
    pub lateness: Latency,
    /// Commands that were never answered; they count in the latencies with their age.
    pub unfinished: u64,
    /// Error replies.
    pub errors: u64,
    /// The first of them.
    pub first_error: Option<String>,
    /// Null replies and elements: keys that do not exist.
    pub nulls: u64,
    /// The server's fsyncs in the measured time, if they were counted.
    #[serde(default)]
    pub fsyncs: Option<u64>,
    /// The use of the server's processes in the measured time; memory at its end.
    pub server: Usage,
    /// Processor time of the load generator itself, in nanoseconds.
    pub own_cpu_ns: u64,
}

impl Summary {
    pub(super) fn new(options: &Options, run: &Run, tallies: Vec<Tally>, looks: Looks) -> Summary {
        let last = tallies.iter().map(|tally| tally.last).max().unwrap_or(0);
        let until = run.until.load(Ordering::Relaxed).min(looks.at.1).max(run.measure_from);
        let end = if options.requests.is_some() { last } else { until };
        let mut summary = Summary {
            seconds: (end - run.measure_from.min(end)).max(1) as f64 / 1e9,
            server: looks.server.1 - looks.server.0,
            fsyncs: looks.fsyncs.map(|(before, after)| after.saturating_sub(before)),
            own_cpu_ns: looks.own_cpu_ns.1 - looks.own_cpu_ns.0,
            ..Summary::default()
        };
        let mut by_command: Vec<Histogram<u64>> = Vec::new();
        let mut lateness: Option<Histogram<u64>> = None;
        for tally in tallies {
            match &mut lateness {
                None => lateness = Some(tally.lateness),
                Some(sum) => *sum += tally.lateness,
            }
            summary.operations += tally.operations;
            summary.unfinished += tally.unfinished;
            summary.errors += tally.seen.errors;
            summary.nulls += tally.seen.nulls;
            summary.first_error = summary.first_error.take().or(tally.seen.first_error);
            if by_command.is_empty() {
                by_command = tally.latencies;
            } else {
                by_command.iter_mut().zip(tally.latencies).for_each(|(sum, one)| *sum += one);
            }
        }
        summary.lateness = lateness.as_ref().map(Latency::of).unwrap_or_default();
        summary.ops_per_second = summary.operations as f64 / summary.seconds;
        let mut all = by_command[0].clone();
        by_command[1..].iter().for_each(|one| all += one);
        summary.latency = Latency::of(&all);
        if by_command.len() > 1 {
            summary.latency_by_command = by_command.iter().map(Latency::of).collect();
        }
        summary
    }

    /// Of work that was measured here, in nanoseconds, one after the other in so many seconds.
    pub fn of(histogram: &Histogram<u64>, seconds: f64) -> Summary {
        Summary {
            seconds,
            operations: histogram.len(),
            ops_per_second: histogram.len() as f64 / seconds,
            latency: Latency::of(histogram),
            ..Summary::default()
        }
    }

    /// A latency, if any was measured.
    pub fn latency(&self, which: impl Fn(&Latency) -> f64) -> Option<f64> {
        (self.latency.count > 0).then(|| which(&self.latency))
    }

    /// Microseconds of the server's processor time for one command.
    pub fn server_cpu_us(&self) -> f64 {
        per_operation_us(self.server.cpu_ns, self.operations)
    }

    /// The part of it in user space.
    pub fn server_user_us(&self) -> f64 {
        per_operation_us(self.server.user_ns, self.operations)
    }

    /// Microseconds of the load generator's processor time for one command.
    pub fn own_cpu_us(&self) -> f64 {
        per_operation_us(self.own_cpu_ns, self.operations)
    }
}

impl Summary {
    /// The server's fsyncs a second, if they were counted.
    pub fn fsyncs_per_second(&self) -> Option<f64> {
        Some(self.fsyncs? as f64 / self.seconds)
    }

    /// Microseconds of the main thread's processor time for each first command of the mix, which is
    /// the one that writes where fsyncs are counted.
    pub fn main_us_per_write(&self) -> Option<f64> {
        self.fsyncs?;
        let part = match self.latency_by_command.first() {
            Some(first) => first.count as f64 / self.latency.count.max(1) as f64,
            None => 1.0,
        };
        let writes = self.operations as f64 * part;
        (writes > 0.0).then(|| self.server.main_ns as f64 / 1000.0 / writes)
    }
}

fn per_operation_us(ns: u64, operations: u64) -> f64 {
    ns as f64 / 1000.0 / operations.max(1) as f64
}

/// In readable form.
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>14.0} commands a second ({} in {:.2} s)",
            self.ops_per_second, self.operations, self.seconds
        )?;
        let latency = &self.latency;
        writeln!(
            f,
            "{:>14.3} ms mean latency; p50 {:.3}, p95 {:.3}, p99 {:.3}, p99.9 {:.3}, max {:.3} ms",
            latency.mean / 1e3,
            latency.p50 / 1e3,
            latency.p95 / 1e3,
            latency.p99 / 1e3,
            latency.p999 / 1e3,
            latency.max / 1e3
        )?;
        if self.server.cpu_ns > 0 {
            let (cpu, rss) = (self.server_cpu_us(), self.server.rss_bytes as f64 / 1e6);
            let cores = self.server.cpu_ns as f64 / 1e9 / self.seconds;
            writeln!(
                f,
                "{cpu:>14.3} µs of the server's CPU time a command ({cores:.2} cores), {rss:.1} MB \
                 resident"
            )?;
        }
        let cores = self.own_cpu_ns as f64 / 1e9 / self.seconds;
        writeln!(
            f,
            "{:>14.3} µs of this program's CPU time a command ({cores:.2} cores)",
            self.own_cpu_us()
        )?;
        if self.lateness.count > 0 {
            let late = &self.lateness;
            writeln!(
                f,
                "{:>14.3} ms late to send itself at the p99, {:.3} ms at most",
                late.p99 / 1e3,
                late.max / 1e3
            )?;
        }
        for (what, count) in
            [("errors", self.errors), ("nulls", self.nulls), ("unfinished", self.unfinished)]
        {
            if count > 0 {
                writeln!(f, "{count:>14} {what}")?;
            }
        }
        Ok(())
    }
}
