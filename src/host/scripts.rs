//! Scripts and functions of the ports' clients. The host runs them, on its main thread, and the
//! command filter makes each of their commands midi's:
//!
//! ```text
//! a task ─► run_all ─► RM_Call "EVAL" ─► the host's Lua ─► redis.call("GET", k)
//!                                                           └ filter: MIDI.GET k ─► door ─► engine
//! ```
//!
//! - While the mark ([`PortScripts::is_running`]) is set, a command that the filter sees is the
//!   script's. A command of midi's takes the mark away while it runs ([`leave`]): what it calls,
//!   and what other modules call when they are notified, is not the script's.
//! - Other clients' commands pass the filter, too, while a script yields. The host runs few of them
//!   then, and no script may call those ([`UNTOUCHED`]). To the others it answers BUSY under
//!   whatever name.
//! - The host has judged a script's command by the rules on `midi.x`. Here it is judged by the
//!   port's rule, too ([`check`]).
//! - The host refuses no memory to scripts that a module calls: that is done here.

use std::ffi::CStr;
use std::sync::Arc;

use midi_module_api as raw;
use smallvec::SmallVec;

use super::acl::{HostUser, log_refusal};
use super::api::{Answer, Ctx, api, take_reply};
use super::context::Filtered;
use super::instance::instance;
use super::publish::publish;
use super::state::scripts::{PortScripts, ScriptTerms};
use super::string::OwnString;
use super::users::USERS;
use super::{PREFIX, notifications, pause, unit};
use crate::command::{
    Action, Args, Command, DoorCommand, Error, Named, PortCommand, Scripting, replace_line_ends,
};
use crate::engine::{
    Call, Gate, Gates, Intent, Locked, Refusal, RunScript, ScriptCaller, ScriptReply, User,
};
use crate::limits::SCRIPTS_KNOWN;

/// Commands that touch no keys of the host's, and do the same on a port.
const OF_HOST: [&[u8]; 6] = [b"ping", b"echo", b"time", b"select", b"publish", b"info"];

/// Commands that the host runs for others while a script yields. It refuses them to scripts; of
/// CLIENT, which Valkey 9.1 runs, all but HELP.
const UNTOUCHED: [&[u8]; 20] = [
    b"client",
    b"eval",
    b"evalsha",
    b"eval_ro",
    b"evalsha_ro",
    b"fcall",
    b"fcall_ro",
    b"script",
    b"function",
    b"shutdown",
    b"auth",
    b"hello",
    b"quit",
    b"reset",
    b"multi",
    b"exec",
    b"discard",
    b"watch",
    b"unwatch",
    b"replconf",
];

/// The name of the command that stands for all others.
pub const UNSUPPORTED: &str = "midi.unsupported";

impl PortScripts {
    /// Whether the filter sees a command of a script of a port's client.
    #[inline]
    pub fn are_running(&self) -> bool {
        self.is_running.get()
    }

    /// Makes a script's command midi's. `name` is its own name, which is not valid afterwards.
    /// False if the command stays the host's, with its name.
    #[cold]
    pub fn rename(&self, command: Filtered<'_>, name: &[u8]) -> bool {
        let is_in = |list: &[&[u8]]| list.iter().any(|known| name.eq_ignore_ascii_case(known));
        match Named::find(name) {
            Some(named) if !named.row().is_of_ports() => {
                command.replace_by(0, self.names.lock().of(named));
            }
            _ if is_in(&OF_HOST) || is_in(&UNTOUCHED) => return false,
            _ => command.insert(0, UNSUPPORTED.as_bytes()),
        }
        true
    }

    /// Keeps from scripts what the ports do not have: commands of midi's that were disabled by
    /// `rename-command`, and those that are not for clients.
    #[cold]
    pub fn withhold(&self, command: Filtered<'_>, name: &[u8]) {
        if Named::find(name).is_none() {
            command.insert(0, UNSUPPORTED.as_bytes());
        }
    }

    fn allows_oom(&self, ctx: Ctx<'_>, row: &Command, args: &Args<'_>) -> bool {
        match row.name {
            "eval" | "eval_ro" => has_flag(args.get(1)),
            "evalsha" | "evalsha_ro" => {
                let is_known = || self.allow_oom.lock().contains(&args.get(1).to_ascii_lowercase());
                // Valkey tells a script's text.
                let text = || ctx.call(c"SCRIPT", &[b"SHOW", args.get(1)]).text();
                is_known() || text().is_some_and(|text| has_flag(&text))
            }
            _ => ctx.call(c"FUNCTION", &[b"LIST"]).list().into_iter().any(|library| {
                functions(library).any(|(name, allows)| allows && name == args.get(1))
            }),
        }
    }

