//! bench-report/index.html: everything in one file, plots included.

use plotly::Plot;

use super::opening::{UNMEASURED, summary};
use super::{Table, figure_table, load_table, plots};
use crate::goals::{Goal, Verdict};
use crate::results::{Outcome, Results};

const STYLE: &str = "
    body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 1200px; \
        padding: 0 1em; color: #222 }
    .scrolls { overflow-x: auto } li { overflow-wrap: anywhere }
    @media (max-width: 700px) { body { margin: 1em auto; font-size: 14px } }
    table { border-collapse: collapse; margin: 1em 0; font-size: 13px }
    th, td { border-bottom: 1px solid #ddd; padding: .25em .8em; text-align: left; \
        vertical-align: top }
    td.number { text-align: right; font-variant-numeric: tabular-nums }
    .met { color: #17692b; font-weight: 600 } .missed { color: #b3261e; font-weight: 600 } \
    .between { color: #8a5a00 }
    .later { color: #777 } code { font-size: 12px; overflow-wrap: anywhere } \
    .quick { background: #fff3cd; padding: .5em 1em }
    summary { cursor: pointer }
";

/// The page.
pub fn page(results: &Results, goals: &[Goal]) -> String {
    let mut body = String::from("<h1>midi: benchmarks</h1>");
    let machine = &results.machine;
    body.push_str(&format!(
        "<p>{}: {}, {} cores, {:.0} GiB, Linux {}; midi at {}.</p>",
        escaped(&machine.date),
        escaped(&machine.processor),
        machine.cores,
        machine.memory_gib,
        escaped(&machine.kernel),
        escaped(&machine.commit)
    ));
    if results.outcomes.iter().any(|outcome| outcome.quick) {
        body.push_str(
            "<p class=quick>A quick run, with short rounds: for a look, nothing to quote.</p>",
        );
    }
    body.push_str("<h2>Summary</h2><ul>");
    // A run of one section has no results of the others.
    for line in summary(results, goals).iter().filter(|line| !line.contains(UNMEASURED)) {
        body.push_str(&format!("<li>{}", emphasized(line)));
    }
    body.push_str("</ul>");
    body.push_str(&contents(results));
    body.push_str("<h2 id=goals>Goals</h2>");
    body.push_str(&goal_table(goals));
    for outcome in &results.outcomes {
        body.push_str(&section(outcome));
    }
    format!(
        "<!doctype html><html lang=en><head><meta charset=utf-8>\
         <meta name=viewport content=\"width=device-width, initial-scale=1\">\
         <title>midi: benchmarks</title>\
         <style>{STYLE}</style>{}</head><body>{body}</body></html>",
        Plot::offline_js_sources()
    )
}

/// The contents of the page, with each experiment's question.
fn contents(results: &Results) -> String {
    let mut text = String::from("<h2>Contents</h2><ul><li><a href=#goals>Goals</a>");
    for outcome in &results.outcomes {
        let (name, title) = (&outcome.name, escaped(&outcome.title));
        let asks = escaped(&outcome.question);
        text.push_str(&format!("<li><a href=#{name}>{title}</a>: {asks}"));
    }
    text + "</ul>"
}

/// A line of the summary, which is Markdown: bold words and links.
fn emphasized(line: &str) -> String {
    let mut text = String::new();
    for (number, part) in escaped(line).split("**").enumerate() {
        let part = part.replace("[Goals](#goals)", "<a href=#goals>Goals</a>");
        text.push_str(&if number % 2 == 1 { format!("<b>{part}</b>") } else { part });
    }
    text
}

fn goal_table(goals: &[Goal]) -> String {
    let mut text = String::from(
        "<div class=scrolls><table><tr><th>section<th>goal<th>wanted<th>median [least … \
         most]<th>margin<th>verdict</tr>",
    );
    for goal in goals {
        let class = match goal.verdict {
            Verdict::Met => "met",
            Verdict::Missed => "missed",
            Verdict::OnTheLine | Verdict::TooNoisy => "between",
            Verdict::NotMeasured(_) => "later",
        };
        let margin =
            goal.margin().map_or("–".into(), |margin| format!("{:+.0} %", margin * 100.0));
        text.push_str(&format!(
            "<tr><td>{}<td>{}<td>{}<td>{}<td class=number>{margin}<td class={class}>{}</tr>",
            goal.section,
            escaped(&goal.text),
            goal.wanted(),
            goal.got(),
            escaped(&goal.verdict.text())
        ));
    }
    text + "</table></div>"
}

fn section(outcome: &Outcome) -> String {
    let mut text = format!(
        "<h2 id={}>{}</h2><p><b>{}</b></p><p>{}</p>",
        outcome.name,
        escaped(&outcome.title),
        escaped(&outcome.question),
        escaped(&outcome.about)
    );
    text.push_str(&format!("<p><code>make bench EXP={}</code></p>", outcome.number));
    for named in plots::plots(outcome) {
        text.push_str(&named.plot.to_inline_html(Some(&named.id)));
    }
    for table in [load_table(outcome), figure_table(outcome)].into_iter().flatten() {
        text.push_str(&html(&table));
    }
    text.push_str("<details><summary>Servers and command lines</summary><ul>");
    for server in &outcome.servers {
        let lines: Vec<String> = server
            .command_lines
            .iter()
            .map(|line| format!("<code>{}</code>", escaped(line)))
            .collect();
        let (name, version) = (escaped(&server.name), escaped(&server.version));
        text.push_str(&format!(
            "<li>{name} ({version}; {}): {}</li>",
            server.cores,
            lines.join("<br>")
        ));
    }
    text.push_str("</ul><ul>");
    for round in outcome.rounds.iter().filter(|round| round.number == 0) {
        let lines: Vec<String> =
            round.commands.iter().map(|line| format!("<code>{}</code>", escaped(line))).collect();
        let name = format!("{}, {}", escaped(&round.series), escaped(&round.point));
        text.push_str(&format!("<li>{name}: {}</li>", lines.join("<br>")));
    }
    text + "</ul></details>"
}

fn html(table: &Table) -> String {
    let head: String = table.head.iter().map(|cell| format!("<th>{}", escaped(cell))).collect();
    let mut text = format!("<div class=scrolls><table><tr>{head}</tr>");
    for row in &table.rows {
        text.push_str("<tr>");
        for cell in row {
            let class = if cell.starts_with(|first: char| first.is_ascii_digit()) {
                " class=number"
            } else {
                ""
            };
            text.push_str(&format!("<td{class}>{}", escaped(cell)));
        }
        text.push_str("</tr>");
    }
    text + "</table></div>"
}

/// Escapes text for the page.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
