//! The plots of docs/benchmarks.md: files that any page can show. Those of index.html need a
//! script.

use std::fmt::Write;

use super::html::escaped;
use crate::bench::snapshot::RESTART;
use crate::experiments::{Mix, PIPELINES, contention, noisy_neighbour, port_all_cores, snapshots};
use crate::goals::short;
use crate::results::{Metric, Outcome, Results, extremes, median};

/// A plot and its file.
pub struct Picture {
    /// The file's name.
    pub file: &'static str,
    /// The figures that it shows.
    pub title: &'static str,
    /// Its content, an SVG.
    pub svg: String,
}

/// The figures of a picture: a panel for each point.
struct Wanted {
    file: &'static str,
    title: &'static str,
    experiment: &'static str,
    role: &'static str,
    metric: Metric,
    points: Vec<String>,
    /// Whether bars of different panels can be compared.
    one_scale: bool,
}

/// The pictures that these results have figures for.
pub fn pictures(results: &Results) -> Vec<Picture> {
    wanted()
        .iter()
        .filter_map(|wanted| {
            let svg = drawn(wanted, results.outcome(wanted.experiment)?)?;
            Some(Picture { file: wanted.file, title: wanted.title, svg })
        })
        .collect()
}

fn wanted() -> [Wanted; 4] {
    let beside = contention::points(contention::LIGHT[0].0);
    let neighbours = noisy_neighbour::NEIGHBOURS.map(noisy_neighbour::beside);
    [
        Wanted {
            file: "throughput.svg",
            title: "Throughput: GETs a second on all cores; each panel has a scale of its own",
            experiment: port_all_cores::NAME,
            role: "load",
            metric: Metric::Throughput,
            points: PIPELINES.map(|pipeline| Mix::Get.point(pipeline)).into(),
            one_scale: false,
        },
        Wanted {
            file: "light-beside-heavy.svg",
            title: "Light beside heavy: GETs a second, alone and beside five KEYS",
            experiment: contention::NAME,
            role: "light",
            metric: Metric::Throughput,
            points: vec![beside.alone, beside.together],
            one_scale: true,
        },
        Wanted {
            file: "noisy-neighbour.svg",
            title: "Noisy neighbour: SETs and GETs a second, alone and beside another client's \
                    loop",
            experiment: noisy_neighbour::NAME,
            role: "load",
            metric: Metric::Throughput,
            points: [noisy_neighbour::ALONE.to_owned()].into_iter().chain(neighbours).collect(),
            one_scale: true,
        },
        Wanted {
            file: "restart.svg",
            title: "Restart: seconds from the start of the program until it serves its RDB file",
            experiment: snapshots::NAME,
            role: "",
            metric: Metric::Figure(RESTART),
            points: vec![snapshots::RANDOM.into(), snapshots::ZEROS.into()],
            one_scale: true,
        },
    ]
}

/// The labels to the left of the panels.
const NAMES_WIDTH: f64 = 190.0;
const PANELS_WIDTH: f64 = 710.0;
/// The part of a panel for its longest bar; the rest is for the figure after it.
const BARS_PART: f64 = 0.7;
const HEAD: f64 = 64.0;
const ROW: f64 = 26.0;
const BAR: f64 = 16.0;
pub(super) const OWN_COLOUR: &str = "#1f6feb";
const PEER_COLOUR: &str = "#a3acb9";

