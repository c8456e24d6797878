//! The beginning of the modules for midi's tests.

use std::ffi::{CStr, c_int};

use midi_module_api as raw;
use midi_module_api::{RedisModuleCtx as Ctx, RedisModuleString as HostString};

/// A function of the module API of Redis 7.0.
macro_rules! api {
    ($name:ident) => {
        raw::$name.expect("a function of Redis 7.0")
    };
}
pub(crate) use api;

pub const OK: c_int = raw::REDISMODULE_OK;
pub const ERR: c_int = raw::REDISMODULE_ERR;

pub type Command = unsafe extern "C" fn(*mut Ctx, *mut *mut HostString, c_int) -> c_int;

/// Tells the host of a module of this name, and of its commands: their names, functions and flags.
/// Returns what OnLoad returns.
///
/// # Safety
/// Only OnLoad may call this, with its context.
pub unsafe fn start(ctx: *mut Ctx, name: &CStr, commands: &[(&CStr, Command, &CStr)]) -> c_int {
    // SAFETY: in OnLoad, with its context; `init` fills in the API's functions.
    unsafe {
        if raw::init(ctx, name, 1) == ERR {
            return ERR;
        }
        for (name, command, flags) in commands {
            let create = api!(RedisModule_CreateCommand);
            if create(ctx, name.as_ptr(), Some(*command), flags.as_ptr(), 0, 0, 0) == ERR {
                return ERR;
            }
        }
    }
    OK
}
