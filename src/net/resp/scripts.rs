//! Scripts and functions of a connection, which the host runs on its main thread. Those that follow
//! each other in a pipeline go there as one task.

use std::collections::VecDeque;
use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::caller::RespCaller;
use super::named::note;
use super::pending_scripts::ScriptCall;
use super::published::{after_subscribers, published_to};
use super::session::{BUSY, Replies, RespSession};
use crate::command::{
    Action, Args, COMMANDS, FoundCommand, Named, PortCommand, Scripting, find_call,
};
use crate::engine::{
    Called, Engine, Gate, Host, Intent, Locked, MainTask, RunScript, ScriptCaller, ScriptReply,
    ThreadSlot, User,
};
use crate::limits::MAIN_TURN;
use crate::net::client::Client;
use crate::net::main_task::wait_for_task;
use crate::net::shared::{PortMessage, count};
use crate::net::waiting::WaitingConnection;

/// A command about scripts that may run.
pub fn run_script(caller: &mut RespCaller<'_>, named: Named, which: Scripting, args: &Args<'_>) {
    caller.session.scripts.add(named.number, args);
    if which == Scripting::Interrupt {
        send_scripts(caller);
    }
}

/// Adds a command to the pending ones. False if it is no script, or must not follow them so: then
/// they go to the main thread first.
pub fn joins_scripts(caller: &mut RespCaller<'_>, args: &Args<'_>) -> bool {
    let Some(FoundCommand::Command(named)) = find_call(args) else { return false };
    let (row, engine) = (named.row(), caller.engine());
    let is_script = matches!(
        row.action,
        Action::Port(PortCommand::Scripting(
            Scripting::Run | Scripting::Manage | Scripting::Publish
        ))
    );
    let session = &mut *caller.session;
    let joins = is_script
        && !session.scripts.is_full()
        && session.replies == Replies::Wanted
        && !session.only_hears()
        && row.takes(args)
        && session.access.may(engine, named.number, args)
        && engine.ledger.gate(Intent::of_script(row.flags)) == Gate::Go;
    if joins {
        session.scripts.add(named.number, args);
        note(named, &session.flow.client);
        count(&caller.worker.counts().commands, 1);
    }
    joins
}

/// Has the main thread run the pending scripts, if there are any. The connection waits for them.
pub fn send_scripts(caller: &mut RespCaller<'_>) {
    if caller.session.scripts.is_empty() {
        return;
    }
    let calls = take(&mut caller.session.scripts).calls;
    let Some(user) = caller.session.access.user.clone() else { return };
    let (db, resp3) = (caller.session.access.db, caller.session.resp3);
    let client = Arc::clone(&caller.session.flow.client);
    let interrupts = |(number, _): &ScriptCall| COMMANDS[*number].flags.allow_busy;
    let (interrupts, reads) = (
        calls.iter().any(interrupts),
        calls.iter().all(|(number, _)| COMMANDS[*number].flags.readonly),
    );
    let channels = calls
        .iter()
        .filter_map(|(number, args)| args.with(|args| published_to(COMMANDS[*number], &args)))
        .collect();
    let waiting = wait_for_task(caller);
    let work = ScriptsWork { calls, user, db, resp3, client, replies: Vec::new(), waiting };
    let task = after_subscribers(&caller.worker.shared, channels, work.task());
    let context = caller.engine().context();
    match (interrupts, reads) {
        (true, _) => context.send_interrupting_task(task),
        (false, true) => context.send_main_task(task),
        (false, false) => context.send_writing_task(task),
    }
}

/// Scripts of a connection that waits for them, and their replies so far.
struct ScriptsWork {
    calls: VecDeque<ScriptCall>,
    user: Arc<User>,
    db: u32,
    resp3: bool,
    client: Arc<Client>,
    replies: ScriptReply,
    waiting: WaitingConnection,
}

impl ScriptsWork {
    fn task(self) -> MainTask {
        Box::new(move |locked, engine, host| self.run(locked, engine, host))
    }

    /// Runs them, as far as this turn of the main loop goes.
    fn run(mut self, locked: Locked<'_>, engine: &Engine, host: Option<&dyn Host>) {
        if self.client.killed.load(Ordering::Relaxed) {
            return;
        }
        let user = Arc::clone(&self.user);
        let caller = ScriptCaller { user: &user.name, db: self.db, resp3: self.resp3 };
        let slot = engine.main_slot(locked);
        match host {
            None => self.run_with(slot, engine, &mut |_, _, reply| busy(reply)),
            Some(host) => {
                host.run_scripts(locked, &caller, &mut |run| self.run_with(slot, engine, run))
            }
        }
        if !self.calls.is_empty() {
            // Clients are paused, or its time is over.
            return engine.context().send_writing_task(self.task());
        }
        // The host does not tell which positions its scripts' writes have.
        engine.main_slot(locked).take_seen();
        if self.replies.len() > self.waiting.most_output() {
            return self.waiting.ends(PortMessage::TooLarge);
        }
        let (seen, replies) = (engine.ledger.log.last(), self.replies);
        self.waiting.answers(seen, move |session: &mut RespSession, output| {
            session.flow.has_written_to_host();
            *output = replies.into();
        });
    }

    fn run_with(&mut self, slot: &ThreadSlot, engine: &Engine, run: RunScript<'_>) {
        let (began, log) = (Instant::now(), &engine.slow_log);
        let mut last = began;
        while let Some((number, args)) = self.calls.front() {
            let (start, begin) = (slot.begin(*number), self.replies.len());
            let errors = engine.ledger.books.errors_of_main();
            if !args.with(|args| run(COMMANDS[*number], &args, &mut self.replies)) {
                return;
            }
            slot.end(*number, start);
            note_error(slot, engine, *number, &self.replies[begin..], errors);
            // To look at the clock costs a part of what a short script does.
            if log.is_on() || self.calls.len().is_multiple_of(4) {
                let now = Instant::now();
                if log.ran_for(now - last) {
                    let from = self.client.called_from();
                    let words = args.with(|args| Called::of(*number, "", &args).words);
                    log.add(now - last, words, from);
                }
                last = now;
            }
            self.calls.pop_front();
            if self.replies.len() > self.waiting.most_output() {
                // Its connection will be closed, so no more of its scripts run.
                self.calls.clear();
            }
            if last - began > MAIN_TURN {
                return;
            }
        }
    }
}

/// Counts a script's reply if it is an error. The main thread had counted so many `errors` before:
/// that of a command, which the script passes on, counts once.
pub fn note_error(slot: &ThreadSlot, engine: &Engine, command: usize, reply: &[u8], errors: u64) {
    if let Some(text) = reply.strip_prefix(b"-") {
        slot.failed(command);
        if engine.ledger.books.errors_of_main() == errors {
            engine.ledger.books.count_error(text);
        }
    }
}

fn busy(reply: &mut ScriptReply) -> bool {
    reply.extend_from_slice(&[b"-", BUSY, b"\r\n"].concat());
    true
}
