//! Events that the host reports: turns of its main loop, flushes, replicas, settings.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::slice;

use midi_module_api as raw;

use super::api::{Ctx, Level, RawCtx, RawEvent, api, log, subscribe};
use super::config::tls;
use super::instance::instance;
use super::persistence::hand_over::{self, Logging, confirmed};
use super::persistence::replay::quarantine;
use super::persistence::{base, fork, loading, save_points, saving};
use super::slots::{self, lost, migration};
use super::state::doing::ModuleStage;
use super::state::persistence::LoadedFrom;
use super::users::USERS;
use super::{
    descriptors, guarded, kept, lock, modules, notifications, output, scripts, slow_log, turn,
    unit, watch,
};
use crate::command::draw_new_base;
use crate::engine::{ChangedBy, Locked, Waker, free_later};

/// Rounds of answering before the main loop continues; completions that keep coming wait for the
/// next turn.
const ROUNDS: usize = 4;

/// What midi is told of.
const EVENTS: [u64; 13] = [
    raw::REDISMODULE_EVENT_EVENTLOOP,
    raw::REDISMODULE_EVENT_CRON_LOOP,
    raw::REDISMODULE_EVENT_FLUSHDB,
    raw::REDISMODULE_EVENT_SWAPDB,
    raw::REDISMODULE_EVENT_REPLICA_CHANGE,
    raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
    raw::REDISMODULE_EVENT_MASTER_LINK_CHANGE,
    raw::REDISMODULE_EVENT_PERSISTENCE,
    raw::REDISMODULE_EVENT_FORK_CHILD,
    raw::REDISMODULE_EVENT_REPL_ASYNC_LOAD,
    raw::REDISMODULE_EVENT_LOADING,
    raw::REDISMODULE_EVENT_MODULE_CHANGE,
    raw::REDISMODULE_EVENT_SHUTDOWN,
];

/// Subscribes to all events. False if the host refuses one.
pub fn register(ctx: Ctx<'_>, waker: &'static Waker) -> bool {
    let subscribed = EVENTS.into_iter().all(|event| subscribe(ctx, event, on_event));
    // 7.0.0 has no CONFIG event; the cron event notices a change there.
    subscribe(ctx, raw::REDISMODULE_EVENT_CONFIG, on_event);
    migration::register(ctx);
    fork::register();
    // SAFETY: the callback and what it gets live forever.
    unsafe {
        let mask = raw::REDISMODULE_EVENTLOOP_READABLE;
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
            instance().waker.descriptor(),
            raw::REDISMODULE_EVENTLOOP_READABLE,
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
            instance().waker.clear();
        }
        turn::turn_aside(locked);
    });
}

/// Whether to leave a wake-up unread: when this turn ends the tail is logged, and another turn must
/// follow at once. If the last one that was left was of no use, the tail cannot be logged now.
fn leaves_unread() -> bool {
    let left = &instance().hand_over.left_unread;
    let leaves = !left.get() && hand_over::logs_in_this_turn();
    left.set(leaves);
    leaves
}

