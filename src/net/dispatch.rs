//! From a command's name to its outcome: find it, check it, then run, queue or refuse it.

use std::sync::atomic::Ordering;

use super::commands::aborted;
use super::connection::{Connection, State};
use super::driver::Driver;
use super::named::note;
use super::service::Service;
use super::session::{NO_AUTH, UserState};
use super::shared::count;
use crate::command::{
    Action, Args, Error, FoundCommand, InMulti, Limits, Named, PREFIX, PortCommand, Reply,
    find_call,
};
use crate::engine::{Author, Call, Denied, Doing, Gate, Refusal, User};
use crate::store::Now;

/// The result of checking a command.
pub enum Judged {
    /// It may run, or be queued.
    Go,
    /// The host holds it up: the connection retries later.
    Wait,
    /// It is refused with this error.
    Refuse(Vec<u8>),
}

impl<D: Driver> Service<D> {
    /// Runs one command of any kind.
    pub(super) fn run_command(
        &mut self,
        connection: &mut Connection,
        args: &Args<'_>,
        limits: &Limits,
        output: &mut Vec<u8>,
    ) {
        match connection.session.refresh(&self.shared.engine) {
            UserState::Good => {}
            UserState::Unknown => return connection.state = State::Deferred,
            UserState::Gone => return connection.state = State::Closing,
        }
        if connection.session.in_multi {
            return self.run_in_multi(connection, args, limits, output);
        }
        let named = match find_call(args) {
            Some(FoundCommand::Command(named)) => named,
            other => {
                connection.client.last_command.store(0, Ordering::Relaxed);
                return self.not_here(connection, args, other.is_some(), output);
            }
        };
        note(named, &connection.client);
        let Action::Port(which) = named.row().action else {
            let call = self.call(connection, named, args, limits);
            return self.run_table_command(connection, call, output);
        };
        match self.judge_own(connection, named, which, args) {
            Judged::Go => self.run_own(connection, named, args, limits, output),
            Judged::Wait => connection.state = State::Deferred,
            Judged::Refuse(text) => self.refuse_own(connection, which, &text, output),
        }
    }

