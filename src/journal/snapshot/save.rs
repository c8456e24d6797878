//! Writing a snapshot. It may run in a forked child, where only one thread is left: it takes no
//! lock, and needs little memory besides one frame.

use std::collections::BTreeSet;

use super::format::{self, EntryHead, Header, Tally};
use super::numbers::ENTRIES;
use crate::engine::{Engine, Gates};
use crate::limits::{SNAPSHOT_FRAME_BYTES, SNAPSHOT_LARGE_BYTES};
use crate::store::{EntryRef, SharedValue, Store, Table, Type};

/// Where a snapshot's strings go: the module's section of the host's RDB.
pub trait Sink {
    /// Takes the next string.
    fn put(&mut self, string: &[u8]);

    /// Whether a string could not be written: the rest is of no use then.
    fn has_failed(&self) -> bool {
        false
    }
}

/// What has been saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SaveStats {
    /// Keys.
    pub keys: u64,
    /// Bytes of these keys and their values.
    pub bytes: u64,
}

/// Lends a shard: the closure is called once, before this returns.
pub type VisitShard<'a> = dyn FnMut(u32, &mut dyn FnMut(&Store)) + 'a;

/// Writes all keys to `sink`. `visit_shard` lends a shard; nothing is written meanwhile, so it may
/// take the shard's token for that time. A shard is lent several times, and the keyspace must not
/// change until this returns. After each frame, `progress` gets what has been saved so far. It
/// ends early if the sink fails.
pub fn save(
    engine: &Engine,
    visit_shard: &mut VisitShard<'_>,
    sink: &mut dyn Sink,
    progress: &mut dyn FnMut(SaveStats),
) -> SaveStats {
    let mut saving =
        Saving { engine, visit_shard, sink, progress, frames: 0, tally: Tally::default() };
    let (databases, keys) = saving.databases();
    let needed = databases.last().map_or(0, |&db| u64::from(db) + 1);
    let distrusted = engine.gates().has(Gates::UNSYNCED);
    saving.put(&format::header(Header { databases: needed, distrusted, keys }));
    databases.into_iter().for_each(|db| saving.database(db));
    saving.put(&format::end(saving.frames, saving.tally));
    saving.stats()
}

struct Saving<'a> {
    engine: &'a Engine,
    visit_shard: &'a mut VisitShard<'a>,
    sink: &'a mut dyn Sink,
    progress: &'a mut dyn FnMut(SaveStats),
    frames: u64,
    tally: Tally,
}

impl Saving<'_> {
    fn stats(&self) -> SaveStats {
        SaveStats { keys: self.tally.keys, bytes: self.tally.bytes }
    }

    fn report(&mut self) {
        let stats = self.stats();
        (self.progress)(stats);
    }

    fn put(&mut self, frame: &[u8]) {
        self.sink.put(frame);
        self.frames += 1;
    }

    /// The databases that have keys, and the number of keys.
    fn databases(&mut self) -> (BTreeSet<u32>, u64) {
        let (mut databases, mut keys) = (BTreeSet::new(), 0);
        for shard in 0..self.engine.shard_count() {
            (self.visit_shard)(shard, &mut |store| {
                for db in store.databases() {
                    let len = store.table(db).map_or(0, Table::len);
                    keys += len as u64;
                    if len > 0 {
                        databases.insert(db);
                    }
                }
            });
        }
        (databases, keys)
    }

    /// Saves a database. Its frames run over shards, so that small ones do not make small frames.
    fn database(&mut self, db: u32) {
        let mut open = OpenFrame::new(db);
        for shard in 0..self.engine.shard_count() {
            let mut cursor = Some(0);
            while let Some(at) = cursor.filter(|_| !self.sink.has_failed()) {
                let engine = self.engine;
                (self.visit_shard)(shard, &mut |store| {
                    cursor = store.table(db).and_then(|table| open.fill(engine, table, at));
                });
                self.put_large(&mut open);
                if open.frame.len() >= SNAPSHOT_FRAME_BYTES {
                    self.put_frame(&mut open);
                }
            }
        }
        if open.tally.keys > 0 {
            self.put_frame(&mut open);
        }
    }

    fn put_frame(&mut self, open: &mut OpenFrame) {
        format::seal(&mut open.frame);
        self.put(&open.frame);
        self.tally.add(open.tally);
        open.begin();
        self.report();
    }

    fn put_large(&mut self, open: &mut OpenFrame) {
        for (frame, tally, value) in open.large.drain(..) {
            self.put(&frame);
            self.sink.put(value.bytes());
            self.tally.add(tally);
            self.report();
        }
    }
}

/// Keys of one database on their way into frames.
struct OpenFrame {
    db: u32,
    frame: Vec<u8>,
    tally: Tally,
    /// Keys with large values, each with its frame.
    large: Vec<(Vec<u8>, Tally, SharedValue)>,
}

impl OpenFrame {
    fn new(db: u32) -> Self {
        let mut open =
            OpenFrame { db, frame: Vec::new(), tally: Tally::default(), large: Vec::new() };
        open.begin();
        open
    }

    fn begin(&mut self) {
        self.frame.clear();
        format::begin(&mut self.frame, ENTRIES, self.db);
        self.tally = Tally::default();
    }

    /// Adds keys from `cursor` on until the frame is full, or a large value is to be written. A
    /// bucket at a time: with a whole segment at a time, values below the limit could add up to 16
    /// MiB. Returns the next cursor, `None` at the end of the table.
    fn fill(&mut self, engine: &Engine, table: &Table, mut cursor: u32) -> Option<u32> {
        while self.frame.len() < SNAPSHOT_FRAME_BYTES && self.large.is_empty() {
            cursor = table.scan_bucket(&engine.hasher, cursor, &mut |entry| self.add(entry))?;
        }
        Some(cursor)
    }

    fn add(&mut self, entry: EntryRef<'_>) {
        // A new type does not compile here until it is saved: it must not be left out in silence.
        match entry.value_type() {
            Type::String => {}
            #[cfg(test)]
            Type::Other => return,
        }
        let Ok(value) = entry.string() else { return };
        let entry = value.entry();
        let (key, expire_at) = (entry.key(), entry.expire_at());
        let head = EntryHead { key, expire_at, origin: value.origin(), skipped: false };
        let tally = head.tally(value.len());
        if value.len() < SNAPSHOT_LARGE_BYTES {
            format::put_entry(&mut self.frame, &head, value.bytes());
            self.tally.add(tally);
        } else {
            let frame = format::large_entry(self.db, &head, value.bytes());
            self.large.push((frame, tally, value.to_shared()));
        }
    }
}
