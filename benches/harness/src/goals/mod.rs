//! The goals of midi, and whether a run shows them.

mod aof;
mod cache;
mod list;
mod memcached_port;
mod replicas;
mod tls;
mod types;

pub use list::judged;

use crate::results::{Metric, Outcome, Results, extremes, median, spread};

/// How close to a bound is "on the line".
const LINE: f64 = 0.05;

/// A goal's limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
}

/// The verdict of a run on a goal.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Reached.
    Met,
    /// Not reached.
    Missed,
    /// Within 5 % of the bound.
    OnTheLine,
    /// The rounds' spread is larger than the distance of the middle one from the bound.
    TooNoisy,
    /// This run has no figure for it; the reason.
    NotMeasured(&'static str),
}

impl Verdict {
    /// For tables.
    pub fn text(&self) -> String {
        match self {
            Verdict::Met => "met".into(),
            Verdict::Missed => "MISSED".into(),
            Verdict::OnTheLine => "on the line".into(),
            Verdict::TooNoisy => "too noisy".into(),
            Verdict::NotMeasured(why) => format!("not measured: {why}"),
        }
    }
}

/// A goal and its verdict.
pub struct Goal {
    /// Section of the list of goals.
    pub section: u32,
    /// The goal.
    pub text: String,
    /// The bound.
    pub bound: Bound,
    /// The value of each round.
    pub values: Vec<f64>,
    /// The verdict.
    pub verdict: Verdict,
}

impl Goal {
    fn measured(section: u32, text: impl Into<String>, bound: Bound, values: Vec<f64>) -> Goal {
        let verdict = judge(bound, &values);
        Goal { section, text: text.into(), bound, values, verdict }
    }

    /// Of figures that are counted, not timed: they are not noisy, and a bound of 0 is possible.
    fn counted(section: u32, text: impl Into<String>, bound: Bound, values: Vec<f64>) -> Goal {
        let is_kept = |&value: &f64| match bound {
            Bound::AtMost(limit) => value <= limit,
            Bound::AtLeast(limit) => value >= limit,
        };
        let verdict = match () {
            _ if values.is_empty() => Verdict::NotMeasured("not in this run"),
            _ if values.iter().all(is_kept) => Verdict::Met,
            _ => Verdict::Missed,
        };
        Goal { section, text: text.into(), bound, values, verdict }
    }

    fn later(section: u32, text: &str, bound: Bound, why: &'static str) -> Goal {
        Goal {
            section,
            text: text.into(),
            bound,
            values: Vec::new(),
            verdict: Verdict::NotMeasured(why),
        }
    }

    /// The wanted value, for tables.
    pub fn wanted(&self) -> String {
        match self.bound {
            Bound::AtMost(limit) => format!("≤ {limit}"),
            Bound::AtLeast(limit) => format!("≥ {limit}"),
        }
    }

    /// The measured value with its extremes, for tables.
    pub fn got(&self) -> String {
        match median(&self.values) {
            None => "–".into(),
            Some(middle) => {
                let (least, most) = extremes(&self.values);
                format!("{} [{} … {}]", short(middle), short(least), short(most))
            }
        }
    }
}

/// A number with three significant digits.
pub fn short(number: f64) -> String {
    match number.abs() {
        size if size >= 100.0 || size == 0.0 => format!("{number:.0}"),
        size if size >= 10.0 => format!("{number:.1}"),
        size if size >= 1.0 => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
}

/// How far a value is on the good side of the bound, as a part of the bound; negative on the bad
/// side.
fn margin(bound: Bound, value: f64) -> Option<f64> {
    let (Bound::AtMost(limit) | Bound::AtLeast(limit)) = bound;
    let distance = (value - limit) / limit;
    Some(if matches!(bound, Bound::AtMost(_)) { -distance } else { distance })
}

fn judge(bound: Bound, values: &[f64]) -> Verdict {
    let (Bound::AtMost(limit) | Bound::AtLeast(limit)) = bound;
    let Some((middle, margin)) =
        median(values).and_then(|middle| Some((middle, margin(bound, middle)?)))
    else {
        return Verdict::NotMeasured("not in this run");
    };
    match () {
        _ if margin.abs() <= LINE => Verdict::OnTheLine,
        _ if spread(values) > (middle - limit).abs() => Verdict::TooNoisy,
        _ if margin > 0.0 => Verdict::Met,
        _ => Verdict::Missed,
    }
}

/// Where to find a figure: series, point, role, metric.
type Place<'a> = (&'a str, &'a str, &'a str, Metric);

fn values(results: &Results, experiment: &str, place: Place<'_>) -> Vec<f64> {
    let (series, point, role, metric) = place;
    results
        .outcome(experiment)
        .map(|outcome| outcome.values(series, point, role, metric))
        .unwrap_or_default()
}

