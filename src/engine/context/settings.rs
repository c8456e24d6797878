//! The engine's settings.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::port::PortSettings;
use crate::command::{Cluster, Limits};
use crate::limits;
use crate::store::UnixMs;

/// Settings that cannot change while the engine lives.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Number of workers, at least 1.
    pub workers: usize,
    /// Number of shards, a power of two up to 65,536.
    pub shards: usize,
    /// Number of databases.
    pub databases: u32,
    /// Whether, and how, the host is a node of a cluster.
    pub cluster: Cluster,
    /// Every command runs alone, in one serial order.
    pub safemode: bool,
    /// The wall clock.
    pub clock: fn() -> UnixMs,
}

/// Settings that can change at any time.
#[derive(Debug)]
pub struct Settings {
    /// `midi.dispatch pool`: no command runs at once.
    pub pool: AtomicBool,
    /// `midi.active-defrag`: memory that is hardly used is emptied and given back.
    pub packs: AtomicBool,
    /// `midi.max-jobs`.
    pub max_jobs: AtomicUsize,
    /// `midi.max-queued-commands`.
    pub max_queued: AtomicUsize,
    /// `midi.max-pattern-bytes`.
    pub max_pattern_bytes: AtomicUsize,
    /// `midi.max-key-bytes`.
    pub max_key_bytes: AtomicUsize,
    /// `midi.max-value-bytes`.
    pub max_value_bytes: AtomicUsize,
    /// `midi.hash-max-listpack-entries`.
    pub listpack_entries: AtomicUsize,
    /// `midi.hash-max-listpack-value`.
    pub listpack_value: AtomicUsize,
    /// The eviction policy goes by how often keys are used.
    pub counts_uses: AtomicBool,
    /// `midi.keep-bytes`.
    pub keep_bytes: AtomicUsize,
    /// `midi.max-atomic-keys`.
    pub max_atomic_keys: AtomicUsize,
    /// `midi.journal-buffer`: bytes of the log's tail at which writes wait.
    pub journal_buffer: AtomicUsize,
    /// `midi.max-transaction-bytes`: the bytes that commands that run together may log and keep.
    pub max_transaction_bytes: AtomicUsize,
    /// The largest reply that a client of the host's door may get, in bytes: the host's own
    /// `client-output-buffer-limit`.
    pub host_output: AtomicUsize,
    /// The settings of the ports.
    pub port: PortSettings,
}

/// The defaults of limits.rs.
impl Default for Settings {
    fn default() -> Self {
        let size = |limit: i64| AtomicUsize::new(limit as usize);
        Settings {
            pool: AtomicBool::new(false),
            packs: AtomicBool::new(true),
            max_jobs: size(limits::MAX_JOBS_DEFAULT),
            max_queued: size(limits::MAX_QUEUED_DEFAULT),
            max_pattern_bytes: size(limits::MAX_PATTERN_BYTES_DEFAULT),
            max_key_bytes: size(limits::MAX_STRING_BYTES_DEFAULT),
            max_value_bytes: size(limits::MAX_STRING_BYTES_DEFAULT),
            listpack_entries: size(limits::LISTPACK_ENTRIES_DEFAULT),
            listpack_value: size(limits::LISTPACK_VALUE_DEFAULT),
            counts_uses: AtomicBool::new(false),
            keep_bytes: size(limits::KEEP_BYTES_DEFAULT),
            max_atomic_keys: size(limits::MAX_ATOMIC_KEYS_DEFAULT),
            journal_buffer: size(limits::JOURNAL_BUFFER_DEFAULT),
            max_transaction_bytes: size(limits::MAX_TRANSACTION_BYTES_DEFAULT),
            host_output: AtomicUsize::new(usize::MAX),
            port: PortSettings::default(),
        }
    }
}

impl Settings {
    /// The limits of a command on a thread that may make replies of up to `max_reply_bytes`.
    #[inline]
    pub fn limits(&self, max_reply_bytes: usize) -> Limits {
        Limits {
            max_pattern_bytes: self.max_pattern_bytes.load(Ordering::Relaxed),
            max_key_bytes: self.max_key_bytes.load(Ordering::Relaxed),
            max_value_bytes: self.max_value_bytes.load(Ordering::Relaxed),
            keep_bytes: self.keep_bytes.load(Ordering::Relaxed),
            max_atomic_keys: self.max_atomic_keys.load(Ordering::Relaxed),
            max_reply_bytes,
            max_bytes_at_once: usize::MAX,
            listpack_entries: self.listpack_entries.load(Ordering::Relaxed),
            listpack_value: self.listpack_value.load(Ordering::Relaxed),
            counts_uses: self.counts_uses.load(Ordering::Relaxed),
        }
    }
}
