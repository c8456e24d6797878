//! The measurements: every round of every leg, as stored in JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::load::Summary;

/// The newest outcome of each experiment that was run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Results {
    /// The machine.
    pub machine: Machine,
    /// In the order of their numbers.
    pub outcomes: Vec<Outcome>,
}

/// The properties of a machine that figures depend on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Usable processors.
    pub cores: usize,
    /// Memory in GiB.
    pub memory_gib: f64,
    /// The kernel's release.
    pub kernel: String,
    /// The time of the run, in UTC.
    pub date: String,
    /// midi's commit.
    pub commit: String,
}

/// How thorough a run is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The short run.
    pub quick: bool,
    /// How many rounds each leg has.
    pub rounds: u32,
    /// How long each round is measured.
    pub seconds: f64,
    /// How long it runs before measuring.
    pub warmup: f64,
    /// Keys of the data for the loads.
    pub keys: u64,
    /// Keys of the experiments with very many.
    pub populate: u64,
}

impl Plan {
    /// For figures to be quoted.
    pub const FULL: Plan = Plan {
        quick: false,
        rounds: 3,
        seconds: 0.9,
        warmup: 0.2,
        keys: 1_000_000,
        populate: 10_000_000,
    };
    /// For a first impression in a few minutes.
    pub const QUICK: Plan = Plan {
        quick: true,
        rounds: 1,
        seconds: 0.25,
        warmup: 0.1,
        keys: 1_000_000,
        populate: 1_000_000,
    };
}

/// One experiment's figures.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// See [`crate::bench::Experiment`].
    pub number: u32,
    /// See there.
    pub name: String,
    /// See there.
    pub title: String,
    /// See there; empty in older results.
    #[serde(default)]
    pub question: String,
    /// See there.
    pub about: String,
    /// See there.
    pub points: String,
    /// A short run: a first impression, not to be quoted.
    pub quick: bool,
    /// The commit that was measured; empty in older results.
    #[serde(default)]
    pub commit: String,
    /// How thoroughly; absent in older results.
    #[serde(default)]
    pub plan: Option<Plan>,
    /// See there.
    pub least_seconds: f64,
    /// The lines of the plots.
    pub series: Vec<Series>,
    /// The servers that ran.
    pub servers: Vec<ServerInfo>,
    /// In the order they were run.
    pub rounds: Vec<Round>,
}

/// A line of a plot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// The points that have figures.
    pub points: Vec<String>,
}

/// A server that was measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ServerInfo {
    /// Its name in the experiment.
    pub name: String,
    /// The name that it reports.
    pub version: String,
    /// How it was started, one line per process.
    pub command_lines: Vec<String>,
    /// The processors it ran on.
    pub cores: String,
}

/// One round of one leg.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Round {
    /// The line of the plot.
    pub series: String,
    /// The point.
    pub point: String,
    /// Counted from 0.
    pub number: u32,
    /// By role.
    pub loads: BTreeMap<String, Summary>,
    /// Figures that do not belong to a load: "seconds", "bytes per key".
    pub figures: BTreeMap<String, f64>,
    /// The command lines of the loads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
}

/// A number that a load or a leg has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Metric {
    /// Commands a second.
    Throughput,
    /// Microseconds of the server's CPU time per command.
    ServerCpu,
    /// The part of it in user space, as exact as many ticks make it.
    UserCpu,
    /// Microseconds of the load generator's CPU time per command.
    LoadCpu,
    /// Microseconds of the server's main thread for each write, where fsyncs are counted.
    MainCpu,
    /// The server's fsyncs a second.
    Fsyncs,
    /// The mean latency, in microseconds.
    Mean,
    /// The median latency, in microseconds.
    P50,
    /// The 95th percentile.
    P95,
    /// The 99th percentile.
    P99,
    /// The 99.9th percentile.
    P999,
    /// The slowest, in microseconds.
    Max,
    /// Open loop: how late commands were sent because of the load generator itself; the 99th
    /// percentile, in microseconds.
    LateP99,
    /// A figure of the leg, by name.
    Figure(&'static str),
}

