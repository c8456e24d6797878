//! Messages for the main thread: those of its inbox, and those that must wait. For `turn`.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::{Flag, part};
use crate::engine::{Engine, ForMain, Locked};

part! {
    /// Messages for the main thread.
    pub struct Messages {
        /// Messages taken out of its inbox that have not been handled.
        pub waiting: Mutex<PendingMessages> = Mutex::new(PendingMessages {
            messages: VecDeque::new(), notifications: 0, batch: 0,
        }),
        /// Whether there are any, readable without the lock.
        pub has_waiting: Flag = Flag::new(false),
        /// The host door's own completions that came while the main loop was kept from turning.
        put_off: Mutex<VecDeque<ForMain>> = Mutex::new(VecDeque::new()),
        has_put_off: Flag = Flag::new(false),
        /// Writes that wait for the end of a pause: at most one of each client.
        paused: Mutex<VecDeque<ForMain>> = Mutex::new(VecDeque::new()),
        has_paused: Flag = Flag::new(false),
    }
}

/// Messages to be handled, oldest first. Not crossbeam's queue: only the main thread has them.
pub struct PendingMessages {
    messages: VecDeque<ForMain>,
    /// The host has been notified of their senders' changes once this many notifications are sent.
    pub notifications: u64,
    /// How many times messages have been taken.
    pub batch: u64,
}

impl Messages {
    /// Takes the messages that have come, once those before them have been handled.
    #[inline]
    pub fn take_new(&self, engine: &Engine, locked: Locked<'_>) {
        if self.has_paused.get() && !engine.ledger.admission.are_workers_paused() {
            self.has_paused.set(false);
            let paused = std::mem::take(&mut *self.paused.lock());
            paused.into_iter().for_each(|message| self.put_off(message));
        }
        let has_put_off = self.has_put_off.get();
        let has_new = !engine.context().main.is_empty() && !self.has_waiting.get();
        if !has_put_off && !has_new {
            return;
        }
        let mut waiting = self.waiting.lock();
        if has_put_off {
            self.has_put_off.set(false);
            // They came before all others.
            let mut put_off = std::mem::take(&mut *self.put_off.lock());
            put_off.append(&mut waiting.messages);
            waiting.messages = put_off;
        } else if waiting.messages.is_empty() {
            waiting.messages = engine.context().main.take(locked);
        }
        waiting.batch += 1;
        // Read afterwards: a sender leaves its notifications before it sends its message.
        waiting.notifications = engine.ledger.notifications.so_far(locked);
        self.has_waiting.set(!waiting.messages.is_empty());
    }

    /// Takes the oldest message.
    pub fn next(&self) -> Option<ForMain> {
        let mut waiting = self.waiting.lock();
        let message = waiting.messages.pop_front();
        self.has_waiting.set(!waiting.messages.is_empty());
        message
    }

    /// The next message, including those that have just come.
    pub fn next_of_all(&self, engine: &Engine, locked: Locked<'_>) -> Option<ForMain> {
        self.next().or_else(|| {
            let mut waiting = self.waiting.lock();
            waiting.messages = engine.context().main.take(locked);
            waiting.batch += 1;
            drop(waiting);
            self.next()
        })
    }

    /// Has a write wait for the end of a pause.
    pub fn wait_for_pause(&self, message: ForMain) {
        self.paused.lock().push_back(message);
        self.has_paused.set(true);
    }

    /// Has a message wait for the next turn of the main loop.
    pub fn put_off(&self, message: ForMain) {
        self.put_off.lock().push_back(message);
        self.has_put_off.set(true);
    }
}
