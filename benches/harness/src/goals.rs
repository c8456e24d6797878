//! What midi must reach, and whether a run shows it.

use crate::experiments::{contention, engine, global_lock, host_door, memory, populate};
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

/// What a run says of a goal.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Reached.
    Met,
    /// Not reached.
    Missed,
    /// Within 5 % of the bound.
    OnTheLine,
    /// The rounds lie further apart than the middle one from the bound.
    TooNoisy,
    /// This run has no figure for it; why.
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

/// A goal and what became of it.
pub struct Goal {
    /// Section of the list of goals.
    pub section: u32,
    /// What is wanted.
    pub text: String,
    /// How much.
    pub bound: Bound,
    /// What each round had.
    pub values: Vec<f64>,
    /// The judgement.
    pub verdict: Verdict,
}

impl Goal {
    fn measured(section: u32, text: impl Into<String>, bound: Bound, values: Vec<f64>) -> Goal {
        let verdict = judge(bound, &values);
        Goal { section, text: text.into(), bound, values, verdict }
    }

    fn later(section: u32, text: &str, bound: Bound, why: &'static str) -> Goal {
        Goal { section, text: text.into(), bound, values: Vec::new(), verdict: Verdict::NotMeasured(why) }
    }

    /// How far the middle round is on the good side of the bound, as a part of the bound; negative on the bad side.
    pub fn margin(&self) -> Option<f64> {
        margin(self.bound, median(&self.values)?)
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

/// A number with three digits that count.
pub fn short(number: f64) -> String {
    match number.abs() {
        size if size >= 100.0 || size == 0.0 => format!("{number:.0}"),
        size if size >= 10.0 => format!("{number:.1}"),
        size if size >= 1.0 => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
}

fn margin(bound: Bound, value: f64) -> Option<f64> {
    let (Bound::AtMost(limit) | Bound::AtLeast(limit)) = bound;
    let distance = (value - limit) / limit;
    Some(if matches!(bound, Bound::AtMost(_)) { -distance } else { distance })
}

fn judge(bound: Bound, values: &[f64]) -> Verdict {
    let (Bound::AtMost(limit) | Bound::AtLeast(limit)) = bound;
    let Some((middle, margin)) = median(values).and_then(|middle| Some((middle, margin(bound, middle)?)))
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

/// A place where a figure stands: series, point, role, metric.
type Place<'a> = (&'a str, &'a str, &'a str, Metric);

fn values(results: &Results, experiment: &str, place: Place<'_>) -> Vec<f64> {
    let (series, point, role, metric) = place;
    results.outcome(experiment).map(|outcome| outcome.values(series, point, role, metric)).unwrap_or_default()
}

/// One figure over another in the same round.
fn ratios(results: &Results, experiment: &str, above: Place<'_>, below: Place<'_>) -> Vec<f64> {
    let Some(outcome) = results.outcome(experiment) else { return Vec::new() };
    let value = |(series, point, role, metric): Place<'_>, number| -> Option<f64> {
        outcome.round(series, point, number)?.value(role, metric)
    };
    // Where nothing was answered in time, the ratio says nothing.
    let ratio = |number| Some(value(above, number)? / value(below, number).filter(|&below| below > 0.0)?);
    rounds(outcome).filter_map(ratio).collect()
}

fn rounds(outcome: &Outcome) -> impl Iterator<Item = u32> {
    0..outcome.rounds.iter().map(|round| round.number + 1).max().unwrap_or(0)
}

/// Every goal, with what these results say of it.
pub fn judged(results: &Results) -> Vec<Goal> {
    let mut goals = host_door_goals(results);
    goals.extend(engine_goals(results));
    goals.extend(populate_goals(results));
    goals.extend(generator_goals(results));
    goals.extend(port_goals());
    goals.extend(contention_goals(results));
    goals.extend(global_lock_goals(results));
    goals.extend(later_goals());
    goals
}

fn host_door_goals(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    for command in ["GET", "SET"] {
        for pipeline in host_door::PIPELINES.map(|depth| depth.to_string()) {
            let (own, native) = (format!("MIDI.{command} adaptive"), format!("native {command}"));
            let depth = pipeline.as_str();
            goals.push(Goal::measured(
                1,
                format!(
                    "host door: CPU of MIDI.{command} adaptive over native {command}, pipeline {pipeline}"
                ),
                Bound::AtMost(1.0),
                ratios(
                    results,
                    host_door::NAME,
                    (&own, depth, "load", Metric::ServerCpu),
                    (&native, depth, "load", Metric::ServerCpu),
                ),
            ));
        }
    }
    let figure = Metric::Figure(memory::FIGURE);
    goals.push(Goal::measured(
        1,
        "resident bytes per key of 1 M keys with 64-byte values",
        Bound::AtMost(96.0),
        values(results, memory::NAME, (memory::MIDI, "64-byte values", "", figure)),
    ));
    goals
}

fn engine_goals(results: &Results) -> Vec<Goal> {
    let value =
        |point, name| values(results, engine::NAME, (engine::SERIES, point, "", Metric::Figure(name)));
    let scaling = [
        ("uniform keys, GET", "of 2: 1024 shards, uniform, 100% GET"),
        ("uniform keys, 95/5", "of 2: 1024 shards, uniform, 95% GET"),
        ("uniform keys, 50/50", "of 2: 1024 shards, uniform, 50% GET"),
        ("Zipf 0.99, GET", "of 2: 1024 shards, zipf, 100% GET"),
        ("Zipf 0.99, 95/5", "of 2: 1024 shards, zipf, 95% GET"),
        ("Zipf 0.99, 50/50", "of 2: 1024 shards, zipf, 50% GET"),
    ];
    let mut goals: Vec<Goal> = scaling
        .map(|(what, name)| {
            let text = format!("engine alone, two threads over one, {what}");
            Goal::measured(1, text, Bound::AtLeast(1.9), value("threads", name))
        })
        .into();
    let bytes = [
        ("8", "overhead: 1000000 keys, 8-byte values"),
        ("64", "overhead: 1000000 keys, 64-byte values"),
        ("200", "overhead: 1000000 keys, 200-byte values"),
    ];
    goals.extend(bytes.map(|(size, name)| {
        let text = format!("bytes above key and value, values of {size} bytes");
        Goal::measured(1, text, Bound::AtMost(22.0), value("bytes", name))
    }));
    goals
}

fn populate_goals(results: &Results) -> Vec<Goal> {
    let point =
        results.outcome(populate::NAME).map(|outcome| outcome.all_points().concat()).unwrap_or_default();
    let seconds = Metric::Figure("seconds");
    let (own, stock) = (populate::MIDI, populate::STOCK);
    vec![
        Goal::measured(
            1,
            "MIDI.POPULATE: times faster than DEBUG POPULATE",
            Bound::AtLeast(2.0),
            ratios(results, populate::NAME, (stock, &point, "", seconds), (own, &point, "", seconds)),
        ),
        Goal::measured(
            1,
            "the host's PING beside MIDI.POPULATE: p99 in µs, open loop",
            Bound::AtMost(1000.0),
            values(results, populate::NAME, (own, &point, "probe", Metric::P99)),
        ),
    ]
}

/// The load generator must not be the limit itself.
fn generator_goals(results: &Results) -> Vec<Goal> {
    let own = |series| (series, "1", "load", Metric::LoadCpu);
    let mut goals = vec![Goal::measured(
        1,
        "load generator: its CPU over the echo server's, pipeline 1",
        Bound::AtMost(1.1),
        ratios(results, host_door::NAME, own("echo"), ("echo", "1", "load", Metric::ServerCpu)),
    )];
    for pipeline in ["10", "50"] {
        let series = "MIDI.GET adaptive";
        goals.push(Goal::measured(
            1,
            format!("load generator: its CPU over midi's own, pipeline {pipeline}"),
            Bound::AtMost(1.0),
            ratios(
                results,
                host_door::NAME,
                (series, pipeline, "load", Metric::LoadCpu),
                (series, pipeline, "load", Metric::ServerCpu),
            ),
        ));
    }
    // Neither may say something else of the server than the other.
    goals.push(Goal::measured(
        1,
        "load generator against redis-benchmark: the server's CPU per GET, pipeline 10, ours over theirs",
        Bound::AtMost(1.1),
        ratios(
            results,
            host_door::NAME,
            (host_door::CHECKED, "10", "load", Metric::ServerCpu),
            (host_door::CHECKED_AGAINST, "10", "load", Metric::ServerCpu),
        ),
    ));
    goals
}

const PORT: &str = "the RESP port is not built yet";
const JOURNAL: &str = "the journal is not built yet";

fn port_goals() -> Vec<Goal> {
    vec![
        Goal::later(1, "RESP port: CPU of GET over echo, pipeline 1", Bound::AtMost(1.0), PORT),
        Goal::later(1, "RESP port: CPU of GET over echo, pipeline 10", Bound::AtMost(1.2), PORT),
        Goal::later(1, "RESP port: CPU of GET over echo, pipeline 50", Bound::AtMost(2.0), PORT),
        Goal::later(1, "RESP port, all cores: ops/s over the best peer's", Bound::AtLeast(1.0), PORT),
        Goal::later(
            1,
            "memcached port: ops/s over memcached -t 2",
            Bound::AtLeast(1.0),
            "the port is not built yet",
        ),
    ]
}

fn contention_goals(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    let ops = Metric::Throughput;
    for (light, _) in contention::LIGHT {
        let points = contention::points(light);
        let (alone, together) = (points.alone.as_str(), points.together.as_str());
        let ratio = |above, below| ratios(results, contention::NAME, above, below);
        for mode in [contention::ADAPTIVE, contention::POOL] {
            let mut goal = |text: String, bound, values| goals.push(Goal::measured(2, text, bound, values));
            goal(
                format!("{light} beside heavy, {mode}: over stock's"),
                Bound::AtLeast(60.0),
                ratio((mode, together, "light", ops), (contention::STOCK, together, "light", ops)),
            );
            goal(
                format!("{light} beside heavy, {mode}: part of its undisturbed rate"),
                Bound::AtLeast(0.4),
                ratio((mode, together, "light", ops), (mode, alone, "light", ops)),
            );
            goal(
                format!("{light} beside heavy, {mode}: p99 in µs"),
                Bound::AtMost(2000.0),
                values(results, contention::NAME, (mode, together, "light", Metric::P99)),
            );
            goal(
                format!("{light} beside heavy, {mode}: p99 in µs, open loop at 40 %"),
                Bound::AtMost(2000.0),
                values(results, contention::NAME, (mode, &points.offered, "light", Metric::P99)),
            );
            goal(
                format!("heavy beside {light}, {mode}: over stock's"),
                Bound::AtLeast(0.5),
                ratio((mode, together, "heavy", ops), (contention::STOCK, together, "heavy", ops)),
            );
        }
        goals.push(Goal::measured(
            2,
            format!("{light} beside heavy, SAFEMODE (serial, as stock): over stock's"),
            Bound::AtMost(5.0),
            ratio(
                (contention::SAFEMODE, together, "light", ops),
                (contention::STOCK, together, "light", ops),
            ),
        ));
    }
    goals
}

fn global_lock_goals(results: &Results) -> Vec<Goal> {
    let light = |point, metric| (global_lock::SERIES, point, "light", metric);
    vec![
        Goal::measured(
            2,
            "native GET beside a MIDI.IMPORT loop: part of its undisturbed rate",
            Bound::AtLeast(0.4),
            ratios(
                results,
                global_lock::NAME,
                light(global_lock::BESIDE, Metric::Throughput),
                light(global_lock::ALONE, Metric::Throughput),
            ),
        ),
        Goal::measured(
            2,
            "native GET beside a MIDI.IMPORT loop: p99 in µs, open loop at 40 %",
            Bound::AtMost(2000.0),
            values(results, global_lock::NAME, light(global_lock::OFFERED, Metric::P99)),
        ),
    ]
}

fn later_goals() -> Vec<Goal> {
    let (values, report) = ("large values come with the ports", "comes with the journal's experiments");
    vec![
        Goal::later(3, "beside a ZINTERSTORE loop: part of its undisturbed rate", Bound::AtLeast(0.4), PORT),
        Goal::later(3, "beside a ZINTERSTORE loop: p95 over the undisturbed", Bound::AtMost(3.0), PORT),
        Goal::later(4, "appendfsync always, 100 bytes: ops/s over stock's", Bound::AtLeast(1.5), JOURNAL),
        Goal::later(4, "appendfsync always, 100 bytes: mean latency in µs", Bound::AtMost(1000.0), JOURNAL),
        Goal::later(4, "appendfsync always, 6000 bytes: ops/s over stock's", Bound::AtLeast(1.2), JOURNAL),
        Goal::later(
            5,
            "RESP port, 100 kB values: user time of SET and GET in µs",
            Bound::AtMost(1.0),
            values,
        ),
        Goal::later(
            6,
            "pause in the fork handler in µs, beside the host's own",
            Bound::AtMost(1000.0),
            JOURNAL,
        ),
        Goal::later(6, "restart with 10 M keys: times faster than stock", Bound::AtLeast(2.0), JOURNAL),
        Goal::later(6, "slowest reply while 1 M keys expire, in µs", Bound::AtMost(2000.0), report),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn margins_are_positive_on_the_good_side() {
        assert!(margin(Bound::AtMost(2.0), 1.0).is_some_and(|margin| margin == 0.5));
        assert!(margin(Bound::AtLeast(2.0), 1.0).is_some_and(|margin| margin == -0.5));
    }

    #[test]
    fn every_goal_is_judged_without_results() {
        let goals = judged(&Results::default());
        assert!(goals.iter().all(|goal| matches!(goal.verdict, Verdict::NotMeasured(_))));
        assert!((1..=6).all(|section| goals.iter().any(|goal| goal.section == section)));
    }
}
