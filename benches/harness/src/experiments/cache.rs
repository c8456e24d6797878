//! Caches: a limit, eviction, and what a client finds.

use crate::bench::cache::{Cache, Limit, Sets, setting_of};
use crate::bench::{Experiment, Leg, Load, On, Plan, Work};
use crate::replay::Shape;
use crate::server::{Catalogue, Door, Kind, Spec};

/// The experiment's name in results.
pub const NAME: &str = "cache";
/// midi's port with the policy that chooses by itself.
pub const AUTO: &str = "midi port, allkeys-auto";
/// The same, with a limit for as many keys as Redis held.
pub const AUTO_EQUAL_KEYS: &str = "midi port, allkeys-auto, as many keys as redis";
/// midi's port with other policies.
pub const LRU: &str = "midi port, allkeys-lru";
const LFU: &str = "midi port, allkeys-lfu";
/// midi's commands on the host's port.
pub const HOST_DOOR: &str = "midi host door, allkeys-auto";
/// midi's port, without a limit of midi's own.
pub const HOST_LIMIT: &str = "midi port, the host's limit and allkeys-lru";
/// memcached.
pub const MEMCACHED: &str = "memcached";

/// The policies of stock servers that are compared.
const POLICIES: [&str; 2] = ["allkeys-lru", "allkeys-lfu"];
/// The setting of midi's policy.
const MIDI_POLICY: &str = "midi.maxmemory-policy";
/// The setting of the host's, which is stock servers', too.
const HOST_POLICY: &str = "maxmemory-policy";

/// The limit of all caches, of a million keys: a sixth of those fits.
const LIMIT: u64 = 50 << 20;
/// One of so many keys is the host's own, where there are such.
const NATIVE_PART: u64 = 50;

/// The points of the traces.
pub const TRACES: [(&str, Shape); 4] = [
    ("Zipf 0.99", Shape::Zipf),
    ("30 % one-hit keys", Shape::OneHit),
    ("drifting hot set", Shape::Drift),
    ("mixed sizes", Shape::Mixed),
];
/// The point of a cache beside the host's own keys.
pub const BESIDE: &str = "Zipf 0.99, beside native keys";
/// The point of SETs.
pub const SETS: &str = "SETs of new keys";

/// Whether this is one of midi's series.
pub fn is_own(series: &str) -> bool {
    series.starts_with("midi")
}

/// The limit for as many keys as this run has.
fn limit(plan: &Plan) -> u64 {
    LIMIT * plan.keys / Plan::FULL.keys
}

pub fn experiment(catalogue: &Catalogue, plan: &Plan) -> Experiment {
    let bytes = limit(plan);
    let midi = catalogue.midi_port("midi", 1);
    let stock = catalogue.stock();
    // Redis 8 is called so; without it, the one that midi is loaded into stands for it.
    let newest = stock.iter().find(|peer| peer.name.contains('8')).unwrap_or(&stock[0]).clone();
    let mut legs = Vec::new();
    for (point, shape) in TRACES {
        for peer in &stock {
            // The oldest one is alike, and there are many legs.
            if peer.name != stock[0].name || peer.name == newest.name || shape == Shape::Zipf {
                legs.extend(POLICIES.map(|policy| of_stock(peer, policy, point, shape, plan)));
            }
        }
        legs.extend(catalogue.memcached.as_deref().map(|path| {
            let spec = Spec::new(MEMCACHED, path).with(&format!("-t 1 -m {}", bytes >> 20));
            leg(spec, point, Cache { limit: Limit::Bytes(bytes, None), ..cache(shape, plan) })
        }));
        let own = |name: &str, policy| {
            let limit = Limit::Bytes(bytes, Some(setting_of(true)));
            let policy = Some((MIDI_POLICY, policy));
            (midi.clone().named(name), Cache { limit, policy, ..cache(shape, plan) })
        };
        for (name, policy) in [(AUTO, "allkeys-auto"), (LRU, "allkeys-lru"), (LFU, "allkeys-lfu")] {
            let (spec, cache) = own(name, policy);
            legs.push(leg(spec, point, cache));
        }
        let (spec, equal) = own(AUTO_EQUAL_KEYS, "allkeys-auto");
        let limit = Limit::KeysOf(series(&newest, POLICIES[0]), AUTO, bytes);
        legs.push(leg(spec, point, Cache { limit, ..equal }));
        if shape == Shape::Zipf {
            let (spec, cache) = own(HOST_DOOR, "allkeys-auto");
            legs.push(leg(spec, point, Cache { door: Door::Host, prefix: "MIDI.", ..cache }));
        }
    }
    legs.push(beside_native(&midi, plan));
    legs.extend(sets(&midi, &stock, plan));
    Experiment {
        number: 9,
        name: NAME,
        title: "Caches",
        question: "How much does a cache of 50 MiB find, and does it keep its limit?",
        about: "A client sends GET and, on a miss, SET: one thread, 4 connections, up to 32 GETs \
                in flight on each. 1 M keys of 16 bytes and values of 200, popularity by Zipf's \
                law; the same, with three of ten requests for keys that never come again; eight of \
                ten requests for a hot set of 100,000 keys that gets another key every 20 \
                requests, two for any key; the first one with values of 50 to 4000 bytes. The same \
                requests for all servers: 2 M to fill the cache, and 2 M that count, once in a \
                run. The limit is `maxmemory`, `midi.maxmemory` or memcached's `-m`. As many keys \
                as redis: the limit is the one with which midi holds what Redis 8 with allkeys-lru \
                holds. Redis's policies count seconds and minutes: a library in front of the clock \
                makes it go as if 40,000 requests came in a second. Resident memory counts from \
                the empty process. Beside 20,000 native keys, of which clients of the host ask for \
                1000 a second: midi has no limit of its own, the host has one. SETs: 1 M new keys, \
                while the server is full, and while it has room. Server and load on cores of their \
                own; midi's port has one worker.",
        points: "trace",
        least_seconds: 0.0,
        servers: Vec::new(),
        data: Vec::new(),
        legs,
    }
}

