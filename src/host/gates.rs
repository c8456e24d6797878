//! The state of the host's gates, for commands that do not pass through them: the ports' commands,
//! queued ones, and long ones.
//!
//! While a port is open, the flags are read in every turn of the main loop, and so before a client
//! of the host door has the reply to what changed them (REPLICAOF, CLIENT PAUSE); but from Redis 8
//! on a thread of the host may have sent it (`io-threads`). INFO and CONFIG
//! cost more: they are read at every cron tick, and in a turn in which something may have changed
//! them. So news that the host itself gets in its cron (the end of a BGSAVE, replicas that lag) is
//! no older here than there.
//!
//! A host at rest is asked once a second: it has run no command for a while, midi's keys take what
//! they took, nothing is wrong, there is no limit at which midi evicts, and no replicas must be
//! counted. What may then be a second old here is a fork for a save point that failed.
//!
//! | what | asked | when |
//! |---|---|---|
//! | flags | in every turn | while a port is open |
//! | INFO | `stale` | an event, a fork or cron came since; or workers want credit |
//! | CONFIG | `settings_stale` | a setting may have changed; while a port is open |

use std::cell::LazyCell;
use std::ffi::CStr;
use std::sync::atomic::Ordering;
use std::time::Instant;

use midi_module_api as raw;

use super::api::{Ctx, InfoSection};
use super::instance::instance;
use super::pause::Paused;
use super::persistence::{hand_over, loading, save_points, saving};
use super::state::gates::HostGates;
use super::{config, guarded};
use crate::engine::{Gates, Locked};

/// The number of replicas that the host wants for writes, if it does not report that.
const UNKNOWN: u64 = u64::MAX;

/// Gates that the end of a turn may open.
const AT_TIMES: Gates = Gates::WORKERS_PAUSED.and(Gates::LOADING);

impl HostGates {
    /// A host that has clients is not at its start: its cron has run. In OnLoad.
    pub fn prepare(&self, ctx: Ctx<'_>) {
        let clients = ctx.info_number(c"clients", c"connected_clients");
        self.has_ticked.set(clients.is_some_and(|clients| clients > 0));
    }

    /// Whether the host, in a context with these flags, knows if it is a replica. In a cluster it
    /// finds out in its first cron.
    pub fn is_role_known(&self, flags: u32) -> bool {
        flags & raw::REDISMODULE_CTX_FLAGS_CLUSTER == 0 || self.has_ticked.get()
    }

    /// The host does something else now: reads the flags at once, and the rest when it goes on.
    pub fn doing_changed(&self, ctx: Ctx<'_>) {
        self.look(ctx);
        self.may_change();
    }

    /// The host has become a replica. In an EXEC it runs the commands that follow all the same, its
    /// own and others', and so does midi's door; workers write no more.
    pub fn demoted(&self, ctx: Ctx<'_>) {
        let in_exec = ctx.flags() & raw::REDISMODULE_CTX_FLAGS_MULTI != 0;
        if in_exec && !instance().engine.gates().has(Gates::READ_ONLY) {
            instance().doing.is_demoted_in_exec.set(true);
        }
    }

    /// The main loop is about to sleep: reads what may have changed.
    #[inline]
    pub fn before_sleep(&self, ctx: Ctx<'_>) {
        let here = instance();
        here.pause.before_sleep(ctx);
        if here.active_expiry.before_sleep(ctx) {
            self.may_change();
        }
        if self.stale.get() || here.engine.ledger.admission.wants_credit() {
            self.refresh(ctx);
        } else if self.ports.get() || here.engine.gates().has(AT_TIMES) {
            self.look(ctx);
        }
    }

    /// Before a write at the host door, a turn and a pause: reads everything again if something
    /// happened. Something else than a save without a fork runs now, so the save is over; writes
    /// are not logged while the keyspace is closed.
    #[inline]
    pub fn check(&self, ctx: Ctx<'_>) {
        if instance().doing.opens_after_save() {
            // Cron may have read everything since the save.
            self.may_change();
        }
        if self.stale.get() {
            self.refresh(ctx);
        }
    }

    /// A tick of the host's cron: reads everything, or at rest once a second what may change by
    /// itself. Returns whether it has.
    pub fn on_cron(&self, ctx: Ctx<'_>) -> bool {
        if !self.has_ticked.replace(true) {
            loading::forget_begun_text(ctx);
            self.may_change();
        }
        let is_busy = self.is_busy();
        if !self.rest.lock().asks(Instant::now(), is_busy) {
            return false;
        }
        if is_busy || instance().backlog.may_be_there() {
            self.refresh(ctx);
        } else {
            // No replica has come, so no backlog.
            self.read(ctx);
        }
        true
    }

