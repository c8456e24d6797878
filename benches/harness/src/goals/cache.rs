//! The goals of caches.

use super::{Bound, Goal, ratios, rounds, values};
use crate::bench::cache::{AT, BELOW, HITS, NATIVE_LOST, OUT_OF_MEMORY, RESIDENT, USED};
use crate::experiments::cache::{
    AUTO, BESIDE, HOST_DOOR, HOST_LIMIT, LRU, NAME, SETS, TRACES, is_own,
};
use crate::replay::Shape;
use crate::results::{Metric, Results};

/// 1 % and the largest value above the limit.
const USED_AT_MOST: f64 = 1.0101;

/// Every goal, with its verdict from these results.
pub fn cache_goals(results: &Results) -> Vec<Goal> {
    // Requests are counted, and the same in each run: nothing is within a margin of error.
    let counted = |text: String, bound, values| Goal::counted(9, text, bound, values);
    let timed = |text: String, bound, values| Goal::measured(9, text, bound, values);
    let at_most = |text: &str, most, name, merge| {
        counted(text.into(), Bound::AtMost(most), of_own(results, name, merge))
    };
    let mut goals = Vec::new();
    for (trace, shape) in TRACES {
        let mut misses = |what: &str, series| {
            let text = format!("{what}, {trace}: misses over those of the best peer");
            let values = misses_over_the_best(results, series, trace);
            goals.push(counted(text, Bound::AtMost(1.0), values));
        };
        misses("cache on the RESP port", AUTO);
        if shape == Shape::Drift {
            misses("cache on the RESP port, allkeys-lru", LRU);
        }
        if shape == Shape::Zipf {
            misses("cache on the host door", HOST_DOOR);
        }
    }
    goals.push(at_most("caches: OOM errors in all traces", 0.0, OUT_OF_MEMORY, |a, b| a + b));
    goals.push(at_most("caches: used memory over the limit", USED_AT_MOST, USED, f64::max));
    goals.push(at_most(
        "caches: growth of resident memory over the limit",
        1.25,
        RESIDENT,
        f64::max,
    ));
    let lost = values(results, NAME, (HOST_LIMIT, BESIDE, "", Metric::Figure(NATIVE_LOST)));
    let text = "a cache within the host's limit: native keys lost".to_owned();
    goals.push(counted(text, Bound::AtMost(0.0), lost));
    let throughput = |role| (AUTO, SETS, role, Metric::Throughput);
    goals.push(timed(
        "a cache's SETs at the limit over those below it".into(),
        Bound::AtLeast(0.85),
        ratios(results, NAME, throughput(AT), throughput(BELOW)),
    ));
    goals
}

/// A series' misses over the fewest of any peer, on the same trace in the same round.
fn misses_over_the_best(results: &Results, series: &str, trace: &str) -> Vec<f64> {
    let Some(outcome) = results.outcome(NAME) else { return Vec::new() };
    let misses = |series: &str, number| {
        Some(1.0 - outcome.round(series, trace, number)?.value("", Metric::Figure(HITS))?)
    };
    let peers =
        || outcome.series.iter().map(|other| other.name.as_str()).filter(|name| !is_own(name));
    let ratio = |number| {
        let fewest = peers().filter_map(|peer| misses(peer, number)).reduce(f64::min)?;
        Some(misses(series, number)? / fewest.max(f64::MIN_POSITIVE))
    };
    rounds(outcome).filter_map(ratio).collect()
}

/// One figure of all of midi's caches, for each round.
fn of_own(results: &Results, name: &'static str, merge: fn(f64, f64) -> f64) -> Vec<f64> {
    let Some(outcome) = results.outcome(NAME) else { return Vec::new() };
    let of_round = |number| {
        let own =
            outcome.rounds.iter().filter(|round| round.number == number && is_own(&round.series));
        own.filter_map(|round| round.value("", Metric::Figure(name))).reduce(merge)
    };
    rounds(outcome).filter_map(of_round).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goals::Verdict;
    use crate::results::{Outcome, Round, Series};

    fn round(series: &str, figures: &[(&str, f64)]) -> Round {
        let figures = figures.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
        Round { series: series.into(), point: TRACES[0].0.into(), figures, ..Round::default() }
    }

    #[test]
    fn misses_are_held_against_the_best_peer() {
        let names = [AUTO, LRU, "redis, allkeys-lru", "memcached"];
        let outcome = Outcome {
            name: NAME.into(),
            series: names.map(|name| Series { name: name.into(), points: Vec::new() }).into(),
            rounds: vec![
                round(AUTO, &[(HITS, 0.75), (OUT_OF_MEMORY, 2.0), (USED, 1.0)]),
                round(LRU, &[(HITS, 0.9), (OUT_OF_MEMORY, 1.0), (USED, 1.2)]),
                round(names[2], &[(HITS, 0.5), (OUT_OF_MEMORY, 4.0), (USED, 2.0)]),
                round(names[3], &[(HITS, 0.25)]),
            ],
            ..Outcome::default()
        };
        let results = Results { outcomes: vec![outcome], ..Results::default() };
        assert_eq!(misses_over_the_best(&results, AUTO, TRACES[0].0), [0.5]);
        assert_eq!(of_own(&results, OUT_OF_MEMORY, |a, b| a + b), [3.0], "midi's alone");
        assert_eq!(of_own(&results, USED, f64::max), [1.2]);
        let goals = cache_goals(&results);
        let verdict = |text: &str| {
            let goal = goals.iter().find(|goal| goal.text.contains(text)).expect("a goal");
            goal.verdict.clone()
        };
        assert_eq!(verdict("cache on the RESP port, Zipf"), Verdict::Met);
        assert_eq!(verdict("OOM errors"), Verdict::Missed);
    }
}
