//! How much of a turn of the main loop midi takes for what others have sent to the main thread: the
//! rest is left for the next turn, so that the host's own clients are served in between.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::limits::MAIN_TURN;

/// Nanoseconds that are left of this turn's share.
static LEFT: AtomicU64 = AtomicU64::new(MAIN_TURN.as_nanos() as u64);

/// The main loop begins another turn.
pub fn renew() {
    LEFT.store(MAIN_TURN.as_nanos() as u64, Ordering::Relaxed);
}

/// Whether nothing is left of this turn's share.
pub fn is_spent() -> bool {
    LEFT.load(Ordering::Relaxed) == 0
}

/// Calls `step` until it says that there is nothing to do, or until the share is used up. It is
/// called once at least: so everything goes on, however short of time the others leave it. True in
/// the first case.
pub fn spend(mut step: impl FnMut() -> bool) -> bool {
    let share = Duration::from_nanos(LEFT.load(Ordering::Relaxed));
    let start = Instant::now();
    let done = loop {
        if !step() {
            break true;
        }
        if start.elapsed() >= share {
            break false;
        }
    };
    let left = share.saturating_sub(start.elapsed());
    LEFT.store(left.as_nanos() as u64, Ordering::Relaxed);
    done
}
