//! The goals, one by one.

use super::aof::aof_goals;
use super::cache::cache_goals;
use super::memcached_port::memcached_port_goals;
use super::replicas::replica_goals;
use super::tls::tls_goals;
use super::types::type_goals;
use super::{Bound, Goal, Place, over_the_best, over_the_least, ratios, rounds, values};
use crate::bench::{GROWTH, snapshot};
use crate::experiments::hostile::Attack;
use crate::experiments::{
    ECHO, Mix, PIPELINES, contention, engine, global_lock, host_door, hostile, large_values,
    memory, noisy_neighbour, populate, port, port_all_cores, port_large, snapshots,
};
use crate::results::{Metric, Results};
use crate::server::Door;

/// Every goal, with its verdict from these results.
pub fn judged(results: &Results) -> Vec<Goal> {
    let mut goals = host_door_goals(results);
    goals.extend(engine_goals(results));
    goals.extend(populate_goals(results));
    goals.extend(generator_goals(results));
    goals.extend(port_goals(results));
    goals.extend(port_all_cores_goals(results));
    goals.extend(memcached_port_goals(results));
    goals.extend(contention_goals(results));
    goals.extend(global_lock_goals(results));
    goals.extend(noisy_neighbour_goals(results));
    goals.extend(aof_goals(results));
    goals.extend(hostile_goals(results));
    goals.extend(snapshot_goals(results));
    goals.extend(replica_goals(results));
    goals.extend(large_value_goals(results));
    goals.extend(tls_goals(results));
    goals.extend(cache_goals(results));
    goals.extend(type_goals(results));
    goals.extend(later_goals());
    goals
}

fn host_door_goals(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    for command in ["GET", "SET"] {
        for pipeline in PIPELINES.map(|depth| depth.to_string()) {
            let (own, native) = (format!("MIDI.{command} adaptive"), format!("native {command}"));
            let depth = pipeline.as_str();
            goals.push(Goal::measured(
                1,
                format!(
                    "host door: CPU of MIDI.{command} adaptive over native {command}, pipeline \
                     {pipeline}"
                ),
                Bound::AtMost(1.0),
                ratios(
                    results,
                    host_door::NAME,
                    (&own, depth, "load", Metric::ServerCpu),
                    (&native, depth, "load", Metric::ServerCpu),
                ),
            ));
        }
    }
    let figure = Metric::Figure(memory::FIGURE);
    goals.push(Goal::measured(
        1,
        "resident bytes per key of 1 M keys with 64-byte values",
        Bound::AtMost(96.0),
        values(results, memory::NAME, (memory::MIDI, memory::POINT, "", figure)),
    ));
    goals
}

fn engine_goals(results: &Results) -> Vec<Goal> {
    let value = |point, name| {
        values(results, engine::NAME, (engine::SERIES, point, "", Metric::Figure(name)))
    };
    let scaling = [
        ("uniform keys, GET", "of 2: 1024 shards, uniform, 100% GET"),
        ("uniform keys, 95/5", "of 2: 1024 shards, uniform, 95% GET"),
        ("uniform keys, 50/50", "of 2: 1024 shards, uniform, 50% GET"),
        ("Zipf 0.99, GET", "of 2: 1024 shards, zipf, 100% GET"),
        ("Zipf 0.99, 95/5", "of 2: 1024 shards, zipf, 95% GET"),
        ("Zipf 0.99, 50/50", "of 2: 1024 shards, zipf, 50% GET"),
    ];
    let mut goals: Vec<Goal> = scaling
        .map(|(what, name)| {
            let text = format!("engine alone, two threads over one, {what}");
            Goal::measured(1, text, Bound::AtLeast(1.9), value("threads", name))
        })
        .into();
    let bytes = [
        ("8", "overhead: 1000000 keys, 8-byte values"),
        ("64", "overhead: 1000000 keys, 64-byte values"),
        ("200", "overhead: 1000000 keys, 200-byte values"),
    ];
    goals.extend(bytes.map(|(size, name)| {
        let text = format!("bytes above key and value, values of {size} bytes");
        Goal::measured(1, text, Bound::AtMost(22.0), value("bytes", name))
    }));
    goals
}

