//! Taking a connection up for its turn: what it says first, and the input that it may run.

use std::sync::atomic::Ordering;

use super::accept::is_kept_out;
use super::connection::Connection;
use super::flow::State;
use super::protocol::{NextInput, Protocol, Serving};
use super::service::{Input, Member, Service};
use super::session::Session;
use super::shared::count;
use super::transport::{Driver, Ended, Io, room_for};
use super::turn::TurnOutcome;
use crate::limits::{
    EXPECTED_BYTES_MIN, INPUT_BYTES, LEFTOVER_BYTES, OUTPUT_PAUSE, READ_BYTES,
    UNAUTHENTICATED_QUERY_BYTES,
};

/// The result of taking a connection up.
pub enum TakenUp {
    /// It is a member, and may run with those before it and others.
    WithOthers,
    /// It is a member, and is to be run by itself.
    Alone,
    /// It has nothing to run.
    No(TurnOutcome),
}

impl Service {
    /// Takes a connection up for its turn: sends what it has said before, and receives once.
    pub fn take_up<D: Driver>(&mut self, io: &mut Io<D>, connection: &mut Connection) -> TakenUp {
        if connection.session.flow().client.killed.load(Ordering::Relaxed) {
            return TakenUp::No(TurnOutcome::Ends);
        }
        connection.is_heavy = connection.channel.is_in_handshake();
        self.held.hold(&self.worker, connection);
        // Send first: a connection that has not read its replies goes on only after they are sent.
        if !connection.channel.is_flushed() {
            if self.send(io, connection) == TurnOutcome::Ends {
                return TakenUp::No(TurnOutcome::Ends);
            }
            connection.show_condition();
        }
        match self.input_of(io, connection) {
            Ok(input) => self.add_member(connection, input),
            Err(outcome) => {
                connection.show_condition();
                TakenUp::No(outcome)
            }
        }
    }

    #[inline]
    fn add_member(&mut self, connection: &Connection, input: Input) -> TakenUp {
        let is_received = matches!(input, Input::Received(_));
        let (is_first, like) = (self.members.is_empty(), self.like);
        let kind =
            connection.session.kind().filter(|kind| is_received && (is_first || like == *kind));
        self.like = kind.unwrap_or(like);
        self.members.push(Member {
            key: connection.key,
            input,
            commands: 0..0,
            outcome: TurnOutcome::Ends,
        });
        if kind.is_some() { TakenUp::WithOthers } else { TakenUp::Alone }
    }

    /// Where the input is that a connection may run; what follows for it if there is none.
    fn input_of<D: Driver>(
        &mut self,
        io: &mut Io<D>,
        connection: &mut Connection,
    ) -> Result<Input, TurnOutcome> {
        if connection.session.flow().state != State::Open || connection.channel.outgoing.is_held() {
            let is_finished = connection.is_finished();
            return Err(if is_finished { TurnOutcome::Ends } else { TurnOutcome::Stays });
        }
        // A connection that does not read its replies gets no more of its commands run.
        if connection.channel.outgoing.unsent() > OUTPUT_PAUSE {
            return Err(self.take_in(io, connection));
        }
        if connection.channel.is_in_handshake() {
            return Err(self.shake_hands(io, connection));
        }
        if connection.has_more() {
            return Ok(Input::Unread);
        }
        if connection.channel.readable {
            return self.receive(io, connection);
        }
        Err(if connection.channel.ended { connection.end_input() } else { TurnOutcome::Stays })
    }

    /// Goes on with a TLS handshake. The client may be known by its certificate after it.
    fn shake_hands<D: Driver>(
        &mut self,
        io: &mut Io<D>,
        connection: &mut Connection,
    ) -> TurnOutcome {
        if !connection.channel.readable {
            return TurnOutcome::Stays;
        }
        let received = connection.channel.receive_more(io);
        if !self.note_received(connection, received) || self.is_over_query_limit(connection) {
            return TurnOutcome::Ends;
        }
        let Connection { channel, session, .. } = connection;
        if !channel.unread.is_empty() {
            session.flow_mut().missing = 0;
        }
        connection.is_heavy = channel.is_in_handshake();
        if !connection.is_heavy {
            return self.admit(io, connection);
        }
        connection.outcome()
    }

    /// A client has shaken hands: refuses it, or finds out who it is.
    fn admit<D: Driver>(&mut self, io: &mut Io<D>, connection: &mut Connection) -> TurnOutcome {
        let Connection { channel, session, .. } = connection;
        if is_kept_out(&self.worker.shared, session.flow().client.remote) {
            count(&self.worker.counts().refused, 1);
            session.flow_mut().state = State::Closing;
            channel.outgoing.say_only(Session::protected(session.flow().client.speaks).to_vec());
            return self.send(io, connection);
        }
        let server = self.worker.shared.tls.lock();
        let names = server.as_ref().and_then(|server| channel.new_names(server.name()));
        drop(server);
        if let Some(names) = names {
            let mut serving = Serving {
                worker: &self.worker,
                turn: &mut self.turn,
                output: &mut self.outbox.said,
            };
            session.certified(&mut serving, names);
        }
        connection.outcome()
    }

