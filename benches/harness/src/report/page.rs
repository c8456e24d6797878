//! The page of results: docs/benchmarks.md, and the same as HTML. What it says is in
//! `templates/benchmarks.md`.

use askama::Template;
use comrak::{Anchorizer, Options, markdown_to_html};
use textwrap::WordSplitter::NoHyphenation;

use super::missed::{Missed, missed};
use super::plots::Plot;
use super::table::{Table, figure_table, load_table};
use crate::experiments::NAMES;
use crate::goals::{Goal, short};
use crate::results::{Outcome, Results, median};

/// The page's content. The fields are the template's words.
#[derive(Template)]
#[template(path = "benchmarks.md", escape = "none")]
pub struct Page<'a> {
    results: &'a Results,
    goals: &'a [Goal],
    missed: Vec<Missed<'a>>,
    /// As Markdown or HTML that shows them.
    plots: Vec<String>,
    /// The names of the experiments that were not run.
    absent: Vec<&'static str>,
}

impl<'a> Page<'a> {
    /// The page of these results; `shown` gives the Markdown or HTML that shows a plot.
    pub fn new(
        results: &'a Results,
        goals: &'a [Goal],
        plots: &[Plot],
        shown: impl Fn(&Plot) -> String,
    ) -> Page<'a> {
        Page {
            results,
            goals,
            missed: missed(goals),
            plots: plots.iter().map(shown).collect(),
            absent: NAMES.into_iter().filter(|name| results.outcome(name).is_none()).collect(),
        }
    }

    /// The page as Markdown.
    ///
    /// # Errors
    /// Only if the template cannot be rendered.
    pub fn markdown(&self) -> askama::Result<String> {
        Ok(wrapped(&self.render()?))
    }

    /// The median of a goal's figure.
    fn got(&self, goal: &str) -> String {
        let goal = self.goals.iter().find(|other| other.text == goal);
        goal.and_then(|goal| median(&goal.values)).map_or("–".into(), short)
    }

    /// The medians of three goals, at the depths of the pipeline.
    fn at_depths(&self, goal: &str) -> String {
        let [first, second, third] =
            ["1", "10", "50"].map(|depth| self.got(&format!("{goal}, pipeline {depth}")));
        format!("{first} at pipeline 1, {second} at 10, {third} at 50")
    }

    /// How many goals have a verdict that begins so.
    fn count(&self, verdict: &str) -> usize {
        self.goals.iter().filter(|goal| goal.verdict.text().starts_with(verdict)).count()
    }

    fn is_quick(&self) -> bool {
        self.results.outcomes.iter().any(|outcome| outcome.quick)
    }

    /// The names and versions of all servers that were compared.
    fn servers(&self) -> String {
        let mut versions: Vec<&str> = Vec::new();
        for server in self.results.outcomes.iter().flat_map(|outcome| &outcome.servers) {
            // The echo server is part of the harness.
            let is_peer = !server.version.starts_with("midi-bench");
            if is_peer && !versions.contains(&server.version.as_str()) {
                versions.push(&server.version);
            }
        }
        versions.sort_unstable();
        versions.join(", ")
    }
}

/// The id of the heading with this text.
fn anchor(title: &str) -> String {
    Anchorizer::new().anchorize(title)
}

/// How often the legs of an experiment were measured.
fn rounds(outcome: &Outcome) -> u32 {
    outcome.rounds.iter().map(|round| round.number + 1).max().unwrap_or(0)
}

/// The tables of an experiment in Markdown.
fn tables(outcome: &Outcome) -> String {
    let tables = [load_table(outcome), figure_table(outcome)];
    tables.iter().flatten().map(markdown).collect::<Vec<_>>().join("\n")
}

/// Columns of numbers are aligned to the right.
fn markdown(table: &Table) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let is_number = |cell: &str| cell == "–" || cell.starts_with(|c: char| c.is_ascii_digit());
    let mut text = line(&table.head) + "|";
    for column in 0..table.head.len() {
        // The first two name what was measured, even if it looks like a number.
        let numbers = column > 1 && table.rows.iter().all(|row| is_number(&row[column]));
        text.push_str(if numbers { "--:|" } else { "---|" });
    }
    text.push('\n');
    table.rows.iter().for_each(|row| text.push_str(&line(row)));
    text
}

/// The longest line of prose in pages.
const WIDTH: usize = 100;

