//! How many keys each slot of a cluster has. A key's slot follows from its name, as Redis has it;
//! its shard does not, so the count cannot be read off the tables.
//!
//! All threads share one counter for each slot and database. It is changed by the holder of the
//! key's shard, where the edit of a key ends, and for whole databases while all tokens are held.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::command::slot::{SLOTS, slot_of};
use crate::command::{Cluster, Error};
use crate::engine::context::Config;
use crate::store::Table;

/// The counters of one database.
type Counters = [AtomicU32; SLOTS];

/// The counters of all databases. Outside of a cluster nothing is counted.
pub struct SlotCounts {
    /// Empty outside of a cluster. A database gets its counters with its first key.
    databases: Box<[OnceLock<Box<Counters>>]>,
    /// Slots that another node has taken.
    lost: SlotSet,
    /// Slots that this node gives away, key by key.
    migrating: SlotSet,
}

/// A bit for each slot.
struct SlotSet([AtomicU64; SLOTS / 64]);

impl SlotSet {
    fn new() -> Self {
        SlotSet([const { AtomicU64::new(0) }; SLOTS / 64])
    }

    fn has(&self, slot: u16) -> bool {
        self.0[usize::from(slot / 64)].load(Ordering::Relaxed) >> (slot % 64) & 1 != 0
    }

    fn set(&self, slot: u16, is_in: bool) {
        let (word, bit) = (&self.0[usize::from(slot / 64)], 1 << (slot % 64));
        if is_in {
            word.fetch_or(bit, Ordering::Relaxed);
        } else {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    fn become_those(&self, slots: &BTreeSet<u16>) {
        let mut words = [0; SLOTS / 64];
        slots.iter().for_each(|slot| words[usize::from(slot / 64)] |= 1 << (slot % 64));
        self.0.iter().zip(words).for_each(|(word, bits)| word.store(bits, Ordering::Relaxed));
    }
}

impl SlotCounts {
    /// The counters of an engine.
    pub(super) fn of(config: &Config) -> Self {
        SlotCounts::new(if config.cluster == Cluster::Off { 0 } else { config.databases })
    }

    /// Counters for so many databases; without any, nothing is counted.
    fn new(databases: u32) -> Self {
        SlotCounts {
            databases: (0..databases).map(|_| OnceLock::new()).collect(),
            lost: SlotSet::new(),
            migrating: SlotSet::new(),
        }
    }

    /// Takes the counters, and leaves none.
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, SlotCounts::new(0))
    }

    /// Other nodes have taken these slots, and no others.
    pub fn lose(&self, slots: &BTreeSet<u16>) {
        self.lost.become_those(slots);
    }

    /// Whether another node has taken the slot.
    pub fn is_lost(&self, slot: u16) -> bool {
        self.lost.has(slot)
    }

    /// This node gives these slots away, and no others.
    pub fn migrate(&self, slots: &BTreeSet<u16>) {
        self.migrating.become_those(slots);
    }

    /// Sets whether this node gives the slot away.
    pub fn set_migrating(&self, slot: u16, migrates: bool) {
        self.migrating.set(slot, migrates);
    }

    /// Whether this node gives the slot away.
    pub fn is_migrating(&self, slot: u16) -> bool {
        self.migrating.has(slot)
    }

    /// Why a write that was queued may not run on a key of this slot.
    pub(super) fn refusal(&self, slot: u16) -> Option<Error> {
        let lost = self.is_lost(slot).then_some(Error::SlotMoved);
        lost.or_else(|| self.is_migrating(slot).then_some(Error::SlotMigrates))
    }

    /// Whether keys are counted.
    #[inline]
    pub fn are_on(&self) -> bool {
        !self.databases.is_empty()
    }

    /// Counts what a database gained by an edit of this key: 1, 0 or -1.
    #[inline(always)]
    pub(super) fn count<'k>(&self, db: u32, key: impl Fn() -> &'k [u8], gained: i64) {
        if gained != 0 && self.are_on() {
            self.add(db, key(), gained);
        }
    }

    fn add(&self, db: u32, key: &[u8], gained: i64) {
        if let Some(counters) = self.made(db) {
            // Adding a negative number wraps around, to the right sum.
            counters[usize::from(slot_of(key))].fetch_add(gained as u32, Ordering::Relaxed);
        }
    }

    /// The counters of a database, made if there are none.
    fn made(&self, db: u32) -> Option<&Counters> {
        let counters = self.databases.get(db as usize)?;
        Some(counters.get_or_init(|| Box::new([const { AtomicU32::new(0) }; SLOTS])))
    }

    /// Counts all keys of a table: `gained` is 1 if the database has got it, -1 if it has lost it.
    pub(super) fn count_table(&self, db: u32, table: &Table, gained: i64) {
        if self.are_on() {
            table.entries().for_each(|entry| self.add(db, entry.key(), gained));
        }
    }

    /// These databases have no keys any more; `None` for all.
    pub(super) fn clear(&self, only: Option<u32>) {
        let all = || 0..self.databases.len() as u32;
        for db in all().filter(|&db| only.is_none_or(|only| only == db)) {
            self.set(db, |_| 0);
        }
    }

    /// The databases have the keys that `other` has counted.
    pub(super) fn become_those_of(&self, other: &SlotCounts) {
        for db in 0..self.databases.len() as u32 {
            if other.get(db).is_some() {
                self.made(db);
            }
            self.set(db, |slot| other.read(db, slot));
        }
    }

    /// Two databases have been exchanged.
    pub(super) fn swap(&self, a: u32, b: u32) {
        if self.are_on() && a != b {
            let both = SlotCounts::new(self.databases.len() as u32);
            both.become_those_of(self);
            for (db, from) in [(a, b), (b, a)] {
                self.made(db);
                self.set(db, |slot| both.read(from, slot));
            }
        }
    }

    fn get(&self, db: u32) -> Option<&Counters> {
        self.databases.get(db as usize)?.get().map(|counters| &**counters)
    }

    fn read(&self, db: u32, slot: u16) -> u32 {
        self.get(db).map_or(0, |counters| counters[usize::from(slot)].load(Ordering::Relaxed))
    }

    fn set(&self, db: u32, number: impl Fn(u16) -> u32) {
        for (counter, slot) in self.get(db).into_iter().flatten().zip(0..) {
            counter.store(number(slot), Ordering::Relaxed);
        }
    }

    /// All slots that have keys, with their databases: for tests.
    #[cfg(test)]
    pub(super) fn all(&self) -> std::collections::BTreeMap<(u32, u16), u64> {
        let databases = self.databases.iter().zip(0..).filter_map(|(of, db)| Some((of.get()?, db)));
        let counted = databases.flat_map(|(of, db)| {
            let counted = of.iter().zip(0..).filter(|(count, _)| count.load(Ordering::Relaxed) > 0);
            counted.map(move |(count, slot)| ((db, slot), count.load(Ordering::Relaxed).into()))
        });
        counted.collect()
    }

    /// Keys of a slot in one database, those that are due but not removed yet included.
    pub fn keys_of(&self, db: u32, slot: u16) -> u64 {
        self.read(db, slot).into()
    }

    /// Keys of a slot in all databases.
    pub fn keys(&self, slot: u16) -> u64 {
        (0..self.databases.len() as u32).map(|db| self.keys_of(db, slot)).sum()
    }
}
