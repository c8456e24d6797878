//! Running a connection's commands: parsed ahead, run in the order sent, replies sent together.

use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::ahead::Ahead;
use super::connection::{Backlog, Connection, State};
use super::driver::{Driver, Received};
use super::named::note;
use super::plan::{Stop, request_limits};
use super::resp::{ArgList, room_for};
use super::service::{Pace, Service, TurnOutcome};
use super::shared::count;
use crate::command::{Args, Limits, Reply};
use crate::engine::{Outcome, Taking};
use crate::limits::{
    HELD_OUTPUT, INPUT_BYTES, LEFTOVER_BYTES, OUTPUT_PAUSE, READ_BYTES, UNAUTHENTICATED_QUERY_BYTES,
};

impl<D: Driver> Service<D> {
    /// A connection's turn: receives once, runs what was received, sends the replies together.
    #[inline(never)]
    pub fn serve(&mut self, connection: &mut Connection) -> TurnOutcome {
        if connection.client.killed.load(Ordering::Relaxed) {
            return TurnOutcome::Ends;
        }
        self.claim(connection);
        // Send first: a connection that has not read its replies goes on only after they are sent.
        if !connection.unsent.is_empty() && self.send(connection, &[]) == TurnOutcome::Ends {
            return TurnOutcome::Ends;
        }
        let mut output = std::mem::take(&mut self.output);
        let said = output.len();
        self.limit_output(connection, said);
        self.alone.begin();
        let outcome = self.receive_and_run(connection, &mut output);
        self.note_weight(connection);
        if self.has_too_much_output(connection, said, &mut output) {
            self.output = output;
            return TurnOutcome::Ends;
        }
        // Before the replies are sent: a client that has its reply may then look at CLIENT LIST.
        connection.show_condition();
        let at_once = outcome == TurnOutcome::Ends
            || connection.state == State::Closing
            || !connection.unsent.is_empty();
        let mut sent = TurnOutcome::Stays;
        if at_once {
            sent = self.send(connection, &output[said..]);
            output.truncate(said);
        }
        self.put_in_outbox(connection, said..output.len());
        self.output = output;
        match outcome {
            _ if sent == TurnOutcome::Ends => sent,
            TurnOutcome::Ends if connection.ended && !connection.unsent.is_empty() => {
                // It sends no more, but it may still read its replies.
                connection.state = State::Closing;
                connection.unread = Backlog::default();
                TurnOutcome::Stays
            }
            outcome => outcome,
        }
    }

    /// Notes whether the turn that ends was a long one: such connections share the time of the
    /// next.
    pub(super) fn note_weight(&self, connection: &mut Connection) {
        connection.is_heavy = self.alone.is_heavy();
    }

    fn receive_and_run(
        &mut self,
        connection: &mut Connection,
        output: &mut Vec<u8>,
    ) -> TurnOutcome {
        if connection.state != State::Open || connection.is_held() {
            return TurnOutcome::Stays;
        }
        // A connection that does not read its replies gets no more of its commands run.
        if connection.unsent.len() > OUTPUT_PAUSE {
            return self.take_in(connection);
        }
        if connection.session.exec_replies.is_some() {
            let (limits, said) = (self.engine().settings().limits(usize::MAX), output.len());
            self.continue_exec_replies(connection, &limits, output);
            if connection.session.is_muted() {
                output.truncate(said);
            }
            if connection.state != State::Open || connection.session.exec_replies.is_some() {
                return self.outcome_of(connection);
            }
        }
        if connection.has_commands {
            let mut unread = std::mem::take(&mut connection.unread);
            let used = self.run(connection, unread.bytes(), output);
            unread.use_up(used);
            connection.unread = unread;
        } else if connection.readable {
            if !self.receive(connection, output) {
                return TurnOutcome::Ends;
            }
        } else {
            return if connection.ended { TurnOutcome::Ends } else { TurnOutcome::Stays };
        }
        self.outcome_of(connection)
    }

    /// The outcome for a connection that has run what it could.
    pub(super) fn outcome_of(&self, connection: &mut Connection) -> TurnOutcome {
        match connection.state {
            State::Deferred => TurnOutcome::Deferred,
            State::Again => {
                connection.state = State::Open;
                TurnOutcome::Ready
            }
            State::Open if connection.can_go_on() => TurnOutcome::Ready,
            _ => TurnOutcome::Stays,
        }
    }

