//! The load generator: any command, many connections, honest latencies.
//!
//! Closed loop (the default): every connection sends a pipeline of commands, and the next ones when
//! all are answered. Open loop (`--rate`): commands are due at fixed times, whatever the server
//! does, and a latency counts from the time a command was due, so a stalled server does not hide
//! the commands that it kept from being sent.

mod connection;
mod keys;
mod replies;
mod summary;
mod template;
mod thread;
mod wire;

use std::io::{IsTerminal as _, Read as _};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};

pub use keys::Distribution;
pub use replies::Replies;
pub use summary::Summary;

use self::connection::Connection;
use self::keys::{Share, Source};
use self::template::Template;
use self::thread::{Kind, LoadThread, Pace, Run, Tally};
use self::wire::{Address, client_config};
use crate::process::{Usage, own_cpu_ns};

/// The server's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// Redis's, version 2 (3 after a HELLO among the set-up commands).
    Resp,
    /// memcached's text protocol, with its meta commands.
    Memcached,
}

/// Where a server listens.
#[derive(Clone, Debug)]
pub enum Target {
    /// Host and port.
    Tcp(String),
    /// A socket's path.
    Unix(PathBuf),
}

impl FromStr for Target {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.contains('/') {
            true => Target::Unix(text.into()),
            false => Target::Tcp(text.into()),
        })
    }
}

/// Sends commands to a server and measures.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// HOST:PORT or the path of a Unix socket. More than one: keys and connections are split among
    /// them, key N to server N modulo their number
    #[arg(long, default_value = "127.0.0.1:6379")]
    pub server: Vec<Target>,
    /// What the server speaks
    #[arg(long, value_enum, default_value = "resp")]
    pub protocol: Protocol,
    /// With TLS; no certificate is checked
    #[arg(long)]
    pub tls: bool,
    /// Never resume a session of TLS
    #[arg(long)]
    pub no_resumption: bool,
    /// Connect again for each pipeline; the latency counts from there
    #[arg(long, conflicts_with_all = ["rate", "setup"])]
    pub reconnect: bool,
    /// What to send, with {key}, {key:DIGITS} and {value}; WORD*N repeats a word that ends in a
    /// placeholder. For memcached `set {key} 0 0 {value}` adds the length itself. More than one: a
    /// mix
    #[arg(long, default_value = "GET {key}")]
    pub command: Vec<String>,
    /// How often each command is sent, in proportion; all equally often where left out
    #[arg(long, value_delimiter = ',')]
    pub weights: Vec<u32>,
    /// Send the commands of a mix one after the other on each connection, whatever their weights
    #[arg(long)]
    pub in_turn: bool,
    /// Sent once on every connection first: AUTH, SELECT, HELLO 3
    #[arg(long)]
    pub setup: Vec<String>,
    /// Connections
    #[arg(long, short, default_value_t = 50)]
    pub connections: usize,
    /// Commands in flight on each connection
    #[arg(long, short, default_value_t = 1)]
    pub pipeline: u64,
    /// Load threads
    #[arg(long, short, default_value_t = 1)]
    pub threads: usize,
    /// Keys are numbered from 0 to this - 1
    #[arg(long, short, default_value_t = 1_000_000)]
    pub keys: u64,
    /// What stands before a key's number
    #[arg(long, default_value = "key:")]
    pub key_prefix: String,
    /// uniform, zipf:EXPONENT or sequential
    #[arg(long, short = 'D', default_value = "uniform")]
    pub distribution: Distribution,
    /// Bytes of a value, or LEAST-MOST
    #[arg(long, default_value = "64", value_parser = parse_size)]
    pub value_size: (usize, usize),
    /// Open loop: commands a second, all connections together
    #[arg(long, short)]
    pub rate: Option<f64>,
    /// How long to measure, in seconds
    #[arg(long, short, default_value_t = 5.0)]
    pub duration: f64,
    /// How long to run before that, in seconds
    #[arg(long, default_value_t = 0.5)]
    pub warmup: f64,
    /// How long replies are waited for after the end, in seconds; what is still open then counts
    /// with its age
    #[arg(long, default_value_t = 3.0)]
    pub drain: f64,
    /// Send so many commands instead of running for a time
    #[arg(long)]
    pub requests: Option<u64>,
    /// Run until standard input ends instead of for a time
    #[arg(long)]
    pub until_eof: bool,
    /// Processes whose CPU time and memory are looked at: the server's
    #[arg(long, value_delimiter = ',')]
    pub pid: Vec<u32>,
    /// A file that gets a line for each fsync of the server
    #[arg(long)]
    pub fsync_log: Option<PathBuf>,
    /// Print the figures as JSON
    #[arg(long)]
    pub json: bool,
    /// Errors in replies are figures, not a failure
    #[arg(long)]
    pub allow_errors: bool,
}

