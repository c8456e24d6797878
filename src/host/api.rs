//! Wrappers of the module API: only what midi uses.
//!
//! The host fills in the function pointers at load, which goes on only if those of Redis 7.0 are
//! there ([`raw::missing`]). The wrappers rely on them; each newer one is checked where it is used.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::NonNull;

use midi_module_api as raw;

pub use super::context::Ctx;
use super::string::{HostString, OwnString};
use crate::engine::Locked;
pub use raw::{
    RedisModuleBlockedClient as RawBlocked, RedisModuleCtx as RawCtx, RedisModuleEvent as RawEvent,
    RedisModuleString as RawString,
};

/// A function of Redis 7.0's API.
macro_rules! api {
    ($name:ident) => {
        midi_module_api::$name.expect(concat!(stringify!($name), " is checked at load"))
    };
}
pub(super) use api;

/// The REDISMODULE_CLIENTINFO_FLAG_* bits of the host's client `id`; 0 if there is no such client.
/// The caller must hold the global lock.
pub fn client_flags(id: u64) -> u64 {
    // SAFETY: a structure of numbers and bytes, whose first field names its version to the host.
    unsafe {
        let mut info: raw::RedisModuleClientInfo = std::mem::zeroed();
        info.version = raw::REDISMODULE_CLIENTINFO_VERSION;
        let found = api!(RedisModule_GetClientInfoById)((&raw mut info).cast(), id);
        if found == raw::REDISMODULE_OK { info.flags } else { 0 }
    }
}

/// Whether the host has a client `id` that is connected: what scripts and modules call commands
/// with is none. The caller must hold the global lock.
pub fn is_connected(id: u64) -> bool {
    // SAFETY: without a structure the host only looks for the client.
    let found = unsafe { api!(RedisModule_GetClientInfoById)(std::ptr::null_mut(), id) };
    found == raw::REDISMODULE_OK
}

/// Log levels of the host.
#[derive(Clone, Copy)]
pub enum Level {
    /// Worth knowing.
    Notice,
    /// Worth acting on.
    Warning,
}

/// Writes a line to the host's log.
pub fn log(ctx: Ctx<'_>, level: Level, text: &str) {
    // SAFETY: a valid context.
    unsafe { write_log(ctx.raw(), level, text) };
}

/// Writes a line to the host's log, on any thread.
pub fn log_anywhere(level: Level, text: &str) {
    // SAFETY: the host needs no context for it.
    unsafe { write_log(std::ptr::null_mut(), level, text) };
}

/// Writes a line to the host's log, under the name of the context's module; on any thread.
///
/// # Safety
/// `ctx` must be valid or null.
pub unsafe fn write_log(ctx: *mut RawCtx, level: Level, text: &str) {
    let level = match level {
        Level::Notice => c"notice",
        Level::Warning => c"warning",
    };
    let text = c_text(text);
    // SAFETY: all strings end with NUL and outlive the call; `%s` takes one.
    unsafe { api!(RedisModule_Log)(ctx, level.as_ptr(), c"%s".as_ptr(), text.as_ptr()) }
}

/// `text` as a C string, cut off at the first NUL.
pub fn c_text(text: &str) -> CString {
    let text = text.split('\0').next().unwrap_or_default();
    CString::new(text).unwrap_or_default()
}