    /// Receives, and runs. False if the connection has ended.
    fn receive(&mut self, connection: &mut Connection, output: &mut Vec<u8>) -> bool {
        // The beginning of a long command is not moved again for every piece of it.
        if connection.unread.len() > LEFTOVER_BYTES {
            return self.receive_more(connection, output);
        }
        // After what a group may have there.
        let mut input = std::mem::take(&mut self.input);
        let start = input.len();
        input.extend_from_slice(connection.unread.bytes());
        // A panic may have dropped the buffer.
        input.reserve(READ_BYTES);
        let before = input.len();
        let received = self.driver.receive(&connection.socket, &mut input);
        let goes_on = self.note_received(connection, received);
        if input.len() > before {
            connection.unread.use_up(before - start);
            let used = self.run(connection, &input[start..], output);
            connection.unread.add(&input[start + used..]);
        }
        input.truncate(start);
        self.input = input;
        goes_on
    }

    /// Receives the next piece of a long command into `unread`, and runs what is complete.
    fn receive_more(&mut self, connection: &mut Connection, output: &mut Vec<u8>) -> bool {
        let mut unread = std::mem::take(&mut connection.unread);
        let present = unread.len();
        let buffer = unread.buffer();
        // A buffer that is moved before it is full would be copied with the room behind its bytes,
        // which would take memory only then.
        if buffer.capacity() - buffer.len() < connection.missing.clamp(1, INPUT_BYTES) {
            buffer.reserve_exact(room_for(connection.missing, present).max(INPUT_BYTES));
        }
        let received = self.driver.receive(&connection.socket, buffer);
        let goes_on = self.note_received(connection, received);
        if self.is_over_query_limit(connection, unread.len()) {
            return false;
        }
        if unread.len() > present {
            let used = self.run(connection, unread.bytes(), output);
            unread.use_up(used);
        }
        connection.unread = unread;
        goes_on
    }

    /// Receives and runs nothing. Many clients send a whole pipeline before they read anything: if
    /// nothing were received from such a client, it would never begin to read.
    fn take_in(&mut self, connection: &mut Connection) -> TurnOutcome {
        if !connection.readable {
            return TurnOutcome::Stays;
        }
        let buffer = connection.unread.buffer();
        buffer.reserve(INPUT_BYTES);
        let received = self.driver.receive(&connection.socket, buffer);
        connection.has_commands |= !connection.unread.is_empty();
        // It may still read; if it is gone, sending will fail.
        self.note_received(connection, received);
        if self.is_over_query_limit(connection, connection.unread.len()) {
            return TurnOutcome::Ends;
        }
        if connection.readable { TurnOutcome::Ready } else { TurnOutcome::Stays }
    }

    /// Whether a client has sent more than may wait here. Counts it if so.
    fn is_over_query_limit(&self, connection: &Connection, unread: usize) -> bool {
        let mut most = self.engine().settings().port.query_limit.load(Ordering::Relaxed);
        if connection.session.user.is_none() {
            most = most.min(UNAUTHENTICATED_QUERY_BYTES);
        }
        let is_over = unread > most;
        if is_over {
            self.note_limit();
        }
        is_over
    }

    /// Counts what was received. False if the connection has ended.
    pub(super) fn note_received(
        &mut self,
        connection: &mut Connection,
        received: Received,
    ) -> bool {
        let (bytes, more) = match received {
            Received::More(bytes) => (bytes, true),
            Received::All(bytes) => (bytes, connection.ended),
            Received::End => {
                (connection.ended, connection.readable) = (true, false);
                return false;
            }
        };
        connection.readable = more;
        if bytes > 0 {
            count(&self.shared.counts(self.worker).received, bytes as u64);
            connection.client.last_seen.store(self.recently, Ordering::Relaxed);
        }
        true
    }

