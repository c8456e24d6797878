//! The goals of durable writes.

use super::{Bound, Goal, ratios, rounds, values};
use crate::bench::durable::{FROM_BASE, FROM_INCREMENTS};
use crate::experiments::aof::{
    DISK, HOST_DOOR, MIDI, MIXES, NAME, ONE, POLICIES, RESTART, REWRITE, STOCK, UNPIPELINED, point,
    sets,
};
use crate::results::{Metric, Results};

/// Every goal, with its verdict from these results.
pub fn aof_goals(results: &Results) -> Vec<Goal> {
    let mut goals = under_load(results);
    goals.extend(of_the_host_door(results));
    goals.extend(one_by_one(results));
    goals.extend(costs(results));
    goals.extend(rewrites_and_restarts(results));
    goals
}

fn goal(text: impl Into<String>, bound: Bound, values: Vec<f64>) -> Goal {
    Goal::measured(4, text, bound, values)
}

/// A series' throughput over stock's.
fn over_stock(results: &Results, series: &str, point: &str) -> Vec<f64> {
    let rate = |series| (series, point, "load", Metric::Throughput);
    ratios(results, NAME, rate(series), rate(STOCK))
}

fn under_load(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    let loads = [("always", 100, 1.5), ("always", 6000, 1.2), ("everysec", 100, 2.0)];
    for (policy, size, least) in loads {
        goals.extend(MIXES.map(|mix| {
            goal(
                format!("RESP port, {policy}, {size} B, {mix}: ops/s over stock's"),
                Bound::AtLeast(least),
                over_stock(results, MIDI, &point(policy, size, mix)),
            )
        }));
    }
    goals.push(goal(
        "RESP port, always, 100 B: ops/s over stock's, geometric mean of the mixes",
        Bound::AtLeast(2.0),
        geometric_means(MIXES.map(|mix| over_stock(results, MIDI, &point("always", 100, mix)))),
    ));
    goals.extend(MIXES.map(|mix| {
        goal(
            format!("RESP port, always, 100 B, {mix}: mean latency over the allowed"),
            Bound::AtMost(1.0),
            mean_over_allowed(results, mix),
        )
    }));
    goals
}

/// Of the ratios of each round.
fn geometric_means(of_mixes: [Vec<f64>; 3]) -> Vec<f64> {
    let [first, second, third] = of_mixes;
    let mixes = first.into_iter().zip(second).zip(third);
    mixes.map(|((first, second), third)| (first * second * third).cbrt()).collect()
}

/// Where stock is so fast, midi's mean must be below a millisecond.
const FAST: f64 = 900_000.0;
/// Elsewhere it must be below this part of stock's.
const PART_OF_STOCK: f64 = 0.55;

/// The port's mean latency over its bound in the same round.
fn mean_over_allowed(results: &Results, mix: &str) -> Vec<f64> {
    let Some(outcome) = results.outcome(NAME) else { return Vec::new() };
    let point = point("always", 100, mix);
    let over_allowed = |number| {
        let value = |series, metric| outcome.round(series, &point, number)?.value("load", metric);
        let is_fast = value(STOCK, Metric::Throughput)? >= FAST;
        let stock = value(STOCK, Metric::Mean)?;
        let allowed = if is_fast { 1000.0 } else { PART_OF_STOCK * stock };
        Some(value(MIDI, Metric::Mean)? / allowed)
    };
    rounds(outcome).filter_map(over_allowed).collect()
}

fn of_the_host_door(results: &Results) -> Vec<Goal> {
    let loads = POLICIES.into_iter().flat_map(|policy| MIXES.map(|mix| (policy, mix)));
    loads
        .map(|(policy, mix)| {
            goal(
                format!("host door, {policy}, 100 B, {mix}: ops/s over stock's"),
                Bound::AtLeast(1.0),
                over_stock(results, HOST_DOOR, &point(policy, 100, mix)),
            )
        })
        .collect()
}

