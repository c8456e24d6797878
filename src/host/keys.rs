//! Keys that the host asks for on each call. By a key spec, hosts before Redis 8.4 would find only
//! every other one of a counted number of pairs, and so check a user's rights to half of them. And
//! a key spec cannot express that options decide whether a key is read, written or both.

use std::ffi::c_int;

use midi_module_api as raw;
use smallvec::SmallVec;

use super::api::{Ctx, api};
use super::string::HostString;
use crate::command::{Access, Args, Command, Keys};

/// Whether the host asks for a command's keys this way.
pub fn are_asked_for(keys: Keys) -> bool {
    matches!(keys, Keys::CountedPairs(_) | Keys::ByOptions(_) | Keys::Fields)
}

/// Whether the host has CLUSTER MIGRATION: Redis from 8.4 on.
pub fn has_migrations() -> bool {
    // SAFETY: filled in at load, and never changed.
    unsafe { raw::RedisModule_ClusterPropagateForSlotMigration }.is_some()
}

/// Whether a migration of slots may ask modules for the keys of the commands that they have logged.
///
/// This is a defect of Redis (8.6.3, `moduleGetCommandKeysViaAPI`): the end of such a question
/// counts as the end of a command, which propagates pending commands, which asks again, until the
/// stack is full.
pub fn asks_without_end(ctx: Ctx<'_>) -> bool {
    has_migrations() && ctx.flags() & raw::REDISMODULE_CTX_FLAGS_CLUSTER != 0
}

/// Reports a call's keys if the host asks for them; false if this is a call to run.
pub fn answer(ctx: Ctx<'_>, row: &Command, argv: &[HostString<'_>]) -> bool {
    // SAFETY: the command's own context.
    if unsafe { api!(RedisModule_IsKeysPositionRequest)(ctx.raw()) } == 0 {
        return false;
    }
    let list: SmallVec<[&[u8]; 8]> = argv.iter().map(|string| string.bytes()).collect();
    let args = Args::new(&list);
    for (number, position) in row.key_positions(&args).enumerate() {
        let flags = access_flags(row.keys.access(number, &args));
        // SAFETY: in a question for keys; the position is that of an argument.
        unsafe {
            api!(RedisModule_KeyAtPosWithFlags)(ctx.raw(), position as c_int, flags as c_int)
        };
    }
    true
}

/// An access to a key as the host's REDISMODULE_CMD_KEY_* flags.
pub fn access_flags(access: Access) -> u64 {
    let flag = |word: &&str| match *word {
        "RO" => raw::REDISMODULE_CMD_KEY_RO,
        "RW" => raw::REDISMODULE_CMD_KEY_RW,
        "OW" => raw::REDISMODULE_CMD_KEY_OW,
        "RM" => raw::REDISMODULE_CMD_KEY_RM,
        "access" => raw::REDISMODULE_CMD_KEY_ACCESS,
        "update" => raw::REDISMODULE_CMD_KEY_UPDATE,
        "insert" => raw::REDISMODULE_CMD_KEY_INSERT,
        _ => raw::REDISMODULE_CMD_KEY_DELETE,
    };
    access.words().iter().map(flag).fold(0, |flags, flag| flags | flag)
}
