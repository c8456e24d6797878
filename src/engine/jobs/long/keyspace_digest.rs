//! KEYSPACEDIGEST: every worker adds up the hashes of the keys in its own shards.
//!
//! ```text
//! key       XXH3(type 1 │ key's length 4 │ key │ 0, or 1 and expiry 8 │ value)
//! type      0: string, 1: hash
//! value     of a string its bytes; of a hash its number of fields 8 │ their sum 16
//! fields    the sum of XXH3(field's length 4 │ field │ 0, or 1 and expiry 8 │ value) over them
//! database  the sum of its keys
//! keyspace  the sum of XXH3(database's number 4 │ its sum 16), over the databases that have keys
//! ```
//!
//! XXH3 has 128 bits here, and sums are modulo 2^128, so that it does not matter which worker comes
//! to a key, and when. Numbers are little-endian; the expiry is in Unix milliseconds. The page
//! docs/commands/keyspacedigest.md promises all this to clients, who compare digests of servers
//! with different versions of midi: it cannot change.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::visits::Visits;
use crate::command::Reply;
use crate::engine::{Engine, Part, Progress, Slice, Task, Work};
use crate::limits::{DIGEST_FIELDS, DIGEST_HASH_BYTES, DIGEST_PIECE_BYTES};
use crate::store::{Entry, EntryRef, FieldCursor, FieldRef, Fields, KeyHasher, Store, Type};

/// The sums of the databases that were visited, by number.
type Sums = BTreeMap<u32, u128>;

/// The digest of one database, or of all.
pub(super) fn work(engine: &Engine, only: Option<u32>) -> Work {
    let task = Arc::new(DigestTask { only, sums: Mutex::default() });
    let first = || Place { db: only.unwrap_or(0), cursor: Some(0), large: Vec::new() };
    Work::on_every_worker(engine, task.clone(), u64::from(engine.shards().count()), |worker| {
        DigestPart {
            task: Arc::clone(&task),
            shards: Visits::new(engine.shards().owned_by(worker).map(|shard| (shard, first()))),
            sums: Sums::new(),
            bytes: Vec::new(),
        }
    })
}

struct DigestTask {
    only: Option<u32>,
    sums: Mutex<Sums>,
}

impl Task for DigestTask {
    fn reply(&self, reply: &mut dyn Reply, _: &Slice<'_>) -> bool {
        let sums = self.sums.lock();
        let digest = match self.only {
            Some(db) => sums.get(&db).copied().unwrap_or(0),
            None => sum_of_all(&sums),
        };
        reply.bulk(format!("{digest:032x}").as_bytes());
        true
    }
}

/// Databases without keys must not count: which of them have a table depends on their past.
fn sum_of_all(sums: &Sums) -> u128 {
    let numbered = sums.iter().filter(|&(_, &sum)| sum != 0).map(|(db, sum)| {
        let mut bytes = [0; 20];
        bytes[..4].copy_from_slice(&db.to_le_bytes());
        bytes[4..].copy_from_slice(&sum.to_le_bytes());
        xxh3_128(&bytes)
    });
    numbered.fold(0, u128::wrapping_add)
}

struct DigestPart {
    task: Arc<DigestTask>,
    shards: Visits<Place>,
    sums: Sums,
    /// A buffer for the bytes of a key that are hashed together.
    bytes: Vec<u8>,
}

/// How far the visit of a shard has come.
struct Place {
    db: u32,
    /// Where the visit of the database goes on; `None` at its end.
    cursor: Option<u32>,
    /// Keys before the cursor whose values are still to be hashed.
    large: Vec<LargeKey>,
}

/// A key whose value is hashed piece by piece: hashing all of it would take too long.
struct LargeKey {
    key: Box<[u8]>,
    hashed: HashedSoFar,
}

/// How much of a value has been hashed.
enum HashedSoFar {
    /// So many bytes of a string.
    String(Box<Xxh3>, usize),
    /// The fields of a hash before a cursor.
    Fields { head: Box<[u8]>, cursor: FieldCursor, count: usize, sum: u128 },
}

impl Part for DigestPart {
    fn slice(&mut self, slice: &Slice<'_>) -> Progress {
        let DigestPart { task, shards, sums, bytes } = self;
        let progress = shards.slice(slice, |held, mut place| {
            let is_done = place.visit(slice, held, task.only, sums, bytes);
            (!is_done).then_some(place)
        });
        if progress == Progress::Done {
            let mut all = task.sums.lock();
            for (&db, sum) in &*sums {
                let of_db = all.entry(db).or_default();
                *of_db = of_db.wrapping_add(*sum);
            }
        }
        progress
    }
}

impl Place {
    /// Visits the held shard as far as the slice allows. True at its end.
    fn visit(
        &mut self,
        slice: &Slice<'_>,
        store: &Store,
        only: Option<u32>,
        sums: &mut Sums,
        bytes: &mut Vec<u8>,
    ) -> bool {
        let hasher = &slice.engine.shards().hasher;
        loop {
            let sum = sums.entry(self.db).or_default();
            if let Some(large) = self.large.last_mut() {
                if let Some(hash) = large.next_piece(hasher, store, self.db) {
                    *sum = sum.wrapping_add(hash);
                    self.large.pop();
                }
            } else if let Some(cursor) = self.cursor {
                self.visit_bucket(hasher, store, cursor, sum, bytes);
            } else if !self.next_db(store, only) {
                return true;
            }
            if slice.spent() {
                return false;
            }
        }
    }

