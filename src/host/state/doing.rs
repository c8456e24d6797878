//! The host's present activity, as far as it concerns midi's keys. Events and the command filter
//! report it; all files of this layer ask here.
//!
//! ```text
//! The process
//!
//!          the main loop turns         SHUTDOWN
//! Loaded ──────────────────► Settled ───────────► Ending
//!    │                          ▲                    │
//!    │ MODULE LOADEX            └────────────────────┘
//!    ▼ takes it back             the last save failed: the main loop turns
//! Withdrawn
//!                 fork
//! any but that ──────────► Forked: the child, to its end
//!
//! Saving without a fork, and emptying for a load
//!
//!            SYNC_*_START           ENDED, FAILED               the main loop turns, somebody
//! Open ─────────────────► TailBack ───────────────► Closed ─┐   writes, or a pause comes
//!  ▲ └──────────────────────────────────────────────► ▲     │
//!  │             DEBUG RELOAD, DEBUG LOADAOF          │     │
//!  ├──────────────────────────────────────────────────┼─────┘
//!  │                                LOADING *_START   │
//!  └──────── Emptied ─────────────────────────────────┘
//!                ▲ all databases are flushed, it seems for a load: from Open and Closed
//!
//! Loading an AOF
//!
//!    LOADING *_START                  the same: a DEBUG RELOAD in the AOF
//! 0 ────────────────► 1 (of an AOF) ────────────────────────────────────► 2
//!   ◄────────────────               ◄────────────────────────────────────
//!     ENDED, FAILED                                ENDED, FAILED
//! ```
//!
//! Loads from elsewhere show in the host's own flags; [`super::persistence::LoadState`] has what
//! midi needs of them. The flags also say whether the host is a replica, but for one moment: an
//! EXEC in which it has become one goes on as a master's.

use std::sync::atomic::{AtomicU8, Ordering};

use super::{Flag, Gauge, part};

/// The stage of the module, and of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ModuleStage {
    /// The host's main loop has not turned since.
    Loaded,
    /// The module stays.
    Settled,
    /// The host exits, unless its last save fails.
    Ending,
    /// The host has taken the module back, and no longer calls it.
    Withdrawn,
    /// This process is a forked child, in which no other thread lives.
    Forked,
}

/// A save without a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum SaveStage {
    /// There is none.
    Open,
    /// The host saves, and the tail of the log has been taken back for it.
    TailBack,
    /// The host saves, and will load the same again; or it has saved, and nothing has run since.
    Closed,
    /// The host empties its databases and seems to load others next. A client that writes shows
    /// that it does not.
    Emptied,
}

part! {
    /// The host's present activity.
    pub struct Doing {
        /// A [`ModuleStage`].
        stage: AtomicU8 = AtomicU8::new(ModuleStage::Loaded as u8),
        /// A [`SaveStage`].
        save: AtomicU8 = AtomicU8::new(SaveStage::Open as u8),
        /// How many loads are under way of which the outermost is that of an AOF. A host may log a
        /// DEBUG RELOAD: then there are two, and the host forgets the outer one when the inner one
        /// ends.
        aof_loads: Gauge = Gauge::new(0),
        /// How many DEBUG RELOAD have been called in this turn of the main loop, or may wait for
        /// the end of a pause: one may be running.
        reloads: Gauge = Gauge::new(0),
        /// The same of DEBUG LOADAOF.
        aof_reloads: Gauge = Gauge::new(0),
        /// FLUSHALL has been called, or queued, in this turn of the main loop.
        flushes: Flag = Flag::new(false),
        /// A command that may pause clients has come in this turn of the main loop. From there to
        /// the end of the turn no worker writes, and the tail is handed over, once.
        pub hands_over: Flag = Flag::new(false),
        /// The main loop is about to sleep, and this turn's commands have been seen to. Some hosts
        /// run more of them after that, and send their replies at once.
        pub turn_is_over: Flag = Flag::new(false),
        /// The host has become a replica in an EXEC, the rest of which it runs as a master's.
        pub is_demoted_in_exec: Flag = Flag::new(false),
    }
}

impl Doing {
    /// Whether the module is at this stage.
    #[inline]
    pub fn is(&self, stage: ModuleStage) -> bool {
        self.stage.load(Ordering::Relaxed) == stage as u8
    }

