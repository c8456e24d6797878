//! Hashes: what their commands cost, how many a second all cores answer, and what a field takes in
//! memory.

use super::filled;
use crate::bench::{Experiment, Fill, Filling, Leg, Load, On, Plan, Rate, Work};
use crate::server::{Catalogue, Cores, Kind, Spec};

/// The experiment of commands on a core of their own.
pub const NAME: &str = "types";
/// The one on all cores.
pub const ALL_CORES: &str = "types-all-cores";
/// The one of memory.
pub const MEMORY: &str = "types-memory";
/// The one of long commands.
pub const LONG: &str = "types-long";
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

/// The point of HGETALL of a large hash alone.
pub const READ: &str = "HGETALL of 500,000 fields";
/// The point of light commands alone.
pub const LIGHT: &str = "light commands alone";
/// The point of light commands beside long ones.
pub const BESIDE: &str = "beside HGETALL, DEL and filling of 500,000 fields";
/// The open loop's rate, as a part of the undisturbed rate: three long loops need the rest.
pub const OFFERED: f64 = 0.25;

/// Fields of a hash in the experiment of long commands.
const LONG_FIELDS: u64 = 500_000;
/// Fields of an HSET there. It is no long command itself.
const FIELDS_AT_ONCE: u64 = 50;

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

/// Long commands, and what others notice of them.
pub fn long(catalogue: &Catalogue, _: &Plan) -> Experiment {
    let mut servers =
        vec![(catalogue.midi_port(MIDI, 1), ""), (catalogue.midi(HOST_DOOR), "MIDI.")];
    servers.extend(catalogue.stock().into_iter().map(|stock| (stock, "")));
    let legs = servers.iter().flat_map(|(server, prefix)| {
        let light = || {
            Load::new("light", &format!("{prefix}HGET small {{key:6}}"))
                .with("--connections 10 --keys 100 --drain 0.5")
        };
        let offered = light().with("--pipeline 100").rate(Rate::PartOf(LIGHT.into(), OFFERED));
        let ping = Load::new("ping", "PING").with("--connections 1 --pipeline 10000 --drain 0.5");
        let read = || {
            Load::new("read", &format!("{prefix}HGETALL large")).with("--connections 1 --drain 0.5")
        };
        let set = format!("{prefix}HSET other {{key}}*{}", 2 * FIELDS_AT_ONCE);
        let weights = format!("--weights 1,{}", LONG_FIELDS / FIELDS_AT_ONCE);
        let change = Load::new("change", &format!("{prefix}DEL other"))
            .and(&set)
            .with("--connections 1 --distribution sequential --drain 0.5")
            .with(&format!("{weights} --keys {}", 2 * LONG_FIELDS));
        let all = vec![read(), change, offered, ping.rate(Rate::Fixed(2000.0))];
        let leg = |point: &str, loads| Leg::new(&server.name, point, &server.name, loads);
        [leg(READ, vec![read()]), leg(LIGHT, vec![light()]), leg(BESIDE, all)]
    });
    Experiment {
        number: 10,
        name: LONG,
        title: "Hashes: long commands",
        question: "What do HGETALL and DEL of a large hash do to everybody else?",
        about: "One connection sends HGETALL of a hash of 500,000 fields of 30 bytes, another \
                fills one with HSETs of 50 fields and sends DEL once for 10,000 of these. Beside \
                them, through the same door, 2000 PINGs a second, and HGETs of 10 connections at a \
                quarter of the rate that they have alone. Both are open loops: a latency counts \
                from when the command was due. Server and load on cores of their own; midi's port \
                has one worker.",
        points: "load",
        least_seconds: 0.9,
        legs: legs.collect(),
        data: servers.iter().flat_map(|(server, prefix)| large_and_small(server, prefix)).collect(),
        servers: servers.into_iter().map(|(server, _)| server).collect(),
    }
}

fn large_and_small(server: &Spec, prefix: &str) -> [Fill; 2] {
    let fill = |command: String| Load::new("fill", &command).with("--value-size 20");
    [
        filled(server, fill(format!("{prefix}HSET large {{key}} {{value}}")), LONG_FIELDS),
        filled(server, fill(format!("{prefix}HSET small {{key:6}} {{value}}")), 100),
    ]
}
