//! Requests that run by themselves.

use super::caller::{ItemCaller, MemcachedCaller};
use super::parse::MemcachedRequest;
use super::plan::{Planned, number};
use super::reply::{MemcachedReply, ReplyForm, Wording};
use super::run::{limits, planned};
use super::session::KeptKeys;
use super::stats;
use crate::command::{Args, COMMANDS, Reply, base64, expires_at, find, is_withdrawn};
use crate::engine::{Author, Call, Gate, Intent, Refusal};
use crate::net::flow::State;
use crate::net::shared::count;
use crate::store::Now;

/// The version that clients are told: memcached's whose words these are, and midi's.
pub(super) const VERSION: &str = concat!("1.6.18-midi-", env!("CARGO_PKG_VERSION"));

/// The row that empties a database.
pub(super) const FLUSHDB: usize = number("flushdb");

/// Appends a line.
pub(super) fn say_line(caller: &mut MemcachedCaller<'_>, text: &[u8]) {
    caller.output.own.extend_from_slice(text);
    caller.output.own.extend_from_slice(b"\r\n");
}

/// Whether what was said from there on is an error.
pub(super) fn has_failed(caller: &MemcachedCaller<'_>, said: usize) -> bool {
    caller.output.own[said..].starts_with(b"SERVER_ERROR")
}

/// Whether what ran must be tried again later.
fn is_put_off(caller: &MemcachedCaller<'_>) -> bool {
    matches!(caller.session.flow.state, State::Deferred | State::Again)
}

/// Runs one call by itself. Returns where it ends; 0 if it has not run.
pub(super) fn run_alone(caller: &mut MemcachedCaller<'_>, planned: &Planned<'_>) -> usize {
    let call = planned.call(caller.engine(), caller.session.access.db, limits(caller));
    let fails = run_call(caller, call, &planned.rights, planned.key(), planned.answered);
    if is_put_off(caller) {
        return 0;
    }
    let session = &mut caller.session;
    session.keys = planned.keys.map(KeptKeys::of);
    if fails {
        session.skip_line();
    }
    planned.end
}

/// Runs a call, if the user may make it. True if it was answered with an error here.
fn run_call(
    caller: &mut MemcachedCaller<'_>,
    mut call: Call<'_>,
    rights: &[usize],
    key: &[u8],
    answered: Wording,
) -> bool {
    let began = caller.turn.timed.command_begins();
    caller.said = caller.output.end();
    let fails = match refusal(caller, &call, rights) {
        Some(text) => {
            caller.slot().rejected(call.command);
            MemcachedReply::of_one(caller.output, key, answered).error(&text);
            true
        }
        None => {
            let (engine, slot, said) = (caller.engine(), caller.slot(), caller.output.end());
            engine.run(slot, &mut call, &mut ItemCaller { port: caller, key, answered });
            has_failed(caller, said)
        }
    };
    caller.turn.timed.command_ended(began);
    if !is_put_off(caller) {
        count(&caller.worker.counts().commands, 1);
    }
    fails
}

/// The error for a call that the user may not make: it needs the rights of these rows.
fn refusal(caller: &MemcachedCaller<'_>, call: &Call<'_>, rights: &[usize]) -> Option<Vec<u8>> {
    let key = [call.args.get(0), call.args.get(1)];
    let args = Args::new(&key[..call.args.len().min(2)]);
    rights.iter().find_map(|&row| denied(caller, row, &args))
}

/// The error for a user without the rights of this row, and if the host's configuration withdraws
/// it.
pub(super) fn denied(
    caller: &MemcachedCaller<'_>,
    rights: usize,
    args: &Args<'_>,
) -> Option<Vec<u8>> {
    let name = COMMANDS[rights].name;
    if is_withdrawn(rights) {
        return Some(format!("ERR unknown command '{name}'").into_bytes());
    }
    let user = caller.session.access.user.as_ref()?;
    let denied = user.check(rights, args, caller.session.access.db).err()?;
    caller.worker.note_refusal(denied.is_of_key(), || Refusal::new(user, denied, name, args));
    Some(denied.text(name, args))
}

