//! Reports of /proc about processes, and the processors that they may run on.

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
    /// User and system time of the main thread, in nanoseconds; 0 if the kernel has no schedstat.
    #[serde(default)]
    pub main_ns: u64,
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
            sum.main_ns += one.main_ns;
            sum.rss_bytes += one.rss_bytes;
        }
        Ok(sum)
    }

    fn of_one(pid: u32) -> Result<Usage> {
        let fields = fields_of_stat(pid)?;
        let number = |at: usize| {
            fields.get(at).and_then(|field| field.parse::<u64>().ok()).context("no number")
        };
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
        let (user_ns, system_ns) = (number(11)? * tick_ns, number(12)? * tick_ns);
        let cpu_ns = schedstat_ns(pid).unwrap_or(user_ns + system_ns);
        let rss_bytes = number(21)? * rustix::param::page_size() as u64;
        let main_ns = thread_ns(format!("/proc/{pid}/task/{pid}/schedstat")).unwrap_or(0);
        Ok(Usage { cpu_ns, user_ns, main_ns, rss_bytes })
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
    kib_field(&status, "VmHWM:")
}

/// The process's memory in bytes, of which pages that it shares count in part (PSS).
///
/// # Errors
/// It has exited.
pub fn shared_out_bytes(pid: u32) -> Result<u64> {
    rollup(pid, "Pss:")
}

/// The changed memory that the process shares with no other, in bytes.
///
/// # Errors
/// It has exited.
pub fn own_bytes(pid: u32) -> Result<u64> {
    rollup(pid, "Private_Dirty:")
}

/// The process's memory in transparent huge pages, in bytes.
///
/// # Errors
/// It has exited.
pub fn huge_bytes(pid: u32) -> Result<u64> {
    rollup(pid, "AnonHugePages:")
}

fn rollup(pid: u32, field: &str) -> Result<u64> {
    kib_field(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?, field)
}

fn kib_field(text: &str, field: &str) -> Result<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(field));
    let rest = rest.with_context(|| format!("no {field}"))?;
    Ok(rest.trim().trim_end_matches("kB").trim_end().parse::<u64>()? << 10)
}

/// A child of the process. Not every kernel lists them in a file.
///
/// # Errors
/// /proc cannot be read.
pub fn child_of(pid: u32) -> Result<Option<u32>> {
    let mut numbers = fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let parent = pid.to_string();
    // One that ends meanwhile is not it.
    let is_child =
        |&other: &u32| fields_of_stat(other).is_ok_and(|fields| fields.get(1) == Some(&parent));
    Ok(numbers.find(is_child))
}

/// Whether a process has exited; its parent may not know yet.
pub fn has_ended(pid: u32) -> bool {
    fields_of_stat(pid).map_or(true, |fields| fields.first().is_none_or(|state| state == "Z"))
}

/// Page faults so far that needed no disk.
///
/// # Errors
/// It has exited.
pub fn minor_faults(pid: u32) -> Result<u64> {
    Ok(fields_of_stat(pid)?.get(7).context("no faults")?.parse()?)
}

/// The same, of its main thread alone.
pub fn main_thread_faults(pid: u32) -> Result<u64> {
    Ok(fields_of_stat(format_args!("{pid}/task/{pid}"))?.get(7).context("no faults")?.parse()?)
}

/// The fields of /proc/PID/stat, or of a thread's, from the state on.
fn fields_of_stat(of: impl std::fmt::Display) -> Result<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{of}/stat"))?;
    // The name in parentheses can contain anything.
    let fields = stat.rsplit_once(") ").context("no fields")?.1;
    Ok(fields.split_whitespace().map(str::to_owned).collect())
}

/// Processor time of this process, in nanoseconds, including threads that have ended.
pub fn own_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The use between two readings; memory as of the second.
impl Sub for Usage {
    type Output = Usage;

    fn sub(self, before: Usage) -> Usage {
        Usage {
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            user_ns: self.user_ns.saturating_sub(before.user_ns),
            main_ns: self.main_ns.saturating_sub(before.main_ns),
            rss_bytes: self.rss_bytes,
        }
    }
}

/// The sum over the current threads.
fn schedstat_ns(pid: u32) -> Option<u64> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        // A thread may end in the meantime.
        sum += thread_ns(task.ok()?.path().join("schedstat")).unwrap_or(0);
    }
    (sum > 0).then_some(sum)
}

/// The first number of a thread's schedstat.
fn thread_ns(schedstat: impl AsRef<std::path::Path>) -> Option<u64> {
    fs::read_to_string(schedstat).ok()?.split(' ').next()?.parse().ok()
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
