//! Clients that wait for a queued command or a job.
//!
//! The main thread blocks the client and makes its thread-safe context; a
//! worker may write the reply through that context; the host sends it when the
//! client is unblocked. A client that goes away meanwhile changes nothing of
//! that: the host throws the reply away.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::api::{Ctx, RawBlocked, RawCtx, RawString, api};
use super::news;
use super::reply::HostReply;
use crate::command::{Reply, Tape};
use crate::shard::{JobReply, Request};

/// A blocked client, and the context for replies from other threads.
pub struct Blocked {
    client: *mut RawBlocked,
    ctx: *mut RawCtx,
    client_id: u64,
}

// SAFETY: the API allows UnblockClient and replies through the thread-safe
// context on any one thread at a time, and Blocked is owned by one.
unsafe impl Send for Blocked {}

/// Flags by blocked client, for the moment that the client goes away.
static WAITING: LazyLock<Mutex<HashMap<usize, Arc<AtomicBool>>>> = LazyLock::new(Mutex::default);

impl Blocked {
    /// Blocks the client whose command this is. Only on the main thread, and
    /// only where the context's flags allow blocking.
    pub fn new(ctx: Ctx) -> Self {
        // SAFETY: the caller's context; the callbacks match the private data,
        // which is a request or null. The context is made here because it
        // reads the client, which only the main thread may.
        unsafe {
            let client = api!(RedisModule_BlockClient)(ctx.0, Some(on_reply), None, Some(on_free), 0);
            Blocked {
                client,
                ctx: api!(RedisModule_GetThreadSafeContext)(client),
                client_id: ctx.client_id(),
            }
        }
    }

    /// The client's id.
    pub fn client_id(&self) -> u64 {
        self.client_id
    }

    /// As a request's ticket; [`Blocked::of_ticket`] takes it back.
    pub fn into_ticket(self) -> usize {
        Box::into_raw(Box::new(self)) as usize
    }

    /// Ends a ticket.
    pub fn of_ticket(ticket: usize) -> Self {
        // SAFETY: tickets are made by `into_ticket` and ended once, when the
        // request has come home.
        unsafe { *Box::from_raw(ticket as *mut Blocked) }
    }

    /// Writes a large reply on a worker.
    pub fn write_large(ticket: usize, tape: &Tape) {
        // SAFETY: the ticket is ended on the main thread only after the
        // worker has sent the request home.
        let blocked = unsafe { &*(ticket as *const Blocked) };
        tape.play(&mut HostReply(Ctx(blocked.ctx)));
    }

    /// Gives a finished request's reply to its client. On the main thread.
    pub fn finish_request(request: Box<Request>) {
        let blocked = Blocked::of_ticket(request.ticket);
        blocked.unblock(Box::into_raw(request).cast());
    }

    fn unblock(self, private: *mut c_void) {
        // SAFETY: each blocked client is unblocked once: this takes the value.
        unsafe {
            api!(RedisModule_FreeThreadSafeContext)(self.ctx);
            api!(RedisModule_UnblockClient)(self.client, private);
        }
    }

    /// A flag that is set when the client goes away. On the main thread, before
    /// anything else can happen to the client.
    pub fn watch(&self) -> Arc<AtomicBool> {
        let gone = Arc::new(AtomicBool::new(false));
        WAITING.lock().insert(self.client as usize, Arc::clone(&gone));
        // SAFETY: the client has just been blocked.
        unsafe { api!(RedisModule_SetDisconnectCallback)(self.client, Some(on_disconnect)) };
        gone
    }
}

/// The reply of a job.
pub struct BlockedReply {
    blocked: Blocked,
    reply: HostReply,
}

// SAFETY: as Blocked.
unsafe impl Send for BlockedReply {}

impl BlockedReply {
    /// Takes the client over.
    pub fn new(blocked: Blocked) -> Self {
        let reply = HostReply(Ctx(blocked.ctx));
        BlockedReply { blocked, reply }
    }
}

impl JobReply for BlockedReply {
    fn sink(&mut self) -> &mut dyn Reply {
        &mut self.reply
    }

    fn finish(self: Box<Self>) {
        WAITING.lock().remove(&(self.blocked.client as usize));
        self.blocked.unblock(std::ptr::null_mut());
    }
}

/// Plays a request's reply. Jobs, and requests with a large reply, have nothing to play.
unsafe extern "C" fn on_reply(ctx: *mut RawCtx, _: *mut *mut RawString, _: c_int) -> c_int {
    // SAFETY: the private data is the request given to UnblockClient, which
    // `on_free` frees after this.
    let request = unsafe { api!(RedisModule_GetBlockedClientPrivateData)(ctx).cast::<Request>().as_ref() };
    if let Some(request) = request {
        super::guarded((), || {
            news::tell_of(request.author, Ctx(ctx));
            request.reply.play(&mut HostReply(Ctx(ctx)));
        });
    }
    0
}

unsafe extern "C" fn on_free(_: *mut RawCtx, private: *mut c_void) {
    if !private.is_null() {
        // SAFETY: `finish_request` made it of a Box; the host calls this once.
        let request = unsafe { Box::from_raw(private.cast::<Request>()) };
        // Where the client has gone there was no reply.
        super::guarded((), || news::tell_of(request.author, super::door::door().ctx()));
    }
}

unsafe extern "C" fn on_disconnect(_: *mut RawCtx, client: *mut RawBlocked) {
    if let Some(gone) = WAITING.lock().remove(&(client as usize)) {
        gone.store(true, Ordering::Relaxed);
    }
}
