//! Runs experiments: starts the servers, fills them, and runs the legs in turn, round after
//! round (A B A B), so that disturbances of the machine affect all of them.

pub mod cache;
pub mod durable;
pub mod replica;
pub mod snapshot;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use serde::de::DeserializeOwned;

use self::cache::{Cache, Sets};
use self::durable::AofRestart;
use self::replica::Replica;
use self::snapshot::{Forks, Snapshot};
use crate::load::Summary;
use crate::process::{Usage, on_processors, peak_bytes};
pub use crate::results::Plan;
use crate::results::{Outcome, Round, Series, ServerInfo};
use crate::server::{Cores, Door, Kind, Placement, Server, Spec};

/// An experiment: the servers that it compares, and how.
pub struct Experiment {
    /// The section of the goals it belongs to; `EXP=` selects by it.
    pub number: u32,
    /// One word, for anchors and file names.
    pub name: &'static str,
    /// A headline.
    pub title: &'static str,
    /// Its question, in one sentence.
    pub question: &'static str,
    /// Its way, for readers of the report.
    pub about: &'static str,
    /// The meaning of the points of the plots: "pipeline", "load".
    pub points: &'static str,
    /// Servers that run all the time.
    pub servers: Vec<Spec>,
    /// The data for those servers, filled in once.
    pub data: Vec<Fill>,
    /// The legs, run in turn.
    pub legs: Vec<Leg>,
    /// The shortest meaningful duration of a leg in seconds, also in a quick run.
    pub least_seconds: f64,
}

/// Data for a server.
pub struct Fill {
    /// The server's name.
    pub server: String,
    /// How to fill it in.
    pub how: How,
}

impl Fill {
    /// With additional arguments for its load.
    pub fn add(&mut self, args: &str) {
        if let How::Each(load, _) = &mut self.how {
            *load = load.clone().with(args);
        }
    }
}

/// A way to fill a server with data.
pub enum How {
    /// A load that stores this many keys, each one once.
    Each(Load, u64),
    /// A command that makes all of it.
    Once(String),
}

/// One thing to measure on one server.
pub struct Leg {
    /// A line in the plots.
    pub series: String,
    /// Its place on the other axis.
    pub point: String,
    /// The server.
    pub on: On,
    /// Commands to the server beforehand.
    pub before: Vec<String>,
    /// The measurement.
    pub work: Work,
}

impl Experiment {
    /// Keeps these legs, and the servers that they need.
    pub fn retain(&mut self, is_wanted: impl FnMut(&Leg) -> bool) {
        self.legs.retain(is_wanted);
        let legs = &self.legs;
        let is_used = |server: &str| {
            legs.iter().any(|leg| matches!(&leg.on, On::Shared(name) if name == server))
        };
        self.servers.retain(|spec| is_used(&spec.name));
        self.data.retain(|fill| is_used(&fill.server));
    }
}

impl Leg {
    /// On one of the experiment's servers, without preparation.
    pub fn new(series: &str, point: &str, server: &str, loads: Vec<Load>) -> Leg {
        Leg {
            series: series.into(),
            point: point.into(),
            on: On::Shared(server.into()),
            before: Vec::new(),
            work: Work::Loads(loads),
        }
    }

    /// After this command.
    pub fn after(mut self, command: &str) -> Leg {
        self.before.push(command.into());
        self
    }

    fn round(&self, number: u32) -> Round {
        Round { series: self.series.clone(), point: self.point.clone(), number, ..Round::default() }
    }
}

/// The server that a leg runs on.
pub enum On {
    /// One of the experiment's, by name.
    Shared(String),
    /// One that is started for each round of this leg.
    Fresh(Box<Spec>),
    /// None: a program measures itself.
    Nothing,
}

/// The figure of [`Work::Growth`].
pub const GROWTH: &str = "memory's growth, MiB";

