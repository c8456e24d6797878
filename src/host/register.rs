//! Registers the command table with the host: commands, flags, key specs, COMMAND DOCS, ACL
//! categories. `door` shows the way of a command from there on.

use std::ffi::{CString, c_char, c_int};
use std::ptr;

use midi_module_api as raw;

use super::PREFIX;
use super::api::{Ctx, RawCtx, RawString, api, c_text, leaked};
use super::instance::instance;
use super::keys::{access_flags, are_asked_for, asks_without_end};
use crate::command::{Arg, ArgKind, Command, FindKeys, KeySpec, Keys, SINCE, host_commands};

/// The function that the host calls for a command.
pub type Trampoline = unsafe extern "C" fn(*mut RawCtx, *mut *mut RawString, c_int) -> c_int;

/// Registers every command, each with its trampoline. False if the host refuses one.
pub fn register(ctx: Ctx<'_>, trampolines: &[Trampoline]) -> bool {
    // Else the key specs must do, which ask for the rights that any option of a command needs.
    let may_ask = !instance().io_threads.ask_for_keys(ctx) && !asks_without_end(ctx);
    let mut all = host_commands().zip(trampolines);
    all.all(|(command, &trampoline)| register_one(ctx, command, trampoline, may_ask).is_some())
}

fn register_one(
    ctx: Ctx<'_>,
    command: &Command,
    trampoline: Trampoline,
    may_ask: bool,
) -> Option<()> {
    let name = c_text(&format!("{PREFIX}{}", command.name));
    let (first, last, step) = command.keys.range();
    let ok = raw::REDISMODULE_OK;
    // SAFETY: in OnLoad; strings end with NUL and are copied by the host.
    unsafe {
        let flags = flags(command, may_ask);
        let created = api!(RedisModule_CreateCommand)(
            ctx.raw(),
            name.as_ptr(),
            Some(trampoline),
            flags.as_ptr(),
            first,
            last,
            step,
        );
        let row = if created == ok {
            api!(RedisModule_GetCommand)(ctx.raw(), name.as_ptr())
        } else {
            ptr::null_mut()
        };
        if row.is_null() {
            return None;
        }
        // Redis 7.2 and later.
        if let Some(set_categories) = raw::RedisModule_SetCommandACLCategories {
            set_categories(row, c_text(command.categories).as_ptr());
        }
        (set_info(row, command, may_ask) == ok).then_some(())
    }
}

/// `may_ask`: the host may ask for the keys of each call.
fn flags(command: &Command, may_ask: bool) -> CString {
    let flags = command.flags;
    let all = [
        (flags.write || flags.host_write, "write"),
        (flags.readonly, "readonly"),
        (flags.deny_oom, "deny-oom"),
        (flags.fast, "fast"),
        (flags.admin, "admin"),
        (flags.no_auth, "no-auth"),
        (flags.loading, "allow-loading"),
        (flags.stale, "allow-stale"),
        (flags.noscript, "deny-script"),
        (may_ask && are_asked_for(command.keys), "getkeys-api"),
    ];
    let set: Vec<_> = all.iter().filter(|(set, _)| *set).map(|&(_, name)| name).collect();
    c_text(&set.join(" "))
}

/// # Safety
/// `row` must be a command that was just created.
unsafe fn set_info(row: *mut raw::RedisModuleCommand, command: &Command, may_ask: bool) -> c_int {
    let version = raw::RedisModuleCommandInfoVersion {
        version: 1,
        sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
        sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
        sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
    };
    let (summary, complexity, since) =
        (c_text(command.docs.summary), c_text(command.docs.complexity), c_text(SINCE));
    let tips = c_text(&command.tips.join(" "));
    let mut specs = key_specs(command.keys, may_ask);
    let mut args = arguments(command.docs.args);
    let info = raw::RedisModuleCommandInfo {
        version: &version,
        summary: summary.as_ptr(),
        complexity: complexity.as_ptr(),
        since: since.as_ptr(),
        history: ptr::null_mut(),
        tips: if tips.is_empty() { ptr::null() } else { tips.as_ptr() },
        arity: command.arity,
        key_specs: specs.as_mut_ptr(),
        args: if command.docs.args.is_empty() { ptr::null_mut() } else { args.as_mut_ptr() },
    };
    // SAFETY: everything the structure points to lives until the call returns,
    // and the host copies it; lists end with a zeroed element.
    unsafe { api!(RedisModule_SetCommandInfo)(row, &info) }
}

