//! How much of a turn of the main loop midi spends on messages to the main thread. The rest waits
//! for the next turn, so that the host's own clients are served in between.

use std::time::{Duration, Instant};

use super::state::Gauge;
use crate::limits::MAIN_TURN;

/// Nanoseconds left of this turn's budget.
pub struct Budget(Gauge);

impl Budget {
    /// A whole turn's.
    pub const fn new() -> Self {
        Budget(Gauge::new(MAIN_TURN.as_nanos() as u64))
    }

    /// Starts the budget of another turn of the main loop.
    pub fn renew(&self) {
        self.0.set(MAIN_TURN.as_nanos() as u64);
    }

    /// The rest of this turn's budget.
    pub fn left(&self) -> Duration {
        Duration::from_nanos(self.0.get())
    }

    /// Whether this turn's budget is used up.
    pub fn is_spent(&self) -> bool {
        self.left().is_zero()
    }

    /// Calls `step` until it returns false, when there is nothing left to do, or until the budget
    /// is used up. It is called at least once, so all work progresses however little time the
    /// others leave it. True if there is nothing left to do.
    pub fn spend(&self, mut step: impl FnMut() -> bool) -> bool {
        let budget = self.left();
        let start = Instant::now();
        let done = loop {
            if !step() {
                break true;
            }
            if start.elapsed() >= budget {
                break false;
            }
        };
        self.0.set(budget.saturating_sub(start.elapsed()).as_nanos() as u64);
        done
    }
}
