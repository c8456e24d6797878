//! A module for midi's tests: it forks the server in the ways that other modules have.
//!
//! * `FORKS.CHILD`: RM_Fork. The child allocates memory, calls a command of midi's, and ends.
//! * `FORKS.SAVE`: BGSAVE, called by this command: a fork in the middle of a script.
//! * `FORKS.SAVE_ELSEWHERE`: BGSAVE, called by another thread that holds the global lock.
//! * `FORKS.PLAIN count`: forks of another thread that does not hold it, one after the other.
//! * `FORKS.ENDED`: how many children of `CHILD`, threads of `SAVE_ELSEWHERE` and children of
//!   `PLAIN` have ended well, and how many in some other way.

#[path = "../../start.rs"]
mod start;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicI64, Ordering};

use midi_module_api as raw;
use midi_module_api::{RedisModuleCtx as Ctx, RedisModuleString as HostString};

use start::{Command, OK, api, start};

static ENDED_WELL: AtomicI64 = AtomicI64::new(0);
static ENDED_BADLY: AtomicI64 = AtomicI64::new(0);

fn ended(well: bool) {
    if well { &ENDED_WELL } else { &ENDED_BADLY }.fetch_add(1, Ordering::Relaxed);
}

/// Called by the host when it loads the module.
///
/// # Safety
/// Only the host may call this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RedisModule_OnLoad(
    ctx: *mut Ctx,
    _: *mut *mut HostString,
    _: c_int,
) -> c_int {
    const COMMANDS: [(&CStr, Command, &CStr); 5] = [
        (c"forks.child", child, c""),
        (c"forks.save", save, c""),
        (c"forks.save_elsewhere", save_elsewhere, c""),
        (c"forks.plain", plain, c""),
        (c"forks.ended", say_ended, c""),
    ];
    // SAFETY: in OnLoad, with its context.
    unsafe { start(ctx, c"forks", &COMMANDS) }
}

unsafe extern "C" fn child(ctx: *mut Ctx, _: *mut *mut HostString, _: c_int) -> c_int {
    // SAFETY: a command's own context, on the main thread.
    unsafe {
        let pid = api!(RedisModule_Fork)(Some(child_ended), std::ptr::null_mut());
        if pid == 0 {
            let is_well = allocate() && is_refused(ctx);
            api!(RedisModule_ExitFromChild)(if is_well { 0 } else { 1 });
        }
        if pid > 0 { reply_integer(ctx, pid.into()) } else { reply_error(ctx, c"ERR no fork") }
    }
}

/// Allocates as a child that works would: a lock of the allocator that another thread held while
/// the process forked would stop it.
fn allocate() -> bool {
    let blocks: Vec<Vec<u8>> = (0..200).map(|number| vec![1; 64 << (number % 8)]).collect();
    blocks.iter().all(|block| block.contains(&1))
}

/// Whether midi refuses commands in a forked child, which keeps all tokens. Waiting for one would
/// never end.
///
/// # Safety
/// The context of the command that has forked.
unsafe fn is_refused(ctx: *mut Ctx) -> bool {
    // SAFETY: see above; the reply is ours to free.
    unsafe {
        let (command, format) = (c"MIDI.GET".as_ptr(), c"c".as_ptr());
        let reply = api!(RedisModule_Call)(ctx, command, format, c"key".as_ptr());
        if reply.is_null() {
            return false;
        }
        let kind = api!(RedisModule_CallReplyType)(reply);
        api!(RedisModule_FreeCallReply)(reply);
        kind == raw::REDISMODULE_REPLY_ERROR
    }
}

unsafe extern "C" fn child_ended(exit_code: c_int, signal: c_int, _: *mut c_void) {
    ended(exit_code == 0 && signal == 0);
}

unsafe extern "C" fn save(ctx: *mut Ctx, _: *mut *mut HostString, _: c_int) -> c_int {
    // SAFETY: a command's own context, on the main thread.
    unsafe {
        if call_bgsave(ctx) { reply_integer(ctx, 1) } else { reply_error(ctx, c"ERR no BGSAVE") }
    }
}

/// Whether the host has started to save.
///
/// # Safety
/// The context's thread holds the global lock.
unsafe fn call_bgsave(ctx: *mut Ctx) -> bool {
    // SAFETY: see above; the reply is ours to free.
    unsafe {
        let reply = api!(RedisModule_Call)(ctx, c"BGSAVE".as_ptr(), c"".as_ptr());
        if reply.is_null() {
            return false;
        }
        let kind = api!(RedisModule_CallReplyType)(reply);
        api!(RedisModule_FreeCallReply)(reply);
        kind != raw::REDISMODULE_REPLY_ERROR
    }
}

unsafe extern "C" fn save_elsewhere(ctx: *mut Ctx, _: *mut *mut HostString, _: c_int) -> c_int {
    // SAFETY: the thread has a context of its own, and takes the lock. The reply is this command's.
    unsafe {
        std::thread::spawn(|| {
            let ctx = api!(RedisModule_GetThreadSafeContext)(std::ptr::null_mut());
            api!(RedisModule_ThreadSafeContextLock)(ctx);
            call_bgsave(ctx);
            api!(RedisModule_ThreadSafeContextUnlock)(ctx);
            api!(RedisModule_FreeThreadSafeContext)(ctx);
            ended(true);
        });
        reply_integer(ctx, 1)
    }
}

unsafe extern "C" fn plain(ctx: *mut Ctx, args: *mut *mut HostString, count: c_int) -> c_int {
    let mut forks = 1;
    // SAFETY: a command's own context and arguments.
    unsafe {
        if count != 2 || api!(RedisModule_StringToLongLong)(*args.add(1), &mut forks) != OK {
            return reply_error(ctx, c"ERR a number of forks, please");
        }
        std::thread::spawn(move || (0..forks).for_each(|_| ended(fork_and_wait())));
        reply_integer(ctx, 1)
    }
}

/// Forks, and waits for the child. The host may learn of its end first.
fn fork_and_wait() -> bool {
    let mut status = 0;
    // SAFETY: the child does nothing but end.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::_exit(0);
        }
        pid > 0 && (libc::waitpid(pid, &mut status, 0) < 0 || status == 0)
    }
}

unsafe extern "C" fn say_ended(ctx: *mut Ctx, _: *mut *mut HostString, _: c_int) -> c_int {
    // SAFETY: a command's own context.
    unsafe {
        api!(RedisModule_ReplyWithArray)(ctx, 2);
        reply_integer(ctx, ENDED_WELL.load(Ordering::Relaxed));
        reply_integer(ctx, ENDED_BADLY.load(Ordering::Relaxed))
    }
}

/// # Safety
/// A command's own context.
unsafe fn reply_integer(ctx: *mut Ctx, number: i64) -> c_int {
    // SAFETY: see above.
    unsafe { api!(RedisModule_ReplyWithLongLong)(ctx, number) }
}

/// # Safety
/// A command's own context.
unsafe fn reply_error(ctx: *mut Ctx, text: &CStr) -> c_int {
    let text: *const c_char = text.as_ptr();
    // SAFETY: see above; the host copies the text.
    unsafe { api!(RedisModule_ReplyWithError)(ctx, text) }
}
