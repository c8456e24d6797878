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

use super::exec::{Plan, aborted, run_as_unit};
use super::login::selected;
use crate::command::{Action, Args, Error, Named, PortCommand, Reply};
use crate::engine::{Apart, Engine, Gate, Host, Intent, Locked, Taking};
use crate::limits::MANY_TRIES;
use crate::net::context::Context;
use crate::net::main_task::{ask_main, have_main_write};
use crate::net::session::{BUSY, Session, State};
use crate::net::shared::{Answer, PortCounts, count};
use crate::net::transaction::{ExecReplies, ExecReply, Transaction};

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
pub fn queue(cx: &mut Context<'_>, named: Named, args: &Args<'_>) {
    let most = cx.engine().settings().port.query_limit.load(Ordering::Relaxed);
    let transaction = cx.session.transaction.get_or_insert_default();
    if matches!(named.row().action, Action::Port(PortCommand::Select)) {
        transaction.db = selected(cx.worker.engine(), args).ok().or(transaction.db);
    }
    // Commands that will not run need not be kept.
    if !transaction.is_spoiled && !transaction.watching.is_lost() {
        transaction.add(named, args);
        if transaction.memory() > most {
            cx.worker.note_limit();
            return cx.session.state = State::Closing;
        }
    }
    cx.reply().simple("QUEUED");
}

/// MULTI.
pub(super) fn multi(cx: &mut Context<'_>) {
    if cx.session.in_multi {
        return cx.reply().error(NESTED);
    }
    let spare = &mut cx.turn.spare;
    cx.session.transaction.get_or_insert_with(|| spare.take().unwrap_or_default());
    cx.session.in_multi = true;
    cx.reply().ok();
}

/// DISCARD.
pub(super) fn discard(cx: &mut Context<'_>) {
    if !cx.session.in_multi {
        return cx.reply().error(NOT_IN_MULTI[1]);
    }
    cx.session.leave_transaction();
    cx.reply().ok();
}

/// UNWATCH. Between MULTI and EXEC it is queued, so when it runs EXEC has ended the transaction.
pub(super) fn unwatch(cx: &mut Context<'_>) {
    cx.session.leave_transaction();
    cx.reply().ok();
}

/// `WATCH key [key ...]`.
pub(super) fn watch(cx: &mut Context<'_>, args: &Args<'_>) {
    let (db, engine, slot) = (cx.session.db, cx.engine(), cx.slot());
    if cx.session.in_multi {
        return cx.reply().error(WATCH_IN_MULTI);
    }
    let transaction = cx.session.transaction.get_or_insert_default();
    let keys = args.from(1);
    if transaction.watching.is_lost() {
        return cx.reply().ok();
    }
    // Only at the first try: at a retry some of the keys are watched already.
    let is_new = transaction.tries == 0;
    if is_new && transaction.watching.len() + keys.len() > cx.limits.max_atomic_keys {
        let error = Error::TooManyKeys(cx.limits.max_atomic_keys);
        return cx.reply().error(&error.text("watch", args));
    }
    if engine.config().safemode || transaction.tries >= MANY_TRIES {
        return watch_on_main(cx, keys);
    }
    let watching = &mut transaction.watching;
    let mut observe = |key| engine.observe(slot, watching, db, key, Taking::WORKER);
    if !keys.iter().all(|key| observe(key)) {
        // Keys that are watched already stay watched.
        transaction.tries += 1;
        return cx.session.state = State::Again;
    }
    transaction.tries = 0;
    cx.reply().ok();
}

