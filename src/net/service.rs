//! How a worker serves its connections: received from, run, and sent their replies.
//!
//! ```text
//! take_up ─► members ─► run_members ─┬─ run_together: the commands of several ─┐
//!    receives          one or several └─ run_member: one, as long as it may ────┴─► outbox ─► send
//! ```
//!
//! Connections that have input at the same time are served together: all are received from, then
//! the commands of all run as those of one pipeline do. Where clients send one command and wait for
//! its reply, nothing else would fetch the memory of one command while another runs.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use slotmap::SlotMap;

use super::connection::Connection;
use super::flow::State;
use super::held::HeldConnections;
use super::protocol::{Kind, Protocol, Serving};
use super::resp::RespGroup;
use super::session::Session;
use super::shared::{Shared, count};
use super::transport::{Driver, Io, Key, Outbox, Sent};
use super::turn::{ThisTurn, TurnOutcome};
use super::worker::PortWorker;
use crate::limits::{GROUP_BYTES, INPUT_BYTES, UNAUTHENTICATED_OUTPUT_BYTES};

/// What a worker serves its connections with, whatever moves their bytes.
pub struct Service {
    /// The worker.
    pub worker: PortWorker,
    /// This turn.
    pub turn: ThisTurn,
    /// What the connections of this turn have said.
    pub outbox: Outbox,
    /// Connections whose replies wait for the log.
    pub held: HeldConnections,
    /// Connections that have been taken up.
    pub members: Vec<Member>,
    /// What those that run together have in common.
    pub like: Kind,
    /// What members have sent.
    pub input: Vec<u8>,
    /// Memory for parsing.
    pub scratch: <Session as Protocol>::Scratch,
}

/// A connection that has been taken up.
pub struct Member {
    /// The connection.
    pub key: Key,
    /// Where its input is.
    pub input: Input,
    /// Its range of the commands that run together; empty if it runs by itself.
    pub commands: Range<usize>,
    /// Its outcome: `Ends` until it has run, because its commands may panic.
    pub outcome: TurnOutcome,
}

/// The input of a member.
pub enum Input {
    /// A range of the worker's buffer.
    Received(Range<usize>),
    /// With the connection.
    Unread,
}

impl Service {
    /// For one worker.
    pub fn new(shared: Arc<Shared>, number: usize) -> Self {
        Service {
            worker: PortWorker { shared, number, subscribers: RefCell::default() },
            turn: ThisTurn::default(),
            outbox: Outbox::default(),
            held: HeldConnections::default(),
            members: Vec::new(),
            like: (0, false),
            input: Vec::with_capacity(INPUT_BYTES),
            scratch: Default::default(),
        }
    }

    /// Whether so many have been taken up that they should run.
    pub fn has_enough(&self) -> bool {
        self.input.len() >= GROUP_BYTES
    }

    /// The members from this one on have run.
    pub fn forget_members(&mut self, first: usize) {
        let received = self.members[first..].iter().find_map(|member| match &member.input {
            Input::Received(input) => Some(input.start),
            Input::Unread => None,
        });
        self.input.truncate(received.unwrap_or(self.input.len()));
        self.members.truncate(first);
    }

    /// The commands of a member have panicked.
    pub fn after_panic(&mut self) {
        self.outbox.clear();
        self.scratch = Default::default();
    }

    /// Runs the members from this one on, together if they are several. Their outcomes tell what
    /// follows for each.
    pub fn run_members(&mut self, first: usize, connections: &mut SlotMap<Key, Connection>) {
        if self.members.len() - first > 1 {
            self.run_together(first, connections);
        }
        for number in first..self.members.len() {
            let member = &self.members[number];
            if let Some(connection) = connections.get_mut(member.key)
                && member.commands.is_empty()
            {
                self.members[number].outcome = self.run_member(number, connection);
            }
        }
    }