fn one_by_one(results: &Results) -> Vec<Goal> {
    let p50 = |series| (series, UNPIPELINED, "load", Metric::P50);
    vec![
        goal(
            "RESP port, everysec, 100 B, 50 connections, pipeline 1: p50 over stock's",
            Bound::AtMost(1.0),
            ratios(results, NAME, p50(MIDI), p50(STOCK)),
        ),
        goal(
            "RESP port, always, one connection without pipelining: p50 above a write and an \
             fdatasync, in µs",
            Bound::AtMost(100.0),
            above_the_disk(results),
        ),
    ]
}

/// The part of one client's wait for which the disk is not needed, in microseconds.
fn above_the_disk(results: &Results) -> Vec<f64> {
    let Some(outcome) = results.outcome(NAME) else { return Vec::new() };
    let above = |number| {
        let p50 = |series| outcome.round(series, ONE, number)?.value("load", Metric::P50);
        Some(p50(MIDI)? - p50(DISK)?)
    };
    rounds(outcome).filter_map(above).collect()
}

fn costs(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    for policy in POLICIES {
        let (sets, mixed) = (sets(policy), point(policy, 100, "9:1"));
        let cpu = |series| (series, sets.as_str(), "load", Metric::ServerCpu);
        goals.push(goal(
            format!("RESP port, {policy}, 100 B: CPU of all threads for a SET over stock's"),
            Bound::AtMost(0.5),
            ratios(results, NAME, cpu(MIDI), cpu(STOCK)),
        ));
        goals.push(goal(
            format!("RESP port, {policy}, 100 B, 9:1: main thread's CPU for a SET, in µs"),
            Bound::AtMost(0.15),
            values(results, NAME, (MIDI, &mixed, "load", Metric::MainCpu)),
        ));
    }
    goals
}

fn rewrites_and_restarts(results: &Results) -> Vec<Goal> {
    let rate = |point| (MIDI, point, "load", Metric::Throughput);
    let alone = point("always", 100, "1:1");
    let mut goals = vec![goal(
        "RESP port, always, 100 B, 1:1, beside BGREWRITEAOF: part of its undisturbed rate",
        Bound::AtLeast(0.8),
        ratios(results, NAME, rate(REWRITE), rate(&alone)),
    )];
    let restarts = [("increments", FROM_INCREMENTS), ("a base", FROM_BASE)];
    goals.extend(restarts.map(|(from, figure)| {
        let seconds = |series| (series, RESTART, "", Metric::Figure(figure));
        goal(
            format!("restart from an AOF, from {from}: times faster than stock"),
            Bound::AtLeast(2.0),
            ratios(results, NAME, seconds(STOCK), seconds(MIDI)),
        )
    }));
    goals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Summary;
    use crate::results::{Outcome, Round};

    fn round(number: u32, series: &str, rate: f64, mean_us: f64) -> Round {
        let mut summary = Summary { ops_per_second: rate, ..Summary::default() };
        (summary.latency.count, summary.latency.mean) = (1, mean_us);
        Round {
            series: series.into(),
            point: point("always", 100, "1:1"),
            number,
            loads: [("load".to_owned(), summary)].into(),
            ..Round::default()
        }
    }

    #[test]
    fn the_allowed_mean_depends_on_stock() {
        let rounds = vec![
            round(0, STOCK, 1e6, 1400.0),
            round(0, MIDI, 2e6, 900.0),
            round(1, STOCK, 5e5, 2000.0),
            round(1, MIDI, 1e6, 2200.0),
        ];
        let outcome = Outcome { name: NAME.into(), rounds, ..Outcome::default() };
        let results = Results { outcomes: vec![outcome], ..Results::default() };
        assert_eq!(mean_over_allowed(&results, "1:1"), [0.9, 2.0]);
        assert!(mean_over_allowed(&results, "9:1").is_empty(), "not measured");
    }

    #[test]
    fn means_are_of_each_round() {
        let means = geometric_means([vec![1.0, 2.0], vec![8.0, 2.0], vec![1.0, 2.0]]);
        assert!(means.iter().all(|mean| (mean - 2.0).abs() < 1e-9), "{means:?}");
        assert_eq!(means.len(), 2);
    }
}