impl Round {
    /// The metric for the load with this role.
    pub fn value(&self, role: &str, metric: Metric) -> Option<f64> {
        if let Metric::Figure(name) = metric {
            return self.figures.get(name).copied();
        }
        let load = self.loads.get(role)?;
        // The common cost of several loads is not a cost per command of any of them.
        let is_alone = self.loads.len() == 1 && self.figures.is_empty() && load.operations > 0;
        match metric {
            Metric::Throughput => Some(load.ops_per_second),
            Metric::ServerCpu => (is_alone && load.server.cpu_ns > 0).then(|| load.server_cpu_us()),
            Metric::UserCpu => (is_alone && load.server.cpu_ns > 0).then(|| load.server_user_us()),
            Metric::LoadCpu => {
                (load.own_cpu_ns > 0 && load.operations > 0).then(|| load.own_cpu_us())
            }
            Metric::MainCpu => load.main_us_per_write(),
            Metric::Fsyncs => load.fsyncs_per_second(),
            Metric::Mean => load.latency(|latency| latency.mean),
            Metric::P50 => load.latency(|latency| latency.p50),
            Metric::P95 => load.latency(|latency| latency.p95),
            Metric::P99 => load.latency(|latency| latency.p99),
            Metric::P999 => load.latency(|latency| latency.p999),
            Metric::Max => load.latency(|latency| latency.max),
            Metric::LateP99 => (load.lateness.count > 0).then_some(load.lateness.p99),
            Metric::Figure(_) => None,
        }
    }
}

impl Outcome {
    /// The rounds of one leg.
    pub fn rounds_of<'a>(
        &'a self,
        series: &'a str,
        point: &'a str,
    ) -> impl Iterator<Item = &'a Round> {
        self.rounds.iter().filter(move |round| round.series == series && round.point == point)
    }

    /// One of them.
    pub fn round(&self, series: &str, point: &str, number: u32) -> Option<&Round> {
        self.rounds
            .iter()
            .find(|round| round.series == series && round.point == point && round.number == number)
    }

    /// A metric in every round of a leg.
    pub fn values(&self, series: &str, point: &str, role: &str, metric: Metric) -> Vec<f64> {
        self.rounds_of(series, point).filter_map(|round| round.value(role, metric)).collect()
    }

    /// The roles that loads have in any leg, in order of first appearance.
    pub fn roles(&self) -> Vec<&str> {
        let mut roles: Vec<&str> = Vec::new();
        for role in self.rounds.iter().flat_map(|round| round.loads.keys()) {
            if !roles.contains(&role.as_str()) {
                roles.push(role);
            }
        }
        roles
    }

    /// The points of all series, in order of first appearance.
    pub fn all_points(&self) -> Vec<&str> {
        let mut points: Vec<&str> = Vec::new();
        for point in self.series.iter().flat_map(|series| &series.points) {
            if !points.contains(&point.as_str()) {
                points.push(point);
            }
        }
        points
    }
}

impl Results {
    /// The outcome with that name.
    pub fn outcome(&self, name: &str) -> Option<&Outcome> {
        self.outcomes.iter().find(|outcome| outcome.name == name)
    }

    /// Whether there is an outcome that another run of this commit, plan and these legs would only
    /// repeat. What was measured of changed files is not known.
    pub fn has(&self, name: &str, commit: &str, plan: Plan, series: &[Series]) -> bool {
        let is_known = commit != "unknown" && !commit.ends_with("-dirty");
        let is_same = |outcome: &Outcome| {
            outcome.commit == commit && outcome.plan == Some(plan) && outcome.series == series
        };
        is_known && self.outcome(name).is_some_and(is_same)
    }

    /// The commits that were measured, most often one.
    pub fn commits(&self) -> String {
        let mut commits: Vec<&str> = Vec::new();
        for outcome in &self.outcomes {
            let commit = match outcome.commit.as_str() {
                "" => &self.machine.commit,
                commit => commit,
            };
            if !commits.contains(&commit) {
                commits.push(commit);
            }
        }
        match commits.split_last() {
            Some((last, others)) if !others.is_empty() => {
                format!("{} and {last}", others.join(", "))
            }
            _ => commits.concat(),
        }
    }

