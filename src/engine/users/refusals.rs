//! Refusals of users, on their way to the host's log (ACL LOG). A client can be refused as fast
//! as it can send. So a repeated refusal counts once while the first one waits, and the list has a
//! limit. Between two ticks of the host's cron, the main thread reports no more than the log keeps,
//! because more would only push each other out.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::user::{Denied, User};
use crate::command::Args;
use crate::limits::{REFUSALS_PER_TURN, REFUSALS_WAITING, REFUSED_NAME_BYTES};

/// Something that a user was refused.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The user's name.
    pub user: Box<[u8]>,
    /// The command or the key that was refused; for a password, the command that sent it.
    pub object: Box<[u8]>,
    /// The kind of refusal.
    pub reason: RefusalReason,
}

impl Refusal {
    /// A refusal of a command of this name.
    pub fn new(user: &User, denied: Denied, name: &str, args: &Args<'_>) -> Self {
        let (object, reason) = match denied {
            Denied::Key(at) => (args.get(at), RefusalReason::Key),
            Denied::Channel(at) => (args.get(at), RefusalReason::Channel),
            Denied::Part(name) => (name.as_bytes(), RefusalReason::Command),
            Denied::Command | Denied::Database => (name.as_bytes(), RefusalReason::Command),
        };
        Refusal { user: user.name.clone(), object: beginning(object).into(), reason }
    }

    /// A refused login by this name.
    pub fn of_login(name: &[u8]) -> Self {
        Refusal::of_nobody(name, b"AUTH")
    }

    /// A certificate that names no user that may log in; its first name, if it has one.
    pub fn of_certificate(name: &[u8]) -> Self {
        Refusal::of_nobody(name, b"TLS certificate")
    }

    fn of_nobody(name: &[u8], how: &[u8]) -> Self {
        Refusal { user: beginning(name).into(), object: how.into(), reason: RefusalReason::Auth }
    }
}

fn beginning(name: &[u8]) -> &[u8] {
    &name[..name.len().min(REFUSED_NAME_BYTES)]
}

/// Kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// A wrong password.
    Auth,
    /// A command that the user may not call.
    Command,
    /// A key that the user may not touch.
    Key,
    /// A channel that the user may not use.
    Channel,
}

/// Refusals that have not been reported to the host.
#[derive(Default)]
pub(in crate::engine) struct Refusals {
    waiting: Mutex<PendingRefusals>,
    /// Whether the list is full; read without the lock.
    is_full: AtomicBool,
}

struct PendingRefusals {
    /// In order. Not crossbeam's queue: each refusal is compared with those that wait.
    list: VecDeque<Refusal>,
    /// The main thread has been called, and will take them.
    called: bool,
    /// How many more may be reported before the next tick.
    allowed: usize,
}

impl Default for PendingRefusals {
    fn default() -> Self {
        PendingRefusals { list: VecDeque::new(), called: false, allowed: REFUSALS_WAITING }
    }
}

impl PendingRefusals {
    /// Whether the main thread must be called. It counts as called then.
    fn call(&mut self) -> bool {
        let may_report = self.allowed > 0 && !self.list.is_empty();
        may_report && !std::mem::replace(&mut self.called, true)
    }
}

impl Refusals {
    /// Adds a refusal, if it is new and there is room. True if the main thread must be called. If
    /// there is no room, the refusal is not even made: its client is refused all the time.
    pub(in crate::engine) fn add(&self, refusal: impl FnOnce() -> Refusal) -> bool {
        if self.is_full.load(Ordering::Relaxed) {
            return false;
        }
        let refusal = refusal();
        let mut waiting = self.waiting.lock();
        if waiting.list.len() < REFUSALS_WAITING && !waiting.list.contains(&refusal) {
            waiting.list.push_back(refusal);
            self.is_full.store(waiting.list.len() == REFUSALS_WAITING, Ordering::Relaxed);
        }
        waiting.call()
    }

    /// Takes as many as may be reported in one go; and whether there are more to be reported now.
    pub(in crate::engine) fn take_some(&self) -> (Vec<Refusal>, bool) {
        let mut waiting = self.waiting.lock();
        let count = waiting.list.len().min(REFUSALS_PER_TURN).min(waiting.allowed);
        let some = waiting.list.drain(..count).collect();
        waiting.allowed -= count;
        waiting.called = false;
        self.is_full.store(waiting.list.len() == REFUSALS_WAITING, Ordering::Relaxed);
        (some, waiting.call())
    }

    /// A tick of the host's cron. True if the main thread must be called for refusals that are
    /// left.
    pub(in crate::engine) fn tick(&self) -> bool {
        let mut waiting = self.waiting.lock();
        waiting.allowed = REFUSALS_WAITING;
        waiting.call()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(object: usize) -> Refusal {
        let object = object.to_string().into_bytes().into();
        Refusal { user: (*b"u").into(), object, reason: RefusalReason::Key }
    }

    /// How many refusals the main thread reports, once it has been called.
    fn told(refusals: &Refusals) -> usize {
        let mut told = 0;
        loop {
            let (some, more) = refusals.take_some();
            assert!(some.len() <= REFUSALS_PER_TURN);
            told += some.len();
            if !more {
                return told;
            }
        }
    }

    #[test]
    fn the_list_has_an_end_and_calls_once() {
        let refusals = Refusals::default();
        assert!(refusals.add(|| refusal(0)));
        for number in 0..10 * REFUSALS_WAITING {
            assert!(!refusals.add(|| refusal(number)), "already called");
        }
        assert_eq!(told(&refusals), REFUSALS_WAITING, "a repeated refusal counts once");
        assert!(!refusals.tick(), "nothing is left");
        assert!(refusals.add(|| refusal(0)), "called again");
    }

    #[test]
    fn between_two_ticks_no_more_is_told_than_the_hosts_list_keeps() {
        let refusals = Refusals::default();
        let mut all = 0;
        for number in 0..10 * REFUSALS_WAITING {
            if refusals.add(|| refusal(number)) {
                all += told(&refusals);
            }
        }
        assert_eq!(all, REFUSALS_WAITING);
        assert!(refusals.tick(), "others wait");
        assert_eq!(told(&refusals), REFUSALS_WAITING);
        assert!(!refusals.tick());
    }

    #[test]
    fn a_refusal_without_room_is_not_made() {
        let refusals = Refusals::default();
        (0..REFUSALS_WAITING).for_each(|number| {
            refusals.add(|| refusal(number));
        });
        refusals.add(|| unreachable!("there is no room"));
    }
}
