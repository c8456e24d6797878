//! The run that a thread has under way: its records, and what its keys were before.

mod fields;

use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;

use crate::command::record::{MULTI, Pieces, Record, RecordText, select};
use crate::limits::{KEPT_ONCE_BYTES, REFERRED_BYTES};
use crate::store::{Before, ChangeKind, Entry, EntryRef, Table, Type, UnixMs};

/// Where a key's name begins and ends in the names of a run.
pub(in crate::engine::ledger) type NameAt = (u32, u32);

/// A change that can be taken back.
pub(in crate::engine::ledger) struct Change {
    pub(in crate::engine::ledger) db: u32,
    pub(in crate::engine::ledger) name: NameAt,
    pub(in crate::engine::ledger) before: Before,
}

/// A change of whole databases that can be taken back.
pub(in crate::engine::ledger) enum ChangeOfAll {
    /// These two were exchanged.
    Swapped(u32, u32),
    /// These were emptied: shard, database, and the table that is to be exchanged for the one there
    /// now, to take the change back or to make it again.
    Emptied(Vec<(u32, u32, Table)>),
}

/// What a thread has done under the tokens that it holds together.
#[derive(Default)]
pub struct OpenRun {
    /// Its place in the order of all runs, once it is published.
    pub(in crate::engine::ledger) position: u64,
    /// The unit that it is a part of; 0 for none.
    pub(in crate::engine::ledger) unit: u64,
    /// Its records.
    pub(in crate::engine::ledger) text: RecordText,
    /// The databases of its first and its last record.
    pub(in crate::engine::ledger) databases: Option<(u32, u32)>,
    pub(in crate::engine::ledger) records: u32,
    /// The version of a text that can hold them; 0 if there are none.
    pub(in crate::engine::ledger) version: u32,
    names: Vec<u8>,
    /// The oldest first.
    pub(in crate::engine::ledger) changes: Vec<Change>,
    /// If not `None`, nothing else was done in it.
    pub(in crate::engine::ledger) of_all: Option<ChangeOfAll>,
    /// Bytes that `changes` keep besides the names.
    kept: usize,
    /// The keys that `changes` keep whole, by database, once they keep much.
    whole: Option<HashMap<u32, HashSet<Box<[u8]>>>>,
    /// Where the group under way begins in the text's own bytes, and how many records there were.
    group: Option<(usize, u32)>,
    /// How many groups have been begun and not ended: only the outermost is marked.
    depth: u32,
}