fn populate_goals(results: &Results) -> Vec<Goal> {
    let point = results
        .outcome(populate::NAME)
        .map(|outcome| outcome.all_points().concat())
        .unwrap_or_default();
    let seconds = Metric::Figure("seconds");
    let (own, stock) = (populate::MIDI, populate::STOCK);
    vec![
        Goal::measured(
            1,
            "MIDI.POPULATE: times faster than DEBUG POPULATE",
            Bound::AtLeast(2.0),
            ratios(
                results,
                populate::NAME,
                (stock, &point, "", seconds),
                (own, &point, "", seconds),
            ),
        ),
        Goal::measured(
            1,
            "the host's PING beside MIDI.POPULATE: p99 in µs, open loop",
            Bound::AtMost(1000.0),
            values(results, populate::NAME, (own, &point, "probe", Metric::P99)),
        ),
    ]
}

/// The load generator itself must not be the limit.
fn generator_goals(results: &Results) -> Vec<Goal> {
    let point = Mix::Get.point(1);
    let echo = |metric| (ECHO, point.as_str(), "load", metric);
    let mut goals = vec![Goal::measured(
        1,
        "load generator: its CPU over the echo server's, pipeline 1",
        Bound::AtMost(1.1),
        ratios(results, port::NAME, echo(Metric::LoadCpu), echo(Metric::ServerCpu)),
    )];
    for pipeline in ["10", "50"] {
        let series = "MIDI.GET adaptive";
        goals.push(Goal::measured(
            1,
            format!("load generator: its CPU over midi's own, pipeline {pipeline}"),
            Bound::AtMost(1.0),
            ratios(
                results,
                host_door::NAME,
                (series, pipeline, "load", Metric::LoadCpu),
                (series, pipeline, "load", Metric::ServerCpu),
            ),
        ));
    }
    // The two must agree about the server.
    goals.push(Goal::measured(
        1,
        "load generator against redis-benchmark: the server's CPU per GET, pipeline 10, ours over \
         theirs",
        Bound::AtMost(1.1),
        ratios(
            results,
            port::NAME,
            (port::OURS, port::CHECKED, "load", Metric::ServerCpu),
            (port::THEIRS, port::CHECKED, "load", Metric::ServerCpu),
        ),
    ));
    goals
}

/// A GET's CPU time, as a multiple of the echo server's, at each depth of the pipeline.
const GET_OVER_ECHO: [f64; 3] = [1.0, 1.2, 2.0];

fn port_goals(results: &Results) -> Vec<Goal> {
    let cpu = Metric::ServerCpu;
    let mut goals = Vec::new();
    for (experiment, what) in [(port::NAME, ""), (port_large::NAME, ", 10 M keys")] {
        let mut goal = |text: String, bound, above: Place<'_>, below: Place<'_>| {
            let values = ratios(results, experiment, above, below);
            goals.push(Goal::measured(1, text, Bound::AtMost(bound), values));
        };
        for (pipeline, bound) in PIPELINES.into_iter().zip(GET_OVER_ECHO) {
            let (get, set) = (Mix::Get.point(pipeline), Mix::Set.point(pipeline));
            let own_get = (port::MIDI, get.as_str(), "load", cpu);
            goal(
                format!("RESP port: CPU of GET over echo, pipeline {pipeline}{what}"),
                bound,
                own_get,
                (ECHO, &get, "load", cpu),
            );
            goal(
                format!("RESP port: CPU of SET over GET, pipeline {pipeline}{what}"),
                1.3,
                (port::MIDI, &set, "load", cpu),
                own_get,
            );
            if experiment == port::NAME {
                goal(
                    format!("RESP port: CPU of GET with io_uring over epoll, pipeline {pipeline}"),
                    1.03,
                    (port::URING, get.as_str(), "load", cpu),
                    own_get,
                );
            }
        }
    }
    goals
}

fn port_all_cores_goals(results: &Results) -> Vec<Goal> {
    let points = Mix::ALL.iter().flat_map(|mix| PIPELINES.map(|pipeline| mix.point(pipeline)));
    let zipf = port_all_cores::ZIPF.map(port_all_cores::zipf_point);
    points
        .chain(zipf)
        .map(|point| {
            let values = over_the_best(results, port_all_cores::NAME, port_all_cores::MIDI, &point);
            let text = format!("RESP port, all cores: ops/s over the best peer's, {point}");
            Goal::measured(1, text, Bound::AtLeast(1.0), values)
        })
        .collect()
}