fn parse_size(text: &str) -> Result<(usize, usize), String> {
    let number = |text: &str| text.parse::<usize>().map_err(|error| format!("{text}: {error}"));
    let (least, most) = match text.split_once('-') {
        None => (number(text)?, number(text)?),
        Some((least, most)) => (number(least)?, number(most)?),
    };
    if least > most || most > 512 << 20 {
        return Err(format!("{text}: BYTES or LEAST-MOST, 512 MiB at most"));
    }
    Ok((least, most))
}

impl Options {
    fn check(&self) -> Result<()> {
        ensure!(
            self.connections >= 1 && self.pipeline >= 1 && self.keys >= 1,
            "at least one of each"
        );
        ensure!(
            self.threads >= 1 && self.threads <= self.connections,
            "1 to {} threads",
            self.connections
        );
        ensure!(self.connections >= self.server.len(), "at least one connection for each server");
        ensure!(self.keys >= self.server.len() as u64, "at least one key for each server");
        ensure!(self.keys.is_multiple_of(self.server.len() as u64), "as many keys for each server");
        ensure!(
            self.weights.is_empty() || self.weights.len() == self.command.len(),
            "a weight for each command"
        );
        ensure!(
            self.weights.is_empty() || self.weights.iter().all(|&weight| weight > 0),
            "weights are at least 1"
        );
        ensure!(self.rate.is_none_or(|rate| rate > 0.0), "a rate above 0");
        ensure!(
            self.duration > 0.0 && self.warmup >= 0.0,
            "a duration above 0, a warm-up of at least 0"
        );
        ensure!(self.drain >= 0.0, "a drain of at least 0");
        Ok(())
    }

    fn kinds(&self) -> Result<Vec<Kind>> {
        let mut below = 0;
        let mut kinds = Vec::new();
        for (number, text) in self.command.iter().enumerate() {
            below += self.weights.get(number).copied().unwrap_or(1);
            let template = Template::parse(text, &self.key_prefix, self.protocol)
                .with_context(|| format!("the command {text:?}"))?;
            kinds.push(Kind { template, below });
        }
        Ok(kinds)
    }

    /// The options of thread `thread`: its share of everything.
    fn pace(&self, thread: usize) -> Pace {
        match self.rate {
            None => Pace::Closed(self.pipeline),
            Some(rate) => {
                let interval = 1e9 * self.threads as f64 / rate;
                let next = interval * thread as f64 / self.threads as f64;
                Pace::Open { interval, next, depth: self.pipeline }
            }
        }
    }

    /// The connections of a thread, and the position of each in a sequence of keys.
    fn connections_of(
        &self,
        thread: usize,
        addresses: &[Address],
    ) -> Result<(Vec<Connection>, Vec<Share>)> {
        let (mut connections, mut sequences) = (Vec::new(), Vec::new());
        // A thread has connections to all servers: a thread for one server only would share its
        // processor with it.
        let first = |thread: usize| self.connections * thread / self.threads;
        for number in first(thread)..first(thread + 1) {
            let place = self.place(number);
            let address = &addresses[place.share.index as usize];
            let mut connection =
                Connection::open(address, self.protocol, place.share, &self.setup)?;
            if let Some(requests) = self.requests {
                connection.budget = part(part(requests, place.share), place.of_share);
            }
            connections.push(connection);
            sequences.push(place.of_share);
        }
        Ok((connections, sequences))
    }

    /// The servers; what has been agreed with one is not offered to another.
    fn addresses(&self) -> Result<Vec<Address>> {
        let tls = || self.tls.then(|| client_config(!self.no_resumption)).transpose();
        let address = |target: &Target| Ok(Address { target: target.clone(), tls: tls()? });
        self.server.iter().map(address).collect()
    }

    /// Connections are assigned to the servers in turn.
    fn place(&self, number: usize) -> Place {
        let servers = self.server.len();
        let share = number % servers;
        let of_share = (self.connections - share).div_ceil(servers);
        Place {
            share: Share { index: share as u64, of: servers as u64 },
            of_share: Share { index: (number / servers) as u64, of: of_share as u64 },
        }
    }

    fn run_of(&self) -> Run {
        let ns = |seconds: f64| (seconds * 1e9) as u64;
        let timed = self.requests.is_none();
        let measure_from = if timed { ns(self.warmup) } else { 0 };
        let until =
            if timed && !self.until_eof { ns(self.warmup + self.duration) } else { u64::MAX };
        Run {
            began: Instant::now(),
            measure_from,
            until: Arc::new(AtomicU64::new(until)),
            drain: ns(self.drain),
            in_turn: self.in_turn,
            reconnects: self.reconnect,
        }
    }
}

/// The keys that a connection uses.
struct Place {
    /// The keys of its server.
    share: Share,
    /// Its part of those, if they are taken in sequence.
    of_share: Share,
}

