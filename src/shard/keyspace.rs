//! Commands and changes over all shards that are short enough to happen at once.

use std::sync::atomic::Ordering;

use super::call::{Call, Outcome, Taking, said};
use super::counters::{Census, Seat};
use super::engine::Engine;
use super::long::ScanState;
use crate::command::{Keyspace, Reply, ScanArgs};
use crate::limits::{MAIN_SPINS, SCAN_AT_ONCE, SCAN_SHARDS};
use crate::store::{KeyHasher, Now, Store, Table, UnixMs, Value};

impl Engine {
    pub(super) fn attempt_keyspace(
        &self,
        seat: &Seat,
        call: &Call<'_>,
        taking: Taking,
        which: Keyspace,
        reply: &mut dyn Reply,
    ) -> Outcome {
        seat.counted(call.command, || match which {
            Keyspace::DbSize => {
                reply.integer(self.census(call.db).keys);
                Outcome::Done
            }
            Keyspace::RandomKey => self.random_key(call, taking, reply),
            Keyspace::Scan => self.scan(call, taking, reply),
            Keyspace::Keys | Keyspace::Populate | Keyspace::FlushDb | Keyspace::FlushAll => Outcome::Long,
        })
    }

    fn scan(&self, call: &Call<'_>, taking: Taking, reply: &mut dyn Reply) -> Outcome {
        let args = match ScanArgs::parse(&call.args, &call.limits) {
            Ok(args) => args,
            Err(error) => return said(call, Err(error), reply),
        };
        if args.count > SCAN_AT_ONCE {
            return Outcome::Long;
        }
        let mut scan = ScanState::new(self, &args, call.db);
        for visits in 0..SCAN_SHARDS {
            if scan.is_done() {
                break;
            }
            let Some(mut held) = self.take(scan.shard(), taking) else {
                if visits > 0 {
                    break; // A shorter answer with a good cursor is a good answer.
                }
                return Outcome::Busy;
            };
            let shard = scan.shard();
            scan.visit(self, &mut held, &call.now, &mut || false);
            self.release(shard, held);
        }
        if scan.bytes() > call.limits.max_reply_bytes {
            return Outcome::TooLarge;
        }
        scan.reply(reply);
        Outcome::Done
    }

    /// Draws shards until one gives a key. Each of the keyspace's keys lies in
    /// a shard drawn evenly, at a place drawn evenly.
    fn random_key(&self, call: &Call<'_>, taking: Taking, reply: &mut dyn Reply) -> Outcome {
        let shards = self.shard_count();
        // A few rounds over all shards find a key if there is one that has
        // not expired, all but surely; then every shard is asked in order.
        let drawn = 4 * shards;
        for attempt in 0..drawn + shards {
            if self.census(call.db).keys == 0 {
                break;
            }
            let draw = self.draw();
            let shard = if attempt < drawn { draw as u32 & self.mask } else { attempt - drawn };
            let Some(mut held) = self.take(shard, taking) else {
                if taking == Taking::Wait || attempt < drawn {
                    continue;
                }
                return Outcome::Busy;
            };
            let key = random_entry(held.db(call.db), &self.hasher, (draw >> 32) as u32, &call.now);
            self.release(shard, held);
            if let Some(key) = key {
                reply.bulk(&key);
                return Outcome::Done;
            }
        }
        reply.null();
        Outcome::Done
    }

    /// A number drawn evenly (splitmix64).
    pub(super) fn draw(&self) -> u64 {
        let mut draw = self.draws.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        draw = (draw ^ (draw >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        draw = (draw ^ (draw >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        draw ^ (draw >> 31)
    }

    /// Puts a key in, unless it is there and `replace` is not wanted. True when
    /// it was put in. For the holder of the global lock.
    pub fn put(
        &self,
        db: u32,
        key: &[u8],
        value: Value<'_>,
        expire_at: Option<UnixMs>,
        replace: bool,
    ) -> bool {
        let hash = self.hasher.hash(key);
        let shard = self.shard_of(hash);
        let mut held = self.shard(shard).token.take_waiting(&self.room, MAIN_SPINS);
        let table = held.db(db);
        let before = table.census();
        let found = table.find_live(&self.hasher, hash, key, &Now::lazy(self.config.clock));
        match found {
            None => table.insert(&self.hasher, hash, key, value, expire_at),
            Some(found) if replace => table.overwrite(found, value, expire_at),
            Some(_) => {}
        }
        let change = table.census() - before;
        self.main_seat().book(db, change);
        self.spend_credit(change.bytes);
        self.note_due(shard, table);
        self.release(shard, held);
        found.is_none() || replace
    }

    /// Calls `change` on every shard, all tokens held at once. For the holder
    /// of the global lock.
    pub fn on_all_shards(&self, mut change: impl FnMut(&mut Store)) {
        let all: Vec<u32> = (0..self.shard_count()).collect();
        let Some(mut held) = self.take_many(&all, Taking::Wait) else {
            return; // Waiting does not fail.
        };
        for (_, token) in &mut held {
            change(token);
        }
        for (shard, token) in &held {
            self.set_due(*shard, token);
        }
        self.release_many(held);
    }

    /// Empties databases at one moment; gives what is to be freed. For the
    /// holder of the global lock.
    pub fn flush(&self, only: Option<u32>) -> Vec<crate::store::Remains> {
        let mut remains = Vec::new();
        let mut lost = vec![Census::default(); self.config.databases as usize];
        self.on_all_shards(|store| {
            let dbs = match only {
                Some(db) => db..db + 1,
                None => 0..store.databases(),
            };
            for db in dbs {
                let table = store.take_db(db);
                if let Some(sum) = lost.get_mut(db as usize) {
                    let gone = table.census();
                    sum.keys -= gone.keys;
                    sum.expiring -= gone.expiring;
                    sum.bytes -= gone.bytes;
                }
                if !table.is_empty() {
                    remains.push(table.into_remains());
                }
            }
        });
        for (db, change) in lost.into_iter().enumerate() {
            self.main_seat().book(db as u32, change);
        }
        remains
    }

    /// Exchanges two databases at one moment. For the holder of the global lock.
    pub fn swap_dbs(&self, a: u32, b: u32) {
        let mut change = Census::default();
        self.on_all_shards(|store| {
            let (before_a, before_b) = (store.db(a).census(), store.db(b).census());
            change.keys += before_b.keys - before_a.keys;
            change.expiring += before_b.expiring - before_a.expiring;
            store.swap_dbs(a, b);
        });
        self.main_seat().book(a, change);
        self.main_seat().book(b, Census::default() - change);
    }
}

/// Some entry near a place of the scan order that is still alive.
fn random_entry(table: &mut Table, hasher: &KeyHasher, from: u32, now: &Now) -> Option<Vec<u8>> {
    if table.is_empty() {
        return None;
    }
    let mut cursor = Some(from);
    while let Some(at) = cursor {
        let (mut seen, mut chosen) = (0, None);
        cursor = table.scan_bucket(hasher, at, &mut |entry| {
            if !entry.is_expired(now) {
                seen += 1;
                // Each of the bucket's keys with the same chance.
                if from.is_multiple_of(seen) {
                    chosen = Some(entry.key().to_vec());
                }
            }
        });
        if chosen.is_some() {
            return chosen;
        }
    }
    None
}