/// Answers a request that is no call of one key; returns where it ends, 0 if it has not run.
pub(super) fn own_request(
    caller: &mut MemcachedCaller<'_>,
    request: MemcachedRequest<'_>,
    end: usize,
    is_silent: bool,
) -> usize {
    if let Some(key) = request.base64_key() {
        let key = base64::decode(key).unwrap_or_default();
        return own_request(caller, request.about(&key), end, is_silent);
    }
    match request {
        MemcachedRequest::Answer(text) if is_silent => _ = text,
        MemcachedRequest::Answer(text) => say_line(caller, text.as_bytes()),
        MemcachedRequest::Version => say_line(caller, format!("VERSION {VERSION}").as_bytes()),
        MemcachedRequest::Quit => caller.session.flow.state = State::Closing,
        MemcachedRequest::Stats(which, how) => stats::say(caller, which, how),
        MemcachedRequest::FlushAll(delay) => return flush_all(caller, delay, end, is_silent),
        MemcachedRequest::TooLarge(_, skipped) => {
            return too_large(caller, request, skipped, end, is_silent);
        }
        MemcachedRequest::Refused(text, skipped) => {
            say_line(caller, text.as_bytes());
            caller.session.skipped = skipped;
        }
        request => {
            if let Some(planned) = planned(caller, request, end, is_silent) {
                return run_alone(caller, &planned);
            }
        }
    }
    end
}

fn flush_all(caller: &mut MemcachedCaller<'_>, delay: i32, end: usize, is_silent: bool) -> usize {
    let clock = caller.engine().config().clock;
    let call = Call {
        command: FLUSHDB,
        args: Args::new(&[b"flushdb"]),
        db: caller.session.access.db,
        now: Now::lazy(clock),
        limits: caller.limits,
        prefix: "",
        author: Author::Nobody,
    };
    let answered = Wording { form: ReplyForm::Said, is_silent };
    if find(b"flushdb").is_none() {
        // As with memcached's -F.
        if !is_silent {
            say_line(caller, b"CLIENT_ERROR flush_all not allowed");
        }
        return end;
    }
    let at = expires_at(delay, clock());
    if at.is_some() {
        let (flushes, db) = (&caller.worker.shared.flushes, call.db);
        let mut refused =
            refusal(caller, &call, &[FLUSHDB]).or_else(|| refusal_of_gate(caller, &call));
        if refused.is_none() {
            flushes.set(db, at);
            // A demotion that came before forgets those that it finds.
            refused = refusal_of_gate(caller, &call).inspect(|_| flushes.set(db, None));
        }
        let mut reply = MemcachedReply::of_one(caller.output, b"", answered);
        match refused {
            Some(text) => reply.error(&text),
            None => reply.ok(),
        }
        return end;
    }
    if !run_call(caller, call, &[FLUSHDB], b"", answered) && !is_put_off(caller) {
        caller.worker.shared.flushes.set(caller.session.access.db, None);
    }
    if is_put_off(caller) { 0 } else { end }
}

/// The error for a call that is not allowed now. One that would only have to wait is.
fn refusal_of_gate(caller: &MemcachedCaller<'_>, call: &Call<'_>) -> Option<Vec<u8>> {
    let row = COMMANDS[call.command];
    match caller.engine().ledger.gate(Intent::OfPort(row.flags)) {
        Gate::Refuse(error) => Some(error.text(row.name, &call.args)),
        _ => None,
    }
}

/// The data of a storage command is too large. It is skipped, and what a `set` should have replaced
/// is removed.
fn too_large(
    caller: &mut MemcachedCaller<'_>,
    request: MemcachedRequest<'_>,
    skipped: usize,
    end: usize,
    is_silent: bool,
) -> usize {
    if let Some(planned) = Planned::of(request, end, true) {
        run_alone(caller, &planned);
        if is_put_off(caller) {
            return 0;
        }
    }
    if !is_silent {
        say_line(caller, b"SERVER_ERROR object too large for cache");
    }
    caller.session.skipped = skipped;
    end
}
