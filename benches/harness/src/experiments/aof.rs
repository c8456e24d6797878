//! Durable writes: the host's AOF, through each door.

use crate::bench::durable::AofRestart;
use crate::bench::{Experiment, Fill, How, Leg, Load, On, Plan, Work};
use crate::server::{Catalogue, Cores, Spec};

/// The experiment's name in results.
pub const NAME: &str = "aof";
/// The series of midi's port.
pub const MIDI: &str = "midi port, 2 workers";
/// The series of midi's commands on the host's port.
pub const HOST_DOOR: &str = "midi host door";
/// The stock server's.
pub const STOCK: &str = "redis";
/// The series of the disk alone.
pub const DISK: &str = "write and fdatasync";

/// When the host has its AOF on the disk.
pub const POLICIES: [&str; 2] = ["always", "everysec"];
/// Bytes of a value.
pub const SIZES: [u64; 2] = [100, 6000];
/// SETs and GETs.
pub const MIXES: [&str; 3] = ["1:1", "1:9", "9:1"];

/// Keys with the large values.
const FEW_KEYS: u64 = 20_000;

/// The point of a mix under load.
pub fn point(policy: &str, size: u64, mix: &str) -> String {
    format!("{policy} {size} B, {mix}")
}

/// The point of the search for the most commands at a low latency.
pub fn quick(size: u64, mix: &str) -> String {
    format!("mean below 1 ms {size} B, {mix}")
}

/// The point of SETs alone.
pub fn sets(policy: &str) -> String {
    point(policy, 100, "SET")
}

/// The point without pipelining.
pub const UNPIPELINED: &str = "everysec 100 B, 1:1, pipeline 1";
/// The point of one connection that waits for each reply.
pub const ONE: &str = "always 100 B, SET, one connection";
/// The point beside a rewrite.
pub const REWRITE: &str = "always 100 B, 1:1, beside BGREWRITEAOF";
/// The point of the restarts.
pub const RESTART: &str = "restart, 64 B";

pub fn experiment(catalogue: &Catalogue, plan: &Plan) -> Experiment {
    let servers =
        [catalogue.redis().named(STOCK), catalogue.midi(HOST_DOOR), catalogue.midi_port(MIDI, 2)]
            .map(with_aof);
    let keys = plan.keys;
    let data = servers.iter().map(|server| {
        let load = set(server).with("--value-size 100");
        Fill { server: server.name.clone(), how: How::Each(load, keys) }
    });
    Experiment {
        number: 4,
        name: NAME,
        title: "Durable writes",
        question: "What do writes cost that are in the AOF before they are acknowledged?",
        about: "SET and GET through the host's AOF, with `appendfsync always` and `everysec`; the \
                mixes are SETs to GETs, keys uniform. One load thread, 70 connections, pipeline \
                20, 1 M keys with values of 100 bytes or 20,000 keys with values of 6000; all \
                cores shared with the load. Below 1 ms: `always`, the most connections of at most \
                70 whose mean latency is below 1 ms, and the commands a second there. One \
                connection: beside it a loop of write() and fdatasync() of as many bytes, in the \
                same file system. Beside BGREWRITEAOF: from its start to the end of its child. A \
                library in front of the server's fsyncs counts those of the AOF. Restart: 10 M \
                keys with values of 64 bytes, kill -9, and the time until host and port answer \
                PING; first with all keys in increments, then with all in a base; the files are \
                in the page cache. Automatic rewrites are off.",
        points: "policy and load",
        least_seconds: 0.0,
        data: data.collect(),
        legs: legs(&servers, plan),
        servers: servers.into(),
    }
}

/// On all cores, with an AOF from the start.
fn with_aof(server: Spec) -> Spec {
    let server = server.with("--appendonly yes --appendfsync always");
    server.with("--auto-aof-rewrite-percentage 0").on(Cores::Shared).counting_fsyncs()
}

fn prefix(server: &Spec) -> &'static str {
    if server.name == HOST_DOOR { "MIDI." } else { "" }
}

fn set(server: &Spec) -> Load {
    Load::new("load", &format!("{}SET {{key}} {{value}}", prefix(server)))
}

/// SETs and GETs as the name of the mix says.
fn mixed(server: &Spec, mix: &str) -> Load {
    let get = format!("{}GET {{key}}", prefix(server));
    set(server).and(&get).with(&format!("--weights {}", mix.replace(':', ",")))
}

