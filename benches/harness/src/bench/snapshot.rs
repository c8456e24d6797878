//! Snapshots: what BGSAVE costs, beside a load and without, and how long a restart takes.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::{Bench, How, Load, rate_args};
use crate::control::Control;
use crate::process::{
    child_of, has_ended, main_thread_faults, minor_faults, own_bytes, shared_out_bytes,
};
use crate::results::{Outcome, Round, extremes, median, percentile};
use crate::server::{Door, Server};

/// How long the child of a BGSAVE runs, nothing else being done.
pub const SAVE: &str = "BGSAVE, s";
/// The same beside the load.
pub const SAVE_BESIDE: &str = "BGSAVE beside the load, s";
/// The size of the file.
pub const FILE: &str = "dump.rdb, MiB";
/// From the start of the program until it answers PING.
pub const RESTART: &str = "restart, s";
/// The host's time in fork(), midi's part included.
pub const FORK: &str = "fork(), ms";
/// Page faults of the server while its child saves beside the load.
pub const FAULTS: &str = "page faults of the server beside BGSAVE";
/// The peak of memory that server and child take together, above what the server took before.
pub const ADDED: &str = "memory added by BGSAVE beside the load, MiB";
/// The peak of memory that the child has for itself.
pub const CHILD: &str = "the child's own memory, MiB";
/// The memory of the server with its data.
pub const RESIDENT: &str = "resident memory, MiB";
/// The part of it in huge pages.
pub const HUGE: &str = "in huge pages, MiB";

/// midi's part of the pauses of several forks: the middle, the 99th percentile and the worst.
pub const PAUSE_MEDIAN: &str = "midi's part of the pause, median, µs";
/// See [`PAUSE_MEDIAN`].
pub const PAUSE_P99: &str = "midi's part of the pause, p99, µs";
/// See [`PAUSE_MEDIAN`].
pub const PAUSE_WORST: &str = "midi's part of the pause, worst, µs";
/// The host's fork() in the same forks, midi's part included.
pub const FORK_MEDIAN: &str = "fork(), median, µs";
/// See [`FORK_MEDIAN`].
pub const FORK_P99: &str = "fork(), p99, µs";
/// See [`FORK_MEDIAN`].
pub const FORK_WORST: &str = "fork(), worst, µs";
/// Pages that the main thread writes from the command to its reply, where the fork before has
/// write-protected them.
pub const FORK_FAULTS: &str = "page faults of the main thread at BGSAVE, median";

/// The roles of the load: without a BGSAVE and beside one.
pub const ALONE: &str = "alone";
/// See [`ALONE`].
pub const BESIDE: &str = "beside BGSAVE";

/// How often the memory of server and child is read: that takes some milliseconds.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How exactly the end of a child is seen.
pub(super) const POLL: Duration = Duration::from_millis(2);
/// How long the load runs before the server forks.
pub(super) const LEAD: Duration = Duration::from_millis(300);
/// How long after its start a load with a warm-up of [`LEAD`] is measured: the warm-up begins when
/// it has connected.
pub(super) const UNTIL_MEASURED: Duration = LEAD.saturating_add(Duration::from_millis(20));
/// The longest that a child may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);

/// Data, and a load beside which it is saved.
pub struct Snapshot {
    /// The data.
    pub fill: How,
    /// An open loop; its role is replaced by [`ALONE`] and [`BESIDE`].
    pub load: Load,
}

/// Several forks of a server under load.
pub struct Forks {
    /// The data.
    pub fill: String,
    /// The load that runs meanwhile.
    pub load: Load,
    /// How many.
    pub count: u32,
}

impl Bench {
    /// Everything about a snapshot but the restart.
    pub(super) fn snapshot(
        &self,
        what: &Snapshot,
        server: &Server,
        so_far: &Outcome,
        round: &mut Round,
    ) -> Result<()> {
        match &what.fill {
            How::Each(load, keys) => {
                round.commands.push(self.fill(server, load.clone(), *keys)?);
            }
            How::Once(command) => {
                port(server)?.command(command)?;
                round.commands.push(command.clone());
            }
        }
        let alone = Load { role: ALONE, ..what.load.clone() };
        self.loads(std::slice::from_ref(&alone), server, so_far, round)?;
        let saved = Saved::by(server)?;
        let bytes = fs::metadata(server.dir().join("dump.rdb"))?.len();
        let beside = Load { role: BESIDE, ..alone };
        let (under_load, faults) = self.beside_load(&beside, server, so_far, round)?;
        let figures = [
            (SAVE, saved.seconds),
            (SAVE_BESIDE, under_load.seconds),
            (FILE, mib(bytes)),
            (FORK, under_load.fork_us / 1000.0),
            (FAULTS, faults as f64),
            (ADDED, mib(under_load.added)),
            (CHILD, mib(under_load.child)),
            (RESIDENT, mib(saved.before)),
            (HUGE, mib(saved.huge)),
        ];
        round.figures.extend(figures.map(|(name, value)| (name.to_owned(), value)));
        Ok(())
    }

    fn beside_load(
        &self,
        load: &Load,
        server: &Server,
        so_far: &Outcome,
        round: &mut Round,
    ) -> Result<(Saved, u64)> {
        let running = self.start(load, server, &endless(load, Duration::ZERO, so_far, round)?)?;
        std::thread::sleep(LEAD);
        let before = minor_faults(server.pids()[0])?;
        let saved = Saved::by(server)?;
        let faults = minor_faults(server.pids()[0])? - before;
        round.commands.push(running.line.clone());
        round.loads.insert(load.role.into(), running.finish()?);
        Ok((saved, faults))
    }

    /// Restarts the server with the file that it has saved.
    pub(super) fn restart(&self, server: &mut Server, round: &mut Round) -> Result<()> {
        self.timed_restart(RESTART, server, round)
    }