    /// SCRIPT LOAD has replied: remembers the script if it may take memory.
    fn note_loaded(&self, text: &[u8], reply: &[u8]) {
        let digest = reply.split(|&byte| byte == b'\n').nth(1).unwrap_or_default();
        if has_flag(text) && reply.starts_with(b"$") {
            let mut known = self.allow_oom.lock();
            if known.len() >= SCRIPTS_KNOWN {
                known.clear();
            }
            known.insert(digest.trim_ascii_end().to_vec());
        }
    }
}

/// Whether a script's first line has the flag `allow-oom`.
fn has_flag(text: &[u8]) -> bool {
    let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let is_flag = |word: &[u8]| word == b"allow-oom";
    line.starts_with(b"#!")
        && line.trim_ascii_end().split(|&byte| matches!(byte, b' ' | b',' | b'=')).any(is_flag)
}

/// The functions of a library of FUNCTION LIST, and whether they may take memory.
fn functions(library: Answer) -> impl Iterator<Item = (Vec<u8>, bool)> {
    let mut fields = library.list().into_iter();
    let functions = fields
        .find(|field| *field == Answer::Text(b"functions".to_vec()))
        .and_then(|_| fields.next())
        .map_or_else(Vec::new, Answer::list);
    functions.into_iter().filter_map(|function| {
        let mut fields = function.list().into_iter();
        let name = fields.nth(1)?.text()?;
        let flags = fields.nth(3).map_or_else(Vec::new, Answer::list);
        Some((name, flags.contains(&Answer::Text(b"allow-oom".to_vec()))))
    })
}

/// While it lives, commands that the filter sees are not a script's.
pub struct OutsideScript(bool);

/// From here on commands that the filter sees are not a script's.
#[inline]
pub fn leave() -> OutsideScript {
    OutsideScript(instance().scripts.is_running.take())
}

impl OutsideScript {
    /// Whether a script of a port's client has called the command that runs.
    #[inline]
    pub fn is_called_by_script(&self) -> bool {
        self.0
    }
}

impl Drop for OutsideScript {
    #[inline]
    fn drop(&mut self) {
        if self.0 {
            instance().scripts.is_running.set(true);
        }
    }
}

/// Checks a command that a script of a port's client has called.
///
/// # Errors
/// The error's text.
pub fn check(ctx: Ctx<'_>, call: &Call<'_>) -> Result<(), Vec<u8>> {
    let mut terms = instance().scripts.terms.lock();
    let Some(terms) = &mut *terms else { return Ok(()) };
    let name = || format!("{PREFIX}{}", call.row().name);
    // It only says why the script's command does not run.
    let is_refusal = matches!(call.row().action, Action::Door(DoorCommand::Unsupported));
    if !is_refusal && let Err(denied) = terms.user.check(call.command, &call.args, call.db) {
        log_refusal(ctx, &Refusal::new(&terms.user, denied, &name(), &call.args));
        return Err(denied.text(&name(), &call.args));
    }
    if terms.lacks_memory && call.row().flags.deny_oom {
        return Err(Error::OutOfMemory.text(&name(), &call.args));
    }
    // As in Redis, a script that has written goes on.
    terms.lacks_memory &= !call.row().flags.write;
    Ok(())
}

/// Gives `work` the way to run scripts, and commands about scripts, for a client of a port.
pub fn run_all(locked: Locked<'_>, caller: &ScriptCaller<'_>, work: &mut dyn FnMut(RunScript<'_>)) {
    let ctx = instance().ctx(locked);
    // Nothing changes users until the work is done, not even while a script yields.
    let user = HostUser::of_name(locked, caller.user);
    let Some((user, rights)) = user.zip(USERS.rights(locked, caller.user, false)) else {
        return work(&mut |_, _, reply| refuse(reply, NO_USER));
    };
    // If the work runs while a script yields, all of it does.
    let is_beside_script = ctx.flags() & raw::REDISMODULE_CTX_FLAGS_LUA != 0;
    let author = ScriptAuthor { ctx, user, rights, resp3: caller.resp3, is_beside_script };
    ctx.in_db(caller.db, || work(&mut |row, args, reply| author.run(row, args, reply)));
}

/// A client of a port, whose scripts run.
struct ScriptAuthor<'l> {
    ctx: Ctx<'l>,
    user: HostUser<'l>,
    rights: Arc<User>,
    resp3: bool,
    /// Another script yields meanwhile.
    is_beside_script: bool,
}

