//! Settings: `midi.*` in redis.conf, CONFIG GET, SET and REWRITE, and the
//! arguments of `loadmodule`.

mod arguments;
mod registered;
pub mod table;
pub mod tls;

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use midi_module_api as raw;

use super::api::{Ctx, c_text};
use super::state::BuiltSettings;
use crate::command::Cluster;
use crate::engine::{Config, ListenAt, ListenerRow, PortConfig, Settings, Speaks};
use crate::limits;
use table::{
    LIKE_THE_HOST, MAXMEMORY_POLICY, NUMBERS, PROTECTED, SAFEMODE, SWITCHES, file_mode, named,
    numbered, wants_io_uring, written,
};

/// Reads the load arguments, registers all settings with those as defaults, and lets the host set
/// what its configuration file names. So what CONFIG REWRITE wrote there wins over the load
/// arguments. `built` keeps the settings before any load.
///
/// # Errors
/// The fault, for the host's log.
pub fn load(ctx: Ctx<'_>, args: &[&[u8]], built: &OnceLock<BuiltSettings>) -> Result<(), String> {
    table::reset(built);
    ask_host_for_defaults(ctx);
    arguments::read(args)?;
    if !registered::register(ctx) || !registered::read_file(ctx) {
        return Err("a midi.* setting in the configuration file is not valid".into());
    }
    let shards = NUMBERS[1].value.load(Ordering::Relaxed);
    if shards & (shards - 1) != 0 {
        return Err(format!("midi.shards must be a power of two, not {shards}"));
    }
    Ok(())
}

/// Takes the host's current values as defaults of the settings that the port shares with it.
fn ask_host_for_defaults(ctx: Ctx<'_>) {
    for (name, default) in LIKE_THE_HOST {
        let value = ctx.config_number(&c_text(name)).unwrap_or(default);
        numbered(name).value.store(value, Ordering::Relaxed);
    }
    *named(MAXMEMORY_POLICY).value.lock() = "host".into();
    let protected = ctx.config_text(&c_text(PROTECTED.name));
    PROTECTED.value.store(protected.is_none_or(|value| value != b"no"), Ordering::Relaxed);
}

fn is_cluster(ctx: Ctx<'_>) -> bool {
    ctx.flags() & raw::REDISMODULE_CTX_FLAGS_CLUSTER != 0
}

/// How many databases the host has, and whether and how it is a cluster.
pub fn databases(ctx: Ctx<'_>) -> (u32, Cluster) {
    let number = |name| ctx.config_number(name).and_then(|count| u32::try_from(count).ok());
    let count = number(c"databases").unwrap_or_else(|| count_databases(|db| ctx.has_db(db)));
    match number(c"cluster-databases") {
        _ if !is_cluster(ctx) => (count, Cluster::Off),
        // A Valkey that does not report it may have more: their keys stay where they are.
        None => (count, Cluster::OneDatabase),
        // Valkey from 9 on.
        Some(count) => (count, Cluster::ManyDatabases),
    }
}

/// The lowest number without a database. 0 has one.
fn count_databases(exists: impl Fn(u32) -> bool) -> u32 {
    let (mut last, mut beyond) = (0, 1);
    while beyond < i32::MAX as u32 / 2 && exists(beyond) {
        (last, beyond) = (beyond, beyond * 2);
    }
    while beyond - last > 1 {
        let middle = last + (beyond - last) / 2;
        if exists(middle) { last = middle } else { beyond = middle }
    }
    beyond
}

/// How many shards so many workers need.
fn shards_for(workers: usize) -> usize {
    let most = *limits::SHARDS.end() as usize;
    let needed = (workers * limits::SHARDS_PER_WORKER).next_power_of_two();
    needed.clamp(limits::SHARDS_LEAST, most)
}

/// The engine's configuration.
pub fn engine_config(databases: u32, cluster: Cluster) -> Config {
    let [threads, shards] = [0, 1].map(|at| NUMBERS[at].value.load(Ordering::Relaxed) as usize);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = if threads == 0 { cores } else { threads };
    Config {
        workers,
        shards: if shards == 0 { shards_for(workers) } else { shards },
        databases,
        cluster,
        safemode: SAFEMODE.value.load(Ordering::Relaxed),
        clock: super::api::clock_ms,
    }
}