    /// Runs the commands at the start of the input; returns their length in it.
    pub(super) fn run(
        &mut self,
        connection: &mut Connection,
        input: &[u8],
        output: &mut Vec<u8>,
    ) -> usize {
        let mut args = std::mem::take(&mut self.args);
        let mut at = 0;
        let mut pace = Pace::default();
        // What other work on this thread has seen does not concern this connection.
        self.slot().take_seen();
        connection.has_commands = true;
        while connection.may_run()
            && output.len() <= OUTPUT_PAUSE
            && !self.alone.is_over()
            && !pace.is_over(self.at_once)
        {
            at += self.run_some(connection, &input[at..], &mut args, output);
            // Most reads end with a command.
            connection.has_commands &= at < input.len();
        }
        let seen = self.slot().take_seen();
        self.wait_for(connection, seen);
        self.args = args;
        at
    }

    /// Runs the next commands that can run together, or one that cannot.
    fn run_some(
        &mut self,
        connection: &mut Connection,
        input: &[u8],
        args: &mut ArgList,
        output: &mut Vec<u8>,
    ) -> usize {
        let limits = self.engine().settings().limits(usize::MAX);
        let parse_limits = request_limits(connection, &limits);
        let mut ahead = Ahead::default();
        let (_, stop) = self.take_commands(connection, input, args, &parse_limits, &mut ahead);
        if !ahead.is_empty() {
            if stop != Stop::End {
                // These come first; the command parsed last is parsed again.
                connection.parser = Default::default();
            }
            self.alone.interrupt();
            return self.run_ahead(connection, &ahead, &limits, output);
        }
        match stop {
            Stop::Alone { end } => {
                self.run_alone(connection, input, args, &limits, output);
                // A command that must be retried has not been run.
                let again = matches!(connection.state, State::Deferred | State::Again);
                if again { 0 } else { end }
            }
            Stop::Empty { end } => {
                // CLIENT REPLY SKIP counts it as a command.
                connection.session.begin_command();
                end
            }
            Stop::Incomplete { missing } => {
                connection.missing = missing;
                connection.has_commands = false;
                0
            }
            Stop::Malformed(error) => {
                if connection.session.wants_replies() {
                    connection.session.reply(output).error(&error.text());
                }
                connection.state = State::Closing;
                input.len()
            }
            Stop::End | Stop::Full => 0,
        }
    }

    /// Runs commands that go together; returns where the last one that ran ends.
    fn run_ahead(
        &self,
        connection: &mut Connection,
        ahead: &Ahead<'_>,
        limits: &Limits,
        output: &mut Vec<u8>,
    ) -> usize {
        let engine = &*self.shared.engine;
        let slot = engine.worker_slot(self.worker);
        let mut calls = ahead.calls(engine, connection.session.db, limits);
        let mut reply = connection.session.reply(output);
        let (done, outcome) = if ahead.len() == 1 {
            // A single command needs no preparation.
            match calls
                .clone()
                .next()
                .map(|call| engine.attempt(slot, &call, Taking::WORKER, &mut reply))
            {
                Some(Outcome::Done) => (1, Outcome::Done),
                other => (0, other.unwrap_or(Outcome::Busy)),
            }
        } else {
            let enough = reply.len() + HELD_OUTPUT;
            engine.attempt_run(slot, calls.clone(), &mut reply, |reply| reply.len() > enough)
        };
        slot.ran_at_once(done);
        count(&self.shared.counts(self.worker).commands, done as u64);
        note(ahead.named(done.min(ahead.len() - 1)), &connection.client);
        if outcome == Outcome::Done {
            return ahead.end_of(done - 1);
        }
        // This command could not run here and now.
        let Some(mut call) = calls.nth(done) else { return 0 };
        engine.go_on(slot, &mut call, outcome, &mut self.caller(connection, output));
        ahead.end_of(done)
    }

    /// Runs one command by itself. It may take any time, so it is timed.
    fn run_alone(
        &mut self,
        connection: &mut Connection,
        input: &[u8],
        args: &ArgList,
        limits: &Limits,
        output: &mut Vec<u8>,
    ) {
        let list: SmallVec<[&[u8]; 8]> = args.iter(input).collect();
        let list = Args::new(&list);
        connection.session.begin_command();
        let (said, began) = (output.len(), self.alone.command_begins());
        self.run_command(connection, &list, limits, output);
        self.alone.command_ended(began);
        if matches!(connection.state, State::Deferred | State::Again) {
            return connection.session.put_off_command();
        }
        if connection.session.is_muted() {
            output.truncate(said);
        }
        count(&self.shared.counts(self.worker).commands, 1);
    }
}
