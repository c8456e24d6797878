//! Notifications of changes, for listeners at the host: keyspace notifications and client-side
//! caching.
//!
//! While a client listens, a thread that changes a key leaves its notifications before it releases
//! the shard, in the order of the changes. The main thread passes them to the host while it holds
//! no token, because the host may then call midi's commands. A worker wakes it at the end of its
//! turn, once for all.
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

use crate::command::Event;
use crate::engine::call::Author;
use crate::limits::{NOTIFICATION_OVERHEAD, NOTIFICATIONS_MAX_BYTES};
use crate::sync::{Inbox, Locked};

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
    fn weight(&self) -> usize {
        self.key.len() + NOTIFICATION_OVERHEAD
    }
}

/// Notifications on their way to the host.
#[derive(Default)]
pub struct Notifications {
    listening: AtomicBool,
    tracked: AtomicBool,
    waiting: Inbox<Notification>,
    /// Whether the main thread has been woken since its last turn began.
    announced: AtomicBool,
    /// Those taken out of `waiting`, oldest first. Not crossbeam's queue: only one thread has them.
    unsent: Mutex<VecDeque<Notification>>,
    /// How many have been sent so far.
    told: AtomicU64,
    /// The memory of all that wait, in bytes.
    weight: AtomicUsize,
    /// Whether a job holds the [`NamesPermit`].
    names_permit: Arc<AtomicBool>,
}

/// The right to send names of flushed keys to the main thread. It ends when these names have been
/// sent, so they can neither hold up the main thread nor pile up.
pub(in crate::engine) struct NamesPermit(Arc<AtomicBool>);

impl Drop for NamesPermit {
    fn drop(&mut self) {
        // Release: the next holder comes after the names that were sent.
        self.0.store(false, Ordering::Release);
    }
}

impl Notifications {
    /// Sets whether any client of the host listens.
    pub fn set_listening(&self, _: Locked<'_>, listening: bool) {
        self.listening.store(listening, Ordering::Relaxed);
    }

    /// Whether any client of the host listens.
    #[inline]
    pub fn is_listening(&self) -> bool {
        self.listening.load(Ordering::Relaxed)
    }

    /// Sets whether clients of the host may cache values, and so must be notified of keys that are
    /// gone.
    pub fn set_tracked(&self, _: Locked<'_>, tracked: bool) {
        self.tracked.store(tracked, Ordering::Relaxed);
    }

    /// Whether clients of the host may cache values.
    pub fn is_tracked(&self) -> bool {
        self.tracked.load(Ordering::Relaxed)
    }

    /// The right to send names of flushed keys, if it is free.
    pub(in crate::engine) fn may_name(&self) -> Option<NamesPermit> {
        let permit = &self.names_permit;
        (!permit.swap(true, Ordering::Acquire)).then(|| NamesPermit(Arc::clone(permit)))
    }

    /// Whether notifications wait to be sent.
    #[inline]
    pub fn are_waiting(&self) -> bool {
        self.weight.load(Ordering::Relaxed) > 0
    }

    /// The oldest notification that waits to be sent.
    pub fn next(&self, _: Locked<'_>) -> Option<Notification> {
        let mut unsent = self.unsent.lock();
        if unsent.is_empty() {
            *unsent = self.waiting.take();
        }
        let notification = unsent.pop_front()?;
        self.told.fetch_add(1, Ordering::Relaxed);
        self.weight.fetch_sub(notification.weight(), Ordering::Relaxed);
        Some(notification)
    }

    /// How many notifications there have ever been. All of them have been sent once
    /// [`Notifications::sent`] reaches this number.
    pub fn so_far(&self, _: Locked<'_>) -> u64 {
        let mut unsent = self.unsent.lock();
        unsent.extend(self.waiting.take());
        self.sent() + unsent.len() as u64
    }

    /// The main thread begins a turn, in which it looks whether any wait.
    pub fn turn_begins(&self, _: Locked<'_>) {
        if self.announced.load(Ordering::Relaxed) {
            // AcqRel: what was left before a thread found it set is seen in this turn.
            self.announced.swap(false, Ordering::AcqRel);
        }
    }

    /// Whether the main thread must be woken for those that wait: true once until its next turn.
    pub(in crate::engine) fn must_wake(&self) -> bool {
        self.are_waiting() && !self.announced.swap(true, Ordering::AcqRel)
    }

    /// How many notifications have been sent.
    pub fn sent(&self) -> u64 {
        self.told.load(Ordering::Relaxed)
    }

    /// Whether enough have been sent to make more.
    pub(super) fn have_room(&self) -> bool {
        self.weight.load(Ordering::Relaxed) <= NOTIFICATIONS_MAX_BYTES / 2
    }

    /// Adds one. True if there are too many now to make more.
    pub(super) fn add(&self, notification: Notification) -> bool {
        let weight = notification.weight();
        // Counted first: the thread that takes it must find it counted.
        let before = self.weight.fetch_add(weight, Ordering::Relaxed);
        // Woken at the end of the turn, if this is a worker.
        let _ = self.waiting.push(notification);
        before + weight >= NOTIFICATIONS_MAX_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::LOCKED;

    #[test]
    fn the_main_thread_is_woken_once_for_all_that_wait() {
        let notifications = Notifications::default();
        let add = || {
            let key = b"k"[..].into();
            notifications.add(Notification {
                author: Author::Nobody,
                db: 0,
                key,
                event: Event::SET,
            })
        };
        assert!(!notifications.must_wake());
        for _ in 0..2 {
            add();
            assert!(notifications.must_wake());
            add();
            assert!(!notifications.must_wake());
            notifications.turn_begins(LOCKED);
            while notifications.next(LOCKED).is_some() {}
        }
        // A worker ends its turn while the main thread has some of them already.
        add();
        notifications.turn_begins(LOCKED);
        assert_eq!(notifications.so_far(LOCKED), 5);
        assert!(notifications.must_wake());
        assert!(notifications.next(LOCKED).is_some());
        notifications.turn_begins(LOCKED);
        add();
        assert!(notifications.must_wake());
    }
}