fn contention_goals(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    let ops = Metric::Throughput;
    for (light, _) in contention::LIGHT {
        let points = contention::points(light);
        let (alone, together) = (points.alone.as_str(), points.together.as_str());
        let ratio = |above, below| ratios(results, contention::NAME, above, below);
        for mode in [contention::ADAPTIVE, contention::POOL] {
            let mut goal =
                |text: String, bound, values| goals.push(Goal::measured(2, text, bound, values));
            goal(
                format!("{light} beside heavy, {mode}: over stock's"),
                Bound::AtLeast(60.0),
                ratio((mode, together, "light", ops), (contention::STOCK, together, "light", ops)),
            );
            goal(
                format!("{light} beside heavy, {mode}: part of its undisturbed rate"),
                Bound::AtLeast(0.4),
                ratio((mode, together, "light", ops), (mode, alone, "light", ops)),
            );
            goal(
                format!("{light} beside heavy, {mode}: p99 in µs"),
                Bound::AtMost(2000.0),
                values(results, contention::NAME, (mode, together, "light", Metric::P99)),
            );
            goal(
                format!("{light} beside heavy, {mode}: p99 in µs, open loop at 40 %"),
                Bound::AtMost(2000.0),
                values(results, contention::NAME, (mode, &points.offered, "light", Metric::P99)),
            );
            goal(
                format!("heavy beside {light}, {mode}: over stock's"),
                Bound::AtLeast(0.5),
                ratio((mode, together, "heavy", ops), (contention::STOCK, together, "heavy", ops)),
            );
        }
        goals.push(Goal::measured(
            2,
            format!("{light} beside heavy, SAFEMODE (serial, as stock): over stock's"),
            Bound::AtMost(5.0),
            ratio(
                (contention::SAFEMODE, together, "light", ops),
                (contention::STOCK, together, "light", ops),
            ),
        ));
    }
    goals
}

fn global_lock_goals(results: &Results) -> Vec<Goal> {
    let light = |point, metric| (global_lock::SERIES, point, "light", metric);
    vec![
        Goal::measured(
            2,
            "native GET beside a MIDI.IMPORT loop: part of its undisturbed rate",
            Bound::AtLeast(0.4),
            ratios(
                results,
                global_lock::NAME,
                light(global_lock::BESIDE, Metric::Throughput),
                light(global_lock::ALONE, Metric::Throughput),
            ),
        ),
        Goal::measured(
            2,
            "native GET beside a MIDI.IMPORT loop: p99 in µs, open loop at 40 %",
            Bound::AtMost(2000.0),
            values(results, global_lock::NAME, light(global_lock::OFFERED, Metric::P99)),
        ),
    ]
}

fn noisy_neighbour_goals(results: &Results) -> Vec<Goal> {
    use noisy_neighbour::{ALONE, ALONE_OFFERED, MIDI, NAME, NEIGHBOURS, beside, offered};
    let mut goals = Vec::new();
    for neighbour in NEIGHBOURS {
        let mut goal = |what: &str, bound, beside: &str, alone, metric| {
            let values = ratios(
                results,
                NAME,
                (MIDI, beside, "load", metric),
                (MIDI, alone, "load", metric),
            );
            let text = format!("RESP port beside a {neighbour} loop: {what}");
            goals.push(Goal::measured(3, text, bound, values));
        };
        let (beside, offered) = (beside(neighbour), offered(neighbour));
        let (least, most) = (Bound::AtLeast(0.4), Bound::AtMost(3.0));
        goal("part of its undisturbed rate", least, &beside, ALONE, Metric::Throughput);
        goal("p95 over the undisturbed", most, &beside, ALONE, Metric::P95);
        goal(
            "p95 over the undisturbed, open loop at 40 %",
            most,
            &offered,
            ALONE_OFFERED,
            Metric::P95,
        );
    }
    goals
}

/// The bound on PING's p99 on the host, in microseconds, during any flood.
const PING_US: f64 = 2000.0;