    /// Restarts the server with what it finds in its directory; the figure gets this name.
    pub(super) fn timed_restart(
        &self,
        figure: &str,
        server: &mut Server,
        round: &mut Round,
    ) -> Result<()> {
        let keys = port(server)?.command("DBSIZE")?;
        let count = keys.trim_start_matches(':').trim().parse().context("DBSIZE")?;
        round.figures.insert("keys".into(), count);
        round.figures.insert(figure.into(), server.restart(&self.placement)?);
        // A server that loads nothing is fast.
        let loaded = port(server)?.command("DBSIZE")?;
        ensure!(keys == loaded, "{} keys before the restart, {} after", keys, loaded);
        Ok(())
    }

    /// Pauses of many forks under load.
    pub(super) fn forks(
        &self,
        what: &Forks,
        server: &Server,
        so_far: &Outcome,
        round: &mut Round,
    ) -> Result<()> {
        port(server)?.command(&what.fill)?;
        let args = endless(&what.load, Duration::ZERO, so_far, round)?;
        let running = self.start(&what.load, server, &args)?;
        std::thread::sleep(LEAD);
        let (mut pauses, mut forks, mut faults) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..what.count {
            let saved = Saved::by(server)?;
            pauses.extend(saved.pause_us);
            forks.push(saved.fork_us);
            faults.push(saved.faults as f64);
        }
        round.commands.push(running.line.clone());
        round.loads.insert(what.load.role.into(), running.finish()?);
        let names = [
            (PAUSE_MEDIAN, PAUSE_P99, PAUSE_WORST, pauses),
            (FORK_MEDIAN, FORK_P99, FORK_WORST, forks),
        ];
        for (middle, p99, worst, values) in names {
            if let (Some(value), Some(high)) = (median(&values), percentile(&values, 0.99)) {
                round.figures.insert(middle.into(), value);
                round.figures.insert(p99.into(), high);
                round.figures.insert(worst.into(), extremes(&values).1);
            }
        }
        round.figures.extend(median(&faults).map(|value| (FORK_FAULTS.into(), value)));
        Ok(())
    }
}

/// The arguments of a load that runs until it is told to end, and how long before it is measured.
pub(super) fn endless(
    load: &Load,
    warmup: Duration,
    so_far: &Outcome,
    round: &Round,
) -> Result<Vec<String>> {
    let warmup = warmup.as_secs_f64().to_string();
    let window = ["--until-eof", "--warmup", &warmup].map(str::to_owned).to_vec();
    Ok([window, rate_args(load, so_far, round)?].concat())
}

/// The cost of a BGSAVE.
struct Saved {
    /// How long its child ran.
    seconds: f64,
    fork_us: f64,
    /// midi's part of the pause, if there is midi.
    pause_us: Option<f64>,
    /// Page faults of the main thread, from the command to its reply.
    faults: u64,
    /// The server's memory before, and in huge pages.
    before: u64,
    huge: u64,
    /// The peaks of memory above that, and of the child's own.
    added: u64,
    child: u64,
}

impl Saved {
    /// Has the server save, and waits for the end.
    fn by(server: &Server) -> Result<Saved> {
        let (pid, mut control) = (server.pids()[0], server.control()?);
        let before = shared_out_bytes(pid)?;
        let huge = crate::process::huge_bytes(pid)?;
        let began = Instant::now();
        let faults = main_thread_faults(pid)?;
        control.command("BGSAVE")?;
        let faults = main_thread_faults(pid)? - faults;
        let (mut added, mut own) = (0, 0);
        if let Some(child) = child_of(pid)? {
            let mut next_look = began + LOOK_EVERY;
            while !has_ended(child) {
                ensure!(began.elapsed() < PATIENCE, "the child does not end");
                if Instant::now() >= next_look {
                    next_look += LOOK_EVERY;
                    // It may end meanwhile.
                    if let (Ok(both), Ok(mine)) = (shared_out_bytes(child), own_bytes(child)) {
                        let sum = shared_out_bytes(pid)? + both;
                        added = added.max(sum.saturating_sub(before));
                        own = own.max(mine);
                    }
                }
                std::thread::sleep(POLL);
            }
        }
        let seconds = began.elapsed().as_secs_f64();
        let info = when_reaped(&mut control)?;
        ensure!(
            info.contains("rdb_last_bgsave_status:ok"),
            "the server could not save: see its log"
        );
        Ok(Saved {
            seconds,
            fork_us: number(&info, "latest_fork_usec:").context("no latest_fork_usec")?,
            pause_us: number(&info, "midi_last_fork_pause_usec:"),
            faults,
            before,
            huge,
            added,
            child: own,
        })
    }
}

/// INFO, as soon as the server has noticed that its child has ended.
fn when_reaped(control: &mut Control) -> Result<String> {
    let began = Instant::now();
    loop {
        let info = control.command("INFO everything")?;
        if number(&info, "rdb_bgsave_in_progress:") == Some(0.0) {
            return Ok(info);
        }
        ensure!(began.elapsed() < PATIENCE, "the server does not notice that its child has ended");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A connection to where load goes.
fn port(server: &Server) -> Result<Control> {
    Control::open(server.ports(Door::Port)[0])
}

/// A field of INFO.
pub(super) fn number(info: &str, field: &str) -> Option<f64> {
    info.lines().find_map(|line| line.strip_prefix(field))?.trim().parse().ok()
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_info() {
        let info = "# Stats\r\nlatest_fork_usec:17\r\nx:y\r\n";
        assert_eq!(number(info, "latest_fork_usec:"), Some(17.0));
        assert_eq!(number(info, "x:"), None);
        assert_eq!(number(info, "midi_last_fork_pause_usec:"), None);
    }
}
