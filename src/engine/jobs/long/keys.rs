//! KEYS: every worker goes through its own shards, segment by segment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::chunks::{Chunk, Chunks};
use super::visits::{NextVisit, Visits};
use crate::command::glob::Pattern;
use crate::command::{Error, Reply};
use crate::engine::{Engine, Part, Progress, Slice, Task, Work};

/// All keys of `db` that match.
pub(super) fn work(engine: &Engine, db: u32, pattern: Pattern) -> Work {
    let task = Arc::new(KeysTask {
        pattern,
        found: Mutex::default(),
        head_written: AtomicBool::new(false),
    });
    Work::on_every_worker(engine, task.clone(), u64::from(engine.shards().count()), |worker| {
        KeysPart {
            task: Arc::clone(&task),
            db,
            shards: Visits::new(engine.shards().owned_by(worker).map(|shard| (shard, 0))),
            chunk: Chunk::default(),
        }
    })
}

struct KeysTask {
    pattern: Pattern,
    found: Mutex<Chunks>,
    head_written: AtomicBool,
}

struct KeysPart {
    task: Arc<KeysTask>,
    db: u32,
    /// Shards still to visit, each with its cursor.
    shards: Visits<u32>,
    chunk: Chunk,
}

impl Part for KeysPart {
    fn slice(&mut self, slice: &Slice<'_>) -> Progress {
        let now = slice.now();
        loop {
            let (shard, cursor, held) = match self.shards.next(slice) {
                NextVisit::Shard(shard, cursor, held) => (shard, cursor, held),
                NextVisit::Blocked => return Progress::Blocked,
                NextVisit::Done => break,
            };
            let table = held.table(self.db);
            let (pattern, chunk) = (&self.task.pattern, &mut self.chunk);
            let mut next = table.is_some().then_some(cursor);
            while let (Some(table), Some(at)) = (&table, next) {
                next = table.scan_segment(&slice.engine.shards().hasher, at, &mut |entry| {
                    if pattern.matches(entry.key()) && !entry.is_expired(&now) {
                        chunk.push(entry.key());
                    }
                });
                if slice.spent() {
                    break;
                }
            }
            slice.engine.ledger.release(slice.slot, shard, held);
            if self.chunk.is_full() {
                self.hand_on(slice);
            }
            match next {
                Some(cursor) => self.shards.go_on(shard, cursor),
                None => slice.advance(1),
            }
            if slice.spent() {
                return Progress::More;
            }
        }
        self.hand_on(slice);
        Progress::Done
    }
}

impl KeysPart {
    fn hand_on(&mut self, slice: &Slice<'_>) {
        if self.chunk.len() == 0 {
            return;
        }
        let mut found = self.task.found.lock();
        found.push_chunk(std::mem::take(&mut self.chunk));
        if found.are_too_large(slice) {
            slice.refuse(Error::ReplyTooLarge);
        }
    }
}

impl Task for KeysTask {
    fn reply(&self, reply: &mut dyn Reply, slice: &Slice<'_>) -> bool {
        let mut found = self.found.lock();
        if !self.head_written.swap(true, Ordering::Relaxed) {
            reply.array(found.keys());
        }
        found.say(reply, Some(slice))
    }
}
