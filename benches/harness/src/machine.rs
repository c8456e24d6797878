//! Describes this machine.

use std::fs;
use std::process::Command;

use crate::process::processors;
use crate::results::Machine;

/// Inspects this machine.
pub fn this_machine() -> Machine {
    Machine {
        processor: field("/proc/cpuinfo", "model name")
            .unwrap_or_else(|| std::env::consts::ARCH.into()),
        cores: processors().len(),
        memory_gib: memory_kib() / (1 << 20) as f64,
        kernel: version(&rustix::system::uname().release().to_string_lossy()).into(),
        date: output("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
        commit: commit(),
    }
}

/// The commit; `-dirty` if files differ from it, other than those that an earlier run wrote.
fn commit() -> String {
    let commit = output("git", &["describe", "--always"]);
    let changed =
        output("git", &["status", "--porcelain", "-uno", ":/", ":(exclude,top)docs/benchmarks*"]);
    if changed.is_empty() { commit } else { commit + "-dirty" }
}

/// The leading number, without what a distribution or a host adds to it.
fn version(release: &str) -> &str {
    release.split(['-', '+']).next().unwrap_or_default()
}

fn memory_kib() -> f64 {
    let text = field("/proc/meminfo", "MemTotal").unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0.0)
}

/// `name : value` in a file of /proc.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn output(program: &str, args: &[&str]) -> String {
    let output =
        Command::new(program).args(args).output().ok().filter(|output| output.status.success());
    output.map_or("unknown".into(), |output| {
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    })
}
