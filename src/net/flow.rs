//! Whether a connection goes on, and what it waits for.

use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::client::Client;

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

/// The last that a connection wrote: what WAIT waits for.
pub struct LastWrite {
    /// Its position in the log; 0 if it was not logged.
    pub position: u64,
    /// How far a replica must have come in the host's stream to have it; `None` if that is not
    /// known. A replica that has acknowledged anything has what was written without a log: there
    /// was no stream then, so the replica was synced later.
    pub offset: Option<u64>,
}

/// The part of a session that is the same in every protocol.
pub struct Flow {
    /// What other threads may read of the connection.
    pub client: Arc<Client>,
    /// Whether it runs commands.
    pub state: State,
    /// At least this many bytes of its next command are still to come, as far as its unread input
    /// shows; 0 if that may hold whole commands.
    pub missing: usize,
    /// Since when its command has waited for a shard that others hold.
    pub queued_since: Option<Instant>,
    /// The position of the log that its replies must wait for from now on; 0 for none.
    seen: u64,
    /// The last that it wrote.
    pub last_write: LastWrite,
    /// The port's own command that waits for its reply, which is counted then.
    pub own_command: Option<usize>,
    /// The most bytes that the reply buffer may hold.
    pub most_output: usize,
    /// The client has asked for its own end, within EXEC: it comes after EXEC's replies.
    pub ends_after_exec: bool,
    /// Messages may come before the reply that it waits for: that of WAIT or WAITAOF.
    pub hears_meanwhile: bool,
}

impl Flow {
    /// Of a new connection.
    pub fn new(client: Arc<Client>) -> Self {
        Flow {
            client,
            state: State::Open,
            missing: 1,
            queued_since: None,
            seen: 0,
            last_write: LastWrite { position: 0, offset: Some(1) },
            own_command: None,
            most_output: usize::MAX,
            ends_after_exec: false,
            hears_meanwhile: false,
        }
    }

    /// Whether its next command may run: there may be one.
    #[inline]
    pub fn may_run(&self) -> bool {
        self.missing == 0 && self.state == State::Open
    }

    /// The host may hold it up no longer: its input is looked at again. False if it is to be
    /// closed, because its writes were taken back meanwhile.
    pub fn goes_on(&mut self) -> bool {
        if self.state == State::Closing {
            return false;
        }
        (self.state, self.missing) = (State::Open, 0);
        true
    }

    /// The reply of another thread has come.
    pub fn ends_waiting(&mut self) {
        if self.is_waiting() {
            self.state = State::Open;
        }
        self.most_output = usize::MAX;
        self.hears_meanwhile = false;
    }

    /// Whether it waits for a reply from another thread.
    pub fn is_waiting(&self) -> bool {
        self.state == State::Waiting
    }

    /// It may have written what is not in midi's log: keys of the host's.
    pub fn has_written_to_host(&mut self) {
        self.last_write.offset = None;
    }

    /// Its replies must wait for this position of the log; for none if it is 0.
    #[inline]
    pub fn wait_for(&mut self, position: u64) {
        if position != 0 {
            self.last_write = LastWrite { position, offset: None };
            self.seen = self.seen.max(position);
        }
    }

    /// The position that its replies must wait for from now on, if there is one.
    #[inline]
    pub fn take_seen(&mut self) -> Option<u64> {
        (self.seen != 0).then(|| take(&mut self.seen))
    }

    /// Publishes its condition for other threads.
    pub fn show_condition(&self, queued_bytes: usize) {
        let condition = &self.client.condition;
        condition.waiting.store(self.is_waiting(), Ordering::Relaxed);
        condition.closing.store(self.state == State::Closing, Ordering::Relaxed);
        condition.queued_bytes.store(queued_bytes, Ordering::Relaxed);
    }
}
