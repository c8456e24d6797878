//! The records of hashes.

use super::OpenRun;
use crate::command::record::{Record, Words};
use crate::limits::HASH_RECORD_BYTES;
use crate::store::{ChangeKind, EntryRef, FieldNames, Fields};

impl OpenRun {
    /// Adds the record of what became of a hash.
    pub(super) fn add_hash(&mut self, db: u32, key: &[u8], entry: EntryRef<'_>, kind: &ChangeKind) {
        let expire_at = entry.expire_at();
        let Ok(fields) = Fields::of(entry) else { return };
        if let ChangeKind::Fields(names) = kind {
            return self.add_changed(db, key, fields, names);
        }
        self.begin_group();
        self.add(db, Record::Del { key });
        self.add_all(db, key, fields);
        if expire_at.is_some() {
            self.add_expiry(db, key, expire_at);
        }
        self.end_group();
    }

    /// Adds those fields that are there now, and removes the others.
    fn add_changed(&mut self, db: u32, key: &[u8], fields: Fields<'_>, names: &FieldNames) {
        let (mut set, mut removed) = (Vec::new(), Vec::new());
        for name in names.iter() {
            match fields.get(name) {
                Some(value) => set.extend([name, value]),
                None => removed.push(name),
            }
        }
        let is_group = !set.is_empty() && !removed.is_empty();
        if is_group {
            self.begin_group();
        }
        if !set.is_empty() {
            self.add(db, Record::HSet { key, pairs: Words::List(&set) });
        }
        if !removed.is_empty() {
            self.add(db, Record::HDel { key, fields: Words::List(&removed) });
        }
        if is_group {
            self.end_group();
        }
    }

    /// Adds all fields, in records of a bounded length.
    fn add_all(&mut self, db: u32, key: &[u8], fields: Fields<'_>) {
        let (mut pairs, mut bytes) = (Vec::new(), 0);
        for (field, value) in fields.iter() {
            pairs.extend([field, value]);
            bytes += field.len() + value.len();
            if bytes >= HASH_RECORD_BYTES {
                self.add(db, Record::HSet { key, pairs: Words::List(&pairs) });
                pairs.clear();
                bytes = 0;
            }
        }
        if !pairs.is_empty() {
            self.add(db, Record::HSet { key, pairs: Words::List(&pairs) });
        }
    }
}
