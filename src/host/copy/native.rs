//! The host's own SET, RESTORE, DUMP and DEL, which copies call. The host logs and reports them as
//! it does for any client.

use std::ffi::{CStr, c_int};
use std::ptr;

use midi_module_api as raw;

use super::super::api::{Ctx, Level, api, log, reply_text, take_reply};
use super::super::string::HostString;
use crate::command::Error;
use crate::store::UnixMs;

/// SET. False when NX found the key.
///
/// # Errors
/// [`Error::OutOfMemory`], or [`Error::HostRefused`]: the host's log then has the reason.
pub fn set(
    ctx: Ctx<'_>,
    key: &[u8],
    value: &[u8],
    expire_at: Option<UnixMs>,
    condition: Option<&CStr>,
) -> Result<bool, Error> {
    let (k, kl, v, vl) = (key.as_ptr(), key.len(), value.as_ptr(), value.len());
    let (pxat, nx) = (c"PXAT".as_ptr(), condition.map_or(ptr::null(), |word| word.as_ptr()));
    // SAFETY: the lock is held; each format names the arguments that follow:
    // buffers (b), C strings (c), a number (l). The reply is freed once.
    unsafe {
        let call = api!(RedisModule_Call);
        let command = c"SET".as_ptr();
        let reply = match (expire_at, condition) {
            (None, None) => call(ctx.raw(), command, c"!MESbb".as_ptr(), k, kl, v, vl),
            (None, Some(_)) => call(ctx.raw(), command, c"!MESbbc".as_ptr(), k, kl, v, vl, nx),
            (Some(at), None) => {
                call(ctx.raw(), command, c"!MESbbcl".as_ptr(), k, kl, v, vl, pxat, at)
            }
            (Some(at), Some(_)) => {
                call(ctx.raw(), command, c"!MESbbclc".as_ptr(), k, kl, v, vl, pxat, at, nx)
            }
        };
        answer(ctx, reply, |kind| kind != raw::REDISMODULE_REPLY_NULL)
    }
}

/// RESTORE. False if there is such a key, and it is not to be replaced; `None` if this host does
/// not know such values, as Redis before 7.4 knows no fields that expire.
///
/// # Errors
/// As [`set`].
pub fn restore(
    ctx: Ctx<'_>,
    key: &[u8],
    payload: &[u8],
    expire_at: Option<UnixMs>,
    replaces: bool,
) -> Result<Option<bool>, Error> {
    let (k, kl, p, pl) = (key.as_ptr(), key.len(), payload.as_ptr(), payload.len());
    let (at, absolute, replace) = (expire_at.unwrap_or(0), c"ABSTTL".as_ptr(), c"REPLACE".as_ptr());
    // SAFETY: as in `set`.
    unsafe {
        let call = api!(RedisModule_Call);
        let command = c"RESTORE".as_ptr();
        let reply = if replaces {
            call(ctx.raw(), command, c"!MESblbcc".as_ptr(), k, kl, at, p, pl, absolute, replace)
        } else {
            call(ctx.raw(), command, c"!MESblbc".as_ptr(), k, kl, at, p, pl, absolute)
        };
        let result = take_reply(reply, |reply| {
            let text = reply_text(reply);
            match api!(RedisModule_CallReplyType)(reply) {
                raw::REDISMODULE_REPLY_ERROR if text.starts_with(b"BUSYKEY") => Ok(Some(false)),
                raw::REDISMODULE_REPLY_ERROR if is_unknown(text) => Ok(None),
                raw::REDISMODULE_REPLY_ERROR => Err(refusal(ctx, text)),
                _ => Ok(Some(true)),
            }
        });
        result.unwrap_or(Err(Error::HostRefused))
    }
}

/// Whether RESTORE says that a payload, which is sound, is of a newer host: by its version, or its
/// type.
fn is_unknown(text: &[u8]) -> bool {
    text.starts_with(b"ERR DUMP payload version") || text.starts_with(b"ERR Bad data format")
}

/// What DUMP says of a key: the payload of its value. `None` if there is no such key.
///
/// # Errors
/// [`Error::HostRefused`]: the host's log has the reason.
pub fn dump(ctx: Ctx<'_>, key: HostString<'_>) -> Result<Option<Vec<u8>>, Error> {
    // SAFETY: the lock is held; the format names one string. The reply is freed once.
    unsafe {
        let call = api!(RedisModule_Call);
        let reply = call(ctx.raw(), c"DUMP".as_ptr(), c"ESs".as_ptr(), key.raw());
        let result = take_reply(reply, |reply| match api!(RedisModule_CallReplyType)(reply) {
            raw::REDISMODULE_REPLY_ERROR => Err(refusal(ctx, reply_text(reply))),
            raw::REDISMODULE_REPLY_STRING => Ok(Some(reply_text(reply).to_vec())),
            _ => Ok(None),
        });
        result.unwrap_or(Err(Error::HostRefused))
    }
}

/// DEL. False if there was no such key.
///
/// # Errors
/// [`Error::HostRefused`]: the host's log has the reason.
pub fn delete(ctx: Ctx<'_>, key: HostString<'_>) -> Result<bool, Error> {
    // SAFETY: the lock is held; the format names one string. The reply is freed once.
    unsafe {
        let call = api!(RedisModule_Call);
        let reply = call(ctx.raw(), c"DEL".as_ptr(), c"!ESs".as_ptr(), key.raw());
        let removed = |_| api!(RedisModule_CallReplyInteger)(reply) == 1;
        answer(ctx, reply, removed)
    }
}

/// Judges a reply that is no error by its kind, with `of_kind`. Frees the reply.
///
/// # Safety
/// `reply` must be a live reply, or null; nobody may use it afterwards.
unsafe fn answer(
    ctx: Ctx<'_>,
    reply: *mut raw::RedisModuleCallReply,
    of_kind: impl FnOnce(c_int) -> bool,
) -> Result<bool, Error> {
    // SAFETY: the caller vouches for the reply.
    let result = unsafe {
        take_reply(reply, |reply| match api!(RedisModule_CallReplyType)(reply) {
            raw::REDISMODULE_REPLY_ERROR => Err(refusal(ctx, reply_text(reply))),
            kind => Ok(of_kind(kind)),
        })
    };
    result.unwrap_or(Err(Error::HostRefused))
}

fn refusal(ctx: Ctx<'_>, text: &[u8]) -> Error {
    if text.starts_with(b"OOM") {
        return Error::OutOfMemory;
    }
    let text = String::from_utf8_lossy(text);
    log(ctx, Level::Warning, &format!("MIDI.IMPORT or MIDI.EXPORT stopped: {text}"));
    Error::HostRefused
}
