//! Light beside heavy: short commands while long ones run.

use super::{midi_data, native_data};
use crate::bench::{Experiment, Leg, Load, Plan, Rate};
use crate::server::{Catalogue, Cores, Kind, Spec};

/// The experiment's name in results.
pub const NAME: &str = "light-beside-heavy";

/// Light commands, by their names at the points.
pub const LIGHT: [(&str, &str); 2] = [("GET", "GET {key}"), ("MGET of 500", "MGET {key}*500")];

/// The pattern of the heavy commands: a fifth of the keys 0 to 999,999.
pub const HEAVY: &str = "KEYS key:*[37]";

/// The open loop's rate for light, as a part of its undisturbed rate.
pub const OFFERED: f64 = 0.4;

/// The points of one kind of light load.
pub struct Points {
    /// Light without heavy.
    pub alone: String,
    /// Light beside heavy.
    pub together: String,
    /// The same with light as an open loop.
    pub offered: String,
}

/// See [`Points`].
pub fn points(light: &str) -> Points {
    Points {
        alone: format!("{light} alone"),
        together: format!("{light} beside"),
        offered: format!("{light} beside, open loop"),
    }
}

/// The point of heavy without light.
pub const HEAVY_ALONE: &str = "heavy alone";

/// Modes: the series, and the server.
pub const STOCK: &str = "stock";
/// See [`STOCK`].
pub const ADAPTIVE: &str = "adaptive";
/// See [`STOCK`].
pub const POOL: &str = "pool";
/// See [`STOCK`].
pub const SAFEMODE: &str = "SAFEMODE";

pub fn experiment(catalogue: &Catalogue, plan: &Plan) -> Experiment {
    let stock = catalogue.redis().named(STOCK).on(Cores::Shared);
    let midi = catalogue.midi("midi").on(Cores::Shared);
    let safe = catalogue.midi(SAFEMODE).with("SAFEMODE").on(Cores::Shared);
    // A second server that can run the same commands; memcached has no KEYS.
    let peers: Vec<Spec> = catalogue
        .peers()
        .into_iter()
        .filter(|peer| peer.name != "redis" && peer.kind != Kind::Memcached)
        .map(|peer| peer.on(Cores::Shared))
        .collect();

    let mut legs = series(STOCK, &stock, "", "");
    legs.extend(series(ADAPTIVE, &midi, "MIDI.", "CONFIG SET midi.dispatch adaptive"));
    legs.extend(series(POOL, &midi, "MIDI.", "CONFIG SET midi.dispatch pool"));
    legs.extend(series(SAFEMODE, &safe, "MIDI.", ""));
    legs.extend(peers.iter().flat_map(|peer| series(&peer.name, peer, "", "")));

    let mut data = vec![
        native_data(&stock, plan.keys),
        midi_data(&midi, plan.keys),
        midi_data(&safe, plan.keys),
    ];
    data.extend(peers.iter().map(|peer| native_data(peer, plan.keys)));
    let mut servers = vec![stock, midi, safe];
    servers.extend(peers);
    Experiment {
        number: 2,
        name: NAME,
        title: "Light commands beside heavy ones",
        question: "How much do heavy commands slow light ones down?",
        about: "Heavy: 5 connections run KEYS for a pattern that returns 200,000 of 1 M keys. \
                Light: 10 connections run single GETs, or MGETs of 500 keys. First apart, then at \
                the same time; all cores shared with the load. Open loop: light is sent at 40 % of \
                the rate it had alone, whatever the server does, and a latency counts from when \
                the command was due; what the load generator itself was late, because the servers \
                had the cores, is in it, and told beside it.",
        points: "load",
        // A serial server answers all heavy clients at once, after more than two seconds.
        least_seconds: if plan.quick { 1.0 } else { 3.0 },
        servers,
        data,
        legs,
    }
}

fn series(name: &str, server: &Spec, prefix: &str, before: &str) -> Vec<Leg> {
    let heavy = || Load::new("heavy", &format!("{prefix}{HEAVY}")).with("--connections 5");
    let leg = |point: &str, loads: Vec<Load>| {
        let leg = Leg::new(name, point, &server.name, loads);
        if before.is_empty() { leg } else { leg.after(before) }
    };
    let mut legs = vec![leg(HEAVY_ALONE, vec![heavy()])];
    for (light, command) in LIGHT {
        let load = || Load::new("light", &format!("{prefix}{command}")).with("--connections 10");
        let points = points(light);
        legs.push(leg(&points.alone, vec![load()]));
        legs.push(leg(&points.together, vec![heavy(), load()]));
        legs.push(leg(
            &points.offered,
            vec![
                heavy(),
                load().with("--pipeline 100").rate(Rate::PartOf(points.alone.clone(), OFFERED)),
            ],
        ));
    }
    legs
}
