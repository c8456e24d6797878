//! Replicas: a full sync beside a load, and how far a replica is behind.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;

use super::snapshot::{LEAD, PATIENCE, UNTIL_MEASURED, endless};
use super::{Bench, Load};
use crate::control::Control;
use crate::load::Summary;
use crate::results::{Outcome, Round};
use crate::server::{Door, Server};

/// From REPLICAOF until the link is up, beside the load.
pub const SYNC: &str = "full sync beside the load, s";
/// From the end of the load until the replica had all of it.
pub const CATCH_UP: &str = "until the replica had all after the load, ms";

/// The roles of the load: without a replica, while one is attached, and with one.
pub const ALONE: &str = "alone";
/// See [`ALONE`].
pub const SYNCING: &str = "beside the full sync";
/// See [`ALONE`].
pub const ATTACHED: &str = "with a replica";
/// The roles of the client that sends PING to the host meanwhile.
pub const PING_ALONE: &str = "PING alone";
/// See [`PING_ALONE`].
pub const PING_SYNCING: &str = "PING beside the full sync";
/// See [`PING_ALONE`].
pub const PING_ATTACHED: &str = "PING with a replica";
/// The role of the marks whose way to the replica is timed.
pub const LAG: &str = "lag of the replica";

/// A key in the host's own keyspace: its place in the stream is behind all that was logged before.
const MARK: &str = "mark";
/// How often the replica is asked for it.
const POLL: Duration = Duration::from_micros(500);
/// A new mark is not written at once: this is a probe, not a load.
const PAUSE: Duration = Duration::from_millis(2);

/// A load whose server gets a replica.
pub struct Replica {
    /// Stores a key.
    pub fill: Load,
    /// How many.
    pub keys: u64,
    /// The load; its role is replaced by those above.
    pub load: Load,
    /// Asks the host's port meanwhile; so is its role.
    pub ping: Load,
}

impl Bench {
    /// Runs the load alone, while a replica is attached, and with the replica.
    pub(super) fn replica(
        &self,
        what: &Replica,
        server: &Server,
        so_far: &Outcome,
        round: &mut Round,
    ) -> Result<()> {
        round.commands.push(self.fill(server, what.fill.clone(), what.keys)?);
        let spec = server.spec.clone().named(&format!("{}, replica", server.spec.name));
        let replica = Server::start(&spec, &self.placement, &self.dir)?;
        let loads = |role, ping| {
            [Load { role, ..what.load.clone() }, Load { role: ping, ..what.ping.clone() }]
        };
        let window = Duration::from_secs_f64(self.plan.seconds.max(so_far.least_seconds));
        self.beside(loads(ALONE, PING_ALONE), server, round, || {
            std::thread::sleep(window);
            Ok(())
        })?;
        let seconds =
            self.beside(loads(SYNCING, PING_SYNCING), server, round, || follow(&replica, server))?;
        round.figures.insert(SYNC.into(), seconds);
        let mut marks = Marks::new(server, &replica)?;
        marks.one()?;
        let lag =
            self.beside(loads(ATTACHED, PING_ATTACHED), server, round, || marks.during(window))?;
        round.loads.insert(LAG.into(), lag);
        round.figures.insert(CATCH_UP.into(), marks.one()?.as_secs_f64() * 1000.0);
        ensure!(contents(server)? == contents(&replica)?, "the replica is not equal");
        Ok(())
    }

    /// Does this while the loads are measured.
    fn beside<T>(
        &self,
        loads: [Load; 2],
        server: &Server,
        round: &mut Round,
        what: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let mut running = Vec::new();
        for load in loads {
            let args = endless(&load, LEAD, &Outcome::default(), round)?;
            running.push((load.role, self.start(&load, server, &args)?));
        }
        std::thread::sleep(UNTIL_MEASURED);
        let result = what()?;
        for (role, load) in running {
            round.commands.push(load.line.clone());
            round.loads.insert(role.into(), load.finish()?);
        }
        Ok(result)
    }
}

/// Makes the server a replica; returns the seconds until it has its master's data.
fn follow(replica: &Server, master: &Server) -> Result<f64> {
    let (began, mut control) = (Instant::now(), replica.control()?);
    control.command(&format!("REPLICAOF 127.0.0.1 {}", master.ports(Door::Host)[0]))?;
    while !control.command("INFO replication")?.contains("master_link_status:up") {
        ensure!(began.elapsed() < PATIENCE, "the replica gets no link");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(began.elapsed().as_secs_f64())
}

/// Marks in the master's stream, and when the replica has them.
struct Marks {
    master: Control,
    replica: Control,
    number: u64,
}

impl Marks {
    fn new(master: &Server, replica: &Server) -> Result<Marks> {
        Ok(Marks { master: master.control()?, replica: replica.control()?, number: 0 })
    }

    /// Writes one; returns how long after its reply the replica shows it.
    fn one(&mut self) -> Result<Duration> {
        self.number += 1;
        self.master.command(&format!("SET {MARK} {}", self.number))?;
        let began = Instant::now();
        let (get, number) = (format!("GET {MARK}"), format!("\r\n{}\r\n", self.number));
        while !self.replica.command(&get)?.ends_with(&number) {
            ensure!(began.elapsed() < PATIENCE, "the replica does not catch up");
            std::thread::sleep(POLL);
        }
        Ok(began.elapsed())
    }

    fn during(&mut self, window: Duration) -> Result<Summary> {
        let mut latencies = Histogram::new_with_bounds(1, 600_000_000_000, 3)?;
        let began = Instant::now();
        while began.elapsed() < window {
            latencies.saturating_record(self.one()?.as_nanos() as u64);
            std::thread::sleep(PAUSE);
        }
        Ok(Summary::of(&latencies, began.elapsed().as_secs_f64()))
    }
}

/// The content of a server, as far as it can tell: for stock redis-server the number of keys.
fn contents(server: &Server) -> Result<String> {
    let mut control = server.control()?;
    let has_midi = server.spec.args.iter().any(|arg| arg == "--loadmodule");
    control.command(if has_midi { "MIDI.KEYSPACEDIGEST" } else { "DBSIZE" })
}
