//! Connections that have input at the same time are served together: all are received from, then
//! the commands of all run as those of one pipeline do (see `run.rs`). Where clients send one
//! command and wait for its reply, nothing else would fetch the memory of one command while another
//! runs.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrayvec::ArrayVec;
use slotmap::SlotMap;
use smallvec::SmallVec;

use super::ahead::Ahead;
use super::client::Key;
use super::connection::{Connection, State};
use super::driver::{Driver, Received};
use super::named::note;
use super::plan::{Stop, request_limits};
use super::resp::RespReply;
use super::service::{Service, TurnOutcome};
use super::shared::count;
use crate::engine::Outcome;
use crate::limits::{AHEAD, GROUP_BYTES, HELD_OUTPUT, LEFTOVER_BYTES, READ_BYTES};

/// What gathering a connection resulted in.
pub enum Gathered {
    /// It must be served by itself.
    No,
    /// It is in the group.
    Yes,
    /// It is in the group, and the group is large enough.
    Full,
    /// It has ended.
    End,
}

/// Connections that were received from and not served yet.
#[derive(Default)]
pub struct Group {
    members: Vec<Member>,
    /// The database and whether RESP3 is spoken: equal for all members.
    like: (u32, bool),
    outcomes: Vec<(Key, TurnOutcome)>,
}

impl Group {
    /// The connections in the group.
    pub fn keys(&self) -> SmallVec<[Key; 32]> {
        self.members.iter().map(|member| member.key).collect()
    }

    /// The outcomes of the connections that were served. Return the list with
    /// [`Group::give_back_outcomes`].
    pub fn take_outcomes(&mut self) -> Vec<(Key, TurnOutcome)> {
        std::mem::take(&mut self.outcomes)
    }

    /// Returns the emptied list, so that its memory is reused.
    pub fn give_back_outcomes(&mut self, outcomes: Vec<(Key, TurnOutcome)>) {
        self.outcomes = outcomes;
    }
}

struct Member {
    key: Key,
    /// What it has sent, in the worker's buffer.
    input: Range<usize>,
    /// Its range of the commands that run together; empty if it is served by itself after all.
    commands: Range<usize>,
}

impl<D: Driver> Service<D> {
    /// Receives from a connection that may be served with others. All in a group speak one protocol
    /// and are in one database.
    pub fn gather(&mut self, group: &mut Group, connection: &mut Connection) -> Gathered {
        let fits = connection.state == State::Open
            && connection.readable
            && !connection.client.killed.load(Ordering::Relaxed)
            && connection.session.exec_replies.is_none()
            && !connection.ended
            && !connection.has_commands
            && !connection.has_outgoing
            && connection.unsent.is_empty()
            && !connection.is_held()
            && connection.unread.len() <= LEFTOVER_BYTES
            && connection.session.is_plain()
            && (group.members.is_empty() || group.like == connection.session.kind());
        if !fits {
            return Gathered::No;
        }
        let start = self.input.len();
        self.input.extend_from_slice(connection.unread.bytes());
        // A panic may have dropped the buffer.
        self.input.reserve(READ_BYTES);
        let before = self.input.len();
        let received = self.driver.receive(&connection.socket, &mut self.input);
        if received == Received::End || !self.note_received(connection, received) {
            self.input.truncate(start);
            return Gathered::End;
        }
        if self.input.len() == before {
            self.input.truncate(start);
            return Gathered::Yes;
        }
        connection.unread.use_up(before - start);
        group.like = connection.session.kind();
        group.members.push(Member {
            key: connection.key,
            input: start..self.input.len(),
            commands: 0..0,
        });
        if self.input.len() >= GROUP_BYTES { Gathered::Full } else { Gathered::Yes }
    }

    /// Serves the group; [`Group::take_outcomes`] has the outcomes.
    pub fn serve_group(&mut self, group: &mut Group, connections: &mut SlotMap<Key, Connection>) {
        let mut members = std::mem::take(&mut group.members);
        let input = std::mem::take(&mut self.input);
        let mut output = std::mem::take(&mut self.output);
        if members.len() > 1 {
            self.run_members(group, connections, &mut members, &input, &mut output);
        }
        for member in members.iter().filter(|member| member.commands.is_empty()) {
            let Some(connection) = connections.get_mut(member.key) else { continue };
            let said = output.len();
            let bytes = &input[member.input.clone()];
            self.limit_output(connection, said);
            self.alone.begin();
            let used = self.run(connection, bytes, &mut output);
            self.note_weight(connection);
            connection.unread.add(&bytes[used..]);
            if self.has_too_much_output(connection, said, &mut output) {
                connection.state = State::Closing;
            }
            self.finish(group, connection, said..output.len());
        }
        members.clear();
        group.members = members;
        self.input = input;
        self.input.clear();
        self.output = output;
    }

