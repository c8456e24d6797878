//! From a command's name to its outcome: find it, check it, then run, queue or refuse it.

use std::sync::atomic::Ordering;

use super::caller::RespCaller;
use super::commands::{aborted, not_here, populate_of, queue, run_own};
use super::named::note;
use super::session::NO_AUTH;
use crate::command::{
    Action, Args, ClientCommand, Error, FoundCommand, InMulti, Named, PREFIX, PortCommand, Reply,
    find_call,
};
use crate::engine::{Author, Call, Denied, Gate, Intent, Refusal, User};
use crate::net::access::UserState;
use crate::net::flow::State;
use crate::store::Now;

/// The result of checking a command.
enum Judged {
    /// It may run, or be queued.
    Go,
    /// The host holds it up: the connection retries later.
    Wait,
    /// It is refused with this error.
    Refuse(Vec<u8>),
}

/// Runs one command of any kind.
pub fn run_command(caller: &mut RespCaller<'_>, args: &Args<'_>) {
    match caller.session.refresh(caller.engine()) {
        UserState::Good => {}
        UserState::Unknown => return caller.session.flow.state = State::Deferred,
        UserState::Gone => return caller.session.flow.state = State::Closing,
    }
    let named = match find_call(args) {
        Some(FoundCommand::Command(named)) => named,
        other => {
            caller.session.flow.client.last_command.store(0, Ordering::Relaxed);
            caller.session.spoil();
            return not_here(caller, args, other.is_some());
        }
    };
    note(named, &caller.session.flow.client);
    if caller.session.in_multi {
        return run_in_multi(caller, named, args);
    }
    match named.row().action {
        Action::Port(which) => match judge_own(caller, named, which, args) {
            Judged::Go => run_own(caller, named, args),
            Judged::Wait => caller.session.flow.state = State::Deferred,
            Judged::Refuse(text) => refuse_own(caller, named, which, &text),
        },
        _ => {
            let call = call(caller, named, args);
            run_table_command(caller, call)
        }
    }
}

/// A connection's call of a command in the table.
#[inline]
fn call<'a>(caller: &RespCaller<'_>, named: Named, args: &Args<'a>) -> Call<'a> {
    let Named { number: command, prefix } = named;
    Call {
        command,
        args: *args,
        db: caller.session.next_db(),
        now: Now::lazy(caller.engine().config().clock)
            .seeing_passed(caller.session.sees_passed(caller.engine()))
            .silent(caller.session.is_silent()),
        limits: caller.limits,
        prefix,
        author: Author::Nobody,
    }
}

/// Runs a command in the table, if the user may call it.
fn run_table_command(caller: &mut RespCaller<'_>, mut call: Call<'_>) {
    if let Err(error) = call.row().check_form(&call.args) {
        caller.slot().rejected(call.command);
        return call.refuse(error, &mut caller.reply());
    }
    match check_rights(caller, &call) {
        Ok(()) if caller.session.only_hears() => {
            caller.slot().rejected(call.command);
            let text = not_for_subscribers(&format!("{}{}", call.prefix, call.row().name));
            caller.reply().error(&text);
        }
        Ok(()) => caller.engine().run(caller.slot(), &mut call, caller),
        Err(text) => {
            caller.slot().rejected(call.command);
            caller.reply().error(&text);
        }
    }
}

/// Checks whether the user may make this call.
///
/// # Errors
/// Redis's text about what is not allowed.
fn check_rights(caller: &RespCaller<'_>, call: &Call<'_>) -> Result<(), Vec<u8>> {
    let Some(user) = &caller.session.access.user else { return Err(NO_AUTH.to_vec()) };
    user.check(call.command, &call.args, call.db)
        .map_err(|denied| note_denied(caller, user, denied, call))
}

/// The error for a call that the user may not make; it also notes the refusal. Clients can cause
/// this at a high rate.
#[cold]
fn note_denied(caller: &RespCaller<'_>, user: &User, denied: Denied, call: &Call<'_>) -> Vec<u8> {
    // The text about a key does not name the command.
    let name = || match denied {
        Denied::Key(_) | Denied::Channel(_) => String::new(),
        Denied::Command | Denied::Part(_) | Denied::Database => {
            format!("{PREFIX}{}", call.row().name)
        }
    };
    caller
        .worker
        .note_refusal(denied.is_of_key(), || Refusal::new(user, denied, &name(), &call.args));
    denied.text(&name(), &call.args)
}