fn key_specs(keys: Keys, may_ask: bool) -> Vec<raw::RedisModuleCommandKeySpec> {
    // SAFETY: numbers, null pointers and unions of them: all zero is the end mark.
    let end: raw::RedisModuleCommandKeySpec = unsafe { std::mem::zeroed() };
    keys.specs().iter().map(|spec| key_spec(spec, may_ask, end)).chain([end]).collect()
}

fn key_spec(
    of: &KeySpec,
    may_ask: bool,
    empty: raw::RedisModuleCommandKeySpec,
) -> raw::RedisModuleCommandKeySpec {
    let mut spec = empty;
    spec.flags = access_flags(of.access);
    if may_ask && (of.varies || matches!(of.find, FindKeys::Counted { .. })) {
        // So that the host asks for each call's keys. Where it may not, it must not see this: it
        // would find no keys at all.
        spec.flags |= raw::REDISMODULE_CMD_KEY_VARIABLE_FLAGS;
    }
    spec.begin_search_type = raw::REDISMODULE_KSPEC_BS_INDEX;
    spec.bs.index.pos = of.begin;
    match of.find {
        FindKeys::Range { last, step } => {
            spec.find_keys_type = raw::REDISMODULE_KSPEC_FK_RANGE;
            spec.fk.range = raw::FindKeysRange { lastkey: last, keystep: step, limit: 0 };
        }
        FindKeys::Counted { step } => {
            spec.find_keys_type = raw::REDISMODULE_KSPEC_FK_KEYNUM;
            spec.fk.keynum = raw::FindKeysKeynum { keynumidx: 0, firstkey: 1, keystep: step };
        }
    }
    spec
}

/// The documented arguments in the host's form. Their texts are leaked: this
/// runs once per argument and process.
fn arguments(args: &[Arg]) -> Vec<raw::RedisModuleCommandArg> {
    // SAFETY: numbers and null pointers: all zero is the end mark.
    let end: raw::RedisModuleCommandArg = unsafe { std::mem::zeroed() };
    args.iter().map(argument).chain([end]).collect()
}

fn argument(arg: &Arg) -> raw::RedisModuleCommandArg {
    use raw::*;
    let kind = match arg.kind {
        ArgKind::Key | ArgKind::SecondKey => REDISMODULE_ARG_TYPE_KEY,
        ArgKind::String => REDISMODULE_ARG_TYPE_STRING,
        ArgKind::Integer => REDISMODULE_ARG_TYPE_INTEGER,
        ArgKind::Double => REDISMODULE_ARG_TYPE_DOUBLE,
        ArgKind::Pattern => REDISMODULE_ARG_TYPE_PATTERN,
        ArgKind::UnixTime => REDISMODULE_ARG_TYPE_UNIX_TIME,
        ArgKind::Token => REDISMODULE_ARG_TYPE_PURE_TOKEN,
        ArgKind::OneOf(_) => REDISMODULE_ARG_TYPE_ONEOF,
        ArgKind::Block(_) => REDISMODULE_ARG_TYPE_BLOCK,
    };
    let inner = arg.kind.inner();
    let mut flags = 0;
    if arg.optional {
        flags |= REDISMODULE_CMD_ARG_OPTIONAL;
    }
    if arg.multiple {
        flags |= REDISMODULE_CMD_ARG_MULTIPLE;
    }
    RedisModuleCommandArg {
        name: leaked(arg.name),
        type_: kind,
        key_spec_index: arg.kind.key_spec().unwrap_or(-1),
        token: arg.token.map_or(ptr::null::<c_char>(), leaked),
        summary: ptr::null(),
        since: ptr::null(),
        flags: flags as c_int,
        deprecated_since: ptr::null(),
        subargs: if inner.is_empty() {
            ptr::null_mut()
        } else {
            arguments(inner).leak().as_mut_ptr()
        },
        display_text: ptr::null(),
    }
}
