//! Tables of measurements, and how the terminal shows them.

use crate::goals::{Goal, Verdict, short};
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

/// A table of an outcome: its head, and its rows.
pub struct Table {
    /// Of the columns.
    pub head: Vec<String>,
    /// As many cells as columns each.
    pub rows: Vec<Vec<String>>,
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
pub fn load_table(outcome: &Outcome) -> Option<Table> {
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
pub fn figure_table(outcome: &Outcome) -> Option<Table> {
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

/// The measurements of a run, and its goals.
pub fn terminal(outcomes: &[Outcome], goals: &[Goal]) -> String {
    let mut text = String::new();
    for outcome in outcomes {
        text.push_str(&format!("\n{}\n", outcome.title));
        for table in [load_table(outcome), figure_table(outcome)].into_iter().flatten() {
            text.push_str(&aligned(&table));
        }
    }
    let rows: Vec<Vec<String>> = goals
        .iter()
        .filter(|goal| !matches!(goal.verdict, Verdict::NotMeasured(_)))
        .map(|goal| vec![goal.verdict.text(), goal.wanted(), goal.got(), goal.text.clone()])
        .collect();
    if !rows.is_empty() {
        let head = ["", "wanted", "got: median [least … most]", "goal"].map(str::to_owned).into();
        text.push_str("\nGoals\n");
        text.push_str(&aligned(&Table { head, rows }));
    }
    text
}

/// Columns as narrow as possible: words to the left, numbers to the right.
fn aligned(table: &Table) -> String {
    let rows: Vec<&Vec<String>> = std::iter::once(&table.head).chain(&table.rows).collect();
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..table.head.len()).map(width).collect();
    let mut text = String::new();
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            let is_number = cell.starts_with(|first: char| first.is_ascii_digit()) || cell == "–";
            let padding = " ".repeat(widths[column].saturating_sub(cell.chars().count()));
            let (before, after) =
                if is_number { (padding.as_str(), "") } else { ("", padding.as_str()) };
            text.push_str(&format!("  {before}{cell}{after}"));
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
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
}