impl OpenRun {
    /// Whether nothing was done in it.
    #[inline]
    pub(in crate::engine::ledger) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.records == 0
    }

    /// Whether its record is about all keys: such a record is the last one of a text.
    pub(in crate::engine::ledger) fn ends_text(&self) -> bool {
        self.of_all.is_some() && self.records > 0
    }

    /// The memory that it takes until it is logged, in bytes.
    pub(in crate::engine::ledger) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.text.len()
            + self.names.len()
            + self.kept
            + self.changes.len() * size_of::<Change>()
    }

    /// The name of a changed key.
    pub(in crate::engine::ledger) fn name(&self, (start, end): NameAt) -> &[u8] {
        &self.names[start as usize..end as usize]
    }

    /// Takes the changes, the oldest first.
    pub(in crate::engine::ledger) fn take_changes(&mut self) -> Vec<Change> {
        (self.kept, self.whole) = (0, None);
        std::mem::take(&mut self.changes)
    }

    /// Notes what a key was before the changes of an edit, the oldest first.
    pub(in crate::engine::ledger) fn note(
        &mut self,
        db: u32,
        key: &[u8],
        before: impl IntoIterator<Item = Before>,
    ) {
        if self.kept >= KEPT_ONCE_BYTES {
            return self.note_once(db, key, before);
        }
        let name = self.add_name(key);
        self.note_named(db, name, before);
    }

    /// [`OpenRun::note`], if the run keeps much: of a key that it keeps whole it needs no more,
    /// because a run is taken back as a whole. However often it overwrites keys, it keeps no more
    /// than what they were before it. Hashes are an exception: see [`Before::is_of_fields`]. And
    /// that a key was absent is always kept: it may be a hash now that was renamed, and must let go
    /// of the fields before the other key has them again.
    #[cold]
    fn note_once(&mut self, db: u32, key: &[u8], before: impl IntoIterator<Item = Before>) {
        let mut whole = self.whole.take().unwrap_or_else(|| self.kept_whole());
        let keys = whole.entry(db).or_default();
        let mut is_whole = keys.contains(key);
        let needed: SmallVec<[Before; 1]> = before
            .into_iter()
            .filter(|before| {
                let is_needed =
                    !is_whole || before.is_of_fields() || matches!(before, Before::Absent);
                is_whole |= before.is_whole();
                is_needed
            })
            .collect();
        if !needed.is_empty() {
            let name = self.add_name(key);
            self.note_named(db, name, needed);
        }
        if is_whole && !keys.contains(key) {
            keys.insert(key.into());
        }
        self.whole = Some(whole);
    }

    fn kept_whole(&self) -> HashMap<u32, HashSet<Box<[u8]>>> {
        let mut whole: HashMap<u32, HashSet<Box<[u8]>>> = HashMap::new();
        for change in self.changes.iter().filter(|change| change.before.is_whole()) {
            whole.entry(change.db).or_default().insert(self.name(change.name).into());
        }
        whole
    }

    /// Notes that a key was removed.
    pub(in crate::engine::ledger) fn note_removed(&mut self, db: u32, entry: Entry) {
        let name = self.add_name(entry.key());
        self.note_named(db, name, [Before::Was(entry)]);
    }

    fn add_name(&mut self, key: &[u8]) -> NameAt {
        let start = self.names.len() as u32;
        self.names.extend_from_slice(key);
        (start, self.names.len() as u32)
    }

    /// [`OpenRun::note`] for a key whose name the run has.
    pub(in crate::engine::ledger) fn note_named(
        &mut self,
        db: u32,
        name: NameAt,
        before: impl IntoIterator<Item = Before>,
    ) {
        for before in before {
            self.kept += before.bytes();
            self.changes.push(Change { db, name, before });
        }
    }

    /// Adds a record about keys of that database.
    pub(in crate::engine::ledger) fn add(&mut self, db: u32, record: Record<'_>) {
        self.begin_record(db, record.version());
        record.write(&mut self.text.own);
    }

    #[inline]
    fn begin_record(&mut self, db: u32, version: u32) {
        match &mut self.databases {
            Some((_, last)) if *last == db => {}
            Some((_, last)) => {
                *last = db;
                select(db, &mut self.text.own);
            }
            none => *none = Some((db, db)),
        }
        self.version = self.version.max(version);
        self.records += 1;
    }

    /// Adds the record of what became of a key. `entry` is what the table has of it now; a new
    /// value came of the payload `packed`, if there is one.
    pub(in crate::engine::ledger) fn add_key(
        &mut self,
        db: u32,
        key: &[u8],
        entry: Option<EntryRef<'_>>,
        kind: &ChangeKind,
        packed: Option<&[u8]>,
    ) {
        let Some(entry) = entry else { return self.add(db, Record::Del { key }) };
        let expire_at = entry.expire_at();
        match kind {
            ChangeKind::Expiry => return self.add_expiry(db, key, expire_at),
            ChangeKind::Traits => {
                return self.add(db, Record::Traits { key, expire_at, traits: entry.traits() });
            }
            _ => {}
        }
        let value = match entry.value_type() {
            Type::Hash => return self.add_hash(db, key, entry, kind),
            _ => entry.string(),
        };
        let Ok(value) = value else { return };
        let bytes = value.bytes();
        let record = match (kind, expire_at) {
            (ChangeKind::Parts { parts, before }, _) => match parts[..] {
                [(start, end)] if (start as usize) < bytes.len() => {
                    let part = &bytes[start as usize..bytes.len().min(end as usize)];
                    if start as usize == *before {
                        Record::Append { key, bytes: part }
                    } else {
                        Record::SetRange { key, offset: start, bytes: part }
                    }
                }
                [_, _, ..] => Record::SetRanges { key, pieces: Pieces::Of(bytes, parts) },
                _ => Record::Set { key, value: bytes, expire_at, traits: value.traits() },
            },
            (ChangeKind::Whole, _) if packed.is_some_and(|it| it.len() < bytes.len()) => {
                Record::Restore { key, payload: packed.unwrap_or_default(), expire_at }
            }
            _ => Record::Set { key, value: bytes, expire_at, traits: value.traits() },
        };
        // A part is copied: a reference to a value that grows would force a copy of all of it.
        if let Record::Set { expire_at, traits, .. } = record
            && bytes.len() >= REFERRED_BYTES
            && let Some(value) = value.shared()
        {
            self.begin_record(db, record.version());
            return self.text.add_set(key, value, expire_at, &traits);
        }
        self.add(db, record);
    }

    fn add_expiry(&mut self, db: u32, key: &[u8], expire_at: Option<UnixMs>) {
        self.add(
            db,
            match expire_at {
                Some(at) => Record::PexpireAt { key, at },
                None => Record::Persist { key },
            },
        );
    }

    /// Adds what a later run of the same unit has done.
    pub(in crate::engine::ledger) fn join(&mut self, mut later: Box<OpenRun>) {
        if let Some((first, last)) = later.databases {
            let own = self.databases.get_or_insert((first, first));
            if own.1 != first {
                select(first, &mut self.text.own);
            }
            own.1 = last;
        }
        self.text.add(&later.text);
        self.records += later.records;
        self.version = self.version.max(later.version);
        for change in later.take_changes() {
            self.note(change.db, later.name(change.name), [change.before]);
        }
    }

    /// The records up to [`OpenRun::end_group`] belong together.
    pub(in crate::engine::ledger) fn begin_group(&mut self) {
        if self.depth == 0 {
            self.group = Some((self.text.own.len(), self.records));
            self.text.own.extend_from_slice(MULTI);
        }
        self.depth += 1;
    }

    /// Ends a group. A group of one record is not marked.
    pub(in crate::engine::ledger) fn end_group(&mut self) {
        self.depth -= 1;
        if self.depth > 0 {
            return;
        }
        let Some((start, records)) = self.group.take() else { return };
        if self.records > records + 1 {
            return Record::Exec.write(&mut self.text.own);
        }
        self.text.remove_own(start, MULTI.len());
    }

    /// Adds records that are in a group which others mark, if `is_in_group`.
    pub(in crate::engine::ledger) fn add_to_group(
        &mut self,
        is_in_group: bool,
        add: impl FnOnce(&mut Self),
    ) {
        self.depth += u32::from(is_in_group);
        add(self);
        self.depth -= u32::from(is_in_group);
    }

    /// Makes it empty, and keeps some of its memory.
    pub(in crate::engine::ledger) fn clear(&mut self) {
        const KEPT: usize = 64 << 10;
        self.text.clear(KEPT);
        self.names.clear();
        self.changes.clear();
        (self.of_all, self.whole) = (None, None);
        (self.databases, self.records, self.kept) = (None, 0, 0);
        (self.unit, self.version) = (0, 0);
    }
}