/// The work of a leg.
pub enum Work {
    /// Loads, all at the same time.
    Loads(Vec<Load>),
    /// The same, and the peak growth of the server's memory.
    Growth(Vec<Load>),
    /// So many commands of a load, while a probe runs.
    Beside(Load, u64, Load),
    /// One command and its duration, while a probe runs.
    Timed(String, Load),
    /// What a load stores, and the memory that it takes.
    Memory(Filling),
    /// A BGSAVE beside a load, and a restart; on a server of its own.
    Snapshot(Snapshot),
    /// Many BGSAVEs beside a load.
    Forks(Forks),
    /// A load whose server gets a replica; on a server of its own.
    Replica(Replica),
    /// redis-benchmark: arguments in addition to host and port.
    RedisBenchmark(String, u64),
    /// Data that a load stores, each key once, and then other work.
    Filled(Load, u64, Box<Work>),
    /// The most commands a second that a load of [`durable::CONNECTIONS`] or fewer connections
    /// reaches with a mean latency below [`durable::QUICK_US`].
    Quick(Load),
    /// A load beside a BGREWRITEAOF.
    Rewrite(Load),
    /// Restarts from an AOF; on a server of its own.
    AofRestart(AofRestart),
    /// A trace replayed on a server of its own. Its requests are the same in each round, so it has
    /// one.
    Cache(Cache),
    /// SETs to a server that is full, and to one that is not.
    Sets(Sets),
    /// Writes of this many bytes, each with an fdatasync: what the disk takes.
    RawSyncs(usize),
    /// A command line whose last line of output has figures: a JSON object of names and values.
    Program(String),
}

impl Work {
    /// Whether it has one round.
    fn is_once(&self, quick: bool) -> bool {
        match self {
            Work::Cache(_) => true,
            // A program has its own rounds.
            Work::Program(_) => quick,
            _ => false,
        }
    }
}

/// The work of [`Work::Memory`].
pub struct Filling {
    /// What stores it, each key once.
    pub load: Load,
    /// How many keys.
    pub keys: u64,
    /// How many things that are counted a key has.
    pub of_each: u64,
    /// The name of the figure: bytes per thing.
    pub figure: &'static str,
}

/// A process of the load generator.
#[derive(Clone)]
pub struct Load {
    /// Its role in this leg: load, light, heavy, probe.
    pub role: &'static str,
    args: Vec<String>,
    rate: Option<Rate>,
    door: Door,
    refusal: &'static str,
}

/// An open loop's rate.
#[derive(Clone)]
pub enum Rate {
    /// Commands a second.
    Fixed(f64),
    /// A part of the rate that the same load reached at this point in the same round.
    PartOf(String, f64),
}

impl Load {
    /// A load that sends this command.
    pub fn new(role: &'static str, command: &str) -> Load {
        let load = Load { role, args: Vec::new(), rate: None, door: Door::Port, refusal: "" };
        load.and(command)
    }

    /// Sends this command, too, as often as the others.
    pub fn and(mut self, command: &str) -> Load {
        self.args.extend(["--command".into(), command.into()]);
        self
    }

    /// Through this door.
    pub fn through(mut self, door: Door) -> Load {
        self.door = door;
        self
    }

    /// In this database.
    pub fn in_database(self, number: u32) -> Load {
        self.saying_first(&format!("SELECT {number}"))
    }

    /// After this command on each connection; an empty string means none.
    pub fn saying_first(mut self, command: &str) -> Load {
        if !command.is_empty() {
            self.args.extend(["--setup".into(), command.into()]);
        }
        self
    }

    /// Every reply must be an error that begins with this.
    pub fn refused_with(mut self, refusal: &'static str) -> Load {
        self.refusal = refusal;
        self.with("--allow-errors")
    }

    /// With additional arguments for the load generator, split at spaces.
    pub fn with(mut self, args: &str) -> Load {
        self.args.extend(args.split_whitespace().map(str::to_owned));
        self
    }

    /// As an open loop.
    pub fn rate(mut self, rate: Rate) -> Load {
        self.rate = Some(rate);
        self
    }
}

