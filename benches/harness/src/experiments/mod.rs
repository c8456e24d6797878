//! What is compared. An experiment is a description; `bench.rs` runs it.
//!
//! To add one: a file here with a function that gives an [`Experiment`], its name in [`all`] and
//! [`NAMES`], and its goals in `goals.rs`.

pub mod contention;
pub mod engine;
pub mod global_lock;
pub mod host_door;
pub mod memory;
pub mod populate;

use crate::bench::{Experiment, Fill, Plan};
use crate::server::{Catalogue, Kind, Spec};

/// What the experiments are called, in the order of the goals.
pub const NAMES: [&str; 6] =
    [host_door::NAME, memory::NAME, populate::NAME, engine::NAME, contention::NAME, global_lock::NAME];

/// Every experiment, in that order.
pub fn all(catalogue: &Catalogue, plan: &Plan) -> Vec<Experiment> {
    vec![
        host_door::experiment(catalogue, plan),
        memory::experiment(catalogue, plan),
        populate::experiment(catalogue, plan),
        engine::experiment(plan),
        contention::experiment(catalogue, plan),
        global_lock::experiment(catalogue, plan),
    ]
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

/// A server's own keyspace filled.
fn native_data(spec: &Spec, keys: u64) -> Fill {
    Fill { server: spec.name.clone(), command: set_command(spec.kind).into(), keys }
}

/// midi's keyspace filled.
fn midi_data(spec: &Spec, keys: u64) -> Fill {
    Fill { server: spec.name.clone(), command: "MIDI.SET {key} {value}".into(), keys }
}
