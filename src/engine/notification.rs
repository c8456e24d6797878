//! Notification of changes, for those who listen at the host: keyspace notifications and
//! client-side caching.
//!
//! Whoever changes a key while somebody listens leaves the notifications, in the order of the
//! changes, before letting go of the shard. The main thread takes them to the host
//! when no token is in its hands: what the host does then may call our commands.
//!
//! Where changes come faster than it can tell of them, writes on the ports wait, jobs that write
//! pause, and keys expire later. The main thread itself never waits: it tells of its own changes
//! after each command.
//!
//! The keys of a flush are notifications for client-side caching only. Their names go to the main
//! thread as the memory is freed, a few at a time.

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
    /// Who made it.
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

/// Notification on their way to the host.
#[derive(Default)]
pub(super) struct NotificationQueue {
    pub(super) listening: AtomicBool,
    pub(super) tracked: AtomicBool,
    pub(super) waiting: Inbox<Notification>,
    /// Those that have been taken out of there, oldest first.
    pub(super) unsent: Mutex<VecDeque<Notification>>,
    /// How many have been told so far.
    pub(super) told: AtomicU64,
    /// What all that wait take, in bytes.
    pub(super) weight: AtomicUsize,
    /// Whether somebody has the right to send names of flushed keys.
    pub(super) names_permit: Arc<AtomicBool>,
}

/// The right to send names of flushed keys to the main thread: until it has told of
/// them nobody sends more, so that they cannot hold it up, nor pile up.
pub(super) struct NamesPermit(pub(super) Arc<AtomicBool>);

impl Drop for NamesPermit {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