    /// Runs the commands of all members whose commands can run together, as far as there is room.
    fn run_members(
        &mut self,
        group: &mut Group,
        connections: &mut SlotMap<Key, Connection>,
        members: &mut [Member],
        input: &[u8],
        output: &mut Vec<u8>,
    ) {
        let limits = self.engine().settings().limits(usize::MAX);
        let mut ahead = Ahead::default();
        for member in members.iter_mut() {
            let Some(connection) = connections.get_mut(member.key) else { continue };
            let first = ahead.len();
            ahead.begin_another(connection);
            let parse_limits = request_limits(connection, &limits);
            let mine = &input[member.input.clone()];
            let mut args = std::mem::take(&mut self.args);
            let (_, stop) =
                self.take_commands(connection, mine, &mut args, &parse_limits, &mut ahead);
            self.args = args;
            if stop != Stop::End {
                ahead.truncate(first);
                connection.parser = Default::default();
            }
            member.commands = first..ahead.len();
        }
        if ahead.is_empty() {
            return;
        }
        // Where each command's reply ends.
        let mut ends: ArrayVec<usize, AHEAD> = ArrayVec::new();
        let (start, (db, resp3)) = (output.len(), group.like);
        let shared = Arc::clone(&self.shared);
        let engine = &*shared.engine;
        let mut calls = ahead.calls(engine, db, &limits);
        let most = engine.settings().port.most_output().saturating_add(start + HELD_OUTPUT);
        let mut reply = RespReply::new(output, resp3).up_to(most);
        self.slot().take_seen();
        let (done, outcome) = engine.attempt_run(self.slot(), calls.clone(), &mut reply, |reply| {
            ends.push(reply.len());
            reply.len() > start + HELD_OUTPUT
        });
        let seen = self.slot().take_seen();
        // If so, the last reply is the one that was cut off.
        let is_cut = output.len() > most;
        self.slot().ran_at_once(done);
        count(&self.shared.counts(self.worker).commands, done as u64);
        for member in members.iter().filter(|member| !member.commands.is_empty()) {
            let Some(connection) = connections.get_mut(member.key) else { continue };
            let (first, end) = (member.commands.start, member.commands.end);
            let ran = end.min(done).max(first);
            let before = |command: usize| if command == 0 { start } else { ends[command - 1] };
            let said = if ran > first { before(first)..before(ran) } else { 0..0 };
            note(ahead.named(ran.max(first + 1) - 1), &connection.client);
            // All of the group have one position. Those that only read need not wait for what the
            // others have written, unless reads wait at all.
            if seen != 0
                && (engine.ledger.log.reads_wait()
                    || (first..ran).any(|number| ahead.writes(number)))
            {
                self.wait_for(connection, seen);
            }
            let mut used = if ran > first { ahead.end_of(ran - 1) } else { 0 };
            if is_cut && ran > first && ran == done {
                self.note_limit();
                connection.state = State::Closing;
                self.finish(group, connection, 0..0);
                continue;
            }
            self.put_in_outbox(connection, said);
            if ran < end && ran == done && outcome != Outcome::Done {
                // This command could not run here and now.
                let said = output.len();
                if let Some(mut call) = calls.nth(done) {
                    engine.go_on(
                        self.slot(),
                        &mut call,
                        outcome,
                        &mut self.caller(connection, output),
                    );
                    used = ahead.end_of(done);
                }
                self.put_in_outbox(connection, said..output.len());
            }
            connection.unread.add(&input[member.input.clone()][used..]);
            connection.has_commands = ran < end;
            self.finish(group, connection, 0..0);
        }
    }

    fn finish(&mut self, group: &mut Group, connection: &mut Connection, said: Range<usize>) {
        connection.show_condition();
        self.put_in_outbox(connection, said);
        let is_told =
            !connection.has_outgoing && connection.unsent.is_empty() && !connection.is_held();
        let outcome = match connection.state {
            State::Closing if is_told => TurnOutcome::Ends,
            _ => self.outcome_of(connection),
        };
        group.outcomes.push((connection.key, outcome));
    }
}
