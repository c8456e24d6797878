//! Units on the host: EXEC, scripts and functions, seen from outside.
//!
//! The host does not notify modules when a unit begins or ends. A context's flags show whether a
//! command is part of a unit, but reading them costs more than a short command may. So a filter,
//! which the host calls before every command but those inside EXEC, notes whether anything has been
//! called that could be a unit. The next command's filter, or BEFORE_SLEEP, finds that the unit is
//! over.

use std::ffi::c_int;

use midi_module_api as raw;

use super::api::{Ctx, api};
use super::context::Filtered;
use super::instance::instance;
use super::persistence::hand_over::{before_pause, confirmed};
use super::persistence::replay::quarantine;
use super::users::USERS;
use super::{guarded, import_source, notifications, scripts, slots, watch};
use crate::engine::Locked;

/// Set while the host executes a unit's commands, whatever the context.
const INSIDE: u32 = raw::REDISMODULE_CTX_FLAGS_MULTI | raw::REDISMODULE_CTX_FLAGS_LUA;

/// Flags under which commands come without a filter: those of the AOF.
const UNFILTERED: u32 =
    raw::REDISMODULE_CTX_FLAGS_LOADING | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING;

/// Has the host call us before each command. False if it refuses.
pub fn register(ctx: Ctx<'_>) -> bool {
    // SAFETY: in OnLoad; the callback stays, since midi is never unloaded.
    !unsafe { api!(RedisModule_RegisterCommandFilter)(ctx.raw(), Some(before_command), 0 as c_int) }
        .is_null()
}

/// Called before every command: top-level ones, queued ones as they are queued, those of scripts
/// and of RM_Call. It slows native commands too, so it is short.
unsafe extern "C" fn before_command(filter: *mut raw::RedisModuleCommandFilterCtx) {
    // SAFETY: the host's own, while we run.
    let command = unsafe { Filtered::new(filter) };
    let here = instance();
    here.gates.has_run.set(true);
    if here.unit.is_open.get() {
        guarded(false, || end_if_over(command.locked()));
    }
    if here.slots.is_unsettled.get() {
        guarded((), || slots::migrating::sends_another(command));
    }
    let name = command.arg(0);
    if is_ours(name) {
        if here.scripts.are_running() {
            guarded((), || here.scripts.withhold(command, name));
        }
        return;
    }
    here.unit.asks.set(true);
    let name = here.renamed.meaning(name, command);
    // The host has freed the old name then.
    if here.scripts.are_running() && guarded(false, || here.scripts.rename(command, name)) {
        return;
    }
    // What the handlers below call is not the script's.
    let _own_calls = here.scripts.are_running().then(scripts::leave);
    match name.len() {
        // GET, SET and DEL are as long as ACL: a look at the first letter rules them out.
        3 if name[0] | 0x20 == b'a' && name.eq_ignore_ascii_case(b"acl") => {
            guarded((), || USERS.before_acl(command));
        }
        4 if name.eq_ignore_ascii_case(b"exec") => guarded((), || {
            here.pause.before_exec(command.locked());
            notifications::before_exec(command.locked());
            USERS.before_exec(command);
            watch::before_exec(command.locked());
            import_source::may_change();
            quarantine::put_back(command.locked());
            before_pause::before_exec(command);
        }),
        6 if name.eq_ignore_ascii_case(b"client") => guarded((), || before_client(command)),
        7 if name.eq_ignore_ascii_case(b"cluster") => {
            guarded((), || slots::before_cluster(command))
        }
        6 if name.eq_ignore_ascii_case(b"config") => guarded((), || {
            USERS.before_config(command);
            quarantine::before_config(command);
        }),
        8 if name.eq_ignore_ascii_case(b"failover") || name.eq_ignore_ascii_case(b"shutdown") => {
            guarded((), || before_pause::before_pause(command));
        }
        6 if name.eq_ignore_ascii_case(b"select") || name.eq_ignore_ascii_case(b"swapdb") => {
            guarded((), || here.sync.before_database(command));
        }
        4 if name.eq_ignore_ascii_case(b"sync") => here.backlog.may_come(),
        5 if name.eq_ignore_ascii_case(b"psync") => here.backlog.may_come(),
        5 if name.eq_ignore_ascii_case(b"multi") => USERS.before_multi(),
        5 if name.eq_ignore_ascii_case(b"debug") => guarded((), || before_debug(command)),
        4 if name.eq_ignore_ascii_case(b"auth") => USERS.before_login(),
        5 if name.eq_ignore_ascii_case(b"hello") || name.eq_ignore_ascii_case(b"reset") => {
            USERS.before_login();
            guarded((), import_source::may_change);
        }
        8 if name.eq_ignore_ascii_case(b"replconf") => confirmed::may_change(),
        8 if name.eq_ignore_ascii_case(b"flushall") => {
            here.doing.flushall_comes(here.pause.holds_up(command.locked()));
        }
        4 if name.eq_ignore_ascii_case(b"save") => {
            here.doing.save_comes(here.pause.holds_up(command.locked()));
        }
        5 if name.eq_ignore_ascii_case(b"watch") => guarded((), || watch::before_watch(command)),
        _ => {}
    }
}