/// The resources of a run of experiments.
pub struct Bench {
    /// The division of the processors.
    pub placement: Placement,
    /// Where servers keep their files.
    pub dir: PathBuf,
    /// How thorough.
    pub plan: Plan,
    /// midi's commit.
    pub commit: String,
}

impl Bench {
    /// Runs one experiment.
    ///
    /// # Errors
    /// A server that does not start, a load that fails: incomplete figures are worthless.
    pub fn run(&self, experiment: Experiment) -> Result<Outcome> {
        let mut outcome = Outcome {
            number: experiment.number,
            name: experiment.name.into(),
            title: experiment.title.into(),
            question: experiment.question.into(),
            about: experiment.about.into(),
            points: experiment.points.into(),
            quick: self.plan.quick,
            commit: self.commit.clone(),
            plan: Some(self.plan),
            least_seconds: experiment.least_seconds,
            series: series_of(&experiment.legs),
            servers: Vec::new(),
            rounds: Vec::new(),
        };
        let mut servers = BTreeMap::new();
        for spec in &experiment.servers {
            let server = Server::start(spec, &self.placement, &self.dir)?;
            outcome.servers.push(info(&server));
            servers.insert(spec.name.clone(), server);
        }
        let bar = progress(experiment.title, self.plan.rounds as usize * experiment.legs.len());
        for fill in &experiment.data {
            bar.set_message(format!("filling {}", fill.server));
            let server =
                servers.get(&fill.server).context("data for a server that is not there")?;
            match &fill.how {
                How::Each(load, keys) => drop(self.fill(server, load.clone(), *keys)?),
                How::Once(command) => drop(server.control()?.command(command)?),
            }
        }
        for number in 0..self.plan.rounds {
            for leg in &experiment.legs {
                if number > 0 && leg.work.is_once(self.plan.quick) {
                    bar.inc(1);
                    continue;
                }
                bar.set_message(format!("{} · {}", leg.series, leg.point));
                let at = || format!("{}: {}, {}", experiment.name, leg.series, leg.point);
                let round = match &leg.on {
                    On::Nothing => self.alone(leg, number).with_context(at)?,
                    On::Shared(name) => {
                        let server =
                            servers.get(name).with_context(|| format!("no server {name}"))?;
                        self.leg(leg, server, number, &outcome).with_context(at)?
                    }
                    On::Fresh(spec) => {
                        let mut server = Server::start(spec, &self.placement, &self.dir)?;
                        if number == 0
                            && !outcome.servers.iter().any(|known| known.name == spec.name)
                        {
                            outcome.servers.push(info(&server));
                        }
                        let mut round =
                            self.leg(leg, &server, number, &outcome).with_context(at)?;
                        match &leg.work {
                            Work::Snapshot(_) => self.restart(&mut server, &mut round),
                            Work::AofRestart(_) => self.aof_restarts(&mut server, &mut round),
                            _ => Ok(()),
                        }
                        .with_context(at)?;
                        round
                    }
                };
                outcome.rounds.push(round);
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        Ok(outcome)
    }

    fn leg(&self, leg: &Leg, server: &Server, number: u32, so_far: &Outcome) -> Result<Round> {
        for command in &leg.before {
            server.control()?.command(command)?;
        }
        let mut round = leg.round(number);
        self.work(&leg.work, server, so_far, &mut round)?;
        Ok(round)
    }

    fn work(
        &self,
        work: &Work,
        server: &Server,
        so_far: &Outcome,
        round: &mut Round,
    ) -> Result<()> {
        match work {
            Work::Loads(loads) => self.loads(loads, server, so_far, round)?,
            Work::Growth(loads) => {
                let before = peak_bytes(&server.pids())?;
                self.loads(loads, server, so_far, round)?;
                let grown = peak_bytes(&server.pids())?.saturating_sub(before);
                round.figures.insert(GROWTH.into(), grown as f64 / f64::from(1 << 20));
            }
            Work::Beside(load, requests, probe) => {
                self.counted(load, *requests, probe, server, so_far, round)?;
            }
            Work::Timed(command, probe) => self.timed(command, probe, server, so_far, round)?,
            Work::Memory(Filling { load, keys, of_each, figure }) => {
                let before = Usage::of(&server.pids())?;
                round.commands.push(self.fill(server, load.clone(), *keys)?);
                let after = Usage::of(&server.pids())?;
                let bytes = after.rss_bytes.saturating_sub(before.rss_bytes);
                let bytes_of_each = bytes as f64 / (keys * of_each) as f64;
                round.figures.insert((*figure).into(), bytes_of_each);
            }
            Work::Snapshot(what) => self.snapshot(what, server, so_far, round)?,
            Work::Forks(what) => self.forks(what, server, so_far, round)?,
            Work::Replica(what) => self.replica(what, server, so_far, round)?,
            Work::RedisBenchmark(args, requests) => {
                self.redis_benchmark(args, *requests, server, round)?;
            }
            Work::Filled(load, keys, work) => {
                round.commands.push(self.fill(server, load.clone(), *keys)?);
                self.work(work, server, so_far, round)?;
            }
            Work::Quick(load) => self.quick(load, server, so_far, round)?,
            Work::Rewrite(load) => self.rewrite(load, server, round)?,
            Work::AofRestart(what) => {
                round.commands.push(self.fill(server, what.fill.clone(), what.keys)?);
            }
            Work::Cache(what) => self.cache(what, server, so_far, round)?,
            Work::Sets(what) => self.sets(what, server, round)?,
            Work::RawSyncs(_) | Work::Program(_) => bail!("this needs no server"),
        }
        Ok(())
    }

    fn alone(&self, leg: &Leg, number: u32) -> Result<Round> {
        let mut round = leg.round(number);
        match &leg.work {
            Work::Program(line) => program(line, &mut round)?,
            Work::RawSyncs(bytes) => self.raw_syncs(*bytes, &mut round)?,
            _ => bail!("this needs a server"),
        }
        Ok(round)
    }

    /// Stores every key once; returns the command line.
    fn fill(&self, server: &Server, load: Load, keys: u64) -> Result<String> {
        let load = load
            .with("--distribution sequential --pipeline 50 --connections 10 --warmup 0")
            .with(&format!("--keys {keys} --requests {keys}"));
        let running = self.start(&load, server, &[])?;
        let line = running.line.clone();
        let summary = running.finish()?;
        ensure!(
            summary.operations == keys,
            "only {} of {keys} keys were stored",
            summary.operations
        );
        Ok(line)
    }

    fn loads(
        &self,
        loads: &[Load],
        server: &Server,
        so_far: &Outcome,
        round: &mut Round,
    ) -> Result<()> {
        let seconds = self.plan.seconds.max(so_far.least_seconds);
        let window =
            ["--duration", &seconds.to_string(), "--warmup", &self.plan.warmup.to_string()]
                .map(str::to_owned);
        let mut running = Vec::new();
        for load in loads {
            let args = [window.to_vec(), rate_args(load, so_far, round)?].concat();
            running.push((load, self.start(load, server, &args)?));
        }
        for (Load { role, refusal, .. }, load) in running {
            round.commands.push(load.line.clone());
            let summary = load.finish().with_context(|| format!("the {role} load"))?;
            ensure!(
                is_refused_with(refusal, &summary),
                "{role}: not {refusal}, but {:?}",
                summary.first_error
            );
            // An empty server is fast.
            ensure!(
                summary.nulls == 0,
                "{role}: {} replies for keys that are not there",
                summary.nulls
            );
            round.loads.insert((*role).into(), summary);
        }
        Ok(())
    }

    /// A load that runs until it is finished. It is connected, and does not measure yet.
    fn probe(
        &self,
        probe: &Load,
        server: &Server,
        so_far: &Outcome,
        round: &Round,
    ) -> Result<Running> {
        let ahead = Duration::from_millis(300);
        let window = ["--until-eof".to_owned(), "--warmup".into(), ahead.as_secs_f64().to_string()];
        let args = [window.to_vec(), rate_args(probe, so_far, round)?].concat();
        let running = self.start(probe, server, &args)?;
        std::thread::sleep(ahead);
        Ok(running)
    }

    fn counted(
        &self,
        load: &Load,
        requests: u64,
        probe: &Load,
        server: &Server,
        so_far: &Outcome,
        round: &mut Round,
    ) -> Result<()> {
        let probe_running = self.probe(probe, server, so_far, round)?;
        let count = ["--requests".to_owned(), requests.to_string()];
        let running = self.start(load, server, &count)?;
        for (role, running) in [(load.role, running), (probe.role, probe_running)] {
            round.commands.push(running.line.clone());
            round.loads.insert(role.into(), running.finish().with_context(|| role)?);
        }
        Ok(())
    }

    fn timed(
        &self,
        command: &str,
        probe: &Load,
        server: &Server,
        so_far: &Outcome,
        round: &mut Round,
    ) -> Result<()> {
        let probe_running = self.probe(probe, server, so_far, round)?;
        let before = Usage::of(&server.pids())?;
        let began = Instant::now();
        server.control()?.command(command)?;
        let seconds = began.elapsed().as_secs_f64();
        let used = Usage::of(&server.pids())? - before;
        round.figures.insert("seconds".into(), seconds);
        round.figures.insert("CPU seconds".into(), used.cpu_ns as f64 / 1e9);
        round.commands.push(command.into());
        round.commands.push(probe_running.line.clone());
        round.loads.insert(probe.role.into(), probe_running.finish()?);
        Ok(())
    }

    fn redis_benchmark(
        &self,
        args: &str,
        requests: u64,
        server: &Server,
        round: &mut Round,
    ) -> Result<()> {
        let port = server.ports(Door::Port)[0].to_string();
        let line = format!("redis-benchmark -p {port} -n {requests} --csv {args}");
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).stdin(Stdio::null());
        let before = Usage::of(&server.pids())?;
        let output =
            on_processors(&self.placement.of_load(server.spec.cores), || command.output())??;
        let used = Usage::of(&server.pids())? - before;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // "GET","123456.78","0.1",...
        let rate = text
            .lines()
            .last()
            .and_then(|line| line.split(',').nth(1))
            .map(|field| field.trim_matches('"'));
        let Some(Ok(rate)) = rate.map(str::parse::<f64>) else { bail!("{line}: {text}") };
        let seconds = requests as f64 / rate;
        let summary = Summary {
            seconds,
            operations: requests,
            ops_per_second: rate,
            server: used,
            ..Summary::default()
        };
        round.loads.insert("load".into(), summary);
        round.commands.push(line);
        Ok(())
    }

    fn start(&self, load: &Load, server: &Server, more: &[String]) -> Result<Running> {
        let mut args = vec!["load".to_owned(), "--json".into()];
        for port in server.ports(load.door) {
            args.extend(["--server".into(), format!("127.0.0.1:{port}")]);
        }
        if server.spec.tls && load.door == Door::Port {
            args.push("--tls".into());
        }
        let is_memcached = server.spec.memcached && load.door == Door::Port;
        if is_memcached || server.spec.kind == Kind::Memcached {
            args.extend(["--protocol".into(), "memcached".into()]);
        }
        let pids: Vec<String> = server.pids().iter().map(u32::to_string).collect();
        args.extend(["--pid".into(), pids.join(",")]);
        args.extend(load.args.iter().chain(more).cloned());
        let line = shown("midi-bench", &args);
        if let Some(log) = server.fsync_log() {
            args.extend(["--fsync-log".into(), log.display().to_string()]);
        }
        let mut command = Command::new(std::env::current_exe()?);
        command.args(&args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = on_processors(&self.placement.of_load(server.spec.cores), || command.spawn())??;
        Ok(Running { child, line })
    }
}

/// A flood that is let in, or rejected for an unexpected reason, measures nothing.
fn is_refused_with(refusal: &str, summary: &Summary) -> bool {
    let error = summary.first_error.as_deref();
    refusal.is_empty()
        || summary.operations == 0
        || error.is_some_and(|error| error.starts_with(refusal))
}

/// An open loop's rate as arguments; a relative rate is taken from earlier measurements.
fn rate_args(load: &Load, so_far: &Outcome, round: &Round) -> Result<Vec<String>> {
    let rate = match &load.rate {
        None => return Ok(Vec::new()),
        Some(Rate::Fixed(rate)) => *rate,
        Some(Rate::PartOf(point, part)) => {
            let alone = so_far.round(&round.series, point, round.number);
            let alone = alone.and_then(|alone| alone.loads.get(load.role));
            part * alone.context("a part of a leg that was not run before")?.ops_per_second
        }
    };
    Ok(vec!["--rate".into(), format!("{rate:.0}")])
}

/// A running load. It is stopped when dropped.
struct Running {
    child: Child,
    line: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// Closes its input, waits until it exits, and reads its figures.
    fn finish(self) -> Result<Summary> {
        self.output()
    }

    /// The same for a program with other figures.
    fn output<T: DeserializeOwned>(mut self) -> Result<T> {
        drop(self.child.stdin.take());
        let mut text = String::new();
        if let Some(output) = &mut self.child.stdout {
            output.read_to_string(&mut text)?;
        }
        let status = self.child.wait()?;
        ensure!(status.success(), "{}: {status}", self.line);
        serde_json::from_str(&text).with_context(|| format!("{}: {text}", self.line))
    }
}

/// Runs a program whose last line is a JSON object of figures.
fn program(line: &str, round: &mut Round) -> Result<()> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{line}: {}", output.status);
    let last = text.lines().last().unwrap_or_default();
    round.figures = serde_json::from_str(last).with_context(|| format!("{line}: {last}"))?;
    round.commands.push(line.into());
    Ok(())
}

fn info(server: &Server) -> ServerInfo {
    ServerInfo {
        name: server.spec.name.clone(),
        version: server.version(),
        command_lines: server.command_lines(),
        cores: match server.spec.cores {
            Cores::Apart => "its own half of the cores, load on the other".into(),
            Cores::Shared => "all cores, shared with the load".into(),
        },
    }
}

/// The lines of the plots, and where each has figures.
pub fn series_of(legs: &[Leg]) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for leg in legs {
        match all.iter_mut().find(|series| series.name == leg.series) {
            Some(series) => series.points.push(leg.point.clone()),
            None => all.push(Series { name: leg.series.clone(), points: vec![leg.point.clone()] }),
        }
    }
    all
}

