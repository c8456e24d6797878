//! A connection: its socket, what it has sent and not yet been answered, who it is.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::client::{Client, Key};
use super::resp::RequestParser;
use super::session::Session;

/// Why a connection runs no further commands for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs them.
    Open,
    /// A command of its is on its way elsewhere, and its reply will come.
    Waiting,
    /// The host says to wait: it tries again from time to time.
    Deferred,
    /// Others were in the way: it tries again in the next turn.
    Again,
    /// What is left to send is sent, then it is closed.
    Closing,
}

/// A connection.
pub struct Connection {
    /// Itself.
    pub key: Key,
    /// Its socket.
    pub socket: OwnedFd,
    /// What others know of it.
    pub client: Arc<Client>,
    /// Who it is, and how it wants to be answered.
    pub session: Session,
    /// Whether it goes on.
    pub state: State,
    /// There may be something to receive.
    pub readable: bool,
    /// The other side sends no more.
    pub ended: bool,
    /// Since when its command has waited for a shard that others hold.
    pub queued_since: Option<Instant>,
    /// It stands in one of the lists of those that can go on.
    pub is_ready: bool,
    /// Its last turn was a long one.
    pub is_heavy: bool,
    /// Cuts `unread` into commands.
    pub parser: RequestParser,
    /// Received but not run.
    pub unread: Backlog,
    /// There may be whole commands in it.
    pub has_commands: bool,
    /// Where not, at least so many bytes are still to come, as far as the client tells.
    pub missing: usize,
    /// ExecReply but not sent.
    pub unsent: Backlog,
    /// Replies of this turn of its wait among all others', to be sent at its end: see
    /// `net/send.rs`.
    pub has_outgoing: bool,
    /// Since when `unsent` is above the soft limit.
    pub over_soft_limit: Option<Instant>,
}

impl Connection {
    /// Whether it waits for a reply from elsewhere.
    pub fn is_waiting(&self) -> bool {
        self.state == State::Waiting
    }

    /// Whether its next command may run: there may be one, and what came before it has been said.
    pub fn may_run(&self) -> bool {
        self.has_commands && self.state == State::Open && self.session.exec_replies.is_none()
    }

    /// Whether it need not wait for anything to happen to it.
    pub fn can_go_on(&self) -> bool {
        self.has_commands || self.readable || self.ended || self.session.exec_replies.is_some()
    }

    /// Whether its client seems to have left while a command of its waited for a shard.
    pub fn is_leaving(&self) -> bool {
        self.ended && self.queued_since.is_some()
    }

    /// Runs nothing of what it has sent and was not run.
    pub fn forget_commands(&mut self) {
        self.unread = Backlog::default();
        (self.has_commands, self.readable) = (false, false);
    }

    /// Lets others know how it is doing.
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

    /// Bytes that it holds in memory.
    pub fn buffered(&self) -> usize {
        self.unread.capacity() + self.unsent.capacity() + self.session.queued_bytes()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A forked child may have the socket open: closing it would end nothing.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        self.client.gone.store(true, Ordering::Relaxed);
        self.client.killed.store(true, Ordering::Relaxed);
    }
}

/// Bytes that are used up from the front.
#[derive(Default)]
pub struct Backlog {
    bytes: Vec<u8>,
    from: usize,
}

/// Memory that a used-up backlog keeps.
const KEPT_BYTES: usize = 1024;

impl Backlog {
    /// What stands behind `from`.
    pub fn of(bytes: Vec<u8>, from: usize) -> Self {
        Backlog { bytes, from }
    }

    /// What there is.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.from..]
    }

    /// How much that is.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.from
    }

    /// Whether it is nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory that it takes.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Adds at the end.
    pub fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The same without a copy, where there is nothing yet.
    pub fn append(&mut self, bytes: Vec<u8>) {
        if self.is_empty() && bytes.len() > KEPT_BYTES {
            *self = Backlog::of(bytes, 0);
        } else {
            self.add(&bytes);
        }
    }

    /// The buffer, to add at its end. What is used up is still there, up to a half: it is
    /// [`Backlog::use_up`] that moves the rest, so that no byte is moved for every piece that
    /// comes.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Takes so much from the front. What is used up goes when it is half of all, so
    /// every byte is moved once at most.
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
        }
    }
}
