//! A cache's client: GET, and SET what was missing, for requests made by a rule or read from a
//! file.

pub mod books;
mod client;
mod clock;
mod trace;

use std::fmt;
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

pub use self::trace::Shape;

use self::books::{Books, HOST_LIMIT};
use self::client::{Connection, Dialect, Tally, drive};
use self::clock::Clock;
use self::trace::{Made, Request, Source, distinct, read};
use crate::load::Protocol;
use crate::process::own_cpu_ns;

/// Uses a server as a cache and counts what it finds there: GET, and on a miss SET.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// zipf, one-hit, drift, mixed, or a file: a key on each line, or the ARC paper's form, START
    /// COUNT X X
    #[arg(long)]
    pub trace: Source,
    /// HOST:PORT
    #[arg(long, default_value = "127.0.0.1:6379")]
    pub server: String,
    /// What the server speaks
    #[arg(long, value_enum, default_value = "resp")]
    pub protocol: Protocol,
    /// What stands before GET and SET, such as MIDI.
    #[arg(long, default_value = "")]
    pub prefix: String,
    /// Keys of a rule
    #[arg(long, default_value_t = 1_000_000)]
    pub keys: u64,
    /// Bytes of a value; `mixed` has its own sizes
    #[arg(long, default_value_t = 200)]
    pub value_size: usize,
    /// Of a rule: the same seed makes the same requests
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Requests before those that count; 0 for a file, if left out
    #[arg(long)]
    pub warmup: Option<u64>,
    /// Requests that count; all, for a file, if left out
    #[arg(long)]
    pub requests: Option<u64>,
    /// Connections
    #[arg(long, default_value_t = 4)]
    pub connections: usize,
    /// GETs in flight on each connection at most; a batch ends before a key that it has already
    #[arg(long, default_value_t = 32)]
    pub batch: usize,
    /// For a file: set the limit so that this part of its keys fits. Removes ALL KEYS of the server
    #[arg(long)]
    pub share: Option<f64>,
    /// The setting that --share sets: maxmemory or midi.maxmemory
    #[arg(long, default_value = HOST_LIMIT)]
    pub limit: String,
    /// HOST:PORT for settings and INFO, if that is not the server's: the host's
    #[arg(long)]
    pub control: Option<String>,
    /// The file of the server's clock, if it has one of its own: it goes as if requests came at
    /// --pace
    #[arg(long)]
    pub clock: Option<PathBuf>,
    /// Requests in a second of the server's clock. Redis counts idle times in seconds, and the time
    /// until a frequency fades in minutes
    #[arg(long, default_value_t = 40_000)]
    pub pace: u64,
    /// Print the figures as JSON
    #[arg(long)]
    pub json: bool,
}

/// What a replay found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Found {
    /// The replies that count.
    pub tally: Tally,
    /// Values not stored for want of memory, from the beginning.
    pub out_of_memory: u64,
    /// Requests a second in that part.
    pub requests_per_second: f64,
    /// Processor time of this process in that part, in nanoseconds.
    pub own_cpu_ns: u64,
    /// Different keys of the file.
    pub distinct: Option<u64>,
    /// With `--share`: the limit in bytes, and the keys that are there at the end.
    pub limit: Option<(u64, u64)>,
}

impl Found {
    /// The part of the requests that found their value.
    pub fn hit_ratio(&self) -> f64 {
        self.tally.hits as f64 / (self.tally.hits + self.tally.misses).max(1) as f64
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { hits, misses, .. } = self.tally;
        writeln!(f, "hit ratio {:.4} ({hits} hits, {misses} misses)", self.hit_ratio())?;
        writeln!(f, "{} OOM errors", self.out_of_memory)?;
        writeln!(f, "{:.0} requests a second", self.requests_per_second)?;
        if let Some(distinct) = self.distinct {
            writeln!(f, "{distinct} different keys")?;
        }
        if let Some((bytes, keys)) = self.limit {
            writeln!(f, "{keys} keys at the end, within a limit of {bytes} bytes")?;
        }
        Ok(())
    }
}

