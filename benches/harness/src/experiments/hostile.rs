//! Floods: how a hostile client affects the host's clients and the port's other clients, and how
//! much memory it takes.

use crate::bench::{Experiment, Leg, Load, On, Plan, Rate, Work};
use crate::server::{Catalogue, Cores, Door, Spec};

/// The experiment's name in results.
pub const NAME: &str = "hostile";
/// The series of midi's port.
pub const MIDI: &str = "midi port, 2 workers";
/// The series of the stock server.
pub const STOCK: &str = "redis";

/// The attacking load.
const ATTACK: &str = "attack";
/// Clients of the host's port.
pub const PING: &str = "PING";
/// Harmless clients of the attacked port.
pub const OTHERS: &str = "others";
/// The number of those clients.
const OTHER_CLIENTS: u64 = 10;

/// The point without an attack.
pub const ALONE: &str = "alone";

/// Attacking connections, and the depth of each one's pipeline.
pub const SHAPES: [(u64, u64); 2] = [(2, 1000), (300, 100)];

/// With a deeper pipeline, some servers close a client that has not logged in, for its unread
/// data.
const STRANGERS_DEPTH: u64 = 100;

/// The load generator keeps what it sends, so it sends at most this many bytes at once.
const BYTES_IN_FLIGHT: u64 = 64 << 20;

/// Keys that GET finds.
const KEYS: u64 = 1000;

/// The password of `default`, and of the user who may run every command but on no existing key.
const SECRET: &str = "secret";

/// A flood.
#[derive(Clone, Copy)]
pub struct Attack {
    /// Its name at the points.
    pub name: &'static str,
    /// Through this door.
    pub door: Door,
    /// The attacker's login: a set-up command, or empty for a client that does not log in.
    login: &'static str,
    /// A command to the host beforehand, or none.
    before: &'static str,
    /// The first command of the client that sends PING to the host, or none.
    observer: &'static str,
    /// The commands to repeat, in this order.
    commands: &'static [&'static str],
    /// The length of a `{value}`.
    value_size: u64,
    /// The start of every reply, if all replies must be errors.
    refusal: &'static str,
    /// Whether commands or replies are so long that each connection can have some buffered.
    is_large: bool,
}

/// By a client that has logged in, through the port.
const PLAIN: Attack = Attack {
    name: "",
    door: Door::Port,
    login: "AUTH secret",
    before: "",
    observer: "",
    commands: &[],
    value_size: 64,
    refusal: "",
    is_large: false,
};

/// By a user who may not read the key.
const DENIED: Attack =
    Attack { login: "AUTH mallory secret", commands: &["GET {value}"], refusal: "NOPERM", ..PLAIN };

/// By a client that has not logged in, through the host's port.
const STRANGER: Attack = Attack { door: Door::Host, login: "", refusal: "NOAUTH", ..PLAIN };

/// A harmless flood, for comparison.
pub const HARMLESS: Attack = Attack { name: "GET", commands: &["GET {key}"], ..PLAIN };

/// All others.
pub const ATTACKS: [Attack; 13] = [
    Attack { name: "denied GET of 100 B", value_size: 100, ..DENIED },
    Attack { name: "denied GET of 1 MB", value_size: 1_000_000, is_large: true, ..DENIED },
    Attack {
        name: "AUTH",
        login: "",
        commands: &["AUTH mallory {value}"],
        refusal: "WRONGPASS",
        ..PLAIN
    },
    Attack { name: "INFO", commands: &["INFO"], is_large: true, ..PLAIN },
    Attack {
        name: "SET with KEA",
        before: "CONFIG SET notify-keyspace-events KEA",
        commands: &["SET {key} {value}"],
        ..PLAIN
    },
    Attack {
        name: "SET with TRACKING",
        observer: "CLIENT TRACKING ON BCAST",
        commands: &["SET {key} {value}"],
        ..PLAIN
    },
    Attack { name: "TRACKING by nobody", commands: &["CLIENT TRACKING ON"], ..STRANGER },
    Attack {
        name: "WATCH by nobody",
        commands: &["WATCH {value}"],
        value_size: 16_000,
        ..STRANGER
    },
    Attack { name: "ACL SETUSER by nobody", commands: &["ACL SETUSER mallory on"], ..STRANGER },
    Attack { name: "CLIENT LIST", commands: &["CLIENT LIST"], is_large: true, ..PLAIN },
    Attack { name: "COMMAND DOCS", commands: &["COMMAND DOCS"], is_large: true, ..PLAIN },
    Attack { name: "SELECT", commands: &["SELECT 1", "SELECT 0"], ..PLAIN },
    Attack { name: "MULTI/EXEC", commands: &["MULTI", "GET {key}", "EXEC"], ..PLAIN },
];

