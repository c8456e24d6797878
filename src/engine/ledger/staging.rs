//! A second keyspace, which a load fills while the real one still serves. It is then exchanged for
//! the real one at one moment, or its keys are added.
//!
//! No client sees it, so it needs neither tokens nor counters nor notifications. Its keys are where
//! they will be: in the same shard, under the same hash.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, MutexGuard};

use super::Ledger;
use super::slots::SlotCounts;
use crate::command::record::Gathered;
use crate::engine::shards::{Shards, sort_by_shard};
use crate::store::{
    Done, Edit, KeyHash, KeyHasher, Now, Remains, Store, Table, Traits, UnixMs, Value, prefetch,
};
use crate::sync::Locked;

/// A moment at which no key has expired: a load drops nothing by the clock.
fn before_all() -> Now {
    Now::at(UnixMs::MIN)
}

/// The second keyspace. Any thread may add keys.
pub struct Staging {
    shards: Box<[CachePadded<Mutex<Store>>]>,
    hasher: KeyHasher,
    mask: u32,
    slots: SlotCounts,
    /// How many keys a table will have, about; 0 if that is not known.
    expected: AtomicUsize,
    /// What its writer had of a text whose last part will come.
    pub gathered: Mutex<Vec<u8>>,
}

/// A key that is to be staged.
#[derive(Clone, Copy)]
pub struct StagedKey<'a> {
    /// Its name.
    pub key: &'a [u8],
    /// Its value.
    pub value: Value<'a>,
    /// When it expires, perhaps in the past.
    pub expire_at: Option<UnixMs>,
    /// What is known of its value.
    pub traits: Traits,
}

/// A shard of a [`Staging`], which this thread has for itself. Nobody may wait for a token, or for
/// another of these, meanwhile.
pub struct StagedShard<'a> {
    store: MutexGuard<'a, Store>,
    hasher: &'a KeyHasher,
    slots: &'a SlotCounts,
    expected: usize,
}

impl Staging {
    /// An empty keyspace with as many shards as this one.
    pub fn new(like: &Shards) -> Self {
        Staging {
            shards: (0..like.count())
                .map(|_| CachePadded::new(Mutex::new(Store::default())))
                .collect(),
            hasher: like.hasher.clone(),
            mask: like.count() - 1,
            slots: SlotCounts::of(&like.context.config),
            expected: AtomicUsize::new(0),
            gathered: Mutex::default(),
        }
    }

    /// Says about how many keys will be staged, all in one database.
    pub fn expect_keys(&self, keys: u64) {
        self.expected.store((keys / u64::from(self.mask + 1)) as usize, Relaxed);
    }

    /// The hash of a key.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.hasher.hash(key)
    }

    /// The shard that a key is in.
    #[inline]
    pub fn shard_of(&self, hash: KeyHash) -> u32 {
        hash.shard(self.mask)
    }

    /// Moves the `planned` items to `sorted`, in the order of the shards of their keys.
    pub fn sort<T: Copy>(
        &self,
        planned: &mut Vec<T>,
        sorted: &mut Vec<T>,
        hash: impl Fn(&T) -> KeyHash,
    ) {
        sort_by_shard(planned, sorted, self.mask + 1, |item| self.shard_of(hash(item)));
    }

    /// Prefetches a shard.
    #[inline]
    pub fn prefetch(&self, shard: u32) {
        prefetch(&raw const *self.shards[shard as usize]);
    }

    /// A shard, as soon as no other thread has it.
    #[inline]
    pub fn lock(&self, shard: u32) -> StagedShard<'_> {
        let store = self.shards[shard as usize].lock();
        let expected = self.expected.load(Relaxed);
        StagedShard { store, hasher: &self.hasher, slots: &self.slots, expected }
    }

    /// How many keys there are, expired ones included.
    pub fn keys(&self) -> u64 {
        let keys = |store: &Store| -> usize {
            store.databases().filter_map(|db| store.table(db)).map(Table::len).sum()
        };
        self.shards.iter().map(|shard| keys(&shard.lock()) as u64).sum()
    }

    /// The tables, to be freed.
    pub fn into_remains(self) -> Vec<Remains> {
        let tables = self.into_stores().flat_map(|mut store| store.take_all());
        tables.map(|(_, table)| table.into_remains()).collect()
    }

    fn into_stores(self) -> impl Iterator<Item = Store> {
        self.shards.into_iter().map(|shard| CachePadded::into_inner(shard).into_inner())
    }
}