impl Ctx<'_> {
    /// The context's REDISMODULE_CTX_FLAGS_* bits.
    pub fn flags(self) -> u32 {
        // SAFETY: the context is valid for the callback that got it.
        unsafe { api!(RedisModule_GetContextFlags)(self.raw()) as u32 }
    }

    /// The number of the client's database.
    #[inline]
    pub fn selected_db(self) -> u32 {
        // SAFETY: as above.
        unsafe { api!(RedisModule_GetSelectedDb)(self.raw()) as u32 }
    }

    /// Selects database `db`. False if there is no such database.
    pub fn select_db(self, db: u32) -> bool {
        // SAFETY: as above.
        unsafe { api!(RedisModule_SelectDb)(self.raw(), db as c_int) == raw::REDISMODULE_OK }
    }

    /// Calls `run` with database `db` selected.
    pub fn in_db<R>(self, db: u32, run: impl FnOnce() -> R) -> R {
        let previous = self.selected_db();
        self.select_db(db);
        let result = run();
        self.select_db(previous);
        result
    }

    /// Whether database `db` exists.
    pub fn has_db(self, db: u32) -> bool {
        self.in_db(self.selected_db(), || self.select_db(db))
    }

    /// Notifies the host that `key` has changed in `db`, for WATCH and tracking.
    pub fn signal_modified(self, db: u32, key: &[u8]) {
        self.signal_modified_in(&[db], key);
    }

    /// Notifies the host that `key` has changed in each of `databases`, for WATCH and tracking.
    pub fn signal_modified_in(self, databases: &[u32], key: &[u8]) {
        let name = OwnString::new(key);
        for &db in databases {
            // SAFETY: a valid context and a live name.
            self.in_db(db, || unsafe {
                api!(RedisModule_SignalModifiedKey)(self.raw(), name.get().raw())
            });
        }
    }

    /// Publishes a keyspace notification if the host's settings ask for it.
    pub fn notify(self, db: u32, key: &[u8], class: u32, event: &CStr) {
        let name = OwnString::new(key);
        // SAFETY: as above; the event's name ends with NUL.
        self.in_db(db, || unsafe {
            let (class, name) = (class as c_int, name.get().raw());
            api!(RedisModule_NotifyKeyspaceEvent)(self.raw(), class, event.as_ptr(), name)
        });
    }

    /// Whether `notify-keyspace-events` enables any event.
    pub fn notifies(self) -> bool {
        // SAFETY: no arguments.
        unsafe { api!(RedisModule_GetNotifyKeyspaceEvents)() != 0 }
    }

    /// The id of the client whose command this is; 0 if there is none.
    pub fn client_id(self) -> u64 {
        // SAFETY: as above.
        unsafe { api!(RedisModule_GetClientId)(self.raw()) }
    }

    /// A numeric field of the host's INFO; `None` if there is no such field.
    pub fn info_number(self, section: &CStr, field: &CStr) -> Option<u64> {
        self.info(section).number(field)
    }

    /// A text field of the host's INFO; `None` if there is no such field.
    pub fn info_text(self, section: &CStr, field: &CStr) -> Option<Vec<u8>> {
        self.info(section).text(field).map(<[u8]>::to_vec)
    }

    /// How often the host has executed a command, by a field of INFO; 0 before the first time.
    pub fn calls_of(self, field: &CStr) -> u64 {
        self.call_counts(field).executed
    }

    /// How often the host has executed and refused a command, by a field of INFO.
    pub fn call_counts(self, field: &CStr) -> CallCounts {
        self.info(c"commandstats").calls(field)
    }

    /// The value of a numeric setting of the host; `None` if it is not available.
    pub fn config_number(self, name: &CStr) -> Option<i64> {
        crate::command::parse_integer(&self.config_text(name)?)
    }

    /// The value of a setting of the host, as CONFIG GET returns it; `None` if CONFIG is renamed
    /// and the host has no other way to read it.
    pub fn config_text(self, name: &CStr) -> Option<Vec<u8>> {
        self.config_of_api(name).or_else(|| {
            let answer = self.call(c"CONFIG", &[b"GET", name.to_bytes()]);
            answer.list().into_iter().nth(1)?.text()
        })
    }

    /// Whether a setting of the host is reported, and has this value.
    pub fn config_is(self, name: &CStr, value: &[u8]) -> bool {
        self.config_text(name).is_some_and(|text| text == value)
    }

    /// Hosts newer than 8.0 have a function for this, which works whatever CONFIG is renamed to.
    fn config_of_api(self, name: &CStr) -> Option<Vec<u8>> {
        // SAFETY: the string, if the host makes one, is ours.
        let value = unsafe {
            let mut value = std::ptr::null_mut();
            let got = raw::RedisModule_ConfigGet?(self.raw(), name.as_ptr(), &mut value);
            if got == raw::REDISMODULE_OK { OwnString::of(value) } else { None }
        };
        Some(value?.bytes().to_vec())
    }

    /// Sets a setting of the host, as CONFIG SET does. False if the host refuses, or if CONFIG is
    /// renamed and there is no other way.
    pub fn set_config(self, name: &CStr, value: &[u8]) -> bool {
        self.set_config_by_api(name, value).unwrap_or_else(|| {
            let answer = self.call(c"CONFIG", &[b"SET", name.to_bytes(), value]);
            answer == Answer::Text(b"OK".to_vec())
        })
    }

    /// Hosts that have [`Ctx::config_of_api`] have a function for this, too; `None` for others.
    fn set_config_by_api(self, name: &CStr, value: &[u8]) -> Option<bool> {
        let value = OwnString::new(value);
        // SAFETY: the host copies the value; the error, if it makes one, is ours, and freed here.
        unsafe {
            let mut error = std::ptr::null_mut();
            let set = raw::RedisModule_ConfigSet?;
            let done = set(self.raw(), name.as_ptr(), value.get().raw(), &mut error);
            drop(OwnString::of(error));
            Some(done == raw::REDISMODULE_OK)
        }
    }

    /// The error of the host, or of a command that writes, to an empty argument; empty for none.
    pub fn refusal_of(self, command: &CStr) -> Vec<u8> {
        self.error_of(command, c"SEc").unwrap_or_default()
    }

    /// Whether the host would refuse that command. Its master's writes pass: ask between commands.
    pub fn would_refuse(self, command: &CStr) -> bool {
        self.error_of(command, c"SEDc").is_some()
    }

    /// With a format that has the host check what it checks before a script's command.
    fn error_of(self, command: &CStr, format: &CStr) -> Option<Vec<u8>> {
        let (command, format, argument) = (command.as_ptr(), format.as_ptr(), c"".as_ptr());
        // SAFETY: both formats reply with errors, and take one C string.
        unsafe { Answer::of(api!(RedisModule_Call)(self.raw(), command, format, argument)) }.error()
    }

    /// Has the host run a command of a module, and log what that logs at once, if nothing else is
    /// running.
    pub fn call_logging(self, command: &CStr) {
        // SAFETY: the format has the host log, and take one C string.
        unsafe {
            let (format, argument) = (c"!c".as_ptr(), c"".as_ptr());
            Answer::of(api!(RedisModule_Call)(self.raw(), command.as_ptr(), format, argument));
        }
    }

    /// Has the host run one of its commands, without any check of users' rights.
    pub fn call(self, command: &CStr, args: &[&[u8]]) -> Answer {
        let strings: Vec<_> = args.iter().map(|&arg| OwnString::new(arg)).collect();
        let words: Vec<HostString<'_>> = strings.iter().map(OwnString::get).collect();
        // SAFETY: the format names a vector and its length, which the host only reads.
        unsafe {
            let (command, format) = (command.as_ptr(), c"v".as_ptr());
            let call = api!(RedisModule_Call);
            Answer::of(call(self.raw(), command, format, words.as_ptr(), words.len()))
        }
    }
}