/// The settings that can change later, with their current values.
pub fn settings() -> Settings {
    let settings = Settings::default();
    for number in &NUMBERS {
        if let Some(live) = number.live {
            live(&settings).store(number.value.load(Ordering::Relaxed) as usize, Ordering::Relaxed);
        }
    }
    for switch in SWITCHES {
        if let Some(live) = switch.live {
            live(&settings).store(switch.value.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
    settings
}

/// Why the TCP port is not opened: the host listens on no address itself.
pub const NO_ADDRESS: &str = "the server's bind is empty, and midi.bind is not set";

/// A TCP port that is asked for and has no address.
pub fn port_without_address(ports: &PortConfig) -> Option<&'static str> {
    let has_tcp = ports.listeners.iter().any(|row| matches!(row.at, ListenAt::Tcp { .. }));
    tcp_ports().next().filter(|_| !has_tcp).map(|(setting, ..)| setting)
}

/// The settings of TCP ports: whether they speak TLS, and their protocol.
const TCP_PORTS: [(&str, bool, Speaks); 4] = [
    ("port", false, Speaks::Resp),
    ("tls-port", true, Speaks::Resp),
    ("memcached-port", false, Speaks::Memcached),
    ("memcached-tls-port", true, Speaks::Memcached),
];

/// The settings of Unix sockets, and the protocol of each.
const UNIX_SOCKETS: [(&str, Speaks); 2] =
    [("unixsocket", Speaks::Resp), ("memcached-unixsocket", Speaks::Memcached)];

/// The TCP ports that are asked for: the setting, the number, whether it speaks TLS, the protocol.
fn tcp_ports() -> impl Iterator<Item = (&'static str, u16, bool, Speaks)> {
    let number = |name| numbered(name).value.load(Ordering::Relaxed) as u16;
    let all = TCP_PORTS.into_iter();
    let all = all.map(move |(name, is_tls, speaks)| (name, number(name), is_tls, speaks));
    all.filter(|(_, port, ..)| *port != 0)
}

/// Whether any of them speaks TLS.
fn speak_tls() -> bool {
    tcp_ports().any(|(_, _, is_tls, _)| is_tls)
}

/// How to open the ports.
pub fn port_config(ctx: Ctx<'_>) -> PortConfig {
    let own = written("bind");
    let bind = if own.trim().is_empty() { bind_of_host(ctx) } else { own };
    let bind: Vec<String> = bind.split_ascii_whitespace().map(str::to_owned).collect();
    let mut listeners = Vec::new();
    for (setting, port, is_tls, speaks) in tcp_ports().filter(|_| !bind.is_empty()) {
        let at = ListenAt::Tcp { port, bind: bind.clone() };
        listeners.push(ListenerRow { setting, at, is_tls, speaks });
    }
    for (setting, speaks) in UNIX_SOCKETS {
        let path = written(setting);
        if !path.is_empty() {
            let mode = file_mode(&written("unixsocketperm")).unwrap_or(0);
            let at = ListenAt::Unix { path, mode };
            listeners.push(ListenerRow { setting, at, is_tls: false, speaks });
        }
    }
    let obstacle = if tcp_ports().next().is_none() && listeners.is_empty() {
        None
    } else if is_cluster(ctx) {
        Some("cluster-enabled is yes, and midi's ports do not support cluster mode")
    } else {
        listeners.is_empty().then_some(NO_ADDRESS)
    };
    PortConfig {
        listeners,
        backlog: ctx
            .config_number(c"tcp-backlog")
            .and_then(|backlog| i32::try_from(backlog).ok())
            .unwrap_or(511),
        tls: speak_tls().then(|| tls::settings(ctx)),
        uses_io_uring: wants_io_uring(),
        obstacle,
    }
}

/// The host's `bind`. If the host does not report it, the port must not be reachable from
/// elsewhere.
fn bind_of_host(ctx: Ctx<'_>) -> String {
    let text = ctx.config_text(c"bind");
    text.map_or_else(|| "127.0.0.1 -::1".into(), |text| String::from_utf8_lossy(&text).into_owned())
}

/// Whether the host's `appendfsync` is `always`, or may be. If the host does not report it, its
/// configuration file does not tell either: arguments of its command line come after the file, and
/// the host has overwritten them with its title by now.
pub fn syncs_always(ctx: Ctx<'_>) -> bool {
    let policy = ctx.config_text(c"appendfsync");
    let policy = policy.unwrap_or_else(|| assumed_policy().into_bytes());
    policy != b"everysec" && policy != b"no"
}

/// The policy that midi assumes if the host does not report its `appendfsync`.
pub fn assumed_policy() -> String {
    let assumed = written("assume-appendfsync");
    if assumed.is_empty() { "always".into() } else { assumed }
}

/// Whether the host reports its settings: CONFIG may have been renamed.
pub fn are_told(ctx: Ctx<'_>) -> bool {
    ctx.config_text(c"bind").is_some()
}

#[cfg(test)]
mod tests {
    use super::shards_for;

    #[test]
    fn shards_grow_with_the_workers() {
        let shards = [1, 2, 3, 16, 64, 256].map(shards_for);
        assert_eq!(shards, [1024, 1024, 2048, 8192, 32_768, 65_536]);
    }
}
