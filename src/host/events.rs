//! Events that the host reports: turns of its main loop, flushes, replicas, settings.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use redis_module::raw;

use super::api::{Ctx, Level, RawCtx, RawEvent, api, log, subscribe};
use super::gates::GATES;
use super::instance::instance;
use super::persistence::journal::Logging;
use super::persistence::loading::LoadedFrom;
use super::persistence::sync::SYNC;
use super::persistence::{
    backlog, base, confirmed, fork, handover, journal, loading, quarantine, save_points, saving,
};
use super::slots::{lost, migration};
use super::users::USERS;
use super::{
    budget, descriptors, eviction, guarded, kept, lock, modules, notifications, output, turn, unit,
    watch,
};
use crate::engine::{ChangedBy, Locked, Waker, free_later};

/// Rounds of answering before the main loop continues; completions that keep coming wait for the
/// next turn.
const ROUNDS: usize = 4;

/// Subscribes to all events. False if the host refuses one.
pub fn register(ctx: Ctx<'_>, waker: &'static Waker) -> bool {
    let watched = [
        (raw::REDISMODULE_EVENT_EVENTLOOP, on_loop as unsafe extern "C" fn(_, _, _, _)),
        (raw::REDISMODULE_EVENT_CRON_LOOP, on_cron),
        (raw::REDISMODULE_EVENT_FLUSHDB, on_flush),
        (raw::REDISMODULE_EVENT_SWAPDB, on_swap),
        (raw::REDISMODULE_EVENT_REPLICA_CHANGE, on_replica_change),
        (raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, on_role_change),
        (raw::REDISMODULE_EVENT_MASTER_LINK_CHANGE, on_master_link),
        (raw::REDISMODULE_EVENT_PERSISTENCE, on_persistence),
        (raw::REDISMODULE_EVENT_FORK_CHILD, on_fork_child),
        (raw::REDISMODULE_EVENT_REPL_ASYNC_LOAD, on_async_load),
        (raw::REDISMODULE_EVENT_LOADING, on_loading),
        (raw::REDISMODULE_EVENT_MODULE_CHANGE, modules::on_change),
        (raw::REDISMODULE_EVENT_SHUTDOWN, on_shutdown),
    ];
    let subscribed = watched.iter().all(|&(event, callback)| subscribe(ctx, event, callback));
    // 7.0.0 has no CONFIG event; the cron event notices a change there.
    subscribe(ctx, raw::REDISMODULE_EVENT_CONFIG, on_config);
    migration::register(ctx);
    fork::register();
    // SAFETY: the callback and what it gets live forever.
    unsafe {
        let mask = raw::REDISMODULE_EVENTLOOP_READABLE as c_int;
        let nothing = std::ptr::null_mut();
        subscribed
            && api!(RedisModule_EventLoopAdd)(waker.descriptor(), mask, Some(on_wake), nothing) == 0
    }
}

/// Removes the callback that the host would go on calling.
pub fn stop_listening() {
    // SAFETY: what EventLoopAdd was given.
    unsafe {
        api!(RedisModule_EventLoopDel)(
            instance().wakes_at(),
            raw::REDISMODULE_EVENTLOOP_READABLE as c_int,
        );
    }
}

/// The main thread has been woken: this only clears the wake-up. AFTER_SLEEP has handled its
/// reason, or BEFORE_SLEEP will: the main thread never sleeps before it has looked.
///
/// The exception: while a script or loading keeps the host from its main loop, only this callback
/// runs.
///
/// Only here is it certain that there is a wake-up to read. A flag that the waking thread sets
/// after its write left the main thread spinning: that thread, preempted by this very wake-up,
/// first had to be scheduled again.
unsafe extern "C" fn on_wake(_: c_int, _: *mut c_void, _: c_int) {
    // SAFETY: the host's event loop runs on its main thread, which holds the lock then.
    let locked = unsafe { Locked::assume() };
    guarded((), || {
        if !leaves_unread() {
            instance().forget_calls();
        }
        turn::turn_aside(locked);
    });
}

