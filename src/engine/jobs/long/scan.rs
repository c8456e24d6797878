//! SCAN: a walk over the shards in order, from a cursor to a cursor.
//!
//! ```text
//! cursor = shard × 2^32 + place in the shard's scan order
//! ```

use std::sync::Arc;

use parking_lot::Mutex;

use super::chunks::KeyChunks;
use crate::command::glob::Pattern;
use crate::command::{Error, Reply, ScanArgs};
use crate::engine::{Engine, HeldShard, Part, Progress, Slice, Work};
use crate::store::{Entry, Now};

/// A walk that ends when enough keys have been visited.
pub struct ScanState {
    pattern: Pattern,
    of_type: Option<Box<[u8]>>,
    db: u32,
    /// How many keys may still be visited.
    left: usize,
    shard: u32,
    shards: u32,
    place: u32,
    found: KeyChunks,
}

impl ScanState {
    /// A cursor beyond the last shard is at the end.
    pub fn new(engine: &Engine, args: &ScanArgs, db: u32) -> Self {
        let shards = engine.shards().count();
        let shard = u32::try_from(args.cursor >> 32).unwrap_or(shards).min(shards);
        ScanState {
            pattern: args.pattern.clone(),
            of_type: args.of_type.clone(),
            db,
            left: args.count,
            shard,
            shards,
            place: args.cursor as u32,
            found: KeyChunks::default(),
        }
    }

    /// Whether there is nothing more to visit, or enough keys were visited.
    pub fn is_done(&self) -> bool {
        self.shard == self.shards || self.left == 0
    }

    /// The shard to visit next.
    pub fn shard(&self) -> u32 {
        self.shard
    }

    /// About the size of the reply.
    pub fn bytes(&self) -> usize {
        self.found.bytes()
    }

    /// Visits keys of the held shard, to its end or until there are enough.
    pub fn visit(
        &mut self,
        engine: &Engine,
        held: &HeldShard<'_>,
        now: &Now,
        spent: &mut dyn FnMut() -> bool,
    ) {
        let wanted = self.of_type.as_deref();
        let of_type = |entry: &Entry| {
            wanted.is_none_or(|wanted| {
                wanted.eq_ignore_ascii_case(entry.value_type().name().as_bytes())
            })
        };
        let table = held.table(self.db).filter(|table| !table.is_empty());
        let mut next = table.is_some().then_some(self.place);
        while let (Some(table), Some(at)) = (&table, next) {
            let mut seen = 0;
            next = table.scan_bucket(&engine.shards().hasher, at, &mut |entry| {
                seen += 1;
                if of_type(&entry) && self.pattern.matches(entry.key()) && !entry.is_expired(now) {
                    self.found.push(entry.key());
                }
            });
            self.left = self.left.saturating_sub(seen);
            if self.left == 0 || spent() {
                break;
            }
        }
        match next {
            Some(place) => self.place = place,
            None => {
                self.shard += 1;
                self.place = 0;
            }
        }
    }

    /// The reply: cursor and keys. True when all is written.
    pub fn reply(&mut self, reply: &mut dyn Reply, slice: Option<&Slice<'_>>) -> bool {
        let at_end = self.shard == self.shards;
        let cursor = if at_end { 0 } else { u64::from(self.shard) << 32 | u64::from(self.place) };
        self.found.say(reply, slice, |reply, keys| {
            reply.array(2);
            reply.bulk(itoa::Buffer::new().format(cursor).as_bytes());
            reply.array(keys);
        })
    }
}

/// A SCAN with a large COUNT.
pub(super) fn work(engine: &Engine, db: u32, args: &ScanArgs) -> Work {
    let state = Arc::new(Mutex::new(ScanState::new(engine, args, db)));
    let owner = engine.shards().owner(state.lock().shard());
    let part = ScanPart(Arc::clone(&state));
    let say =
        move |reply: &mut dyn Reply, slice: &Slice<'_>| state.lock().reply(reply, Some(slice));
    Work::on_one_worker(owner, say, args.count as u64, part)
}

struct ScanPart(Arc<Mutex<ScanState>>);

impl Part for ScanPart {
    fn slice(&mut self, slice: &Slice<'_>) -> Progress {
        let now = slice.now();
        let mut state = self.0.lock();
        while !state.is_done() {
            let Some(held) = slice.take(state.shard()) else {
                return Progress::Blocked;
            };
            let (before, shard) = (state.left, state.shard());
            state.visit(slice.engine, &held, &now, &mut || slice.spent());
            slice.release(shard, held);
            slice.advance((before - state.left) as u64);
            if state.found.are_too_large(slice) {
                slice.refuse(Error::ReplyTooLarge);
                return Progress::Done;
            }
            if slice.spent() {
                return if state.is_done() { Progress::Done } else { Progress::More };
            }
        }
        Progress::Done
    }
}
