//! Notifications of changes, for listeners at the host: keyspace notifications and client-side
//! caching.
//!
//! While a client listens, a thread that changes a key leaves its notifications before it releases
//! the shard, in the order of the changes. The main thread passes them to the host while it holds
//! no token, because the host may then call midi's commands.
//!
//! If changes come faster than it can send them, writes on the ports wait, jobs that write pause,
//! and keys expire later. The main thread itself never waits: it sends its own notifications after
//! each command.
//!
//! A flush notifies client-side caching only. The names of its keys go to the main thread as their
//! memory is freed, a few at a time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::call::Author;
use crate::command::Event;
use crate::limits::NOTIFICATION_OVERHEAD;
use crate::sync::Inbox;

/// A change of a key.
pub struct Notification {
    /// The client that made it.
    pub author: Author,
    /// The database.
    pub db: u32,
    /// The key.
    pub key: Box<[u8]>,
    /// What happened.
    pub event: Event,
}

impl Notification {
    pub(super) fn weight(&self) -> usize {
        self.key.len() + NOTIFICATION_OVERHEAD
    }
}

/// Notifications on their way to the host.
#[derive(Default)]
pub(super) struct NotificationQueue {
    pub(super) listening: AtomicBool,
    pub(super) tracked: AtomicBool,
    pub(super) waiting: Inbox<Notification>,
    /// Those taken out of `waiting`, oldest first. Not crossbeam's queue: only one thread has them.
    pub(super) unsent: Mutex<VecDeque<Notification>>,
    /// How many have been sent so far.
    pub(super) told: AtomicU64,
    /// The memory of all that wait, in bytes.
    pub(super) weight: AtomicUsize,
    /// Whether a job holds the [`NamesPermit`].
    pub(super) names_permit: Arc<AtomicBool>,
}

/// The right to send names of flushed keys to the main thread. It ends when these names have been
/// sent, so they can neither hold up the main thread nor pile up.
pub(super) struct NamesPermit(pub(super) Arc<AtomicBool>);

impl Drop for NamesPermit {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
