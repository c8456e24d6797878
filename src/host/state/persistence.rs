//! For `persistence`: what is known of saves, loads, the log of writes, and replicas. Each part is
//! for the file that it names.

use std::ffi::CStr;
use std::sync::atomic::AtomicU64;
use std::sync::{LazyLock, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;

use super::super::persistence::report::Written;
use super::{Flag, Gauge, part};
use crate::engine::Replay;
use crate::engine::{AllHeld, ReplicaWait, Staging};
use crate::snapshot::LoadStats;

part! {
    /// For `hand_over`.
    pub struct HandOver {
        /// Whether midi itself calls MIDI.JOURNAL, to hand the tail over.
        pub calls_journal: Flag = Flag::new(false),
        /// When it was last looked at whether the host can write to its AOF.
        pub looked_at_aof: Mutex<Option<Instant>> = Mutex::new(None),
        /// Whether the thread that has begun the tail has told the main thread of it.
        pub tail_is_due: Flag = Flag::new(false),
        /// Whether the host syncs nothing while a child of it lives, although its policy is
        /// `always`. `None` if it does not report that.
        pub skips_fsyncs: Mutex<Option<bool>> = Mutex::new(None),
        /// For `events`: a wake-up has been left unread, to end the next sleep of the main loop at
        /// once.
        pub left_unread: Flag = Flag::new(false),
    }
}

part! {
    /// For `fork`, which keeps the rest on the forking thread.
    pub struct Forks {
        /// All shards, in a forked child. They are never dropped: dropping a token ends the
        /// process.
        pub in_child: OnceLock<AllHeld<'static>> = OnceLock::new(),
        /// Forks so far, and how many microseconds midi's part of the last and the longest one
        /// took. Any thread may fork.
        pub count: AtomicU64 = AtomicU64::new(0),
        pub last_pause: AtomicU64 = AtomicU64::new(0),
        pub longest_pause: AtomicU64 = AtomicU64::new(0),
    }
}

part! {
    /// For `base`: the file that this process writes.
    pub struct FileWritten {
        /// Whether it is the base of an AOF.
        pub is_base: Flag = Flag::new(false),
        /// Whether the host has asked for midi's section since it began the file.
        pub has_section: Flag = Flag::new(false),
    }
}

/// What a save writes.
#[derive(Clone, Copy)]
pub enum SavedFile {
    /// An RDB file.
    Rdb,
    /// The base of an AOF.
    Aof,
}

/// For `saving`: what is known of saves.
#[derive(Clone, Copy, Default)]
pub struct Saves {
    /// What the host's child writes, if that is a file.
    pub child: Option<SavedFile>,
    /// Saves to RDB files that the host has counted.
    pub counted: u64,
    /// Whether the last save of each kind has failed.
    pub have_failed: [bool; 2],
    /// Saves that failed.
    pub failed: u64,
    /// When the last save ended that succeeded, in seconds since the epoch; 0 for none.
    pub time: u64,
    /// What it has written.
    pub last: Written,
}

part! {
    /// For `save_points`.
    pub struct SavePoints {
        /// Changes that the host has counted. It may be ahead of midi's own count: see
        /// `save_points::host_logged`.
        pub counted: Gauge = Gauge::new(0),
        /// The most changes that a save point of the host's waits for. At least 1: one may be set
        /// later, and INFO says whether there is anything to save.
        pub needed: Gauge = Gauge::new(u64::MAX),
        /// Changes that the host has counted since it last began to save.
        pub since_save: Gauge = Gauge::new(0),
        /// While changes do not count: how many the host had not counted before.
        pub uncounted: Mutex<Option<u64>> = Mutex::new(None),
    }
}

/// For `loading`: what the host is loading, and has loaded.
#[derive(Default)]
pub struct LoadState {
    /// The keys that have been read, until they take effect.
    pub loaded: Option<Staging>,
    /// The old data is served meanwhile: `repl-diskless-load swapdb`.
    pub is_swap: bool,
    /// The same, until the next load begins: hosts differ in whether REPL_ASYNC_LOAD or LOADING
    /// reports a failure first.
    pub keeps_old: bool,
    /// Where it comes from; `None` once it is loaded.
    pub from: Option<LoadedFrom>,
    /// How many errors the host had when it began to load.
    pub errors_before: u64,
    /// Its sender does not trust these keys.
    pub distrusted: bool,
    /// The command that loads it says that it replaces keys that exist (DEBUG RELOAD MERGE).
    pub replaces: bool,
    /// What has been read of a section, if one is being read.
    pub progress: Option<LoadStats>,
    /// Keys of the last section that was read, and how many milliseconds that took.
    pub last: (u64, u64),
}

/// Where data comes from that the host loads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LoadedFrom {
    /// Its own RDB.
    Rdb,
    /// Its own AOF.
    Aof,
    /// Its master.
    Master,
}