/// Every event comes here.
unsafe extern "C" fn on_event(ctx: *mut RawCtx, event: RawEvent, sub: u64, data: *mut c_void) {
    // SAFETY: the event's own context.
    let ctx = unsafe { Ctx::new(ctx) };
    let _own_calls = scripts::leave();
    guarded((), || match event.id {
        raw::REDISMODULE_EVENT_EVENTLOOP => on_loop(ctx, sub),
        raw::REDISMODULE_EVENT_CRON_LOOP => on_cron(ctx),
        raw::REDISMODULE_EVENT_CONFIG => {
            // SAFETY: the event's data is this structure.
            on_config(ctx, unsafe { &*data.cast::<raw::RedisModuleConfigChange>() });
        }
        raw::REDISMODULE_EVENT_FLUSHDB if sub == raw::REDISMODULE_SUBEVENT_FLUSHDB_START => {
            // SAFETY: the event's data is this structure.
            on_flush(ctx, unsafe { (*data.cast::<raw::RedisModuleFlushInfo>()).dbnum });
        }
        raw::REDISMODULE_EVENT_SWAPDB => {
            // SAFETY: the event's data is this structure.
            on_swap(ctx, unsafe { &*data.cast::<raw::RedisModuleSwapDbInfo>() });
        }
        raw::REDISMODULE_EVENT_REPLICA_CHANGE => on_replica_change(ctx, sub),
        raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED => on_role_change(ctx, sub),
        raw::REDISMODULE_EVENT_MASTER_LINK_CHANGE => on_master_link(ctx, sub),
        raw::REDISMODULE_EVENT_PERSISTENCE => on_persistence(ctx, sub),
        raw::REDISMODULE_EVENT_FORK_CHILD if sub == raw::REDISMODULE_SUBEVENT_FORK_CHILD_BORN => {
            saving::child_was_born(ctx);
        }
        raw::REDISMODULE_EVENT_FORK_CHILD => saving::child_died(ctx),
        raw::REDISMODULE_EVENT_REPL_ASYNC_LOAD => match sub {
            raw::REDISMODULE_SUBEVENT_REPL_ASYNC_LOAD_STARTED => loading::begin_swap(ctx.locked()),
            raw::REDISMODULE_SUBEVENT_REPL_ASYNC_LOAD_COMPLETED => {
                loading::end_swap(ctx.locked(), false);
            }
            _ => loading::end_swap(ctx.locked(), true),
        },
        raw::REDISMODULE_EVENT_LOADING => on_loading(ctx, sub),
        // One that is unloaded may still be on the list.
        raw::REDISMODULE_EVENT_MODULE_CHANGE => instance().modules_may_change.set(true),
        raw::REDISMODULE_EVENT_SHUTDOWN => instance().doing.enter(ModuleStage::Ending),
        _ => {}
    });
}

fn on_loop(ctx: Ctx<'_>, sub: u64) {
    instance().doing.enter(ModuleStage::Settled);
    // Commands that waited for the end of a pause run later, and newer hosts do not filter them.
    if instance().pause.main_turned(ctx.locked()) {
        instance().unit.asks.set(true);
    }
    // On some hosts a script that yields lets the main loop turn: it remains one unit.
    if !unit::end_if_over(ctx.locked()) {
        return;
    }
    if sub == raw::REDISMODULE_SUBEVENT_EVENTLOOP_AFTER_SLEEP {
        after_sleep(ctx);
    } else {
        before_sleep(ctx);
    }
}

/// The steps after the main loop has slept, and before any command of this turn. Each line says why
/// it stands where it does.
fn after_sleep(ctx: Ctx<'_>) {
    let (here, locked) = (instance(), ctx.locked());
    // From here on a message for the main thread needs no wake-up.
    here.engine.context().main.awake(locked);
    // Work under the lock counts turns, and messages have a budget in each.
    lock::main_turned(locked);
    here.budget.renew();
    here.doing.turn_is_over.set(false);
    // INFO, which a client may ask for now, counts the changes so far.
    save_points::add_changes(ctx);
    // Before writes that were logged become safe: a client that has its reply then finds the doors
    // closed.
    if hand_over::is_aof_to_be_looked_at() {
        here.gates.look_at_aof(ctx);
    }
    hand_over::after_sleep(locked);
    // Before messages that write: a command that came behind BEFORE_SLEEP, such as one that a pause
    // had held up, may have saved or loaded. That is over now, so writes are logged again.
    here.gates.check(ctx);
    // Last: the answers that leave now count on all of that.
    turn::turn(locked);
}

