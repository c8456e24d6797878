//! Plots of an outcome.

use plotly::common::{ErrorData, ErrorType, Line, Marker, Mode, Title};
use plotly::layout::{Axis, AxisType, BarMode};
use plotly::{Bar, Configuration, Layout, Plot, Scatter};

use super::pictures::{OWN_COLOUR, is_own, shown};
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
const OWN: [&str; 4] = [OWN_COLOUR, "#0b3d91", "#58a6ff", "#00a3c4"];
const PEERS: [&str; 8] =
    ["#868e96", "#b08968", "#495057", "#d4a373", "#adb5bd", "#7f5539", "#6b705c", "#a5a58d"];

/// Each series's colour, and its name in the legend: midi's are bold.
fn looks(outcome: &Outcome) -> Vec<(&'static str, String)> {
    let (mut own, mut peers) = (OWN.iter().cycle(), PEERS.iter().cycle());
    let look = |name: &str| {
        let (colour, shown) = if is_own(name) {
            (own.next(), format!("<b>{}</b>", shown(name)))
        } else {
            (peers.next(), shown(name).to_owned())
        };
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

/// The outcome's series for GET and for SET, each with the command's name, if it is in the name of
/// every series. Else the whole outcome, and no name.
fn by_command(outcome: &Outcome) -> Vec<(&'static str, Outcome)> {
    let of = |command: &'static str| {
        let mut part = outcome.clone();
        part.series.retain(|series| series.name.contains(command));
        (command, part)
    };
    let parts = ["GET", "SET"].map(of);
    let is_whole =
        parts.iter().map(|(_, part)| part.series.len()).sum::<usize>() == outcome.series.len();
    if is_whole && parts.iter().all(|(_, part)| !part.series.is_empty()) {
        parts.into()
    } else {
        vec![("", outcome.clone())]
    }
}

/// All plots of an outcome.
pub fn plots(outcome: &Outcome) -> Vec<Named> {
    let parts = by_command(outcome);
    parts.iter().flat_map(|(command, part)| plots_of(part, command)).collect()
}

/// The plots of an outcome, or of its part for one command.
fn plots_of(outcome: &Outcome, command: &str) -> Vec<Named> {
    let mut plots = Vec::new();
    let points = outcome.all_points();
    let suffix = if command.is_empty() { String::new() } else { format!(", {command}") };
    let named = |id: &str, plot| Named { id: format!("{}-{id}{command}", outcome.name), plot };
    for role in outcome.roles() {
        for (name, metric, title) in BARS {
            let values = |series: &str, point: &str| outcome.values(series, point, role, metric);
            let title = format!("{role}: {title}{suffix}");
            if outcome.series.len() <= MOST_COLOURS {
                for (number, family) in families(&points).iter().enumerate() {
                    let title = if family.is_empty() {
                        title.clone()
                    } else {
                        format!("{title}; {family}")
                    };
                    let plot = grouped(outcome, &title, family, values);
                    let id = format!("{role}-{name}-{number}");
                    plots.extend(plot.map(|plot| named(&id, plot)));
                }
                continue;
            }
            for (number, point) in points.iter().enumerate() {
                let title = format!("{title}; {} {point}", outcome.points);
                let plot = side_by_side(outcome, &title, |series| values(series, point));
                plots.extend(plot.map(|plot| named(&format!("{role}-{name}-{number}"), plot)));
            }
        }
        for (number, point) in points.iter().enumerate() {
            let plot = percentiles(outcome, role, point, &suffix);
            plots.extend(plot.map(|plot| named(&format!("{role}-latency-{number}"), plot)));
        }
    }
    for name in figure_names(outcome) {
        let id = name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
        let figures = |series: &str, point: &str| -> Vec<f64> {
            let rounds = outcome.rounds_of(series, point);
            rounds.filter_map(|round| round.figures.get(&name).copied()).collect()
        };
        plots.extend(grouped(outcome, &name, "", figures).map(|plot| named(&id, plot)));
    }
    plots
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
fn percentiles(outcome: &Outcome, role: &str, point: &str, suffix: &str) -> Option<Plot> {
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
        let width = if is_own(&series.name) { 3.0 } else { 1.5 };
        let curve = Scatter::new(parts, latencies).mode(Mode::LinesMarkers).name(&shown);
        plot.add_trace(curve.line(Line::new().color(colour).width(width)));
    }
    if plot.data().is_empty() {
        return None;
    }
    let x = Axis::new().title(Title::with_text("percentile")).type_(AxisType::Category);
    let y = Axis::new().title(Title::with_text("µs")).type_(AxisType::Log);
    let title = Title::with_text(format!("{role}: latency{suffix}, {} {point}", outcome.points));
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
    use crate::experiments::contention;
    use crate::results::Series;

    #[test]
    fn get_and_set_are_apart() {
        let outcome = |names: &[&str]| Outcome {
            series: names
                .iter()
                .map(|name| Series { name: (*name).into(), points: Vec::new() })
                .collect(),
            ..Outcome::default()
        };
        let parts = |names: &[&str]| -> Vec<(&str, usize)> {
            let parts = by_command(&outcome(names));
            parts.iter().map(|(command, part)| (*command, part.series.len())).collect()
        };
        let both = ["native GET", "MIDI.GET pool", "native SET", "MIDI.SET pool"];
        assert_eq!(parts(&both), [("GET", 2), ("SET", 2)]);
        assert_eq!(parts(&["native GET"]), [("", 1)]);
        assert_eq!(parts(&["midi", "redis"]), [("", 2)]);
    }

    #[test]
    fn midi_stands_out_in_every_experiment() {
        let own = ["midi port, 2 workers", "MIDI.GET pool", contention::ADAPTIVE, contention::POOL];
        assert!(own.into_iter().all(is_own));
        let others = ["redis", "native GET, io-threads 2", contention::STOCK, "dragonfly"];
        assert!(!others.into_iter().any(is_own));
    }

    #[test]
    fn kinds_of_load_have_plots_of_their_own() {
        let points = ["GET, pipeline 1", "GET, pipeline 10", "SET, pipeline 1", "SET, pipeline 10"];
        assert_eq!(families(&points), ["GET", "SET"]);
        assert_eq!(families(&["1", "10"]), [""]);
        assert_eq!(families(&["GET, 2 connections", "SET, 2 connections"]), [""]);
    }
}
