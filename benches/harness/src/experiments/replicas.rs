//! A replica: how far it is behind a master under load, what it costs the master's clients, and how
//! long it takes to attach.

use super::set_command;
use crate::bench::replica::Replica;
use crate::bench::{Experiment, Leg, Load, On, Plan, Rate, Work};
use crate::server::{Catalogue, Cores, Door, Kind, Spec};

/// The experiment's name in results.
pub const NAME: &str = "replicas";
/// The series of midi's port.
pub const MIDI: &str = "midi port, 2 workers";
/// The series of midi's commands on the host's port.
pub const HOST_DOOR: &str = "midi host door";
/// The stock server's.
pub const STOCK: &str = "redis";

/// As many SETs as the server takes.
pub const FULL: &str = "full load";
/// The same number for all servers.
pub const OFFERED: &str = "50,000 SETs a second";
const OFFERED_RATE: f64 = 50_000.0;

pub fn experiment(catalogue: &Catalogue, plan: &Plan) -> Experiment {
    let servers =
        [catalogue.redis().named(STOCK), catalogue.midi(HOST_DOOR), catalogue.midi_port(MIDI, 2)]
            .map(with_room);
    let legs = [FULL, OFFERED]
        .into_iter()
        .flat_map(|point| servers.iter().map(move |server| leg(server, point, plan)));
    Experiment {
        number: 6,
        name: NAME,
        title: "A replica under write load",
        question: "How far is a replica behind, what does it cost, and how fast does it attach?",
        about: "SETs of 100-byte values among 1 M keys, 70 connections, pipeline 20, as many as \
                the server takes, or an open loop of 50,000 a second: without a replica, while one \
                is attached (diskless), and with it. PING: 1000 a second to the host's port, an \
                open loop. Lag: a SET through the host's port, and the time from its reply until \
                a GET of the replica returns it; the replica is asked every 0.5 ms. At the end \
                both must hold the same. Master, replica and load share all cores, and no AOF is \
                on. `client-output-buffer-limit replica 0 0 0`, because a full sync lasts longer \
                than 256 MiB of stream at full load. Each time fresh servers.",
        points: "load",
        least_seconds: if plan.quick { 0.5 } else { 2.0 },
        servers: Vec::new(),
        data: Vec::new(),
        legs: legs.collect(),
    }
}

/// On all cores, and with no bound for what a replica has not read yet.
fn with_room(server: Spec) -> Spec {
    let server = server.with("--client-output-buffer-limit replica 0 0 0");
    server.with("--repl-diskless-sync-delay 0").on(Cores::Shared)
}

fn leg(server: &Spec, point: &str, plan: &Plan) -> Leg {
    let prefix = if server.name == HOST_DOOR { "MIDI." } else { "" };
    let set = || {
        let set = Load::new("load", &format!("{prefix}{}", set_command(Kind::Redis)));
        set.with("--value-size 100")
    };
    let load = set().with(&format!("--connections 70 --pipeline 20 --keys {}", plan.keys));
    let load = if point == OFFERED { load.rate(Rate::Fixed(OFFERED_RATE)) } else { load };
    let ping = Load::new("PING", "PING").with("--connections 1 --pipeline 1000");
    Leg {
        series: server.name.clone(),
        point: point.into(),
        on: On::Fresh(Box::new(server.clone())),
        before: Vec::new(),
        work: Work::Replica(Replica {
            fill: set(),
            keys: plan.keys,
            load,
            ping: ping.through(Door::Host).rate(Rate::Fixed(1000.0)),
        }),
    }
}