/// The steps before the main loop sleeps. The host sends the replies of this turn afterwards, and
/// before that writes and syncs what these steps log. Each line says why it stands where it does.
fn before_sleep(ctx: Ctx<'_>) {
    let (here, locked) = (instance(), ctx.locked());
    let engine = &*here.engine;
    // First of all the gates, for the writes below: clients are paused by now, or will not be, and
    // a save without a fork is over.
    if here.doing.hands_over.take() {
        here.gates.look(ctx);
    }
    here.gates.check(ctx);
    // No command of the master's is running, and no acknowledgement of this turn has been sent.
    here.sync.before_sleep(ctx);
    quarantine::before_sleep(ctx);
    // No other command is running, either: a turn has passed for those that wait, before others
    // join them.
    here.doing.turn_ends(here.pause.holds_up(locked));
    confirmed::turn_ends();
    // Messages to the main thread, and then the changes that they made.
    turn::turn(locked);
    save_points::add_changes(ctx);
    // All commands of this turn have been executed, queued or refused, some just now. Their
    // consequences hold before the clients have their replies.
    modules::refresh(ctx);
    here.gates.before_sleep(ctx);
    // What a command changes from here on waits for the next turn.
    here.doing.turn_is_over.set(true);
    notifications::before_sleep(ctx);
    here.pause.turn_ends(locked);
    watch::before_sleep(locked);
    slots::before_sleep(ctx);
    // Then slow work that others wait for, as far as the budget allows.
    lock::run_starving(ctx);
    turn::tell(engine, locked);
    let all_freed = kept::free_dropped(locked);
    let may_sleep = (0..ROUNDS).any(|_| {
        if here.budget.is_spent() {
            return false;
        }
        if all_freed && !turn::has_left_over(engine) && engine.context().main.may_sleep(locked) {
            return true;
        }
        turn::turn(locked);
        false
    });
    // The log after all that writes, the replies that wait for it after that, and then replicas are
    // asked whether they have it.
    let has_logged = hand_over::before_sleep(ctx);
    turn::answer_logged(engine, locked);
    let asks_replicas = confirmed::before_sleep(ctx);
    // Nothing above reads users again before the host executes what waited for them.
    USERS.before_sleep(locked);
    if !may_sleep || has_logged || asks_replicas {
        // More keeps coming, something is left over, replies wait for the log, or a timer is due.
        engine.context().main.awake(locked);
        if !here.hand_over.left_unread.take() {
            engine.context().outside.wake_main();
        }
    }
}

fn on_cron(ctx: Ctx<'_>) {
    if instance().gates.on_cron(ctx) {
        notifications::refresh(ctx);
    }
    USERS.on_cron(ctx.locked());
    watch::on_cron(ctx.locked());
    confirmed::may_change();
    lost::on_cron(ctx);
    slow_log::on_cron();
    if let Some(ports) = instance().engine.context().outside.ports() {
        ports.sample();
    }
    instance().engine.ledger.log.clear_spares();
    instance().engine.allow_more_refusals(ctx.locked());
}

fn on_config(ctx: Ctx<'_>, change: &raw::RedisModuleConfigChange) {
    instance().gates.settings_stale.set(true);
    instance().gates.may_change();
    instance().wake_behind_turn();
    instance().waits.aof_is_complete.set(false);
    descriptors::refresh(ctx);
    instance().eviction.look(ctx);
    instance().io_threads.look(ctx);
    output::look(ctx);
    slow_log::look(ctx);
    notifications::refresh(ctx);
    // SAFETY: the event has so many names.
    let names = unsafe { slice::from_raw_parts(change.config_names, change.num_changes as usize) };
    // SAFETY: each is a name of the host's.
    let is_tls =
        |&name: &*const c_char| unsafe { CStr::from_ptr(name) }.to_bytes().starts_with(b"tls-");
    if names.iter().any(is_tls) {
        tls::host_has_changed(ctx);
    }
}

/// A replica comes or goes: there may be too few of them now.
fn on_replica_change(ctx: Ctx<'_>, sub: u64) {
    instance().gates.may_change();
    let is_online = sub == raw::REDISMODULE_SUBEVENT_REPLICA_CHANGE_ONLINE;
    if is_online {
        say_what_replicas_need(ctx);
        if ctx.flags() & raw::REDISMODULE_CTX_FLAGS_SLAVE == 0 {
            // In a cluster only this tells a master from a replica that is not one yet.
            instance().sync.became_master();
        }
    }
}

/// Logs once what a replica needs.
pub fn say_what_replicas_need(ctx: Ctx<'_>) {
    if !instance().quarantine.is_need_said.replace(true) {
        let text = "A replica is attached. It must have midi loaded too: without it, it ends at a \
                    full sync, and after a partial one drops what is written to midi's keys, and \
                    whole transactions with such writes, the server's own keys included.";
        log(ctx, Level::Notice, text);
    }
}

