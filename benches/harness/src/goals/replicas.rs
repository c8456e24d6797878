//! The goals of replicas.

use super::{Bound, Goal, ratios};
use crate::bench::replica::{ATTACHED, LAG, PING_ALONE, PING_ATTACHED, SYNC};
use crate::experiments::replicas::{FULL, HOST_DOOR, MIDI, NAME, OFFERED, STOCK};
use crate::results::{Metric, Results};

/// Every goal, with its verdict from these results.
pub fn replica_goals(results: &Results) -> Vec<Goal> {
    let goal = |text: String, bound, values| Goal::measured(6, text, bound, values);
    let over_stock = |series, point, role, metric| {
        ratios(results, NAME, (series, point, role, metric), (STOCK, point, role, metric))
    };
    let mut goals = Vec::new();
    for (door, series) in [("RESP port", MIDI), ("host door", HOST_DOOR)] {
        goals.push(goal(
            format!("{door}, 50,000 SETs/s: p99 of the replica's lag over stock's"),
            Bound::AtMost(1.0),
            over_stock(series, OFFERED, LAG, Metric::P99),
        ));
        goals.push(goal(
            format!("{door}, 50,000 SETs/s with a replica: p99 of the host's PING over stock's"),
            Bound::AtMost(1.0),
            over_stock(series, OFFERED, PING_ATTACHED, Metric::P99),
        ));
        goals.push(goal(
            format!("{door}, 50,000 SETs/s: seconds of a full sync over stock's"),
            Bound::AtMost(1.0),
            over_stock(series, OFFERED, "", Metric::Figure(SYNC)),
        ));
        goals.push(goal(
            format!("{door}, full load with a replica: SETs/s over stock's"),
            Bound::AtLeast(1.0),
            over_stock(series, FULL, ATTACHED, Metric::Throughput),
        ));
    }
    goals.push(goal(
        "RESP port, full load: p99 of the host's PING with a replica over that without".into(),
        Bound::AtMost(2.0),
        ratios(
            results,
            NAME,
            (MIDI, FULL, PING_ATTACHED, Metric::P99),
            (MIDI, FULL, PING_ALONE, Metric::P99),
        ),
    ));
    goals
}
