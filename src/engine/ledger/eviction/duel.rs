//! How large a share of the keys is on probation: tried out while the server runs.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use crate::limits::{DUEL_FROM_SHARDS, DUEL_HALVED_AT, DUEL_LEADERS, DUEL_LEAST};

/// The share of keys on probation with which a table acts as LFU does, in percent.
pub(super) const LFU_SHARE: u8 = 10;
/// The share with which it does what LRU is for: what was used last stays. With 90 % it is closer
/// to LRU in what it evicts, and finds less than LRU does: a key's place in a round is random.
pub(super) const LRU_SHARE: u8 = 50;

/// The shares of the leaders of the duel.
const LEADERS: [u8; 2] = [LFU_SHARE, LRU_SHARE];

/// Which share of probation suits the load: in every [`DUEL_LEADERS`] shards one has the small one,
/// and one the large one. The others follow whichever of the two gets fewer new keys, because that
/// misses less.
#[derive(Default)]
pub(super) struct Duel {
    new_keys: [AtomicU64; 2],
    /// Which leader the others follow.
    follows: AtomicU8,
}

impl Duel {
    /// The share of probation in this shard, in percent.
    pub(super) fn share(&self, shard: u32, shards: u32) -> u8 {
        if shards < DUEL_FROM_SHARDS {
            return LRU_SHARE;
        }
        let leader = match shard % DUEL_LEADERS {
            leader @ (0 | 1) => leader as usize,
            _ => usize::from(self.follows.load(Relaxed)) % 2,
        };
        LEADERS[leader]
    }

    /// A new key was added to a shard of this leader.
    #[cold]
    pub(super) fn note(&self, leader: u32) {
        let count = self.new_keys[leader as usize].fetch_add(1, Relaxed) + 1;
        if count.is_multiple_of(64) {
            self.judge();
        }
    }

    /// Follows the better leader if the difference is no accident: above three standard deviations.
    fn judge(&self) {
        let [small, large] = [0, 1].map(|leader: usize| self.new_keys[leader].load(Relaxed));
        let sum = small + large;
        if sum < DUEL_LEAST {
            return;
        }
        if small.abs_diff(large).pow(2) > 9 * sum {
            self.follows.store(u8::from(large < small), Relaxed);
        }
        // What is long past counts less.
        if sum >= DUEL_HALVED_AT {
            self.new_keys[0].store(small / 2, Relaxed);
            self.new_keys[1].store(large / 2, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_others_follow_the_leader_that_misses_less() {
        let duel = Duel::default();
        let shares = || [0, 1, 2, 31].map(|shard| duel.share(shard, 1024));
        assert_eq!(shares(), [10, 50, 10, 10]);
        (0..2000).for_each(|_| duel.note(0));
        (0..1500).for_each(|_| duel.note(1));
        assert_eq!(shares(), [10, 50, 50, 50]);
        // A difference that may be an accident changes nothing.
        (0..510).for_each(|_| duel.note(1));
        assert_eq!(shares(), [10, 50, 50, 50]);
        (0..20_000).for_each(|_| duel.note(1));
        assert_eq!(shares(), [10, 50, 10, 10]);
        assert_eq!(duel.share(0, 16), 50, "too few shards for leaders");
    }
}
