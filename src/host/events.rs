//! Events that the host reports: turns of its main loop, flushes, replicas, settings.

use std::ffi::{c_int, c_void};

use redis_module::raw;

use super::api::{Ctx, Level, RawCtx, api, log, subscribe};
use super::gates::GATES;
use super::instance::{if_in_use, instance};
use super::users::USERS;
use super::{
    budget, descriptors, eviction, guarded, kept, lock, modules, notifications, output, turn, unit,
    watch,
};
use crate::engine::{Locked, Waker};

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
        (raw::REDISMODULE_EVENT_REPLICA_CHANGE, on_gate_event),
        (raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, on_gate_event),
        (raw::REDISMODULE_EVENT_MASTER_LINK_CHANGE, on_gate_event),
        (raw::REDISMODULE_EVENT_LOADING, on_loading),
        (raw::REDISMODULE_EVENT_MODULE_CHANGE, modules::on_change),
        (raw::REDISMODULE_EVENT_SHUTDOWN, on_shutdown),
    ];
    let subscribed = watched.iter().all(|&(event, callback)| subscribe(ctx, event, callback));
    // 7.0.0 has no CONFIG event; the cron event notices a change there.
    subscribe(ctx, raw::REDISMODULE_EVENT_CONFIG, on_config);
    // SAFETY: the callback and what it gets live forever; the functions run
    // around each fork, and do no more than a forked child may.
    unsafe {
        libc::pthread_atfork(Some(before_fork), None, Some(in_child));
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
        instance().forget_calls();
        turn::turn_aside(locked);
    });
}

unsafe extern "C" fn on_loop(ctx: *mut RawCtx, _: raw::RedisModuleEvent, sub: u64, _: *mut c_void) {
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
            instance().engine.main.awake(ctx.locked());
            lock::main_turned(ctx.locked());
            budget::renew();
            notifications::awake();
            turn::turn(ctx.locked());
        } else {
            before_sleep(ctx);
        }
    });
}

fn before_sleep(ctx: Ctx<'_>) {
    let (engine, locked) = (&*instance().engine, ctx.locked());
    turn::turn(locked);
    modules::refresh(ctx);
    GATES.before_sleep(ctx);
    notifications::before_sleep(ctx);
    watch::before_sleep(locked);
    lock::run_starving(ctx);
    turn::tell(engine, locked);
    let all_freed = kept::free_dropped(locked);
    for _ in 0..ROUNDS {
        if budget::is_spent() {
            break;
        }
        if all_freed && !turn::has_left_over(engine) && engine.main.may_sleep(locked) {
            return;
        }
        turn::turn(locked);
    }
    // More keeps coming, or something is left over: do not sleep.
    engine.outside.wake_main();
}

unsafe extern "C" fn on_cron(ctx: *mut RawCtx, _: raw::RedisModuleEvent, _: u64, _: *mut c_void) {
    // SAFETY: the event's own context.
    let ctx = unsafe { Ctx::new(ctx) };
    guarded((), || {
        GATES.refresh(ctx);
        notifications::refresh(ctx);
        USERS.on_cron(ctx.locked());
        watch::on_cron(ctx.locked());
        instance().engine.allow_more_refusals(ctx.locked());
    });
}

unsafe extern "C" fn on_config(ctx: *mut RawCtx, _: raw::RedisModuleEvent, _: u64, _: *mut c_void) {
    GATES.settings_may_change();
    // SAFETY: the event's own context.
    let ctx = unsafe { Ctx::new(ctx) };
    guarded((), || {
        descriptors::refresh(ctx);
        eviction::look(ctx);
        output::look(ctx);
        notifications::refresh(ctx);
    });
}

unsafe extern "C" fn on_shutdown(_: *mut RawCtx, _: raw::RedisModuleEvent, _: u64, _: *mut c_void) {
    instance().host_ends();
}

unsafe extern "C" fn on_gate_event(
    _: *mut RawCtx,
    _: raw::RedisModuleEvent,
    _: u64,
    _: *mut c_void,
) {
    GATES.may_change();
}

unsafe extern "C" fn on_loading(
    ctx: *mut RawCtx,
    _: raw::RedisModuleEvent,
    _: u64,
    _: *mut c_void,
) {
    // SAFETY: the event's own context.
    let ctx = unsafe { Ctx::new(ctx) };
    guarded((), || GATES.loading(ctx));
}

extern "C" fn before_fork() {
    GATES.may_change();
}

/// Closes the ports in a forked child. No lock may be taken here.
extern "C" fn in_child() {
    let ports = if_in_use().and_then(|instance| instance.engine.outside.ports());
    for &listener in ports.map_or(&[][..], |ports| ports.listeners()) {
        // SAFETY: the child's own copy of the descriptor, which nothing in it uses.
        unsafe { libc::close(listener) };
    }
}

/// The host's FLUSHALL and FLUSHDB act on midi's keys too.
unsafe extern "C" fn on_flush(
    ctx: *mut RawCtx,
    _: raw::RedisModuleEvent,
    sub: u64,
    data: *mut c_void,
) {
    // SAFETY: the event's own context, and its data is this structure.
    let (ctx, flush) = unsafe { (Ctx::new(ctx), &*data.cast::<raw::RedisModuleFlushInfo>()) };
    guarded((), || {
        if sub == raw::REDISMODULE_SUBEVENT_FLUSHDB_START {
            unit::is_inside(ctx);
            let engine = &instance().engine;
            let remains = engine.flush(ctx.locked(), u32::try_from(flush.dbnum).ok());
            engine.free_later(remains);
        }
    });
}

/// The host's SWAPDB acts on midi's keys too.
unsafe extern "C" fn on_swap(
    ctx: *mut RawCtx,
    _: raw::RedisModuleEvent,
    _: u64,
    data: *mut c_void,
) {
    // SAFETY: the event's own context, and its data is this structure.
    let (ctx, swap) = unsafe { (Ctx::new(ctx), &*data.cast::<raw::RedisModuleSwapDbInfo>()) };
    guarded((), || {
        if let (Ok(a), Ok(b)) = (u32::try_from(swap.dbnum_first), u32::try_from(swap.dbnum_second))
        {
            unit::is_inside(ctx);
            instance().engine.swap_dbs(ctx.locked(), a, b);
        }
    });
}

/// Logs at load what midi does not do yet.
pub fn log_promises(ctx: Ctx<'_>) {
    log(
        ctx,
        Level::Warning,
        "Save points, BGSAVE and replication do not cover midi's data yet: it is lost at restart. \
         While AOF is on or replicas are attached midi refuses writes.",
    );
}