fn series(peer: &Spec, policy: &str) -> String {
    format!("{}, {policy}", peer.name)
}

fn cache(shape: Shape, plan: &Plan) -> Cache {
    let keys = plan.keys;
    let requests = if plan.quick { (keys, keys / 2) } else { (2 * keys, 2 * keys) };
    let limit = Limit::Bytes(limit(plan), Some(setting_of(false)));
    let (door, prefix, policy, native_keys) = (Door::Port, "", None, 0);
    Cache { shape, keys, door, prefix, requests, limit, policy, native_keys }
}

fn of_stock(peer: &Spec, policy: &'static str, point: &str, shape: Shape, plan: &Plan) -> Leg {
    let spec = peer.clone().named(&series(peer, policy));
    leg(spec, point, Cache { policy: Some((HOST_POLICY, policy)), ..cache(shape, plan) })
}

fn beside_native(midi: &Spec, plan: &Plan) -> Leg {
    let policy = Some((HOST_POLICY, "allkeys-lru"));
    let cache = Cache { policy, native_keys: plan.keys / NATIVE_PART, ..cache(Shape::Zipf, plan) };
    leg(midi.clone().named(HOST_LIMIT), BESIDE, cache)
}

fn leg(spec: Spec, point: &str, cache: Cache) -> Leg {
    // Servers look at their clock as often as their own timer runs.
    let spec = if spec.kind == Kind::Redis { spec.with("--hz 100") } else { spec };
    on(spec.with_own_clock(), point, Work::Cache(cache))
}

fn on(spec: Spec, point: &str, work: Work) -> Leg {
    let series = spec.name.clone();
    Leg { series, point: point.into(), on: On::Fresh(Box::new(spec)), before: Vec::new(), work }
}

fn sets<'a>(midi: &Spec, stock: &'a [Spec], plan: &Plan) -> impl Iterator<Item = Leg> + 'a {
    let (keys, bytes) = (plan.keys, limit(plan));
    let sets = move |spec: Spec, is_midi, policy| {
        let set = Load::new("load", "SET {key} {value}");
        let limit = (setting_of(is_midi), bytes);
        on(spec, SETS, Work::Sets(Sets { set, keys, limit, policy }))
    };
    let own = sets(midi.clone().named(AUTO), true, (MIDI_POLICY, "allkeys-auto"));
    let peers = stock.iter().filter(|peer| peer.kind == Kind::Redis).map(move |peer| {
        let spec = peer.clone().named(&series(peer, POLICIES[0]));
        sets(spec, false, (HOST_POLICY, POLICIES[0]))
    });
    std::iter::once(own).chain(peers)
}
