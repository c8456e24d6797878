//! A standstill of all shards, for a fork: as if all tokens were held, but nothing is written.

use super::all_held::PREFETCHED;
use super::{AllHeld, HeldShard, Shards};
use crate::limits::MAIN_SPINS;
use crate::sync::{Locked, OnlyThread};

/// No run is under way, and none begins until this is dropped.
#[must_use = "runs go on when it is dropped"]
pub struct Standstill<'e>(&'e Shards);

impl Shards {
    /// Stops all shards, and waits for the runs that are under way. A unit that is open does not
    /// count. The caller holds no token, and takes none before the standstill is over.
    pub fn stop(&self, locked: Locked<'_>) -> Standstill<'_> {
        self.stop.raise();
        let standstill = Standstill(self);
        for shard in 0..self.count() {
            self.prefetch((shard + PREFETCHED) & self.mask);
            let token = &self.get(shard).token;
            if !token.is_at_rest(locked) {
                self.let_go(shard, token.take_waiting(locked, &self.room, MAIN_SPINS));
            }
        }
        self.room.wait_for_readers(locked);
        standstill
    }

    /// Stops all shards for good, without a wait: the process is about to end.
    pub(in crate::engine) fn stop_for_good(&self) {
        self.stop.raise();
    }

    /// Whether no token can be had.
    #[inline]
    pub(in crate::engine) fn are_stopped(&self) -> bool {
        self.stop.is_up()
    }

    /// A token that this thread has just taken, if it may keep it.
    #[inline]
    pub(super) fn unless_stopped<'e>(
        &'e self,
        shard: u32,
        held: HeldShard<'e>,
    ) -> Option<HeldShard<'e>> {
        self.note_taken(shard);
        if self.are_stopped() { self.give_back(shard, held) } else { Some(held) }
    }

    #[cold]
    fn give_back<'e>(&'e self, shard: u32, held: HeldShard<'e>) -> Option<HeldShard<'e>> {
        self.let_go(shard, held);
        None
    }
}

impl<'e> Standstill<'e> {
    /// All shards, in a child that was forked at this standstill. It lasts there.
    pub fn in_child(self, alone: OnlyThread) -> AllHeld<'e> {
        let Standstill(shards) = self;
        std::mem::forget(self);
        shards.all_alone(alone)
    }
}

impl Drop for Standstill<'_> {
    fn drop(&mut self) {
        self.0.stop.lower();
    }
}
