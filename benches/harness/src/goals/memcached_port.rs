//! The goals of the memcached port.

use super::{Bound, Goal, over_the_best, over_the_least};
use crate::experiments::Mix;
use crate::experiments::memcached_port::{ALL_CORES, DEPTHS, MANY, MIDI, MIDI_ALL, NAME};
use crate::results::{Metric, Results};

/// Every goal, with its verdict from these results.
pub fn memcached_port_goals(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    for (depth, most) in DEPTHS.into_iter().zip([0.9, 0.25]) {
        for mix in Mix::ALL {
            let point = mix.point(depth);
            goals.push(Goal::measured(
                1,
                format!("memcached port: CPU over memcached -t 1, {point}"),
                Bound::AtMost(most),
                over_the_least(results, NAME, MIDI, &point, Metric::ServerCpu),
            ));
        }
    }
    let points = Mix::ALL.into_iter().flat_map(|mix| DEPTHS.map(|depth| mix.point(depth)));
    for point in points.chain([MANY.to_owned()]) {
        goals.push(Goal::measured(
            1,
            format!("memcached port: ops/s over memcached -t 2, {point}"),
            Bound::AtLeast(1.0),
            over_the_best(results, ALL_CORES, MIDI_ALL, &point),
        ));
    }
    goals
}