fn hostile_goals(results: &Results) -> Vec<Goal> {
    use hostile::{ATTACKS, HARMLESS, MIDI, NAME, SHAPES};
    let goal = |point: &str, what: &str, bound, values| {
        Goal::measured(7, format!("{point}: {what}"), bound, values)
    };
    let others = |attack, connections| {
        let values = others_over_fair(results, attack, connections);
        let what = "the port's other clients' part of their fair share";
        goal(&attack.point(connections), what, Bound::AtLeast(0.5), values)
    };
    let mut goals: Vec<Goal> = SHAPES.map(|(connections, _)| others(&HARMLESS, connections)).into();
    for attack in &ATTACKS {
        for (connections, _) in SHAPES {
            let point = attack.point(connections);
            let values = values(results, NAME, (MIDI, &point, "", Metric::Figure(GROWTH)));
            let most = Bound::AtMost(attack.memory_bound(connections).round());
            goals.push(goal(&point, "memory's growth in MiB", most, values));
            let values = ping_over_allowed(results, attack, connections);
            goals.push(goal(
                &point,
                "the host's PING, p99 over the allowed",
                Bound::AtMost(1.0),
                values,
            ));
            goals.push(others(attack, connections));
        }
    }
    goals
}

/// PING's p99 over its bound: [`PING_US`], or 1.5 times its p99 beside a harmless flood. If the
/// host itself is flooded, the same flood on a stock host is another measure.
fn ping_over_allowed(results: &Results, attack: &Attack, connections: u64) -> Vec<f64> {
    use hostile::{HARMLESS, MIDI, NAME, PING, STOCK};
    let Some(outcome) = results.outcome(NAME) else { return Vec::new() };
    let (own, harmless) = (attack.point(connections), HARMLESS.point(connections));
    let over_allowed = |number| {
        let p99 = |series, point| outcome.round(series, point, number)?.value(PING, Metric::P99);
        let mut beside = p99(MIDI, &harmless)?;
        if attack.door == Door::Host {
            beside = beside.max(p99(STOCK, &own)?);
        }
        Some(p99(MIDI, &own)? / PING_US.max(1.5 * beside))
    };
    rounds(outcome).filter_map(over_allowed).collect()
}

/// The other clients' rate over their fair share: the part of their undisturbed rate that their
/// number entitles them to. The load generator takes processors, too, so the rate that a harmless
/// flood leaves them is enough.
fn others_over_fair(results: &Results, attack: &Attack, connections: u64) -> Vec<f64> {
    use hostile::{ALONE, HARMLESS, MIDI, NAME, OTHERS, fair_share};
    let Some(outcome) = results.outcome(NAME) else { return Vec::new() };
    let (own, harmless) = (attack.point(connections), HARMLESS.point(connections));
    let over_fair = |number| {
        let rate = |point| outcome.round(MIDI, point, number)?.value(OTHERS, Metric::Throughput);
        let mut fair = rate(ALONE)? * fair_share(connections);
        if attack.name != HARMLESS.name {
            fair = fair.min(rate(&harmless)?);
        }
        (fair > 0.0).then_some(rate(&own)? / fair)
    };
    rounds(outcome).filter_map(over_fair).collect()
}

fn snapshot_goals(results: &Results) -> Vec<Goal> {
    use snapshots::{MIDI, NAME, RANDOM, SHARDS, STOCK, ZEROS, forks};
    let figure = Metric::Figure;
    let [few, many] = SHARDS;
    let pauses =
        [(few, "p99", snapshot::PAUSE_P99, 1000.0), (many, "p99", snapshot::PAUSE_P99, 2000.0)];
    let mut goals: Vec<Goal> = pauses
        .map(|(shards, which, name, most)| {
            let text = format!("fork: midi's part of the pause in µs, {shards} shards, {which}");
            let found = values(results, NAME, (MIDI, &forks(shards), "", figure(name)));
            Goal::measured(6, text, Bound::AtMost(most), found)
        })
        .into();
    let restart = figure(snapshot::RESTART);
    goals.extend([RANDOM, ZEROS].map(|point| {
        let text = format!("restart from an RDB: times faster than stock, {point}");
        let (stock, own) = ((STOCK, point, "", restart), (MIDI, point, "", restart));
        Goal::measured(6, text, Bound::AtLeast(3.0), ratios(results, NAME, stock, own))
    }));
    goals
}

