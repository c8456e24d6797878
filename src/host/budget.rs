//! How much of a turn of the main loop midi spends on messages to the main thread. The rest waits
//! for the next turn, so that the host's own clients are served in between.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::limits::MAIN_TURN;

/// Nanoseconds left of this turn's budget.
static LEFT: AtomicU64 = AtomicU64::new(MAIN_TURN.as_nanos() as u64);

/// Starts the budget of another turn of the main loop.
pub fn renew() {
    LEFT.store(MAIN_TURN.as_nanos() as u64, Ordering::Relaxed);
}

/// What is left of this turn's budget.
pub fn left() -> Duration {
    Duration::from_nanos(LEFT.load(Ordering::Relaxed))
}

/// Whether this turn's budget is used up.
pub fn is_spent() -> bool {
    left().is_zero()
}

/// Calls `step` until it returns false, when there is nothing left to do, or until the budget is
/// used up. It is called at least once, so all work progresses however little time the others leave
/// it. True if there is nothing left to do.
pub fn spend(mut step: impl FnMut() -> bool) -> bool {
    let budget = left();
    let start = Instant::now();
    let done = loop {
        if !step() {
            break true;
        }
        if start.elapsed() >= budget {
            break false;
        }
    };
    let left = budget.saturating_sub(start.elapsed());
    LEFT.store(left.as_nanos() as u64, Ordering::Relaxed);
    done
}