/// Whether a wake-up has been left unread, to end the next sleep of the main loop at once.
static LEFT_UNREAD: AtomicBool = AtomicBool::new(false);

/// Whether to leave a wake-up unread: when this turn ends the tail is logged, and another turn must
/// follow at once. If the last one that was left was of no use, the tail cannot be logged now.
fn leaves_unread() -> bool {
    let leaves = !LEFT_UNREAD.load(Ordering::Relaxed) && journal::logs_in_this_turn();
    LEFT_UNREAD.store(leaves, Ordering::Relaxed);
    leaves
}

unsafe extern "C" fn on_loop(ctx: *mut RawCtx, _: RawEvent, sub: u64, _: *mut c_void) {
    // SAFETY: the event's own context.
    let ctx = unsafe { Ctx::new(ctx) };
    guarded((), || {
        instance().main_turns();
        // On some hosts a script that yields lets the main loop turn: it remains one unit.
        unit::main_turned(ctx.locked());
        if !unit::end_if_over(ctx.locked()) {
            return;
        }
        if sub == raw::REDISMODULE_SUBEVENT_EVENTLOOP_AFTER_SLEEP {
            instance().engine.context().main.awake(ctx.locked());
            lock::main_turned(ctx.locked());
            budget::renew();
            notifications::awake();
            save_points::add_changes(ctx);
            if journal::is_aof_to_be_looked_at() {
                GATES.look_at_aof(ctx);
            }
            journal::after_sleep(ctx.locked());
            turn::turn(ctx.locked());
        } else {
            before_sleep(ctx);
        }
    });
}

fn before_sleep(ctx: Ctx<'_>) {
    let (engine, locked) = (&*instance().engine, ctx.locked());
    handover::turn_ends(ctx);
    GATES.check(ctx);
    SYNC.before_sleep(ctx);
    quarantine::before_sleep(ctx);
    saving::turn_ends();
    confirmed::turn_ends();
    turn::turn(locked);
    save_points::add_changes(ctx);
    modules::refresh(ctx);
    GATES.before_sleep(ctx);
    notifications::before_sleep(ctx);
    watch::before_sleep(locked);
    lost::before_sleep(ctx);
    migration::before_sleep(ctx);
    lock::run_starving(ctx);
    turn::tell(engine, locked);
    let all_freed = kept::free_dropped(locked);
    let may_sleep = (0..ROUNDS).any(|_| {
        if budget::is_spent() {
            return false;
        }
        if all_freed && !turn::has_left_over(engine) && engine.context().main.may_sleep(locked) {
            return true;
        }
        turn::turn(locked);
        false
    });
    let has_logged = journal::before_sleep(ctx);
    turn::answer_logged(engine, locked);
    let asks_replicas = confirmed::before_sleep(ctx);
    if !may_sleep || has_logged || asks_replicas {
        // More keeps coming, something is left over, replies wait for what has been logged, or a
        // timer is due.
        engine.context().main.awake(locked);
        if !LEFT_UNREAD.swap(false, Ordering::Relaxed) {
            engine.context().outside.wake_main();
        }
    }
}

unsafe extern "C" fn on_cron(ctx: *mut RawCtx, _: RawEvent, _: u64, _: *mut c_void) {
    // SAFETY: the event's own context.
    let ctx = unsafe { Ctx::new(ctx) };
    guarded((), || {
        GATES.refresh(ctx);
        notifications::refresh(ctx);
        USERS.on_cron(ctx.locked());
        watch::on_cron(ctx.locked());
        confirmed::may_change();
        lost::on_cron(ctx);
        instance().engine.ledger.log.clear_spares();
        instance().engine.allow_more_refusals(ctx.locked());
    });
}

unsafe extern "C" fn on_config(ctx: *mut RawCtx, _: RawEvent, _: u64, _: *mut c_void) {
    GATES.settings_may_change();
    confirmed::aof_may_change();
    // SAFETY: the event's own context.
    let ctx = unsafe { Ctx::new(ctx) };
    guarded((), || {
        descriptors::refresh(ctx);
        eviction::look(ctx);
        output::look(ctx);
        notifications::refresh(ctx);
    });
}