    /// Runs a member by itself.
    fn run_member(&mut self, number: usize, connection: &mut Connection) -> TurnOutcome {
        let (said, session) = (self.outbox.said.end(), &mut connection.session);
        self.turn.timed.begin();
        let mut serving =
            Serving { worker: &self.worker, turn: &mut self.turn, output: &mut self.outbox.said };
        let unread = &mut connection.channel.unread;
        match &self.members[number].input {
            Input::Received(input) => {
                let bytes = &self.input[input.clone()];
                let used = session.run(&mut serving, &mut self.scratch, bytes);
                unread.add(&bytes[used..]);
            }
            Input::Unread => {
                session.say_owed(&mut serving);
                if session.flow().missing == 0 {
                    let used = session.run(&mut serving, &mut self.scratch, unread.bytes());
                    unread.use_up(used);
                }
            }
        }
        connection.is_heavy = self.turn.timed.is_heavy();
        let end = self.outbox.said.end();
        if self.outbox.said.len() > connection.session.flow().most_output {
            // The last reply was cut off.
            self.outbox.said.truncate(said);
            self.worker.note_limit();
            return TurnOutcome::Ends;
        }
        connection.channel.outgoing.say(connection.key, said..end, &mut self.outbox);
        end_turn(&self.worker, &mut self.held, connection)
    }

    /// Runs the commands of all members together whose commands can, as far as there is room.
    fn run_together(&mut self, first: usize, connections: &mut SlotMap<Key, Connection>) {
        let Service { worker, turn, outbox, held, members, like, input, scratch, .. } = self;
        let mut group = RespGroup::begin(worker, *like);
        for member in &mut members[first..] {
            let Some(connection) = connections.get_mut(member.key) else { continue };
            let Some(session) = connection.session.resp() else { continue };
            let Input::Received(received) = &member.input else { continue };
            member.commands = group.add(session, &input[received.clone()], scratch);
        }
        if !group.run(&mut outbox.said) {
            return;
        }
        for member in members[first..].iter_mut().filter(|member| !member.commands.is_empty()) {
            let Some(connection) = connections.get_mut(member.key) else { continue };
            let Input::Received(received) = &member.input else { continue };
            let Connection { key, channel, session, .. } = connection;
            let Some(session) = session.resp() else { continue };
            let output = &mut outbox.said;
            let mut serving = Serving { worker, turn, output };
            let Some(ran) = group.end(session, member.commands.clone(), &mut serving) else {
                worker.note_limit();
                continue;
            };
            channel.outgoing.say(*key, ran.replies, outbox);
            channel.outgoing.say(*key, ran.more, outbox);
            channel.unread.add(&input[received.clone()][ran.used..]);
            member.outcome = end_turn(worker, held, connection);
        }
    }

    /// Sends what a connection has to say, or keeps it for one that is held. `Ends` if the
    /// connection is broken, or was closing and has been sent everything, or does not read its
    /// replies.
    pub fn send<D: Driver>(&mut self, io: &mut Io<D>, connection: &mut Connection) -> TurnOutcome {
        match connection.channel.send(io, &self.outbox) {
            Sent::Broken => return TurnOutcome::Ends,
            Sent::Bytes(bytes) => {
                count(&self.worker.counts().sent, bytes as u64);
                count(&self.worker.counts().writes, 1);
                if bytes > 0 {
                    // Who reads a long reply, or has waited for one, is not idle.
                    let client = &connection.session.flow().client;
                    client.last_seen.store(self.turn.recently, Ordering::Relaxed);
                }
            }
        }
        if connection.is_finished() || self.is_over_output_limit(connection) {
            TurnOutcome::Ends
        } else {
            TurnOutcome::Stays
        }
    }

    /// Publishes the errors of this turn, before anybody can read them.
    #[inline]
    pub fn count_errors(&mut self) {
        if self.outbox.said.errors.total > 0 {
            let errors = std::mem::take(&mut self.outbox.said.errors);
            self.worker.engine().ledger.books.count_errors(errors);
        }
    }

