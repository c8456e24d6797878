//! Plots of an outcome.

use plotly::common::{ErrorData, ErrorType, Line, Marker, Mode, Title};
use plotly::layout::{Axis, AxisType, BarMode};
use plotly::{Bar, Configuration, Layout, Plot, Scatter};

use crate::results::{Metric, Outcome, extremes, median};

/// A plot and its place in the page.
pub struct Named {
    /// The id of its place.
    pub id: String,
    /// The plot.
    pub plot: Plot,
}

/// Metrics that are shown as bars.
const BARS: [(&str, Metric, &str); 3] = [
    ("throughput", Metric::Throughput, "commands a second"),
    ("cpu", Metric::ServerCpu, "server's CPU per command, µs"),
    ("p99", Metric::P99, "p99 latency, µs"),
];

/// With more series than this, each point has a plot of its own.
const MOST_COLOURS: usize = 8;

/// Colours of midi's series, which stand out, and of the others.
const MIDI: [&str; 4] = ["#c2185b", "#e8590c", "#d6336c", "#f08c00"];
const PEERS: [&str; 8] =
    ["#3b5b8c", "#5c7cfa", "#2f9e8f", "#868e96", "#74a9cf", "#495057", "#7fb77e", "#adb5bd"];

fn is_midi(series: &str) -> bool {
    series.to_lowercase().contains("midi")
}

/// Each series's colour, and its name in the legend: midi's are bold.
fn looks(outcome: &Outcome) -> Vec<(&'static str, String)> {
    let (mut midis, mut peers) = (MIDI.iter().cycle(), PEERS.iter().cycle());
    let look = |name: &str| {
        let colour = if is_midi(name) { midis.next() } else { peers.next() };
        let shown = if is_midi(name) { format!("<b>{name}</b>") } else { name.to_owned() };
        (*colour.unwrap_or(&PEERS[0]), shown)
    };
    outcome.series.iter().map(|series| series.name.as_str()).map(look).collect()
}

/// The part before the first comma of all points, such as GET and SET: each has its own plot.
/// One empty word if the points do not have that form.
fn families(points: &[&str]) -> Vec<String> {
    let mut families: Vec<String> = Vec::new();
    for point in points {
        let Some((family, _)) = point.split_once(", ") else { return vec![String::new()] };
        if !families.iter().any(|known| known == family) {
            families.push(family.to_owned());
        }
    }
    // Many families of one or two points each are names, not kinds.
    if families.len() * 2 > points.len() { vec![String::new()] } else { families }
}

/// All plots of an outcome.
pub fn plots(outcome: &Outcome) -> Vec<Named> {
    let mut plots = Vec::new();
    let points = outcome.all_points();
    for role in outcome.roles() {
        for (name, metric, title) in BARS {
            let values = |series: &str, point: &str| outcome.values(series, point, role, metric);
            let title = format!("{role}: {title}");
            if outcome.series.len() <= MOST_COLOURS {
                for (number, family) in families(&points).iter().enumerate() {
                    let title = if family.is_empty() {
                        title.clone()
                    } else {
                        format!("{title}; {family}")
                    };
                    let plot = grouped(outcome, &title, family, values);
                    let id = format!("{role}-{name}-{number}");
                    plots.extend(plot.map(|plot| named(outcome, &id, plot)));
                }
                continue;
            }
            for (number, point) in points.iter().enumerate() {
                let title = format!("{title}; {} {point}", outcome.points);
                let plot = side_by_side(outcome, &title, |series| values(series, point));
                plots.extend(
                    plot.map(|plot| named(outcome, &format!("{role}-{name}-{number}"), plot)),
                );
            }
        }
        for (number, point) in points.iter().enumerate() {
            let plot = percentiles(outcome, role, point);
            plots
                .extend(plot.map(|plot| named(outcome, &format!("{role}-latency-{number}"), plot)));
        }
    }
    for name in figure_names(outcome) {
        let id = name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
        let figures = |series: &str, point: &str| -> Vec<f64> {
            let rounds = outcome.rounds_of(series, point);
            rounds.filter_map(|round| round.figures.get(&name).copied()).collect()
        };
        plots.extend(grouped(outcome, &name, "", figures).map(|plot| named(outcome, &id, plot)));
    }
    plots
}

fn named(outcome: &Outcome, id: &str, plot: Plot) -> Named {
    Named { id: format!("{}-{id}", outcome.name), plot }
}

