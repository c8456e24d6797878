//! RANDOMKEY after drawing shards found nothing: a search through all of them, from a random one
//! on.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::command::Reply;
use crate::engine::{Engine, Part, Progress, Slice, Work};

/// Some key of `db`, or null.
pub(super) fn work(engine: &Engine, db: u32) -> Work {
    let found = Arc::new(Mutex::new(None::<Vec<u8>>));
    let first = fastrand::u32(..engine.shards().count());
    let part = RandomPart { db, first, visited: 0, cursor: 0, found: Arc::clone(&found) };
    let say = move |reply: &mut dyn Reply, _: &Slice<'_>| {
        match &*found.lock() {
            Some(key) => reply.bulk(key),
            None => reply.null(),
        }
        true
    };
    let shards = engine.shards();
    Work::on_one_worker(shards.owner(first), say, shards.count().into(), part)
}

struct RandomPart {
    db: u32,
    first: u32,
    visited: u32,
    cursor: u32,
    found: Arc<Mutex<Option<Vec<u8>>>>,
}

impl Part for RandomPart {
    fn slice(&mut self, slice: &Slice<'_>) -> Progress {
        let engine = slice.engine;
        let now = slice.now();
        while self.visited < engine.shards().count() {
            let shard = (self.first + self.visited) % engine.shards().count();
            let Some(held) = slice.take(shard) else {
                return Progress::Blocked;
            };
            let mut found = None;
            let next = held.table(self.db).and_then(|table| {
                table.scan_segment(&engine.shards().hasher, self.cursor, &mut |entry| {
                    if found.is_none() && !entry.is_expired(&now) {
                        found = Some(entry.key().to_vec());
                    }
                })
            });
            slice.release(shard, held);
            if found.is_some() {
                *self.found.lock() = found;
                return Progress::Done;
            }
            self.cursor = next.unwrap_or(0);
            if next.is_none() {
                self.visited += 1;
                slice.advance(1);
            }
            if slice.spent() {
                return Progress::More;
            }
        }
        Progress::Done
    }
}
