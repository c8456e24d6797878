//! Taking and releasing the tokens of shards; and units, which keep the tokens that they take.

use std::sync::atomic::Ordering;

use super::call::Taking;
use super::mode::Mode;
use super::slot::ThreadSlot;
use super::state::{Engine, HeldShard, ManyHeld, Message};
use crate::limits::MAIN_SPINS;
use crate::store::{Now, Table, UnixMs};
use crate::sync::{Locked, Released};

impl Engine {
    #[inline]
    pub(super) fn take(&self, shard: u32, taking: Taking<'_>) -> Option<HeldShard<'_>> {
        let token = &self.shard(shard).token;
        match taking {
            Taking::Try(spins) => token.try_take().or_else(|| token.try_take_spinning(spins)),
            Taking::Wait(locked) => Some(self.take_waiting(locked, shard)),
        }
    }

    /// Lowers the shard's due time, which other threads read without the token.
    #[inline]
    pub(super) fn note_due(&self, shard: u32, table: &Table) {
        let due = &self.shard(shard).due;
        if table.next_due() < due.load(Ordering::Relaxed) {
            due.store(table.next_due(), Ordering::Relaxed);
        }
    }

    pub(super) fn due(&self, shard: u32) -> UnixMs {
        self.shard(shard).due.load(Ordering::Relaxed)
    }

    pub(super) fn set_due(&self, shard: u32, held: &HeldShard<'_>) {
        self.shard(shard).due.store(held.next_due(), Ordering::Relaxed);
    }

    /// Releases a token, once the run that has changed the shard is in the log.
    #[inline]
    pub fn release(&self, slot: &ThreadSlot, shard: u32, mut held: HeldShard<'_>) {
        self.before_release(slot, &mut held);
        self.let_go(shard, held);
    }

    /// What must be done before a token is released.
    #[inline]
    pub(super) fn before_release(&self, slot: &ThreadSlot, held: &mut HeldShard<'_>) {
        if self.mode() != Mode::Fast {
            self.end_run(slot, &mut held.log);
        }
    }

    /// Releases a token whose shard this thread has neither changed nor read for a client; notifies
    /// the owner of messages that are left.
    #[inline]
    pub(super) fn let_go(&self, shard: u32, held: HeldShard<'_>) {
        if held.release(&self.room) == Released::Pending {
            self.tell_owner(shard);
        }
    }

    #[cold]
    pub(super) fn tell_owner(&self, shard: u32) {
        self.workers.send(self.owner(shard), Message::Shard(shard));
    }

    /// Takes the tokens of all these shards (in ascending order, each once), or none.
    pub(super) fn take_many(&self, shards: &[u32], taking: Taking<'_>) -> Option<ManyHeld<'_>> {
        let mut held = ManyHeld::new();
        for &shard in shards {
            match self.take(shard, taking) {
                Some(token) => held.push((shard, token)),
                None => {
                    held.into_iter().for_each(|(shard, token)| self.let_go(shard, token));
                    return None;
                }
            }
        }
        Some(held)
    }

    pub(super) fn release_many(&self, slot: &ThreadSlot, held: ManyHeld<'_>) {
        for (shard, token) in held {
            self.release(slot, shard, token);
        }
    }

    /// Opens a unit: all that the holder of the global lock does until [`Engine::end_unit`].
    pub fn open_unit(&self, _: Locked<'_>) {
        self.unit.began.store((self.config.clock)(), Ordering::Relaxed);
        if !self.unit.open.swap(true, Ordering::Relaxed) {
            self.unit.number.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether a unit is open.
    #[inline]
    pub fn is_in_unit(&self, _: Locked<'_>) -> bool {
        self.unit.open.load(Ordering::Relaxed)
    }

    /// The number of the open unit, which grows; 0 if none is open.
    pub(super) fn unit_number(&self, locked: Locked<'_>) -> u64 {
        if self.is_in_unit(locked) { self.unit.number.load(Ordering::Relaxed) } else { 0 }
    }

    /// Ends the unit, if one is open, and releases the tokens that it kept.
    pub fn end_unit(&self, locked: Locked<'_>) {
        self.unit.open.store(false, Ordering::Relaxed);
        let kept = std::mem::take(&mut *self.unit.kept.lock());
        for shard in kept {
            if self.shard(shard).token.leave_unit(locked) == Released::Pending {
                self.tell_owner(shard);
            }
        }
    }

    /// The time of a command that the holder of the global lock runs: within a unit, when the unit
    /// began.
    pub fn main_now(&self, locked: Locked<'_>) -> Now {
        let began: Option<UnixMs> =
            self.is_in_unit(locked).then(|| self.unit.began.load(Ordering::Relaxed));
        began.map_or_else(|| Now::lazy(self.config.clock), Now::at)
    }

    /// Waits for a shard's token, which an open unit then keeps.
    pub(super) fn take_waiting(&self, locked: Locked<'_>, shard: u32) -> HeldShard<'_> {
        self.release_left();
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