/// Checks one of the port's own commands.
fn judge_own(caller: &RespCaller<'_>, named: Named, which: PortCommand, args: &Args<'_>) -> Judged {
    let row = named.row();
    if !row.takes(args) {
        return Judged::Refuse(Error::Arity.text(row.name, args));
    }
    if !row.flags.no_auth {
        let Some(user) = &caller.session.access.user else {
            return Judged::Refuse(NO_AUTH.to_vec());
        };
        let (mut name, mut checked, db) = (row.name, *args, caller.session.next_db());
        let mut verdict = user.check(named.number, args, db);
        // DEBUG POPULATE needs the rights to POPULATE, too.
        if let Some(populate) = populate_of(args)
            && verdict.is_ok()
            && which == PortCommand::Debug
            && args.len() > 2
        {
            (name, checked) = ("midi.populate", Args::new(args.from(1)));
            verdict = user.check(populate, &checked, db);
        }
        if let Err(denied) = verdict {
            let refusal = || Refusal::new(user, denied, name, &checked);
            caller.worker.note_refusal(denied.is_of_key(), refusal);
            return Judged::Refuse(denied.text(name, &checked));
        }
    }
    // One that would be queued takes memory.
    let checked = if caller.session.in_multi && row.in_multi != InMulti::Ends {
        check_memory(caller)
    } else {
        Ok(())
    };
    if let Err(error) = checked {
        return Judged::Refuse(error.text(row.name, args));
    }
    if caller.session.only_hears() && !is_for_subscribers(which) {
        return Judged::Refuse(not_for_subscribers(row.name));
    }
    let intent = match which {
        PortCommand::Scripting(_) => Intent::of_script(row.flags),
        _ => Intent::OfPortAlone(row.flags, which == PortCommand::Ping),
    };
    match caller.engine().ledger.gate(intent) {
        Gate::Go => Judged::Go,
        Gate::Wait => Judged::Wait,
        Gate::Refuse(error) => Judged::Refuse(error.text(row.name, args)),
    }
}

/// Whether a connection that speaks RESP2 and subscribes may call it.
fn is_for_subscribers(which: PortCommand) -> bool {
    matches!(
        which,
        PortCommand::Subscribe(_)
            | PortCommand::Unsubscribe(_)
            | PortCommand::Ping
            | PortCommand::Quit
            | PortCommand::Reset
    )
}

/// Redis's text.
fn not_for_subscribers(name: &str) -> Vec<u8> {
    let text = format!(
        "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET \
         are allowed in this context"
    );
    text.into_bytes()
}

/// Valkey's text. In EXEC it would tear the reply apart, as it does on Redis.
const REPLY_IN_MULTI: &[u8] = b"ERR Command 'client|reply' not allowed inside a transaction";

/// Runs a command between MULTI and EXEC: queues it, except for those that run at once.
fn run_in_multi(caller: &mut RespCaller<'_>, named: Named, args: &Args<'_>) {
    let row = named.row();
    let judged = match row.action {
        Action::Port(which) => judge_own(caller, named, which, args),
        _ => judge_queued(caller, &call(caller, named, args)),
    };
    match (judged, row.action) {
        (Judged::Wait, _) => caller.session.flow.state = State::Deferred,
        (Judged::Refuse(text), Action::Port(which)) => refuse_own(caller, named, which, &text),
        (Judged::Refuse(text), _) => {
            caller.slot().rejected(named.number);
            caller.session.spoil();
            caller.reply().error(&text);
        }
        (Judged::Go, Action::Port(which @ PortCommand::Client(ClientCommand::Reply))) => {
            refuse_own(caller, named, which, REPLY_IN_MULTI);
        }
        (Judged::Go, _) if row.in_multi == InMulti::Queued => queue(caller, named, args),
        (Judged::Go, _) => run_own(caller, named, args),
    }
}

/// Checks a command in the table, as far as is possible before EXEC.
fn judge_queued(caller: &RespCaller<'_>, call: &Call<'_>) -> Judged {
    let error_text =
        |error: Error| error.text(&format!("{}{}", call.prefix, call.row().name), &call.args);
    let checked = call.row().check_form(&call.args).map_err(error_text);
    let checked = checked.and_then(|()| check_rights(caller, call));
    let checked = checked.and_then(|()| check_memory(caller).map_err(error_text));
    if let Err(text) = checked {
        return Judged::Refuse(text);
    }
    match caller.engine().ledger.gate(Intent::OfPort(call.row().flags)) {
        Gate::Go => {}
        Gate::Wait => return Judged::Wait,
        Gate::Refuse(error) => return Judged::Refuse(error_text(error)),
    }
    let transaction = caller.session.transaction.as_ref();
    let before = transaction.map_or(0, |transaction| transaction.all_keys());
    let most = call.limits.max_atomic_keys;
    if before + call.row().key_positions(&call.args).len() > most {
        return Judged::Refuse(error_text(Error::TooManyKeys(most)));
    }
    Judged::Go
}

/// Refuses to queue a command if memory is short: any queued command takes memory.
fn check_memory(caller: &RespCaller<'_>) -> Result<(), Error> {
    match caller.engine().ledger.gate(Intent::Write(true)) {
        Gate::Refuse(Error::OutOfMemory) => Err(Error::OutOfMemory),
        _ => Ok(()),
    }
}

/// Answers that one of the port's own commands is refused, inside MULTI or not.
fn refuse_own(caller: &mut RespCaller<'_>, named: Named, which: PortCommand, text: &[u8]) {
    caller.slot().rejected(named.number);
    if which == PortCommand::Exec {
        caller.session.leave_transaction();
        return caller.reply().error(&aborted(text));
    }
    caller.session.spoil();
    caller.reply().error(text);
}