unsafe extern "C" fn on_shutdown(_: *mut RawCtx, _: RawEvent, _: u64, _: *mut c_void) {
    instance().host_ends();
}

/// A replica comes or goes: there may be too few of them now.
unsafe extern "C" fn on_replica_change(ctx: *mut RawCtx, _: RawEvent, sub: u64, _: *mut c_void) {
    /// Whether the host's log says what replicas need.
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    GATES.may_change();
    // SAFETY: the event's own context.
    let ctx = unsafe { Ctx::new(ctx) };
    let is_online = sub == raw::REDISMODULE_SUBEVENT_REPLICA_CHANGE_ONLINE;
    if is_online && !IS_SAID.swap(true, Ordering::Relaxed) {
        let text = "A replica is attached. It must have midi loaded too: without it, it ends at a \
                    full sync, and after a partial one drops what is written to midi's keys, and \
                    whole transactions with such writes, the server's own keys included.";
        log(ctx, Level::Notice, text);
    }
}

/// The host becomes a master or a replica. A replica's keys are closed before anything else runs.
unsafe extern "C" fn on_role_change(ctx: *mut RawCtx, _: RawEvent, sub: u64, _: *mut c_void) {
    // SAFETY: the event's own context.
    let ctx = unsafe { Ctx::new(ctx) };
    guarded((), || {
        backlog::may_come();
        if sub == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER {
            SYNC.became_master();
        } else {
            GATES.demoted(ctx);
            if SYNC.is_untrusted() {
                quarantine::has_master();
            }
        }
        GATES.refresh(ctx);
        if sub == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_REPLICA {
            journal::drop_tail(ctx, "This server is a replica now");
            confirmed::became_replica();
        }
    });
}

unsafe extern "C" fn on_master_link(ctx: *mut RawCtx, _: RawEvent, sub: u64, _: *mut c_void) {
    // SAFETY: the event's own context.
    let ctx = unsafe { Ctx::new(ctx) };
    guarded((), || {
        backlog::may_come();
        if sub == raw::REDISMODULE_SUBEVENT_MASTER_LINK_UP {
            GATES.refresh(ctx);
            SYNC.look_later();
        } else {
            // A replica that changes its master has none for a moment, and looks like a master.
            GATES.may_change();
        }
    });
}

unsafe extern "C" fn on_persistence(ctx: *mut RawCtx, _: RawEvent, sub: u64, _: *mut c_void) {
    // SAFETY: the event's own context.
    let ctx = unsafe { Ctx::new(ctx) };
    guarded((), || match sub {
        raw::REDISMODULE_SUBEVENT_PERSISTENCE_RDB_START => base::begin(false),
        raw::REDISMODULE_SUBEVENT_PERSISTENCE_AOF_START => base::begin(true),
        raw::REDISMODULE_SUBEVENT_PERSISTENCE_ENDED if fork::is_child() => base::end_in_child(),
        // A child's parent is told of its birth and its death.
        _ if fork::is_child() => {}
        raw::REDISMODULE_SUBEVENT_PERSISTENCE_SYNC_RDB_START => {
            base::begin(false);
            saving::begin(ctx);
        }
        raw::REDISMODULE_SUBEVENT_PERSISTENCE_SYNC_AOF_START => {
            base::begin(true);
            saving::begin(ctx);
        }
        raw::REDISMODULE_SUBEVENT_PERSISTENCE_ENDED => saving::end(ctx, base::end_here()),
        raw::REDISMODULE_SUBEVENT_PERSISTENCE_FAILED => saving::end(ctx, false),
        _ => {}
    });
}

unsafe extern "C" fn on_fork_child(ctx: *mut RawCtx, _: RawEvent, sub: u64, _: *mut c_void) {
    // SAFETY: the event's own context.
    let ctx = unsafe { Ctx::new(ctx) };
    guarded((), || match sub {
        raw::REDISMODULE_SUBEVENT_FORK_CHILD_BORN => saving::child_was_born(ctx),
        raw::REDISMODULE_SUBEVENT_FORK_CHILD_DIED => saving::child_died(ctx),
        _ => {}
    });
}

