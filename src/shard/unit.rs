//! Units: several commands that the host runs as one (EXEC, a script, a function).
//!
//! While a unit is open, whoever holds the host's global lock keeps every token
//! that it waits for, and the time stands still. So nothing that anybody else does
//! to these shards falls between two of the unit's commands. Messages in their
//! mailboxes stay there until the unit has ended, also those that came before it.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use parking_lot::Mutex;

use super::engine::{Engine, HeldShard};
use super::lock::Locked;
use super::token::Released;
use crate::limits::MAIN_SPINS;
use crate::store::{Now, UnixMs};

/// The open unit, if any.
#[derive(Default)]
pub(super) struct Unit {
    open: AtomicBool,
    /// When it began: the time of all its commands.
    began: AtomicI64,
    /// The shards whose tokens it keeps, each once.
    kept: Mutex<Vec<u32>>,
}

impl Engine {
    /// What the holder of the global lock does from here on is one unit.
    pub fn open_unit(&self, _: Locked<'_>) {
        self.unit.began.store((self.config.clock)(), Ordering::Relaxed);
        self.unit.open.store(true, Ordering::Relaxed);
    }

    /// Whether a unit is open.
    #[inline]
    pub fn is_in_unit(&self, _: Locked<'_>) -> bool {
        self.unit.open.load(Ordering::Relaxed)
    }

    /// Ends the unit, if one is open: gives back what it kept.
    pub fn end_unit(&self, locked: Locked<'_>) {
        self.unit.open.store(false, Ordering::Relaxed);
        let kept = std::mem::take(&mut *self.unit.kept.lock());
        for shard in kept {
            if self.shard(shard).token.leave_unit(locked) == Released::Pending {
                self.tell_owner(shard);
            }
        }
    }

    /// The time of a command that the holder of the global lock runs.
    pub fn main_now(&self, locked: Locked<'_>) -> Now {
        let began: Option<UnixMs> = self.is_in_unit(locked).then(|| self.unit.began.load(Ordering::Relaxed));
        began.map_or_else(|| Now::lazy(self.config.clock), Now::at)
    }

    /// Waits for a shard's token.
    pub(super) fn take_waiting(&self, locked: Locked<'_>, shard: u32) -> HeldShard<'_> {
        let token = &self.shard(shard).token;
        if !self.is_in_unit(locked) {
            return token.take_waiting(locked, &self.room, MAIN_SPINS);
        }
        let (held, new) = token.take_for_unit(locked, &self.room, MAIN_SPINS);
        if new {
            self.unit.kept.lock().push(shard);
        }
        held
    }
}
