//! The AOF: what the disk takes, the most commands at a low latency, rewrites and restarts.

use std::fs::{self, File};
use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hdrhistogram::Histogram;

use super::snapshot::{LEAD, PATIENCE, POLL, UNTIL_MEASURED, endless, number};
use super::{Bench, Load};
use crate::load::Summary;
use crate::process::{child_of, has_ended};
use crate::results::{Outcome, Round};
use crate::server::Server;

/// The mean latency that a load must stay below, in microseconds.
pub const QUICK_US: f64 = 1000.0;
/// The most connections that are tried.
pub const CONNECTIONS: u64 = 70;
/// The most commands a second with a mean latency below [`QUICK_US`].
pub const QUICKEST: &str = "ops/s at a mean below 1 ms";
/// The connections with which that was.
pub const QUICK_CONNECTIONS: &str = "connections at a mean below 1 ms";
/// The search ends when it knows the number of connections to one part in so many.
const EXACTNESS: u64 = 8;

/// How long the rewrite ran beside the load.
pub const REWRITE: &str = "BGREWRITEAOF beside the load, s";

/// From the start of the program until it answers PING, all data being in increments.
pub const FROM_INCREMENTS: &str = "restart from increments, s";
/// The same, all data being in the base.
pub const FROM_BASE: &str = "restart from a base, s";
/// The sizes of the AOF in these two cases.
pub const INCREMENTS: &str = "AOF of increments, MiB";
/// See [`INCREMENTS`].
pub const BASE: &str = "AOF of a base, MiB";

/// Data to restart with.
pub struct AofRestart {
    /// Stores a key.
    pub fill: Load,
    /// How many of them.
    pub keys: u64,
}

impl Bench {
    /// Looks for the most connections whose mean latency is low enough.
    pub(super) fn quick(
        &self,
        load: &Load,
        server: &Server,
        so_far: &Outcome,
        round: &mut Round,
    ) -> Result<()> {
        // The first number is known to be quick enough, the second not to be.
        let (mut quick, mut slow, mut connections) = (0, CONNECTIONS + 1, CONNECTIONS);
        let mut most: Option<(u64, f64)> = None;
        while slow - quick > 1 + quick / EXACTNESS {
            let one = load.clone().with(&format!("--connections {connections}"));
            let mut trial = Round::default();
            self.loads(&[one], server, so_far, &mut trial)?;
            round.commands.append(&mut trial.commands);
            let summary = trial.loads.remove(load.role).context("a load without figures")?;
            if summary.latency.mean < QUICK_US {
                quick = connections;
                if most.is_none_or(|(_, most)| most < summary.ops_per_second) {
                    most = Some((connections, summary.ops_per_second));
                }
            } else {
                slow = connections;
            }
            connections = (quick + slow) / 2;
        }
        if let Some((connections, most)) = most {
            round.figures.insert(QUICKEST.into(), most);
            round.figures.insert(QUICK_CONNECTIONS.into(), connections as f64);
        }
        Ok(())
    }

    /// Measures the load from the start of a BGREWRITEAOF to the end of its child.
    pub(super) fn rewrite(&self, load: &Load, server: &Server, round: &mut Round) -> Result<()> {
        let args = endless(load, LEAD, &Outcome::default(), round)?;
        let running = self.start(load, server, &args)?;
        std::thread::sleep(UNTIL_MEASURED);
        let began = Instant::now();
        server.control()?.command("BGREWRITEAOF")?;
        let child = child_of(server.pids()[0])?.context("no child rewrites the AOF")?;
        while !has_ended(child) {
            ensure!(began.elapsed() < PATIENCE, "the rewrite does not end");
            std::thread::sleep(POLL);
        }
        let seconds = began.elapsed().as_secs_f64();
        round.commands.push(running.line.clone());
        let summary = running.finish()?;
        ensure!(summary.nulls == 0, "{} replies for keys that are not there", summary.nulls);
        round.loads.insert(load.role.into(), summary);
        round.figures.insert(REWRITE.into(), seconds);
        rewritten(server)
    }

    /// Restarts the server with the increments that it has written, then with a base.
    pub(super) fn aof_restarts(&self, server: &mut Server, round: &mut Round) -> Result<()> {
        round.figures.insert(INCREMENTS.into(), aof_mib(server)?);
        self.timed_restart(FROM_INCREMENTS, server, round)?;
        server.control()?.command("BGREWRITEAOF")?;
        rewritten(server)?;
        round.figures.insert(BASE.into(), aof_mib(server)?);
        self.timed_restart(FROM_BASE, server, round)
    }

    /// The time of a write and an fdatasync, one after the other, in a file beside the servers'.
    pub(super) fn raw_syncs(&self, bytes: usize, round: &mut Round) -> Result<()> {
        let path = self.dir.join("raw");
        let (mut file, record) = (File::create(&path)?, vec![b'x'; bytes]);
        let mut latencies = Histogram::new_with_bounds(1, 60_000_000_000, 3)?;
        let began = Instant::now();
        while began.elapsed().as_secs_f64() < self.plan.seconds {
            let one = Instant::now();
            file.write_all(&record)?;
            file.sync_data()?;
            latencies.saturating_record(one.elapsed().as_nanos() as u64);
        }
        let summary = Summary::of(&latencies, began.elapsed().as_secs_f64());
        round.loads.insert("load".into(), summary);
        Ok(fs::remove_file(path)?)
    }
}

/// Waits until the server has done with the rewrite that its child has written or is writing.
fn rewritten(server: &Server) -> Result<()> {
    let (began, mut control) = (Instant::now(), server.control()?);
    loop {
        let info = control.command("INFO persistence")?;
        let is_zero = |field| number(&info, field) == Some(0.0);
        if is_zero("aof_rewrite_in_progress:") && is_zero("aof_rewrite_scheduled:") {
            let is_well = info.contains("aof_last_bgrewrite_status:ok");
            ensure!(is_well, "the server could not rewrite its AOF: see its log");
            return Ok(());
        }
        ensure!(began.elapsed() < PATIENCE, "the rewrite does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The size of all files of a server's AOF.
fn aof_mib(server: &Server) -> Result<f64> {
    let mut bytes = 0;
    for file in fs::read_dir(server.dir().join("appendonlydir"))? {
        bytes += file?.metadata()?.len();
    }
    Ok(bytes as f64 / f64::from(1 << 20))
}
