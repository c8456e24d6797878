//! In whose name a command runs, and which keys its user may touch. IMPORT and EXPORT find theirs
//! by a pattern. That the user may touch all keys that match was checked when they began; here each
//! key is checked again, with the rights of that moment.

use std::sync::Arc;

use midi_module_api as raw;
use smallvec::SmallVec;

use super::api::{Ctx, api, is_connected, reply_text, take_reply};
use super::modules::is_midi_alone;
use super::string::OwnString;
use super::users::USERS;
use crate::command::{Access, Error, WalkStep};
use crate::engine::{Call, Locked, User};

/// The user of a client, by name: rights may change, and users may be deleted, while a job runs.
pub struct Rights {
    /// `None` if a command has no user, as in another module's call.
    user: Option<Vec<u8>>,
    at_door: bool,
    steps: WalkSteps,
}

/// The steps at each key, and those at each that is a hash.
#[derive(Clone, Default)]
struct WalkSteps {
    plain: StepsAsked,
    hash: StepsAsked,
}

/// The steps of a walk at each key: the number of the question about the command that would do the
/// same, and its access to the key.
type StepsAsked = SmallVec<[(usize, Access); 3]>;

impl Rights {
    /// The rights to this command, which walks keys, of the client of this context; or of the
    /// port's user `name`, if there is one.
    pub fn to_walk(ctx: Ctx<'_>, name: Option<&[u8]>, call: &Call<'_>) -> Self {
        let user = match name {
            Some(name) => Some(name.to_vec()),
            None => match asker(ctx) {
                Asker::Client(name) | Asker::Other(name) => Some(name),
                Asker::Nobody => None,
            },
        };
        let asked = |steps: &[WalkStep]| {
            steps.iter().map(|step| (step.question(), step.access)).collect::<StepsAsked>()
        };
        let steps = call.row().walk.map_or(WalkSteps::default(), |walk| WalkSteps {
            plain: asked((walk.steps)(&call.args)),
            hash: asked((walk.hash_steps)(&call.args)),
        });
        Rights { user, at_door: name.is_none(), steps }
    }

    /// The rights as they are now, for one hold of the global lock.
    ///
    /// # Errors
    /// [`Error::NoPermission`] if the user no longer exists.
    pub fn now(&self, locked: Locked<'_>) -> Result<RightsNow, Error> {
        let Some(name) = &self.user else {
            return Ok(RightsNow { user: None, steps: WalkSteps::default() });
        };
        let user = USERS.rights(locked, name, self.at_door).ok_or(Error::NoPermission)?;
        Ok(RightsNow { user: Some(user), steps: self.steps.clone() })
    }
}

/// In whose name a command runs.
pub enum Asker {
    /// The user, by name, of a client that [`client_of`] knows.
    Client(Vec<u8>),
    /// The user, by name, of another client: a script's perhaps, or another module's.
    Other(Vec<u8>),
    /// No user: the master, the AOF, or another module in its own name.
    Nobody,
}

/// The host's own commands: its master's, and those of the AOF.
const WITHOUT_USER: u32 =
    raw::REDISMODULE_CTX_FLAGS_REPLICATED | raw::REDISMODULE_CTX_FLAGS_LOADING;

/// In whose name the command of this context runs.
pub fn asker(ctx: Ctx<'_>) -> Asker {
    // SAFETY: a command's context, and names that the host has made for us. RM_GetCurrentUserName
    // is called only if there is a user.
    unsafe {
        if let Some(id) = client_of(ctx) {
            let name = OwnString::of(api!(RedisModule_GetClientUserNameById)(ctx.raw(), id));
            if let Some(name) = name {
                return Asker::Client(name.bytes().to_vec());
            }
        }
        if ctx.flags() & WITHOUT_USER != 0 || !has_user(ctx) {
            return Asker::Nobody;
        }
        let name = OwnString::of(api!(RedisModule_GetCurrentUserName)(ctx.raw()));
        name.map_or(Asker::Nobody, |name| Asker::Other(name.bytes().to_vec()))
    }
}

/// The id of this context's client, if it is surely that client's. Scripts and RM_Call run with
/// clients of a pool, which still have the id of the client that they were last used for: whoever
/// asked by that id would take the one for the other.
pub fn client_of(ctx: Ctx<'_>) -> Option<u64> {
    const POOLED: u32 = raw::REDISMODULE_CTX_FLAGS_LUA | raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING;
    // Only from such a call a pooled client has neither flag.
    (!calls_may_block() && ctx.flags() & POOLED == 0).then(|| ctx.client_id())
}

/// Whether an RM_Call of this host may block (`K`, from 7.2 on).
fn calls_may_block() -> bool {
    // SAFETY: filled in at load, and never changed.
    unsafe { raw::RedisModule_CallReplyPromiseSetUnblockHandler }.is_some()
}

/// Whether a command that may block, outside scripts, was called by another module. Not known of
/// a call in a user's name by a pooled client that still has the id of a connected one.
pub fn is_of_module(ctx: Ctx<'_>) -> bool {
    calls_may_block()
        && !is_midi_alone()
        && ctx.flags() & WITHOUT_USER == 0
        && (!is_connected(ctx.client_id()) || !has_user(ctx))
}

/// Whether a context's client has a user: a script's has its caller's, an RM_Call's has none. If
/// there is none, every check but a call in the user's name ends the server. The host looks for the
/// user first and then refuses the call, which lacks its argument.
fn has_user(ctx: Ctx<'_>) -> bool {
    let is_of_user = |text: &[u8]| !text.windows(NO_USER.len()).any(|part| part == NO_USER);
    // SAFETY: a command's context; the reply is an error if the call could not be made.
    let has_user = unsafe {
        let reply = api!(RedisModule_Call)(ctx.raw(), c"GET".as_ptr(), c"CE".as_ptr());
        take_reply(reply, |reply| is_of_user(reply_text(reply)))
    };
    has_user.unwrap_or(false)
}

/// A part of the host's error for a call in the user's name if there is no user.
const NO_USER: &[u8] = b"cannot run as user";

/// See [`Rights::now`].
pub struct RightsNow {
    /// `None` may do everything.
    user: Option<Arc<User>>,
    steps: WalkSteps,
}

impl RightsNow {
    /// Whether all may be done to this key, which is a hash if `is_hash`.
    pub fn allow(&self, key: &[u8], db: u32, is_hash: bool) -> bool {
        let steps = if is_hash { &self.steps.hash } else { &self.steps.plain };
        self.user.as_ref().is_none_or(|user| user.may_take(steps, key, db))
    }
}
