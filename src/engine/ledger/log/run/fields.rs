//! The records of hashes.

use super::OpenRun;
use crate::command::record::{Record, Words};
use crate::limits::HASH_RECORD_BYTES;
use crate::store::{ChangeKind, EntryRef, FieldNames, FieldRef, Fields};

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
        let (mut set, mut removed, mut timed) = (Vec::new(), Vec::new(), Vec::new());
        for (name, only_expiry) in names.iter() {
            match fields.find(name) {
                Some(field) if only_expiry => timed.push(field),
                Some(field) => {
                    set.extend([name, field.value]);
                    timed.extend(field.expire_at.map(|_| field));
                }
                None => removed.push(name),
            }
        }
        let kinds = [set.is_empty(), removed.is_empty(), timed.is_empty()];
        let is_group = kinds.iter().filter(|is_empty| !**is_empty).count() > 1 || timed.len() > 1;
        if is_group {
            self.begin_group();
        }
        if !set.is_empty() {
            self.add(db, Record::HSet { key, pairs: Words::List(&set) });
        }
        if !removed.is_empty() {
            self.add(db, Record::HDel { key, fields: Words::List(&removed) });
        }
        self.add_expiries(db, key, &timed);
        if is_group {
            self.end_group();
        }
    }

    /// Adds the expiries of these fields; those that follow each other and have the same are
    /// together.
    fn add_expiries(&mut self, db: u32, key: &[u8], fields: &[FieldRef<'_>]) {
        for alike in fields.chunk_by(|a, b| a.expire_at == b.expire_at) {
            let names: Vec<&[u8]> = alike.iter().map(|field| field.name).collect();
            let fields = Words::List(&names);
            match alike[0].expire_at {
                Some(at) => self.add(db, Record::HPexpireAt { key, at, fields }),
                None => self.add(db, Record::HPersist { key, fields }),
            }
        }
    }

    /// Adds all fields, in records of a bounded length.
    fn add_all(&mut self, db: u32, key: &[u8], fields: Fields<'_>) {
        let (mut some, mut bytes) = (Vec::new(), 0);
        for field in fields.iter() {
            some.push(field);
            bytes += field.name.len() + field.value.len();
            if bytes >= HASH_RECORD_BYTES {
                self.add_some(db, key, &some);
                some.clear();
                bytes = 0;
            }
        }
        if !some.is_empty() {
            self.add_some(db, key, &some);
        }
    }

    fn add_some(&mut self, db: u32, key: &[u8], fields: &[FieldRef<'_>]) {
        let pairs: Vec<&[u8]> = fields.iter().flat_map(|it| [it.name, it.value]).collect();
        self.add(db, Record::HSet { key, pairs: Words::List(&pairs) });
        let timed = fields.iter().filter(|field| field.expire_at.is_some());
        self.add_expiries(db, key, &timed.copied().collect::<Vec<_>>());
    }
}