fn legs(servers: &[Spec], plan: &Plan) -> Vec<Leg> {
    // Each point with all servers in turn: what is compared runs close together.
    let mut legs = Vec::new();
    for size in SIZES {
        for policy in POLICIES {
            for mix in MIXES {
                legs.extend(
                    servers.iter().map(|server| under_load(server, policy, size, mix, plan)),
                );
            }
        }
        for mix in MIXES {
            legs.extend(servers.iter().map(|server| quickest(server, size, mix, plan)));
        }
    }
    let on = |server: &Spec, policy: &str, point: &str, work: Work| {
        let leg = Leg { work, ..Leg::new(&server.name, point, &server.name, Vec::new()) };
        leg.after(&format!("CONFIG SET appendfsync {policy}"))
    };
    let keys = format!("--keys {} --value-size 100", plan.keys);
    for server in servers {
        for policy in POLICIES {
            let load = set(server).with(IN_FLIGHT).with(&keys);
            legs.push(on(server, policy, &sets(policy), Work::Loads(vec![load])));
        }
    }
    for server in servers {
        let load = mixed(server, "1:1").with("--connections 50").with(&keys);
        legs.push(on(server, "everysec", UNPIPELINED, Work::Loads(vec![load])));
    }
    legs.push(disk_alone());
    for server in servers {
        let load = set(server).with("--connections 1").with(&keys);
        legs.push(on(server, "always", ONE, Work::Loads(vec![load])));
    }
    for server in servers {
        let load = mixed(server, "1:1").with(IN_FLIGHT).with(&keys);
        legs.push(on(server, "always", REWRITE, Work::Rewrite(load)));
    }
    legs.extend(servers.iter().filter(|server| server.name != HOST_DOOR).map(|server| {
        let work = AofRestart { fill: set(server), keys: plan.populate };
        fresh(server, RESTART, Work::AofRestart(work))
    }));
    legs
}

const PIPELINE: &str = "--pipeline 20";
const IN_FLIGHT: &str = "--connections 70 --pipeline 20";

fn under_load(server: &Spec, policy: &str, size: u64, mix: &str, plan: &Plan) -> Leg {
    let load = mixed(server, mix).with(IN_FLIGHT);
    sized(server, policy, size, &point(policy, size, mix), load, plan, |load| {
        Work::Loads(vec![load])
    })
}

fn quickest(server: &Spec, size: u64, mix: &str, plan: &Plan) -> Leg {
    let load = mixed(server, mix).with(PIPELINE);
    sized(server, "always", size, &quick(size, mix), load, plan, Work::Quick)
}

/// Small values are on the servers that run all the time. Large ones make large AOFs: a server of
/// its own takes its AOF with it.
fn sized(
    server: &Spec,
    policy: &str,
    size: u64,
    point: &str,
    load: Load,
    plan: &Plan,
    work: impl FnOnce(Load) -> Work,
) -> Leg {
    let load = load.with(&format!("--value-size {size}"));
    let leg = if size == SIZES[0] {
        let work = work(load.with(&format!("--keys {}", plan.keys)));
        Leg { work, ..Leg::new(&server.name, point, &server.name, Vec::new()) }
    } else {
        let fill = set(server).with(&format!("--value-size {size}"));
        let work = work(load.with(&format!("--keys {FEW_KEYS}")));
        fresh(server, point, Work::Filled(fill, FEW_KEYS, Box::new(work)))
    };
    leg.after(&format!("CONFIG SET appendfsync {policy}"))
}

fn fresh(server: &Spec, point: &str, work: Work) -> Leg {
    // A name of its own, because its directory has that name.
    let own = server.clone().named(&format!("{}, started for a leg", server.name));
    let on = On::Fresh(Box::new(own));
    Leg { series: server.name.clone(), point: point.into(), on, before: Vec::new(), work }
}

/// As many bytes as a SET has in the AOF.
fn disk_alone() -> Leg {
    let set = "*3\r\n$3\r\nSET\r\n$10\r\nkey:500000\r\n$100\r\n\r\n";
    Leg {
        series: DISK.into(),
        point: ONE.into(),
        on: On::Nothing,
        before: Vec::new(),
        work: Work::RawSyncs(set.len() + 100),
    }
}
