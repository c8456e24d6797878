//! Snapshots: what BGSAVE costs beside a load, and how fast a restart is; with and without huge
//! pages. And the pauses of many forks.

use super::{Mix, set_command};
use crate::bench::snapshot::{Forks, Snapshot};
use crate::bench::{Experiment, How, Leg, Load, On, Plan, Rate, Work};
use crate::server::{Catalogue, Cores, Spec};

/// The experiment's name in results.
pub const NAME: &str = "snapshots";
/// The series of midi's port.
pub const MIDI: &str = "midi port, 2 workers";
/// The stock server's.
pub const STOCK: &str = "redis";

/// The data whose values LZF, which the host compresses files with, makes no shorter.
pub const RANDOM: &str = "random values";
/// The data whose values are mostly zeros.
pub const ZEROS: &str = "compressible values";

/// Commands a second beside a BGSAVE.
const WRITES: f64 = 20_000.0;
/// The keys of the server that forks many times.
const FEW_KEYS: u64 = 100_000;

/// Shards of that server.
pub const SHARDS: [u32; 2] = [1024, 65_536];

/// The point of many forks with this many shards.
pub fn forks(shards: u32) -> String {
    format!("forks, {shards} shards")
}

pub fn experiment(catalogue: &Catalogue, plan: &Plan) -> Experiment {
    let midi = || catalogue.midi_port(MIDI, 2).on(Cores::Shared);
    let stock = || catalogue.redis().named(STOCK).on(Cores::Shared);
    let mut legs = Vec::new();
    for point in [RANDOM, ZEROS] {
        legs.push(leg(midi(), "MIDI.POPULATE", point, plan));
        legs.push(leg(stock(), "DEBUG POPULATE", point, plan));
    }
    for (server, populate) in [(midi(), "MIDI.POPULATE"), (stock(), "DEBUG POPULATE")] {
        let name = format!("{}, huge pages", server.name);
        let server = server.named(&name).with_env("MALLOC_CONF", "thp:always");
        legs.push(leg(server.with("--disable-thp no"), populate, ZEROS, plan));
    }
    legs.extend(SHARDS.map(|shards| {
        let server = midi().named(&format!("{MIDI}, {shards} shards"));
        Leg {
            series: MIDI.into(),
            point: forks(shards),
            on: On::Fresh(Box::new(server.with(&format!("shards {shards}")))),
            before: Vec::new(),
            work: Work::Forks(Forks {
                fill: format!("MIDI.POPULATE {FEW_KEYS} key 64"),
                load: Mix::Both
                    .load(crate::server::Kind::Redis, "")
                    .with(&format!("--keys {FEW_KEYS}")),
                count: if plan.quick { 10 } else { 200 },
            }),
        }
    }));
    Experiment {
        number: 6,
        name: NAME,
        title: "Snapshots",
        question: "What does a snapshot cost, and how fast is a restart?",
        about: "Keys `key:N` with values of 64 bytes: random letters, which LZF makes no shorter, \
                or MIDI.POPULATE's, mostly zeros. 20,000 SETs a second, an open loop, run alone \
                and beside a BGSAVE. Added memory is what server and child take together at the \
                peak (PSS), above what the server took before. A restart counts from the start of \
                the program until host and port answer PING; the file is in the page cache. Huge \
                pages: `MALLOC_CONF=thp:always` where the kernel says `madvise`. Forks: 200 \
                BGSAVEs of 100,000 keys beside 50 connections with SET and GET; midi's part of the \
                pause is `midi_last_fork_pause_usec` of INFO, and the host's fork() contains it. \
                Each time a fresh server, all cores shared with the load.",
        points: "data",
        least_seconds: if plan.quick { 0.5 } else { 2.0 },
        servers: Vec::new(),
        data: Vec::new(),
        legs,
    }
}

fn leg(server: Spec, populate: &str, point: &str, plan: &Plan) -> Leg {
    let (keys, server) = (plan.populate, server.with("--enable-debug-command yes"));
    let set = set_command(server.kind);
    let fill = match point {
        RANDOM => How::Each(Load::new("fill", set), keys),
        _ => How::Once(format!("{populate} {keys} key 64")),
    };
    Leg {
        series: server.name.clone(),
        point: point.into(),
        on: On::Fresh(Box::new(server)),
        before: Vec::new(),
        work: Work::Snapshot(Snapshot {
            fill,
            load: Load::new("load", set)
                .with(&format!("--connections 10 --pipeline 10000 --keys {keys}"))
                .rate(Rate::Fixed(WRITES)),
        }),
    }
}