/// A CLIENT command is about to be executed, queued or refused.
fn before_client(command: Filtered<'_>) {
    let subcommand = command.arg(1);
    if subcommand.eq_ignore_ascii_case(b"tracking") {
        notifications::tracking_begins(command.locked());
    } else if subcommand.eq_ignore_ascii_case(b"pause") {
        instance().pause.before_pause(command.arg(3));
        before_pause::before_pause(command);
    } else if subcommand.eq_ignore_ascii_case(b"import-source") {
        import_source::may_change();
    }
}

/// A DEBUG command is about to be executed or refused.
fn before_debug(command: Filtered<'_>) {
    let here = instance();
    if !here.active_expiry.may_debug() {
        return;
    }
    if command.arg(1).eq_ignore_ascii_case(b"reload") {
        let merges = |number| command.arg(number).eq_ignore_ascii_case(b"merge");
        here.doing.reload_comes();
        here.loads.lock().replaces = (2..command.count()).any(merges);
    } else if command.arg(1).eq_ignore_ascii_case(b"loadaof") {
        here.doing.loadaof_comes();
    }
    here.active_expiry.before_debug(command);
}

/// Whether `name` begins with the door's prefix, `midi.`, in upper or lower case.
#[inline]
fn is_ours(name: &[u8]) -> bool {
    const LOWER_CASE: u32 = 0x2020_2020;
    match name {
        [a, b, c, d, b'.', ..] => {
            u32::from_le_bytes([*a, *b, *c, *d]) | LOWER_CASE == u32::from_le_bytes(*b"midi")
        }
        _ => false,
    }
}

/// Whether the running command is part of a unit, which is opened if it is new. Called before
/// anything is done to a shard.
#[inline]
pub fn is_inside(ctx: Ctx<'_>) -> bool {
    instance().unit.asks.get() && ask(ctx)
}

#[cold]
fn ask(ctx: Ctx<'_>) -> bool {
    notifications::before_read(ctx.locked());
    watch::before_read(ctx.locked());
    let (flags, here) = (ctx.flags(), instance());
    if flags & INSIDE == 0 {
        end(ctx.locked());
        let again = flags & UNFILTERED != 0 || here.pause.holds_up(ctx.locked());
        here.unit.asks.set(again);
        return false;
    }
    if !here.unit.is_open.replace(true) {
        let engine = &here.engine;
        engine.shards().open_unit(ctx.locked());
        // Commands also run after BEFORE_SLEEP: the main thread must not sleep while it holds
        // shards.
        if engine.context().main.is_asleep() {
            engine.context().outside.wake_main();
        }
    }
    true
}

/// Ends the unit if the host has finished it. True if no unit is open afterwards.
pub fn end_if_over(locked: Locked<'_>) -> bool {
    let here = instance();
    if here.unit.is_open.get() && here.ctx(locked).flags() & INSIDE == 0 {
        end(locked);
    }
    !here.unit.is_open.get()
}

fn end(locked: Locked<'_>) {
    if instance().unit.is_open.take() {
        instance().engine.shards().end_unit(locked);
    }
}