    /// Whether something has happened since the last tick of which no event tells, or may be about
    /// to happen.
    fn is_busy(&self) -> bool {
        let bytes = instance().engine.ledger.books.totals().bytes as u64;
        let has_grown = self.bytes.get() != bytes;
        self.bytes.set(bytes);
        let has_run = self.has_run.get();
        self.has_run.set(false);
        let is_closed = self.disk_error.get() || self.aof_error.get();
        let evicts = instance().engine.ledger.eviction.is_on();
        let polls = is_closed || evicts || self.counts_replicas.get();
        has_run || has_grown || polls || self.stale.get()
    }

    /// Reads everything, outside of any event or command.
    pub fn ask_host(&self, locked: Locked<'_>) {
        guarded((), || self.refresh(instance().ctx(locked)));
    }

    /// Reads everything.
    #[cold]
    pub fn refresh(&self, ctx: Ctx<'_>) {
        if self.settings_stale.replace(false) {
            self.read_settings(ctx);
        }
        self.stale.set(false);
        instance().backlog.look(ctx);
        self.read(ctx);
    }

    /// Reads all but the settings and the backlog.
    fn read(&self, ctx: Ctx<'_>) {
        let ports = self.ports.get();
        let good = if ports { self.good_replicas(ctx) } else { None };
        self.counts_replicas.set(good.is_some());
        self.few_replicas.set(good.is_some_and(|good| self.are_too_few(ctx, good)));
        let persistence = LazyCell::new(|| ctx.info(c"persistence"));
        let stops = ports && self.stops_at_disk_error.get();
        self.disk_error.set(stops && is_bad(&persistence, c"rdb_last_bgsave_status"));
        let logs = logs_to_aof(ctx);
        self.aof_is(ctx, logs && is_bad(&persistence, c"aof_last_write_status"));
        self.look(ctx);
        let flags = ctx.flags();
        if flags & raw::REDISMODULE_CTX_FLAGS_ACTIVE_CHILD == 0 {
            saving::note_counted(persistence.number(saving::COUNTED));
        }
        instance().eviction.refresh(ctx, flags & raw::REDISMODULE_CTX_FLAGS_SLAVE != 0);
        let limited =
            flags & raw::REDISMODULE_CTX_FLAGS_MAXMEMORY != 0 && !instance().eviction.evicts();
        instance()
            .engine
            .ledger
            .set_credit(ctx.locked(), if limited { headroom(ctx) } else { i64::MAX });
    }

    /// Reads whether the host can write to its AOF, and everything else if that has changed. Like
    /// the host, midi's doors refuse writes if it cannot. To be called between commands.
    ///
    /// This is asked up to a thousand times a second, and INFO costs ten times as much as the
    /// host's verdict on a write. A verdict for another reason may hide this one.
    pub fn look_at_aof(&self, ctx: Ctx<'_>) {
        let is_passed = self.judges_at_any_time.get() && !ctx.would_refuse(c"MIDI.JOURNAL");
        let is_bad = || is_bad(&ctx.info(c"persistence"), c"aof_last_write_status");
        let has_failed = !is_passed && logs_to_aof(ctx) && is_bad();
        if has_failed != self.aof_error.get() {
            self.refresh(ctx);
        }
    }

    fn aof_is(&self, ctx: Ctx<'_>, has_failed: bool) {
        if has_failed && !self.aof_error.get() {
            let errno = hand_over::error_number(ctx);
            instance().engine.ledger.admission.aof_errno.store(errno, Ordering::Relaxed);
        }
        self.aof_error.set(has_failed);
    }

    /// The host is about to fork, perhaps for a replica or for an AOF: reads no more than that.
    pub fn before_fork(&self, ctx: Ctx<'_>) {
        instance().backlog.before_fork(ctx);
        self.doing_changed(ctx);
    }

    /// Reads the settings. One that the host does not report gets the strictest value.
    fn read_settings(&self, ctx: Ctx<'_>) {
        hand_over::settings_are(
            ctx,
            config::syncs_always(ctx),
            ctx.config_text(c"no-appendfsync-on-rewrite").map(|text| text != b"no"),
        );
        self.serves_stale.set(ctx.config_is(c"replica-serve-stale-data", b"yes"));
        self.imports.set(ctx.config_is(c"import-mode", b"yes"));
        // Other clients may be sources now.
        *instance().import_sources.lock() = None;
        let save = ctx.config_text(c"save");
        save_points::configure(save.as_deref());
        let stops =
            !ctx.config_is(c"stop-writes-on-bgsave-error", b"no") && save.as_deref() != Some(b"");
        self.stops_at_disk_error.set(stops);
        let wanted = ctx.config_number(c"min-replicas-to-write");
        self.replicas_wanted.set(wanted.map_or(UNKNOWN, |wanted| wanted as u64));
    }

    /// How many good replicas the host counts. INFO has them only if it wants some for writes, and
    /// any lag is not allowed: else there are never too few.
    fn good_replicas(&self, ctx: Ctx<'_>) -> Option<u64> {
        let counts = self.replicas_wanted.get() != 0;
        counts.then(|| ctx.info_number(c"replication", c"min_slaves_good_slaves")).flatten()
    }

