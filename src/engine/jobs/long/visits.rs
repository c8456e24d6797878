//! The shards that a part of a job has still to visit.

use std::collections::VecDeque;

use crate::engine::{HeldShard, Progress, Slice};

/// Shards still to visit, each with the place at which its visit goes on.
pub(super) struct Visits<T>(VecDeque<(u32, T)>);

impl<T> Visits<T> {
    pub(super) fn new(shards: impl Iterator<Item = (u32, T)>) -> Self {
        Visits(shards.collect())
    }

    /// Visits shards until the slice is over; busy ones come later. `visit` gets a held shard and
    /// the place to go on from, and returns the place for its next visit, `None` if there is none.
    pub(super) fn slice(
        &mut self,
        slice: &Slice<'_>,
        mut visit: impl FnMut(&HeldShard<'_>, T) -> Option<T>,
    ) -> Progress {
        let mut busy = 0;
        while busy < self.0.len() {
            let Some((shard, from)) = self.0.pop_front() else { break };
            match slice.take(shard) {
                None => {
                    self.0.push_back((shard, from));
                    busy += 1;
                }
                Some(held) => {
                    busy = 0;
                    let next = visit(&held, from);
                    slice.release(shard, held);
                    match next {
                        // Before all others.
                        Some(from) => self.0.push_front((shard, from)),
                        None => slice.advance(1),
                    }
                }
            }
            if slice.spent() {
                return if busy > 0 { Progress::Blocked } else { Progress::More };
            }
        }
        if self.0.is_empty() { Progress::Done } else { Progress::Blocked }
    }
}
