//! Writing a snapshot. It may run in a forked child, where only one thread is left: it takes no
//! lock, and needs little memory besides one frame.

use std::collections::BTreeSet;

use super::format::{self, Content, EntryHead, Header, Tally, put_field_of_hash};
use super::numbers::ENTRIES;
use super::records;
use crate::engine::{Engine, Gates};
use crate::limits::{SNAPSHOT_FRAME_BYTES, SNAPSHOT_LARGE_BYTES};
use crate::store::{EntryRef, FieldRef, Fields, SharedValue, Store, Table, Traits, Type};

/// Where a snapshot's strings go: the module's section of the host's RDB, or its AOF.
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

/// How keys are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SavedAs {
    /// As frames of a section.
    Section,
    /// As MIDI.JOURNALs, for the end of an AOF's base that is not an RDB. A file of these has no
    /// end of its own, and cannot say that its keys are not to be trusted.
    Records,
}

/// Writes all keys to `sink`. `visit_shard` lends a shard; nothing is written meanwhile, so it may
/// take the shard's token for that time. A shard is lent several times, and the keyspace must not
/// change until this returns. After each frame, `progress` gets what has been saved so far. It
/// ends early if the sink fails.
pub fn save(
    engine: &Engine,
    saved_as: SavedAs,
    visit_shard: &mut VisitShard<'_>,
    sink: &mut dyn Sink,
    progress: &mut dyn FnMut(SaveStats),
) -> SaveStats {
    let (frames, tally) = (0, Tally::default());
    let mut saving = Saving { engine, saved_as, visit_shard, sink, progress, frames, tally };
    let (databases, keys) = saving.databases();
    if saved_as == SavedAs::Section {
        let needed = databases.last().map_or(0, |&db| u64::from(db) + 1);
        let distrusted = engine.gates().has(Gates::UNSYNCED);
        saving.put(&format::header(Header { databases: needed, distrusted, keys }));
    }
    databases.into_iter().for_each(|db| saving.database(db));
    saving.begun_text();
    if saved_as == SavedAs::Section {
        saving.put(&format::end(saving.frames, saving.tally));
    }
    saving.stats()
}

impl SavedAs {
    fn begin(self, frame: &mut Vec<u8>, db: u32) {
        match self {
            SavedAs::Section => format::begin(frame, ENTRIES, db),
            SavedAs::Records => records::begin(frame, db),
        }
    }

    fn put_entry(self, frame: &mut Vec<u8>, head: &EntryHead<'_>, value: &[u8]) {
        match self {
            SavedAs::Section => format::put_entry(frame, head, value),
            SavedAs::Records => records::put_entry(frame, head, value),
        }
    }

    fn seal(self, frame: &mut Vec<u8>) {
        match self {
            SavedAs::Section => format::seal(frame),
            SavedAs::Records => records::seal(frame),
        }
    }

    /// What stands before and behind a large value.
    fn large_entry(self, db: u32, head: &EntryHead<'_>, value: &[u8]) -> (Vec<u8>, Vec<u8>) {
        match self {
            SavedAs::Section => (format::large_entry(db, head, value), Vec::new()),
            SavedAs::Records => records::large_entry(db, head, value.len()),
        }
    }
}

struct Saving<'a, 'v> {
    engine: &'a Engine,
    saved_as: SavedAs,
    visit_shard: &'a mut VisitShard<'v>,
    sink: &'a mut dyn Sink,
    progress: &'a mut dyn FnMut(SaveStats),
    frames: u64,
    tally: Tally,
}