/// How often the host has executed and refused a command, since its start or the last CONFIG
/// RESETSTAT.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// Also those that ended with an error.
    pub executed: u64,
    /// Those that were not executed, for want of rights for example.
    pub refused: u64,
    /// Those that were executed and ended with an error.
    pub failed: u64,
}

impl CallCounts {
    /// Before the first.
    pub const NONE: CallCounts = CallCounts { executed: 0, refused: 0, failed: 0 };

    /// Whether all of the `sent` commands since `before` were refused, also if the counts were
    /// reset meanwhile. False if one was executed, or waits in a transaction.
    pub fn are_refused_since(self, before: CallCounts, sent: u64) -> bool {
        self == CallCounts { refused: before.refused + sent, ..before }
            || self == CallCounts { refused: sent, ..CallCounts::NONE }
    }
}

/// As C's atoi reads a number that is not negative.
pub fn leading_number(text: &[u8]) -> u64 {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |number: u64, digit| {
        number.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
    })
}

/// A section of the host's INFO, taken at one moment.
pub struct InfoSection<'a> {
    ctx: Ctx<'a>,
    data: *mut raw::RedisModuleServerInfoData,
}

impl<'a> Ctx<'a> {
    /// A section of the host's INFO, as it is now.
    pub fn info(self, section: &CStr) -> InfoSection<'a> {
        // SAFETY: a valid context; what it makes is freed when it is dropped.
        let data = unsafe { api!(RedisModule_GetServerInfo)(self.raw(), section.as_ptr()) };
        InfoSection { ctx: self, data }
    }
}

impl InfoSection<'_> {
    /// A field of the section `commandstats`: see [`Ctx::call_counts`].
    pub fn calls(&self, field: &CStr) -> CallCounts {
        let text = self.text(field).unwrap_or_default();
        let number = |name: &[u8]| {
            text.split(|&byte| byte == b',')
                .find_map(|field| field.strip_prefix(name))
                .map_or(0, leading_number)
        };
        CallCounts {
            executed: number(b"calls="),
            refused: number(b"rejected_calls="),
            failed: number(b"failed_calls="),
        }
    }

    /// A numeric field; `None` if there is no such field.
    pub fn number(&self, field: &CStr) -> Option<u64> {
        let mut error = 0;
        // SAFETY: the data lives as long as `self`.
        let number = unsafe {
            api!(RedisModule_ServerInfoGetFieldUnsigned)(self.data, field.as_ptr(), &mut error)
        };
        (error == raw::REDISMODULE_OK).then_some(number)
    }

    /// A text field; `None` if there is no such field.
    pub fn text(&self, field: &CStr) -> Option<&[u8]> {
        // SAFETY: the data, and so the text in it, lives as long as `self`.
        unsafe {
            let text = api!(RedisModule_ServerInfoGetFieldC)(self.data, field.as_ptr());
            (!text.is_null()).then(|| CStr::from_ptr(text).to_bytes())
        }
    }
}

impl Drop for InfoSection<'_> {
    fn drop(&mut self) {
        // SAFETY: made by [`Ctx::info`], and freed once.
        unsafe { api!(RedisModule_FreeServerInfo)(self.ctx.raw(), self.data) };
    }
}