/// The part of a total that a share gets.
fn part(all: u64, share: Share) -> u64 {
    all / share.of + u64::from(share.index < all % share.of)
}

/// Runs the load.
///
/// # Errors
/// Wrong options; no connection; a broken one; error replies, unless they are allowed.
pub fn run(options: &Options) -> Result<Summary> {
    options.check()?;
    let progress: Vec<AtomicU64> = (0..options.threads).map(|_| AtomicU64::new(0)).collect();
    // Threads connect, then all start together: the clock starts after the last connection.
    let (mut parts, addresses) = (Vec::new(), options.addresses()?);
    for thread in 0..options.threads {
        let (connections, sequences) = options.connections_of(thread, &addresses)?;
        let source =
            Source::new(options.distribution, options.keys, options.value_size, sequences)?;
        parts.push((connections, options.kinds()?, source));
    }
    let run = options.run_of();
    if options.until_eof {
        end_with_input(&run);
    }
    let (tallies, looks) = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (number, (connections, kinds, source)) in parts.into_iter().enumerate() {
            let (run, progress) = (&run, &progress[number]);
            threads.push(scope.spawn(move || -> Result<Tally> {
                let pace = options.pace(number);
                LoadThread::new(run, progress, connections, kinds, source, pace)?.drive()
            }));
        }
        let looks =
            watch(options, &run, &progress, || threads.iter().all(|thread| thread.is_finished()));
        let tallies: Result<Vec<Tally>> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| bail!("a load thread panicked")))
            .collect();
        (tallies, looks)
    });
    let summary = Summary::new(options, &run, tallies?, looks?);
    match &summary.first_error {
        Some(error) if !options.allow_errors => {
            bail!("{} error replies; the first: {error}", summary.errors)
        }
        _ => Ok(summary),
    }
}

/// Ends the run when standard input ends. The thread is never joined: it may wait forever.
fn end_with_input(run: &Run) {
    let (began, until) = (run.began, Arc::clone(&run.until));
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        until.store(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
    });
}

/// The use of the processes when measuring began and when it ended.
pub struct Looks {
    server: (Usage, Usage),
    /// The fsyncs so far, if they are counted.
    fsyncs: Option<(u64, u64)>,
    /// This process's own processor time, in nanoseconds.
    own_cpu_ns: (u64, u64),
    /// When those readings were taken.
    at: (u64, u64),
}

/// Reads the processes' usage at both ends of the measured time, and shows progress between.
fn watch(
    options: &Options,
    run: &Run,
    progress: &[AtomicU64],
    done: impl Fn() -> bool,
) -> Result<Looks> {
    let look =
        || -> Result<(Usage, u64, u64)> { Ok((Usage::of(&options.pid)?, own_cpu_ns(), run.now())) };
    let sleep_until = |at: u64| {
        while run.now() < at && !done() {
            std::thread::sleep(
                Duration::from_nanos(at - run.now().min(at)).min(Duration::from_millis(20)),
            );
        }
    };
    sleep_until(run.measure_from);
    let before = look()?;
    let fsyncs_before = fsyncs(options)?;
    let bar = progress_bar(options);
    loop {
        let until = run.until.load(Ordering::Relaxed);
        if done() || run.now() >= until {
            break;
        }
        sleep_until(until.min(run.now() + 20_000_000));
        let sum: u64 = progress.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        bar.set_message(format!(
            "{:.0}K/s",
            sum as f64 * 1e6 / (run.now() - run.measure_from).max(1) as f64
        ));
        bar.set_position(match options.requests {
            Some(_) => sum,
            None => (run.now().saturating_sub(run.measure_from)) / 1_000_000,
        });
    }
    let after = look()?;
    let fsyncs_after = fsyncs(options)?;
    bar.finish_and_clear();
    Ok(Looks {
        server: (before.0, after.0),
        fsyncs: fsyncs_before.zip(fsyncs_after),
        own_cpu_ns: (before.1, after.1),
        at: (before.2, after.2),
    })
}

/// The fsyncs of the server until now, if they are counted.
fn fsyncs(options: &Options) -> Result<Option<u64>> {
    let Some(path) = &options.fsync_log else { return Ok(None) };
    let log = std::fs::read(path).with_context(|| path.display().to_string())?;
    Ok(Some(memchr::memchr_iter(b'\n', &log).count() as u64))
}

fn progress_bar(options: &Options) -> ProgressBar {
    if options.json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let length = options.requests.unwrap_or((options.duration * 1000.0) as u64);
    let bar = if options.until_eof { ProgressBar::new_spinner() } else { ProgressBar::new(length) };
    let style = ProgressStyle::with_template("{elapsed:>4} [{bar:40}] {percent:>3} % {msg}");
    style.map_or(bar.clone(), |style| bar.with_style(style))
}