/// Requests of a rule that count, and those before them, where the options do not say.
const MADE: (u64, u64) = (2_000_000, 2_000_000);

/// Replays a trace.
///
/// # Errors
/// Wrong options; no connection; a broken one; errors other than a want of memory.
pub fn run(options: &Options) -> Result<Found> {
    ensure!(
        options.connections >= 1 && options.batch >= 1 && options.pace >= 1,
        "at least one of each"
    );
    match &options.trace {
        Source::Made(shape) => {
            ensure!(options.share.is_none(), "--share is for files");
            let made = Made::new(*shape, options.keys, options.value_size, options.seed)?;
            let (warmup, requests) = MADE;
            replay(options, made, warmup, requests)
        }
        Source::File(path) => {
            let keys = read(path)?;
            let distinct = distinct(&keys);
            let limited =
                options.share.map(|share| limit(options, &distinct, share)).transpose()?;
            let request = |key| Request { key, value_bytes: options.value_size };
            let mut found = replay(options, keys.into_iter().map(request), 0, u64::MAX)?;
            found.distinct = Some(distinct.len() as u64);
            if let Some((mut books, bytes)) = limited {
                found.limit = Some((bytes, books.keys()?));
            }
            Ok(found)
        }
    }
}

fn replay(
    options: &Options,
    requests: impl Iterator<Item = Request>,
    warmup: u64,
    counted: u64,
) -> Result<Found> {
    let mut clock = Clock::new(options.clock.as_deref(), options.pace)?;
    let mut requests = requests.inspect(|_| clock.tick());
    let (warmup, counted) = (options.warmup.unwrap_or(warmup), options.requests.unwrap_or(counted));
    let mut connections = connect(options, options.connections)?;
    let mut before = Tally::default();
    drive(&mut connections, requests.by_ref().take(warmup as usize), &mut before)?;
    let (mut tally, began, cpu) = (Tally::default(), std::time::Instant::now(), own_cpu_ns());
    drive(&mut connections, requests.take(counted as usize), &mut tally)?;
    let seconds = began.elapsed().as_secs_f64();
    let errors = before.errors + tally.errors;
    if let Some(error) = connections.iter().find_map(Connection::first_error) {
        bail!("{errors} error replies; the first: {error}");
    }
    Ok(Found {
        tally,
        out_of_memory: before.out_of_memory + tally.out_of_memory,
        requests_per_second: (tally.hits + tally.misses) as f64 / seconds,
        own_cpu_ns: own_cpu_ns() - cpu,
        ..Found::default()
    })
}

fn connect(options: &Options, connections: usize) -> Result<Vec<Connection>> {
    let dialect = Dialect { protocol: options.protocol, prefix: &options.prefix };
    let connect = |_| Connection::open(&options.server, dialect, options.batch);
    (0..connections).map(connect).collect()
}

/// Stores a part of the keys without a limit, and makes what they take the limit.
fn limit(options: &Options, distinct: &[u64], share: f64) -> Result<(Books, u64)> {
    ensure!(options.protocol == Protocol::Resp, "--share: memcached's limit is set at its start");
    ensure!(share > 0.0 && share <= 1.0, "--share: above 0, and 1 at most");
    let host = options.control.as_ref().unwrap_or(&options.server);
    let open = || Books::open(&options.server, host, options.protocol, &options.limit);
    let mut before = open()?;
    before.set(&options.limit, "0")?;
    before.flush()?;
    let mut books = open()?;
    let some = &distinct[..((distinct.len() as f64 * share) as usize).max(1)];
    let request = |&key: &u64| Request { key, value_bytes: options.value_size };
    let mut connections = connect(options, options.connections)?;
    drive(&mut connections, some.iter().map(request), &mut Tally::default())?;
    let bytes = books.used()?;
    books.flush()?;
    books.set(&options.limit, &bytes.to_string())?;
    Ok((books, bytes))
}
