//! Which keys a client's user may access. The host checks the keys that a command names; IMPORT and
//! EXPORT find theirs by a pattern, so they check them here.

use redis_module::raw;

use super::acl::HostUser;
use super::api::{Ctx, api, reply_text};
use super::string::{HostString, OwnString};
use crate::command::Error;
use crate::engine::Locked;

/// The user of a client, by name: rights may change, and users may be deleted, while a job runs.
pub struct Rights {
    /// `None` if a command has no user, as in another module's call.
    user: Option<Vec<u8>>,
}

impl Rights {
    /// The rights of the client whose command this is.
    pub fn of_client(ctx: Ctx<'_>) -> Self {
        let user = match asker(ctx) {
            Asker::Client(name) | Asker::Other(name) => Some(name),
            Asker::Nobody => None,
        };
        Rights { user }
    }

    /// The rights of the user `name`.
    pub fn of_user(name: &[u8]) -> Self {
        Rights { user: Some(name.to_vec()) }
    }

    /// The rights as they are now, for one hold of the global lock.
    ///
    /// # Errors
    /// [`Error::NoPermission`] if the user no longer exists.
    pub fn now<'l>(&self, locked: Locked<'l>) -> Result<RightsNow<'l>, Error> {
        let Some(name) = &self.user else {
            return Ok(RightsNow(None));
        };
        let user = HostUser::of_name(locked, name).ok_or(Error::NoPermission)?;
        Ok(RightsNow(Some(user)))
    }
}

/// In whose name a command runs.
pub enum Asker {
    /// A client's user, by name.
    Client(Vec<u8>),
    /// The user, by name, of a client that is not on the host's list: a script's, or another
    /// module's.
    Other(Vec<u8>),
    /// No user: the master, the AOF, or another module in its own name.
    Nobody,
}

/// In whose name the command of this context runs.
pub fn asker(ctx: Ctx<'_>) -> Asker {
    const WITHOUT_USER: u32 = raw::REDISMODULE_CTX_FLAGS_REPLICATED
        | raw::REDISMODULE_CTX_FLAGS_LOADING
        | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING;
    // SAFETY: a command's context, and names that the host has made for us. RM_GetCurrentUserName
    // is called only if there is a user.
    unsafe {
        let name =
            OwnString::of(api!(RedisModule_GetClientUserNameById)(ctx.raw(), ctx.client_id()));
        if let Some(name) = name {
            return Asker::Client(name.bytes().to_vec());
        }
        if ctx.flags() & WITHOUT_USER != 0 || !has_user(ctx) {
            return Asker::Nobody;
        }
        let name = OwnString::of(api!(RedisModule_GetCurrentUserName)(ctx.raw()));
        name.map_or(Asker::Nobody, |name| Asker::Other(name.bytes().to_vec()))
    }
}

/// Whether a context whose client is not a real one has a user: a script's has its caller's, an
/// RM_Call's has none. If there is none, every check but a call in the user's name ends the server.
fn has_user(ctx: Ctx<'_>) -> bool {
    // SAFETY: a command's context; the reply, an error if the call could not be made, is freed
    // once.
    unsafe {
        let reply = api!(RedisModule_Call)(ctx.raw(), c"PING".as_ptr(), c"CE".as_ptr());
        if reply.is_null() {
            return false;
        }
        let none = reply_text(reply).windows(NO_USER.len()).any(|part| part == NO_USER);
        api!(RedisModule_FreeCallReply)(reply);
        !none
    }
}

/// A part of the host's error for a call in the user's name if there is no user.
const NO_USER: &[u8] = b"cannot run as user";

/// See [`Rights::now`]. `None` may access everything.
pub struct RightsNow<'l>(Option<HostUser<'l>>);

impl RightsNow<'_> {
    /// Whether the user may read and write this key.
    pub fn allow(&self, key: HostString<'_>) -> bool {
        self.0.as_ref().is_none_or(|user| user.may_touch(key))
    }

    /// Whether the user may read and write the key with these bytes.
    pub fn allow_bytes(&self, key: &[u8]) -> bool {
        self.0.as_ref().is_none_or(|user| user.may_touch(OwnString::new(key).get()))
    }
}
