//! The module API of Redis and Valkey: the functions, structures and numbers that midi uses.
//!
//! A host hands its functions out by name when it loads a module, so nothing is linked, and no
//! header is read: the declarations here are all that a build needs. They are the interface of
//! Redis 7.0 and 7.2, under the BSD licence beside this crate; CONTRIBUTING.md says how to add to
//! them.

// The names are those of the API's reference.
#![allow(non_upper_case_globals, non_snake_case)]

mod constants;
mod functions;
mod types;

use std::ffi::{CStr, c_char, c_int, c_void};

pub use constants::*;
pub use functions::*;
pub use types::*;

type GetApi = unsafe extern "C" fn(name: *const c_char, pointer: *mut *mut c_void) -> c_int;
type SetModuleAttribs =
    unsafe extern "C" fn(ctx: *mut RedisModuleCtx, name: *const c_char, version: c_int, api: c_int);
type IsModuleNameBusy = unsafe extern "C" fn(name: *const c_char) -> c_int;

/// Fills in the functions that the host has, and tells it the module's name and version. Returns
/// [`REDISMODULE_OK`], or [`REDISMODULE_ERR`] if another module has the name.
///
/// # Safety
/// Only OnLoad may call this, with its context, before anything else of this crate is used.
pub unsafe fn init(ctx: *mut RedisModuleCtx, name: &CStr, version: c_int) -> c_int {
    // SAFETY: the host's own protocol: a context in OnLoad begins with a pointer to the function
    // that finds all others. It writes a pointer where it knows the name, and nothing elsewhere;
    // the types are those of the declarations.
    unsafe {
        let get = *ctx.cast::<GetApi>();
        let mut find = |name: &'static str, pointer: *mut *mut c_void| {
            get(name.as_ptr().cast(), pointer);
        };
        functions::each_required(&mut find);
        functions::each_other(&mut find);
        let (mut is_busy, mut set): (Option<IsModuleNameBusy>, Option<SetModuleAttribs>) =
            (None, None);
        find("RedisModule_IsModuleNameBusy\0", (&raw mut is_busy).cast());
        find("RedisModule_SetModuleAttribs\0", (&raw mut set).cast());
        if is_busy.is_some_and(|is_busy| is_busy(name.as_ptr()) != 0) {
            return REDISMODULE_ERR;
        }
        let Some(set) = set else { return REDISMODULE_ERR };
        set(ctx, name.as_ptr(), version, API_VERSION);
    }
    REDISMODULE_OK
}

/// The version of the API that all hosts have.
const API_VERSION: c_int = 1;

/// The first function that midi needs and the host lacks; `None` after an [`init`] by a host of
/// Redis 7.0 or later.
pub fn missing() -> Option<&'static str> {
    let mut first = None;
    functions::each_required(&mut |name, pointer| {
        // SAFETY: a pointer of this crate, which only `init` writes, before other threads run.
        if first.is_none() && unsafe { *pointer }.is_null() {
            first = Some(name.trim_end_matches('\0'));
        }
    });
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a host knows by name: nothing but what this calls.
    static mut LACKS: &str = "";

    extern "C" fn is_busy(_: *const c_char) -> c_int {
        0
    }

    extern "C" fn set(_: *mut RedisModuleCtx, _: *const c_char, _: c_int, _: c_int) {}

    /// A host that has every function but the one in `LACKS`.
    unsafe extern "C" fn get_api(name: *const c_char, pointer: *mut *mut c_void) -> c_int {
        // SAFETY: `init` gives a name that ends with NUL and a place for a pointer, and this test
        // has one thread.
        unsafe {
            let name = CStr::from_ptr(name).to_str().expect("a name");
            if name == LACKS {
                return REDISMODULE_ERR;
            }
            *pointer = match name {
                "RedisModule_IsModuleNameBusy" => is_busy as *mut c_void,
                _ => set as *mut c_void,
            };
        }
        REDISMODULE_OK
    }

    fn init_without(name: &'static str) -> c_int {
        let mut context: *const c_void = get_api as *const c_void;
        // SAFETY: one thread, and a context as OnLoad gets it.
        unsafe {
            LACKS = name;
            init((&raw mut context).cast(), c"test", 1)
        }
    }

    #[test]
    fn a_function_that_the_host_lacks_is_named() {
        assert_eq!(missing(), Some("RedisModule_ACLAddLogEntry"));
        assert_eq!(init_without("RedisModule_SetModuleAttribs"), REDISMODULE_ERR);
        assert_eq!(missing(), None, "functions beside the list are not asked for");
        // SAFETY: one thread.
        unsafe { RedisModule_ValueLength = None };
        assert_eq!(init_without("RedisModule_ValueLength"), REDISMODULE_OK);
        assert_eq!(missing(), Some("RedisModule_ValueLength"));
    }
}
