//! Which keys a client's user may touch. The host checks the keys that a command
//! names; IMPORT and EXPORT find theirs by a pattern, so they ask here.

use std::ffi::c_int;
use std::ptr;

use redis_module::raw;

use super::api::{Ctx, RawString, api, bytes, reply_text};
use crate::command::Error;

/// The user of a client, by name: rights may change, and users go, while a job runs.
pub struct Rights {
    /// `None` where no user stands behind a command, as in another module's call.
    user: Option<Vec<u8>>,
}

impl Rights {
    /// Of the client whose command this is.
    pub fn of_client(ctx: Ctx) -> Self {
        let user = match asker(ctx) {
            Asker::Client(name) | Asker::Other(name) => Some(name),
            Asker::Nobody => None,
        };
        Rights { user }
    }

    /// Of a user of that name.
    pub fn of_user(name: &[u8]) -> Self {
        Rights { user: Some(name.to_vec()) }
    }

    /// The rights as they are now, for one hold of the global lock.
    ///
    /// # Errors
    /// [`Error::NoPermission`] where the user is gone.
    pub fn now(&self) -> Result<RightsNow, Error> {
        let Some(name) = &self.user else {
            return Ok(RightsNow(ptr::null_mut()));
        };
        // SAFETY: under the global lock; the string is freed once.
        let user = unsafe {
            let name = api!(RedisModule_CreateString)(ptr::null_mut(), name.as_ptr().cast(), name.len());
            let user = api!(RedisModule_GetModuleUserFromUserName)(name);
            api!(RedisModule_FreeString)(ptr::null_mut(), name);
            user
        };
        if user.is_null() { Err(Error::NoPermission) } else { Ok(RightsNow(user)) }
    }
}

/// Who stands behind a command.
pub enum Asker {
    /// A client's user of that name.
    Client(Vec<u8>),
    /// The same where the client is none of the host's list: a script's, or another module's.
    Other(Vec<u8>),
    /// No user: the master, the AOF, or another module in its own name.
    Nobody,
}

/// Who stands behind the command of that context. On the main thread.
pub fn asker(ctx: Ctx) -> Asker {
    const WITHOUT_USER: u32 = raw::REDISMODULE_CTX_FLAGS_REPLICATED
        | raw::REDISMODULE_CTX_FLAGS_LOADING
        | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING;
    // SAFETY: a command's context, and names that the host has made for us. RM_GetCurrentUserName is asked
    // only where there is a user.
    unsafe {
        let name = api!(RedisModule_GetClientUserNameById)(ctx.0, ctx.client_id());
        if !name.is_null() {
            return Asker::Client(taken(name));
        }
        if ctx.flags() & WITHOUT_USER != 0 || !has_user(ctx) {
            return Asker::Nobody;
        }
        Asker::Other(taken(api!(RedisModule_GetCurrentUserName)(ctx.0)))
    }
}

/// # Safety
/// A string that the host has given to us: it is freed here.
unsafe fn taken(name: *mut RawString) -> Vec<u8> {
    // SAFETY: the caller's promise.
    unsafe {
        let copy = bytes(name).to_vec();
        api!(RedisModule_FreeString)(ptr::null_mut(), name);
        copy
    }
}

/// Whether a user stands behind a context whose client is not a real one: a
/// script's has its caller's, an RM_Call's has none. The only question that does
/// not end the server where there is none is a call in the user's name.
fn has_user(ctx: Ctx) -> bool {
    // SAFETY: on the main thread with a command's context; the reply, an error
    // where the call could not be made, is freed once.
    unsafe {
        let reply = api!(RedisModule_Call)(ctx.0, c"PING".as_ptr(), c"CE".as_ptr());
        if reply.is_null() {
            return false;
        }
        let none = reply_text(reply).windows(NO_USER.len()).any(|part| part == NO_USER);
        api!(RedisModule_FreeCallReply)(reply);
        !none
    }
}

/// In the host's error for a call in the name of nobody.
const NO_USER: &[u8] = b"cannot run as user";

/// See [`Rights::now`].
pub struct RightsNow(*mut raw::RedisModuleUser);

impl RightsNow {
    /// Whether the user may read and write this key.
    pub fn allow(&self, key: *mut RawString) -> bool {
        let flags = raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_UPDATE;
        // SAFETY: under the global lock, with a live key.
        self.0.is_null()
            || unsafe { api!(RedisModule_ACLCheckKeyPermissions)(self.0, key, flags as c_int) == 0 }
    }

    /// The same for a key that is no string of the host's yet.
    pub fn allow_bytes(&self, key: &[u8]) -> bool {
        if self.0.is_null() {
            return true;
        }
        // SAFETY: under the global lock; the string is freed once.
        unsafe {
            let string = api!(RedisModule_CreateString)(ptr::null_mut(), key.as_ptr().cast(), key.len());
            let allowed = self.allow(string);
            api!(RedisModule_FreeString)(ptr::null_mut(), string);
            allowed
        }
    }
}

impl Drop for RightsNow {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: made by `now`, and freed once.
            unsafe { api!(RedisModule_FreeModuleUser)(self.0) };
        }
    }
}