/// One figure over another in the same round.
fn ratios(results: &Results, experiment: &str, above: Place<'_>, below: Place<'_>) -> Vec<f64> {
    let Some(outcome) = results.outcome(experiment) else { return Vec::new() };
    let value = |(series, point, role, metric): Place<'_>, number| -> Option<f64> {
        outcome.round(series, point, number)?.value(role, metric)
    };
    // If nothing was answered in time, the ratio is meaningless.
    let ratio =
        |number| Some(value(above, number)? / value(below, number).filter(|&below| below > 0.0)?);
    rounds(outcome).filter_map(ratio).collect()
}

/// A series' throughput over the best of all others' at the same point in the same round.
fn over_the_best(results: &Results, experiment: &str, series: &str, point: &str) -> Vec<f64> {
    over_another(results, experiment, series, point, Metric::Throughput, f64::max)
}

/// A series' figure over the least of all others', in the same way.
fn over_the_least(
    results: &Results,
    experiment: &str,
    series: &str,
    point: &str,
    metric: Metric,
) -> Vec<f64> {
    over_another(results, experiment, series, point, metric, f64::min)
}

fn over_another(
    results: &Results,
    experiment: &str,
    series: &str,
    point: &str,
    metric: Metric,
    better: fn(f64, f64) -> f64,
) -> Vec<f64> {
    let Some(outcome) = results.outcome(experiment) else { return Vec::new() };
    let value = |series: &str, number| outcome.round(series, point, number)?.value("load", metric);
    let others =
        || outcome.series.iter().map(|other| other.name.as_str()).filter(|&other| other != series);
    let ratio = |number| {
        let best = others().filter_map(|other| value(other, number)).reduce(better);
        Some(value(series, number)? / best.filter(|&best| best > 0.0)?)
    };
    rounds(outcome).filter_map(ratio).collect()
}

fn rounds(outcome: &Outcome) -> impl Iterator<Item = u32> {
    0..outcome.rounds.iter().map(|round| round.number + 1).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Summary;
    use crate::results::{Round, Series};

    #[test]
    fn verdicts() {
        let most = Bound::AtMost(1.0);
        assert_eq!(judge(most, &[0.8, 0.81, 0.79]), Verdict::Met);
        assert_eq!(judge(most, &[1.2, 1.21, 1.19]), Verdict::Missed);
        assert_eq!(judge(most, &[1.04, 1.5, 0.9]), Verdict::OnTheLine);
        assert_eq!(judge(most, &[0.96]), Verdict::OnTheLine);
        assert_eq!(judge(most, &[0.8, 1.1, 0.7]), Verdict::TooNoisy);
        let least = Bound::AtLeast(60.0);
        assert_eq!(judge(least, &[100.0, 110.0]), Verdict::Met);
        assert_eq!(judge(least, &[10.0, 11.0]), Verdict::Missed);
        assert_eq!(judge(least, &[]), Verdict::NotMeasured("not in this run"));
    }

    #[test]
    fn counted_figures_have_no_line_to_be_on() {
        let verdict = |bound, values: &[f64]| Goal::counted(1, "", bound, values.into()).verdict;
        assert_eq!(verdict(Bound::AtMost(0.0), &[0.0, 0.0]), Verdict::Met);
        assert_eq!(verdict(Bound::AtMost(0.0), &[0.0, 0.0, 1.0]), Verdict::Missed);
        assert_eq!(verdict(Bound::AtLeast(1.0), &[1.01]), Verdict::Met);
        assert_eq!(verdict(Bound::AtLeast(1.0), &[0.99]), Verdict::Missed);
    }

    #[test]
    fn margins_are_positive_on_the_good_side() {
        assert!(margin(Bound::AtMost(2.0), 1.0).is_some_and(|margin| margin == 0.5));
        assert!(margin(Bound::AtLeast(2.0), 1.0).is_some_and(|margin| margin == -0.5));
    }

    #[test]
    fn the_best_of_the_others() {
        let round = |series: &str, ops_per_second| Round {
            series: series.into(),
            point: "GET".into(),
            loads: [("load".to_owned(), Summary { ops_per_second, ..Summary::default() })].into(),
            ..Round::default()
        };
        let series =
            ["midi", "a", "b"].map(|name| Series { name: name.into(), points: Vec::new() });
        let outcome = Outcome {
            name: "x".into(),
            series: series.into(),
            rounds: vec![round("midi", 6.0), round("a", 2.0), round("b", 4.0)],
            ..Outcome::default()
        };
        let results = Results { outcomes: vec![outcome], ..Results::default() };
        assert_eq!(over_the_best(&results, "x", "midi", "GET"), [1.5]);
        assert!(over_the_best(&results, "x", "none", "GET").is_empty());
    }

    #[test]
    fn every_goal_is_judged_without_results() {
        let goals = judged(&Results::default());
        assert!(goals.iter().all(|goal| matches!(goal.verdict, Verdict::NotMeasured(_))));
        assert!((1..=7).all(|section| goals.iter().any(|goal| goal.section == section)));
    }
}
