//! What the host's gates say, for those who do not come through them: the ports' commands,
//! queued ones, and long ones.
//!
//! Flags are asked for in every turn of the main loop where a port is open, and so before a
//! client at the host's door has its answer to what changed them (REPLICAOF, CLIENT PAUSE). INFO
//! and CONFIG are dearer: they are asked at every cron tick, and in the turn in which
//! something was seen that may have changed what they say. What the host itself learns
//! in its cron (the end of a BGSAVE, replicas that lag) is so not older than there.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use redis_module::raw;

use super::api::{Ctx, must_not_replicate};
use super::guarded;
use super::instance::instance;
use crate::shard::{Gates, Locked};

/// Something happened after which all must be looked at again.
static STALE: AtomicBool = AtomicBool::new(true);

/// The host's settings may have changed.
static SETTINGS_STALE: AtomicBool = AtomicBool::new(true);

/// Whether any port is open.
static PORTS: AtomicBool = AtomicBool::new(false);

/// Whether a pause of the host's clients, if there is one, may be for reads too.
static PAUSE_ALL: AtomicBool = AtomicBool::new(false);

/// Whether anybody has said CLIENT PAUSE in this turn of the main loop; and of that kind.
static PAUSE_SAID: AtomicBool = AtomicBool::new(false);
static PAUSE_ALL_SAID: AtomicBool = AtomicBool::new(false);

/// Whether any client ever asked for one.
static EVER_PAUSED: AtomicBool = AtomicBool::new(false);

/// What INFO said last, where a port is open.
static DISK_ERROR: AtomicBool = AtomicBool::new(false);
static REPLICAS: AtomicBool = AtomicBool::new(false);
static FEW_REPLICAS: AtomicBool = AtomicBool::new(false);

/// What CONFIG said last.
static SERVES_STALE: AtomicBool = AtomicBool::new(true);
static STOPS_AT_DISK_ERROR: AtomicBool = AtomicBool::new(false);
static REPLICAS_WANTED: AtomicI64 = AtomicI64::new(0);

/// A port will be open: from now on the flags are looked at in every turn.
pub fn watch_for_ports() {
    PORTS.store(true, Ordering::Relaxed);
}

/// Something happened that may have changed what the gates say.
pub fn may_change() {
    STALE.store(true, Ordering::Relaxed);
}

/// The host's settings may have changed.
pub fn settings_may_change() {
    SETTINGS_STALE.store(true, Ordering::Relaxed);
    may_change();
}

/// The host begins to load data, or is through with it; meanwhile its main loop does not turn.
pub fn loading(ctx: Ctx<'_>) {
    look(ctx);
    may_change();
}

/// A CLIENT PAUSE is about to be executed, queued or refused: anybody can say it, without a password, too. A
/// filter learns no more of pauses than that: which kind is in force, the host does not tell.
pub fn before_pause(kind: &[u8]) {
    PAUSE_SAID.store(true, Ordering::Relaxed);
    if !kind.eq_ignore_ascii_case(b"write") {
        PAUSE_ALL_SAID.store(true, Ordering::Relaxed);
        EVER_PAUSED.store(true, Ordering::Relaxed);
    }
}

/// An EXEC is about to be executed: a CLIENT PAUSE may have been queued in it.
pub fn before_exec() {
    if EVER_PAUSED.load(Ordering::Relaxed) {
        PAUSE_SAID.store(true, Ordering::Relaxed);
        PAUSE_ALL_SAID.store(true, Ordering::Relaxed);
    }
}

/// Somebody has said CLIENT PAUSE in this turn of the main loop. It is believed where clients are paused and the
/// host has executed one since that was last looked into.
#[cold]
fn look_into_pause(ctx: Ctx<'_>) {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let all = PAUSE_ALL_SAID.swap(false, Ordering::Relaxed);
    if !must_not_replicate(ctx.locked()) {
        return;
    }
    let calls = pauses_executed(ctx);
    // Where there are fewer than before, the host has begun to count anew.
    if LAST.swap(calls, Ordering::Relaxed) != calls && all {
        PAUSE_ALL.store(true, Ordering::Relaxed);
    }
}

/// How often CLIENT PAUSE was called, of any kind.
fn pauses_executed(ctx: Ctx<'_>) -> u64 {
    let text = ctx.info_text(c"commandstats", c"cmdstat_client|pause").unwrap_or_default();
    let calls = text.strip_prefix(b"calls=").unwrap_or_default();
    let digits = calls.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
}

/// The main loop is about to sleep: looks at what may have changed.
#[inline]
pub fn before_sleep(ctx: Ctx<'_>) {
    if PAUSE_SAID.load(Ordering::Relaxed) && PAUSE_SAID.swap(false, Ordering::Relaxed) {
        look_into_pause(ctx);
    }
    if STALE.load(Ordering::Relaxed) || instance().engine.wants_credit() {
        refresh(ctx);
    } else if PORTS.load(Ordering::Relaxed) {
        look(ctx);
    }
}