    /// Whether these are fewer replicas than the host wants for writes.
    fn are_too_few(&self, ctx: Ctx<'_>, good: u64) -> bool {
        match self.replicas_wanted.get() {
            UNKNOWN => ctx.refusal_of(c"MIDI.JOURNAL").starts_with(b"NOREPLICAS "),
            wanted => good < wanted,
        }
    }

    /// Reads the flags, and combines them with what is known.
    pub fn look(&self, ctx: Ctx<'_>) {
        let flags = ctx.flags();
        let has = |flag| flags & flag != 0;
        let (here, locked) = (instance(), ctx.locked());
        // Loading beside the old data does not block commands.
        let beside = has(raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING);
        let loads = has(raw::REDISMODULE_CTX_FLAGS_LOADING) && !beside
            || here.doing.loads()
            || !self.is_role_known(flags);
        let paused = here.pause.look(locked);
        let replica = has(raw::REDISMODULE_CTX_FLAGS_SLAVE);
        let as_master = replica && self.is_demoted_in_exec(flags);
        // A replica may be set to ignore the limit; its flag for being above the limit is set all
        // the same.
        let limited = has(raw::REDISMODULE_CTX_FLAGS_MAXMEMORY) && !here.eviction.evicts();
        let aof = has(raw::REDISMODULE_CTX_FLAGS_AOF);
        if !aof {
            here.waits.aof_is_complete.set(false);
        }
        let is_logged = aof || here.backlog.may_be_there();
        let is_paused = paused >= Paused::Writes;
        let comes = !replica && here.slots.coming.get();
        let gives = !replica && here.slots.gives.get();
        let pausing = is_paused || here.doing.hands_over.get() || comes;
        let gates = Gates::OPEN
            .and_if(loads, Gates::LOADING)
            .and_if(
                has(raw::REDISMODULE_CTX_FLAGS_REPLICA_IS_STALE) && !self.serves_stale.get(),
                Gates::STALE,
            )
            .and_if(paused == Paused::All, Gates::PAUSED)
            .and_if(is_paused, Gates::WRITES_PAUSED)
            .and_if(pausing && is_logged || as_master || gives, Gates::WORKERS_PAUSED)
            .and_if(replica && !as_master, Gates::READ_ONLY)
            .and_if(replica && has(raw::REDISMODULE_CTX_FLAGS_READONLY), Gates::HOST_READ_ONLY)
            .and_if(self.disk_error.get(), Gates::DISK_ERROR)
            .and_if(self.aof_error.get(), Gates::AOF_ERROR)
            .and_if(!replica && self.few_replicas.get(), Gates::FEW_REPLICAS)
            .and_if(limited && has(raw::REDISMODULE_CTX_FLAGS_OOM), Gates::OUT_OF_MEMORY)
            .and_if(limited, Gates::METERED)
            .and_if(here.doing.is_closed_by_save(), Gates::SAVING)
            .and_if(replica && here.sync.untrusted.get(), Gates::UNSYNCED)
            .and_if(aof, Gates::AOF_ON)
            .and_if(comes || !replica && self.imports.get(), Gates::IMPORTING)
            .and_if(here.active_expiry.rests(), Gates::NO_ACTIVE_EXPIRY)
            .and_if(here.backlog.may_be_there(), Gates::BACKLOG)
            .and_if(has(raw::REDISMODULE_CTX_FLAGS_ACTIVE_CHILD), Gates::HAS_CHILD);
        here.engine.ledger.set_gates(locked, gates);
    }

    /// Whether the EXEC still runs in which the host has become a replica.
    fn is_demoted_in_exec(&self, flags: u32) -> bool {
        let in_exec = &instance().doing.is_demoted_in_exec;
        if !in_exec.get() {
            return false;
        }
        let goes_on = flags & raw::REDISMODULE_CTX_FLAGS_MULTI != 0;
        in_exec.set(goes_on);
        // The next writer looks again: the EXEC may be over.
        self.may_change();
        goes_on
    }
}

fn logs_to_aof(ctx: Ctx<'_>) -> bool {
    ctx.flags() & raw::REDISMODULE_CTX_FLAGS_AOF != 0
}

/// Whether a status in INFO is another than `ok`, or is missing.
fn is_bad(info: &InfoSection<'_>, field: &CStr) -> bool {
    info.text(field).is_none_or(|text| text != b"ok")
}

/// Bytes left below `maxmemory`.
fn headroom(ctx: Ctx<'_>) -> i64 {
    let info = ctx.info(c"memory");
    let limit = info.number(c"maxmemory").zip(info.number(c"used_memory"));
    limit.map_or(0, |(most, used)| most as i64 - used as i64)
}
