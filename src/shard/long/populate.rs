//! POPULATE: workers draw numbers from one counter, and put each key straight
//! into its shard, whoever owns it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::SayOk;
use crate::command::PopulateArgs;
use crate::shard::{Engine, Part, Progress, Slice, Work};
use crate::store::{Now, Value};

/// Numbers drawn at once: enough that the counter's cache line is left alone
/// for some ten microseconds.
const DRAW: u64 = 64;

/// Bytes between two looks at the clock and the credit, and the most keys in them.
const BYTES_BETWEEN_LOOKS: usize = 16 << 10;
const KEYS_BETWEEN_LOOKS: usize = 8;

/// Makes the keys that are not there yet; answers OK.
pub(super) fn work(engine: &Engine, db: u32, args: PopulateArgs) -> Work {
    let next = Arc::new(AtomicU64::new(0));
    let part = |_| PopulatePart {
        args: args.clone(),
        db,
        next: Arc::clone(&next),
        drawn: 0..0,
        busy: VecDeque::new(),
        between_looks: (BYTES_BETWEEN_LOOKS / args.value_bytes()).clamp(1, KEYS_BETWEEN_LOOKS),
        key: Vec::new(),
        value: Vec::new(),
    };
    Work {
        task: Arc::new(SayOk),
        parts: (0..engine.config.workers).map(|worker| Box::new(part(worker)) as Box<dyn Part>).collect(),
        total: args.count,
        first_worker: 0,
    }
}

struct PopulatePart {
    args: PopulateArgs,
    db: u32,
    next: Arc<AtomicU64>,
    drawn: std::ops::Range<u64>,
    /// Numbers whose shard was held by somebody else.
    busy: VecDeque<u64>,
    between_looks: usize,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Part for PopulatePart {
    fn slice(&mut self, slice: &Slice<'_>) -> Progress {
        let now = Now::lazy(slice.engine.config.clock);
        loop {
            if !slice.has_credit() {
                return Progress::Blocked;
            }
            if let Some(error) = slice.engine.write_refusal(true) {
                slice.refuse(error);
                return Progress::Done;
            }
            for _ in 0..self.between_looks {
                let Some(number) = self.number() else {
                    return Progress::Done;
                };
                if !self.make(slice, &now, number) {
                    self.busy.push_back(number);
                    let all_busy =
                        self.drawn.is_empty() && self.next.load(Ordering::Relaxed) >= self.args.count;
                    if all_busy || self.busy.len() as u64 > DRAW {
                        return Progress::Blocked;
                    }
                }
            }
            if slice.spent() {
                return Progress::More;
            }
        }
    }
}

impl PopulatePart {
    /// The next number: of those drawn, of a new draw, or one left over.
    fn number(&mut self) -> Option<u64> {
        if self.busy.len() as u64 > DRAW / 2 {
            return self.busy.pop_front();
        }
        if self.drawn.is_empty() {
            let start = self.next.fetch_add(DRAW, Ordering::Relaxed).min(self.args.count);
            self.drawn = start..(start + DRAW).min(self.args.count);
        }
        self.drawn.next().or_else(|| self.busy.pop_front())
    }

    /// Makes one key. False when its shard was busy.
    fn make(&mut self, slice: &Slice<'_>, now: &Now, number: u64) -> bool {
        let engine = slice.engine;
        self.args.key(number, &mut self.key);
        self.args.value(number, &mut self.value);
        let hash = engine.hasher.hash(&self.key);
        let shard = engine.shard_of(hash);
        let Some(mut held) = slice.take(shard) else {
            return false;
        };
        let table = held.db(self.db);
        let before = table.census();
        if table.find_live(&engine.hasher, hash, &self.key, now).is_none() {
            table.insert(&engine.hasher, hash, &self.key, Value::Inline(&self.value), None);
        }
        let change = table.census() - before;
        slice.seat.book(self.db, change);
        engine.spend_credit(change.bytes);
        engine.release(shard, held);
        slice.advance(1);
        true
    }
}