impl Attack {
    /// The point with this many connections.
    pub fn point(&self, connections: u64) -> String {
        format!("{}, {connections} connections", self.name)
    }

    /// How many MiB the server's memory may grow by with this many connections: commands that were
    /// sent and have not run, and replies that were not read (midi stops at a MiB), in each case
    /// beside the one in progress.
    pub fn memory_bound(&self, connections: u64) -> f64 {
        let each_kib = if self.is_large { 2048 } else { 64 };
        64.0 + (connections * each_kib) as f64 / 1024.0
    }

    fn load(&self, connections: u64, depth: u64) -> Load {
        let most = BYTES_IN_FLIGHT / connections / self.value_size;
        let depth = if self.login.is_empty() { depth.min(STRANGERS_DEPTH) } else { depth };
        let (first, more) = self.commands.split_first().unwrap_or((&"PING", &[]));
        let load = more.iter().fold(Load::new(ATTACK, first), |load, command| load.and(command));
        let load = load
            .through(self.door)
            .saying_first(self.login)
            .with(&format!(
                "--in-turn --connections {connections} --pipeline {}",
                depth.min(most).max(1)
            ))
            .with(&format!("--keys {KEYS} --value-size {} {BRIEF}", self.value_size));
        if self.refusal.is_empty() { load } else { load.refused_with(self.refusal) }
    }
}

/// The part of their undisturbed rate that the other clients' number entitles them to beside this
/// many connections.
pub fn fair_share(connections: u64) -> f64 {
    OTHER_CLIENTS as f64 / (OTHER_CLIENTS + connections) as f64
}

/// Replies are not waited for: what is open at the end counts with its age.
const BRIEF: &str = "--drain 0.05";

pub fn experiment(catalogue: &Catalogue, _: &Plan) -> Experiment {
    let midi = catalogue.midi_port(MIDI, 2).on(Cores::Shared).with("--enable-debug-command yes");
    let stock = catalogue.redis().named(STOCK).on(Cores::Shared).with("--enable-debug-command yes");
    let in_turn = |point: &str, attack: &Attack, load: Option<Load>| {
        [(&midi, "MIDI.POPULATE"), (&stock, "DEBUG POPULATE")]
            .map(|(server, populate)| leg(server, populate, point, attack, load.clone()))
    };
    let mut legs: Vec<Leg> = in_turn(ALONE, &HARMLESS, None).into();
    for (connections, depth) in SHAPES {
        for attack in std::iter::once(&HARMLESS).chain(&ATTACKS) {
            let load = attack.load(connections, depth);
            legs.extend(in_turn(&attack.point(connections), attack, Some(load)));
        }
    }
    Experiment {
        number: 7,
        name: NAME,
        title: "Hostile clients",
        question: "What does one client's flood do to everybody else?",
        about: "Floods of 2 connections at \
                pipeline 1000 and of 300 at pipeline 100, less where a command is long (64 MiB are \
                in flight at most) or a stranger's (100). Beside each, 1000 PINGs a second on one \
                connection to the host's port, as an open loop, and GETs of 10 other clients of \
                the attacked port. Those by nobody know no password and go to the host's port, the \
                others to midi's. A fresh server each time, all cores shared with the load; its \
                memory's growth is that of the highest resident size. What is not answered at the \
                end counts with its age, so a latency close to the length of a round is a lower \
                bound.",
        points: "flood",
        least_seconds: 0.0,
        servers: Vec::new(),
        data: Vec::new(),
        legs,
    }
}

fn leg(server: &Spec, populate: &str, point: &str, attack: &Attack, load: Option<Load>) -> Leg {
    let ping = Load::new(PING, "PING")
        .through(Door::Host)
        .saying_first(HARMLESS.login)
        .saying_first(attack.observer)
        .with("--connections 1 --pipeline 10000")
        .with(BRIEF)
        .rate(Rate::Fixed(1000.0));
    let others = Load::new(OTHERS, "GET {key}")
        .saying_first(HARMLESS.login)
        .with(&format!("--connections {OTHER_CLIENTS} --keys {KEYS} {BRIEF}"));
    // The password is set last: after that only clients that send it are let in.
    let before = [
        &format!("{populate} {KEYS} key 64"),
        &format!("ACL SETUSER mallory on >{SECRET} +@all ~none"),
        attack.before,
        &format!("CONFIG SET requirepass {SECRET}"),
    ];
    Leg {
        series: server.name.clone(),
        point: point.into(),
        on: On::Fresh(Box::new(server.clone())),
        before: before.iter().filter(|line| !line.is_empty()).map(ToString::to_string).collect(),
        work: Work::Growth(load.into_iter().chain([ping, others]).collect()),
    }
}
