//! The goals of hashes.

use super::{Bound, Goal, over_the_best, ratios, rounds, values};
use crate::experiments::types::{
    ALL_CORES, BESIDE, Command, FIGURE, HOST_DOOR, LARGE, LIGHT, LONG, MEMORY, MIDI, MIDI_ALL,
    NAME, OFFERED, READ, SMALL, STOCK,
};
use crate::results::{Metric, Results};

/// Every goal, with its verdict from these results.
pub fn type_goals(results: &Results) -> Vec<Goal> {
    let measured = |text: String, bound, values| Goal::measured(10, text, bound, values);
    let mut goals = Vec::new();
    for command in [Command::Set, Command::Get] {
        let point = command.point();
        goals.push(measured(
            format!("hashes on the RESP port, all cores: ops/s over the best peer's, {point}"),
            Bound::AtLeast(2.0),
            over_the_best(results, ALL_CORES, MIDI_ALL, point),
        ));
        let cpu = |series| (series, point, "load", Metric::ServerCpu);
        goals.push(measured(
            format!("hashes on the host door: CPU over the native command's, {point}"),
            Bound::AtMost(0.9),
            ratios(results, NAME, cpu(HOST_DOOR), cpu(STOCK)),
        ));
    }
    let point = Command::GetAll.point();
    goals.push(measured(
        format!("hashes on the RESP port: CPU over the best peer's, {point}"),
        Bound::AtMost(0.7),
        over_the_least_of_peers(results, point),
    ));
    for (point, most) in [(SMALL, 33.0), (LARGE, 50.0)] {
        let place = (MIDI, point, "", Metric::Figure(FIGURE));
        goals.push(measured(
            format!("resident bytes per field, {point}"),
            Bound::AtMost(most),
            values(results, MEMORY, place),
        ));
    }
    for (series, door) in [(MIDI, "RESP port"), (HOST_DOOR, "host door")] {
        goals.extend(goals_of_long_commands(results, series, door));
    }
    goals
}

fn goals_of_long_commands(results: &Results, series: &str, door: &str) -> [Goal; 4] {
    let measured = |text: &str, bound, values| {
        Goal::measured(10, format!("long reads on the {door}: {text}"), bound, values)
    };
    let ping = |series, metric| (series, BESIDE, "ping", metric);
    let light = |point| (series, point, "light", Metric::Throughput);
    let answered = ratios(results, LONG, light(BESIDE), light(LIGHT)).into_iter();
    let answered = answered.map(|ratio| ratio / OFFERED);
    let cpu = |series| (series, READ, "read", Metric::ServerCpu);
    [
        measured(
            "PING p99.9 beside them, µs",
            Bound::AtMost(1000.0),
            values(results, LONG, ping(series, Metric::P999)),
        ),
        measured(
            "slowest PING beside them over stock's",
            Bound::AtMost(0.02),
            ratios(results, LONG, ping(series, Metric::Max), ping(STOCK, Metric::Max)),
        ),
        measured(
            "answered of the light commands that are sent beside them",
            Bound::AtLeast(0.9),
            answered.collect(),
        ),
        measured(
            "CPU of HGETALL of 500,000 fields over stock's",
            Bound::AtMost(1.2),
            ratios(results, LONG, cpu(series), cpu(STOCK)),
        ),
    ]
}

/// The CPU time of midi's port over the least of any peer's, in the same round. Its host door is
/// none of them.
fn over_the_least_of_peers(results: &Results, point: &str) -> Vec<f64> {
    let Some(outcome) = results.outcome(NAME) else { return Vec::new() };
    let cpu = |series: &str, number| {
        outcome.round(series, point, number)?.value("load", Metric::ServerCpu)
    };
    let names = || outcome.series.iter().map(|series| series.name.as_str());
    let peers = || names().filter(|&name| ![MIDI, HOST_DOOR].contains(&name));
    let ratio = |number| {
        let least = peers().filter_map(|peer| cpu(peer, number)).reduce(f64::min)?;
        Some(cpu(MIDI, number)? / least)
    };
    rounds(outcome).filter_map(ratio).collect()
}
