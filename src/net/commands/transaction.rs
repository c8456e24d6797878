//! MULTI, EXEC, DISCARD, WATCH and UNWATCH.
//!
//! ```text
//! MULTI ─► queue ─► EXEC ─► plan ─┬─ this worker: all shards held ─► replies
//!                                 ├─ busy: a retry in the next turn, a few times
//!                                 └─ the main thread: a unit ─► transcripts ─► replies
//! ```
//!
//! The port's own commands need the connection, so they run here, each when its reply is due; until
//! then the replies of the table's commands are kept as transcripts. A transaction without such
//! commands is answered straight into the connection's buffer.

use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::exec::{Plan, aborted, run_as_unit};
use super::login::selected;
use crate::command::{Action, Args, Error, Limits, Named, PortCommand, Reply};
use crate::engine::{Apart, Doing, Engine, Gate, Host, Locked, Taking};
use crate::limits::{MANY_TRIES, OUTPUT_PAUSE};
use crate::net::connection::{Connection, State};
use crate::net::driver::Driver;
use crate::net::service::{Pace, Service};
use crate::net::session::BUSY;
use crate::net::shared::{Answer, Shared, count};
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

impl<D: Driver> Service<D> {
    pub(in crate::net) fn queue(
        &self,
        connection: &mut Connection,
        named: Named,
        args: &Args<'_>,
        output: &mut Vec<u8>,
    ) {
        let most = self.engine().settings().port.query_limit.load(Ordering::Relaxed);
        let transaction = connection.session.transaction.get_or_insert_default();
        if matches!(named.row().action, Action::Port(PortCommand::Select)) {
            transaction.db = selected(self.engine(), args).ok().or(transaction.db);
        }
        // Commands that will not run need not be kept.
        if !transaction.is_spoiled && !transaction.watching.is_lost() {
            transaction.add(named, args);
            if transaction.memory() > most {
                count(&self.shared.counts(self.worker).closed_for_limits, 1);
                return connection.state = State::Closing;
            }
        }
        connection.session.reply(output).simple("QUEUED");
    }

    /// MULTI.
    pub(in crate::net) fn multi(&mut self, connection: &mut Connection, output: &mut Vec<u8>) {
        let session = &mut connection.session;
        if session.in_multi {
            return session.reply(output).error(NESTED);
        }
        session.transaction.get_or_insert_with(|| self.spare.take().unwrap_or_default());
        session.in_multi = true;
        session.reply(output).ok();
    }

    /// DISCARD.
    pub(in crate::net) fn discard(&self, connection: &mut Connection, output: &mut Vec<u8>) {
        let session = &mut connection.session;
        if !session.in_multi {
            return session.reply(output).error(NOT_IN_MULTI[1]);
        }
        session.leave_transaction();
        session.reply(output).ok();
    }

    /// UNWATCH. Between MULTI and EXEC it is queued, so when it runs EXEC has ended the
    /// transaction.
    pub(in crate::net) fn unwatch(&self, connection: &mut Connection, output: &mut Vec<u8>) {
        connection.session.leave_transaction();
        connection.session.reply(output).ok();
    }

    /// `WATCH key [key ...]`.
    pub(in crate::net) fn watch(
        &self,
        connection: &mut Connection,
        args: &Args<'_>,
        limits: &Limits,
        output: &mut Vec<u8>,
    ) {
        let (db, engine) = (connection.session.db, self.engine());
        if connection.session.in_multi {
            return connection.session.reply(output).error(WATCH_IN_MULTI);
        }
        let transaction = connection.session.transaction.get_or_insert_default();
        let keys = args.from(1);
        if transaction.watching.is_lost() {
            return connection.session.reply(output).ok();
        }
        // Only at the first try: at a retry some of the keys are watched already.
        let is_new = transaction.tries == 0;
        if is_new && transaction.watching.len() + keys.len() > limits.max_atomic_keys {
            let error = Error::TooManyKeys(limits.max_atomic_keys);
            return connection.session.reply(output).error(&error.text("watch", args));
        }
        if engine.config().safemode || transaction.tries >= MANY_TRIES {
            return self.watch_on_main(connection, keys);
        }
        let watching = &mut transaction.watching;
        let mut observe = |key| engine.observe(self.slot(), watching, db, key, Taking::WORKER);
        if !keys.iter().all(|key| observe(key)) {
            // Keys that are watched already stay watched.
            transaction.tries += 1;
            return connection.state = State::Again;
        }
        transaction.tries = 0;
        connection.session.reply(output).ok();
    }

