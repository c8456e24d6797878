//! MULTI, EXEC, DISCARD, WATCH and UNWATCH.
//!
//! ```text
//! MULTI ─► queue ─► EXEC ─► plan ─┬─ this worker: all shards held ─► replies
//!                                 ├─ busy: a retry in the next turn, a few times
//!                                 └─ the main thread: a unit ─► transcripts ─► replies
//! ```
//!
//! The port's own commands need the connection, so they run on its worker, each when its reply is
//! due (`exec_replies.rs`); until then the replies of the table's commands are kept as transcripts.
//! A transaction without such commands is answered straight into the connection's buffer.

use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::exec::{ExecAsker, Plan, aborted, run_as_unit};
use super::login::selected;
use crate::command::{Action, Args, Error, Named, PortCommand, Reply};
use crate::engine::{Apart, Call, Engine, Gate, Host, Intent, Locked, RefusalReason, Taking};
use crate::limits::MANY_TRIES;
use crate::net::flow::State;
use crate::net::main_task::{ask_main, question_task};
use crate::net::protocol::Protocol;
use crate::net::resp::caller::RespCaller;
use crate::net::resp::published::after_subscribers;
use crate::net::resp::session::{BUSY, RespSession};
use crate::net::resp::transaction::{ExecReplies, ExecReply, Transaction};
use crate::net::shared::{Answer, PortCounts, count};
use crate::net::transport::Output;

/// The result of a try.
enum Tried {
    Done,
    Apart(Apart),
    /// It ran, and its replies must be written.
    ExecReply(Vec<ExecReply>),
}

const SPOILED: &[u8] = b"EXECABORT Transaction discarded because of previous errors.";
const NOT_IN_MULTI: [&[u8]; 2] = [b"ERR EXEC without MULTI", b"ERR DISCARD without MULTI"];
const NESTED: &[u8] = b"ERR MULTI calls can not be nested";
const WATCH_IN_MULTI: &[u8] = b"ERR WATCH inside MULTI is not allowed";

/// Queues a command for EXEC.
pub fn queue(caller: &mut RespCaller<'_>, named: Named, args: &Args<'_>) {
    let most = caller.engine().settings().port.query_limit.load(Ordering::Relaxed);
    let transaction = caller.session.transaction.get_or_insert_default();
    if matches!(named.row().action, Action::Port(PortCommand::Select)) {
        transaction.db = selected(caller.worker.engine(), args).ok().or(transaction.db);
    }
    // Commands that will not run need not be kept.
    if !transaction.is_spoiled && !transaction.watching.is_lost() {
        transaction.add(named, args);
        if transaction.memory() > most {
            caller.worker.note_limit();
            return caller.session.flow.state = State::Closing;
        }
    }
    caller.reply().simple("QUEUED");
}

/// MULTI.
pub(super) fn multi(caller: &mut RespCaller<'_>) {
    if caller.session.in_multi {
        return caller.reply().error(NESTED);
    }
    let spare = &mut caller.turn.spare;
    caller.session.transaction.get_or_insert_with(|| spare.take().unwrap_or_default());
    caller.session.in_multi = true;
    caller.reply().ok();
}

/// DISCARD.
pub(super) fn discard(caller: &mut RespCaller<'_>) {
    if !caller.session.in_multi {
        return caller.reply().error(NOT_IN_MULTI[1]);
    }
    caller.session.leave_transaction();
    caller.reply().ok();
}

/// UNWATCH. Between MULTI and EXEC it is queued, so when it runs EXEC has ended the transaction.
pub(super) fn unwatch(caller: &mut RespCaller<'_>) {
    caller.session.leave_transaction();
    caller.reply().ok();
}

/// `WATCH key [key ...]`.
pub(super) fn watch(caller: &mut RespCaller<'_>, args: &Args<'_>) {
    let (db, engine, slot) = (caller.session.access.db, caller.engine(), caller.slot());
    if caller.session.in_multi {
        return caller.reply().error(WATCH_IN_MULTI);
    }
    let transaction = caller.session.transaction.get_or_insert_default();
    let keys = args.from(1);
    if transaction.watching.is_lost() {
        return caller.reply().ok();
    }
    // Only at the first try: at a retry some of the keys are watched already.
    let is_new = transaction.tries == 0;
    if is_new && transaction.watching.len() + keys.len() > caller.limits.max_atomic_keys {
        let error = Error::TooManyKeys(caller.limits.max_atomic_keys);
        return caller.reply().error(&error.text("watch", args));
    }
    if engine.config().safemode || transaction.tries >= MANY_TRIES {
        return watch_on_main(caller, keys);
    }
    let watching = &mut transaction.watching;
    let mut observe = |key| engine.observe(slot, watching, db, key, Taking::WORKER);
    if !keys.iter().all(|key| observe(key)) {
        // Keys that are watched already stay watched.
        transaction.tries += 1;
        return caller.session.flow.state = State::Again;
    }
    transaction.tries = 0;
    caller.reply().ok();
}

fn watch_on_main(caller: &mut RespCaller<'_>, keys: &[&[u8]]) {
    let db = caller.session.access.db;
    let keys: Vec<Box<[u8]>> = keys.iter().map(|&key| key.into()).collect();
    let transaction = caller.session.transaction.take().unwrap_or_default();
    let mut watching = transaction.watching;
    ask_main(caller, move |locked, engine, _| {
        for key in &keys {
            let slot = engine.main_slot(locked);
            let _ = engine.observe(slot, &mut watching, db, key, Taking::Wait(locked));
        }
        Box::new(move |session, output| {
            session.transaction = Some(Box::new(Transaction::of(watching)));
            session.reply(output).ok();
        })
    });
}

