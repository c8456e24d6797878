//! Replies to a client of the host.

use std::ffi::c_long;
use std::marker::PhantomData;
use std::sync::OnceLock;

use midi_module_api as raw;

use super::api::{Ctx, RawCtx, api, reply_text};
use super::instance::instance;
use crate::command::Reply;

/// `+OK` as the reply of a call, which the host passes on as it is: 165 instructions, against 730
/// for a status made from text, which Debian's host copies and searches for line ends first. Never
/// freed.
static OK: OnceLock<OkReply> = OnceLock::new();

struct OkReply(*mut raw::RedisModuleCallReply);

// SAFETY: nothing changes the reply after it was made, so any thread may read it.
unsafe impl Send for OkReply {}
// SAFETY: as above.
unsafe impl Sync for OkReply {}

/// Makes the most frequent reply. Once, in OnLoad. If the host has no UNWATCH (it may be renamed),
/// every `+OK` is made from text.
pub fn prepare(ctx: Ctx<'_>) {
    // SAFETY: the format names no arguments. The command does nothing: its client, which is the
    // host's, watches nothing.
    unsafe {
        let reply = api!(RedisModule_Call)(ctx.raw(), c"UNWATCH".as_ptr(), c"".as_ptr());
        if !reply.is_null() && reply_text(reply) == b"OK" {
            let _ = OK.set(OkReply(reply));
        }
    }
}

/// Whether the client of this context speaks RESP3.
pub fn is_resp3(ctx: Ctx<'_>) -> bool {
    ctx.flags() & raw::REDISMODULE_CTX_FLAGS_RESP3 != 0
}

/// A client's reply, through a command's context, a reply callback's, or a
/// blocked client's thread-safe one (any thread).
pub struct HostReply<'a>(*mut RawCtx, ReplyProtocol, PhantomData<&'a RawCtx>);

/// The protocol that a client speaks.
#[derive(Clone, Copy)]
enum ReplyProtocol {
    /// To be asked for on the main thread.
    Unknown,
    /// It was asked for. True for RESP3.
    Known(bool),
}

impl<'a> HostReply<'a> {
    /// Replies to the client of this context.
    #[inline]
    pub fn new(ctx: Ctx<'a>) -> Self {
        HostReply(ctx.raw(), ReplyProtocol::Unknown, PhantomData)
    }

    /// Replies to a blocked client, on any thread.
    ///
    /// # Safety
    /// `ctx` must be its thread-safe context, live for the whole lifetime and used by nothing else
    /// meanwhile.
    pub unsafe fn to_blocked(ctx: *mut RawCtx, resp3: bool) -> Self {
        HostReply(ctx, ReplyProtocol::Known(resp3), PhantomData)
    }

    fn is_resp3(&mut self) -> bool {
        if let ReplyProtocol::Known(resp3) = self.1 {
            return resp3;
        }
        // SAFETY: the context is valid, and this is the main thread.
        let resp3 = is_resp3(unsafe { Ctx::new(self.0) });
        self.1 = ReplyProtocol::Known(resp3);
        resp3
    }

    fn len(len: usize) -> c_long {
        c_long::try_from(len).unwrap_or(c_long::MAX)
    }
}

// SAFETY of the calls below: the context is valid while this value is used
// (callbacks are over before their context, and a blocked client's is freed
// after its reply), and buffers are passed with their length and copied.
impl Reply for HostReply<'_> {
    #[inline]
    fn simple(&mut self, text: &'static str) {
        let mut buffer = [0; 16];
        let len = text.len().min(buffer.len() - 1);
        buffer[..len].copy_from_slice(&text.as_bytes()[..len]);
        // SAFETY: see above; a NUL follows the text's last byte.
        unsafe { api!(RedisModule_ReplyWithSimpleString)(self.0, buffer.as_ptr().cast()) };
    }

    #[inline]
    fn ok(&mut self) {
        match OK.get() {
            // SAFETY: see above.
            Some(ok) => unsafe {
                api!(RedisModule_ReplyWithCallReply)(self.0, ok.0);
            },
            None => self.simple("OK"),
        }
    }

    #[inline]
    fn null(&mut self) {
        // SAFETY: see above.
        unsafe { api!(RedisModule_ReplyWithNull)(self.0) };
    }

    #[inline]
    fn integer(&mut self, number: i64) {
        // SAFETY: see above.
        unsafe { api!(RedisModule_ReplyWithLongLong)(self.0, number) };
    }

    #[inline]
    fn bulk(&mut self, bytes: &[u8]) {
        // SAFETY: see above.
        unsafe {
            api!(RedisModule_ReplyWithStringBuffer)(self.0, bytes.as_ptr().cast(), bytes.len())
        };
    }

    /// In RESP3 the host writes the digits, as many as a `double` has.
    fn double(&mut self, text: &str) {
        match text.parse() {
            Ok(number) if self.is_resp3() => {
                // SAFETY: see above.
                unsafe { api!(RedisModule_ReplyWithDouble)(self.0, number) };
            }
            _ => self.bulk(text.as_bytes()),
        }
    }

    fn verbatim(&mut self, text: &[u8]) {
        // SAFETY: see above; the type is three letters.
        unsafe {
            api!(RedisModule_ReplyWithVerbatimStringType)(
                self.0,
                text.as_ptr().cast(),
                text.len(),
                c"txt".as_ptr(),
            )
        };
    }

    fn error(&mut self, text: &[u8]) {
        instance().engine.ledger.books.count_error(text);
        let mut text = text.to_vec();
        text.push(0);
        // SAFETY: see above; what follows an inner NUL is not read.
        unsafe { api!(RedisModule_ReplyWithError)(self.0, text.as_ptr().cast()) };
    }

    fn array(&mut self, len: usize) {
        // SAFETY: see above.
        unsafe { api!(RedisModule_ReplyWithArray)(self.0, Self::len(len)) };
    }

    fn map(&mut self, len: usize) {
        // SAFETY: see above.
        unsafe { api!(RedisModule_ReplyWithMap)(self.0, Self::len(len)) };
    }

    fn pairs(&mut self, len: usize) {
        let elements = if self.is_resp3() { len } else { 2 * len };
        self.array(elements);
    }

    fn pair(&mut self) {
        if self.is_resp3() {
            self.array(2);
        }
    }
}
