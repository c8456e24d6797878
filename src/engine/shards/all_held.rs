//! All tokens held at once: no run is under way, and memory has the state of one moment.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use super::{HeldShard, Shards};
use crate::engine::context::Message;
use crate::limits::MAIN_SPINS;
use crate::store::Store;
use crate::sync::Locked;

/// Shards ahead of the one whose token is taken next that are prefetched.
const AHEAD: u32 = 8;

/// The tokens of all shards. They must be released, or, in a forked child, kept for good.
#[must_use = "nothing runs until the tokens are released"]
pub struct AllHeld<'e> {
    shards: &'e Shards,
    held: Vec<HeldShard<'e>>,
}

impl Shards {
    /// Takes all tokens, those that an open unit keeps included: [`AllHeld::release`] gives these
    /// back to the unit. The caller holds no token.
    pub fn hold_all<'e>(&'e self, locked: Locked<'_>) -> AllHeld<'e> {
        self.release_left();
        let mut held = Vec::with_capacity(self.count() as usize);
        for shard in 0..self.count() {
            self.prefetch((shard + AHEAD) & self.mask);
            let token = &self.get(shard).token;
            held.push(if token.is_kept_by_unit(locked) {
                token.take_for_unit(locked, &self.room, MAIN_SPINS).0
            } else {
                token.take_waiting(locked, &self.room, MAIN_SPINS)
            });
        }
        AllHeld { shards: self, held }
    }

    /// Takes all tokens on a thread that may not wait for them; `None` if that has not succeeded by
    /// `deadline`. Meanwhile other threads find these shards busy.
    pub fn try_hold_all(&self, deadline: Instant) -> Option<AllHeld<'_>> {
        let mut all = AllHeld { shards: self, held: Vec::with_capacity(self.count() as usize) };
        while let Some(next) = u32::try_from(all.held.len()).ok().filter(|&n| n <= self.mask) {
            match self.get(next).token.try_take_with_pending() {
                Some(held) => all.held.push(held),
                None if Instant::now() < deadline => std::hint::spin_loop(),
                None => {
                    all.release();
                    return None;
                }
            }
        }
        Some(all)
    }
}

impl AllHeld<'_> {
    /// A shard's data, to be changed.
    pub(in crate::engine) fn store_mut(&mut self, shard: u32) -> Option<&mut Store> {
        self.held.get_mut(shard as usize).map(|held| &mut **held)
    }

    /// A shard's data.
    pub fn store(&self, shard: u32) -> Option<&Store> {
        self.held.get(shard as usize).map(|held| &**held)
    }

    /// Releases all tokens.
    pub fn release(self) {
        for (shard, held) in (0..).zip(self.held) {
            self.shards.let_go(shard, held);
        }
    }
}

impl AllHeld<'static> {
    /// Has the workers release the tokens, each a part of them. After a fork a release makes the
    /// kernel copy the page that the token is in, which need not delay the main thread. Those of a
    /// unit, which no other thread may touch, are released here.
    pub fn release_on_workers(self, _: Locked<'_>) {
        let (shards, workers) = (self.shards, self.shards.context.config.workers);
        let part_len = self.held.len().div_ceil(workers);
        let (mut parts, mut part) = (Vec::with_capacity(workers), Vec::new());
        for (shard, held) in (0..).zip(self.held) {
            if held.is_of_unit() {
                shards.let_go(shard, held);
                continue;
            }
            part.push((shard, held));
            if part.len() == part_len {
                parts.push(std::mem::take(&mut part));
            }
        }
        parts.push(part);
        shards.unreleased.parts.lock().append(&mut parts);
        // Release: a thread that sees it finds the parts.
        shards.unreleased.some.store(true, Ordering::Release);
        for worker in 0..workers {
            shards.context.workers.send(worker, Message::Release);
        }
    }
}

/// Tokens that wait to be released, in parts.
#[derive(Default)]
pub(in crate::engine) struct Unreleased {
    parts: Mutex<Vec<Vec<(u32, HeldShard<'static>)>>>,
    /// Whether there may be any.
    some: AtomicBool,
}

impl Shards {
    /// Releases the tokens that [`AllHeld::release_on_workers`] has left, part by part. A thread
    /// that is about to wait for a token calls it as well: it may be a worker, for whom nobody else
    /// would do its part.
    #[inline]
    pub(in crate::engine) fn release_left(&self) {
        // Acquire: it finds the parts that were left before.
        if self.unreleased.some.load(Ordering::Acquire) {
            self.release_parts();
        }
    }

    #[cold]
    fn release_parts(&self) {
        loop {
            let next = {
                let mut parts = self.unreleased.parts.lock();
                let next = parts.pop();
                if parts.is_empty() {
                    self.unreleased.some.store(false, Ordering::Relaxed);
                }
                next
            };
            let Some(part) = next else { return };
            part.into_iter().for_each(|(shard, held)| self.let_go(shard, held));
        }
    }
}