    /// Goes on to this stage. Nothing comes after [`ModuleStage::Withdrawn`] and
    /// [`ModuleStage::Forked`].
    #[inline]
    pub fn enter(&self, stage: ModuleStage) {
        if !self.is(stage) && !self.is(ModuleStage::Withdrawn) && !self.is(ModuleStage::Forked) {
            self.stage.store(stage as u8, Ordering::Relaxed);
        }
    }

    /// Whether the host loads its data for the first time, before its main loop turns.
    pub fn is_starting(&self) -> bool {
        self.is(ModuleStage::Loaded)
    }

    /// Whether this process is a forked child.
    pub fn is_child(&self) -> bool {
        self.is(ModuleStage::Forked)
    }

    fn is_save(&self, stage: SaveStage) -> bool {
        self.save.load(Ordering::Relaxed) == stage as u8
    }

    /// Whether the keyspace is closed because the host saves, or has saved, without a fork.
    pub fn is_closed_by_save(&self) -> bool {
        !self.is_save(SaveStage::Open)
    }

    /// A save without a fork begins, or what must not be written to meanwhile: the keyspace is
    /// closed. True if the caller is to take the tail back; only if it `may` be taken back.
    pub fn save_begins(&self, may: bool) -> bool {
        let is_new = !self.is_save(SaveStage::TailBack);
        if is_new {
            let stage = if may { SaveStage::TailBack } else { SaveStage::Closed };
            self.save.store(stage as u8, Ordering::Relaxed);
        }
        is_new && may
    }

    /// The save is over; the keyspace stays closed. True if the caller is to make the tail again.
    pub fn save_ends(&self) -> bool {
        let is_back = self.is_save(SaveStage::TailBack);
        if is_back {
            self.save.store(SaveStage::Closed as u8, Ordering::Relaxed);
        }
        is_back
    }

    /// Something else runs, so the keyspace may open. True if it was closed.
    #[inline]
    pub fn opens_after_save(&self) -> bool {
        let is_closed = self.is_save(SaveStage::Closed) || self.is_save(SaveStage::Emptied);
        if is_closed {
            self.save.store(SaveStage::Open as u8, Ordering::Relaxed);
        }
        is_closed
    }

    /// All databases are being emptied. True if a load follows, as far as can be told: `syncs` says
    /// whether this is a replica to which its master sends no commands now. If nobody has told it
    /// to flush it is about to load what the master sends. In an EXEC, and after a pause, it may be
    /// the flush of a client whose FLUSHALL came long before (`may_be_old`): then only a DEBUG
    /// RELOAD that has just saved is one, not the one that another client was refused.
    pub fn is_emptied_for_load(&self, syncs: bool, may_be_old: bool) -> bool {
        let reloads = self.reloads() && (!may_be_old || self.is_closed_by_save());
        let is_asked = reloads || self.loads_aof();
        let follows = is_asked || syncs && !self.flushes.get();
        if follows {
            self.save.store(SaveStage::Emptied as u8, Ordering::Relaxed);
        }
        follows
    }

    /// DEBUG RELOAD has been called.
    pub fn reload_comes(&self) {
        self.reloads.add(1);
    }

    /// DEBUG LOADAOF has been called.
    pub fn loadaof_comes(&self) {
        self.aof_reloads.add(1);
    }

    /// Whether a DEBUG RELOAD may be running.
    pub fn reloads(&self) -> bool {
        self.reloads.get() > 0
    }

    /// Whether a DEBUG LOADAOF may be running.
    pub fn loads_aof(&self) -> bool {
        self.aof_reloads.get() > 0
    }

    /// FLUSHALL has been called, or queued. `holds_up`: commands may wait for the end of a pause.
    pub fn flushall_comes(&self, holds_up: bool) {
        self.flushes.set(true);
        self.debug_is_over(holds_up);
    }

    /// SAVE has been called, or queued: what it saves is not loaded again.
    pub fn save_comes(&self, holds_up: bool) {
        self.debug_is_over(holds_up);
    }

    /// DEBUG commands that came before have run, or were refused, unless a pause holds them up.
    fn debug_is_over(&self, holds_up: bool) {
        if !holds_up {
            self.reloads.set(0);
            self.aof_reloads.set(0);
        }
    }

    /// What a DEBUG command loads has been loaded, or could not be.
    pub fn debug_has_loaded(&self) {
        self.reloads.set(self.reloads.get().saturating_sub(1));
        self.aof_reloads.set(self.aof_reloads.get().saturating_sub(1));
    }

    /// Whether a load is about to begin, or that of an AOF is under way. The host's flags show
    /// the others.
    pub fn loads(&self) -> bool {
        self.is_save(SaveStage::Emptied) || self.loads_from_aof()
    }

