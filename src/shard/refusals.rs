//! What users were refused, on its way to the host's list (ACL LOG). Anybody can be refused as fast as it can
//! send, so what is said again while it waits counts once, and the list has an end.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::users::{Denied, User};
use crate::command::Args;
use crate::limits::{REFUSALS_PER_TURN, REFUSALS_WAITING, REFUSED_NAME_BYTES};

/// Something that a user was refused.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The user's name.
    pub user: Box<[u8]>,
    /// The command or the key that it was about; for a password, the command that brought it.
    pub object: Box<[u8]>,
    /// What it was.
    pub reason: RefusalReason,
}

impl Refusal {
    /// Of a command of that name.
    pub fn new(user: &User, denied: Denied, name: &str, args: &Args<'_>) -> Self {
        let (object, reason) = match denied {
            Denied::Key(at) => (args.get(at), RefusalReason::Key),
            Denied::Command | Denied::Database => (name.as_bytes(), RefusalReason::Command),
        };
        Refusal { user: user.name.clone(), object: beginning(object).into(), reason }
    }

    /// Of a login by that name.
    pub fn of_login(name: &[u8]) -> Self {
        Refusal { user: beginning(name).into(), object: (*b"AUTH").into(), reason: RefusalReason::Auth }
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
}

/// Those that the host has not been told of.
#[derive(Default)]
pub struct Refusals(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    list: VecDeque<Refusal>,
    /// The main thread will come for them.
    called: bool,
}

impl Refusals {
    /// Adds one, if it is new and there is room; whether the main thread must be called.
    pub(super) fn add(&self, refusal: Refusal) -> bool {
        let mut waiting = self.0.lock();
        if waiting.list.len() < REFUSALS_WAITING && !waiting.list.contains(&refusal) {
            waiting.list.push_back(refusal);
        }
        !std::mem::replace(&mut waiting.called, true)
    }

    /// As many as may be told of in one go, and whether there are more.
    pub(super) fn take_some(&self) -> (Vec<Refusal>, bool) {
        let mut waiting = self.0.lock();
        let count = waiting.list.len().min(REFUSALS_PER_TURN);
        let some = waiting.list.drain(..count).collect();
        waiting.called = !waiting.list.is_empty();
        (some, waiting.called)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::RefusalReason;

    fn refusal(object: usize) -> Refusal {
        let object = object.to_string().into_bytes().into();
        Refusal { user: (*b"u").into(), object, reason: RefusalReason::Key }
    }

    #[test]
    fn the_list_has_an_end_and_calls_once() {
        let refusals = Refusals::default();
        assert!(refusals.add(refusal(0)));
        for number in 0..10 * REFUSALS_WAITING {
            assert!(!refusals.add(refusal(number)), "called already");
        }
        let mut told = 0;
        loop {
            let (some, more) = refusals.take_some();
            assert!(some.len() <= REFUSALS_PER_TURN);
            told += some.len();
            if !more {
                break;
            }
        }
        assert_eq!(told, REFUSALS_WAITING, "what is said again counts once");
        assert!(refusals.add(refusal(0)), "called anew");
    }
}
