//! midi as this host has loaded it: the engine, the way from here to the host, and all that this
//! layer remembers. Everything else in this layer uses it; it uses the files of its parts and none
//! of the others.
//!
//! The statics that are left in this layer, and their reasons:
//!
//! * [`Instance`] itself: the host's callbacks have no other way to it. It needs no
//!   initialization, so that a look at its state costs no check, and is right in OnLoad, too.
//! * settings (`config::table`): the host gets pointers to them before there is an engine.
//! * `PANICS`: a panic in OnLoad counts. `reply::OK`: made in OnLoad, never changed.
//! * `report::SHARED`: memory that forked children write to.
//! * `kept::DROPS` and `lock::LOCK`: workers write to them, so they stand apart from the flags
//!   that the main thread reads in each turn.
//! * `users::USERS`: its parts ask this host themselves.
//! * of one thread: where it may log (`hand_over`), the tokens that it holds while it forks
//!   (`fork`), whether it is the main thread (`kept`).

use std::ffi::c_int;
use std::ops::Deref;
use std::sync::{Arc, LazyLock, OnceLock};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use super::active_expiry::ActiveExpiry;
use super::api::{Ctx, Level};
use super::budget::Budget;
use super::context::DetachedCtx;
use super::eviction::EvictionSettings;
use super::io_threads::IoThreads;
use super::pause::Pause;
use super::persistence::backlog::HostBacklog;
use super::renamed::Renamed;
use super::state::clients::{
    HostUnit, ImportSources, OutputLimits, Tracking, WaitingForJobs, Watches,
};
use super::state::doing::{Doing, ModuleStage};
use super::state::gates::HostGates;
use super::state::listener::Listening;
use super::state::messages::Messages;
use super::state::persistence::{
    FileWritten, Forks, HandOver, LoadState, Quarantine, ReplayedTexts, SavePoints, Saves, Sync,
    Waits,
};
use super::state::scripts::PortScripts;
use super::state::slots::SlotMoves;
use super::state::{BuiltSettings, Flag, part};
use crate::engine::{Engine, Locked, Waker};

/// MODULE LIST's `ver`, as Redis's own modules count: 1.2.3 is 10203.
pub const VERSION: c_int = {
    const fn number(digits: &str) -> c_int {
        let (digits, mut at, mut number) = (digits.as_bytes(), 0, 0);
        while at < digits.len() {
            number = number * 10 + (digits[at] - b'0') as c_int;
            at += 1;
        }
        number
    }
    number(env!("CARGO_PKG_VERSION_MAJOR")) * 10_000
        + number(env!("CARGO_PKG_VERSION_MINOR")) * 100
        + number(env!("CARGO_PKG_VERSION_PATCH"))
};