fn large_value_goals(results: &Results) -> Vec<Goal> {
    use large_values::{DEPTHS, HOST_DOOR, MIDI, MIXES, NAME, NATIVE};
    let mut goals = Vec::new();
    for mix in MIXES {
        for point in DEPTHS.map(|depth| mix.point(depth)) {
            let mut goal = |text: &str, values| {
                let text = format!("100 kB values, {point}: {text}");
                goals.push(Goal::measured(5, text, Bound::AtMost(1.0), values));
            };
            let of = |series, metric| (series, point.as_str(), "load", metric);
            goal(
                "RESP port, CPU in user space in µs",
                values(results, NAME, of(MIDI, Metric::UserCpu)),
            );
            goal(
                "RESP port, CPU over that of the best of all others",
                over_the_least(results, NAME, MIDI, &point, Metric::ServerCpu),
            );
            let native = of(NATIVE, Metric::ServerCpu);
            goal(
                "host door, CPU over that of the native command",
                ratios(results, NAME, of(HOST_DOOR, Metric::ServerCpu), native),
            );
        }
    }
    goals
}

fn later_goals() -> Vec<Goal> {
    let report = "comes with the journal's experiments";
    vec![Goal::later(
        6,
        "slowest reply while 1 M keys expire, in µs",
        Bound::AtMost(2000.0),
        report,
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Leg, Plan, Work, cache, durable, replica, series_of};
    use crate::experiments;
    use crate::goals::Verdict;
    use crate::load::Summary;
    use crate::results::{Outcome, Round};
    use crate::server::Catalogue;

    /// As if this leg had run: every figure is 1.
    fn round(leg: &Leg) -> Round {
        let mut summary = Summary {
            operations: 1,
            ops_per_second: 1.0,
            own_cpu_ns: 1,
            server: crate::process::Usage { cpu_ns: 1, user_ns: 1, ..Default::default() },
            ..Summary::default()
        };
        let latency = &mut summary.latency;
        (latency.count, latency.mean, latency.p50) = (1, 1.0, 1.0);
        (latency.p95, latency.p99, latency.max) = (1.0, 1.0, 1.0);
        (summary.fsyncs, summary.server.main_ns) = (Some(1), 1);
        let mut round =
            Round { series: leg.series.clone(), point: leg.point.clone(), ..Round::default() };
        fill_in(&leg.work, &summary, &mut round);
        round
    }

    fn fill_in(work: &Work, summary: &Summary, round: &mut Round) {
        let mut load = |role: &str| drop(round.loads.insert(role.into(), summary.clone()));
        match work {
            Work::Loads(loads) => loads.iter().for_each(|one| load(one.role)),
            Work::Growth(loads) => {
                loads.iter().for_each(|one| load(one.role));
                round.figures.insert(GROWTH.into(), 1.0);
            }
            Work::Beside(one, _, probe) => [one, probe].iter().for_each(|one| load(one.role)),
            Work::RedisBenchmark(..) => load("load"),
            Work::Timed(_, probe) => {
                load(probe.role);
                round.figures.insert("seconds".into(), 1.0);
            }
            Work::Memory(what) => drop(round.figures.insert(what.figure.into(), 1.0)),
            Work::Snapshot(_) => {
                load(snapshot::ALONE);
                load(snapshot::BESIDE);
                round.figures.insert(snapshot::RESTART.into(), 1.0);
            }
            Work::Forks(forks) => {
                load(forks.load.role);
                round.figures.insert(snapshot::PAUSE_P99.into(), 1.0);
            }
            Work::Replica(_) => {
                let loads = [replica::ALONE, replica::SYNCING, replica::ATTACHED, replica::LAG];
                let pings = [replica::PING_ALONE, replica::PING_SYNCING, replica::PING_ATTACHED];
                loads.into_iter().chain(pings).for_each(load);
                for name in [replica::SYNC, replica::CATCH_UP] {
                    round.figures.insert(name.into(), 1.0);
                }
            }
            Work::Rewrite(one) => {
                load(one.role);
                round.figures.insert(durable::REWRITE.into(), 1.0);
            }
            Work::AofRestart(_) => {
                for name in [durable::FROM_INCREMENTS, durable::FROM_BASE] {
                    round.figures.insert(name.into(), 1.0);
                }
            }
            Work::Cache(_) => {
                for name in [cache::HITS, cache::OUT_OF_MEMORY, cache::USED, cache::RESIDENT] {
                    round.figures.insert(name.into(), 0.5);
                }
                round.figures.insert(cache::NATIVE_LOST.into(), 0.0);
            }
            Work::Sets(_) => {
                [cache::AT, cache::BELOW].into_iter().for_each(load);
                round.figures.insert(cache::OUT_OF_MEMORY.into(), 0.0);
            }
            Work::Filled(.., work) => fill_in(work, summary, round),
            Work::RawSyncs(_) => load("load"),
            Work::Quick(_) | Work::Program(_) => {}
        }
    }

    /// A leg of the floods: the host's PING and the other clients' rate.
    fn beside(series: &str, point: &str, ping_p99_us: f64, others: f64) -> Round {
        let mut ping = Summary::default();
        (ping.latency.count, ping.latency.p99) = (1, ping_p99_us);
        let others = Summary { ops_per_second: others, ..Summary::default() };
        let loads = [(hostile::PING.to_owned(), ping), (hostile::OTHERS.to_owned(), others)];
        Round {
            series: series.into(),
            point: point.into(),
            loads: loads.into(),
            ..Round::default()
        }
    }

    #[test]
    fn floods_are_held_against_a_harmless_one() {
        use hostile::{ALONE, ATTACKS, HARMLESS, MIDI, STOCK};
        let at_the =
            |door| *ATTACKS.iter().find(|attack| attack.door == door).expect("one for each door");
        let (port, host) = (at_the(Door::Port), at_the(Door::Host));
        let outcome = Outcome {
            name: hostile::NAME.into(),
            rounds: vec![
                beside(MIDI, ALONE, 100.0, 1200.0),
                beside(MIDI, &HARMLESS.point(2), 4000.0, 500.0),
                beside(MIDI, &port.point(2), 12_000.0, 250.0),
                beside(MIDI, &host.point(2), 15_000.0, 1000.0),
                beside(STOCK, &host.point(2), 20_000.0, 1000.0),
            ],
            ..Outcome::default()
        };
        let results = Results { outcomes: vec![outcome], ..Results::default() };
        assert_eq!(ping_over_allowed(&results, &port, 2), [2.0], "1.5 × 4 ms are allowed");
        assert_eq!(ping_over_allowed(&results, &host, 2), [0.5], "1.5 × stock's 20 ms are");
        // Ten of twelve connections are the other clients'.
        assert_eq!(others_over_fair(&results, &HARMLESS, 2), [0.5]);
        assert_eq!(others_over_fair(&results, &port, 2), [0.5], "of what GETs leave them");
        assert!(ping_over_allowed(&results, &port, 300).is_empty(), "not measured");
    }

    /// A goal for a figure that no leg has would never be judged, and it would go unnoticed.
    #[test]
    fn every_goal_finds_its_figures() {
        let catalogue = Catalogue {
            redis: "redis-server".into(),
            module: "libmidi.so".into(),
            valkey: Some("valkey-server".into()),
            memcached: Some("memcached".into()),
            others: Vec::new(),
            has_redis_benchmark: true,
        };
        let mut results = Results::default();
        for experiment in experiments::all(&catalogue, &Plan::FULL) {
            results.outcomes.push(Outcome {
                name: experiment.name.into(),
                series: series_of(&experiment.legs),
                rounds: experiment.legs.iter().map(round).collect(),
                ..Outcome::default()
            });
        }
        // The engine's figures are those that its benchmark prints.
        let from_elsewhere = engine_goals(&Results::default());
        for goal in judged(&results) {
            let is_known = from_elsewhere.iter().any(|other| other.text == goal.text);
            let is_there = goal.verdict != Verdict::NotMeasured("not in this run");
            assert!(is_there || is_known, "{}", goal.text);
        }
    }
}