impl Saving<'_, '_> {
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
        for shard in 0..self.engine.shards().count() {
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

    /// Saves what the log has of a text whose last part it does not have yet: it goes on from here.
    /// Behind the keys: a text of records gives up the parts before it.
    fn begun_text(&mut self) {
        let (engine, mut offset) = (self.engine, 0);
        loop {
            let bytes = engine.ledger.log.begun_text(offset, SNAPSHOT_FRAME_BYTES);
            if bytes.is_empty() || self.sink.has_failed() {
                return;
            }
            self.put(&match self.saved_as {
                SavedAs::Section => format::begun_text(&bytes),
                SavedAs::Records => records::part(offset, &bytes),
            });
            offset += bytes.len();
        }
    }

    /// Saves a database. Its frames run over shards, so that small ones do not make small frames.
    fn database(&mut self, db: u32) {
        let mut open = OpenFrame::new(self.saved_as, db);
        for shard in 0..self.engine.shards().count() {
            let mut cursor = Some(0);
            while let Some(at) = cursor.filter(|_| !self.sink.has_failed()) {
                let engine = self.engine;
                (self.visit_shard)(shard, &mut |store| {
                    cursor = store.table(db).and_then(|table| open.fill(engine, table, at));
                });
                self.put_large(&mut open);
                for key in std::mem::take(&mut open.hashes) {
                    self.put_large_hash(shard, db, &key);
                }
                if is_long_enough(&open.frame) {
                    self.put_frame(&mut open);
                }
            }
        }
        if open.has_entries {
            self.put_frame(&mut open);
        }
    }

    fn put_frame(&mut self, open: &mut OpenFrame) {
        self.saved_as.seal(&mut open.frame);
        self.put(&open.frame);
        self.tally.add(open.tally);
        open.begin();
        self.report();
    }

    /// Saves a hash in as many frames as it needs, a bucket of its fields at a time. Neither a
    /// writer nor a reader then has to have all of it at once.
    fn put_large_hash(&mut self, shard: u32, db: u32, key: &[u8]) {
        let (engine, mut open) = (self.engine, OpenFrame::new(self.saved_as, db));
        let (mut content, mut cursor) = (Content::BegunHash, Some(0));
        while let Some(mut at) = cursor.filter(|_| !self.sink.has_failed()) {
            // Of one bucket there are several pieces if its fields are long.
            let (mut pieces, mut expiry) = (Vec::new(), None);
            (self.visit_shard)(shard, &mut |store| {
                let hash = engine.shards().hasher.hash(key);
                let entry = store.table(db).and_then(|table| table.look(hash, key));
                expiry = entry.as_ref().and_then(|entry| entry.expire_at());
                let Some(fields) = entry.and_then(|entry| Fields::of(entry).ok()) else {
                    cursor = None;
                    return;
                };
                cursor = loop {
                    match fields.scan(at, &mut |field| put_in_pieces(&mut pieces, field)) {
                        Some(next) if !pieces.iter().any(|pairs| is_long_enough(pairs)) => {
                            at = next
                        }
                        next => break next,
                    }
                };
            });
            for pairs in &pieces {
                let traits = Traits::default();
                open.put(&EntryHead { key, expire_at: expiry, traits, content }, pairs);
                content = Content::MoreOfHash;
                if is_long_enough(&open.frame) {
                    self.put_frame(&mut open);
                }
            }
        }
        if open.has_entries {
            self.put_frame(&mut open);
        }
    }

    fn put_large(&mut self, open: &mut OpenFrame) {
        for large in open.large.drain(..) {
            self.put(&large.before);
            self.sink.put(large.value.bytes());
            if !large.behind.is_empty() {
                self.sink.put(&large.behind);
            }
            self.tally.add(large.tally);
            self.report();
        }
    }
}

/// Appends a field of a hash to the last of the pieces, or to a new one if that is long enough.
fn put_in_pieces(pieces: &mut Vec<Vec<u8>>, field: FieldRef<'_>) {
    if pieces.last().is_none_or(|pairs| is_long_enough(pairs)) {
        pieces.push(Vec::new());
    }
    if let Some(pairs) = pieces.last_mut() {
        put_field_of_hash(pairs, field);
    }
}

/// Whether a frame, or what goes into one, is long enough.
fn is_long_enough(bytes: &[u8]) -> bool {
    bytes.len() >= SNAPSHOT_FRAME_BYTES
}

/// Keys of one database on their way into frames.
struct OpenFrame {
    saved_as: SavedAs,
    db: u32,
    frame: Vec<u8>,
    tally: Tally,
    large: Vec<LargeEntry>,
    /// Hashes that are to be written in several frames.
    hashes: Vec<Box<[u8]>>,
    has_entries: bool,
}

/// A key with a large value, which is not copied.
struct LargeEntry {
    before: Vec<u8>,
    value: SharedValue,
    behind: Vec<u8>,
    tally: Tally,
}

impl OpenFrame {
    fn new(saved_as: SavedAs, db: u32) -> Self {
        let (frame, large, hashes, tally) = (Vec::new(), Vec::new(), Vec::new(), Tally::default());
        let mut open = OpenFrame { saved_as, db, frame, tally, large, hashes, has_entries: false };
        open.begin();
        open
    }

    fn begin(&mut self) {
        self.frame.clear();
        self.saved_as.begin(&mut self.frame, self.db);
        self.tally = Tally::default();
        self.has_entries = false;
    }

    /// Adds keys from `cursor` on until the frame is full, or a large value is to be written. A
    /// bucket at a time: with a whole segment at a time, values below the limit could add up to 16
    /// MiB. Returns the next cursor, `None` at the end of the table.
    fn fill(&mut self, engine: &Engine, table: &Table, mut cursor: u32) -> Option<u32> {
        let is_full = |open: &Self| {
            is_long_enough(&open.frame) || !(open.large.is_empty() && open.hashes.is_empty())
        };
        while !is_full(self) {
            cursor =
                table.scan_bucket(&engine.shards().hasher, cursor, &mut |entry| self.add(entry))?;
        }
        Some(cursor)
    }

    fn add(&mut self, entry: EntryRef<'_>) {
        // A new type does not compile here until it is saved: it must not be left out in silence.
        match entry.value_type() {
            Type::String => {}
            Type::Hash => return self.add_hash(entry),
            #[cfg(test)]
            Type::Other => return,
        }
        let Ok(value) = entry.string() else { return };
        let entry = value.entry();
        let (key, expire_at) = (entry.key(), entry.expire_at());
        let content = Content::String;
        let head = EntryHead { key, expire_at, traits: value.traits(), content };
        if value.len() < SNAPSHOT_LARGE_BYTES {
            self.put(&head, value.bytes());
        } else {
            let tally = head.tally(value.len());
            let (before, behind) = self.saved_as.large_entry(self.db, &head, value.bytes());
            self.large.push(LargeEntry { before, value: value.to_shared(), behind, tally });
        }
    }

    fn put(&mut self, head: &EntryHead<'_>, value: &[u8]) {
        self.saved_as.put_entry(&mut self.frame, head, value);
        self.has_entries = true;
        self.tally.add(head.tally(value.len()));
    }

    fn add_hash(&mut self, entry: EntryRef<'_>) {
        if entry.weight() >= SNAPSHOT_LARGE_BYTES {
            self.hashes.push(entry.key().into());
            return;
        }
        let (key, expire_at, mut pairs) = (entry.key().to_vec(), entry.expire_at(), Vec::new());
        let Ok(fields) = Fields::of(entry) else { return };
        fields.iter().for_each(|field| put_field_of_hash(&mut pairs, field));
        let (traits, content) = (Traits::default(), Content::Hash);
        self.put(&EntryHead { key: &key, expire_at, traits, content }, &pairs);
    }
}
