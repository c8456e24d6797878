//! The experiments. An experiment is a description; `bench.rs` runs it.
//!
//! To add one: a file here with a function that gives an [`Experiment`], its name in [`all`] and
//! [`NAMES`], and its goals in `goals.rs`.

pub mod aof;
pub mod cache;
pub mod contention;
pub mod engine;
pub mod global_lock;
pub mod host_door;
pub mod hostile;
pub mod large_values;
pub mod memcached_port;
pub mod memory;
pub mod noisy_neighbour;
pub mod populate;
pub mod port;
pub mod port_all_cores;
pub mod port_large;
pub mod replicas;
pub mod snapshots;
pub mod tls;
pub mod types;

use crate::bench::{Experiment, Fill, How, Load, Plan};
use crate::server::{Catalogue, Kind, Spec};

/// The experiments' names, in the order of the goals.
pub const NAMES: [&str; 24] = [
    host_door::NAME,
    port::NAME,
    port_all_cores::NAME,
    memcached_port::NAME,
    memcached_port::ALL_CORES,
    port_large::NAME,
    memory::NAME,
    populate::NAME,
    engine::NAME,
    contention::NAME,
    global_lock::NAME,
    noisy_neighbour::NAME,
    aof::NAME,
    large_values::NAME,
    snapshots::NAME,
    replicas::NAME,
    hostile::NAME,
    tls::NAME,
    tls::HANDSHAKES,
    cache::NAME,
    types::NAME,
    types::ALL_CORES,
    types::MEMORY,
    types::LONG,
];

/// Every experiment, in that order; in a quick run with fewer legs.
pub fn all(catalogue: &Catalogue, plan: &Plan) -> Vec<Experiment> {
    let mut experiments = whole(catalogue, plan);
    if plan.quick {
        for experiment in &mut experiments {
            let name = experiment.name;
            experiment.retain(|leg| is_quick(name, &leg.point));
        }
    }
    experiments
}

/// Whether a quick run has the legs of this point: one depth of pipelines, one size of values, one
/// kind of load, so that all experiments take less than five minutes.
fn is_quick(experiment: &str, point: &str) -> bool {
    match experiment {
        host_door::NAME => point == "10",
        port::NAME
        | port_all_cores::NAME
        | port_large::NAME
        | memcached_port::NAME
        | memcached_port::ALL_CORES => {
            point.contains("pipeline 10") && !point.contains(Mix::Both.name())
        }
        contention::NAME => !point.starts_with(contention::LIGHT[1].0),
        noisy_neighbour::NAME => !point.contains("open loop"),
        aof::NAME => !point.contains("6000 B") && !point.contains("mean below"),
        large_values::NAME => point.contains("pipeline 1"),
        snapshots::NAME => point == snapshots::RANDOM || point == snapshots::forks(1024),
        hostile::NAME => !point.ends_with(&format!("{} connections", hostile::SHAPES[1].0)),
        cache::NAME => {
            [cache::TRACES[0].0, cache::BESIDE, cache::SETS].into_iter().any(|kept| kept == point)
        }
        _ => true,
    }
}

fn whole(catalogue: &Catalogue, plan: &Plan) -> Vec<Experiment> {
    vec![
        host_door::experiment(catalogue, plan),
        port::experiment(catalogue, plan),
        port_all_cores::experiment(catalogue, plan),
        memcached_port::experiment(catalogue, plan),
        memcached_port::all_cores(catalogue, plan),
        port_large::experiment(catalogue, plan),
        memory::experiment(catalogue, plan),
        populate::experiment(catalogue, plan),
        engine::experiment(plan),
        contention::experiment(catalogue, plan),
        global_lock::experiment(catalogue, plan),
        noisy_neighbour::experiment(catalogue, plan),
        aof::experiment(catalogue, plan),
        large_values::experiment(catalogue, plan),
        snapshots::experiment(catalogue, plan),
        replicas::experiment(catalogue, plan),
        hostile::experiment(catalogue, plan),
        tls::experiment(catalogue, plan),
        tls::handshakes(catalogue, plan),
        cache::experiment(catalogue, plan),
        types::experiment(catalogue, plan),
        types::all_cores(catalogue, plan),
        types::memory(catalogue, plan),
        types::long(catalogue, plan),
    ]
}

/// Pipeline depths.
pub const PIPELINES: [u64; 3] = [1, 10, 50];

/// The mixes of short commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// GET alone.
    Get,
    /// SET alone.
    Set,
    /// The same number of each.
    Both,
}

impl Mix {
    /// All of them.
    pub const ALL: [Mix; 3] = [Mix::Get, Mix::Set, Mix::Both];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Mix::Get => "GET",
            Mix::Set => "SET",
            Mix::Both => "1:1",
        }
    }

    /// As a load on such a server; its commands get this prefix.
    pub fn load(self, kind: Kind, prefix: &str) -> Load {
        let (get, set) =
            (format!("{prefix}{}", get_command(kind)), format!("{prefix}{}", set_command(kind)));
        match self {
            Mix::Get => Load::new("load", &get),
            Mix::Set => Load::new("load", &set),
            Mix::Both => Load::new("load", &set).and(&get),
        }
    }

    /// Its name at the points of the plots, at this depth of the pipeline.
    pub fn point(self, pipeline: u64) -> String {
        format!("{}, pipeline {pipeline}", self.name())
    }
}

/// The command that stores a key on such a server.
fn set_command(kind: Kind) -> &'static str {
    match kind {
        Kind::Memcached => "set {key} 0 0 {value}",
        _ => "SET {key} {value}",
    }
}

/// The command that reads one.
fn get_command(kind: Kind) -> &'static str {
    match kind {
        Kind::Memcached => "get {key}",
        _ => "GET {key}",
    }
}

/// Fills a server's own keyspace, or midi's if load goes to its port.
fn native_data(spec: &Spec, keys: u64) -> Fill {
    filled(spec, Load::new("fill", set_command(spec.kind)), keys)
}

/// Fills midi's keyspace through the host's port.
fn midi_data(spec: &Spec, keys: u64) -> Fill {
    filled(spec, Load::new("fill", "MIDI.SET {key} {value}"), keys)
}

fn filled(spec: &Spec, load: Load, keys: u64) -> Fill {
    Fill { server: spec.name.clone(), how: How::Each(load, keys) }
}

/// A server that answers GETs with the same length as those of `GET_FOR_ECHO`.
fn echo() -> Spec {
    let program = std::env::current_exe().unwrap_or_else(|_| "midi-bench".into());
    let echo = Spec { kind: Kind::Echo, ..Spec::new(ECHO, &program) };
    echo.with(&format!("--request-bytes {}", "*2\r\n$3\r\nGET\r\n$13\r\nkey:000000017\r\n".len()))
}

/// The echo server's name.
pub const ECHO: &str = "echo";

/// Requests of a fixed length, for the echo server.
const ECHO_COMMAND: &str = "GET {key:9}";