part! {
    /// The module in this host. Its parts that exist from OnLoad on are [`Loaded`]: [`begin`] makes
    /// them.
    pub struct Instance {
        loaded: OnceLock<Loaded> = OnceLock::new(),
        /// The settings before any load has changed them.
        pub built_settings: OnceLock<BuiltSettings> = OnceLock::new(),
        /// The host's present activity, and whether its clients are paused.
        pub doing: Doing = Doing::new(),
        pub pause: Pause = Pause::new(),
        /// The host's reasons to refuse commands.
        pub gates: HostGates = HostGates::new(),
        /// The unit that is open.
        pub unit: HostUnit = HostUnit::new(),
        /// The script of a port's client that runs.
        pub scripts: PortScripts = PortScripts::new(),
        /// The connection by which midi hears the host's messages.
        pub listening: Listening = Listening::new(),
        /// Messages for the main thread, and its time for them.
        pub messages: Messages = Messages::new(),
        pub budget: Budget = Budget::new(),
        /// The log of writes, and the replication backlog.
        pub hand_over: HandOver = HandOver::new(),
        pub backlog: HostBacklog = HostBacklog::new(),
        /// Forks, and saves, here and in children.
        pub forks: Forks = Forks::new(),
        pub file: FileWritten = FileWritten::new(),
        pub saves: LazyLock<Mutex<Saves>> = LazyLock::new(Mutex::default),
        pub save_points: SavePoints = SavePoints::new(),
        /// Loads.
        pub loads: LazyLock<Mutex<LoadState>> = LazyLock::new(Mutex::default),
        pub replay: ReplayedTexts = Mutex::new(None),
        /// Whether a replica's keys are its master's, and what keeps it apart if not.
        pub sync: Sync = Sync::new(),
        pub quarantine: Quarantine = Quarantine::new(),
        /// Clients in WAIT and WAITAOF.
        pub waits: Waits = Waits::new(),
        /// Slots that move.
        pub slots: SlotMoves = SlotMoves::new(),
        /// WATCH, and client-side caching.
        pub watches: Watches = Watches::new(),
        pub tracking: Tracking = Tracking::new(),
        /// Clients that wait for jobs, those that import keys, and the largest replies to any.
        pub waiting_for_jobs: WaitingForJobs = LazyLock::new(Mutex::default),
        pub import_sources: ImportSources = Mutex::new(None),
        pub output: OutputLimits = OutputLimits::new(),
        /// Commands of operators whose effect the host does not report.
        pub renamed: Renamed = Renamed::new(),
        pub active_expiry: ActiveExpiry = ActiveExpiry::new(),
        pub eviction: EvictionSettings = EvictionSettings::new(),
        /// The host's threads for sockets.
        pub io_threads: IoThreads = IoThreads::new(),
        /// Whether the host's list of modules may have changed, and whether midi is alone on it.
        pub modules_may_change: Flag = Flag::new(true),
        pub is_alone: Flag = Flag::new(false),
    }
}

/// The parts that need the host, made when the module is loaded.
pub struct Loaded {
    /// The keyspace.
    pub engine: Arc<Engine>,
    /// The context for calls to the host outside of any command.
    ctx: DetachedCtx,
    /// The descriptor on which the main thread sleeps, in the host's event loop.
    pub waker: &'static Waker,
    /// The workers. They never end, unless the host takes the module back.
    workers: Mutex<Vec<JoinHandle<()>>>,
}

static INSTANCE: Instance = Instance::new();

/// Gives the instance its engine. Once, in OnLoad, before anything is registered that uses it.
pub fn begin(
    ctx: Ctx<'_>,
    engine: Arc<Engine>,
    waker: &'static Waker,
    workers: Vec<JoinHandle<()>>,
) {
    let (ctx, workers) = (DetachedCtx::new(ctx), Mutex::new(workers));
    let loaded = Loaded { engine, ctx, waker, workers };
    assert!(INSTANCE.loaded.set(loaded).is_ok(), "the host loads a module once");
}

/// The instance. Callbacks that are registered after [`begin`] may use all of it; before that,
/// there is no engine.
#[inline]
pub fn instance() -> &'static Instance {
    &INSTANCE
}

/// The instance; `None` if it has no engine yet.
pub fn if_begun() -> Option<&'static Instance> {
    INSTANCE.loaded.get().map(|_| &INSTANCE)
}

/// The instance; `None` if it has no engine yet, or has been withdrawn.
pub fn if_in_use() -> Option<&'static Instance> {
    if_begun().filter(|instance| !instance.doing.is(ModuleStage::Withdrawn))
}

impl Instance {
    /// A command has left something to the next turn of the main loop. If the host runs it behind
    /// BEFORE_SLEEP, that turn must come soon.
    pub fn wake_behind_turn(&self) {
        if self.doing.turn_is_over.get() {
            self.engine.context().outside.wake_main();
        }
    }
}

impl Deref for Instance {
    type Target = Loaded;

    #[inline]
    fn deref(&self) -> &Loaded {
        self.loaded.get().expect("made before anything could ask for it")
    }
}

impl Loaded {
    /// A context that belongs to no command.
    pub fn ctx<'l>(&'l self, locked: Locked<'l>) -> Ctx<'l> {
        self.ctx.ctx(locked)
    }

    /// Writes a line to the host's log, on any thread.
    pub fn log(&self, level: Level, text: &str) {
        self.ctx.log(level, text);
    }

    /// Ends the workers, which the host does not.
    pub fn stop_workers(&self) {
        self.engine.context().workers.stop();
        self.workers.lock().drain(..).for_each(|worker| _ = worker.join());
    }
}
