//! Clients that wait for a queued command or a job.
//!
//! The main thread blocks the client and makes its thread-safe context. A worker may write the
//! reply through that context; the host sends it when the client is unblocked. If the client
//! disconnects meanwhile, all this stays the same: the host discards the reply.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::api::{Ctx, RawBlocked, RawCtx, RawString, api};
use super::instance::instance;
use super::notifications;
use super::output::{self, UpTo};
use super::reply::{HostReply, is_resp3};
use super::slow_log;
use crate::command::{Reply, Transcript};
use crate::engine::{Author, CalledFrom, HostClient, JobDoor, JobOwner, JobReply, Locked};

/// A blocked client, and the context for replies from other threads.
pub struct Blocked {
    client: *mut RawBlocked,
    ctx: *mut RawCtx,
    client_id: u64,
    /// The largest reply that the host lets pass, in bytes.
    most: usize,
    /// Whether it speaks RESP3. Only the main thread can ask.
    resp3: bool,
    /// The reply to send when it is unblocked. The host is notified of its changes then.
    answer: Option<Transcript>,
    /// Its reply was too large and is incomplete: the client is closed.
    is_cut: AtomicBool,
}

// SAFETY: the API allows UnblockClient and replies through the thread-safe
// context on any one thread at a time, and Blocked is owned by one.
unsafe impl Send for Blocked {}

impl Blocked {
    /// Blocks the client whose command this is. Only if the context's flags allow blocking. `None`
    /// if the host refuses: Valkey 9 does for clients with subscriptions.
    pub fn new(ctx: Ctx<'_>) -> Option<Box<Self>> {
        // SAFETY: the caller's context; the callbacks match the private data,
        // which is one of these or null. The context is made here because it
        // reads the client, which only the main thread may.
        unsafe {
            let client =
                api!(RedisModule_BlockClient)(ctx.raw(), Some(on_reply), None, Some(on_free), 0);
            if client.is_null() {
                return None;
            }
            // Its SLOWLOG and commandstats then have the whole wait.
            api!(RedisModule_BlockedClientMeasureTimeStart)(client);
            Some(Box::new(Blocked {
                client,
                ctx: api!(RedisModule_GetThreadSafeContext)(client),
                client_id: ctx.client_id(),
                most: output::most_for(ctx.locked(), ctx.client_id()),
                resp3: is_resp3(ctx),
                answer: None,
                is_cut: AtomicBool::new(false),
            }))
        }
    }

    /// Unblocks the client; the host passes `private` to the callbacks.
    ///
    /// # Safety
    /// Once per client. `private` is null, or a `Blocked` that now belongs to the host.
    unsafe fn unblock(client: *mut RawBlocked, ctx: *mut RawCtx, private: *mut Blocked) {
        // SAFETY: the caller's promise.
        unsafe {
            api!(RedisModule_BlockedClientMeasureTimeEnd)(client);
            api!(RedisModule_FreeThreadSafeContext)(ctx);
            api!(RedisModule_UnblockClient)(client, private.cast());
        }
    }

    /// A flag that is set when the client disconnects. Called before anything else can happen to
    /// the client.
    fn watch(&self, _: Locked<'_>) -> Arc<AtomicBool> {
        let gone = Arc::new(AtomicBool::new(false));
        instance().waiting_for_jobs.lock().insert(self.client as usize, Arc::clone(&gone));
        // SAFETY: the client has just been blocked.
        unsafe { api!(RedisModule_SetDisconnectCallback)(self.client, Some(on_disconnect)) };
        gone
    }
}

impl HostClient for Blocked {
    fn most_reply(&self) -> usize {
        self.most
    }

    fn write_large(&self, transcript: &Transcript) {
        if transcript.is_cut() {
            return self.is_cut.store(true, Ordering::Relaxed);
        }
        // SAFETY: the context lives until the client is answered, which consumes `self`.
        transcript.play(&mut unsafe { HostReply::to_blocked(self.ctx, self.resp3) });
    }

    fn author(&self) -> Author {
        Author::Waiting(self.client_id)
    }

    fn called_from(&self, locked: Locked<'_>) -> CalledFrom {
        slow_log::called_from(locked, self.client_id)
    }

