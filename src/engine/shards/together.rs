//! Several shards in hand together, for calls or records that run one after the other.

use arrayvec::ArrayVec;

use super::{HeldShard, Shards, SharedShard};
use crate::engine::call::Taking;
use crate::engine::slot::ThreadSlot;
use crate::limits::AHEAD;
use crate::store::Store;

/// Shards, in the order in which they were taken.
pub(in crate::engine) struct HeldTogether<H> {
    held: ArrayVec<(u32, H), AHEAD>,
    /// A bit for each of them, by the low bits of its number: so many that most shards are seen to
    /// be new.
    seen: [u64; 4],
}

impl<H> Default for HeldTogether<H> {
    fn default() -> Self {
        HeldTogether { held: ArrayVec::new(), seen: [0; 4] }
    }
}

impl<H> HeldTogether<H> {
    /// The place of a shard, if it is here.
    #[inline(always)]
    pub(in crate::engine) fn place(&self, shard: u32) -> Option<usize> {
        if self.seen[shard as usize / 64 % 4] & 1 << (shard % 64) == 0 {
            return None;
        }
        self.held.iter().position(|&(number, _)| number == shard)
    }

    /// The place of the next shard that is added.
    #[inline(always)]
    pub(in crate::engine) fn next_place(&self) -> usize {
        self.held.len()
    }

    /// Adds a shard that is not here; returns its place.
    #[inline(always)]
    pub(in crate::engine) fn add(&mut self, shard: u32, held: H) -> usize {
        let place = self.next_place();
        self.seen[shard as usize / 64 % 4] |= 1 << (shard % 64);
        self.held.push((shard, held));
        place
    }

    /// The shard at a place.
    #[inline(always)]
    pub(in crate::engine) fn get(&self, place: usize) -> &H {
        &self.held[place].1
    }

    /// The shard at a place, and its number.
    #[inline(always)]
    pub(in crate::engine) fn at(&mut self, place: usize) -> (u32, &mut H) {
        let (shard, held) = &mut self.held[place];
        (*shard, held)
    }

    /// Gives the shards away, with their numbers.
    #[inline]
    pub(in crate::engine) fn drain(&mut self) -> impl Iterator<Item = (u32, H)> {
        self.seen = [0; 4];
        self.held.drain(..)
    }
}

/// How a thread has a shard.
pub(in crate::engine) enum InHand<'a> {
    /// It holds the token.
    Alone(HeldShard<'a>),
    /// It reads the shard, as others may, too.
    Shared(SharedShard<'a>),
    /// It has read the shard.
    Ended,
}

impl<'a> InHand<'a> {
    /// A shard to be read: shared with others if it is open, with the mark of that number.
    #[inline(always)]
    pub(in crate::engine) fn to_read(
        shards: &'a Shards,
        shard: u32,
        (slot, mark): (&ThreadSlot, usize),
        taking: Taking<'_>,
    ) -> Option<Self> {
        match shards.try_share(slot, shard, mark) {
            Some(shared) => Some(InHand::Shared(shared)),
            None => shards.take(shard, taking).map(InHand::Alone),
        }
    }

    /// The shard, to be read; `None` after that.
    #[inline(always)]
    pub(in crate::engine) fn store(&self) -> Option<&Store> {
        match self {
            InHand::Alone(held) => Some(held),
            InHand::Shared(shared) => Some(shared),
            InHand::Ended => None,
        }
    }

    /// Whether others may read the shard, too.
    #[inline(always)]
    pub(in crate::engine) fn is_shared(&self) -> bool {
        matches!(self, InHand::Shared(_))
    }

    /// Ends the reading of a shard that was shared, and returns it.
    #[inline(always)]
    pub(in crate::engine) fn end_shared(&mut self) -> Option<SharedShard<'a>> {
        if !self.is_shared() {
            return None;
        }
        match std::mem::replace(self, InHand::Ended) {
            InHand::Shared(shared) => Some(shared),
            _ => None,
        }
    }
}
