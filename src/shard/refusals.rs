//! What users were refused, on its way to the host's list (ACL LOG). Anybody can be refused as fast as it can
//! send, so what is said again while it waits counts once, and the list has an end.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::engine::Engine;
use super::host::{Host, Refusal};
use super::lock::Locked;
use crate::limits::{REFUSALS_PER_TURN, REFUSALS_WAITING};

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
    fn add(&self, refusal: Refusal) -> bool {
        let mut waiting = self.0.lock();
        if waiting.list.len() < REFUSALS_WAITING && !waiting.list.contains(&refusal) {
            waiting.list.push_back(refusal);
        }
        !std::mem::replace(&mut waiting.called, true)
    }

    /// As many as may be told of in one go, and whether there are more.
    fn take_some(&self) -> (Vec<Refusal>, bool) {
        let mut waiting = self.0.lock();
        let count = waiting.list.len().min(REFUSALS_PER_TURN);
        let some = waiting.list.drain(..count).collect();
        waiting.called = !waiting.list.is_empty();
        (some, waiting.called)
    }
}

impl Engine {
    /// Has the host note that a user was refused something. Any thread may say so.
    pub fn note_refusal(&self, refusal: Refusal) {
        if self.refusals.add(refusal) {
            self.send_errand(Box::new(tell));
        }
    }
}

/// While a script keeps the host from it, nobody is told.
fn tell(locked: Locked<'_>, engine: &Engine, host: Option<&dyn Host>) {
    let (some, more) = engine.refusals.take_some();
    if let Some(host) = host {
        some.iter().for_each(|refusal| host.refused(locked, refusal));
    }
    if more {
        engine.send_errand(Box::new(tell));
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
