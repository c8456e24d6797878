//! Commands over all shards, and changes to all shards, that are short enough to run at once.

use smallvec::SmallVec;

use super::attempt::outcome_of;
use super::call::{Call, Outcome, Taking};
use super::long::ScanState;
use super::slot::ThreadSlot;
use super::state::Engine;
use crate::command::record::Record;
use crate::command::slot::slot_arg;
use crate::command::{Cluster, Error, OnAllKeys, Reply, ScanArgs, swapped_dbs};
use crate::limits::{RANDOM_BUCKETS, RANDOM_DRAWS, SCAN_AT_ONCE, SCAN_SHARDS};
use crate::store::{KeyHasher, Now, Remains, Table};
use crate::sync::Locked;

/// Whose command changes all keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangedBy {
    /// One of midi's, which midi logs.
    Midi,
    /// One of the host's, which the host logs.
    Host,
}

impl ChangedBy {
    fn logs<R>(self, record: R) -> Option<R> {
        (self == ChangedBy::Midi).then_some(record)
    }
}

impl Engine {
    pub(super) fn attempt_all_keys(
        &self,
        slot: &ThreadSlot,
        call: &Call<'_>,
        taking: Taking<'_>,
        which: OnAllKeys,
        reply: &mut dyn Reply,
    ) -> Outcome {
        slot.counted(call.command, || match which {
            OnAllKeys::DbSize => {
                let keys = self.books.census(call.db).keys;
                if !self.see_counted(slot) {
                    return Outcome::NeedsMain;
                }
                reply.integer(keys);
                Outcome::Done
            }
            OnAllKeys::CountKeysInSlot => {
                let counted = self.count_keys_in_slot(call);
                if !self.see_counted(slot) {
                    return Outcome::NeedsMain;
                }
                outcome_of(call, counted.map(|keys| reply.integer(keys as i64)), reply)
            }
            OnAllKeys::RandomKey => self.random_key(slot, call, taking, reply),
            OnAllKeys::Scan => self.scan(slot, call, taking, reply),
            OnAllKeys::SwapDb => self.swap(slot, call, reply),
            OnAllKeys::Keys
            | OnAllKeys::KeyspaceDigest
            | OnAllKeys::Populate
            | OnAllKeys::FlushDb
            | OnAllKeys::FlushAll => Outcome::Long,
        })
    }

    fn count_keys_in_slot(&self, call: &Call<'_>) -> Result<u64, Error> {
        let slot = slot_arg(&call.args, 1)?;
        if self.slots.are_on() { Ok(self.slots.keys(slot)) } else { Err(Error::NoCluster) }
    }

    /// Only the main thread exchanges databases, because it may wait for all tokens.
    fn swap(&self, slot: &ThreadSlot, call: &Call<'_>, reply: &mut dyn Reply) -> Outcome {
        if self.config.cluster != Cluster::Off {
            return outcome_of(call, Err(Error::NotInCluster("SWAPDB")), reply);
        }
        let (a, b) = match swapped_dbs(&call.args, self.config.databases) {
            Ok(dbs) => dbs,
            Err(error) => return outcome_of(call, Err(error), reply),
        };
        let Some(locked) = slot.locked() else {
            return Outcome::Long;
        };
        if a != b {
            self.swap_dbs(locked, a, b, ChangedBy::Midi);
        }
        reply.ok();
        Outcome::Done
    }

