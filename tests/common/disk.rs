//! A slow, full or broken disk: a server that is started on it has `tests/shims/disk` in front of
//! its write(), fsync() and fdatasync().

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::server::{Builder, Server, own_library};

/// The disk of one server. Only files in an AOF's directory are on it.
pub struct Disk {
    dir: PathBuf,
    delay: Duration,
}

/// The answers of a broken disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// EIO.
    Broken,
    /// ENOSPC.
    Full,
}

impl Failure {
    fn name(self) -> &'static str {
        match self {
            Failure::Broken => "EIO",
            Failure::Full => "ENOSPC",
        }
    }
}

/// One fsync() or fdatasync() that has ended. Times are those of [`now_ns`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fsync {
    /// The process: the server, or a child of it.
    pub pid: u32,
    /// When it was called.
    pub began_ns: u64,
    /// When it returned.
    pub ended_ns: u64,
    /// Whether it did its work.
    pub is_done: bool,
}

/// Every host's default for `appenddirname`.
const AOF_DIRECTORY: &str = "/appendonlydir/";

impl Disk {
    /// A disk whose fsyncs take longer by `delay`.
    pub fn with_delay(delay: Duration) -> Disk {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("midi-disk-{}-{number}", std::process::id()));
        fs::create_dir_all(&dir).expect("the disk's directory");
        Disk { dir, delay }
    }

    /// Puts the server that `builder` will start on this disk.
    pub fn under(&self, builder: Builder) -> Builder {
        let builder = builder
            .preload(own_library("libmidi_test_disk.so"))
            .env("DISK_PATH", AOF_DIRECTORY)
            .env("DISK_SYNC_MS", self.delay.as_millis().to_string());
        let files = [("DISK_LOG", LOG), ("DISK_FAIL_WRITE", WRITE), ("DISK_FAIL_SYNC", SYNC)];
        files
            .into_iter()
            .fold(builder, |builder, (name, file)| builder.env(name, self.dir.join(file)))
    }

    /// From now on writes fail, until [`Disk::repair`].
    pub fn fail_writes(&self, failure: Failure) {
        self.put(WRITE, failure);
    }

    /// From now on fsyncs fail, until [`Disk::repair`].
    pub fn fail_fsyncs(&self, failure: Failure) {
        self.put(SYNC, failure);
    }

    /// In one step: the server must not read a half-written name.
    fn put(&self, switch: &str, failure: Failure) {
        let unfinished = self.dir.join("unfinished");
        fs::write(&unfinished, failure.name()).expect("a file");
        fs::rename(unfinished, self.dir.join(switch)).expect("a name");
    }

    /// Nothing fails any more.
    pub fn repair(&self) {
        for switch in [WRITE, SYNC] {
            let _ = fs::remove_file(self.dir.join(switch));
        }
    }

    /// The fsyncs that have ended, of the server and its children.
    pub fn fsyncs(&self) -> Vec<Fsync> {
        let log = fs::read_to_string(self.dir.join(LOG)).unwrap_or_default();
        log.lines().map(parse).collect()
    }

    /// Those of the server itself that did their work.
    pub fn fsyncs_of(&self, server: &Server) -> Vec<Fsync> {
        let mut fsyncs = self.fsyncs();
        fsyncs.retain(|fsync| fsync.pid == server.pid() && fsync.is_done);
        fsyncs
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The names of the files in a disk's directory.
const LOG: &str = "log";
const WRITE: &str = "fail-write";
const SYNC: &str = "fail-sync";

fn parse(line: &str) -> Fsync {
    let numbers: Vec<u64> =
        line.split(' ').map(|number| number.parse().expect("a number")).collect();
    let [pid, began_ns, ended_ns, error] = numbers[..] else { panic!("{line:?}") };
    Fsync { pid: pid as u32, began_ns, ended_ns, is_done: error == 0 }
}

/// CLOCK_MONOTONIC in nanoseconds.
pub fn now_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
