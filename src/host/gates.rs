//! The state of the host's gates, for commands that do not pass through them: the ports' commands,
//! queued ones, and long ones.
//!
//! While a port is open, the flags are read in every turn of the main loop, and so before a client
//! of the host door has the reply to what changed them (REPLICAOF, CLIENT PAUSE). INFO and CONFIG
//! cost more: they are read at every cron tick, and in a turn in which something may have changed
//! them. What the host itself learns in its cron (the end of a BGSAVE, replicas that lag) is
//! therefore no older here than there.
//!
//! | what | asked | when |
//! |---|---|---|
//! | flags | in every turn | while a port is open |
//! | INFO | `stale` | an event, a fork or cron came since; or workers want credit |
//! | CONFIG | `settings_stale` | a setting may have changed; while a port is open |

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use redis_module::raw;

use super::active_expiry;
use super::api::{Ctx, must_not_replicate};
use super::import_source;
use super::instance::instance;
use super::pause::Pause;
use super::persistence::sync::SYNC;
use super::persistence::{backlog, confirmed, journal, save_points};
use super::{config, guarded};
use crate::engine::{Gates, Locked};

/// The number of replicas that the host wants for writes, if it does not report that.
const UNKNOWN: i64 = -1;

/// What is known of the host's gates.
pub static GATES: HostGates = HostGates {
    stale: AtomicBool::new(true),
    settings_stale: AtomicBool::new(true),
    ports: AtomicBool::new(false),
    pause: Pause::new(),
    disk_error: AtomicBool::new(false),
    aof_error: AtomicBool::new(false),
    few_replicas: AtomicBool::new(false),
    saving: AtomicBool::new(false),
    handing_over: AtomicBool::new(false),
    demoted_in_exec: AtomicBool::new(false),
    loading_aof: AtomicBool::new(false),
    serves_stale: AtomicBool::new(true),
    stops_at_disk_error: AtomicBool::new(false),
    imports: AtomicBool::new(false),
    replicas_wanted: AtomicI64::new(0),
};

/// The host's reasons to refuse all commands, or writes, as last read.
pub struct HostGates {
    /// Something happened: everything must be read again.
    stale: AtomicBool,
    /// The host's settings may have changed.
    settings_stale: AtomicBool,
    /// Whether any port is open.
    ports: AtomicBool,
    /// What is known of CLIENT PAUSE.
    pub pause: Pause,
    /// What INFO last reported, while a port is open.
    disk_error: AtomicBool,
    aof_error: AtomicBool,
    few_replicas: AtomicBool,
    /// The host saves, or has saved, without a fork, and nothing else has run since.
    saving: AtomicBool,
    /// A command that may pause clients is about to run, and the tail is being handed over.
    handing_over: AtomicBool,
    /// The host has become a replica in an EXEC, the rest of which it runs as a master's.
    demoted_in_exec: AtomicBool,
    /// The host loads an AOF. It may have forgotten that: see `loading`.
    loading_aof: AtomicBool,
    /// What CONFIG last reported.
    serves_stale: AtomicBool,
    stops_at_disk_error: AtomicBool,
    /// Valkey's `import-mode`.
    imports: AtomicBool,
    replicas_wanted: AtomicI64,
}

impl HostGates {
    /// A port will be open: from now on the flags are read in every turn.
    pub fn watch_for_ports(&self) {
        self.ports.store(true, Ordering::Relaxed);
    }

    /// Something happened that may have changed the gates.
    pub fn may_change(&self) {
        self.stale.store(true, Ordering::Relaxed);
    }

    /// The host's settings may have changed.
    pub fn settings_may_change(&self) {
        self.settings_stale.store(true, Ordering::Relaxed);
        self.may_change();
    }

    /// The host begins or ends loading data; meanwhile its main loop does not turn. `of_aof`:
    /// whether it is loading an AOF now.
    pub fn loading(&self, ctx: Ctx<'_>, of_aof: bool) {
        self.loading_aof.store(of_aof, Ordering::Relaxed);
        self.look(ctx);
        self.may_change();
    }

    /// The host saves without a fork: closes the keyspace until something else runs.
    pub fn begin_saving(&self, ctx: Ctx<'_>) {
        self.saving.store(true, Ordering::Relaxed);
        self.look(ctx);
        self.may_change();
    }

    /// Clients may be about to be paused: from here to the end of the turn no worker writes.
    pub fn begin_handover(&self, ctx: Ctx<'_>) {
        self.handing_over.store(true, Ordering::Relaxed);
        self.look(ctx);
    }

    /// The turn ends: clients are paused by now, or will not be.
    pub fn end_handover(&self, ctx: Ctx<'_>) {
        self.handing_over.store(false, Ordering::Relaxed);
        self.look(ctx);
    }