/// A copied reply of the host.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// Text of any kind except an error.
    Text(Vec<u8>),
    /// An integer.
    Number(i64),
    /// An array.
    List(Vec<Answer>),
    /// An error.
    Error(Vec<u8>),
    /// Everything else.
    Other,
}

impl Answer {
    /// Copies a reply, and frees it.
    ///
    /// # Safety
    /// As for [`take_reply`].
    unsafe fn of(reply: *mut raw::RedisModuleCallReply) -> Self {
        // SAFETY: the caller's promise.
        unsafe { take_reply(reply, |reply| Answer::copy(reply)) }.unwrap_or(Answer::Other)
    }

    /// # Safety
    /// `reply` must be live.
    unsafe fn copy(reply: *mut raw::RedisModuleCallReply) -> Self {
        // SAFETY: the caller's promise; an array's elements live as long as the array.
        unsafe {
            match api!(RedisModule_CallReplyType)(reply) {
                raw::REDISMODULE_REPLY_STRING => Answer::Text(reply_text(reply).to_vec()),
                raw::REDISMODULE_REPLY_INTEGER => {
                    Answer::Number(api!(RedisModule_CallReplyInteger)(reply))
                }
                raw::REDISMODULE_REPLY_ARRAY => {
                    let elements = 0..api!(RedisModule_CallReplyLength)(reply);
                    let element = |at| api!(RedisModule_CallReplyArrayElement)(reply, at);
                    Answer::List(elements.map(|at| Answer::copy(element(at))).collect())
                }
                raw::REDISMODULE_REPLY_ERROR => Answer::Error(reply_text(reply).to_vec()),
                _ => Answer::Other,
            }
        }
    }

    /// The text of an error; `None` for any other kind of reply.
    pub fn error(self) -> Option<Vec<u8>> {
        if let Answer::Error(text) = self { Some(text) } else { None }
    }

    /// The text; `None` for any other kind of reply.
    pub fn text(self) -> Option<Vec<u8>> {
        if let Answer::Text(text) = self { Some(text) } else { None }
    }

    /// The elements; empty if this is not an array.
    pub fn list(self) -> Vec<Answer> {
        if let Answer::List(list) = self { list } else { Vec::new() }
    }
}

/// Calls `read` with the reply of a call, and frees the reply. `None` if there is none: the call
/// could not be made.
///
/// # Safety
/// `reply` must be live or null; nobody may use it afterwards.
pub unsafe fn take_reply<R>(
    reply: *mut raw::RedisModuleCallReply,
    read: impl FnOnce(*mut raw::RedisModuleCallReply) -> R,
) -> Option<R> {
    let result = NonNull::new(reply).map(|reply| read(reply.as_ptr()));
    if result.is_some() {
        // SAFETY: the caller vouches for the reply, which is freed once.
        unsafe { api!(RedisModule_FreeCallReply)(reply) };
    }
    result
}

/// The text of a reply that is a string or an error; empty for any other kind.
///
/// # Safety
/// `reply` must be live, and stay live while the slice is used.
pub unsafe fn reply_text<'a>(reply: *mut raw::RedisModuleCallReply) -> &'a [u8] {
    let mut len = 0;
    // SAFETY: the caller vouches for the reply.
    unsafe {
        let text = api!(RedisModule_CallReplyStringPtr)(reply, &mut len);
        if text.is_null() { &[] } else { std::slice::from_raw_parts(text.cast(), len) }
    }
}

/// Whether writing to the replication stream would end the server right now, because clients are
/// paused or a failover is under way.
pub fn must_not_replicate(_: Locked<'_>) -> bool {
    // SAFETY: no arguments.
    unsafe { api!(RedisModule_AvoidReplicaTraffic)() != 0 }
}

/// The wall clock, in milliseconds since the Unix epoch. Any thread may call it.
pub fn clock_ms() -> i64 {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since_epoch.map_or(0, |since| since.as_millis() as i64)
}

/// Asks the host to call `callback` at an event. False if it refuses.
pub fn subscribe(
    ctx: Ctx<'_>,
    event: u64,
    callback: unsafe extern "C" fn(*mut RawCtx, RawEvent, u64, *mut c_void),
) -> bool {
    let event = RawEvent { id: event, dataver: 1 };
    // SAFETY: the context is OnLoad's; the callback stays, since midi is never unloaded.
    let result =
        unsafe { api!(RedisModule_SubscribeToServerEvent)(ctx.raw(), event, Some(callback)) };
    result == raw::REDISMODULE_OK
}

/// A NUL-terminated copy that is never freed: for tables that the host keeps.
pub fn leaked(text: &str) -> *const c_char {
    c_text(text).into_raw()
}