    /// Adds the keys of the bucket at the cursor.
    fn visit_bucket(
        &mut self,
        hasher: &KeyHasher,
        store: &Store,
        cursor: u32,
        sum: &mut u128,
        bytes: &mut Vec<u8>,
    ) {
        let large = &mut self.large;
        let mut add = |entry: EntryRef<'_>| {
            // Expired keys count as long as they are there: a digest depends on no clock.
            write_head(&entry, bytes);
            if entry.value_type() == Type::Hash {
                let (key, weight) = (entry.key().to_vec(), entry.weight());
                let Ok(fields) = Fields::of(entry) else { return };
                if fields.len() > DIGEST_FIELDS || weight > DIGEST_HASH_BYTES {
                    large.push(LargeKey::of_hash(&key, bytes));
                } else {
                    let of_fields = fields.iter().map(digest_of_field).fold(0, u128::wrapping_add);
                    *sum = sum.wrapping_add(digest_of_hash(bytes, fields.len(), of_fields));
                }
                return;
            }
            let value = Entry::string(&entry).unwrap_or_default();
            if value.len() > DIGEST_PIECE_BYTES {
                large.push(LargeKey::new(entry.key(), bytes));
            } else {
                bytes.extend_from_slice(value);
                *sum = sum.wrapping_add(xxh3_128(bytes));
            }
        };
        let table = store.table(self.db);
        self.cursor = table.and_then(|table| table.scan_bucket(hasher, cursor, &mut add));
    }

    /// Goes on to the next database of the shard. False if there is none to visit.
    fn next_db(&mut self, store: &Store, only: Option<u32>) -> bool {
        let next = if only.is_none() { store.next_db(self.db + 1) } else { None };
        let Some(db) = next else { return false };
        (self.db, self.cursor) = (db, Some(0));
        true
    }
}

impl LargeKey {
    /// A key whose hash begins with `head`.
    fn new(key: &[u8], head: &[u8]) -> Self {
        let mut hasher = Box::new(Xxh3::new());
        hasher.update(head);
        LargeKey { key: key.into(), hashed: HashedSoFar::String(hasher, 0) }
    }

    /// The same, of a hash.
    fn of_hash(key: &[u8], head: &[u8]) -> Self {
        let hashed = HashedSoFar::Fields { head: head.into(), cursor: 0, count: 0, sum: 0 };
        LargeKey { key: key.into(), hashed }
    }

    /// Hashes the next piece of the value. Returns the key's hash at the end, 0 if the key has been
    /// removed meanwhile; `None` if there is more.
    fn next_piece(&mut self, hasher: &KeyHasher, store: &Store, db: u32) -> Option<u128> {
        let table = store.table(db);
        let found = table.and_then(|table| {
            table.find(hasher.hash(&self.key), &self.key).map(|found| table.entry(found))
        });
        let Some(entry) = found else { return Some(0) };
        // It may be another value by now, even a shorter one. Then the digest is of no moment, as
        // whenever somebody writes.
        match &mut self.hashed {
            HashedSoFar::String(hasher, done) => {
                let Ok(string) = entry.string() else { return Some(0) };
                let rest = string.bytes().get(*done..).unwrap_or_default();
                let piece = &rest[..rest.len().min(DIGEST_PIECE_BYTES)];
                hasher.update(piece);
                *done += piece.len();
                (piece.len() == rest.len()).then(|| hasher.digest128())
            }
            HashedSoFar::Fields { head, cursor, count, sum } => {
                let Ok(fields) = Fields::of(entry) else { return Some(0) };
                let next = fields.scan(*cursor, &mut |field| {
                    *sum = sum.wrapping_add(digest_of_field(field));
                    *count += 1;
                });
                *cursor = next.unwrap_or(0);
                next.is_none().then(|| digest_of_hash(&mut head.to_vec(), *count, *sum))
            }
        }
    }
}

/// The hash of a field and its value.
fn digest_of_field(field: FieldRef<'_>) -> u128 {
    let mut hasher = Xxh3::new();
    hasher.update(&(field.name.len() as u32).to_le_bytes());
    hasher.update(field.name);
    match field.expire_at {
        None => hasher.update(&[0]),
        Some(at) => {
            hasher.update(&[1]);
            hasher.update(&at.to_le_bytes());
        }
    }
    hasher.update(field.value);
    hasher.digest128()
}

/// That of a key with so many fields. `bytes` begins with the bytes before its value.
fn digest_of_hash(bytes: &mut Vec<u8>, count: usize, sum: u128) -> u128 {
    bytes.extend_from_slice(&(count as u64).to_le_bytes());
    bytes.extend_from_slice(&sum.to_le_bytes());
    xxh3_128(bytes)
}

/// Replaces `bytes` with the bytes of a key that are hashed before its value.
fn write_head(entry: &Entry, bytes: &mut Vec<u8>) {
    bytes.clear();
    bytes.push(match entry.value_type() {
        Type::String => 0,
        Type::Hash => 1,
        #[cfg(test)]
        Type::Other => u8::MAX,
    });
    // Keys are far shorter than 4 GiB: entries keep their lengths in 32 bits.
    bytes.extend_from_slice(&(entry.key().len() as u32).to_le_bytes());
    bytes.extend_from_slice(entry.key());
    match entry.expire_at() {
        None => bytes.push(0),
        Some(at) => {
            bytes.push(1);
            bytes.extend_from_slice(&at.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests;