    fn answer(mut self: Box<Self>, _: Locked<'_>, reply: Transcript) {
        self.answer = Some(reply);
        let (client, ctx) = (self.client, self.ctx);
        // SAFETY: this consumes `self`, which belongs to the host until `on_free`.
        unsafe { Blocked::unblock(client, ctx, Box::into_raw(self)) };
    }

    fn wait_for_job(self: Box<Self>, locked: Locked<'_>, db: u32) -> (JobOwner, Box<dyn JobReply>) {
        let gone = self.watch(locked);
        let (client, from) = (self.client_id, self.called_from(locked));
        let owner = JobOwner { db, client, door: JobDoor::Host, from, gone };
        (owner, Box::new(BlockedReply::new(self)))
    }
}

/// The reply of a job.
struct BlockedReply {
    blocked: Box<Blocked>,
    reply: UpTo<HostReply<'static>>,
}

// SAFETY: as Blocked.
unsafe impl Send for BlockedReply {}

impl BlockedReply {
    /// Takes over the client.
    fn new(blocked: Box<Blocked>) -> Self {
        // SAFETY: the context lives until `finish`, which consumes `self`.
        let reply =
            UpTo::new(unsafe { HostReply::to_blocked(blocked.ctx, blocked.resp3) }, blocked.most);
        BlockedReply { blocked, reply }
    }
}

impl JobReply for BlockedReply {
    fn sink(&mut self) -> &mut dyn Reply {
        &mut self.reply
    }

    fn close(&mut self) {
        self.reply.cut();
    }

    fn finish(self: Box<Self>) {
        instance().waiting_for_jobs.lock().remove(&(self.blocked.client as usize));
        let (client, ctx, is_cut) = (self.blocked.client, self.blocked.ctx, self.reply.is_cut());
        self.blocked.is_cut.store(is_cut, Ordering::Relaxed);
        // Otherwise the reply is complete, and the callbacks have nothing to do.
        let private = if is_cut { Box::into_raw(self.blocked) } else { std::ptr::null_mut() };
        // SAFETY: this consumes `self`; what `private` points to belongs to the host until
        // `on_free`.
        unsafe { Blocked::unblock(client, ctx, private) };
    }
}

/// Plays a request's reply. Jobs, and requests with a large reply, have nothing to play. If the
/// reply was cut off, its client is closed: right after this the host discards its beginning.
unsafe extern "C" fn on_reply(ctx: *mut RawCtx, _: *mut *mut RawString, _: c_int) -> c_int {
    // SAFETY: the callback's own context; the private data is what UnblockClient was given, which
    // `on_free` frees after this.
    let (ctx, blocked) = unsafe {
        let private = api!(RedisModule_GetBlockedClientPrivateData)(ctx);
        (Ctx::new(ctx), private.cast::<Blocked>().as_ref())
    };
    if let Some(blocked) = blocked.filter(|blocked| blocked.is_cut.load(Ordering::Relaxed)) {
        super::guarded((), || output::close(ctx, blocked.client_id));
    }
    if let Some((author, reply)) = blocked.and_then(|it| Some((it.author(), it.answer.as_ref()?))) {
        super::guarded((), || {
            notifications::tell_of(author, ctx);
            reply.play(&mut HostReply::new(ctx));
        });
    }
    0
}

unsafe extern "C" fn on_free(_: *mut RawCtx, private: *mut c_void) {
    if private.is_null() {
        return;
    }
    // SAFETY: made from a Box when the client was unblocked; the host calls this once, on its main
    // thread.
    let (blocked, locked) = unsafe { (Box::from_raw(private.cast::<Blocked>()), Locked::assume()) };
    if blocked.answer.is_some() {
        // If the client has gone, `on_reply` was not called.
        super::guarded((), || notifications::tell_of(blocked.author(), instance().ctx(locked)));
    }
}

unsafe extern "C" fn on_disconnect(_: *mut RawCtx, client: *mut RawBlocked) {
    if let Some(gone) = instance().waiting_for_jobs.lock().remove(&(client as usize)) {
        gone.store(true, Ordering::Relaxed);
    }
}
