//! All shards held at once: no run is under way, and memory has the state of one moment.

use std::time::Instant;

use super::{HeldShard, Shards};
use crate::limits::MAIN_SPINS;
use crate::store::Store;
use crate::sync::{Locked, OnlyThread};

/// Shards ahead of the one whose token is looked at next that are prefetched.
pub(super) const PREFETCHED: u32 = 8;

/// All shards. They must be released, or, in a forked child, kept for good.
#[must_use = "nothing runs until the tokens are released"]
pub struct AllHeld<'e> {
    shards: &'e Shards,
    by: By<'e>,
}

/// How they are held.
enum By<'e> {
    /// By their tokens.
    Tokens(Vec<HeldShard<'e>>),
    /// No other thread is here.
    OnlyThread(OnlyThread),
}

impl Shards {
    /// Takes all tokens, those that an open unit keeps included: [`AllHeld::release`] gives these
    /// back to the unit. The caller holds no token.
    pub fn hold_all<'e>(&'e self, locked: Locked<'_>) -> AllHeld<'e> {
        let mut held = Vec::with_capacity(self.count() as usize);
        for shard in 0..self.count() {
            self.prefetch((shard + PREFETCHED) & self.mask);
            let token = &self.get(shard).token;
            held.push(if token.is_kept_by_unit(locked) {
                token.take_for_unit(locked, &self.room, MAIN_SPINS).0
            } else {
                token.take_waiting(locked, &self.room, MAIN_SPINS)
            });
        }
        AllHeld { shards: self, by: By::Tokens(held) }
    }

    /// All shards, for the only thread of a forked child.
    pub(super) fn all_alone(&self, alone: OnlyThread) -> AllHeld<'_> {
        AllHeld { shards: self, by: By::OnlyThread(alone) }
    }

    /// Takes all tokens on a thread that may not wait for them; `None` if that has not succeeded by
    /// `deadline`. Meanwhile other threads find these shards busy.
    pub fn try_hold_all(&self, deadline: Instant) -> Option<AllHeld<'_>> {
        let mut held = Vec::with_capacity(self.count() as usize);
        let mut is_whole = true;
        for shard in 0..self.count() {
            match self.take_until(shard, deadline) {
                Some(token) => held.push(token),
                None => {
                    is_whole = false;
                    break;
                }
            }
        }
        let all = AllHeld { shards: self, by: By::Tokens(held) };
        if is_whole {
            return Some(all);
        }
        all.release();
        None
    }

    fn take_until(&self, shard: u32, deadline: Instant) -> Option<HeldShard<'_>> {
        loop {
            match self.try_take_with_pending(shard) {
                Ok(held) => return Some(held),
                Err(released) if Instant::now() >= deadline => {
                    self.tell_of(shard, released);
                    return None;
                }
                Err(_) => std::hint::spin_loop(),
            }
        }
    }
}

impl AllHeld<'_> {
    /// A shard's data, to be changed.
    pub(in crate::engine) fn store_mut(&mut self, shard: u32) -> Option<&mut Store> {
        match &mut self.by {
            By::Tokens(held) => held.get_mut(shard as usize).map(|held| &mut **held),
            By::OnlyThread(alone) => Some(self.shards.get(shard).token.data_mut(alone)),
        }
    }

    /// A shard's data.
    pub fn store(&self, shard: u32) -> Option<&Store> {
        match &self.by {
            By::Tokens(held) => held.get(shard as usize).map(|held| &**held),
            By::OnlyThread(alone) => Some(self.shards.get(shard).token.data(alone)),
        }
    }

    /// Releases all tokens.
    pub fn release(self) {
        if let By::Tokens(held) = self.by {
            (0..).zip(held).for_each(|(shard, held)| self.shards.let_go(shard, held));
        }
    }
}