    /// The host has become a replica. In an EXEC it runs what follows all the same, its own
    /// commands and others', and so does midi's door; workers write no more.
    pub fn demoted(&self, ctx: Ctx<'_>) {
        let in_exec = ctx.flags() & raw::REDISMODULE_CTX_FLAGS_MULTI != 0;
        if in_exec && !instance().engine.gates().has(Gates::READ_ONLY) {
            self.demoted_in_exec.store(true, Ordering::Relaxed);
        }
    }

    /// Something else runs: a save without a fork is over. To be followed by [`HostGates::check`]
    /// or [`HostGates::refresh`], before anything is written: what is written while the keyspace is
    /// closed is not logged.
    #[inline]
    fn end_saving(&self) {
        if self.saving.load(Ordering::Relaxed) {
            self.saving.store(false, Ordering::Relaxed);
            // Cron may have read everything since the save.
            self.may_change();
        }
    }

    /// The main loop is about to sleep: reads what may have changed.
    #[inline]
    pub fn before_sleep(&self, ctx: Ctx<'_>) {
        self.pause.before_sleep(ctx);
        if active_expiry::before_sleep(ctx) {
            self.may_change();
        }
        if self.stale.load(Ordering::Relaxed) || instance().engine.ledger.admission.wants_credit() {
            self.refresh(ctx);
        } else if self.ports.load(Ordering::Relaxed)
            || instance().engine.gates().has(Gates::WORKERS_PAUSED)
        {
            self.look(ctx);
        }
    }

    /// Before a write at the host door, and before a turn: reads everything again if something
    /// happened.
    #[inline]
    pub fn check(&self, ctx: Ctx<'_>) {
        self.end_saving();
        if self.stale.load(Ordering::Relaxed) {
            self.refresh(ctx);
        }
    }

    /// Reads everything, outside of any event or command.
    pub fn ask_host(&self, locked: Locked<'_>) {
        guarded((), || self.refresh(instance().ctx(locked)));
    }

    /// Reads everything.
    #[cold]
    pub fn refresh(&self, ctx: Ctx<'_>) {
        let ports = self.ports.load(Ordering::Relaxed);
        if self.settings_stale.swap(false, Ordering::Relaxed) {
            self.read_settings(ctx);
        }
        self.stale.store(false, Ordering::Relaxed);
        backlog::look(ctx);
        self.few_replicas.store(ports && self.has_few_replicas(ctx), Ordering::Relaxed);
        let stops = ports && self.stops_at_disk_error.load(Ordering::Relaxed);
        let failed = || {
            ctx.info_text(c"persistence", c"rdb_last_bgsave_status")
                .is_none_or(|text| text != b"ok")
        };
        self.disk_error.store(stops && failed(), Ordering::Relaxed);
        self.read_aof_status(ctx);
        self.look(ctx);
        let limited = ctx.flags() & raw::REDISMODULE_CTX_FLAGS_MAXMEMORY != 0;
        instance()
            .engine
            .ledger
            .set_credit(ctx.locked(), if limited { headroom(ctx) } else { i64::MAX });
    }

    /// Reads whether the host can write to its AOF, and everything else if that has changed. Like
    /// the host, midi's doors refuse writes if it cannot.
    pub fn look_at_aof(&self, ctx: Ctx<'_>) {
        if self.aof_has_failed(ctx) != self.aof_error.load(Ordering::Relaxed) {
            self.refresh(ctx);
        }
    }

    fn read_aof_status(&self, ctx: Ctx<'_>) {
        let has_failed = self.aof_has_failed(ctx);
        if has_failed && !self.aof_error.load(Ordering::Relaxed) {
            let errno = journal::error_number(ctx);
            instance().engine.ledger.admission.aof_errno.store(errno, Ordering::Relaxed);
        }
        self.aof_error.store(has_failed, Ordering::Relaxed);
    }

    fn aof_has_failed(&self, ctx: Ctx<'_>) -> bool {
        let is_on = ctx.flags() & raw::REDISMODULE_CTX_FLAGS_AOF != 0;
        let status = || ctx.info_text(c"persistence", c"aof_last_write_status");
        is_on && status().is_none_or(|text| text != b"ok")
    }

    /// The host is about to fork, perhaps for a replica or for an AOF: reads no more than that.
    pub fn before_fork(&self, ctx: Ctx<'_>) {
        backlog::before_fork(ctx);
        self.look(ctx);
        self.may_change();
    }

