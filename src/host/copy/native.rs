//! The host's own SET and DEL, which copies call. The host logs and reports them as it does for any
//! client.

use std::ffi::CStr;
use std::ptr;

use redis_module::raw;

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
    of_kind: impl FnOnce(isize) -> bool,
) -> Result<bool, Error> {
    // SAFETY: the caller vouches for the reply.
    let result = unsafe {
        take_reply(reply, |reply| match api!(RedisModule_CallReplyType)(reply) as isize {
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
