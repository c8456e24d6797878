//! Units: several commands that the host runs as one (EXEC, a script, a function).
//!
//! While a unit is open, the holder of the host's global lock keeps every token that it waits for,
//! and the clock stands still. So no other thread can touch these shards between two of the unit's
//! commands. Messages in their mailboxes stay there until the unit has ended, even those that came
//! before it.
//!
//! Units nest: a script in an EXEC of a port is a part of that EXEC's unit.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::Shards;
use crate::engine::slot::ThreadSlot;
use crate::store::{Now, UnixMs};
use crate::sync::{Locked, Released};

/// The open unit, if any.
#[derive(Default)]
pub(in crate::engine) struct Unit {
    /// How often it has been opened and not ended; 0 if none is open.
    depth: AtomicU32,
    /// Its number, which grows with each.
    number: AtomicU64,
    /// When it began; all its commands run at this time.
    began: AtomicI64,
    /// The shards whose tokens it keeps, each once.
    kept: Mutex<Vec<u32>>,
}

impl Unit {
    /// It keeps the token of this shard from now on.
    pub(super) fn keep(&self, shard: u32) {
        self.kept.lock().push(shard);
    }
}

impl Shards {
    /// Opens a unit, or one within it: all that the holder of the global lock does until
    /// [`Shards::end_unit`].
    pub fn open_unit(&self, _: Locked<'_>) {
        if self.unit.depth.fetch_add(1, Ordering::Relaxed) == 0 {
            self.unit.began.store((self.context.config.clock)(), Ordering::Relaxed);
            self.unit.number.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether a unit is open.
    #[inline]
    pub fn is_in_unit(&self, _: Locked<'_>) -> bool {
        self.unit.depth.load(Ordering::Relaxed) > 0
    }

    /// Whether one is open at this moment, for a thread that finds a token taken.
    pub(in crate::engine) fn is_unit_open(&self) -> bool {
        self.unit.depth.load(Ordering::Relaxed) > 0
    }

    /// The number of the open unit, which grows; 0 if none is open.
    pub(in crate::engine) fn unit_number(&self, locked: Locked<'_>) -> u64 {
        if self.is_in_unit(locked) { self.unit.number.load(Ordering::Relaxed) } else { 0 }
    }

    /// Ends the unit that was opened last; the caller has opened it. If no other is open, releases
    /// the tokens that were kept.
    pub fn end_unit(&self, locked: Locked<'_>) {
        if self.unit.depth.fetch_sub(1, Ordering::Relaxed) > 1 {
            return;
        }
        let kept = std::mem::take(&mut *self.unit.kept.lock());
        for shard in kept {
            if self.get(shard).token.leave_unit(locked) == Released::Pending {
                self.tell_owner(shard);
            }
        }
    }

    /// The time of a command that the holder of the global lock runs: within a unit, when the unit
    /// began.
    pub fn main_now(&self, locked: Locked<'_>) -> Now {
        let began: Option<UnixMs> =
            self.is_in_unit(locked).then(|| self.unit.began.load(Ordering::Relaxed));
        began.map_or_else(|| Now::lazy(self.context.config.clock), Now::at)
    }

    /// The time of a command that runs on the thread of this slot.
    pub(in crate::engine) fn now_on(&self, slot: &ThreadSlot) -> Now {
        let lazy = || Now::lazy(self.context.config.clock);
        slot.locked().map_or_else(lazy, |locked| self.main_now(locked))
    }

    /// Runs `work` so that nobody sees a part of it: in the open unit, else as a unit of its own.
    pub fn as_one<R>(&self, locked: Locked<'_>, work: impl FnOnce() -> R) -> R {
        if self.is_in_unit(locked) { work() } else { self.in_unit(locked, work) }
    }

    /// Runs `work` as a unit of its own.
    pub fn in_unit<R>(&self, locked: Locked<'_>, work: impl FnOnce() -> R) -> R {
        self.open_unit(locked);
        // Ends the unit even if `work` panics.
        let _ends = EndsUnit(self, locked);
        work()
    }
}

struct EndsUnit<'e>(&'e Shards, Locked<'e>);

impl Drop for EndsUnit<'_> {
    fn drop(&mut self) {
        self.0.end_unit(self.1);
    }
}