    fn watch_on_main(&self, connection: &mut Connection, keys: &[&[u8]]) {
        let db = connection.session.db;
        let keys: Vec<Box<[u8]>> = keys.iter().map(|&key| key.into()).collect();
        let transaction = connection.session.transaction.take().unwrap_or_default();
        let mut watching = transaction.watching;
        self.ask_main(connection, move |locked, engine, _| {
            for key in &keys {
                let slot = engine.main_slot(locked);
                let _ = engine.observe(slot, &mut watching, db, key, Taking::Wait(locked));
            }
            Box::new(move |connection, output| {
                connection.session.transaction = Some(Box::new(Transaction::of(watching)));
                connection.session.reply(output).ok();
            })
        });
    }

    /// EXEC.
    pub(in crate::net) fn exec(
        &mut self,
        connection: &mut Connection,
        args: &Args<'_>,
        limits: &Limits,
        output: &mut Vec<u8>,
    ) {
        let session = &mut connection.session;
        if !session.in_multi {
            return session.reply(output).error(NOT_IN_MULTI[0]);
        }
        let flags = session.transaction.as_ref().and_then(|transaction| transaction.flags);
        match flags.map_or(Gate::Go, |flags| self.shared.engine.ledger.gate(Doing::OfPort(flags))) {
            Gate::Go => {}
            Gate::Wait => return connection.state = State::Deferred,
            Gate::Refuse(error) => {
                session.leave_transaction();
                return session.reply(output).error(&aborted(&error.text("exec", args)));
            }
        }
        let Some(mut transaction) = session.leave_transaction() else { return };
        if transaction.is_spoiled {
            return session.reply(output).error(SPOILED);
        }
        if transaction.watching.is_lost() {
            return session.reply(output).null_array();
        }
        transaction.sees_passed = connection.session.sees_passed(self.engine());
        match self.try_exec(connection, &transaction, limits, output) {
            Tried::Done => self.spare = transaction.emptied(),
            Tried::Apart(Apart::Changed) => connection.session.reply(output).null_array(),
            Tried::Apart(Apart::Busy) => {
                transaction.tries += 1;
                connection.session.transaction = Some(transaction);
                connection.session.in_multi = true;
                connection.state = State::Again;
            }
            Tried::Apart(Apart::NeedsMain) => self.exec_on_main(connection, transaction, *limits),
            Tried::ExecReply(said) => {
                self.shared.begin_exec_replies(connection, transaction, said, output);
                self.continue_exec_replies(connection, limits, output);
            }
        }
    }

    /// Runs a transaction on this worker, if it can.
    fn try_exec(
        &self,
        connection: &Connection,
        transaction: &Transaction,
        limits: &Limits,
        output: &mut Vec<u8>,
    ) -> Tried {
        let (engine, session) = (self.engine(), &connection.session);
        if engine.config().safemode || transaction.tries >= MANY_TRIES {
            return Tried::Apart(Apart::NeedsMain);
        }
        let Some(user) = &session.user else { return Tried::Apart(Apart::NeedsMain) };
        let all = transaction.arguments();
        let mut plan = Plan::new(engine, None, transaction, &all, user, session.db, limits);
        if plan.is_for_main {
            return Tried::Apart(Apart::NeedsMain);
        }
        let shards = take(&mut plan.shards);
        let (mut holding, now) =
            match engine.hold(self.slot(), shards, &transaction.watching, plan.calls()) {
                Ok(held) => held,
                Err(apart) => return Tried::Apart(apart),
            };
        plan.set_time(now, transaction.sees_passed);
        let refusals = take(&mut plan.refusals);
        let tried = if plan.has_own {
            Tried::ExecReply(plan.run(engine, |call, transcript| holding.run(call, transcript)))
        } else {
            plan.run_and_say(&mut session.reply(output), |call, reply| holding.run(call, reply));
            Tried::Done
        };
        holding.let_go();
        refusals.into_iter().for_each(|refusal| self.note_refusal(|| refusal));
        self.slot().ran_at_once(transaction.commands.len());
        tried
    }

