//! Counters without shared writes: each thread has a slot and writes its own cache lines; a reader
//! adds them up.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::call::Outcome;
use super::ledger::ThreadLog;
use super::times::{Times, TimesSum};
use crate::command::COMMANDS;
use crate::limits::TIMED_CALLS;

pub use crate::store::Census;

/// A counter that one thread writes and all may read.
#[derive(Default)]
pub struct Count(AtomicU64);

impl Count {
    #[inline]
    pub(super) fn add(&self, number: u64) {
        self.0.store(self.get() + number, Ordering::Relaxed);
    }

    pub(super) fn set(&self, number: u64) {
        self.0.store(number, Ordering::Relaxed);
    }

    /// The count.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A sum that goes up and down, written by one thread.
#[derive(Default)]
struct Sum(AtomicI64);

impl Sum {
    #[inline]
    fn add(&self, number: i64) {
        if number != 0 {
            self.0.store(self.get() + number, Ordering::Relaxed);
        }
    }

    #[inline]
    fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of one thread; any thread may read it. Slot 0 belongs to the holder of the host's
/// global lock (the main thread), slot `1 + n` to worker `n`.
pub struct ThreadCounts {
    /// This slot's number.
    pub number: usize,
    commands: Box<[PerCommand]>,
    databases: Box<[PerDatabase]>,
    bytes: Sum,
    /// Bytes gained and lost since the thread last added up the memory of all tables.
    pub(super) changed_bytes: Count,
    expired: Sum,
    /// Keys that this thread has evicted.
    pub evicted: Count,
    /// Changes of keys, as the host counts them for its save points.
    pub(super) changed: Count,
    /// Commands that ran at once on this thread.
    pub at_once: Count,
    /// Commands that this thread passed to others.
    pub queued: Count,
    /// Queued commands that this thread ran.
    pub ran_queued: Count,
    /// Slices of jobs.
    pub slices: Count,
    /// Turns of the thread's loop.
    pub turns: Count,
    /// Look-ups of commands that read, which found their key.
    pub hits: Count,
    /// Those that did not.
    pub misses: Count,
    pub(super) log: ThreadLog,
}

#[derive(Default)]
struct PerCommand {
    calls: Count,
    timed: Count,
    timed_ns: Count,
    rejected: Count,
    failed: Count,
    /// Those of the timed calls; made for the first of them.
    times: OnceLock<Box<Times>>,
}

impl PerCommand {
    /// Adds the time of this many calls, together.
    fn took(&self, calls: u64, time: Duration) {
        let ns = time.as_nanos() as u64;
        self.timed.add(calls);
        self.timed_ns.add(ns);
        if calls > 0 {
            self.times.get_or_init(Box::default).add(calls, ns / calls);
        }
    }
}

#[derive(Default)]
struct PerDatabase {
    keys: Sum,
    expiring: Sum,
    bytes: Sum,
}

/// A command's calls and time, all threads together.
#[derive(Clone, Copy, Default)]
pub struct CommandCount {
    /// How often it was called.
    pub calls: u64,
    timed: u64,
    timed_ns: u64,
    /// How often it was refused before it ran.
    pub rejected: u64,
    /// How often it ran and replied with an error.
    pub failed: u64,
}

impl CommandCount {
    /// What was counted after `before`.
    pub fn since(&self, before: &CommandCount) -> CommandCount {
        CommandCount {
            calls: self.calls.saturating_sub(before.calls),
            timed: self.timed.saturating_sub(before.timed),
            timed_ns: self.timed_ns.saturating_sub(before.timed_ns),
            rejected: self.rejected.saturating_sub(before.rejected),
            failed: self.failed.saturating_sub(before.failed),
        }
    }

    /// Whether there is anything to report.
    pub fn is_anything(&self) -> bool {
        self.calls + self.rejected + self.failed > 0
    }

    /// Mean time of a call in microseconds, from the calls that were timed.
    pub fn usec_per_call(&self) -> f64 {
        if self.timed == 0 {
            return 0.0;
        }
        self.timed_ns as f64 / self.timed as f64 / 1000.0
    }

    /// Time of all calls in microseconds, extrapolated from the timed ones.
    pub fn usec(&self) -> u64 {
        (self.usec_per_call() * self.calls as f64) as u64
    }
}

impl ThreadCounts {
    /// A slot with all counters at zero.
    pub(super) fn new(number: usize, databases: usize) -> Self {
        ThreadCounts {
            number,
            commands: COMMANDS.iter().map(|_| PerCommand::default()).collect(),
            databases: (0..databases).map(|_| PerDatabase::default()).collect(),
            bytes: Sum::default(),
            changed_bytes: Count::default(),
            expired: Sum::default(),
            evicted: Count::default(),
            changed: Count::default(),
            at_once: Count::default(),
            queued: Count::default(),
            ran_queued: Count::default(),
            slices: Count::default(),
            turns: Count::default(),
            hits: Count::default(),
            misses: Count::default(),
            log: ThreadLog::default(),
        }
    }

