//! KEYS: every worker goes through its own shards, segment by segment.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::command::Reply;
use crate::command::glob::Pattern;
use crate::limits::CHUNK_BYTES;
use crate::shard::{Engine, Part, Progress, Slice, Task, Work};
use crate::store::Now;

/// All keys of `db` that match.
pub(super) fn work(engine: &Engine, db: u32, pattern: Pattern) -> Work {
    let task = Arc::new(KeysTask {
        pattern,
        found: AtomicU64::new(0),
        chunks: Mutex::new(VecDeque::new()),
        head_said: Mutex::new(false),
    });
    let part = |worker| {
        let owned = |&shard: &u32| engine.owner(shard) == worker;
        KeysPart {
            task: Arc::clone(&task),
            db,
            shards: (0..engine.shard_count()).filter(owned).map(|shard| (shard, 0)).collect(),
            chunk: Chunk::default(),
        }
    };
    Work {
        parts: (0..engine.config.workers).map(|worker| Box::new(part(worker)) as Box<dyn Part>).collect(),
        task: task.clone(),
        total: u64::from(engine.shard_count()),
        first_worker: 0,
    }
}

struct KeysTask {
    pattern: Pattern,
    found: AtomicU64,
    chunks: Mutex<VecDeque<Chunk>>,
    head_said: Mutex<bool>,
}

/// Some keys, one after the other.
#[derive(Default)]
pub(super) struct Chunk {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Chunk {
    pub(super) fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len() as u32);
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// About what it takes in a reply.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len() + 8 * self.ends.len()
    }

    pub(super) fn say(&self, reply: &mut dyn Reply) {
        let mut start = 0;
        for &end in &self.ends {
            reply.bulk(&self.bytes[start..end as usize]);
            start = end as usize;
        }
    }
}

struct KeysPart {
    task: Arc<KeysTask>,
    db: u32,
    /// Shards to go, each with its cursor.
    shards: VecDeque<(u32, u32)>,
    chunk: Chunk,
}

impl Part for KeysPart {
    fn slice(&mut self, slice: &Slice<'_>) -> Progress {
        let now = Now::lazy(slice.engine.config.clock);
        let mut busy = 0;
        while let Some((shard, cursor)) = self.shards.pop_front() {
            let Some(mut held) = slice.take(shard) else {
                self.shards.push_back((shard, cursor));
                busy += 1;
                if busy >= self.shards.len() || slice.spent() {
                    return Progress::Blocked;
                }
                continue;
            };
            let table = held.db(self.db);
            let (pattern, chunk) = (&self.task.pattern, &mut self.chunk);
            let mut next = Some(cursor);
            while let Some(at) = next {
                next = table.scan_segment(&slice.engine.hasher, at, &mut |entry| {
                    if pattern.matches(entry.key()) && !entry.is_expired(&now) {
                        chunk.push(entry.key());
                    }
                });
                if slice.spent() {
                    break;
                }
            }
            slice.engine.release(shard, held);
            self.hand_on(CHUNK_BYTES);
            match next {
                Some(cursor) => self.shards.push_front((shard, cursor)),
                None => slice.advance(1),
            }
            if slice.spent() {
                return Progress::More;
            }
        }
        self.hand_on(0);
        Progress::Done
    }
}

impl KeysPart {
    /// Gives the chunk to the reply once it has grown above `bytes`.
    fn hand_on(&mut self, bytes: usize) {
        if self.chunk.len() > 0 && self.chunk.bytes() > bytes {
            let chunk = std::mem::take(&mut self.chunk);
            self.task.found.fetch_add(chunk.len() as u64, Ordering::Relaxed);
            self.task.chunks.lock().push_back(chunk);
        }
    }
}

impl Task for KeysTask {
    fn reply(&self, reply: &mut dyn Reply, slice: &Slice<'_>) -> bool {
        let mut head_said = self.head_said.lock();
        if !*head_said {
            reply.array(self.found.load(Ordering::Relaxed) as usize);
            *head_said = true;
        }
        while let Some(chunk) = { self.chunks.lock().pop_front() } {
            chunk.say(reply);
            if slice.spent() {
                return false;
            }
        }
        true
    }
}
