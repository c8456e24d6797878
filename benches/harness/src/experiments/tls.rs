//! TLS: commands and new connections, on midi's TLS port and the hosts' own; and what many
//! handshakes do to the host's other clients.

use super::{Mix, native_data};
use crate::bench::{Experiment, Leg, Load, On, Plan, Rate, Work};
use crate::server::{Catalogue, Cores, Door, PORT, Spec};

/// The name of the experiment with commands and connections.
pub const NAME: &str = "tls";
/// The name of the experiment with handshakes beside PING.
pub const HANDSHAKES: &str = "tls-handshakes";
/// The series of midi's TLS port.
pub const MIDI: &str = "midi TLS port";
/// The series of the stock server that midi is loaded into otherwise.
pub const STOCK: &str = "redis";

/// The mixes.
pub const MIXES: [Mix; 2] = [Mix::Get, Mix::Set];
/// Pipeline depths.
pub const DEPTHS: [u64; 2] = [1, 10];
/// Connections that send one PING each; and those that resume a session.
pub const CONNECTIONS: [(&str, &str); 2] =
    [("new connections", "--no-resumption"), ("resumed connections", "")];

/// The point of the handshakes.
pub const STORM: &str = "10,000 handshakes";
/// The clients of the host's plain port.
pub const PING: &str = "PING";

/// The hosts with their own TLS ports.
fn peers(catalogue: &Catalogue) -> impl Iterator<Item = Spec> {
    let stock = catalogue.stock().into_iter();
    stock.map(|peer| peer.over_tls().with(&format!("--tls-port {PORT}")))
}

pub fn experiment(catalogue: &Catalogue, plan: &Plan) -> Experiment {
    let servers: Vec<Spec> =
        [catalogue.midi_tls_port(MIDI, 1)].into_iter().chain(peers(catalogue)).collect();
    let mut legs = Vec::new();
    for mix in MIXES {
        for depth in DEPTHS {
            let load = |server: &Spec| {
                mix.load(server.kind, "").with(&format!("--pipeline {depth} --keys {}", plan.keys))
            };
            let leg = |server: &Spec| {
                Leg::new(&server.name, &mix.point(depth), &server.name, vec![load(server)])
            };
            legs.extend(servers.iter().map(leg));
        }
    }
    for (point, args) in CONNECTIONS {
        let load = Load::new("load", "PING").with("--reconnect").with(args);
        let leg = |server: &Spec| Leg::new(&server.name, point, &server.name, vec![load.clone()]);
        legs.extend(servers.iter().map(leg));
    }
    Experiment {
        number: 8,
        name: NAME,
        title: "TLS",
        question: "How much CPU time do commands and handshakes cost over TLS?",
        about: "GET and SET of 64-byte values, uniform keys, 50 connections, and clients that \
                connect, send one PING and close, 50 at a time; TLS 1.3, certificates on P-256, \
                which the load generator does not check. Beside the hosts' own TLS ports. Server \
                and load on cores of their own; midi's port has one worker.",
        points: "load",
        least_seconds: 0.0,
        data: servers.iter().map(|server| native_data(server, plan.keys)).collect(),
        servers,
        legs,
    }
}

pub fn handshakes(catalogue: &Catalogue, _: &Plan) -> Experiment {
    let storm = Load::new("load", "PING").with("--reconnect --no-resumption --connections 200");
    let ping = Load::new(PING, "PING")
        .through(Door::Host)
        .with("--connections 1 --pipeline 10000")
        .rate(Rate::Fixed(1000.0));
    let servers = [catalogue.midi_tls_port(MIDI, 2)].into_iter().chain(peers(catalogue));
    let legs = servers.map(|server| Leg {
        series: server.name.clone(),
        point: STORM.into(),
        on: On::Fresh(Box::new(server.on(Cores::Shared))),
        before: Vec::new(),
        work: Work::Beside(storm.clone(), 10_000, ping.clone()),
    });
    Experiment {
        number: 8,
        name: HANDSHAKES,
        title: "Handshakes beside PING",
        question: "What do 10,000 TLS handshakes do to the host's other clients?",
        about: "10,000 clients connect to the TLS port, 200 at a time, send one PING and close. \
                Meanwhile 1000 PINGs a second on one connection to the host's plain port, as an \
                open loop. midi has two workers. A fresh server each time, all cores shared with \
                the load.",
        points: "load",
        least_seconds: 0.0,
        servers: Vec::new(),
        data: Vec::new(),
        legs: legs.collect(),
    }
}
