//! Hashes: what their commands cost, how many a second all cores answer, and what a field takes in
//! memory.

use super::filled;
use crate::bench::{Experiment, Fill, Filling, Leg, Load, On, Plan, Work};
use crate::server::{Catalogue, Cores, Kind, Spec};

/// The experiment of commands on a core of their own.
pub const NAME: &str = "types";
/// The one on all cores.
pub const ALL_CORES: &str = "types-all-cores";
/// The one of memory.
pub const MEMORY: &str = "types-memory";
/// The series of midi's port.
pub const MIDI: &str = "midi port";
/// The same on all cores.
pub const MIDI_ALL: &str = "midi port, 2 workers";
/// The series of midi's commands on the host's port.
pub const HOST_DOOR: &str = "midi host door";
/// The stock server that midi's host is, too.
pub const STOCK: &str = "redis";
/// The figure of memory.
pub const FIGURE: &str = "bytes per field";
/// The point of small hashes in memory.
pub const SMALL: &str = "hashes of 10 fields of 27 bytes";
/// The point of a large one.
pub const LARGE: &str = "one hash of fields of 30 bytes";

/// Hashes of 25 fields: as many keys as the other experiments have hold so many fields.
const FIELDS: u64 = 25;
/// Fields of a hash in the experiment of memory.
const SMALL_FIELDS: u64 = 10;
/// The load's arguments: a field's name and its value have 27 bytes.
const LOAD: &str = "--pipeline 10 --value-size 20";

/// A load on hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// One field of a hash.
    Set,
    /// The same.
    Get,
    /// All of its fields.
    GetAll,
}

impl Command {
    /// All of them.
    pub const ALL: [Command; 3] = [Command::Set, Command::Get, Command::GetAll];

    /// The point of the plots.
    pub fn point(self) -> &'static str {
        match self {
            Command::Set => "HSET, pipeline 10",
            Command::Get => "HGET, pipeline 10",
            Command::GetAll => "HGETALL of 25 fields, pipeline 10",
        }
    }

    fn load(self, prefix: &str, plan: &Plan) -> Load {
        let command = match self {
            Command::Set => "HSET {key} field:7 {value}",
            Command::Get => "HGET {key} field:7",
            Command::GetAll => "HGETALL {key}",
        };
        let keys = plan.keys / FIELDS;
        Load::new("load", &format!("{prefix}{command}")).with(&format!("{LOAD} --keys {keys}"))
    }
}

/// The command that makes a hash of so many fields.
fn hash_of(prefix: &str, fields: u64) -> String {
    let pairs: String = (0..fields).map(|number| format!(" field:{number} {{value}}")).collect();
    format!("{prefix}HSET {{key}}{pairs}")
}

fn data(spec: &Spec, prefix: &str, plan: &Plan) -> Fill {
    let load = Load::new("fill", &hash_of(prefix, FIELDS)).with("--value-size 20");
    filled(spec, load, plan.keys / FIELDS)
}

/// Those with hashes.
fn with_hashes(peers: Vec<Spec>) -> impl Iterator<Item = Spec> {
    peers.into_iter().filter(|peer| peer.kind != Kind::Memcached)
}

pub fn experiment(catalogue: &Catalogue, plan: &Plan) -> Experiment {
    let mut servers: Vec<(Spec, &str)> =
        with_hashes(catalogue.peers()).map(|it| (it, "")).collect();
    servers.push((catalogue.midi_port(MIDI, 1), ""));
    servers.push((catalogue.midi(HOST_DOOR), "MIDI."));
    let legs = Command::ALL.into_iter().flat_map(|command| {
        servers.iter().map(move |(server, prefix)| {
            let load = command.load(prefix, plan);
            Leg::new(&server.name, command.point(), &server.name, vec![load])
        })
    });
    Experiment {
        number: 10,
        name: NAME,
        title: "Hashes: what a command costs",
        question: "How much CPU time does a command on hashes cost, beside midi's peers?",
        about: "HSET and HGET of one field, and HGETALL, on 40,000 hashes of 25 fields, whose \
                names and values have 27 bytes; uniform keys, 50 connections, pipeline 10, one \
                load thread. Server and load on cores of their own; midi's port has one worker.",
        points: "load",
        least_seconds: 0.0,
        legs: legs.collect(),
        data: servers.iter().map(|(server, prefix)| data(server, prefix, plan)).collect(),
        servers: servers.into_iter().map(|(server, _)| server).collect(),
    }
}

/// The same on all cores.
pub fn all_cores(catalogue: &Catalogue, plan: &Plan) -> Experiment {
    let mut servers = vec![catalogue.midi_port(MIDI_ALL, 2).on(Cores::Shared)];
    servers.extend(with_hashes(catalogue.peers_on_all_cores()));
    let legs = Command::ALL.into_iter().flat_map(|command| {
        servers.iter().map(move |server| {
            let load = command.load("", plan).with("--threads 2");
            Leg::new(&server.name, command.point(), &server.name, vec![load])
        })
    });
    Experiment {
        number: 10,
        name: ALL_CORES,
        title: "Hashes: all cores",
        question: "How many commands on hashes does a server answer a second with all cores?",
        about: "The same load from two threads, all cores shared with the load. midi's port has \
                two workers, and the peers the threads that their names tell. `two redis`: two \
                processes, the client splits the keys.",
        points: "load",
        least_seconds: 0.0,
        legs: legs.collect(),
        data: servers.iter().map(|server| data(server, "", plan)).collect(),
        servers,
    }
}

/// How much a server grows when it is filled with hashes.
pub fn memory(catalogue: &Catalogue, plan: &Plan) -> Experiment {
    let leg = |spec: &Spec, point: &str, command: &str, keys, of_each| Leg {
        series: spec.name.clone(),
        point: point.into(),
        before: Vec::new(),
        work: Work::Memory(Filling {
            load: Load::new("fill", command).with("--value-size 20"),
            keys,
            of_each,
            figure: FIGURE,
        }),
        on: On::Fresh(Box::new(spec.clone())),
    };
    let own = std::iter::once((catalogue.midi(MIDI), "MIDI."));
    let peers = with_hashes(catalogue.peers()).map(|peer| (peer, ""));
    let legs = own.chain(peers).flat_map(|(spec, prefix)| {
        let small = hash_of(prefix, SMALL_FIELDS);
        let large = format!("{prefix}HSET hash {{key}} {{value}}");
        let hashes = plan.keys / SMALL_FIELDS;
        [
            leg(&spec, SMALL, &small, hashes, SMALL_FIELDS),
            leg(&spec, LARGE, &large, plan.keys / 2, 1),
        ]
    });
    Experiment {
        number: 10,
        name: MEMORY,
        title: "Memory per field",
        question: "How much memory does a field of a hash take?",
        about: "Resident memory that an empty server grows by, divided by the fields: when 100,000 \
                hashes of 10 fields are stored, names and values of 27 bytes; and when one hash of \
                500,000 fields is, of 30 bytes. Buffers of 10 connections are counted in.",
        points: "data",
        least_seconds: 0.0,
        servers: Vec::new(),
        data: Vec::new(),
        legs: legs.collect(),
    }
}