fn shown(program: &str, args: &[String]) -> String {
    let quoted = |arg: &String| match arg.contains([' ', '*', '{', '[']) || arg.is_empty() {
        true => format!("'{arg}'"),
        false => arg.clone(),
    };
    format!("{program} {}", args.iter().map(quoted).collect::<Vec<_>>().join(" "))
}

fn progress(title: &str, steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    let style =
        ProgressStyle::with_template("{prefix} [{bar:30}] {pos}/{len} · {eta} left · {msg}");
    style.map_or(bar.clone(), |style| bar.with_style(style)).with_prefix(title.to_owned())
}

/// Removes what earlier runs left behind, if they were killed.
pub fn fresh_directory(dir: &Path) -> Result<PathBuf> {
    if dir.exists() {
        std::fs::remove_dir_all(dir)?;
    }
    std::fs::create_dir_all(dir)?;
    Ok(dir.canonicalize()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_that_is_not_refused_as_it_should_be_is_found_out() {
        let answered = |error: Option<&str>| Summary {
            operations: 1,
            first_error: error.map(str::to_owned),
            ..Summary::default()
        };
        assert!(is_refused_with("NOPERM", &answered(Some("NOPERM this user has no permissions"))));
        assert!(!is_refused_with("NOPERM", &answered(Some("NOAUTH Authentication required."))));
        assert!(!is_refused_with("NOPERM", &answered(None)), "it was let in");
        assert!(is_refused_with("NOPERM", &Summary::default()), "nothing was answered in time");
        assert!(is_refused_with("", &answered(None)));
    }
}