unsafe extern "C" fn on_loading(ctx: *mut RawCtx, _: RawEvent, sub: u64, _: *mut c_void) {
    // SAFETY: the event's own context.
    let ctx = unsafe { Ctx::new(ctx) };
    guarded((), || {
        backlog::may_come();
        saving::before_load();
        match sub {
            raw::REDISMODULE_SUBEVENT_LOADING_ENDED => {
                loading::end(ctx.locked());
                saving::after_load();
            }
            raw::REDISMODULE_SUBEVENT_LOADING_FAILED => {
                loading::fail(ctx.locked());
                saving::after_load();
            }
            raw::REDISMODULE_SUBEVENT_LOADING_REPL_START => {
                loading::begin(ctx.locked(), LoadedFrom::Master);
            }
            raw::REDISMODULE_SUBEVENT_LOADING_AOF_START => {
                loading::begin(ctx.locked(), LoadedFrom::Aof);
            }
            _ => loading::begin(ctx.locked(), LoadedFrom::Rdb),
        }
        GATES.loading(ctx, loading::is_of_aof());
    });
}

unsafe extern "C" fn on_async_load(ctx: *mut RawCtx, _: RawEvent, sub: u64, _: *mut c_void) {
    // SAFETY: the event's own context.
    let locked = unsafe { Ctx::new(ctx) }.locked();
    guarded((), || match sub {
        raw::REDISMODULE_SUBEVENT_REPL_ASYNC_LOAD_STARTED => loading::begin_swap(locked),
        raw::REDISMODULE_SUBEVENT_REPL_ASYNC_LOAD_COMPLETED => loading::end_swap(locked, false),
        _ => loading::end_swap(locked, true),
    });
}

/// The host's FLUSHALL and FLUSHDB act on midi's keys too.
unsafe extern "C" fn on_flush(ctx: *mut RawCtx, _: RawEvent, sub: u64, data: *mut c_void) {
    // SAFETY: the event's own context, and its data is this structure.
    let (ctx, flush) = unsafe { (Ctx::new(ctx), &*data.cast::<raw::RedisModuleFlushInfo>()) };
    guarded((), || {
        if sub == raw::REDISMODULE_SUBEVENT_FLUSHDB_START {
            unit::is_inside(ctx);
            loading::take_effect(ctx.locked());
            let engine = &instance().engine;
            loading::before_flush(ctx);
            saving::before_load();
            if saving::loads_aof() {
                // What is not logged yet, or is written from here on, would get into the AOF, but
                // is not in what is loaded from it.
                GATES.begin_saving(ctx);
                journal::drop_tail(ctx, "DEBUG LOADAOF");
            } else if !saving::is_reload() {
                GATES.check(ctx);
            }
            let _logging = Logging::begin(ctx);
            let remains =
                engine.ledger.flush(ctx.locked(), u32::try_from(flush.dbnum).ok(), ChangedBy::Host);
            free_later(engine, remains);
        }
    });
}

/// The host's SWAPDB acts on midi's keys too.
unsafe extern "C" fn on_swap(ctx: *mut RawCtx, _: RawEvent, _: u64, data: *mut c_void) {
    // SAFETY: the event's own context, and its data is this structure.
    let (ctx, swap) = unsafe { (Ctx::new(ctx), &*data.cast::<raw::RedisModuleSwapDbInfo>()) };
    guarded((), || {
        if let (Ok(a), Ok(b)) = (u32::try_from(swap.dbnum_first), u32::try_from(swap.dbnum_second))
        {
            unit::is_inside(ctx);
            loading::take_effect(ctx.locked());
            GATES.check(ctx);
            let _logging = Logging::begin(ctx);
            instance().engine.ledger.swap_dbs(ctx.locked(), a, b, ChangedBy::Host);
        }
    });
}
