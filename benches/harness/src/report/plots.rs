//! The plots that the page begins with.

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::bench::snapshot::RESTART;
use crate::experiments::{
    Mix, aof, contention, memory, noisy_neighbour, port_all_cores, snapshots,
};
use crate::goals::short;
use crate::results::{Metric, Outcome, Results, extremes, median};

/// A plot and what it shows.
pub struct Plot {
    /// The file's name.
    pub file: &'static str,
    /// Its subject, in two or three words.
    pub title: &'static str,
    /// What it shows, with the figure that matters.
    pub sentence: String,
    /// The file's content, with title and sentence.
    pub svg: String,
}

/// What a plot is made of.
struct Wanted {
    file: &'static str,
    title: &'static str,
    /// `{}` is midi's figure over that of stock Redis, at the last point.
    sentence: &'static str,
    /// The axis, with its unit.
    axis: &'static str,
    experiment: &'static str,
    role: &'static str,
    metric: Metric,
    /// A group of bars each: the point, and its heading.
    points: Vec<(String, &'static str)>,
    /// The bars of a group, as far as the experiment has them.
    series: &'static [&'static str],
    /// Those that are compared: midi's and stock's.
    compared: [&'static str; 2],
}

fn wanted() -> [Wanted; 6] {
    let beside = contention::points(contention::LIGHT[0].0);
    let neighbour = noisy_neighbour::NEIGHBOURS[0];
    [
        Wanted {
            file: "throughput.svg",
            title: "Throughput",
            sentence: "midi's port answers {} times as many GETs a second as stock Redis on the \
                       same cores.",
            axis: "GETs a second, all cores, pipelines of 10",
            experiment: port_all_cores::NAME,
            role: "load",
            metric: Metric::Throughput,
            points: vec![(Mix::Get.point(10), "")],
            series: &[
                port_all_cores::MIDI,
                "redis",
                "redis, io-threads 2",
                "redis8",
                "valkey",
                "valkey, io-threads 2",
                "memcached -t 2",
            ],
            compared: [port_all_cores::MIDI, "redis"],
        },
        Wanted {
            file: "durable-writes.svg",
            title: "Durable writes",
            sentence: "Where a write is on the disk before its reply, midi's port answers {} times \
                       as many commands a second as stock Redis.",
            axis: "commands a second, half of them SETs",
            experiment: aof::NAME,
            role: "load",
            metric: Metric::Throughput,
            points: vec![
                (aof::point("everysec", 100, "1:1"), "a sync each second"),
                (aof::point("always", 100, "1:1"), "a sync before each reply"),
            ],
            series: &[aof::MIDI, aof::HOST_DOOR, aof::STOCK, "redis8", "valkey"],
            compared: [aof::MIDI, aof::STOCK],
        },
        Wanted {
            file: "light-beside-heavy.svg",
            title: "Short beside long",
            sentence: "Beside five clients that send KEYS to the same Redis, GETs through midi are \
                       answered {} times as often as those of stock Redis.",
            axis: "GETs a second",
            experiment: contention::NAME,
            role: "light",
            metric: Metric::Throughput,
            points: vec![(beside.alone, "alone"), (beside.together, "beside five KEYS")],
            series: &[contention::ADAPTIVE, contention::STOCK, "redis8", "valkey"],
            compared: [contention::ADAPTIVE, contention::STOCK],
        },
        Wanted {
            file: "noisy-neighbour.svg",
            title: "A noisy neighbour",
            sentence: "While another client repeats ZINTERSTORE on Redis's own port, midi's port \
                       answers {} times as many commands as stock Redis.",
            axis: "SETs and GETs a second",
            experiment: noisy_neighbour::NAME,
            role: "load",
            metric: Metric::Throughput,
            points: vec![
                (noisy_neighbour::ALONE.to_owned(), "alone"),
                (noisy_neighbour::beside(neighbour), "beside ZINTERSTORE"),
            ],
            series: &[noisy_neighbour::MIDI, "redis", "redis8", "valkey, io-threads 2"],
            compared: [noisy_neighbour::MIDI, "redis"],
        },
        Wanted {
            file: "memory.svg",
            title: "Memory",
            sentence: "A key with a value of 64 bytes takes {} times the memory that it takes in \
                       stock Redis.",
            axis: "bytes for each key: less is better",
            experiment: memory::NAME,
            role: "",
            metric: Metric::Figure(memory::FIGURE),
            points: vec![(memory::POINT.to_owned(), "")],
            series: &[memory::MIDI, "redis", "redis8", "valkey", "memcached"],
            compared: [memory::MIDI, "redis"],
        },
        Wanted {
            file: "restart.svg",
            title: "Restart",
            sentence: "With 10 M keys that compress well in the RDB file, a server with midi takes \
                       {} times as long as stock Redis until it serves them.",
            axis: "seconds until it serves: less is better",
            experiment: snapshots::NAME,
            role: "",
            metric: Metric::Figure(RESTART),
            points: vec![
                (snapshots::RANDOM.to_owned(), "random values"),
                (snapshots::ZEROS.to_owned(), "values that compress well"),
            ],
            series: &[snapshots::MIDI, snapshots::STOCK, "redis8", "valkey"],
            compared: [snapshots::MIDI, snapshots::STOCK],
        },
    ]
}

/// The plots that these results have figures for.
///
/// # Errors
/// Only if the library cannot draw.
pub fn plots(results: &Results) -> Result<Vec<Plot>> {
    let mut plots = Vec::new();
    for wanted in wanted() {
        let Some(outcome) = results.outcome(wanted.experiment) else { continue };
        let groups: Vec<Group> =
            wanted.points.iter().map(|point| Group::of(&wanted, outcome, point)).collect();
        let Some(ratio) = groups.last().and_then(Group::ratio) else { continue };
        let sentence = wanted.sentence.replace("{}", &factor(ratio));
        let svg = drawn(&groups, &wanted, &sentence)?;
        plots.push(Plot { file: wanted.file, title: wanted.title, sentence, svg });
    }
    Ok(plots)
}

/// The bars of a point.
struct Group {
    heading: &'static str,
    bars: Vec<Bar>,
    /// The medians of midi and of stock Redis.
    compared: [Option<f64>; 2],
}

struct Bar {
    label: String,
    middle: f64,
    least: f64,
    most: f64,
}

impl Group {
    fn of(wanted: &Wanted, outcome: &Outcome, (point, heading): &(String, &'static str)) -> Group {
        let values = |series: &str| outcome.values(series, point, wanted.role, wanted.metric);
        let bar = |series: &&str| {
            let (least, most) = extremes(&values(series));
            let label = label(outcome, series);
            Some(Bar { label, middle: median(&values(series))?, least, most })
        };
        Group {
            heading,
            bars: wanted.series.iter().filter_map(bar).collect(),
            compared: wanted.compared.map(|series| median(&values(series))),
        }
    }

    fn ratio(&self) -> Option<f64> {
        Some(self.compared[0]? / self.compared[1].filter(|&stock| stock > 0.0)?)
    }
}

/// A series' name for people who have not read the experiment: servers with their versions.
fn label(outcome: &Outcome, series: &str) -> String {
    if series == contention::ADAPTIVE {
        return "midi host door".into();
    }
    let name_end = series.find([',', ' ']).unwrap_or(series.len());
    let (name, rest) = series.split_at(name_end);
    let server = outcome.servers.iter().find(|server| server.name == series);
    match server.filter(|_| name != "midi") {
        Some(server) => format!("{}{rest}", server.version),
        None => series.to_owned(),
    }
}

/// One colour for each server, in all plots.
fn colour(label: &str) -> RGBColor {
    match label {
        midi if midi.starts_with("midi") => RGBColor(0x1f, 0x6f, 0xeb),
        redis_8 if redis_8.starts_with("redis 8") || redis_8.starts_with("redis8") => {
            RGBColor(0x5c, 0x66, 0x73)
        }
        valkey if valkey.starts_with("valkey") => RGBColor(0xb0, 0x89, 0x68),
        memcached if memcached.starts_with("memcached") => RGBColor(0x7a, 0x9a, 0x6a),
        _ => RGBColor(0xa3, 0xac, 0xb9),
    }
}

const WIDTH: u32 = 400;
/// The labels, to the left of the bars.
const LABELS: u32 = 158;
/// The axis below the bars.
const AXIS: u32 = 42;
/// The title and the sentence, in at most three lines of so many letters.
const HEAD: u32 = 84;
const LINE: usize = 58;
/// Of what is below them: most plots are as high as their neighbours on the page.
const LEAST_HEIGHT: u32 = 10 * ROW + AXIS + 10;
/// Of a bar or a heading, with the room around it.
const ROW: u32 = 22;
/// The width of a letter, as a part of that of all bars.
const LETTER: f64 = 6.5 / (WIDTH - LABELS) as f64;
const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const FAINT: RGBColor = RGBColor(0xe4, 0xe7, 0xeb);

fn drawn(groups: &[Group], wanted: &Wanted, sentence: &str) -> Result<String> {
    let headings = groups.iter().filter(|group| !group.heading.is_empty()).count();
    let rows = headings + groups.iter().map(|group| group.bars.len()).sum::<usize>();
    let height = ROW * rows as u32 + AXIS + 10;
    let most = groups.iter().flat_map(|group| &group.bars).map(|bar| bar.most).fold(0.0, f64::max);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, HEAD + height.max(LEAST_HEIGHT)))
            .into_drawing_area();
        area.fill(&WHITE)?;
        let (head, body) = area.split_vertically(HEAD);
        let (body, _) = body.split_vertically(height);
        let bold = ("sans-serif", 18).into_font().style(FontStyle::Bold).color(&INK);
        head.draw_text(wanted.title, &bold, (4, 4))?;
        for (number, line) in textwrap::wrap(sentence, LINE).iter().enumerate() {
            head.draw_text(line, &font(15, INK), (4, 24 + 18 * number as i32))?;
        }
        // Figures stand to the right of their bars.
        let widest = most * 1.7;
        let mut chart = ChartBuilder::on(&body)
            .margin_top(6)
            .margin_right(14)
            .set_label_area_size(LabelAreaPosition::Left, LABELS)
            .set_label_area_size(LabelAreaPosition::Bottom, AXIS)
            .build_cartesian_2d(0.0..widest, rows as f64..0.0)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .x_labels(4)
            .bold_line_style(FAINT)
            .light_line_style(TRANSPARENT)
            .axis_style(FAINT)
            .label_style(font(13, INK))
            .x_label_formatter(&|value| rounded(*value).replace(".00 ", " "))
            .x_desc(wanted.axis)
            .axis_desc_style(font(14, INK))
            .draw()?;
        let mut row = 0.0;
        for group in groups {
            if !group.heading.is_empty() {
                let place = font(14, INK).pos(Pos::new(HPos::Left, VPos::Center));
                chart.draw_series([Text::new(group.heading, (0.0, row + 0.5), place)])?;
                row += 1.0;
            }
            let first = row;
            for bar in &group.bars {
                let centre = row + 0.5;
                let ends = [(0.0, row + 0.15), (bar.middle, row + 0.85)];
                chart.draw_series([Rectangle::new(ends, colour(&bar.label).filled())])?;
                let reach = [(bar.least, centre), (bar.most, centre)];
                chart.draw_series([PathElement::new(reach, INK)])?;
                let left = font(14, INK).pos(Pos::new(HPos::Right, VPos::Center));
                chart
                    .draw_series([EmptyElement::at((0.0, centre))
                        + Text::new(bar.label.clone(), (-6, 0), left)])?;
                let right = font(14, INK).pos(Pos::new(HPos::Left, VPos::Center));
                let figure = figure(bar, group.compared[1]);
                let end = bar.most + widest * LETTER * figure.chars().count() as f64;
                // The line does not cross a figure.
                let place = match group.compared[1] {
                    Some(stock) if (bar.most..end).contains(&stock) => stock,
                    _ => bar.most,
                };
                chart.draw_series([
                    EmptyElement::at((place, centre)) + Text::new(figure, (6, 0), right)
                ])?;
                row += 1.0;
            }
            if let Some(stock) = group.compared[1] {
                let line = [(stock, first), (stock, row)];
                chart.draw_series(DashedLineSeries::new(line, 3, 3, INK.into()))?;
            }
        }
        area.present()?;
    }
    Ok(svg)
}