    /// Publishes how many large values were sent.
    #[inline]
    pub fn count_large(&self) {
        let (sent, counts) = (self.outbox.said.counts, self.worker.counts());
        counts.large_sent.store(sent.values, Ordering::Relaxed);
        counts.large_sent_copied.store(sent.copied, Ordering::Relaxed);
    }

    /// Whether more replies and messages wait for a connection than may. Counts it if so.
    #[inline]
    pub fn is_over_output_limit(&self, connection: &mut Connection) -> bool {
        let unheard = connection.session.unheard_bytes();
        if connection.channel.is_flushed() && unheard == 0 {
            return false;
        }
        let settings = &self.worker.engine().settings().port;
        let (mut hard, soft) = if connection.session.is_subscriber() {
            let hard = settings.pubsub_hard.load(Ordering::Relaxed);
            let hard = if hard == 0 { usize::MAX } else { hard };
            (hard, settings.pubsub_soft.load(Ordering::Relaxed))
        } else {
            (settings.most_output(), settings.output_soft.load(Ordering::Relaxed))
        };
        if connection.session.access().user.is_none() {
            hard = hard.min(UNAUTHENTICATED_OUTPUT_BYTES);
        }
        let is_over = connection.channel.outgoing.is_over(unheard, hard, soft, self.turn.now);
        if is_over {
            self.worker.note_limit();
        }
        is_over
    }

    /// Sends what the connection with this number in the outbox has said.
    pub fn send_said<D: Driver>(
        &mut self,
        io: &mut Io<D>,
        number: usize,
        connection: &mut Connection,
    ) -> TurnOutcome {
        if number + 1 == self.outbox.keys.len() {
            connection.channel.outgoing.take_over(&mut self.outbox);
        }
        let outcome = self.send(io, connection);
        if !connection.channel.is_flushed() {
            connection.show_condition();
        }
        outcome
    }

    /// Sends the replies of a connection that was held.
    pub fn send_released<D: Driver>(
        &mut self,
        io: &mut Io<D>,
        connection: &mut Connection,
    ) -> TurnOutcome {
        let sent = self.send(io, connection);
        connection.show_condition();
        match sent {
            TurnOutcome::Stays if connection.session.flow().state == State::Open => {
                connection.outcome()
            }
            sent => sent,
        }
    }

    /// Whether a connection has been idle, or above the soft limit, for too long.
    pub fn is_overdue(&self, connection: &Connection) -> bool {
        let (settings, now) = (&self.worker.engine().settings().port, self.turn.now);
        let is_subscriber = connection.session.is_subscriber();
        let soft = if is_subscriber {
            &settings.pubsub_soft_seconds
        } else {
            &settings.output_soft_seconds
        };
        let soft = soft.load(Ordering::Relaxed) as u64;
        if connection.channel.outgoing.is_slow(now, Duration::from_secs(soft)) {
            return true;
        }
        let timeout = settings.timeout.load(Ordering::Relaxed) as u64;
        let session = &connection.session;
        let seen = session.flow().client.last_seen.load(Ordering::Relaxed);
        let idle = self.worker.shared.clock(now).saturating_sub(seen);
        let is_held_up = matches!(session.flow().state, State::Waiting | State::Deferred);
        let waits = is_held_up || connection.channel.outgoing.is_held();
        timeout > 0 && !waits && !is_subscriber && idle > timeout * 1000
    }
}

/// Ends the turn of a connection that has run; returns what follows for it.
fn end_turn(
    worker: &PortWorker,
    held: &mut HeldConnections,
    connection: &mut Connection,
) -> TurnOutcome {
    held.hold(worker, connection);
    connection.note_leaving();
    // Before the replies are sent: a client that has its reply may then look at CLIENT LIST.
    connection.show_condition();
    connection.outcome()
}