/// The host becomes a master or a replica. A replica's keys are closed before anything else runs.
fn on_role_change(ctx: Ctx<'_>, sub: u64) {
    instance().backlog.may_come();
    if sub == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER {
        instance().sync.became_master();
        draw_new_base();
    } else {
        instance().gates.demoted(ctx);
        if instance().sync.untrusted.get() {
            quarantine::has_master();
        }
    }
    instance().gates.refresh(ctx);
    if sub == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_REPLICA {
        if let Some(ports) = instance().engine.context().outside.ports() {
            ports.demoted();
        }
        hand_over::drop_tail(ctx, "This server is a replica now");
        confirmed::became_replica();
    }
}

fn on_master_link(ctx: Ctx<'_>, sub: u64) {
    instance().backlog.may_come();
    if sub == raw::REDISMODULE_SUBEVENT_MASTER_LINK_UP {
        instance().gates.refresh(ctx);
        instance().sync.look_later();
    } else {
        // A replica that changes its master has none for a moment, and looks like a master.
        instance().gates.may_change();
    }
}

fn on_persistence(ctx: Ctx<'_>, sub: u64) {
    match sub {
        raw::REDISMODULE_SUBEVENT_PERSISTENCE_RDB_START => base::begin(false),
        raw::REDISMODULE_SUBEVENT_PERSISTENCE_AOF_START => base::begin(true),
        raw::REDISMODULE_SUBEVENT_PERSISTENCE_ENDED if instance().doing.is_child() => {
            base::end_in_child()
        }
        // A child's parent is told of its birth and its death.
        _ if instance().doing.is_child() => {}
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
    }
}

fn on_loading(ctx: Ctx<'_>, sub: u64) {
    instance().backlog.may_come();
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
    instance().gates.doing_changed(ctx);
}

/// The host's FLUSHALL and FLUSHDB act on midi's keys too. Each line says why it stands where it
/// does.
fn on_flush(ctx: Ctx<'_>, db: c_int) {
    let (here, locked) = (instance(), ctx.locked());
    // In a unit the shards that are taken from here on are the unit's.
    unit::is_inside(ctx);
    // Keys that have just been loaded are flushed, too.
    loading::take_effect(locked);
    // Keys and changes are counted while they are there.
    loading::before_flush(ctx);
    saving::before_load();
    let has = |flag| ctx.flags() & flag != 0;
    // Else its master may have sent this.
    let syncs =
        has(raw::REDISMODULE_CTX_FLAGS_SLAVE) && !has(raw::REDISMODULE_CTX_FLAGS_REPLICA_IS_ONLINE);
    let may_be_old = has(raw::REDISMODULE_CTX_FLAGS_MULTI) || here.pause.holds_up(locked);
    let load_follows = db < 0 && here.doing.is_emptied_for_load(syncs, may_be_old);
    if load_follows {
        // Before the keys are gone: who reads meanwhile is told that they are being loaded.
        here.gates.doing_changed(ctx);
    }
    if load_follows && here.doing.loads_aof() {
        // The log's tail, and writes from here on, would get into the AOF, but the AOF that is
        // loaded does not have them.
        hand_over::drop_tail(ctx, "DEBUG LOADAOF");
    } else if !load_follows {
        // The gates decide whether the flush is logged. That of a load is not: the keyspace stays
        // closed.
        here.gates.check(ctx);
    }
    let _logging = Logging::begin(ctx);
    // Last: the entries that are freed then are in no table.
    let remains = here.engine.ledger.flush(locked, u32::try_from(db).ok(), ChangedBy::Host);
    free_later(&here.engine, remains);
}

/// The host's SWAPDB acts on midi's keys too, as its FLUSHALL does.
fn on_swap(ctx: Ctx<'_>, swap: &raw::RedisModuleSwapDbInfo) {
    if let (Ok(a), Ok(b)) = (u32::try_from(swap.dbnum_first), u32::try_from(swap.dbnum_second)) {
        unit::is_inside(ctx);
        loading::take_effect(ctx.locked());
        instance().gates.check(ctx);
        let _logging = Logging::begin(ctx);
        instance().engine.ledger.swap_dbs(ctx.locked(), a, b, ChangedBy::Host);
    }
}
