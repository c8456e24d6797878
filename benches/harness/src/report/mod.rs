//! The output for people: tables in the terminal, a page with plots, docs/benchmarks.md.

mod html;
mod markdown;
mod opening;
mod pictures;
mod plots;
mod table;

pub use html::page;
pub use markdown::document;
pub use pictures::pictures;
pub use table::terminal;

use crate::goals::short;
use crate::results::{Metric, Outcome, extremes, median};

/// A column of the tables of loads.
struct Column {
    head: &'static str,
    metric: Metric,
    /// Divides the value.
    unit: f64,
}

const COLUMNS: [Column; 13] = [
    Column { head: "ops/s", metric: Metric::Throughput, unit: 1.0 },
    Column { head: "CPU/op, µs", metric: Metric::ServerCpu, unit: 1.0 },
    Column { head: "in user space, µs", metric: Metric::UserCpu, unit: 1.0 },
    Column { head: "load's CPU/op, µs", metric: Metric::LoadCpu, unit: 1.0 },
    Column { head: "main thread's CPU/write, µs", metric: Metric::MainCpu, unit: 1.0 },
    Column { head: "fsyncs/s", metric: Metric::Fsyncs, unit: 1.0 },
    Column { head: "mean, ms", metric: Metric::Mean, unit: 1000.0 },
    Column { head: "p50, ms", metric: Metric::P50, unit: 1000.0 },
    Column { head: "p95, ms", metric: Metric::P95, unit: 1000.0 },
    Column { head: "p99, ms", metric: Metric::P99, unit: 1000.0 },
    Column { head: "p99.9, ms", metric: Metric::P999, unit: 1000.0 },
    Column { head: "max, ms", metric: Metric::Max, unit: 1000.0 },
    Column { head: "sent late p99, ms", metric: Metric::LateP99, unit: 1000.0 },
];

/// The longest line of prose in docs/benchmarks.md.
const WIDTH: usize = 100;

/// Prose in lines of limited length; the first begins with `first`, the others have its indent.
fn wrapped(first: &str, prose: &str) -> String {
    let (mut text, mut column) = (first.to_owned(), first.chars().count());
    let indent = " ".repeat(column);
    for (number, word) in prose.split_whitespace().enumerate() {
        let length = word.chars().count();
        if number > 0 && column + 1 + length > WIDTH {
            text.push('\n');
            text.push_str(&indent);
            column = indent.len();
        } else if number > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text + "\n"
}

/// A table of an outcome: its head, and its rows.
struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// In the place of a figure that there is not.
const NONE: &str = "–";

impl Table {
    /// Without the columns in which no row has anything.
    fn without_empty_columns(mut self) -> Table {
        for column in (0..self.head.len()).rev() {
            if self.rows.iter().all(|row| row[column] == NONE) {
                self.head.remove(column);
                self.rows.iter_mut().for_each(|row| drop(row.remove(column)));
            }
        }
        self
    }
}

/// Medians of the rounds, one row per load of each leg.
fn load_table(outcome: &Outcome) -> Option<Table> {
    let mut head = vec![outcome.points.clone(), "what".into(), "load".into()];
    head.extend(COLUMNS.iter().map(|column| column.head.to_owned()));
    head.push("ops/s, slowest and fastest round".into());
    let mut rows = Vec::new();
    for point in outcome.all_points() {
        for series in
            outcome.series.iter().filter(|series| series.points.iter().any(|other| other == point))
        {
            for role in outcome.roles() {
                let throughput = outcome.values(&series.name, point, role, Metric::Throughput);
                if throughput.is_empty() {
                    continue;
                }
                let mut row = vec![point.to_owned(), series.name.clone(), role.to_owned()];
                row.extend(COLUMNS.iter().map(|column| {
                    let values = outcome.values(&series.name, point, role, column.metric);
                    median(&values).map_or(NONE.into(), |value| short(value / column.unit))
                }));
                let (least, most) = extremes(&throughput);
                row.push(format!("{} … {}", short(least), short(most)));
                rows.push(row);
            }
        }
    }
    let table = Table { head, rows };
    (!table.rows.is_empty()).then(|| table.without_empty_columns())
}

/// Medians of the figures that do not belong to a load.
fn figure_table(outcome: &Outcome) -> Option<Table> {
    let mut rows = Vec::new();
    for series in &outcome.series {
        for point in &series.points {
            let Some(first) = outcome.rounds_of(&series.name, point).next() else { continue };
            for name in first.figures.keys() {
                let values: Vec<f64> = outcome
                    .rounds_of(&series.name, point)
                    .filter_map(|round| round.figures.get(name).copied())
                    .collect();
                let (least, most) = extremes(&values);
                let middle = median(&values).unwrap_or_default();
                rows.push(vec![
                    series.name.clone(),
                    point.clone(),
                    name.clone(),
                    format!("{middle:.3}"),
                    format!("{least:.3} … {most:.3}"),
                ]);
            }
        }
    }
    let head = ["what", outcome.points.as_str(), "figure", "median", "least and most"]
        .map(str::to_owned)
        .into();
    (!rows.is_empty()).then_some(Table { head, rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_without_figures_is_left_out() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = vec![row(["x", NONE, NONE]), row(["y", NONE, "2"])];
        let table = Table { head: row(["a", "b", "c"]), rows }.without_empty_columns();
        assert_eq!(table.head, ["a", "c"]);
        assert_eq!(table.rows, [["x", NONE], ["y", "2"]]);
    }

    #[test]
    fn prose_is_wrapped() {
        assert_eq!(wrapped("- ", "a b"), "- a b\n");
        let text = wrapped("- ", &"word ".repeat(50));
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
        assert!(text.lines().skip(1).all(|line| line.starts_with("  word")), "{text}");
        assert_eq!(text.matches("word").count(), 50);
    }
}