    /// All that a page needs, in fewer bytes.
    pub fn without_commands(&self) -> Results {
        let mut results = self.clone();
        let rounds = results.outcomes.iter_mut().flat_map(|outcome| &mut outcome.rounds);
        rounds.for_each(|round| round.commands.clear());
        results
    }

    /// Replaces an older outcome by a newer one; they are in the order of `names`.
    pub fn replace(&mut self, outcome: Outcome, names: &[&str]) {
        self.outcomes.retain(|old| old.name != outcome.name);
        self.outcomes.push(outcome);
        self.outcomes.sort_by_key(|outcome| names.iter().position(|&name| name == outcome.name));
    }
}

/// The middle value; of an even number, the mean of the two in the middle.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The least value that this share of them does not exceed.
pub fn percentile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(place.saturating_sub(1)).copied()
}

/// The distance between the smallest and the largest.
pub fn spread(values: &[f64]) -> f64 {
    let (least, most) = extremes(values);
    most - least
}

/// The smallest and the largest.
pub fn extremes(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), &value| {
        (least.min(value), most.max(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        assert_eq!(percentile(&[], 0.99), None);
        assert_eq!(percentile(&[5.0], 0.99), Some(5.0));
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(percentile(&values, 0.99), Some(198.0));
        assert_eq!(percentile(&values, 1.0), Some(200.0));
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(spread(&[4.0, 1.0, 2.0]), 3.0);
    }

    #[test]
    fn a_newer_outcome_takes_the_older_ones_place() {
        let outcome = |number, name: &str, title: &str| Outcome {
            number,
            name: name.into(),
            title: title.into(),
            ..Outcome::default()
        };
        let mut results = Results::default();
        for outcome in [outcome(2, "b", ""), outcome(1, "a", "old"), outcome(1, "a", "new")] {
            results.replace(outcome, &["a", "b"]);
        }
        let titles: Vec<_> =
            results.outcomes.iter().map(|outcome| outcome.title.as_str()).collect();
        assert_eq!(titles, ["new", ""]);
    }

    #[test]
    fn only_what_would_be_repeated_is_left_out_of_a_run() {
        let legs = |point: &str| vec![Series { name: "midi".into(), points: vec![point.into()] }];
        let outcome = Outcome {
            name: "a".into(),
            commit: "1234567".into(),
            plan: Some(Plan::FULL),
            series: legs("GET"),
            ..Outcome::default()
        };
        let results = Results { outcomes: vec![outcome], ..Results::default() };
        assert!(results.has("a", "1234567", Plan::FULL, &legs("GET")));
        assert!(!results.has("b", "1234567", Plan::FULL, &legs("GET")), "not run");
        assert!(!results.has("a", "7654321", Plan::FULL, &legs("GET")), "another commit");
        assert!(!results.has("a", "1234567", Plan::QUICK, &legs("GET")), "shorter");
        assert!(!results.has("a", "1234567", Plan::FULL, &legs("SET")), "other legs");
        for commit in ["1234567-dirty", "unknown"] {
            let mut results = results.clone();
            results.outcomes[0].commit = commit.into();
            assert!(!results.has("a", commit, Plan::FULL, &legs("GET")), "{commit}");
        }
    }

    #[test]
    fn all_commits_are_named() {
        let outcome = |commit: &str| Outcome { commit: commit.into(), ..Outcome::default() };
        let mut results = Results { outcomes: vec![outcome("")], ..Results::default() };
        results.machine.commit = "a".into();
        assert_eq!(results.commits(), "a");
        results.outcomes.extend(["a", "b", "b"].map(outcome));
        assert_eq!(results.commits(), "a and b");
        results.outcomes.push(outcome("c"));
        assert_eq!(results.commits(), "a, b and c");
    }
}