/// Before a write on the host's door: looks again if something happened.
#[inline]
pub fn check(ctx: Ctx<'_>) {
    if STALE.load(Ordering::Relaxed) {
        refresh(ctx);
    }
}

/// The same at any moment.
pub fn ask_host(locked: Locked<'_>) {
    guarded((), || refresh(instance().ctx(locked)));
}

/// Looks at everything.
#[cold]
pub fn refresh(ctx: Ctx<'_>) {
    let ports = PORTS.load(Ordering::Relaxed);
    if ports && SETTINGS_STALE.swap(false, Ordering::Relaxed) {
        read_settings(ctx);
    }
    STALE.store(false, Ordering::Relaxed);
    let replicas = ctx.info_number(c"replication", c"connected_slaves").unwrap_or(0);
    REPLICAS.store(replicas > 0, Ordering::Relaxed);
    let wanted = REPLICAS_WANTED.load(Ordering::Relaxed);
    if ports && wanted > 0 {
        // Not told where no lag is too much: then there are never too few.
        let good = ctx.info_number(c"replication", c"min_slaves_good_slaves");
        FEW_REPLICAS.store(good.is_some_and(|good| (good as i64) < wanted), Ordering::Relaxed);
    } else {
        FEW_REPLICAS.store(false, Ordering::Relaxed);
    }
    let stops = ports && STOPS_AT_DISK_ERROR.load(Ordering::Relaxed);
    let failed =
        || ctx.info_text(c"persistence", c"rdb_last_bgsave_status").is_some_and(|text| text == b"err");
    DISK_ERROR.store(stops && failed(), Ordering::Relaxed);
    look(ctx);
    let limited = ctx.flags() & raw::REDISMODULE_CTX_FLAGS_MAXMEMORY != 0;
    instance().engine.set_credit(ctx.locked(), if limited { headroom(ctx) } else { i64::MAX });
}

/// A setting that the host does not tell is taken for Redis's default. How many replicas it wants it does
/// not tell either then; but INFO counts the good ones only where it wants some.
fn read_settings(ctx: Ctx<'_>) {
    let is = |name, value: &[u8]| ctx.config_text(name).is_some_and(|text| text == value);
    SERVES_STALE.store(!is(c"replica-serve-stale-data", b"no"), Ordering::Relaxed);
    let stops = !is(c"stop-writes-on-bgsave-error", b"no") && !is(c"save", b"");
    STOPS_AT_DISK_ERROR.store(stops, Ordering::Relaxed);
    REPLICAS_WANTED.store(ctx.config_number(c"min-replicas-to-write").unwrap_or(1), Ordering::Relaxed);
}

/// Looks at the flags, and puts them together with what is known.
fn look(ctx: Ctx<'_>) {
    let flags = ctx.flags();
    let has = |flag| flags & flag != 0;
    let seen = |fact: &AtomicBool| fact.load(Ordering::Relaxed);
    // What is loaded beside the old data hinders nobody.
    let loading = has(raw::REDISMODULE_CTX_FLAGS_LOADING) && !has(raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING);
    let paused = must_not_replicate(ctx.locked());
    if !paused {
        PAUSE_ALL.store(false, Ordering::Relaxed);
    }
    let replica = has(raw::REDISMODULE_CTX_FLAGS_SLAVE);
    // A replica may be set to have no limit; that it is above it, the flag says all the same.
    let limited = has(raw::REDISMODULE_CTX_FLAGS_MAXMEMORY);
    let gates = Gates::OPEN
        .and_if(loading, Gates::LOADING)
        .and_if(has(raw::REDISMODULE_CTX_FLAGS_REPLICA_IS_STALE) && !seen(&SERVES_STALE), Gates::STALE)
        .and_if(paused && seen(&PAUSE_ALL), Gates::PAUSED)
        .and_if(paused, Gates::WRITES_PAUSED)
        .and_if(replica, Gates::REPLICA)
        .and_if(replica && has(raw::REDISMODULE_CTX_FLAGS_READONLY), Gates::READ_ONLY)
        .and_if(seen(&DISK_ERROR), Gates::DISK_ERROR)
        .and_if(!replica && seen(&FEW_REPLICAS), Gates::FEW_REPLICAS)
        .and_if(limited && has(raw::REDISMODULE_CTX_FLAGS_OOM), Gates::OUT_OF_MEMORY)
        .and_if(limited, Gates::METERED)
        .and_if(has(raw::REDISMODULE_CTX_FLAGS_AOF), Gates::AOF_ON)
        .and_if(seen(&REPLICAS), Gates::HAS_REPLICAS);
    instance().engine.set_gates(ctx.locked(), gates);
}

/// Bytes below `maxmemory`.
fn headroom(ctx: Ctx<'_>) -> i64 {
    let number = |field| ctx.info_number(c"memory", field).unwrap_or(0) as i64;
    number(c"maxmemory") - number(c"used_memory")
}
