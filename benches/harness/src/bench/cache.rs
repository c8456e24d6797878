//! Servers as caches: what a client finds there that stores what it misses.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::{Bench, Load, Rate, Running, shown};
use crate::load::Protocol;
use crate::process::{Usage, on_processors};
use crate::replay::books::{Books, HOST_LIMIT, MIDI_LIMIT};
use crate::replay::{Found, Shape};
use crate::results::{Metric, Outcome, Round};
use crate::server::{Door, Kind, Server};

/// The part of the requests that found their value.
pub const HITS: &str = "hit ratio";
/// Values not stored for want of memory.
pub const OUT_OF_MEMORY: &str = "OOM errors";
/// The keys at the end.
pub const KEYS: &str = "keys held";
/// The memory that the limit counts, over the limit.
pub const USED: &str = "used memory over the limit";
/// The same as a difference.
pub const ABOVE: &str = "used memory above the limit, bytes";
/// What the process has grown by since it was empty, over the limit.
pub const RESIDENT: &str = "growth of resident memory over the limit";
/// The client's speed.
pub const SPEED: &str = "requests a second";
/// The limit, where it is chosen during the run.
pub const LIMIT: &str = "limit, MiB";
/// The host's own keys that are gone at the end.
pub const NATIVE_LOST: &str = "native keys lost";

/// The role of the host's own clients meanwhile.
pub const NATIVE: &str = "native GET";
/// The role of SETs while the server is full.
pub const AT: &str = "SET at the limit";
/// The role of SETs while it is not.
pub const BELOW: &str = "SET below the limit";

/// A server that has just started still takes memory for itself, which is no part of a limit.
const SETTLED: std::time::Duration = std::time::Duration::from_millis(200);

/// A trace replayed on a server.
#[derive(Clone)]
pub struct Cache {
    /// The rule for the requests.
    pub shape: Shape,
    /// The keys that they are for.
    pub keys: u64,
    /// Through which door.
    pub door: Door,
    /// What stands before GET and SET.
    pub prefix: &'static str,
    /// Requests before those that count, and those.
    pub requests: (u64, u64),
    /// The limit.
    pub limit: Limit,
    /// The policy, and the setting with its name; memcached has one policy.
    pub policy: Option<(&'static str, &'static str)>,
    /// So many keys of the host's own are there first.
    pub native_keys: u64,
}