    fn loads_from_aof(&self) -> bool {
        self.aof_loads.get() > 0
    }

    /// A load begins, `of_aof` or from elsewhere.
    pub fn load_begins(&self, of_aof: bool) {
        if self.is_save(SaveStage::Emptied) {
            self.save.store(SaveStage::Closed as u8, Ordering::Relaxed);
        }
        if of_aof || self.loads_from_aof() {
            self.aof_loads.set(self.aof_loads.get() + 1);
        }
    }

    /// A load is over.
    pub fn load_ends(&self) {
        self.aof_loads.set(self.aof_loads.get().saturating_sub(1));
    }

    /// The main loop turns: no command is running. `holds_up`: some may wait for the end of a
    /// pause.
    #[inline]
    pub fn turn_ends(&self, holds_up: bool) {
        self.debug_is_over(holds_up);
        self.flushes.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_and_a_withdrawn_module_stay_so() {
        for last in [ModuleStage::Forked, ModuleStage::Withdrawn] {
            let doing = Doing::new();
            doing.enter(ModuleStage::Settled);
            assert!(!doing.is_starting());
            doing.enter(last);
            doing.enter(ModuleStage::Settled);
            assert!(doing.is(last));
        }
    }

    #[test]
    fn a_replica_that_nobody_told_to_flush_is_about_to_load() {
        let doing = Doing::new();
        assert!(!doing.is_emptied_for_load(false, false) && !doing.loads());
        assert!(
            doing.is_emptied_for_load(true, false) && doing.loads() && doing.is_closed_by_save()
        );
        doing.load_begins(false);
        assert!(!doing.loads() && doing.opens_after_save());
        doing.flushall_comes(false);
        assert!(!doing.is_emptied_for_load(true, false) && !doing.loads());
        doing.turn_ends(false);
        assert!(doing.is_emptied_for_load(true, false) && doing.opens_after_save());
        assert!(!doing.loads(), "somebody writes: the load has failed");
    }

    #[test]
    fn a_save_behind_a_debug_command_takes_the_tail_back() {
        let doing = Doing::new();
        doing.reload_comes();
        doing.save_comes(false);
        assert!(doing.save_begins(!doing.reloads()));
    }

    #[test]
    fn a_flush_behind_a_debug_command_is_no_load() {
        for loads_aof in [false, true] {
            let doing = Doing::new();
            if loads_aof {
                doing.loadaof_comes()
            } else {
                doing.reload_comes()
            }
            assert!(doing.is_emptied_for_load(false, false) && doing.loads());
            assert!(doing.opens_after_save() && !doing.loads(), "somebody writes");
            doing.flushall_comes(false);
            assert!(!doing.is_emptied_for_load(false, false) && !doing.is_closed_by_save());
        }
    }

    #[test]
    fn a_flush_in_an_exec_is_no_load_unless_a_save_came_before() {
        let doing = Doing::new();
        doing.reload_comes();
        assert!(!doing.is_emptied_for_load(false, true) && !doing.loads());
        doing.save_begins(false);
        assert!(doing.is_emptied_for_load(false, true) && doing.loads());
    }

    #[test]
    fn what_a_pause_holds_up_is_remembered() {
        let doing = Doing::new();
        (0..2).for_each(|_| doing.reload_comes());
        doing.save_comes(true);
        doing.flushall_comes(true);
        doing.turn_ends(true);
        for _ in 0..2 {
            assert!(!doing.is_emptied_for_load(false, true), "a flush that waited, too");
            doing.save_begins(false);
            assert!(doing.is_emptied_for_load(false, true) && doing.opens_after_save());
            doing.debug_has_loaded();
        }
        doing.save_begins(false);
        assert!(!doing.is_emptied_for_load(false, true));
        doing.loadaof_comes();
        assert!(doing.is_emptied_for_load(false, true));
        doing.turn_ends(false);
        assert!(!doing.loads_aof());
    }

    #[test]
    fn a_reload_in_an_aof_leaves_the_aof_to_be_loaded() {
        let doing = Doing::new();
        doing.load_begins(false);
        assert!(!doing.loads_from_aof(), "an RDB");
        doing.load_ends();
        doing.load_begins(true);
        doing.load_begins(false);
        doing.load_ends();
        assert!(doing.loads_from_aof());
        doing.load_ends();
        assert!(!doing.loads_from_aof());
    }
}