impl StagedShard<'_> {
    /// Prefetches the place of a key.
    #[inline]
    pub fn prefetch(&self, db: u32, hash: KeyHash) {
        if let Some(table) = self.store.table(db) {
            table.prefetch(hash);
        }
    }

    /// Adds a key with this hash. False if there is one of that name.
    #[inline]
    pub fn insert(&mut self, db: u32, hash: KeyHash, new: &StagedKey<'_>) -> bool {
        self.insert_with(db, hash, new.key, |edit| {
            let is_new = !edit.is_there();
            if is_new {
                edit.set_with(new.value, new.expire_at, new.traits);
            }
            is_new
        })
    }

    /// Has a key with this hash changed by `insert`, which only adds to it.
    #[inline]
    pub fn insert_with<R>(
        &mut self,
        db: u32,
        hash: KeyHash,
        key: &[u8],
        insert: impl FnOnce(&mut Edit<'_>) -> R,
    ) -> R {
        let (now, mut done) = (before_all(), Done::default());
        let table = self.store.db(db);
        if table.is_empty() {
            table.presize(self.expected);
        }
        let result = insert(&mut Edit::new(table, self.hasher, hash, key, &now, &mut done));
        self.slots.count(db, || key, done.gained());
        result
    }
}

impl Staging {
    /// Replaces the whole keyspace by the staged one, at one moment. Returns the old tables, for
    /// [`free_later`](crate::engine::free_later).
    pub fn install(mut self, ledger: &Ledger, locked: Locked<'_>) -> Vec<Remains> {
        let (mut remains, mut slots) = (Vec::new(), Some(self.slots.take()));
        self.install_gathered(ledger);
        self.edit_with(ledger, locked, |store, db, staged| {
            if let Some(slots) = slots.take() {
                ledger.slots.become_those_of(&slots);
            }
            let before = store.replace_db(db, staged);
            if !before.is_empty() {
                remains.push(before.into_remains());
            }
        });
        remains
    }

    /// Adds the staged keys to the keyspace at one moment; they replace keys of the same name. The
    /// time that it takes, with all tokens held, grows with the number of staged keys. To clients
    /// that watch keys all keys have changed.
    pub fn merge(self, ledger: &Ledger, locked: Locked<'_>) {
        self.install_gathered(ledger);
        self.edit_with(ledger, locked, |store, db, staged| {
            put_all(store.db(db), staged, &ledger.shards.hasher, |key, gained| {
                ledger.slots.count(db, || key, gained);
            });
        });
    }

    fn install_gathered(&self, ledger: &Ledger) {
        let gathered = std::mem::take(&mut *self.gathered.lock());
        *ledger.log.gathered.lock() = Gathered::new(gathered);
    }

    /// Whether the keyspace has any of the staged keys, expired ones included.
    pub fn is_any_in(&self, ledger: &Ledger, locked: Locked<'_>) -> bool {
        (0..ledger.shards.count()).any(|shard| {
            let staged = self.lock(shard);
            let held = ledger.shards.take_waiting(locked, shard);
            let found = staged.store.databases().any(|db| {
                let tables = staged.store.table(db).zip(held.table(db));
                tables.is_some_and(|(staged, table)| has_any(table, staged, &ledger.shards.hasher))
            });
            ledger.shards.let_go(shard, held);
            found
        })
    }

    /// Changes each database that is there, or staged, in all shards at one moment. `change` gets
    /// its staged table.
    fn edit_with(
        self,
        ledger: &Ledger,
        locked: Locked<'_>,
        mut change: impl FnMut(&mut Store, u32, Table),
    ) {
        // `edit_all` visits the shards in the order of their numbers.
        let mut stores = self.into_stores();
        // A load is not logged: the host has it in its files.
        ledger.edit_all(locked, None, |_, store, changes| {
            let mut staged = stores.next().unwrap_or_default();
            let databases: BTreeSet<u32> = store.databases().chain(staged.databases()).collect();
            for db in databases {
                let mut table = staged.take_db(db);
                table.presize(0);
                ledger.edit_databases(locked, store, &[db], changes, |store| {
                    change(store, db, table);
                    // `edit_databases` counts what a database gains; nobody counts it again.
                    forget_gained(store, db);
                });
            }
        });
    }
}

fn forget_gained(store: &mut Store, db: u32) {
    if store.table(db).is_some() {
        store.db(db).take_gained();
    }
}

/// Whether `table` has any key of `staged`.
fn has_any(table: &Table, staged: &Table, hasher: &KeyHasher) -> bool {
    !table.is_empty()
        && staged.entries().any(|entry| table.find(hasher.hash(entry.key()), entry.key()).is_some())
}

/// Moves all entries to `table`, in place of those of the same name.
fn put_all(
    table: &mut Table,
    staged: Table,
    hasher: &KeyHasher,
    mut count: impl FnMut(&[u8], i64),
) {
    let now = before_all();
    let mut name = Vec::new();
    for entry in staged.into_entries() {
        name.clear();
        name.extend_from_slice(entry.key());
        let (hash, mut done) = (hasher.hash(&name), Done::default());
        Edit::new(table, hasher, hash, &name, &now, &mut done).put(entry);
        count(&name, done.gained());
    }
}