    /// A connection's call of a command in the table.
    #[inline]
    pub(super) fn call<'a>(
        &self,
        connection: &Connection,
        named: Named,
        args: &Args<'a>,
        limits: &Limits,
    ) -> Call<'a> {
        let (Named { number: command, prefix }, now) =
            (named, Now::lazy(self.engine().config().clock));
        let safemode = self.engine().config().safemode;
        Call {
            command,
            args: *args,
            db: connection.session.next_db(),
            now: now.seeing_passed(connection.session.sees_passed(self.engine())),
            limits: if safemode { *limits } else { limits.alone() },
            prefix,
            author: Author::Nobody,
        }
    }

    /// Runs a command in the table, if the user may call it.
    fn run_table_command(&self, connection: &mut Connection, call: Call<'_>, output: &mut Vec<u8>) {
        if let Err(error) = call.row().check_form(&call.args) {
            return call.refuse(error, &mut connection.session.reply(output));
        }
        match self.check_rights(connection, &call) {
            Ok(()) => self.run_allowed(connection, call, output),
            Err(text) => connection.session.reply(output).error(&text),
        }
    }

    /// Runs a command in the table that the user may call.
    pub(super) fn run_allowed(
        &self,
        connection: &mut Connection,
        mut call: Call<'_>,
        output: &mut Vec<u8>,
    ) {
        self.engine().run(self.slot(), &mut call, &mut self.caller(connection, output));
    }

    /// Checks whether the user may make this call.
    ///
    /// # Errors
    /// Redis's text about what is not allowed.
    pub(super) fn check_rights(
        &self,
        connection: &Connection,
        call: &Call<'_>,
    ) -> Result<(), Vec<u8>> {
        let Some(user) = &connection.session.user else { return Err(NO_AUTH.to_vec()) };
        user.check(call.command, &call.args, call.db)
            .map_err(|denied| self.denied(user, denied, call))
    }

    /// The error for a call that the user may not make; it also notes the refusal. Clients can
    /// cause this at a high rate.
    #[cold]
    fn denied(&self, user: &User, denied: Denied, call: &Call<'_>) -> Vec<u8> {
        // The text about a key does not name the command.
        let name = || match denied {
            Denied::Key(_) => String::new(),
            Denied::Command | Denied::Part(_) | Denied::Database => {
                format!("{PREFIX}{}", call.row().name)
            }
        };
        self.note_refusal(|| Refusal::new(user, denied, &name(), &call.args));
        denied.text(&name(), &call.args)
    }

    /// Counts a refusal and has the host note it.
    pub(super) fn note_refusal(&self, refusal: impl FnOnce() -> Refusal) {
        count(&self.shared.counts(self.worker).denied, 1);
        self.engine().note_refusal(refusal);
    }

    /// Checks one of the port's own commands.
    fn judge_own(
        &self,
        connection: &Connection,
        named: Named,
        which: PortCommand,
        args: &Args<'_>,
    ) -> Judged {
        let row = named.row();
        if !row.takes(args) {
            return Judged::Refuse(Error::Arity.text(row.name, args));
        }
        if !row.flags.no_auth {
            let Some(user) = &connection.session.user else {
                return Judged::Refuse(NO_AUTH.to_vec());
            };
            if let Err(denied) = user.check(named.number, args, connection.session.next_db()) {
                self.note_refusal(|| Refusal::new(user, denied, row.name, args));
                return Judged::Refuse(denied.text(row.name, args));
            }
        }
        if let Err(error) = self.check_room_for(connection, row.in_multi) {
            return Judged::Refuse(error.text(row.name, args));
        }
        match self.engine().ledger.gate(Doing::OfPortAlone(row.flags, which == PortCommand::Ping)) {
            Gate::Go => Judged::Go,
            Gate::Wait => Judged::Wait,
            Gate::Refuse(error) => Judged::Refuse(error.text(row.name, args)),
        }
    }

    /// Runs a command between MULTI and EXEC: queues it, except for those that run at once.
    pub(super) fn run_in_multi(
        &mut self,
        connection: &mut Connection,
        args: &Args<'_>,
        limits: &Limits,
        output: &mut Vec<u8>,
    ) {
        let named = match find_call(args) {
            Some(FoundCommand::Command(named)) => named,
            other => {
                connection.client.last_command.store(0, Ordering::Relaxed);
                connection.session.spoil();
                return self.not_here(connection, args, other.is_some(), output);
            }
        };
        let row = named.row();
        let judged = match row.action {
            Action::Port(which) => self.judge_own(connection, named, which, args),
            _ => self.judge_queued(connection, &self.call(connection, named, args, limits)),
        };
        note(named, &connection.client);
        match (judged, row.action) {
            (Judged::Wait, _) => connection.state = State::Deferred,
            (Judged::Refuse(text), Action::Port(which)) => {
                self.refuse_own(connection, which, &text, output)
            }
            (Judged::Refuse(text), _) => {
                connection.session.spoil();
                connection.session.reply(output).error(&text);
            }
            (Judged::Go, _) if row.in_multi == InMulti::Queued => {
                self.queue(connection, named, args, output);
            }
            (Judged::Go, _) => self.run_own(connection, named, args, limits, output),
        }
    }

    /// Checks a command in the table, as far as is possible before EXEC.
    fn judge_queued(&self, connection: &Connection, call: &Call<'_>) -> Judged {
        let error_text =
            |error: Error| error.text(&format!("{}{}", call.prefix, call.row().name), &call.args);
        let checked = call.row().check_form(&call.args).map_err(error_text);
        let checked = checked.and_then(|()| self.check_rights(connection, call));
        let checked = checked.and_then(|()| self.check_memory().map_err(error_text));
        if let Err(text) = checked {
            return Judged::Refuse(text);
        }
        match self.engine().ledger.gate(Doing::OfPort(call.row().flags)) {
            Gate::Go => {}
            Gate::Wait => return Judged::Wait,
            Gate::Refuse(error) => return Judged::Refuse(error_text(error)),
        }
        let before =
            connection.session.transaction.as_ref().map_or(0, |transaction| transaction.all_keys());
        let most = call.limits.max_atomic_keys;
        if before + call.row().key_positions(&call.args).len() > most {
            return Judged::Refuse(error_text(Error::TooManyKeys(most)));
        }
        Judged::Go
    }

    /// Refuses to queue a command if memory is short: any queued command takes memory.
    fn check_memory(&self) -> Result<(), Error> {
        match self.engine().ledger.gate(Doing::Write(true)) {
            Gate::Refuse(Error::OutOfMemory) => Err(Error::OutOfMemory),
            _ => Ok(()),
        }
    }

    /// Checks the memory for one of the port's own commands, if it would be queued.
    fn check_room_for(&self, connection: &Connection, in_multi: InMulti) -> Result<(), Error> {
        if !connection.session.in_multi || in_multi == InMulti::Ends {
            return Ok(());
        }
        self.check_memory()
    }

    /// Answers that one of the port's own commands is refused, inside MULTI or not.
    pub(super) fn refuse_own(
        &self,
        connection: &mut Connection,
        which: PortCommand,
        text: &[u8],
        output: &mut Vec<u8>,
    ) {
        let session = &mut connection.session;
        if which == PortCommand::Exec {
            session.leave_transaction();
            return session.reply(output).error(&aborted(text));
        }
        session.spoil();
        session.reply(output).error(text);
    }
}
