//! The shards that a part of a job has still to visit.

use std::collections::VecDeque;

use crate::engine::{HeldShard, Slice};

/// Shards still to visit, each with where its visit goes on.
pub(super) struct Visits<T>(VecDeque<(u32, T)>);

/// What a part does next.
pub(super) enum NextVisit<'a, T> {
    /// Visits this shard, from here on.
    Shard(u32, T, HeldShard<'a>),
    /// All shards that are left are busy, or the slice is over.
    Blocked,
    /// No shard is left.
    Done,
}

impl<T> Visits<T> {
    pub(super) fn new(shards: impl Iterator<Item = (u32, T)>) -> Self {
        Visits(shards.collect())
    }

    /// The next shard that is not busy; busy ones come later.
    pub(super) fn next<'a>(&mut self, slice: &Slice<'a>) -> NextVisit<'a, T> {
        for _ in 0..self.0.len() {
            let Some((shard, from)) = self.0.pop_front() else { break };
            if let Some(held) = slice.take(shard) {
                return NextVisit::Shard(shard, from, held);
            }
            self.0.push_back((shard, from));
            if slice.spent() {
                break;
            }
        }
        if self.0.is_empty() { NextVisit::Done } else { NextVisit::Blocked }
    }

    /// The visit of a shard goes on from here, before all others.
    pub(super) fn go_on(&mut self, shard: u32, from: T) {
        self.0.push_front((shard, from));
    }
}
