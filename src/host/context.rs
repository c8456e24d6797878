//! Contexts of the module API, which prove that this thread holds the global lock: those that the
//! host passes to callbacks, and our own, for which the lock is taken or its proof is shown.

use std::marker::PhantomData;

use midi_module_api as raw;

use super::api::{Level, RawCtx, api, write_log};
use super::string::{HostString, OwnString};
use crate::engine::Locked;

/// A context of the host, valid for one callback or one hold of the global lock.
#[derive(Clone, Copy)]
pub struct Ctx<'a>(*mut RawCtx, PhantomData<&'a RawCtx>);

impl<'a> Ctx<'a> {
    /// # Safety
    /// `ctx` must be valid for the whole lifetime, in which this thread holds the global lock: what
    /// the host passes to a callback on its main thread.
    #[inline]
    pub unsafe fn new(ctx: *mut RawCtx) -> Self {
        Ctx(ctx, PhantomData)
    }

    /// The raw pointer, for calls of the module API.
    #[inline]
    pub fn raw(self) -> *mut RawCtx {
        self.0
    }

    /// The proof that this thread holds the global lock.
    #[inline]
    pub fn locked(self) -> Locked<'a> {
        // SAFETY: promised to [`Ctx::new`].
        unsafe { Locked::assume() }
    }
}

/// A context of our own, which belongs to no client. It can be used on any thread, under the lock.
pub struct DetachedCtx(*mut RawCtx);

// SAFETY: any thread may call TryLock; otherwise only the holder of the lock uses it.
unsafe impl Send for DetachedCtx {}
// SAFETY: as above.
unsafe impl Sync for DetachedCtx {}

impl DetachedCtx {
    /// Makes a detached context.
    pub fn new(ctx: Ctx<'_>) -> Self {
        // SAFETY: under the lock, with a valid context.
        DetachedCtx(unsafe { api!(RedisModule_GetDetachedThreadSafeContext)(ctx.raw()) })
    }

    /// Writes a line to the host's log, on any thread, and in a forked child.
    pub fn log(&self, level: Level, text: &str) {
        // SAFETY: it lives as long as `self`; the host only reads the module's name from it.
        unsafe { write_log(self.0, level, text) };
    }

    /// The context, for the holder of the lock.
    #[inline]
    pub fn ctx<'l>(&'l self, _: Locked<'l>) -> Ctx<'l> {
        // SAFETY: it lives as long as `self`, and the lock is held.
        unsafe { Ctx::new(self.0) }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<Hold<'_>> {
        // SAFETY: TryLock is safe from any thread.
        let taken = unsafe { api!(RedisModule_ThreadSafeContextTryLock)(self.0) } == 0;
        // Made only if it was taken: dropping it unlocks.
        taken.then(|| Hold(self, PhantomData))
    }

    /// Frees it, under the lock: before 7.4 its client is removed from a list that only the lock
    /// guards.
    pub fn free(self, _: Locked<'_>) {
        // SAFETY: made above; nobody can use it any more.
        unsafe { api!(RedisModule_FreeThreadSafeContext)(self.0) };
    }
}

/// The global lock, held by a thread that is not the host's main thread.
pub struct Hold<'a>(&'a DetachedCtx, PhantomData<*const ()>);

impl Hold<'_> {
    /// A context, valid while the lock is held.
    pub fn ctx(&self) -> Ctx<'_> {
        // SAFETY: the lock is held until this is dropped.
        unsafe { Ctx::new(self.0.0) }
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        // SAFETY: we hold the lock.
        unsafe { api!(RedisModule_ThreadSafeContextUnlock)(self.0.0) };
    }
}

/// A command that is about to be executed, queued or refused, as a command filter sees it.
#[derive(Clone, Copy)]
pub struct Filtered<'a>(*mut raw::RedisModuleCommandFilterCtx, PhantomData<&'a RawCtx>);

impl<'a> Filtered<'a> {
    /// # Safety
    /// `filter` must be what the host passes to a command filter, while the filter runs.
    #[inline]
    pub unsafe fn new(filter: *mut raw::RedisModuleCommandFilterCtx) -> Self {
        Filtered(filter, PhantomData)
    }

    /// The proof that this thread holds the global lock: the host calls filters on the thread that
    /// runs the command.
    #[inline]
    pub fn locked(self) -> Locked<'a> {
        // SAFETY: see above.
        unsafe { Locked::assume() }
    }

    /// The number of arguments, including the command's name.
    pub fn count(self) -> i32 {
        // SAFETY: the filter's own context.
        unsafe { api!(RedisModule_CommandFilterArgsCount)(self.0) }
    }

    /// Argument `number`; 0 is the command's name. `None` if there is no such argument.
    #[inline]
    pub fn string(self, number: i32) -> Option<HostString<'a>> {
        // SAFETY: the filter's own context, and an argument that it holds while the filter runs.
        unsafe { HostString::new(api!(RedisModule_CommandFilterArgGet)(self.0, number)) }
    }

    /// The bytes of argument `number`; empty if there is no such argument.
    #[inline]
    pub fn arg(self, number: i32) -> &'a [u8] {
        self.string(number).map_or(&[], HostString::bytes)
    }

    /// Replaces argument `number`. What [`Filtered::arg`] gave of it is not valid any more: the
    /// host frees it.
    pub fn replace(self, number: i32, text: &[u8]) {
        let string = OwnString::new(text).into_raw();
        // SAFETY: the filter's own context; the host takes over the reference.
        unsafe { api!(RedisModule_CommandFilterArgReplace)(self.0, number, string) };
    }

    /// As [`Filtered::replace`], by this very string.
    pub fn replace_by(self, number: i32, string: HostString<'_>) {
        let string = string.hold().into_raw();
        // SAFETY: as for [`Filtered::replace`].
        unsafe { api!(RedisModule_CommandFilterArgReplace)(self.0, number, string) };
    }

    /// Inserts an argument before argument `number`.
    pub fn insert(self, number: i32, text: &[u8]) {
        let string = OwnString::new(text).into_raw();
        // SAFETY: as for [`Filtered::replace`].
        unsafe { api!(RedisModule_CommandFilterArgInsert)(self.0, number, string) };
    }

    /// The id of the client that sent it; `None` before Redis 7.2, which does not report it.
    pub fn client_id(self) -> Option<u64> {
        // SAFETY: filled in at load, and never changed; the filter's own context.
        unsafe { raw::RedisModule_CommandFilterGetClientId.map(|ask| ask(self.0)) }
    }
}
