//! The counters of the keyspace: what each thread has counted, and how many commands are queued.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

use super::counted::{Counted, CountedCommand};
use crate::command::{COMMANDS, Error};
use crate::engine::context::Config;
use crate::engine::counters::{Census, CommandCount, ThreadCounts};
use crate::engine::error_counts::ErrorCounts;
use crate::engine::slot::ThreadSlot;
use crate::engine::times::TimesSum;
use crate::sync::Locked;

/// The counters of the keyspace.
pub struct Books {
    main_slot: CachePadded<ThreadCounts>,
    worker_slots: Box<[CachePadded<ThreadCounts>]>,
    queued_now: AtomicUsize,
    /// Bytes of values that are being made, and are in no table yet.
    unfinished: Arc<AtomicI64>,
    /// Error replies.
    errors: Mutex<ErrorCounts>,
    errors_of_main: AtomicU64,
    /// What had been counted when the figures of INFO were last reset.
    before: Mutex<Counted>,
}

/// The memory of a value that a job makes before a key gets it. It counts until this is dropped.
pub(in crate::engine) struct Unfinished {
    all: Arc<AtomicI64>,
    bytes: i64,
}

impl Unfinished {
    /// It takes so many bytes by now. Returns by how much it has grown.
    pub(super) fn set(&mut self, bytes: usize) -> i64 {
        let growth = bytes as i64 - self.bytes;
        self.all.fetch_add(growth, Ordering::Relaxed);
        self.bytes += growth;
        growth
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl Books {
    pub(super) fn new(config: &Config) -> Self {
        let slot = |number| CachePadded::new(ThreadCounts::new(number, config.databases as usize));
        Books {
            main_slot: slot(0),
            worker_slots: (1..=config.workers).map(slot).collect(),
            queued_now: AtomicUsize::new(0),
            unfinished: Arc::default(),
            errors: Mutex::default(),
            errors_of_main: AtomicU64::new(0),
            before: Mutex::default(),
        }
    }

    /// The slot of the holder of the global lock.
    #[inline]
    pub fn main_slot<'l>(&'l self, _: Locked<'l>) -> &'l ThreadSlot {
        ThreadSlot::of(&self.main_slot)
    }

    /// The slot of a worker.
    #[inline]
    pub fn worker_slot(&self, worker: usize) -> &ThreadSlot {
        ThreadSlot::of(&self.worker_slots[worker])
    }

    /// What all threads have counted; slot 0 is the main thread's, `1 + n` worker n's.
    pub fn slots(&self) -> impl Iterator<Item = &ThreadCounts> {
        std::iter::once(&self.main_slot).chain(&self.worker_slots).map(|slot| &**slot)
    }

    /// Keys and expiring keys of a database, added up over all threads.
    pub fn census(&self, db: u32) -> Census {
        let mut sum = Census::default();
        for slot in self.slots() {
            slot.add_census(db as usize, &mut sum);
        }
        // The slots are not read at one moment: of a key that was made on one and deleted on
        // another meanwhile, the sum may have only the deletion.
        Census { keys: sum.keys.max(0), expiring: sum.expiring.max(0), ..sum }
    }

    /// Keys of all databases.
    pub fn keys(&self) -> u64 {
        let sum: i64 = self.slots().map(ThreadCounts::keys).sum();
        sum.max(0) as u64
    }

    /// Bytes of a database's table.
    pub fn bytes_of(&self, db: u32) -> i64 {
        self.slots().map(|slot| slot.bytes_of(db as usize)).sum()
    }

    /// Keys of all databases that have an expiry.
    pub fn expiring(&self) -> u64 {
        let sum: i64 = self.slots().map(ThreadCounts::expiring).sum();
        sum.max(0) as u64
    }

    /// Keys that were evicted so far.
    pub fn evicted(&self) -> u64 {
        self.slots().map(|slot| slot.evicted.get()).sum()
    }

    /// Changes of keys so far.
    pub fn changes(&self) -> u64 {
        self.slots().map(|slot| slot.changed.get()).sum()
    }

    /// Bytes of the tables and of unfinished values, and expired keys so far.
    pub fn totals(&self) -> Census {
        let bytes = self.unfinished.load(Ordering::Relaxed);
        let mut sum = Census { bytes, ..Census::default() };
        for slot in self.slots() {
            slot.add_totals(&mut sum);
        }
        sum
    }

    /// A value that is being made, of no bytes so far.
    pub(in crate::engine) fn unfinished(&self) -> Unfinished {
        Unfinished { all: Arc::clone(&self.unfinished), bytes: 0 }
    }

    /// Calls and time of a command.
    pub fn command_count(&self, command: usize) -> CommandCount {
        let mut sum = CommandCount::default();
        for slot in self.slots() {
            slot.add_command(command, &mut sum);
        }
        sum
    }

    /// Counts error replies.
    pub fn count_errors(&self, errors: ErrorCounts) {
        self.errors.lock().absorb(errors);
    }

    /// Counts an error reply with this text, which the main thread gives.
    #[cold]
    pub fn count_error(&self, text: &[u8]) {
        self.errors.lock().add(text);
        self.errors_of_main.fetch_add(1, Ordering::Relaxed);
    }

    /// How many the main thread has counted.
    pub fn errors_of_main(&self) -> u64 {
        self.errors_of_main.load(Ordering::Relaxed)
    }

    /// Error replies since the last reset.
    pub fn errors(&self) -> ErrorCounts {
        self.errors.lock().clone()
    }

    /// What was counted since the last reset.
    pub fn counted(&self) -> Counted {
        self.all_counted().since(&self.before.lock())
    }

    /// Begins the figures of INFO again: CONFIG RESETSTAT. The counters go on, because each is
    /// written by its thread alone.
    pub fn reset(&self) {
        *self.before.lock() = self.all_counted();
        *self.errors.lock() = ErrorCounts::default();
    }

    fn all_counted(&self) -> Counted {
        let sum = |number: fn(&ThreadCounts) -> u64| self.slots().map(number).sum();
        let commands = (0..COMMANDS.len()).map(|command| {
            let count = self.command_count(command);
            let times = (count.calls > 0).then(|| {
                let mut times = Box::<TimesSum>::default();
                self.slots().for_each(|slot| slot.add_times(command, &mut times));
                times
            });
            CountedCommand { count, times }
        });
        Counted {
            commands: commands.collect(),
            hits: sum(|slot| slot.hits.get()),
            misses: sum(|slot| slot.misses.get()),
            evicted: self.evicted(),
            expired: self.totals().expired as u64,
        }
    }

    /// Commands that wait for a shard or are on their way back to their origin.
    pub fn queued_now(&self) -> usize {
        self.queued_now.load(Ordering::Relaxed)
    }

    /// Counts one more command that will be queued, if fewer than `max` are.
    ///
    /// # Errors
    /// [`Error::TooManyQueued`] at the limit.
    pub fn book_queued(&self, slot: &ThreadSlot, max: usize) -> Result<(), Error> {
        if self.queued_now() >= max {
            return Err(Error::TooManyQueued(max));
        }
        slot.queued.add(1);
        self.queued_now.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Uncounts a queued command that has returned to its origin.
    pub fn completed(&self) {
        self.queued_now.fetch_sub(1, Ordering::Relaxed);
    }
}