/// The limit of a cache.
#[derive(Clone)]
pub enum Limit {
    /// Bytes; the setting with them, if it is not a setting of the start.
    Bytes(u64, Option<&'static str>),
    /// What midi needs for as many keys as the first series had at this point, by what its second
    /// series had in so many bytes.
    KeysOf(String, &'static str, u64),
}

/// SETs of new keys to a server that is full, and to one that is not.
#[derive(Clone)]
pub struct Sets {
    /// Stores a key.
    pub set: Load,
    /// How many.
    pub keys: u64,
    /// The setting with the limit, and the limit.
    pub limit: (&'static str, u64),
    /// The policy, and the setting with its name.
    pub policy: (&'static str, &'static str),
}

impl Bench {
    /// Replays a trace.
    pub(super) fn cache(
        &self,
        what: &Cache,
        server: &Server,
        so_far: &Outcome,
        round: &mut Round,
    ) -> Result<()> {
        let (bytes, setting) = limit_of(&what.limit, so_far, round)?;
        let mut books = open(server, setting.unwrap_or_default())?;
        std::thread::sleep(SETTLED);
        let empty = Usage::of(&server.pids())?.rss_bytes;
        let limit = setting.map(|setting| (setting, bytes.to_string()));
        let policy = what.policy.map(|(setting, policy)| (setting, policy.to_owned()));
        for (setting, value) in limit.into_iter().chain(policy) {
            books.set(setting, &value)?;
            round.commands.push(format!("CONFIG SET {setting} {value}"));
        }
        let found = match what.native_keys {
            0 => self.replay(what, server, round)?,
            keys => self.replay_beside_native(what, keys, server, so_far, round)?,
        };
        let grown = Usage::of(&server.pids())?.rss_bytes.saturating_sub(empty);
        let (used, limit) = (books.used()? as f64, bytes as f64);
        let mut figure = |name: &str, value| {
            round.figures.insert(name.into(), value);
        };
        figure(HITS, found.hit_ratio());
        figure(OUT_OF_MEMORY, found.out_of_memory as f64);
        figure(KEYS, books.keys()? as f64);
        figure(RESIDENT, grown as f64 / limit);
        figure(SPEED, found.requests_per_second);
        // memcached counts items alone, and its limit whole pages of them.
        if server.spec.kind != Kind::Memcached {
            figure(USED, used / limit);
            figure(ABOVE, used - limit);
        }
        if matches!(what.limit, Limit::KeysOf(..)) {
            figure(LIMIT, limit / f64::from(1 << 20));
        }
        if what.native_keys > 0 {
            let left = books.keys_of_host()?;
            figure(NATIVE_LOST, what.native_keys.saturating_sub(left) as f64);
        }
        Ok(())
    }

    /// The host evicts when its own clients send something.
    fn replay_beside_native(
        &self,
        what: &Cache,
        keys: u64,
        server: &Server,
        so_far: &Outcome,
        round: &mut Round,
    ) -> Result<Found> {
        let native = |role, command| {
            let load = Load::new(role, command).through(Door::Host);
            load.with("--value-size 200 --key-prefix native:")
        };
        round.commands.push(self.fill(server, native("fill", "SET {key} {value}"), keys)?);
        let get = native(NATIVE, "GET {key}").with("--connections 1 --pipeline 1000");
        let get = get.with(&format!("--keys {keys}")).rate(Rate::Fixed(1000.0));
        let running = self.probe(&get, server, so_far, round)?;
        let found = self.replay(what, server, round)?;
        round.commands.push(running.line.clone());
        round.loads.insert(NATIVE.into(), running.finish()?);
        Ok(found)
    }

    fn replay(&self, what: &Cache, server: &Server, round: &mut Round) -> Result<Found> {
        let port = server.ports(what.door)[0];
        let (warmup, requests) = what.requests;
        let mut args: Vec<String> =
            ["replay", "--json", "--trace", what.shape.name()].map(str::to_owned).into();
        args.extend(["--server".into(), format!("127.0.0.1:{port}")]);
        args.extend(["--keys".into(), what.keys.to_string()]);
        args.extend(["--warmup".into(), warmup.to_string()]);
        args.extend(["--requests".into(), requests.to_string()]);
        if !what.prefix.is_empty() {
            args.extend(["--prefix".into(), what.prefix.into()]);
        }
        if server.spec.kind == Kind::Memcached {
            args.extend(["--protocol".into(), "memcached".into()]);
        }
        let line = shown("midi-bench", &args);
        round.commands.push(line.clone());
        if let Some(clock) = server.clock() {
            args.extend(["--clock".into(), clock.display().to_string()]);
        }
        let mut command = Command::new(std::env::current_exe()?);
        command.args(&args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = on_processors(&self.placement.of_load(server.spec.cores), || command.spawn())??;
        Running { child, line }.output()
    }

    /// Sends SETs at the limit, and then far below it.
    pub(super) fn sets(&self, what: &Sets, server: &Server, round: &mut Round) -> Result<()> {
        let (setting, limit) = what.limit;
        let mut books = open(server, setting)?;
        let mut set = |bytes: u64| books.set(setting, &bytes.to_string());
        server.control()?.command(&format!("CONFIG SET {} {}", what.policy.0, what.policy.1))?;
        set(limit)?;
        // As many as fit several times: from here on each SET has to make room.
        self.set_all(&what.set, what.keys / 2, AT, server, round)?;
        self.set_all(&what.set, what.keys, AT, server, round)?;
        // Not 0: the server looks at its memory in both cases.
        set(limit * 100)?;
        books.flush()?;
        self.set_all(&what.set, what.keys, BELOW, server, round)
    }

    fn set_all(
        &self,
        set: &Load,
        keys: u64,
        role: &str,
        server: &Server,
        round: &mut Round,
    ) -> Result<()> {
        let load = set
            .clone()
            .with("--distribution sequential --pipeline 50 --connections 10 --warmup 0")
            .with(&format!("--value-size 200 --keys {keys} --requests {keys} --allow-errors"));
        let running = self.start(&load, server, &[])?;
        round.commands.push(running.line.clone());
        let summary = running.finish()?;
        ensure!(summary.operations == keys, "only {} of {keys} SETs", summary.operations);
        let is_refusal = |error: &String| error.starts_with("OOM");
        ensure!(
            summary.first_error.as_ref().is_none_or(is_refusal),
            "{role}: {:?}",
            summary.first_error
        );
        *round.figures.entry(OUT_OF_MEMORY.into()).or_default() += summary.errors as f64;
        round.loads.insert(role.into(), summary);
        Ok(())
    }
}

/// midi's port knows midi's keys, whichever door the traffic takes.
fn open(server: &Server, limit: &str) -> Result<Books> {
    let address = |door| format!("127.0.0.1:{}", server.ports(door)[0]);
    let protocol = match server.spec.kind {
        Kind::Memcached => Protocol::Memcached,
        _ => Protocol::Resp,
    };
    Books::open(&address(Door::Port), &address(Door::Host), protocol, limit)
}

/// The limit in bytes, and the setting for it.
fn limit_of(limit: &Limit, so_far: &Outcome, round: &Round) -> Result<(u64, Option<&'static str>)> {
    match limit {
        Limit::Bytes(bytes, setting) => Ok((*bytes, *setting)),
        Limit::KeysOf(peer, own, bytes) => {
            let keys = |series: &str| {
                let other = so_far.round(series, &round.point, round.number);
                let keys = other.and_then(|other| other.value("", Metric::Figure(KEYS)));
                keys.with_context(|| format!("{series} was not run before"))
            };
            let bytes = *bytes as f64 * keys(peer)? / keys(own)?.max(1.0);
            Ok((bytes as u64, Some(MIDI_LIMIT)))
        }
    }
}

/// The setting of a limit: midi's own, or that of stock servers.
pub fn setting_of(is_midi: bool) -> &'static str {
    if is_midi { MIDI_LIMIT } else { HOST_LIMIT }
}