    fn receive<D: Driver>(
        &mut self,
        io: &mut Io<D>,
        connection: &mut Connection,
    ) -> Result<Input, TurnOutcome> {
        let most = match connection.session.next_input() {
            NextInput::Common(most) => most,
            NextInput::Large(_) => self.receive_large(io, connection)?,
        };
        let most = most.saturating_sub(connection.channel.unread.len()).max(EXPECTED_BYTES_MIN);
        // The beginning of a long command is not moved again for every piece of it.
        if connection.channel.unread.len() > LEFTOVER_BYTES {
            return self.receive_more(io, connection);
        }
        // After what other members have there.
        let start = self.input.len();
        self.input.extend_from_slice(connection.channel.unread.bytes());
        self.input.reserve(READ_BYTES);
        let before = self.input.len();
        let received = connection.channel.receive(io, &mut self.input, most);
        let goes_on = self.note_received(connection, received);
        if self.input.len() == before {
            self.input.truncate(start);
            return Err(if goes_on { connection.outcome() } else { connection.end_input() });
        }
        connection.channel.unread.use_up(before - start);
        Ok(Input::Received(start..self.input.len()))
    }

    /// Receives the next piece of a large argument into its own buffer. Returns how much to receive
    /// behind it in the same turn, which with TLS is all: the piece comes in records with the rest.
    fn receive_large<D: Driver>(
        &mut self,
        io: &mut Io<D>,
        connection: &mut Connection,
    ) -> Result<usize, TurnOutcome> {
        let Connection { channel, session, .. } = connection;
        let mut is_whole = true;
        if channel.tls().is_none()
            && let NextInput::Large(large) = session.next_input()
        {
            let received = channel.receive_large(io, large);
            is_whole = large.missing() == 0;
            if !self.note_received(connection, received) {
                return Err(connection.end_input());
            }
        }
        if self.is_over_query_limit(connection) {
            return Err(connection.end_input());
        }
        if !is_whole || !connection.channel.readable {
            connection.show_condition();
            return Err(connection.outcome());
        }
        Ok(match connection.session.next_input() {
            NextInput::Common(most) => most,
            NextInput::Large(_) => usize::MAX,
        })
    }

    /// Receives the next piece of a long command into `unread`.
    fn receive_more<D: Driver>(
        &mut self,
        io: &mut Io<D>,
        connection: &mut Connection,
    ) -> Result<Input, TurnOutcome> {
        let (present, missing) =
            (connection.channel.unread.len(), connection.session.flow().missing);
        let buffer = connection.channel.unread.buffer();
        // A buffer that is moved before it is full would be copied with the room behind its bytes,
        // which would take memory only then.
        if buffer.capacity() - buffer.len() < missing.clamp(1, INPUT_BYTES) {
            buffer.reserve_exact(room_for(missing, present).max(INPUT_BYTES));
        }
        let received = connection.channel.receive_more(io);
        let goes_on = self.note_received(connection, received);
        if !goes_on || self.is_over_query_limit(connection) {
            return Err(connection.end_input());
        }
        if connection.channel.unread.len() == present {
            return Err(connection.outcome());
        }
        connection.session.flow_mut().missing = 0;
        Ok(Input::Unread)
    }

    /// Receives for a connection that runs nothing. Many clients send a whole pipeline before they
    /// read anything: if nothing were received from such a client, it would never begin to read.
    fn take_in<D: Driver>(&mut self, io: &mut Io<D>, connection: &mut Connection) -> TurnOutcome {
        if !connection.channel.readable {
            return TurnOutcome::Stays;
        }
        let buffer = connection.channel.unread.buffer();
        buffer.reserve(INPUT_BYTES);
        let received = connection.channel.receive_more(io);
        if !connection.channel.unread.is_empty() {
            connection.session.flow_mut().missing = 0;
        }
        // It may still read; if it is gone, sending will fail.
        self.note_received(connection, received);
        if self.is_over_query_limit(connection) {
            return connection.end_input();
        }
        if connection.channel.readable { TurnOutcome::Ready } else { TurnOutcome::Stays }
    }

    /// Whether a client has sent more than may wait here. Counts it if so.
    fn is_over_query_limit(&self, connection: &Connection) -> bool {
        let mut most = self.worker.engine().settings().port.query_limit.load(Ordering::Relaxed);
        if connection.session.access().user.is_none() {
            most = most.min(UNAUTHENTICATED_QUERY_BYTES);
        }
        let is_over = connection.channel.unread.len() + connection.session.gathered().0 > most;
        if is_over {
            self.worker.note_limit();
        }
        is_over
    }

    /// Counts the bytes that were received. False if the connection has ended.
    fn note_received(&self, connection: &Connection, received: Result<usize, Ended>) -> bool {
        if let Ok(bytes @ 1..) = received {
            count(&self.worker.counts().received, bytes as u64);
            count(&self.worker.counts().reads, 1);
            let client = &connection.session.flow().client;
            client.last_seen.store(self.turn.recently, Ordering::Relaxed);
        }
        received.is_ok()
    }
}
