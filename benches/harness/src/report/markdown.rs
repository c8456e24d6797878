//! docs/benchmarks.md.

use super::opening::opening;
use super::pictures::Picture;
use super::{Table, figure_table, load_table, wrapped};
use crate::goals::Goal;
use crate::results::{Outcome, Results};

/// The whole document, from these results; its plots are in this folder next to it.
pub fn document(results: &Results, goals: &[Goal], pictures: &[Picture], folder: &str) -> String {
    let mut text = opening(results, goals, pictures, folder);
    text.push_str("\n## How to run them\n\n");
    text.push_str(&wrapped(
        "",
        "`make bench` has written this page and its plots; do not edit them. Every figure is the \
         median of the rounds of one run. More plots, the percentiles of every latency and each \
         round's figures are in `bench-report/` after a run.",
    ));
    text.push_str(
        "\n| | |\n|---|---|\n\
         | `make bench` | everything, and this page |\n\
         | `make bench EXP=2` | the experiments of one section |\n\
         | `make bench-quick` | everything with short rounds: for a look, nothing to quote |\n\
         | `make bench BENCH_SERVERS=\"redis8=/path/to/redis-server df=/path/to/dragonfly\"` | \
         other servers beside; `name=path,argument,…` |\n\
         | `midi-bench load --help` | the load generator by itself (`cargo run --release -p \
         midi-bench -- load --help`) |\n\n",
    );
    text.push_str("## Goals\n\n");
    text.push_str(&goal_table(goals));
    for outcome in &results.outcomes {
        text.push_str(&section(outcome));
    }
    text
}

fn goal_table(goals: &[Goal]) -> String {
    let head = ["section", "goal", "wanted", "median [least … most]", "margin", "verdict"]
        .map(str::to_owned)
        .into();
    let rows = goals
        .iter()
        .map(|goal| {
            let margin =
                goal.margin().map_or("–".into(), |margin| format!("{:+.0} %", margin * 100.0));
            vec![
                goal.section.to_string(),
                goal.text.clone(),
                goal.wanted(),
                goal.got(),
                margin,
                goal.verdict.text(),
            ]
        })
        .collect();
    markdown(&Table { head, rows })
}

fn section(outcome: &Outcome) -> String {
    let mut text = format!("\n## {}\n\n{}", outcome.title, wrapped("", &outcome.about));
    text.push_str(&format!("\n`make bench EXP={}`", outcome.number));
    let rounds = outcome.rounds.iter().map(|round| round.number + 1).max().unwrap_or(0);
    text.push_str(&format!(", {rounds} rounds in turn.\n\n"));
    for table in [load_table(outcome), figure_table(outcome)].into_iter().flatten() {
        text.push_str(&markdown(&table));
        text.push('\n');
    }
    if !outcome.servers.is_empty() {
        text.push_str("Servers:\n\n");
        for server in &outcome.servers {
            let count = server.command_lines.len();
            let times = if count > 1 { format!("{count} × ") } else { String::new() };
            let line = server.command_lines.first().cloned().unwrap_or_default();
            text.push_str(&format!(
                "- {} ({}; {}): {times}`{line}`\n",
                server.name, server.version, server.cores
            ));
        }
    }
    text
}

fn markdown(table: &Table) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut text = line(&table.head);
    text.push_str(&format!("|{}\n", "---|".repeat(table.head.len())));
    table.rows.iter().for_each(|row| text.push_str(&line(row)));
    text
}