    /// What the host does not report is taken for what lets the least through.
    fn read_settings(&self, ctx: Ctx<'_>) {
        journal::settings_are(
            ctx,
            config::syncs_always(ctx),
            ctx.config_text(c"no-appendfsync-on-rewrite").map(|text| text != b"no"),
        );
        self.serves_stale
            .store(ctx.config_is(c"replica-serve-stale-data", b"yes"), Ordering::Relaxed);
        self.imports.store(ctx.config_is(c"import-mode", b"yes"), Ordering::Relaxed);
        import_source::forget();
        let save = ctx.config_text(c"save");
        save_points::configure(save.as_deref());
        let stops =
            !ctx.config_is(c"stop-writes-on-bgsave-error", b"no") && save.as_deref() != Some(b"");
        self.stops_at_disk_error.store(stops, Ordering::Relaxed);
        let wanted = ctx.config_number(c"min-replicas-to-write").unwrap_or(UNKNOWN);
        self.replicas_wanted.store(wanted, Ordering::Relaxed);
    }

    /// Whether the host has fewer replicas than it wants for writes. INFO counts the good ones only
    /// if it wants some, and any lag is not allowed: else there are never too few.
    fn has_few_replicas(&self, ctx: Ctx<'_>) -> bool {
        let wanted = self.replicas_wanted.load(Ordering::Relaxed);
        if wanted == 0 {
            return false;
        }
        let good = ctx.info_number(c"replication", c"min_slaves_good_slaves");
        good.is_some_and(|good| match wanted {
            UNKNOWN => ctx.refusal_of(c"MIDI.JOURNAL").starts_with(b"NOREPLICAS "),
            wanted => (good as i64) < wanted,
        })
    }

    /// Reads the flags, and combines them with what is known.
    fn look(&self, ctx: Ctx<'_>) {
        let flags = ctx.flags();
        let has = |flag| flags & flag != 0;
        let seen = |fact: &AtomicBool| fact.load(Ordering::Relaxed);
        // Loading beside the old data does not block commands.
        let beside = has(raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING);
        let loads = has(raw::REDISMODULE_CTX_FLAGS_LOADING) && !beside || seen(&self.loading_aof);
        let paused = must_not_replicate(ctx.locked());
        let replica = has(raw::REDISMODULE_CTX_FLAGS_SLAVE);
        let as_master = replica && self.is_demoted_in_exec(flags);
        // A replica may be set to ignore the limit; its flag for being above the limit is set all
        // the same.
        let limited = has(raw::REDISMODULE_CTX_FLAGS_MAXMEMORY);
        let aof = has(raw::REDISMODULE_CTX_FLAGS_AOF);
        if !aof {
            confirmed::aof_may_change();
        }
        let is_logged = aof || backlog::may_be_there();
        let pausing = paused || seen(&self.handing_over);
        let gates = Gates::OPEN
            .and_if(loads, Gates::LOADING)
            .and_if(
                has(raw::REDISMODULE_CTX_FLAGS_REPLICA_IS_STALE) && !seen(&self.serves_stale),
                Gates::STALE,
            )
            .and_if(self.pause.is_of_all(paused), Gates::PAUSED)
            .and_if(paused, Gates::WRITES_PAUSED)
            .and_if(pausing && is_logged || as_master, Gates::WORKERS_PAUSED)
            .and_if(replica && !as_master, Gates::READ_ONLY)
            .and_if(replica && has(raw::REDISMODULE_CTX_FLAGS_READONLY), Gates::HOST_READ_ONLY)
            .and_if(seen(&self.disk_error), Gates::DISK_ERROR)
            .and_if(seen(&self.aof_error), Gates::AOF_ERROR)
            .and_if(!replica && seen(&self.few_replicas), Gates::FEW_REPLICAS)
            .and_if(limited && has(raw::REDISMODULE_CTX_FLAGS_OOM), Gates::OUT_OF_MEMORY)
            .and_if(limited, Gates::METERED)
            .and_if(seen(&self.saving), Gates::SAVING)
            .and_if(replica && SYNC.is_untrusted(), Gates::UNSYNCED)
            .and_if(aof, Gates::AOF_ON)
            .and_if(!replica && seen(&self.imports), Gates::IMPORTING)
            .and_if(active_expiry::rests(), Gates::NO_ACTIVE_EXPIRY)
            .and_if(backlog::may_be_there(), Gates::BACKLOG);
        instance().engine.ledger.set_gates(ctx.locked(), gates);
    }

    /// Whether the EXEC still runs in which the host has become a replica.
    fn is_demoted_in_exec(&self, flags: u32) -> bool {
        if !self.demoted_in_exec.load(Ordering::Relaxed) {
            return false;
        }
        let goes_on = flags & raw::REDISMODULE_CTX_FLAGS_MULTI != 0;
        self.demoted_in_exec.store(goes_on, Ordering::Relaxed);
        // Who writes next looks again: the EXEC may be over.
        self.may_change();
        goes_on
    }
}

/// Bytes left below `maxmemory`.
fn headroom(ctx: Ctx<'_>) -> i64 {
    let info = ctx.info(c"memory");
    let limit = info.number(c"maxmemory").zip(info.number(c"used_memory"));
    limit.map_or(0, |(most, used)| most as i64 - used as i64)
}
