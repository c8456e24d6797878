//! A shared instance: many small commands while another tenant, in its own database, runs long
//! ones.

use super::contention::HEAVY;
use super::{Mix, filled, set_command};
use crate::bench::{Experiment, Fill, Leg, Load, Plan, Rate};
use crate::server::{Catalogue, Cores, Door, Kind, Spec};

/// The experiment's name in results.
pub const NAME: &str = "noisy-neighbour";
/// The series of midi's port.
pub const MIDI: &str = "midi port, 2 workers";
/// The series of the host door.
const HOST_DOOR: &str = "midi host door";

/// Neighbours, by their names at the points.
pub const NEIGHBOURS: [&str; 2] = ["ZINTERSTORE", "KEYS"];

/// The open loop's rate, as a part of the load's undisturbed rate.
const OFFERED: f64 = 0.4;

/// The neighbour's database; the load's is 0.
const NEXT_DOOR: u32 = 1;

/// As many keys as 10,000 commands of one of memtier_benchmark's clients use, half of them SETs.
const KEYS: u64 = 5_000;

/// The load without a neighbour.
pub const ALONE: &str = "alone";
/// See [`ALONE`].
pub const ALONE_OFFERED: &str = "alone, open loop";

/// The load beside this neighbour.
pub fn beside(neighbour: &str) -> String {
    format!("beside {neighbour}")
}

/// The same with the load as an open loop.
pub fn offered(neighbour: &str) -> String {
    format!("beside {neighbour}, open loop")
}

pub fn experiment(catalogue: &Catalogue, plan: &Plan) -> Experiment {
    let mut servers =
        vec![catalogue.midi_port(MIDI, 2), catalogue.midi(HOST_DOOR), catalogue.redis()];
    servers.extend(catalogue.valkey_threads());
    servers.extend(catalogue.others.iter().filter(|other| other.kind != Kind::Memcached).cloned());
    let servers: Vec<Spec> = servers.into_iter().map(|server| server.on(Cores::Shared)).collect();
    Experiment {
        number: 3,
        name: NAME,
        title: "A noisy neighbour",
        question: "How much does one client with long commands slow all others down?",
        about: "SET and GET, as many of each, of 100-byte values, keys in sequence, 100 \
                connections of 4 load threads, alone and beside one connection that runs, over and \
                over, in another database, ZINTERSTORE of two sorted sets of 100,000 members \
                (through the host's port), or KEYS for a pattern that returns 200,000 of 1 M keys \
                (of midi's keys, where there is midi). All cores shared with the load. Open loop: \
                the load is sent at 40 % of the rate it had alone, and a latency counts from when \
                the command was due.",
        points: "load",
        least_seconds: if plan.quick { 0.5 } else { 1.0 },
        data: servers.iter().flat_map(|server| data(server, plan.keys)).collect(),
        legs: servers.iter().flat_map(legs).collect(),
        servers,
    }
}

/// midi's commands have their prefix on the host's port only.
fn prefix(server: &Spec) -> &'static str {
    if server.name == HOST_DOOR { "MIDI." } else { "" }
}

fn data(server: &Spec, keys: u64) -> Vec<Fill> {
    let set = || Load::new("fill", &format!("{}{}", prefix(server), set_command(server.kind)));
    // Each command takes two numbers, a score and a member: 100,000 members from 200,000 numbers.
    let sorted_set = |name: &str| {
        Load::new("fill", &format!("ZADD {name} {{key}} {{key}}"))
            .with("--key-prefix=")
            .in_database(NEXT_DOOR)
            .through(Door::Host)
    };
    vec![
        filled(server, set().with("--value-size 100"), KEYS),
        filled(server, set().in_database(NEXT_DOOR), keys),
        filled(server, sorted_set("left"), 200_000),
        filled(server, sorted_set("right"), 200_000),
    ]
}

fn legs(server: &Spec) -> Vec<Leg> {
    let load = || {
        Mix::Both
            .load(server.kind, prefix(server))
            .with("--connections 100 --threads 4 --distribution sequential --value-size 100")
            .with(&format!("--keys {KEYS}"))
    };
    let offered_load = || load().with("--pipeline 100").rate(Rate::PartOf(ALONE.into(), OFFERED));
    let neighbour = |name: &str| {
        let load = match name {
            "ZINTERSTORE" => {
                Load::new("neighbour", "ZINTERSTORE both 2 left right").through(Door::Host)
            }
            _ => Load::new("neighbour", &format!("{}{HEAVY}", prefix(server))),
        };
        load.with("--connections 1").in_database(NEXT_DOOR)
    };
    let leg = |point: &str, loads: Vec<Load>| Leg::new(&server.name, point, &server.name, loads);
    let mut legs = vec![leg(ALONE, vec![load()]), leg(ALONE_OFFERED, vec![offered_load()])];
    for name in NEIGHBOURS {
        legs.push(leg(&beside(name), vec![neighbour(name), load()]));
        legs.push(leg(&offered(name), vec![neighbour(name), offered_load()]));
    }
    legs
}
