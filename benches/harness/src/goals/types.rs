//! The goals of hashes.

use super::{Bound, Goal, over_the_best, ratios, rounds, values};
use crate::experiments::types::{
    ALL_CORES, Command, FIGURE, HOST_DOOR, LARGE, MEMORY, MIDI, MIDI_ALL, NAME, SMALL, STOCK,
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
    goals
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