/// One bar per series and point of a family, coloured by series: the median, with the extremes as
/// whiskers.
fn grouped(
    outcome: &Outcome,
    title: &str,
    family: &str,
    values: impl Fn(&str, &str) -> Vec<f64>,
) -> Option<Plot> {
    let mut plot = Plot::new();
    for (series, (colour, shown)) in outcome.series.iter().zip(looks(outcome)) {
        let mut bars = Bars::default();
        for point in series.points.iter().filter(|point| point.starts_with(family)) {
            bars.push(point, &values(&series.name, point), colour);
        }
        bars.add_to(&mut plot, &shown);
    }
    laid_out(plot, title, &outcome.points)
}

/// One bar per series.
fn side_by_side(outcome: &Outcome, title: &str, values: impl Fn(&str) -> Vec<f64>) -> Option<Plot> {
    let mut plot = Plot::new();
    let mut bars = Bars::default();
    for (series, (colour, shown)) in outcome.series.iter().zip(looks(outcome)) {
        bars.push(&shown, &values(&series.name), colour);
    }
    bars.add_to(&mut plot, title);
    laid_out(plot, title, "")
}

#[derive(Default)]
struct Bars {
    places: Vec<String>,
    colours: Vec<&'static str>,
    medians: Vec<f64>,
    above: Vec<f64>,
    below: Vec<f64>,
}

impl Bars {
    fn push(&mut self, place: &str, values: &[f64], colour: &'static str) {
        let Some(middle) = median(values).filter(|&middle| middle > 0.0) else { return };
        let (least, most) = extremes(values);
        self.places.push(place.into());
        self.colours.push(colour);
        self.medians.push(middle);
        self.above.push(most - middle);
        self.below.push(middle - least);
    }

    fn add_to(self, plot: &mut Plot, name: &str) {
        if !self.places.is_empty() {
            let whiskers =
                ErrorData::new(ErrorType::Data).array(self.above).array_minus(self.below);
            let marker = Marker::new().color_array(self.colours);
            let bar = Bar::new(self.places, self.medians).name(name).marker(marker);
            plot.add_trace(bar.error_y(whiskers));
        }
    }
}

fn laid_out(mut plot: Plot, title: &str, below: &str) -> Option<Plot> {
    if plot.data().is_empty() {
        return None;
    }
    // Points are names, even if they look like numbers.
    let x = Axis::new().title(Title::with_text(below)).type_(AxisType::Category).auto_margin(true);
    let layout =
        Layout::new().title(Title::with_text(title)).bar_mode(BarMode::Group).x_axis(x).height(480);
    plot.set_layout(layout);
    plot.set_configuration(Configuration::new().responsive(true));
    Some(plot)
}

/// The distribution of latencies: the middle round of each series.
fn percentiles(outcome: &Outcome, role: &str, point: &str) -> Option<Plot> {
    let mut plot = Plot::new();
    for (series, (colour, shown)) in outcome.series.iter().zip(looks(outcome)) {
        let mut loads: Vec<_> = outcome
            .rounds_of(&series.name, point)
            .filter_map(|round| round.loads.get(role))
            .collect();
        loads.sort_by(|a, b| a.latency.p99.total_cmp(&b.latency.p99));
        let Some(middle) = loads.get(loads.len() / 2).filter(|load| load.latency.count > 0) else {
            continue;
        };
        let (parts, latencies): (Vec<String>, Vec<f64>) =
            middle.latency.curve.iter().map(|&(percent, us)| (format!("{percent}"), us)).unzip();
        let width = if is_midi(&series.name) { 3.0 } else { 1.5 };
        let curve = Scatter::new(parts, latencies).mode(Mode::LinesMarkers).name(&shown);
        plot.add_trace(curve.line(Line::new().color(colour).width(width)));
    }
    if plot.data().is_empty() {
        return None;
    }
    let x = Axis::new().title(Title::with_text("percentile")).type_(AxisType::Category);
    let y = Axis::new().title(Title::with_text("µs")).type_(AxisType::Log);
    let title = Title::with_text(format!("{role}: latency, {} {point}", outcome.points));
    plot.set_layout(Layout::new().title(title).x_axis(x).y_axis(y).height(480));
    plot.set_configuration(Configuration::new().responsive(true));
    Some(plot)
}

/// Only if there are few names: a part with dozens of figures is read as a table.
fn figure_names(outcome: &Outcome) -> Vec<String> {
    const MOST: usize = 4;
    let mut names: Vec<String> =
        outcome.rounds.iter().flat_map(|round| round.figures.keys().cloned()).collect();
    names.sort();
    names.dedup();
    if names.len() > MOST { Vec::new() } else { names }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_load_have_plots_of_their_own() {
        let points = ["GET, pipeline 1", "GET, pipeline 10", "SET, pipeline 1", "SET, pipeline 10"];
        assert_eq!(families(&points), ["GET", "SET"]);
        assert_eq!(families(&["1", "10"]), [""]);
        assert_eq!(families(&["GET, 2 connections", "SET, 2 connections"]), [""]);
    }
}