    /// Has the main thread run a transaction as a unit.
    fn exec_on_main(
        &self,
        connection: &mut Connection,
        transaction: Box<Transaction>,
        limits: Limits,
    ) {
        let Some(user) = connection.session.user.clone() else { return };
        let (db, shared) = (connection.session.db, Arc::clone(&self.shared));
        let writes = transaction.flags.is_some_and(|flags| flags.write);
        let work = move |locked: Locked<'_>, engine: &Engine, host: Option<&dyn Host>| -> Answer {
            let Some(host) = host else {
                return Box::new(|connection, output| {
                    connection.session.reply(output).error(&aborted(BUSY))
                });
            };
            let result = run_as_unit(locked, engine, host, &transaction, &user, db, &limits);
            Box::new(move |connection, output| match result {
                Ok(Some(said)) => shared.begin_exec_replies(connection, transaction, said, output),
                Ok(None) => connection.session.reply(output).null_array(),
                Err(text) => connection.session.reply(output).error(&text),
            })
        };
        if writes {
            self.have_main_write(connection, work)
        } else {
            self.ask_main(connection, work)
        }
    }

    /// Continues with a transaction's replies until one must be waited for, or it is the turn of
    /// others: then `exec_replies` is set.
    pub(in crate::net) fn continue_exec_replies(
        &mut self,
        connection: &mut Connection,
        limits: &Limits,
        output: &mut Vec<u8>,
    ) {
        let mut pace = Pace::default();
        while connection.state != State::Waiting
            && output.len() <= OUTPUT_PAUSE
            && !self.alone.is_over()
            && !pace.is_over(self.at_once)
        {
            let Some(mut exec_replies) = connection.session.exec_replies.take() else { return };
            let at = exec_replies.next;
            let Some(said) = exec_replies.said.next() else { return };
            exec_replies.next += 1;
            match said {
                ExecReply::Transcript(transcript) => {
                    transcript.play(&mut connection.session.reply(output))
                }
                ExecReply::Error(text) => connection.session.reply(output).error(&text),
                ExecReply::Own => {
                    let args = exec_replies.transaction.arguments_of(at);
                    let args = Args::new(&args);
                    let began = self.alone.command_begins();
                    let named = exec_replies.transaction.commands[at].named;
                    match named.row().action {
                        Action::Port(which @ (PortCommand::Wait | PortCommand::WaitAof)) => {
                            self.wait(connection, which, &args, false, output)
                        }
                        _ => self.run_own(connection, named, &args, limits, output),
                    }
                    self.alone.command_ended(began);
                }
            }
            connection.session.exec_replies = Some(exec_replies);
        }
    }
}

impl Shared {
    /// Writes the number of replies; [`Service::continue_exec_replies`] writes the replies. Closes
    /// a connection if they are too large for it.
    fn begin_exec_replies(
        &self,
        connection: &mut Connection,
        transaction: Box<Transaction>,
        said: Vec<ExecReply>,
        output: &mut Vec<u8>,
    ) {
        let session = &mut connection.session;
        if said.iter().any(ExecReply::is_cut) && !session.is_muted() {
            count(&self.counts(connection.client.worker).closed_for_limits, 1);
            return connection.state = State::Closing;
        }
        session.reply(output).array(said.len());
        session.exec_replies =
            Some(Box::new(ExecReplies { transaction, said: said.into_iter(), next: 0 }));
    }
}