fn watch_on_main(cx: &mut Context<'_>, keys: &[&[u8]]) {
    let db = cx.session.db;
    let keys: Vec<Box<[u8]>> = keys.iter().map(|&key| key.into()).collect();
    let transaction = cx.session.transaction.take().unwrap_or_default();
    let mut watching = transaction.watching;
    ask_main(cx, move |locked, engine, _| {
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
pub(super) fn exec(cx: &mut Context<'_>, args: &Args<'_>) {
    if !cx.session.in_multi {
        return cx.reply().error(NOT_IN_MULTI[0]);
    }
    let flags = cx.session.transaction.as_ref().and_then(|transaction| transaction.flags);
    match flags.map_or(Gate::Go, |flags| cx.engine().ledger.gate(Intent::OfPort(flags))) {
        Gate::Go => {}
        Gate::Wait => return cx.session.state = State::Deferred,
        Gate::Refuse(error) => {
            cx.session.leave_transaction();
            return cx.reply().error(&aborted(&error.text("exec", args)));
        }
    }
    let Some(mut transaction) = cx.session.leave_transaction() else { return };
    if transaction.is_spoiled {
        return cx.reply().error(SPOILED);
    }
    if transaction.watching.is_lost() {
        return cx.reply().null_array();
    }
    transaction.sees_passed = cx.session.sees_passed(cx.engine());
    match try_exec(cx, &transaction) {
        Tried::Done => cx.turn.spare = transaction.emptied(),
        Tried::Apart(Apart::Changed) => cx.reply().null_array(),
        Tried::Apart(Apart::Busy) => {
            transaction.tries += 1;
            cx.session.transaction = Some(transaction);
            cx.session.in_multi = true;
            cx.session.state = State::Again;
        }
        Tried::Apart(Apart::NeedsMain) => exec_on_main(cx, transaction),
        Tried::ExecReply(said) => {
            begin_exec_replies(cx.worker.counts(), cx.session, transaction, said, cx.output)
        }
    }
}

/// Runs a transaction on this worker, if it can.
fn try_exec(cx: &mut Context<'_>, transaction: &Transaction) -> Tried {
    let (engine, slot, session) = (cx.engine(), cx.slot(), &*cx.session);
    if engine.config().safemode || transaction.tries >= MANY_TRIES {
        return Tried::Apart(Apart::NeedsMain);
    }
    let Some(user) = &session.user else { return Tried::Apart(Apart::NeedsMain) };
    let all = transaction.arguments();
    let mut plan = Plan::new(engine, None, transaction, &all, user, session.db, &cx.limits);
    if plan.is_for_main {
        return Tried::Apart(Apart::NeedsMain);
    }
    let shards = take(&mut plan.shards);
    let (mut holding, now) = match engine.hold(slot, shards, &transaction.watching, plan.calls()) {
        Ok(held) => held,
        Err(apart) => return Tried::Apart(apart),
    };
    plan.set_time(now, transaction.sees_passed);
    let refusals = take(&mut plan.refusals);
    let tried = if plan.has_own {
        Tried::ExecReply(plan.run(engine, |call, transcript| holding.run(call, transcript)))
    } else {
        let mut reply = session.reply(cx.output);
        plan.run_and_say(&mut reply, |call, reply| holding.run(call, reply));
        Tried::Done
    };
    holding.let_go();
    refusals.into_iter().for_each(|refusal| cx.worker.note_refusal(|| refusal));
    slot.ran_at_once(transaction.commands.len());
    tried
}

/// Has the main thread run a transaction as a unit.
fn exec_on_main(cx: &mut Context<'_>, transaction: Box<Transaction>) {
    let Some(user) = cx.session.user.clone() else { return };
    let (db, limits, shared) = (cx.session.db, cx.limits, Arc::clone(&cx.worker.shared));
    let writes = transaction.flags.is_some_and(|flags| flags.write);
    let work = move |locked: Locked<'_>, engine: &Engine, host: Option<&dyn Host>| -> Answer {
        let Some(host) = host else {
            return Box::new(|session, output| session.reply(output).error(&aborted(BUSY)));
        };
        let result = run_as_unit(locked, engine, host, &transaction, &user, db, &limits);
        Box::new(move |session, output| match result {
            Ok(Some(said)) => {
                let counts = shared.counts(session.client.worker);
                begin_exec_replies(counts, session, transaction, said, output)
            }
            Ok(None) => session.reply(output).null_array(),
            Err(text) => session.reply(output).error(&text),
        })
    };
    if writes { have_main_write(cx, work) } else { ask_main(cx, work) }
}

/// Writes the number of replies; `exec_replies.rs` writes the replies. Closes a connection if they
/// are too large for it.
fn begin_exec_replies(
    counts: &PortCounts,
    session: &mut Session,
    transaction: Box<Transaction>,
    said: Vec<ExecReply>,
    output: &mut Vec<u8>,
) {
    if said.iter().any(ExecReply::is_cut) && !session.is_muted() {
        count(&counts.closed_for_limits, 1);
        return session.state = State::Closing;
    }
    session.reply(output).array(said.len());
    session.exec_replies =
        Some(Box::new(ExecReplies { transaction, said: said.into_iter(), next: 0 }));
}
