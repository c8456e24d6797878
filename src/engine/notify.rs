//! Leaving notifications of changes, and passing them to the host.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::call::Author;
use super::gates::Gates;
use super::notification::{NamesPermit, Notification};
use super::slot::ThreadSlot;
use super::state::Engine;
use crate::command::Event;
use crate::limits::NOTIFICATIONS_MAX_BYTES;
use crate::sync::Locked;

impl Engine {
    /// Sets whether any client of the host listens.
    pub fn set_listening(&self, _: Locked<'_>, listening: bool) {
        self.notifications.listening.store(listening, Ordering::Relaxed);
    }

    /// Whether any client of the host listens.
    #[inline]
    pub fn is_listening(&self) -> bool {
        self.notifications.listening.load(Ordering::Relaxed)
    }

    /// Sets whether clients of the host may cache values, and so must be notified of keys that are
    /// gone.
    pub fn set_tracked(&self, _: Locked<'_>, tracked: bool) {
        self.notifications.tracked.store(tracked, Ordering::Relaxed);
    }

    /// Whether clients of the host may cache values.
    pub fn is_tracked(&self) -> bool {
        self.notifications.tracked.load(Ordering::Relaxed)
    }

    /// The right to send names of flushed keys, if it is free.
    pub(super) fn may_name(&self) -> Option<NamesPermit> {
        let names_permit = &self.notifications.names_permit;
        (!names_permit.swap(true, Ordering::Acquire)).then(|| NamesPermit(Arc::clone(names_permit)))
    }

    /// Has the main thread send notifications of flushed keys; then the right to send more is free
    /// again.
    pub(super) fn send_names(&self, names: Vec<Box<[u8]>>, names_permit: NamesPermit) {
        self.send_main_task(Box::new(move |locked, engine, _| {
            names.iter().for_each(|key| engine.tell_flushed(locked, key));
            drop(names_permit);
        }));
    }

    /// Notifies clients that cache a key that it is gone.
    ///
    /// Caches know no databases, but WATCH does. So the host is notified for the last database,
    /// where it is least likely that a client has watched the key since.
    pub(super) fn tell_flushed(&self, locked: Locked<'_>, key: &[u8]) {
        self.tell(locked, &[self.config.databases - 1], key);
    }

    /// Whether notifications wait to be sent.
    #[inline]
    pub fn has_notifications(&self) -> bool {
        self.notifications.weight.load(Ordering::Relaxed) > 0
    }

    /// Whether too many notifications wait to make more.
    #[inline]
    pub fn has_notification_backlog(&self) -> bool {
        self.gates().has(Gates::NOTIFICATIONS)
    }

    /// The oldest notification that waits to be sent.
    pub fn next_notification(&self, _: Locked<'_>) -> Option<Notification> {
        let mut unsent = self.notifications.unsent.lock();
        if unsent.is_empty() {
            *unsent = self.notifications.waiting.take();
        }
        let notification = unsent.pop_front()?;
        self.notifications.told.fetch_add(1, Ordering::Relaxed);
        self.notifications.weight.fetch_sub(notification.weight(), Ordering::Relaxed);
        Some(notification)
    }

    /// How many notifications there have ever been. All of them have been sent once
    /// [`Engine::notifications_sent`] reaches this number.
    pub fn notifications_so_far(&self, _: Locked<'_>) -> u64 {
        let mut unsent = self.notifications.unsent.lock();
        unsent.extend(self.notifications.waiting.take());
        self.notifications_sent() + unsent.len() as u64
    }

    /// How many notifications have been sent.
    pub fn notifications_sent(&self) -> u64 {
        self.notifications.told.load(Ordering::Relaxed)
    }

    /// Opens the gate for notifications again, if enough have been sent.
    pub fn make_room_for_notifications(&self, _: Locked<'_>) {
        if self.has_notification_backlog()
            && self.notifications.weight.load(Ordering::Relaxed) <= NOTIFICATIONS_MAX_BYTES / 2
        {
            self.open_gate(Gates::NOTIFICATIONS);
        }
    }

    /// Leaves a notification. The shard is still held.
    pub(super) fn leave_notification(&self, author: Author, db: u32, key: &[u8], event: Event) {
        let notification = Notification { author, db, key: key.into(), event };
        // Counted first: the thread that takes it must find it counted.
        let before = self.notifications.weight.fetch_add(notification.weight(), Ordering::Relaxed);
        let is_much = before + notification.weight() >= NOTIFICATIONS_MAX_BYTES;
        // The main thread takes them with every completion.
        let _ = self.notifications.waiting.push(notification);
        if is_much && !self.has_notification_backlog() && self.close_gate(Gates::NOTIFICATIONS) {
            self.outside.wake_main();
        }
    }

    /// Notifications without a completion: the main thread must be woken for them.
    pub(super) fn announce_notifications(&self, slot: &ThreadSlot) {
        if !slot.is_main() {
            self.outside.wake_main();
        }
    }
}