/// EXEC.
pub(super) fn exec(caller: &mut RespCaller<'_>, args: &Args<'_>) {
    if !caller.session.in_multi {
        return caller.reply().error(NOT_IN_MULTI[0]);
    }
    let flags = caller.session.transaction.as_ref().and_then(|transaction| transaction.flags);
    match flags.map_or(Gate::Go, |flags| caller.engine().ledger.gate(Intent::OfPort(flags))) {
        Gate::Go => {}
        Gate::Wait => return caller.session.flow.state = State::Deferred,
        Gate::Refuse(error) => {
            caller.session.leave_transaction();
            return caller.reply().error(&aborted(&error.text("exec", args)));
        }
    }
    let Some(mut transaction) = caller.session.leave_transaction() else { return };
    if transaction.is_spoiled {
        return caller.reply().error(SPOILED);
    }
    if transaction.watching.is_lost() {
        return caller.reply().null_array();
    }
    transaction.sees_passed = caller.session.sees_passed(caller.engine());
    transaction.is_silent = caller.session.is_silent();
    match try_exec(caller, &transaction) {
        Tried::Done => caller.turn.spare = transaction.emptied(),
        Tried::Apart(Apart::Changed) => caller.reply().null_array(),
        Tried::Apart(Apart::Busy) => {
            transaction.tries += 1;
            caller.session.transaction = Some(transaction);
            caller.session.in_multi = true;
            caller.session.flow.state = State::Again;
        }
        Tried::Apart(Apart::NeedsMain) => exec_on_main(caller, transaction),
        Tried::ExecReply(said) => begin_exec_replies(
            caller.worker.counts(),
            caller.session,
            transaction,
            said,
            caller.output,
        ),
    }
}

/// Runs a transaction on this worker, if it can.
fn try_exec(caller: &mut RespCaller<'_>, transaction: &Transaction) -> Tried {
    let (engine, slot, session) = (caller.engine(), caller.slot(), &*caller.session);
    if engine.config().safemode || transaction.tries >= MANY_TRIES {
        return Tried::Apart(Apart::NeedsMain);
    }
    let Some(user) = &session.access.user else { return Tried::Apart(Apart::NeedsMain) };
    let all = transaction.arguments();
    let limits = caller.limits.in_one_go();
    let mut plan = Plan::new(engine, None, transaction, &all, user, session.access.db, &limits);
    if plan.is_for_main {
        return Tried::Apart(Apart::NeedsMain);
    }
    let shards = take(&mut plan.shards);
    let (mut holding, now) = match engine.hold(slot, shards, &transaction.watching, plan.calls()) {
        Ok(held) => held,
        Err(apart) => return Tried::Apart(apart),
    };
    plan.set_time(now, transaction);
    let refusals = take(&mut plan.refusals);
    let from = || session.flow.client.called_from();
    let mut run = |call: &Call<'_>, reply: &mut dyn Reply| {
        engine.slow_log.timed(call.command, &call.args, from, || holding.run(call, reply))
    };
    let tried = if plan.has_own {
        Tried::ExecReply(plan.run(engine, |call, transcript| run(call, transcript), |_| None))
    } else {
        plan.run_and_say(&mut session.reply(caller.output), |call, reply| run(call, reply));
        Tried::Done
    };
    holding.let_go();
    for refusal in refusals {
        let is_of_key = refusal.reason == RefusalReason::Key;
        caller.worker.note_refusal(is_of_key, || refusal);
    }
    slot.ran_at_once(transaction.commands.len());
    tried
}

/// Has the main thread run a transaction as a unit.
fn exec_on_main(caller: &mut RespCaller<'_>, transaction: Box<Transaction>) {
    let Some(user) = caller.session.access.user.clone() else { return };
    let (limits, shared) = (caller.limits.in_one_go(), Arc::clone(&caller.worker.shared));
    let session = &*caller.session;
    let (client, db, resp3) = (Arc::clone(&session.flow.client), session.access.db, session.resp3);
    let asker = ExecAsker { client, user, db, resp3 };
    let writes =
        transaction.flags.is_some_and(|flags| flags.write || flags.host_write || flags.script);
    let channels = transaction.publishes_to();
    let work = move |locked: Locked<'_>,
                     engine: &Engine,
                     host: Option<&dyn Host>|
          -> Answer<RespSession> {
        let Some(host) = host else {
            return Box::new(|session, output| session.reply(output).error(&aborted(BUSY)));
        };
        let result = run_as_unit(locked, engine, host, &transaction, &asker, &limits);
        Box::new(move |session, output| match result {
            Ok(Some(said)) => {
                if writes {
                    session.flow.has_written_to_host();
                }
                let counts = shared.counts(session.flow.client.worker);
                begin_exec_replies(counts, session, transaction, said, output)
            }
            Ok(None) => session.reply(output).null_array(),
            Err(text) => session.reply(output).error(&text),
        })
    };
    let task = question_task(caller, work);
    let task = after_subscribers(&caller.worker.shared, channels, task);
    let context = caller.engine().context();
    if writes { context.send_writing_task(task) } else { context.send_main_task(task) }
}

/// Writes the number of replies; `exec_replies.rs` writes the replies. Closes a connection if they
/// are too large for it.
fn begin_exec_replies(
    counts: &PortCounts,
    session: &mut RespSession,
    transaction: Box<Transaction>,
    said: Vec<ExecReply>,
    output: &mut Output,
) {
    if said.iter().any(ExecReply::is_cut) && !session.is_muted() {
        count(&counts.closed_for_limits, 1);
        return session.flow.state = State::Closing;
    }
    session.reply(output).array(said.len());
    session.exec_replies =
        Some(Box::new(ExecReplies { transaction, said: said.into_iter(), next: 0 }));
}