/// Paragraphs and items of lists, which the template has in one line each, in lines of limited
/// length.
fn wrapped(text: &str) -> String {
    let mut wrapped = String::new();
    for line in text.lines() {
        let prose = line.trim_start();
        if prose.starts_with(['|', '#', '<']) {
            wrapped.push_str(line);
        } else {
            let outer = &line[..line.len() - prose.len()];
            let inner = if prose.starts_with("- ") { format!("{outer}  ") } else { outer.into() };
            let options = textwrap::Options::new(WIDTH)
                .break_words(false)
                .word_splitter(NoHyphenation)
                .initial_indent(outer)
                .subsequent_indent(&inner);
            wrapped.push_str(&textwrap::fill(prose, options));
        }
        wrapped.push('\n');
    }
    wrapped
}

#[derive(Template)]
#[template(path = "page.html")]
struct Html {
    body: String,
}

/// The page as one file of HTML, from its Markdown.
///
/// # Errors
/// Only if the template cannot be rendered.
pub fn html(markdown: &str) -> askama::Result<String> {
    let mut options = Options::default();
    options.extension.table = true;
    options.extension.header_id_prefix = Some(String::new());
    // The Markdown is ours: folds and plots are HTML.
    options.render.r#unsafe = true;
    Html { body: markdown_to_html(markdown, &options) }.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::memory;
    use crate::goals::judged;
    use crate::report::plots;
    use crate::results::{Round, Series, ServerInfo};

    fn results() -> Results {
        let series =
            |name: &str| Series { name: name.into(), points: vec![memory::POINT.to_owned()] };
        let midi = Round {
            series: "midi".into(),
            point: memory::POINT.into(),
            figures: [(memory::FIGURE.to_owned(), 200.0)].into(),
            ..Round::default()
        };
        let stock = Round { series: "redis".into(), ..midi.clone() };
        let outcome = Outcome {
            name: memory::NAME.into(),
            title: "Memory per key".into(),
            question: "How much memory does a `key` take?".into(),
            series: ["midi", "redis"].map(series).into(),
            servers: vec![ServerInfo {
                version: "redis 7.0.15".into(),
                command_lines: vec!["redis-server".into()],
                ..ServerInfo::default()
            }],
            rounds: vec![midi, stock],
            ..Outcome::default()
        };
        Results { outcomes: vec![outcome], ..Results::default() }
    }

    #[test]
    fn the_page_begins_with_plots_and_ends_with_goals() {
        let results = results();
        let (goals, plots) = (judged(&results), plots(&results).expect("plots"));
        let page = Page::new(&results, &goals, &plots, |plot| format!("![]({})", plot.file));
        let text = page.markdown().expect("a page");
        let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
        let order = [
            "![](memory.svg)",
            "## What was compared",
            "## What came out",
            "## What was missed, and why",
            "resident bytes per key of 1 M keys",
            "## How to repeat it",
            "## Memory per key",
            "| midi | 64-byte values | bytes per key | 200.000 |",
            "## Goals",
        ];
        assert!(order.map(place).is_sorted(), "{:?}", order.map(place));
        assert!(text.contains("redis 7.0.15"), "{text}");
        let is_prose = |line: &&str| !line.starts_with(['|', '<']);
        assert!(text.lines().filter(is_prose).all(|line| line.chars().count() <= WIDTH), "{text}");
    }

    #[test]
    fn the_html_page_has_no_marks_of_markdown() {
        let results = results();
        let (goals, plots) = (judged(&results), plots(&results).expect("plots"));
        let page = Page::new(&results, &goals, &plots, |plot| plot.svg.clone());
        let text = html(&page.markdown().expect("a page")).expect("a page");
        assert!(text.contains("How much memory does a <code>key</code> take?"), "{text}");
        assert!(text.contains("id=\"memory-per-key\""), "{text}");
        assert!(text.contains("href=\"#memory-per-key\""), "{text}");
        for mark in ["`", "**", "## ", "|---"] {
            assert!(!text.contains(mark), "{mark}");
        }
        assert!(!text.contains("<script") && !text.contains("http://localhost"), "{text}");
    }

    #[test]
    fn prose_is_wrapped_and_tables_are_not() {
        let long = "word ".repeat(50);
        let text = wrapped(&format!("- {long}\n  - {long}\n| {long} |\n"));
        assert_eq!(text.matches("word").count(), 150);
        let (rows, prose): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| line.starts_with('|'));
        assert_eq!(rows.len(), 1);
        assert!(prose.iter().all(|line| line.len() <= WIDTH), "{text}");
        assert!(text.contains("\n  word") && text.contains("\n    word"), "{text}");
    }
}
