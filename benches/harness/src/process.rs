//! What /proc reports about processes, and which processors they may run on.

use std::fs;
use std::ops::Sub;

use anyhow::{Context as _, Result};
use rustix::thread::CpuSet;
use serde::{Deserialize, Serialize};

/// Processor time of a process and its memory.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Usage {
    /// User and system time of all threads, in nanoseconds: to the nanosecond if the kernel has
    /// schedstat (which forgets threads that have ended), otherwise to the tick.
    pub cpu_ns: u64,
    /// The user part, to the tick.
    pub user_ns: u64,
    /// Resident memory, in bytes.
    pub rss_bytes: u64,
}

impl Usage {
    /// The sum over these processes.
    ///
    /// # Errors
    /// One of them has exited.
    pub fn of(pids: &[u32]) -> Result<Usage> {
        let mut sum = Usage::default();
        for &pid in pids {
            let one = Usage::of_one(pid).with_context(|| format!("process {pid}"))?;
            sum.cpu_ns += one.cpu_ns;
            sum.user_ns += one.user_ns;
            sum.rss_bytes += one.rss_bytes;
        }
        Ok(sum)
    }

    fn of_one(pid: u32) -> Result<Usage> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name in parentheses can contain anything.
        let fields = stat.rsplit_once(") ").context("no fields")?.1;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let number = |at: usize| {
            fields.get(at).and_then(|field| field.parse::<u64>().ok()).context("no number")
        };
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
        let (user_ns, system_ns) = (number(11)? * tick_ns, number(12)? * tick_ns);
        let cpu_ns = schedstat_ns(pid).unwrap_or(user_ns + system_ns);
        let rss_bytes = number(21)? * rustix::param::page_size() as u64;
        Ok(Usage { cpu_ns, user_ns, rss_bytes })
    }
}

/// The sum of these processes' peak resident memory, in bytes.
///
/// # Errors
/// One of them has exited.
pub fn peak_bytes(pids: &[u32]) -> Result<u64> {
    pids.iter().map(|&pid| peak_of_one(pid).with_context(|| format!("process {pid}"))).sum()
}

fn peak_of_one(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    Ok(peak.trim().trim_end_matches("kB").trim_end().parse::<u64>()? << 10)
}

/// Processor time of this process, in nanoseconds, including threads that have ended.
pub fn own_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What was used between two readings; memory as of the second.
impl Sub for Usage {
    type Output = Usage;

    fn sub(self, before: Usage) -> Usage {
        Usage {
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            user_ns: self.user_ns.saturating_sub(before.user_ns),
            rss_bytes: self.rss_bytes,
        }
    }
}

/// The sum over the current threads.
fn schedstat_ns(pid: u32) -> Option<u64> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        // A thread may end in the meantime.
        let Ok(text) = fs::read_to_string(task.ok()?.path().join("schedstat")) else { continue };
        sum += text.split(' ').next()?.parse::<u64>().ok()?;
    }
    (sum > 0).then_some(sum)
}

/// The processors this process may use.
pub fn processors() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU).filter(|&number| set.is_set(number)).collect()
}

/// Runs `start` on these processors only: the processes it starts stay on them.
pub fn on_processors<R>(numbers: &[usize], start: impl FnOnce() -> R) -> Result<R> {
    let before = rustix::thread::sched_getaffinity(None)?;
    let mut set = CpuSet::new();
    numbers.iter().for_each(|&number| set.set(number));
    rustix::thread::sched_setaffinity(None, &set)?;
    let result = start();
    rustix::thread::sched_setaffinity(None, &before)?;
    Ok(result)
}
