//! The beginning of docs/benchmarks.md: what a reader wants to know first.

use super::pictures::Picture;
use super::wrapped;
use crate::experiments::{aof, memory, noisy_neighbour};
use crate::goals::{Goal, Verdict, short};
use crate::results::{Machine, Metric, Results, median};

/// Ten lines and the plots, which are in this folder next to the page.
pub fn opening(results: &Results, goals: &[Goal], pictures: &[Picture], folder: &str) -> String {
    let mut text = String::from("# Benchmarks\n\n");
    text.push_str(&wrapped("", &machine(&results.machine)));
    text.push('\n');
    for line in summary(results, goals) {
        text.push_str(&wrapped("- ", &line));
    }
    text.push('\n');
    text.push_str(&wrapped(
        "",
        "Read ratios: absolute times belong to this machine and hour. CPU per command is stable \
         where throughput is not. In the plots a bar is the median of the rounds, and the line \
         across its end goes from the slowest to the fastest round.",
    ));
    for picture in pictures {
        text.push_str(&format!("\n![{}]({folder}/{})\n", picture.title, picture.file));
    }
    text
}

/// In the place of a figure that the run does not have.
pub(super) const UNMEASURED: &str = "–";

fn machine(machine: &Machine) -> String {
    format!(
        "Run on {}: {}, {} cores, {:.0} GiB, Linux {}. midi at {}.",
        machine.date,
        machine.processor,
        machine.cores,
        machine.memory_gib,
        machine.kernel,
        machine.commit
    )
}

/// The findings of the run, one line each, in Markdown.
pub(super) fn summary(results: &Results, goals: &[Goal]) -> [String; 8] {
    let got = |text: &str| {
        let goal = goals.iter().find(|goal| goal.text == text);
        goal.and_then(|goal| median(&goal.values)).map_or(UNMEASURED.into(), short)
    };
    let at_depths = |before: &str, after: &str| {
        let [first, second, third] =
            ["1", "10", "50"].map(|depth| got(&format!("{before}, pipeline {depth}{after}")));
        format!("{first} at pipeline 1, {second} at 10, {third} at 50")
    };
    let best = |mix: &str| {
        at_depths(&format!("RESP port, all cores: ops/s over the best peer's, {mix}"), "")
    };
    let cpu = |command: &str| {
        at_depths(&format!("host door: CPU of MIDI.{command} adaptive over native {command}"), "")
    };
    let beside =
        |neighbour: &str, what: &str| got(&format!("RESP port beside a {neighbour} loop: {what}"));
    let durable = |policy: &str| {
        let [first, second, third] = aof::MIXES.map(|mix| {
            let text = format!("RESP port, {policy}, 100 B, {mix}: ops/s over stock's");
            format!("{} at {mix}", got(&text))
        });
        format!("{first}, {second}, {third}")
    };
    let [first, second] = noisy_neighbour::NEIGHBOURS;
    let kept = "part of its undisturbed rate";
    [
        format!(
            "**Throughput of the port**, all cores, over the best peer's. GET: {}. SET: {}.",
            best("GET"),
            best("SET")
        ),
        format!(
            "**CPU time on the host's port**, over the native command's. MIDI.GET: {}. MIDI.SET: \
             {}.",
            cpu("GET"),
            cpu("SET")
        ),
        format!(
            "**Light commands beside heavy ones**: beside five KEYS, MIDI.GET (`adaptive`) keeps \
             {} of its undisturbed rate, which is {} times the rate of stock Redis; its p99 is {} \
             µs.",
            got(&format!("GET beside heavy, adaptive: {kept}")),
            got("GET beside heavy, adaptive: over stock's"),
            got("GET beside heavy, adaptive: p99 in µs")
        ),
        format!(
            "**A noisy neighbour**: the port keeps {} of its undisturbed rate beside a {first} \
             loop on the host's port, and {} beside a {second} loop.",
            beside(first, kept),
            beside(second, kept)
        ),
        format!(
            "**Durable writes**, SETs to GETs, 100 bytes, pipeline 20: the port's rate over stock \
             Redis's is {} with `appendfsync always`, and {} with `everysec`.",
            durable("always"),
            durable("everysec")
        ),
        format!(
            "**Memory per key**, 1 M keys with values of 64 bytes: {}.",
            memory_per_key(results)
        ),
        format!(
            "**MIDI.POPULATE** creates 10 M keys {} times as fast as DEBUG POPULATE.",
            got("MIDI.POPULATE: times faster than DEBUG POPULATE")
        ),
        verdicts(goals),
    ]
}

fn memory_per_key(results: &Results) -> String {
    let Some(outcome) = results.outcome(memory::NAME) else { return UNMEASURED.into() };
    let of = |series: &str, point: &str| {
        let figure = median(&outcome.values(series, point, "", Metric::Figure(memory::FIGURE)))?;
        Some(format!("{series} {} bytes", short(figure)))
    };
    let series = outcome.series.iter();
    series
        .filter_map(|series| of(&series.name, series.points.first()?))
        .collect::<Vec<_>>()
        .join(", ")
}

fn verdicts(goals: &[Goal]) -> String {
    let count =
        |wanted: fn(&Verdict) -> bool| goals.iter().filter(|goal| wanted(&goal.verdict)).count();
    format!(
        "**[Goals](#goals)**: {} met, {} missed, {} within 5 % of the bound, {} whose rounds \
         differ too much to say, {} not measured.",
        count(|verdict| *verdict == Verdict::Met),
        count(|verdict| *verdict == Verdict::Missed),
        count(|verdict| *verdict == Verdict::OnTheLine),
        count(|verdict| *verdict == Verdict::TooNoisy),
        count(|verdict| matches!(verdict, Verdict::NotMeasured(_)))
    )
}