    fn scan(
        &self,
        slot: &ThreadSlot,
        call: &Call<'_>,
        taking: Taking<'_>,
        reply: &mut dyn Reply,
    ) -> Outcome {
        let args = match ScanArgs::parse(&call.args, &call.limits) {
            Ok(args) => args,
            Err(error) => return outcome_of(call, Err(error), reply),
        };
        if args.count > SCAN_AT_ONCE {
            return Outcome::Long;
        }
        let mut scan = ScanState::new(self, &args, call.db);
        for visits in 0..SCAN_SHARDS {
            // A shorter reply is correct as long as its cursor is.
            if scan.is_done() || scan.bytes() > call.limits.max_reply_bytes / 2 {
                break;
            }
            let Some(held) = self.take(scan.shard(), taking) else {
                if visits > 0 {
                    break;
                }
                return Outcome::Busy;
            };
            let shard = scan.shard();
            scan.visit(self, &held, &call.now, &mut || false);
            self.release(slot, shard, held);
        }
        if scan.bytes() > call.limits.max_reply_bytes {
            return Outcome::TooLarge;
        }
        scan.reply(reply, None);
        Outcome::Done
    }

    /// Draws shards, and a bucket in each, until one gives a key. If that keeps failing, because
    /// there are few keys or most have expired, the search for one is long work.
    fn random_key(
        &self,
        slot: &ThreadSlot,
        call: &Call<'_>,
        taking: Taking<'_>,
        reply: &mut dyn Reply,
    ) -> Outcome {
        if self.books.census(call.db).keys == 0 {
            if !self.see_counted(slot) {
                return Outcome::NeedsMain;
            }
            reply.null();
            return Outcome::Done;
        }
        for _ in 0..RANDOM_DRAWS {
            let draw = fastrand::u64(..);
            let shard = draw as u32 & self.mask;
            let Some(held) = self.take(shard, taking) else { continue };
            let table = held.table(call.db);
            let key = table.and_then(|table| random_entry(table, &self.hasher, draw, &call.now));
            self.release(slot, shard, held);
            if let Some(key) = key {
                reply.bulk(&key);
                return Outcome::Done;
            }
        }
        Outcome::Long
    }

    /// Empties databases at one moment (one of them, or all); returns the tables to be freed. Each
    /// key counts as a change.
    pub fn flush(&self, locked: Locked<'_>, only: Option<u32>, by: ChangedBy) -> Vec<Remains> {
        let record = match only {
            Some(db) => (db, Record::FlushDb),
            None => (0, Record::FlushAll),
        };
        let tables = self.edit_all(locked, by.logs(record), |shard, store, changes| {
            if shard == 0 {
                self.slots.clear(only);
            }
            let mut next = only.or(Some(0));
            while let Some(db) = next {
                let table =
                    self.edit_databases(locked, store, &[db], changes, |store| store.take_db(db));
                if !table.is_empty() {
                    self.main_slot(locked).changed.add(table.census().keys.max(0) as u64);
                    changes.taken.push((shard, db, table));
                }
                next = if only.is_none() { store.next_db(db + 1) } else { None };
            }
        });
        tables.into_iter().map(Table::into_remains).collect()
    }

    /// Exchanges two databases at one moment.
    pub fn swap_dbs(&self, locked: Locked<'_>, a: u32, b: u32, by: ChangedBy) {
        self.edit_all(locked, by.logs((a, Record::SwapDb { a, b })), |shard, store, changes| {
            if shard == 0 {
                self.slots.swap(a, b);
            }
            self.edit_databases(locked, store, &[a, b], changes, |store| store.swap_dbs(a, b));
        });
    }
}

/// Any live key of the bucket that a random number falls into, or of one of the next buckets;
/// `None` if none of these has one.
fn random_entry(table: &Table, hasher: &KeyHasher, draw: u64, now: &Now) -> Option<Vec<u8>> {
    let mut cursor = Some(table.bucket_start((draw >> 32) as u32));
    for _ in 0..RANDOM_BUCKETS {
        let at = cursor.unwrap_or(0);
        let mut live: SmallVec<[Vec<u8>; 8]> = SmallVec::new();
        cursor = table.scan_bucket(hasher, at, &mut |entry| {
            if !entry.is_expired(now) {
                live.push(entry.key().to_vec());
            }
        });
        if !live.is_empty() {
            let chosen = (draw as u32 >> 8) as usize % live.len();
            return Some(live.swap_remove(chosen));
        }
    }
    None
}