    /// Counts the keys and bytes that a table gained or lost.
    pub(super) fn book(&self, db: u32, change: Census) {
        if change == Census::default() {
            return;
        }
        if let Some(database) = self.databases.get(db as usize) {
            database.keys.add(change.keys);
            database.expiring.add(change.expiring);
            database.bytes.add(change.bytes);
        }
        self.bytes.add(change.bytes);
        self.changed_bytes.add(change.bytes.unsigned_abs());
        self.expired.add(change.expired);
    }

    /// Counts a call of command number `command` if its outcome is `Done`, and times some calls.
    #[inline(always)]
    pub(super) fn counted(&self, command: usize, run: impl FnOnce() -> Outcome) -> Outcome {
        let calls = &self.commands[command].calls;
        let outcome = if calls.get().is_multiple_of(TIMED_CALLS) {
            self.run_timed(command, run)
        } else {
            run()
        };
        if outcome == Outcome::Done {
            calls.add(1);
        }
        outcome
    }

    /// The time, if a call of this command that begins now is to be timed.
    #[inline(always)]
    pub fn begin(&self, command: usize) -> Option<Instant> {
        self.commands[command].calls.get().is_multiple_of(TIMED_CALLS).then(Instant::now)
    }

    /// Counts a call that began at that time, if it is timed.
    #[inline(always)]
    pub fn end(&self, command: usize, start: Option<Instant>) {
        self.called(command);
        if let Some(start) = start {
            self.timed(command, start.elapsed());
        }
    }

    /// Runs up to `most` calls of one command, counts as many as `run` returns, and times them if
    /// one of them would be timed alone.
    pub(super) fn counted_together(
        &self,
        command: usize,
        most: usize,
        run: impl FnOnce() -> usize,
    ) -> usize {
        let count = &self.commands[command];
        let calls = count.calls.get();
        let is_timed = calls.next_multiple_of(TIMED_CALLS) < calls + most as u64;
        let start = is_timed.then(Instant::now);
        let done = run() as u64;
        count.calls.add(done);
        if let Some(start) = start.filter(|_| done > 0) {
            count.took(done, start.elapsed());
        }
        done as usize
    }

    #[cold]
    fn run_timed(&self, command: usize, run: impl FnOnce() -> Outcome) -> Outcome {
        let start = Instant::now();
        let outcome = run();
        if outcome == Outcome::Done {
            self.timed(command, start.elapsed());
        }
        outcome
    }

    /// Adds the time of a call that was counted before.
    pub fn timed(&self, command: usize, time: Duration) {
        self.commands[command].took(1, time);
    }

    /// Counts a call of a command that was refused before it ran.
    #[cold]
    pub fn rejected(&self, command: usize) {
        self.commands[command].rejected.add(1);
    }

    /// Notes that a call, which is counted as well, replied with an error.
    #[cold]
    pub fn failed(&self, command: usize) {
        self.commands[command].failed.add(1);
    }

    /// Counts a look-up of a command that reads.
    #[inline(always)]
    pub(in crate::engine) fn looked_up(&self, is_there: bool) {
        if is_there { self.hits.add(1) } else { self.misses.add(1) }
    }

    /// Counts a call that is timed elsewhere.
    #[inline(always)]
    pub fn called(&self, command: usize) {
        self.commands[command].calls.add(1);
    }

    pub(super) fn add_census(&self, db: usize, sum: &mut Census) {
        let Some(database) = self.databases.get(db) else {
            return;
        };
        sum.keys += database.keys.get();
        sum.expiring += database.expiring.get();
    }

    pub(super) fn keys(&self) -> i64 {
        self.databases.iter().map(|database| database.keys.get()).sum()
    }

    pub(super) fn bytes_of(&self, db: usize) -> i64 {
        self.databases.get(db).map_or(0, |database| database.bytes.get())
    }

    pub(super) fn expiring(&self) -> i64 {
        self.databases.iter().map(|database| database.expiring.get()).sum()
    }

    pub(super) fn add_totals(&self, sum: &mut Census) {
        sum.bytes += self.bytes.get();
        sum.expired += self.expired.get();
    }

    pub(super) fn add_command(&self, command: usize, sum: &mut CommandCount) {
        let count = &self.commands[command];
        sum.calls += count.calls.get();
        sum.timed += count.timed.get();
        sum.timed_ns += count.timed_ns.get();
        sum.rejected += count.rejected.get();
        sum.failed += count.failed.get();
    }

    pub(super) fn add_times(&self, command: usize, sum: &mut TimesSum) {
        if let Some(times) = self.commands[command].times.get() {
            times.add_to(sum);
        }
    }

    /// Counts commands that ran at once.
    #[inline]
    pub fn ran_at_once(&self, commands: usize) {
        self.at_once.add(commands as u64);
    }

    /// Counts a long command that this thread has run to its end, and its time.
    pub fn ran_long(&self, command: usize, started: Instant) {
        self.called(command);
        self.timed(command, started.elapsed());
    }
}
