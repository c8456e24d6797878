//! Messages for the host's main thread.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::Host;
use crate::engine::Engine;
use crate::engine::jobs::JobReply;
use crate::engine::request::Request;
use crate::sync::{Inbox, Locked};

/// A message to the host's main thread.
pub enum ForMain {
    /// A client's command has its reply.
    Answer(Box<Request>),
    /// Only the main thread can go on with this command.
    Run(Box<Request>),
    /// Run this task.
    Task(MainTask),
    /// Run this task, which writes to keys.
    Write(MainTask),
    /// Run this task, with the host even while it is busy with a script: the task ends that one, or
    /// asks about it.
    Interrupt(MainTask),
    /// There are runs in the tail of the log.
    Log,
    /// A job's reply, for a client of the host's door, is to be finished once this position is
    /// logged.
    Finish(u64, Box<dyn JobReply>),
}

/// A task that only the holder of the host's global lock can do. If the host is busy with a script
/// that takes too long, the task gets no host, and must answer that.
pub type MainTask = Box<dyn FnOnce(Locked<'_>, &Engine, Option<&dyn Host>) + Send>;

/// Messages for the host's main thread. Any thread may leave one; the holder of the global lock
/// takes them out.
#[derive(Default)]
pub struct MainInbox {
    inbox: Inbox<ForMain>,
    /// Those that have been taken out, each with the position that must be logged before.
    unlogged: Mutex<Vec<(u64, ForMain)>>,
}

impl MainInbox {
    /// Leaves a message. True when the caller must wake the main thread.
    #[must_use]
    pub(super) fn push(&self, message: ForMain) -> bool {
        self.inbox.push(message)
    }

    /// Leaves several messages, the oldest first. True when the caller must wake the main thread.
    #[must_use]
    pub(super) fn push_all(&self, messages: impl Iterator<Item = ForMain>) -> bool {
        self.inbox.push_all(messages)
    }

    /// Whether there is no message.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.inbox.is_empty()
    }

    /// Whether the main thread has announced that it sleeps.
    pub fn is_asleep(&self) -> bool {
        self.inbox.is_asleep()
    }

    /// Takes all messages, the oldest first.
    pub fn take(&self, _: Locked<'_>) -> VecDeque<ForMain> {
        self.inbox.take()
    }

    /// See [`Inbox::may_sleep`].
    pub fn may_sleep(&self, _: Locked<'_>) -> bool {
        self.inbox.may_sleep()
    }

    /// See [`Inbox::awake`].
    pub fn awake(&self, _: Locked<'_>) {
        self.inbox.awake();
    }

    /// Keeps a message until this position is logged.
    pub fn keep_until_logged(&self, position: u64, message: ForMain) {
        self.unlogged.lock().push((position, message));
    }

    /// Takes the kept messages whose positions have been logged, the oldest first.
    pub fn take_logged(&self, _: Locked<'_>, logged: u64) -> Vec<ForMain> {
        let mut kept = self.unlogged.lock();
        kept.extract_if(.., |(position, _)| *position <= logged).map(|(_, it)| it).collect()
    }
}
