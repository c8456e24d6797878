//! A module for midi's tests: it runs commands by RM_Call.
//!
//! `CALLS.RUN flags count word... [count word...]...` runs commands one after the other, each given
//! as the number of its words and these. `flags` are RM_Call's, `!` for one that is replicated; `-`
//! stands for none. The reply has theirs, or PROMISE for one that waits. `CALLS.READ` does the
//! same, but tells the host that it only reads: clients that are paused do not keep the host from
//! it.
//!
//! `CALLS.HOLD path` keeps the main thread busy until every writer of this FIFO has closed it.

#[path = "../../start.rs"]
mod start;

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_longlong};
use std::os::unix::ffi::OsStrExt as _;

use midi_module_api as raw;
use midi_module_api::{RedisModuleCtx as Ctx, RedisModuleString as HostString};

use start::{Command, OK, api, start};

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
    const COMMANDS: [(&CStr, Command, &CStr); 3] = [
        (c"calls.run", run, c"write"),
        (c"calls.read", run, c"readonly"),
        (c"calls.hold", hold, c"readonly"),
    ];
    // SAFETY: in OnLoad, with its context.
    unsafe { start(ctx, c"calls", &COMMANDS) }
}

unsafe extern "C" fn run(ctx: *mut Ctx, args: *mut *mut HostString, count: c_int) -> c_int {
    // SAFETY: a command's own context and arguments, which live until it returns.
    unsafe {
        let args = std::slice::from_raw_parts(args, count as usize);
        let Some(commands) = split(args) else { return reply_error(ctx, c"ERR no commands") };
        let Some(format) = format(args[1]) else { return reply_error(ctx, c"ERR no flags") };
        api!(RedisModule_ReplyWithArray)(ctx, commands.len() as _);
        for command in commands {
            call(ctx, &format, command);
        }
    }
    OK
}

unsafe extern "C" fn hold(ctx: *mut Ctx, args: *mut *mut HostString, count: c_int) -> c_int {
    // SAFETY: a command's own context and arguments, which live until it returns.
    unsafe {
        if count != 2 {
            return api!(RedisModule_WrongArity)(ctx);
        }
        let mut len = 0;
        let path = api!(RedisModule_StringPtrLen)(*args.add(1), &mut len);
        let path = std::slice::from_raw_parts(path.cast::<u8>(), len);
        if std::fs::read(OsStr::from_bytes(path)).is_err() {
            return reply_error(ctx, c"ERR no such FIFO");
        }
        api!(RedisModule_ReplyWithSimpleString)(ctx, c"OK".as_ptr())
    }
}

/// The commands behind the flags; `None` if they are not complete.
///
/// # Safety
/// A command's own arguments.
unsafe fn split(args: &[*mut HostString]) -> Option<Vec<&[*mut HostString]>> {
    let mut rest = args.get(2..)?;
    let mut commands = Vec::new();
    while let Some((&count, words)) = rest.split_first() {
        let mut number: c_longlong = 0;
        // SAFETY: see above.
        let done = unsafe { api!(RedisModule_StringToLongLong)(count, &mut number) };
        let number = usize::try_from(number).ok().filter(|&number| done == OK && number > 0)?;
        commands.push(words.get(..number)?);
        rest = &words[number..];
    }
    Some(commands)
}

/// RM_Call's format: its arguments are an array, errors are replies, and these flags.
///
/// # Safety
/// A string of the host's.
unsafe fn format(flags: *mut HostString) -> Option<CString> {
    // SAFETY: see above.
    let flags = unsafe { bytes(flags) };
    let flags = if flags == b"-" { &[][..] } else { flags };
    CString::new([flags, b"Ev"].concat()).ok()
}

/// # Safety
/// A string of the host's, which must live as long as what is returned.
unsafe fn bytes<'a>(string: *mut HostString) -> &'a [u8] {
    let mut length = 0;
    // SAFETY: see above; the host tells the length of what it points to.
    unsafe {
        let at = api!(RedisModule_StringPtrLen)(string, &mut length);
        std::slice::from_raw_parts(at.cast(), length)
    }
}

/// Runs one command, and replies with its reply; with PROMISE if it waits (`K`).
///
/// # Safety
/// A command's own context, and words of its own.
unsafe fn call(ctx: *mut Ctx, format: &CStr, command: &[*mut HostString]) {
    // SAFETY: see above. `v` wants an array and its length. The reply is ours to free.
    unsafe {
        let Ok(name) = CString::new(bytes(command[0])) else {
            reply_error(ctx, c"ERR a zero in a name");
            return;
        };
        let (words, count) = (command[1..].as_ptr(), command.len() - 1);
        let call = api!(RedisModule_Call);
        let reply = call(ctx, name.as_ptr(), format.as_ptr(), words, count);
        if reply.is_null() {
            reply_error(ctx, c"ERR the host refuses the call");
            return;
        }
        if api!(RedisModule_CallReplyType)(reply) == raw::REDISMODULE_REPLY_PROMISE {
            // The command waits, and goes on alone. The host has no text for such a reply.
            api!(RedisModule_ReplyWithSimpleString)(ctx, c"PROMISE".as_ptr());
        } else {
            api!(RedisModule_ReplyWithCallReply)(ctx, reply);
        }
        api!(RedisModule_FreeCallReply)(reply);
    }
}

/// # Safety
/// A command's own context.
unsafe fn reply_error(ctx: *mut Ctx, text: &CStr) -> c_int {
    let text: *const c_char = text.as_ptr();
    // SAFETY: see above; the host copies the text.
    unsafe { api!(RedisModule_ReplyWithError)(ctx, text) }
}