fn font(size: u32, colour: RGBColor) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&colour)
}

/// The figure beside a bar, and how many times stock's it is.
fn figure(bar: &Bar, stock: Option<f64>) -> String {
    match stock {
        Some(stock) if stock > 0.0 && stock != bar.middle => {
            format!("{} ({} ×)", rounded(bar.middle), factor(bar.middle / stock))
        }
        _ => rounded(bar.middle),
    }
}

/// How many times another figure one is.
fn factor(value: f64) -> String {
    let digits = if value >= 100.0 { 0 } else { 2 };
    format!("{value:.digits$}")
}

/// A figure in two or three digits.
fn rounded(value: f64) -> String {
    match value {
        large if large >= 999_500.0 => format!("{:.2} M", large / 1e6),
        middle if middle >= 9_950.0 => format!("{:.0} k", middle / 1e3),
        small if small >= 999.5 => format!("{:.1} k", small / 1e3),
        whole if whole >= 100.0 || whole.fract() == 0.0 => format!("{whole:.0}"),
        smallest => short(smallest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Summary;
    use crate::results::{Round, ServerInfo};

    fn outcome(rates: &[(&str, &str, f64)]) -> Outcome {
        let round = |&(series, point, ops_per_second): &(&str, &str, f64)| Round {
            series: series.into(),
            point: point.into(),
            loads: [("light".to_owned(), Summary { ops_per_second, ..Summary::default() })].into(),
            ..Round::default()
        };
        let stock = ServerInfo {
            name: contention::STOCK.into(),
            version: "redis <7>".into(),
            ..ServerInfo::default()
        };
        Outcome {
            name: contention::NAME.into(),
            servers: vec![stock],
            rounds: rates.iter().map(round).collect(),
            ..Outcome::default()
        }
    }

    #[test]
    fn a_plot_has_a_bar_for_each_figure() {
        let outcome = outcome(&[
            (contention::STOCK, "GET alone", 152_526.0),
            (contention::STOCK, "GET beside", 699.0),
            (contention::ADAPTIVE, "GET beside", 1_343_200.0),
        ]);
        let plots = plots(&Results { outcomes: vec![outcome], ..Results::default() });
        let plots = plots.expect("plots");
        let [plot] = &plots[..] else { panic!("one experiment, {} plots", plots.len()) };
        assert!(plot.sentence.contains("are answered 1922 times as often"), "{}", plot.sentence);
        assert_eq!(plot.svg.matches("fill=\"#A3ACB9\"").count(), 2, "{}", plot.svg);
        assert_eq!(plot.svg.matches("fill=\"#1F6FEB\"").count(), 1, "{}", plot.svg);
        for wanted in ["153 k", "699", "1.34 M (1922 ×)", "redis &lt;7&gt;", "beside five KEYS"] {
            assert!(plot.svg.contains(wanted), "{wanted}: {}", plot.svg);
        }
    }

    #[test]
    fn without_figures_there_is_no_plot() {
        assert!(plots(&Results::default()).expect("plots").is_empty());
        let outcome = outcome(&[(contention::STOCK, "GET beside", 699.0)]);
        let results = Results { outcomes: vec![outcome], ..Results::default() };
        assert!(plots(&results).expect("plots").is_empty());
    }

    #[test]
    fn each_server_has_a_colour_of_its_own() {
        let labels = ["midi port, 2 workers", "redis 7.0.15", "redis 8.6.3", "valkey 9.1.2"];
        let colours = labels.map(|label| colour(label).rgb());
        for (number, colour) in colours.iter().enumerate() {
            assert!(!colours[..number].contains(colour), "{}", labels[number]);
        }
        assert_eq!(colour("midi").rgb(), colours[0]);
    }

    #[test]
    fn figures_have_few_digits() {
        let texts = [1_614_600.0, 542_522.0, 1545.0, 297.0, 91.75, 3.0, 2.98].map(rounded);
        assert_eq!([0.5749, 3.4, 540.2].map(factor), ["0.57", "3.40", "540"]);
        assert_eq!(texts, ["1.61 M", "543 k", "1.5 k", "297", "91.8", "3", "2.98"]);
    }
}
