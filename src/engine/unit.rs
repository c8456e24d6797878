//! Units: several commands that the host runs as one (EXEC, a script, a function).
//!
//! While a unit is open, the holder of the host's global lock keeps every token that it waits for,
//! and the clock stands still. So no other thread can touch these shards between two of the unit's
//! commands. Messages in their mailboxes stay there until the unit has ended, even those that came
//! before it.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};

use parking_lot::Mutex;

/// The open unit, if any.
#[derive(Default)]
pub(super) struct Unit {
    pub(super) open: AtomicBool,
    /// Its number, which grows with each.
    pub(super) number: AtomicU64,
    /// When it began; all its commands run at this time.
    pub(super) began: AtomicI64,
    /// The shards whose tokens it keeps, each once.
    pub(super) kept: Mutex<Vec<u32>>,
}
