//! The run that a thread has under way: its records, and what its keys were before.

use crate::command::record::{MULTI, Record, select};
use crate::store::{Before, ChangeKind, Entry, EntryRef, Table};

/// Where a key's name begins and ends in the names of a run.
pub(super) type NameAt = (u32, u32);

/// A change that can be taken back.
pub(super) struct Change {
    pub(super) db: u32,
    pub(super) name: NameAt,
    pub(super) before: Before,
}

/// A change of whole databases that can be taken back.
pub(super) enum ChangeOfAll {
    /// These two were exchanged.
    Swapped(u32, u32),
    /// These were emptied: shard, database, and what it has not now, but had before, or would have
    /// if the change were made again.
    Emptied(Vec<(u32, u32, Table)>),
}

/// What a thread has done under the tokens that it holds together.
#[derive(Default)]
pub struct OpenRun {
    /// Its place in the order of all runs, once it is published.
    pub(super) position: u64,
    /// The unit that it is a part of; 0 for none.
    pub(super) unit: u64,
    /// Its records.
    pub(super) text: Vec<u8>,
    /// The databases of its first and its last record.
    pub(super) databases: Option<(u32, u32)>,
    pub(super) records: u32,
    names: Vec<u8>,
    /// The oldest first.
    pub(super) changes: Vec<Change>,
    /// If not `None`, nothing else was done in it.
    pub(super) of_all: Option<ChangeOfAll>,
    /// Bytes that `changes` keep besides the names.
    kept: usize,
    /// Where the group under way begins in the text, and how many records there were.
    group: Option<(usize, u32)>,
    /// How many groups have been begun and not ended: only the outermost is marked.
    depth: u32,
}

impl OpenRun {
    /// Whether nothing was done in it.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.records == 0
    }

    /// Whether its record is about all keys: such a record is the last one of a text.
    pub(super) fn ends_text(&self) -> bool {
        self.of_all.is_some() && self.records > 0
    }

    /// The memory that it takes until it is logged, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.text.len()
            + self.names.len()
            + self.kept
            + self.changes.len() * size_of::<Change>()
    }

    /// The name of a changed key.
    pub(super) fn name(&self, (start, end): NameAt) -> &[u8] {
        &self.names[start as usize..end as usize]
    }

    /// Takes the changes, the oldest first.
    pub(super) fn take_changes(&mut self) -> Vec<Change> {
        self.kept = 0;
        std::mem::take(&mut self.changes)
    }

    /// Notes what a key was before the changes of an edit, the oldest first.
    pub(super) fn note(&mut self, db: u32, key: &[u8], before: impl IntoIterator<Item = Before>) {
        let name = self.add_name(key);
        self.note_named(db, name, before);
    }

    /// Notes that a key was removed.
    pub(super) fn note_removed(&mut self, db: u32, entry: Entry) {
        let name = self.add_name(entry.key());
        self.note_named(db, name, [Before::Was(entry)]);
    }

    fn add_name(&mut self, key: &[u8]) -> NameAt {
        let start = self.names.len() as u32;
        self.names.extend_from_slice(key);
        (start, self.names.len() as u32)
    }

    /// [`OpenRun::note`] for a key whose name the run has.
    pub(super) fn note_named(
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
    pub(super) fn add(&mut self, db: u32, record: Record<'_>) {
        match &mut self.databases {
            Some((_, last)) if *last == db => {}
            Some((_, last)) => {
                *last = db;
                select(db, &mut self.text);
            }
            none => *none = Some((db, db)),
        }
        record.write(&mut self.text);
        self.records += 1;
    }

    /// Adds the record of what became of a key; `entry` is what the table has of it now.
    pub(super) fn add_key(
        &mut self,
        db: u32,
        key: &[u8],
        entry: Option<EntryRef<'_>>,
        kind: ChangeKind,
    ) {
        let Some(entry) = entry else { return self.add(db, Record::Del { key }) };
        let expire_at = entry.expire_at();
        let Ok(value) = entry.string() else { return };
        let bytes = value.bytes();
        let record = match (kind, expire_at) {
            (ChangeKind::Expiry, Some(at)) => Record::PexpireAt { key, at },
            (ChangeKind::Expiry, None) => Record::Persist { key },
            (ChangeKind::Part { start, end, before }, _) if start < bytes.len() => {
                let part = &bytes[start..end.min(bytes.len())];
                if start == before {
                    Record::Append { key, bytes: part }
                } else {
                    Record::SetRange { key, offset: start as u32, bytes: part }
                }
            }
            _ => Record::Set { key, value: bytes, expire_at, origin: value.origin() },
        };
        self.add(db, record);
    }

    /// The records up to [`OpenRun::end_group`] belong together.
    pub(super) fn begin_group(&mut self) {
        if self.depth == 0 {
            self.group = Some((self.text.len(), self.records));
            self.text.extend_from_slice(MULTI);
        }
        self.depth += 1;
    }

    /// Ends a group. A group of one record is not marked.
    pub(super) fn end_group(&mut self) {
        self.depth -= 1;
        if self.depth > 0 {
            return;
        }
        let Some((start, records)) = self.group.take() else { return };
        if self.records > records + 1 {
            return Record::Exec.write(&mut self.text);
        }
        self.text.drain(start..start + MULTI.len());
    }

    /// Makes it empty, and keeps some of its memory.
    pub(super) fn clear(&mut self) {
        const KEPT: usize = 64 << 10;
        if self.text.capacity() > KEPT {
            self.text = Vec::new();
        }
        self.text.clear();
        self.names.clear();
        self.changes.clear();
        (self.of_all, self.unit) = (None, 0);
        (self.databases, self.records, self.kept) = (None, 0, 0);
    }
}
