//! The goals of TLS.

use super::{Bound, Goal, over_the_best, over_the_least, ratios};
use crate::experiments::tls::{
    CONNECTIONS, DEPTHS, HANDSHAKES, MIDI, MIXES, NAME, PING, STOCK, STORM,
};
use crate::results::{Metric, Results};

/// Every goal, with its verdict from these results.
pub fn tls_goals(results: &Results) -> Vec<Goal> {
    let goal = |text: String, bound, values| Goal::measured(8, text, bound, values);
    let mut goals = Vec::new();
    for (depth, most) in DEPTHS.into_iter().zip([1.0, 0.8]) {
        for mix in MIXES {
            let point = mix.point(depth);
            goals.push(goal(
                format!("TLS port: CPU over the best host's own TLS port, {point}"),
                Bound::AtMost(most),
                over_the_least(results, NAME, MIDI, &point, Metric::ServerCpu),
            ));
        }
    }
    for (point, _) in CONNECTIONS {
        goals.push(goal(
            format!("TLS port: {point} a second over the best host's own TLS port"),
            Bound::AtLeast(1.0),
            over_the_best(results, NAME, MIDI, point),
        ));
    }
    let ping = |series| (series, STORM, PING, Metric::P99);
    goals.push(goal(
        format!("TLS port: the host's PING beside {STORM}, p99 over that beside the host's own"),
        Bound::AtMost(0.2),
        ratios(results, HANDSHAKES, ping(MIDI), ping(STOCK)),
    ));
    goals
}
