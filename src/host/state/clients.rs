//! The host's clients: units, WATCH, client-side caching, limits.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::super::api::CallCounts;
use super::super::string::OwnString;
use super::{Flag, Gauge, part};

part! {
    /// For `unit`.
    pub struct HostUnit {
        /// Whether midi's next command must check if it is part of a unit: a command that is not
        /// midi's has been called since the last check that found none.
        pub asks: Flag = Flag::new(true),
        /// Whether a unit is open: a cheap copy of [`crate::engine::Engine::is_in_unit`].
        pub is_open: Flag = Flag::new(false),
    }
}

part! {
    /// For `watch`.
    pub struct Watches {
        /// Whether a WATCH has been sent since the marks were last counted.
        pub sent: Flag = Flag::new(false),
        /// The WATCHes of this turn of the main loop.
        pub turn: LazyLock<Mutex<WatchTurn>> = LazyLock::new(Mutex::default),
        /// Whether any name waits, readable without the lock.
        pub any_waiting: Flag = Flag::new(false),
        /// Whether the host says when clients disconnect.
        pub is_subscribed: Flag = Flag::new(false),
    }
}

/// The client that sent a WATCH, if the host reports it, and its names.
pub type PendingNames = (Option<u64>, Vec<PendingName>);

/// A name in a WATCH: the host's own argument.
pub struct PendingName(pub OwnString);

// SAFETY: kept in `Watches`, which is used under the global lock only.
unsafe impl Send for PendingName {}

/// The WATCHes of a turn of the main loop.
#[derive(Default)]
pub struct WatchTurn {
    /// Bytes of names that were marked at once.
    pub marked: usize,
    /// Names that are not marked yet.
    pub waiting: Vec<PendingNames>,
    /// The bytes of those.
    pub waiting_bytes: usize,
    /// Whether the host has been asked before the end of the turn.
    pub has_asked: bool,
    /// WATCHes since the host was last asked.
    pub sent: u64,
    /// The host's counts at that time.
    pub counts: CallCounts,
}

part! {
    /// For `notifications`.
    pub struct Tracking {
        /// Whether any client ever sent CLIENT TRACKING.
        pub ever: Flag = Flag::new(false),
        /// Whether a client may have sent CLIENT TRACKING since the host was last asked about it.
        pub asked_for: Flag = Flag::new(false),
        /// Changes by clients that wait for their replies.
        pub waiting: LazyLock<Mutex<PendingChanges>> = LazyLock::new(Mutex::default),
        /// Whether there are any, readable without the lock: it is checked with every reply.
        any_waiting: Flag = Flag::new(false),
    }
}

/// Changed keys, with their databases.
pub type Changes = Vec<(u32, Box<[u8]>)>;

/// Changes by clients that wait for their replies.
#[derive(Default)]
pub struct PendingChanges {
    /// By the client's id.
    pub changes: HashMap<u64, Changes>,
    /// The client that last changed a key. Others that changed it before are notified of that
    /// change.
    pub last: HashMap<Box<[u8]>, u64>,
}

impl Tracking {
    /// Notes a change of a client that waits for its reply.
    pub fn add(&self, client: u64, db: u32, key: &[u8]) {
        self.any_waiting.set(true);
        let mut waiting = self.waiting.lock();
        waiting.changes.entry(client).or_default().push((db, key.into()));
        waiting.last.insert(key.into(), client);
    }

    /// Takes a client's changes of which the host has not been notified.
    pub fn take(&self, client: u64) -> Changes {
        if !self.any_waiting.get() {
            return Changes::new();
        }
        let PendingChanges { changes: all, last } = &mut *self.waiting.lock();
        let mut changes = all.remove(&client).unwrap_or_default();
        self.any_waiting.set(!all.is_empty());
        changes.retain(|(_, key)| last.get(key) == Some(&client) && last.remove(key).is_some());
        changes
    }
}

part! {
    /// For `output`: the largest replies to the host's clients, in bytes.
    pub struct OutputLimits {
        pub normal: Gauge = Gauge::new(u64::MAX),
        /// To clients with subscriptions, which may call any command in RESP3.
        pub pubsub: Gauge = Gauge::new(u64::MAX),
    }
}

/// For `import_source`: by client, whether it is a source.
pub type ImportSources = Mutex<Option<HashMap<u64, bool>>>;

/// For `blocked`, on workers too: for each client that waits for a job, by its address, the flag
/// to set when it disconnects.
pub type WaitingForJobs = LazyLock<Mutex<HashMap<usize, Arc<AtomicBool>>>>;
