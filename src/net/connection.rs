//! A connection: its socket, its unread input, what it has to say, its session.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use super::backlog::Backlog;
use super::client::Key;
use super::outgoing::Outgoing;
use super::session::{Session, State};
use super::turn::TurnOutcome;

/// A connection.
pub struct Connection {
    /// Its own key.
    pub key: Key,
    /// Its socket.
    pub socket: OwnedFd,
    /// There may be something to receive.
    pub readable: bool,
    /// It is in one of the queues of connections that can go on.
    pub is_ready: bool,
    /// Its last turn was a long one.
    pub is_heavy: bool,
    /// Received but not run.
    pub unread: Backlog,
    /// What it has to say.
    pub outgoing: Outgoing,
    /// Its user, its commands and how they are answered.
    pub session: Session,
}

impl Connection {
    /// A new one.
    pub fn new(key: Key, socket: OwnedFd, session: Session) -> Self {
        Connection {
            key,
            socket,
            readable: false,
            is_ready: false,
            is_heavy: false,
            unread: Backlog::default(),
            outgoing: Outgoing::default(),
            session,
        }
    }

    /// Whether it can go on without a new event.
    pub fn can_go_on(&self) -> bool {
        !self.outgoing.is_held() && (self.session.has_more() || self.readable || self.session.ended)
    }

    /// Whether it is closing, and has been sent everything.
    pub fn is_finished(&self) -> bool {
        self.session.state == State::Closing && self.outgoing.is_idle()
    }

    /// What follows for it after its turn.
    pub fn outcome(&mut self) -> TurnOutcome {
        match self.session.state {
            State::Deferred => TurnOutcome::Deferred,
            State::Again => {
                self.session.state = State::Open;
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
        if !self.session.ended || self.outgoing.is_empty() {
            return TurnOutcome::Ends;
        }
        self.session.state = State::Closing;
        self.unread = Backlog::default();
        TurnOutcome::Stays
    }

    /// Drops the input that has not been run.
    pub fn forget_input(&mut self) {
        self.unread = Backlog::default();
        self.readable = false;
        self.session.missing = 1;
    }

    /// Publishes its condition for other threads.
    pub fn show_condition(&self) {
        self.session.show_condition();
        let condition = &self.session.client.condition;
        condition.unread.store(self.unread.len(), Ordering::Relaxed);
        condition.unread_memory.store(self.unread.capacity(), Ordering::Relaxed);
        condition.unsent.store(self.outgoing.unsent(), Ordering::Relaxed);
        condition.unsent_memory.store(self.outgoing.capacity(), Ordering::Relaxed);
    }

    /// Bytes of memory that its buffers take.
    pub fn buffered(&self) -> usize {
        self.unread.capacity() + self.outgoing.capacity() + self.session.queued_bytes()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A forked child may have the socket open: closing alone would not end the connection.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        self.session.client.gone.store(true, Ordering::Relaxed);
        self.session.client.killed.store(true, Ordering::Relaxed);
    }
}
