//! Packing: each worker goes through its shards and moves what is in chunks that are hardly used,
//! so that these go back to the system. It works as expiry does: in slices, for a part of each
//! tick.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::engine::Engine;
use crate::engine::jobs::Progress;
use crate::engine::ledger::Gates;
use crate::limits::{EXPIRY_PER_TICK, EXPIRY_TICK, SLICE};
use crate::store::{PackPosition, Store, arena_usage, give_up_chunks};

/// How often a worker looks for room that is not needed.
const PACKING_EVERY: Duration = Duration::from_secs(1);

/// Bytes of unused room that stay, besides a tenth of what is in use.
const IGNORED: usize = 8 << 20;

/// A worker's way through its shards.
pub(super) struct Packing {
    /// Shards still to visit in this pass.
    shards: VecDeque<u32>,
    db: u32,
    position: PackPosition,
    next_pass: Instant,
    tick_ends: Instant,
    /// The time left in this tick.
    left: Duration,
}

impl Packing {
    pub(super) fn new(now: Instant) -> Self {
        Packing {
            shards: VecDeque::new(),
            db: 0,
            position: PackPosition::default(),
            next_pass: now + PACKING_EVERY,
            tick_ends: now,
            left: Duration::ZERO,
        }
    }

    /// One slice. It is done if there is nothing to pack, or the time of this tick is used up.
    pub(super) fn slice(&mut self, engine: &Engine, worker: usize, now: Instant) -> Progress {
        if self.shards.is_empty() {
            if now < self.next_pass {
                return Progress::Done;
            }
            self.next_pass = now + PACKING_EVERY;
            if !self.begin_pass(engine, worker) {
                return Progress::Done;
            }
        }
        if now >= self.tick_ends {
            self.tick_ends = now + EXPIRY_TICK;
            self.left = per_tick();
        }
        if self.left.is_zero() || !may_pack(engine) {
            return Progress::Done;
        }
        let start = Instant::now();
        let progress = self.pack(engine, start);
        self.left = self.left.saturating_sub(start.elapsed());
        if progress { Progress::More } else { Progress::Blocked }
    }

    /// Whether there is something to pack.
    fn begin_pass(&mut self, engine: &Engine, worker: usize) -> bool {
        if !may_pack(engine) || unneeded() == 0 || !give_up_chunks() {
            return false;
        }
        self.shards = engine.shards().owned_by(worker).collect();
        (self.db, self.position) = (0, PackPosition::default());
        true
    }

    fn pack(&mut self, engine: &Engine, start: Instant) -> bool {
        let mut progress = false;
        while let Some(&shard) = self.shards.front() {
            let Some(mut held) = engine.shards().try_take_long(shard) else {
                return progress;
            };
            progress = true;
            if self.pack_shard(&mut held, start) {
                self.shards.pop_front();
                (self.db, self.position) = (0, PackPosition::default());
            }
            engine.shards().let_go(shard, held);
            if start.elapsed() > SLICE {
                break;
            }
        }
        progress
    }

    /// Goes through the databases of one shard. True when all are done. The shard may have changed
    /// since the last slice; a segment that is missed has its turn in the next pass.
    fn pack_shard(&mut self, store: &mut Store, start: Instant) -> bool {
        while let Some(db) = store.next_db(self.db) {
            if db != self.db {
                (self.db, self.position) = (db, PackPosition::default());
            }
            if !store.db(db).pack(&mut self.position, &mut || start.elapsed() < SLICE) {
                return false;
            }
            (self.db, self.position) = (db + 1, PackPosition::default());
        }
        true
    }
}

/// Not while the memory is growing, or is shared with a child.
fn may_pack(engine: &Engine) -> bool {
    engine.settings().packs.load(std::sync::atomic::Ordering::Relaxed)
        && !engine.gates().has(Gates::LOADING.and(Gates::HAS_CHILD))
}

/// The bytes that the arenas have beyond what they may keep.
fn unneeded() -> usize {
    let usage = arena_usage();
    usage.mapped.saturating_sub(usage.used + usage.used / 10 + IGNORED)
}

/// The more is unneeded, the more time: all of it where that is as much as what is used.
fn per_tick() -> Duration {
    let share = unneeded() as f64 / arena_usage().used.max(1) as f64;
    EXPIRY_PER_TICK.mul_f64(share.clamp(0.2, 1.0))
}