fn drawn(wanted: &Wanted, outcome: &Outcome) -> Option<String> {
    let values =
        |series: &str, point: &str| outcome.values(series, point, wanted.role, wanted.metric);
    let has_any =
        |series: &str| wanted.points.iter().any(|point| !values(series, point).is_empty());
    let rows: Vec<&str> = outcome
        .series
        .iter()
        .map(|series| series.name.as_str())
        .filter(|name| has_any(name))
        .collect();
    let most_of =
        |point: &str| rows.iter().map(|row| extremes(&values(row, point)).1).fold(0.0, f64::max);
    let most_of_all = wanted.points.iter().map(|point| most_of(point)).fold(0.0, f64::max);
    if most_of_all <= 0.0 {
        return None;
    }
    let (width, height) = (NAMES_WIDTH + PANELS_WIDTH, HEAD + ROW * rows.len() as f64 + 12.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\" fill=\"#222\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    text(&mut svg, 12.0, 24.0, " font-size=\"15\" font-weight=\"600\"", wanted.title);
    for (number, row) in rows.iter().enumerate() {
        let end = format!(
            " text-anchor=\"end\"{}",
            if is_own(row) { " font-weight=\"600\"" } else { "" }
        );
        text(&mut svg, NAMES_WIDTH - 10.0, row_at(number) + 13.0, &end, shown(row));
    }
    let panel_width = PANELS_WIDTH / wanted.points.len() as f64;
    for (panel, point) in wanted.points.iter().enumerate() {
        let left = NAMES_WIDTH + panel_width * panel as f64;
        text(&mut svg, left, 50.0, " fill=\"#555\"", point);
        let most = if wanted.one_scale { most_of_all } else { most_of(point) };
        for (number, row) in rows.iter().enumerate() {
            let scale = panel_width * BARS_PART / most.max(f64::MIN_POSITIVE);
            let figure = if wanted.metric == Metric::Throughput { rounded } else { short };
            let found = values(row, point);
            bar(&mut svg, left, row_at(number), scale, (row, figure), &found);
        }
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

fn row_at(number: usize) -> f64 {
    HEAD + ROW * number as f64
}

/// The median as a bar, the slowest and fastest round as a line across its end, and the figure,
/// written so.
fn bar(
    svg: &mut String,
    left: f64,
    top: f64,
    scale: f64,
    (row, figure): (&str, fn(f64) -> String),
    values: &[f64],
) {
    let Some(middle) = median(values) else { return };
    let (least, most) = extremes(values);
    let colour = if is_own(row) { OWN_COLOUR } else { PEER_COLOUR };
    let at = |value: f64| left + value * scale;
    let (length, centre) = ((middle * scale).max(1.0), top + BAR / 2.0);
    let _ = writeln!(
        svg,
        "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{length:.1}\" height=\"{BAR}\" \
         fill=\"{colour}\"/>\n\
         <path d=\"M{:.1} {centre:.1}H{:.1}\" stroke=\"#222\"/>",
        at(least),
        at(most)
    );
    text(svg, at(most) + 6.0, top + 13.0, "", &figure(middle));
}

fn text(svg: &mut String, x: f64, y: f64, attributes: &str, content: &str) {
    let _ =
        writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\"{attributes}>{}</text>", escaped(content));
}

/// A series' name for people who have not read the experiment.
pub(super) fn shown(series: &str) -> &str {
    match series {
        contention::STOCK => "redis",
        contention::ADAPTIVE => "midi, adaptive",
        contention::POOL => "midi, pool",
        contention::SAFEMODE => "midi, SAFEMODE",
        other => other,
    }
}

/// Whether a series is midi's.
pub(super) fn is_own(series: &str) -> bool {
    shown(series).to_ascii_lowercase().starts_with("midi")
}

/// Commands a second in two or three digits.
fn rounded(value: f64) -> String {
    match value {
        large if large >= 999_500.0 => format!("{:.2} M", large / 1e6),
        middle if middle >= 9_950.0 => format!("{:.0} k", middle / 1e3),
        small if small >= 999.5 => format!("{:.1} k", small / 1e3),
        smallest => format!("{smallest:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Summary;
    use crate::results::{Round, Series};

    #[test]
    fn a_picture_has_a_bar_for_each_figure() {
        let round = |series: &str, point: &str, ops_per_second| Round {
            series: series.into(),
            point: point.into(),
            loads: [("light".to_owned(), Summary { ops_per_second, ..Summary::default() })].into(),
            ..Round::default()
        };
        let series =
            [contention::STOCK, "a<b"].map(|name| Series { name: name.into(), points: Vec::new() });
        let outcome = Outcome {
            name: contention::NAME.into(),
            series: series.into(),
            rounds: vec![
                round(contention::STOCK, "GET alone", 152_526.0),
                round(contention::STOCK, "GET beside", 699.0),
                round("a<b", "GET alone", 1_343_200.0),
            ],
            ..Outcome::default()
        };
        let pictures = pictures(&Results { outcomes: vec![outcome], ..Results::default() });
        let [picture] = &pictures[..] else {
            panic!("one experiment, {} pictures", pictures.len())
        };
        assert_eq!(picture.svg.matches("fill=\"#a3acb9\"").count(), 3);
        for wanted in [">153 k<", ">699<", ">1.34 M<", ">redis<", ">a&lt;b<", "</svg>"] {
            assert!(picture.svg.contains(wanted), "{wanted}: {}", picture.svg);
        }
    }

    #[test]
    fn no_results_no_pictures() {
        assert!(pictures(&Results::default()).is_empty());
    }
}
