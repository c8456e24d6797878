//! The host's users and their rights; and private users of our own, by which the host judges a set
//! of rules.

use std::ffi::{CStr, CString, c_int};
use std::io;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use midi_module_api as raw;

use super::api::{Ctx, api};
use super::string::{HostString, OwnString};
use crate::engine::{Locked, Refusal, RefusalReason};

/// The host's verdict on whether a user may call a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayCall {
    /// The rules allow it.
    Yes,
    /// The rules deny it.
    No,
    /// The host has no such command.
    NoCommand,
    /// The number of arguments is wrong: hosts from 8.6 on do not judge such a command.
    WrongArity,
}

/// A user of the host, or a private one of our own, for one hold of the global lock.
pub struct HostUser<'l>(*mut raw::RedisModuleUser, PhantomData<Locked<'l>>);

impl<'l> HostUser<'l> {
    /// The host's user `name`; `None` if there is no such user.
    pub fn of_name(_: Locked<'l>, name: &[u8]) -> Option<Self> {
        let name = OwnString::new(name);
        // SAFETY: a live string; what the host makes is freed by Drop.
        let user = unsafe { api!(RedisModule_GetModuleUserFromUserName)(name.get().raw()) };
        (!user.is_null()).then(|| HostUser(user, PhantomData))
    }

    /// A private user of our own, without any rights.
    pub fn unknown(locked: Locked<'l>) -> Self {
        Self::new(locked, c"midi")
    }

    /// A private user of our own, which is made with these rules the first time, and lives as long
    /// as the server. `None` if the host does not know a rule.
    pub fn kept<'r>(
        locked: Locked<'l>,
        kept: &AtomicPtr<raw::RedisModuleUser>,
        mut rules: impl Iterator<Item = &'r [u8]>,
    ) -> Option<ManuallyDrop<Self>> {
        if kept.load(Ordering::Relaxed).is_null() {
            let user = Self::unknown(locked);
            if !rules.all(|rule| user.set(rule)) {
                return None;
            }
            kept.store(ManuallyDrop::new(user).0, Ordering::Relaxed);
        }
        Some(ManuallyDrop::new(HostUser(kept.load(Ordering::Relaxed), PhantomData)))
    }

    /// A private user under a name that the host may know too.
    fn new(_: Locked<'l>, name: &CStr) -> Self {
        // SAFETY: the name ends with NUL and is copied.
        HostUser(unsafe { api!(RedisModule_CreateModuleUser)(name.as_ptr()) }, PhantomData)
    }

    /// Adds a rule. False if the host does not know it.
    pub fn set(&self, rule: &[u8]) -> bool {
        let Ok(rule) = CString::new(rule) else { return false };
        // SAFETY: a live user; the text ends with NUL.
        let result = unsafe { api!(RedisModule_SetModuleUserACL)(self.0, rule.as_ptr()) };
        result == raw::REDISMODULE_OK
    }

    /// Calls `run` while the context has this user, for calls in its name.
    pub fn within<R>(&self, ctx: Ctx<'_>, run: impl FnOnce() -> R) -> R {
        let set = |user: *mut raw::RedisModuleUser| {
            // SAFETY: a valid context, and a user that outlives the calls made meanwhile, or none.
            unsafe { api!(RedisModule_SetContextUser)(ctx.raw(), user) }
        };
        set(self.0);
        // Also after a panic: the context outlives this user.
        let _unset = scopeguard::guard((), |()| set(ptr::null_mut()));
        run()
    }

    /// The host's description of the user, as in ACL LIST.
    pub fn text(&self) -> Option<OwnString> {
        // SAFETY: a live user; the reference is ours.
        unsafe { OwnString::of(api!(RedisModule_GetModuleUserACLString)(self.0)) }
    }

    /// Whether the user may read and write this key.
    pub fn may_touch(&self, key: HostString<'_>) -> bool {
        let access = raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_UPDATE;
        // SAFETY: a live user and a live string.
        let verdict =
            unsafe { api!(RedisModule_ACLCheckKeyPermissions)(self.0, key.raw(), access as c_int) };
        verdict == raw::REDISMODULE_OK
    }

    /// Whether the user may call this command; `words` are its name and arguments.
    pub fn may_call(&self, words: &[HostString<'_>]) -> MayCall {
        // SAFETY: a live user and live strings, which the host only reads.
        let verdict = unsafe {
            let words_of_host = words.as_ptr().cast_mut().cast();
            api!(RedisModule_ACLCheckCommandPermissions)(
                self.0,
                words_of_host,
                words.len() as c_int,
            )
        };
        if verdict == raw::REDISMODULE_OK {
            return MayCall::Yes;
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::ENOENT) => MayCall::NoCommand,
            Some(libc::EINVAL) => MayCall::WrongArity,
            _ => MayCall::No,
        }
    }
}

impl Drop for HostUser<'_> {
    fn drop(&mut self) {
        // SAFETY: made above, and freed once.
        unsafe { api!(RedisModule_FreeModuleUser)(self.0) };
    }
}

/// Logs the context's client in as a user of our own: see [`HostUser::kept`]. False if the host
/// refuses.
pub fn log_in_as_kept<'r>(
    ctx: Ctx<'_>,
    kept: &AtomicPtr<raw::RedisModuleUser>,
    rules: impl Iterator<Item = &'r [u8]>,
) -> bool {
    let Some(user) = HostUser::kept(ctx.locked(), kept, rules) else { return false };
    // SAFETY: a valid context, and a user that is never freed; there is no callback.
    let result = unsafe {
        api!(RedisModule_AuthenticateClientWithUser)(
            ctx.raw(),
            user.0,
            None,
            ptr::null_mut(),
            ptr::null_mut(),
        )
    };
    result == raw::REDISMODULE_OK
}

/// Adds a refusal to the host's ACL LOG.
pub fn log_refusal(ctx: Ctx<'_>, refusal: &Refusal) {
    let reason = match refusal.reason {
        RefusalReason::Auth => raw::REDISMODULE_ACL_LOG_AUTH,
        RefusalReason::Command => raw::REDISMODULE_ACL_LOG_CMD,
        RefusalReason::Key => raw::REDISMODULE_ACL_LOG_KEY,
        RefusalReason::Channel => raw::REDISMODULE_ACL_LOG_CHANNEL,
    };
    // A user's name ends at a NUL.
    let name = refusal.user.split(|&byte| byte == 0).next().unwrap_or_default();
    let Ok(name) = CString::new(name) else { return };
    // A temporary user: the host may have no user of this name, or no longer have one.
    let user = HostUser::new(ctx.locked(), &name);
    let object = OwnString::new(&refusal.object);
    // SAFETY: a live user; the host copies its name and the object.
    unsafe { api!(RedisModule_ACLAddLogEntry)(ctx.raw(), user.0, object.get().raw(), reason) };
}
