//! Tables for the terminal.

use super::{Table, figure_table, load_table};
use crate::goals::{Goal, Verdict};
use crate::results::Outcome;

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
