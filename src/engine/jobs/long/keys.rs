//! KEYS: every worker goes through its own shards, segment by segment.

use std::sync::Arc;

use parking_lot::Mutex;

use super::chunks::{KeyChunk, KeyChunks};
use super::visits::Visits;
use crate::command::glob::Pattern;
use crate::command::{Error, Reply};
use crate::engine::{Engine, Part, Progress, Slice, Task, Work};

/// All keys of `db` that match.
pub(super) fn work(engine: &Engine, db: u32, pattern: Pattern) -> Work {
    let task = Arc::new(KeysTask { pattern, found: Mutex::default() });
    Work::on_every_worker(engine, task.clone(), u64::from(engine.shards().count()), |worker| {
        KeysPart {
            task: Arc::clone(&task),
            db,
            shards: Visits::new(engine.shards().owned_by(worker).map(|shard| (shard, 0))),
            chunk: KeyChunk::default(),
        }
    })
}

struct KeysTask {
    pattern: Pattern,
    found: Mutex<KeyChunks>,
}

struct KeysPart {
    task: Arc<KeysTask>,
    db: u32,
    /// Shards still to visit, each with its cursor.
    shards: Visits<u32>,
    chunk: KeyChunk,
}

impl Part for KeysPart {
    fn slice(&mut self, slice: &Slice<'_>) -> Progress {
        let (now, task, db) = (slice.now(), &*self.task, self.db);
        // Full chunks are passed on after the slice: no thread waits for a lock in a visit.
        let (mut chunk, mut full) = (std::mem::take(&mut self.chunk), Vec::new());
        let progress = self.shards.slice(slice, |held, cursor| {
            if chunk.is_full() {
                full.push(std::mem::take(&mut chunk));
            }
            let table = held.table(db)?;
            let mut next = Some(cursor);
            while let Some(at) = next {
                next = table.scan_segment(&slice.engine.shards().hasher, at, &mut |entry| {
                    if task.pattern.matches(entry.key()) && !entry.is_expired(&now) {
                        chunk.push(entry.key());
                    }
                });
                if slice.spent() {
                    break;
                }
            }
            next
        });
        if chunk.is_full() || progress == Progress::Done && chunk.len() > 0 {
            full.push(chunk);
        } else {
            self.chunk = chunk;
        }
        if !full.is_empty() {
            task.take_in(full, slice);
        }
        progress
    }
}

impl KeysTask {
    fn take_in(&self, chunks: Vec<KeyChunk>, slice: &Slice<'_>) {
        let mut found = self.found.lock();
        chunks.into_iter().for_each(|chunk| found.push_chunk(chunk));
        if found.are_too_large(slice) {
            slice.refuse(Error::ReplyTooLarge);
        }
    }
}

impl Task for KeysTask {
    fn reply(&self, reply: &mut dyn Reply, slice: &Slice<'_>) -> bool {
        self.found.lock().say(reply, Some(slice), |reply, keys| reply.array(keys))
    }
}