impl ScriptAuthor<'_> {
    /// Runs a script, or a command about scripts, and appends its reply. False if clients are
    /// paused.
    fn run(&self, row: &Command, args: &Args<'_>, reply: &mut ScriptReply) -> bool {
        let (here, ctx) = (instance(), self.ctx);
        let (engine, locked) = (&*here.engine, ctx.locked());
        let Action::Port(PortCommand::Scripting(which)) = row.action else { return false };
        if which != Scripting::Interrupt {
            // The host has no second script beside one that yields.
            if self.is_beside_script {
                return refuse(reply, &Error::Busy.bare_text());
            }
            if pause::is_on(locked) && !row.flags.readonly {
                here.gates.look(ctx);
                if engine.ledger.admission.are_workers_paused() {
                    return false;
                }
            }
        }
        if let Gate::Refuse(refused) = engine.ledger.gate(Intent::of_script(row.flags)) {
            return refuse(reply, &refused.text(row.name, args));
        }
        let begin = reply.len();
        if which == Scripting::Publish {
            let _own_calls = leave();
            // In an EXEC: of its changes subscribers hear before the message, as in Redis.
            notifications::tell(locked, None);
            if !publish(ctx, args, reply) {
                refuse(reply, &Error::Internal.bare_text());
            }
        } else if which == Scripting::Run {
            let lacks_memory = engine.gates().has(Gates::OUT_OF_MEMORY)
                && !here.scripts.allows_oom(ctx, row, args);
            let _running =
                Running::begin(ScriptTerms { user: Arc::clone(&self.rights), lacks_memory });
            self.call(args, reply);
        } else {
            let _own_calls = leave();
            self.call(args, reply);
        }
        if row.name == "script|load" {
            here.scripts.note_loaded(args.get(2), &reply[begin..]);
        }
        unit::end_if_over(locked);
        true
    }

    /// Has the host run one of its commands in the user's name, and log what that changes. Appends
    /// the reply.
    fn call(&self, args: &Args<'_>, reply: &mut ScriptReply) {
        let format: &CStr = if self.resp3 { c"vCE!3" } else { c"vCE!" };
        let run = || append_reply_of_host(self.ctx, format, args, reply);
        if !self.user.within(self.ctx, run) {
            refuse(reply, &Error::Internal.bare_text());
        }
    }
}

/// Appends the bytes of the host's reply to one of its commands. False if the host has none. The
/// format must take a vector of arguments, and ask for errors as replies.
pub fn append_reply_of_host(
    ctx: Ctx<'_>,
    format: &CStr,
    args: &Args<'_>,
    reply: &mut ScriptReply,
) -> bool {
    // The host takes these as an array of pointers.
    let words: SmallVec<[OwnString; 8]> =
        args.from(1).iter().map(|arg| OwnString::new(arg)).collect();
    let mut name: SmallVec<[u8; 16]> = SmallVec::from_slice(args.get(0));
    name.push(0);
    let Ok(name) = CStr::from_bytes_until_nul(&name) else { return false };
    // SAFETY: the format names a vector and its length, which the host only reads, and asks for a
    // reply in every case. The bytes of the reply live as long as it does.
    let has_replied = unsafe {
        let call = api!(RedisModule_Call);
        let (words, count) = (words.as_ptr(), words.len());
        take_reply(call(ctx.raw(), name.as_ptr(), format.as_ptr(), words, count), |answer| {
            let mut length = 0;
            let bytes = api!(RedisModule_CallReplyProto)(answer, &mut length);
            if bytes.is_null() || length == 0 {
                return false;
            }
            let begin = reply.len();
            reply.extend_from_slice(std::slice::from_raw_parts(bytes.cast::<u8>(), length));
            if let [b'-', text @ .., _, _] = &mut reply[begin..] {
                // Valkey 9.1's FUNCTION LIST names an argument with its line ends.
                replace_line_ends(text);
            }
            true
        })
    };
    has_replied == Some(true)
}

/// The error if the user has been deleted meanwhile: its connections are about to be closed.
const NO_USER: &[u8] = b"NOAUTH Authentication required.";

/// Appends an error. The command has been answered.
fn refuse(reply: &mut ScriptReply, text: &[u8]) -> bool {
    reply.extend_from_slice(b"-");
    reply.extend_from_slice(text);
    reply.extend_from_slice(b"\r\n");
    true
}

/// While it lives, the host runs a script of a port's client.
struct Running;

impl Running {
    fn begin(terms: ScriptTerms) -> Self {
        *instance().scripts.terms.lock() = Some(terms);
        instance().scripts.is_running.set(true);
        Running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        instance().scripts.is_running.set(false);
        *instance().scripts.terms.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_first_line_has_flags() {
        for (text, has) in [
            ("#!lua flags=allow-oom\nreturn 1", true),
            ("#!lua name=x flags=no-writes,allow-oom\r\nreturn 1", true),
            ("#!lua flags=allow-oom", true),
            ("#!lua\n#!lua flags=allow-oom", false),
            ("#!lua flags=allow-oom-not\n", false),
            ("return 'flags=allow-oom'", false),
            ("", false),
        ] {
            assert_eq!(has_flag(text.as_bytes()), has, "{text}");
        }
    }
}
