//! A connection: its bytes, and its session.

use std::sync::atomic::Ordering;

use super::flow::State;
use super::protocol::Protocol;
use super::session::Session;
use super::transport::{Channel, Key};
use super::turn::TurnOutcome;
use crate::engine::Gates;

/// A connection.
pub struct Connection {
    /// Its own key.
    pub key: Key,
    /// Its bytes.
    pub channel: Channel,
    /// It is in one of the queues of connections that can go on.
    pub is_ready: bool,
    /// Its last turn was a long one.
    pub is_heavy: bool,
    /// Its user, its commands and how they are answered.
    pub session: Session,
}

impl Connection {
    /// A new one.
    pub fn new(key: Key, channel: Channel, session: Session) -> Self {
        // A handshake takes the time of a hundred commands.
        let is_heavy = channel.is_in_handshake();
        Connection { key, channel, is_ready: false, is_heavy, session }
    }

    /// Whether it can go on with what it has: commands, or replies that are owed.
    #[inline]
    pub fn has_more(&self) -> bool {
        self.session.flow().missing == 0
    }

    /// Whether it can go on without a new event.
    pub fn can_go_on(&self) -> bool {
        let channel = &self.channel;
        !channel.outgoing.is_held() && (self.has_more() || channel.readable || channel.ended)
    }

    /// Whether its client seems to have left while a command waited for a shard.
    pub fn is_leaving(&self) -> bool {
        self.channel.ended && self.session.flow().queued_since.is_some()
    }

    /// If it waits for something, and its client sends no more, the client may have left: a job for
    /// it may stop.
    pub fn note_leaving(&self) {
        let flow = self.session.flow();
        if self.channel.ended && flow.is_waiting() {
            flow.client.gone.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it is closing, and has been sent everything.
    pub fn is_finished(&self) -> bool {
        let channel = &self.channel;
        self.session.flow().state == State::Closing
            && channel.is_flushed()
            && !channel.outgoing.is_held()
    }

    /// What follows for it after its turn.
    pub fn outcome(&mut self) -> TurnOutcome {
        match self.session.flow().state {
            State::Deferred => TurnOutcome::Deferred,
            State::Again => {
                self.session.flow_mut().state = State::Open;
                TurnOutcome::Ready
            }
            State::Open if self.can_go_on() => TurnOutcome::Ready,
            _ if self.is_finished() => TurnOutcome::Ends,
            _ => TurnOutcome::Stays,
        }
    }

    /// It sends no more, or has sent too much: it is closed, but if the client has only ended its
    /// half of the connection, it may still read its replies.
    pub fn end_input(&mut self) -> TurnOutcome {
        if !self.channel.ended || self.channel.is_flushed() {
            return TurnOutcome::Ends;
        }
        self.session.flow_mut().state = State::Closing;
        self.channel.unread = Default::default();
        TurnOutcome::Stays
    }

    /// The host, whose gates these are, may hold it up no longer: its input is looked at again.
    /// False if it is to be closed.
    pub fn goes_on(&mut self, gates: Gates) -> bool {
        let goes_on = self.session.flow_mut().goes_on();
        if goes_on && self.channel.ended && gates.has(Gates::PAUSED.and(Gates::WRITES_PAUSED)) {
            // As in Redis: a client that leaves during a pause has none of its commands run.
            self.forget_input();
        }
        goes_on
    }

    /// Drops the input that has not been run.
    pub fn forget_input(&mut self) {
        self.channel.forget_input();
        self.session.flow_mut().missing = 1;
    }

    /// Publishes its condition for other threads.
    pub fn show_condition(&self) {
        self.session.show_condition();
        let (client, channel) = (&self.session.flow().client, &self.channel);
        let (gathered, memory) = self.session.gathered();
        let (unread, capacity) = (channel.unread.len() + gathered, channel.unread.capacity());
        client.condition.unread.store(unread, Ordering::Relaxed);
        client.condition.unread_memory.store(capacity + memory, Ordering::Relaxed);
        let unheard = self.session.unheard_bytes();
        client.condition.unsent.store(channel.unsent() + unheard, Ordering::Relaxed);
        client.condition.unsent_memory.store(channel.unsent_memory() + unheard, Ordering::Relaxed);
    }

    /// Bytes of memory that its buffers take.
    pub fn buffered(&self) -> usize {
        let session = &self.session;
        let of_session = session.gathered().1 + session.queued_bytes() + session.unheard_bytes();
        self.channel.buffered() + of_session
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let client = &self.session.flow().client;
        client.gone.store(true, Ordering::Relaxed);
        client.killed.store(true, Ordering::Relaxed);
    }
}
