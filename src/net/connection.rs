//! A connection: its socket, its unread input and unsent replies, its session.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::client::{Client, Key};
use super::resp::RequestParser;
use super::session::Session;
use crate::limits::INPUT_BYTES;

/// Whether a connection runs commands, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs them.
    Open,
    /// A command runs elsewhere; its reply will arrive as a message.
    Waiting,
    /// The host holds it up: it retries from time to time.
    Deferred,
    /// Other threads held the shards: it retries in the next turn.
    Again,
    /// It is closed after the remaining replies have been sent.
    Closing,
}

/// A connection.
pub struct Connection {
    /// Its own key.
    pub key: Key,
    /// Its socket.
    pub socket: OwnedFd,
    /// What other threads may read of it.
    pub client: Arc<Client>,
    /// Its user, and how it wants to be answered.
    pub session: Session,
    /// Whether it runs commands.
    pub state: State,
    /// There may be something to receive.
    pub readable: bool,
    /// The peer sends no more.
    pub ended: bool,
    /// Since when its command has waited for a shard that others hold.
    pub queued_since: Option<Instant>,
    /// It is in one of the queues of connections that can go on.
    pub is_ready: bool,
    /// Its last turn was a long one.
    pub is_heavy: bool,
    /// Parses `unread` into commands.
    pub parser: RequestParser,
    /// Received but not run.
    pub unread: Backlog,
    /// `unread` may hold whole commands.
    pub has_commands: bool,
    /// If not, at least this many bytes are still to come, as far as the input shows.
    pub missing: usize,
    /// Replies that have not been sent.
    pub unsent: Backlog,
    /// Replies of this turn are in the worker's buffer and will be sent at the end of the turn: see
    /// `net/send.rs`.
    pub has_outgoing: bool,
    /// Nothing is sent until the log is safe up to this position; 0 if nothing is held. See
    /// `net/held.rs`.
    pub waits_for: u64,
    /// Since when replies are held.
    pub held_since: Option<Instant>,
    /// Since when `unsent` is above the soft limit.
    pub over_soft_limit: Option<Instant>,
}

impl Connection {
    /// Whether it waits for a reply from another thread.
    pub fn is_waiting(&self) -> bool {
        self.state == State::Waiting
    }

    /// Whether its replies wait for the log.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.waits_for != 0
    }

    /// Whether its next command may run: there may be one, and all earlier replies are written.
    pub fn may_run(&self) -> bool {
        self.has_commands && self.state == State::Open && self.session.exec_replies.is_none()
    }

    /// Whether it can go on without a new event.
    pub fn can_go_on(&self) -> bool {
        !self.is_held()
            && (self.has_commands
                || self.readable
                || self.ended
                || self.session.exec_replies.is_some())
    }

    /// Whether its client seems to have left while a command waited for a shard.
    pub fn is_leaving(&self) -> bool {
        self.ended && self.queued_since.is_some()
    }

    /// Drops the input that has not been run.
    pub fn forget_commands(&mut self) {
        self.unread = Backlog::default();
        (self.has_commands, self.readable) = (false, false);
    }

    /// Publishes its condition for other threads.
    pub fn show_condition(&self) {
        let condition = &self.client.condition;
        condition.resp3.store(self.session.resp3, Ordering::Relaxed);
        condition.waiting.store(self.is_waiting(), Ordering::Relaxed);
        condition.closing.store(self.state == State::Closing, Ordering::Relaxed);
        condition
            .queued
            .store(self.session.queued().map_or(0, |queued| queued + 1), Ordering::Relaxed);
        condition.queued_bytes.store(self.session.queued_bytes(), Ordering::Relaxed);
        condition.unread.store(self.unread.len(), Ordering::Relaxed);
        condition.unread_memory.store(self.unread.capacity(), Ordering::Relaxed);
        condition.unsent.store(self.unsent.len(), Ordering::Relaxed);
        condition.unsent_memory.store(self.unsent.capacity(), Ordering::Relaxed);
    }

    /// Bytes of memory that its buffers take.
    pub fn buffered(&self) -> usize {
        self.unread.capacity() + self.unsent.capacity() + self.session.queued_bytes()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A forked child may have the socket open: closing alone would not end the connection.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        self.client.gone.store(true, Ordering::Relaxed);
        self.client.killed.store(true, Ordering::Relaxed);
    }
}

/// Bytes that are consumed from the front.
#[derive(Default)]
pub struct Backlog {
    bytes: Vec<u8>,
    from: usize,
}

/// Memory that an emptied backlog keeps.
const KEPT_BYTES: usize = 1024;

impl Backlog {
    /// A backlog of the bytes after `from`.
    pub fn of(bytes: Vec<u8>, from: usize) -> Self {
        Backlog { bytes, from }
    }

    /// The bytes that have not been consumed.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.from..]
    }

    /// The number of those bytes.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.from
    }

    /// Whether all bytes have been consumed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory it takes, in bytes.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Appends a copy of `bytes`.
    pub fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends bytes; without a copy if the backlog is empty.
    pub fn append(&mut self, bytes: Vec<u8>) {
        if self.is_empty() && bytes.len() > KEPT_BYTES {
            *self = Backlog::of(bytes, 0);
        } else {
            self.add(&bytes);
        }
    }

    /// The buffer, to append to. It still has the consumed bytes, up to half of it: only
    /// [`Backlog::use_up`] moves the rest, so that not every received piece moves bytes.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Consumes this many bytes from the front. Consumed bytes are removed when they are more than
    /// half of the buffer, so every byte is moved once at most.
    pub fn use_up(&mut self, bytes: usize) {
        self.from += bytes;
        if self.is_empty() {
            self.from = 0;
            if self.bytes.capacity() > KEPT_BYTES {
                self.bytes = Vec::new()
            } else {
                self.bytes.clear()
            }
        } else if self.from > self.bytes.len() / 2 {
            self.bytes.drain(..self.from);
            self.from = 0;
            // The beginning of a command does not keep the room of a long one before it.
            if self.bytes.capacity() / 4 > self.bytes.len().max(INPUT_BYTES) {
                self.bytes.shrink_to_fit();
            }
        }
    }
}