/// For `replay`: the texts that the workers replay, while an AOF is loaded.
pub type ReplayedTexts = Mutex<Option<Replay>>;

part! {
    /// For `sync`: what is known of a replica's keys.
    pub struct Sync {
        /// They may not be its master's.
        pub untrusted: Flag = Flag::new(false),
        /// Why, for INFO.
        pub reason: Mutex<String> = Mutex::new(String::new()),
        /// Whether any of this may have changed in this turn of the main loop.
        pub changed: Flag = Flag::new(false),
        /// Whether a database has been named in this turn that is not there; how many errors the
        /// host had for its master before, and how many such commands had failed, and when that
        /// was counted.
        pub suspects: Flag = Flag::new(false),
        pub errors: Gauge = Gauge::new(0),
        pub failed: Gauge = Gauge::new(0),
        pub counted_at: Gauge = Gauge::new(0),
    }
}

/// A setting of the host's, and a value of it.
pub type Setting<V> = (&'static CStr, V);

part! {
    /// For `quarantine`.
    pub struct Quarantine {
        /// The operator has asked for another try.
        pub may_try: Flag = Flag::new(false),
        /// The link is to stay cut.
        pub is_cut: Flag = Flag::new(false),
        /// What calls CONFIG, or REPLICAOF, is this module.
        pub is_ours: Flag = Flag::new(false),
        /// The operator's values of the settings that are ours now.
        pub kept: Mutex<Vec<Setting<Vec<u8>>>> = Mutex::new(Vec::new()),
        /// For `events`: whether the host's log says what replicas need.
        pub is_need_said: Flag = Flag::new(false),
    }
}

part! {
    /// For `confirmed`: clients in WAIT and WAITAOF.
    pub struct Waits {
        /// Each is a connection of a port, so there are at most `midi.maxclients`.
        pub list: LazyLock<Mutex<WaitList>> = LazyLock::new(Mutex::default),
        /// Whether there are any, readable without the lock.
        pub any: Flag = Flag::new(false),
        /// Whether something has come that may end a wait, or begin one.
        pub look: Flag = Flag::new(false),
        /// The number of this turn of the main loop, as far as clients have come.
        pub turn: Gauge = Gauge::new(0),
        /// Whether replicas are to be asked how far they are.
        pub ask: Flag = Flag::new(false),
        /// Whether the timer that asks them is under way.
        pub is_asking: Flag = Flag::new(false),
        /// The last position when the server last became a replica. What was written until then may
        /// be lost, whatever the stream says in which it is a master again.
        pub demoted_at: Gauge = Gauge::new(0),
        /// Whether the AOF is known to be complete: one that is turned on at run time is not at
        /// once.
        pub aof_is_complete: Flag = Flag::new(false),
    }
}

/// Those that wait.
#[derive(Default)]
pub struct WaitList {
    pub clients: Vec<WaitingClient>,
    /// When the first of them waits no longer.
    pub next_end: Option<Instant>,
    /// The first position that was not safe when they were last looked through.
    pub next_position: Option<u64>,
}

/// One of them.
pub struct WaitingClient {
    pub wait: ReplicaWait,
    /// The turn of the main loop from which on it is looked at. What a command of the client did to
    /// the host's own keys is in the stream when the event is over in which it ran, and in the AOF
    /// one turn later.
    pub from: u64,
    /// The replicas have been asked since what it wrote is in the stream.
    pub has_asked: bool,
}
