//! The data of one shard: entries, tables, databases, expiry.
//!
//! Data structures that know nothing of the host, sockets or a clock: the time comes in as a
//! [`Now`], and the caller holds the shard, or only reads. Only what is not of one shard knows of
//! threads: the arenas, counted references, large hashes that wait to be freed, and pins.
//!
//! ```text
//! Store (one shard) ── Table (one per database) ── Segment ── Bucket ── Entry
//! ```

mod arena;
mod before;
mod bucket;
mod census;
mod edit;
mod entry;
mod fields;
mod hash;
mod look;
mod observed;
mod remains;
mod segment;
mod shared;
mod spliced;
mod table;
mod time;
mod traits;
mod value;
mod watched;

pub use arena::{
    ArenaUsage, block_bytes, count_exactly, give_up_chunks, prepare_chunk, usage as arena_usage,
};
pub use before::{Before, ChangeKind, FieldNames, ValuePart, ValueParts};
pub use bucket::{EntryRef, StringRef};
pub use census::Census;
pub use edit::{Done, Edit, Keeping, read, set_in_place};
pub use entry::{Entry, prefetch};
pub use fields::{
    FieldCursor, FieldRef, Fields, FieldsPin, HashCopy, KeptTooMuch, NewField, Unended, free_left,
    has_left,
};
pub use hash::{KeyHash, KeyHasher};
pub use look::{Candidate, Home, Look};
pub use remains::Remains;
pub use shared::{SharedBytes, SharedValue};
pub use spliced::{Piece, Spliced};
pub use table::{Evicted, First, FoundEntry, PackPosition, Table, Victims};
pub use time::{Now, UnixMs};
pub use traits::Traits;
pub use value::{Origin, Type, Value, WrongType};
pub use watched::{Watched, WatchedName};

/// One shard's databases: those that were written to.
#[derive(Default)]
pub struct Store {
    /// Database 0, without an indirection.
    first: Table,
    /// The others, by ascending number.
    others: Vec<(u32, Table)>,
    /// Keys whose changes are watched.
    pub watched: Watched,
    /// The log's notes about the shard.
    pub log: ShardLog,
}

/// The notes of the log of writes about a shard.
#[derive(Clone, Copy, Default)]
pub struct ShardLog {
    /// The position of the last run that changed it; 0 for none.
    pub position: u64,
    /// Whether the run that is under way has changed it.
    pub is_changed: bool,
}

impl Store {
    fn place(&self, db: u32) -> Result<usize, usize> {
        self.others.binary_search_by_key(&db, |&(number, _)| number)
    }

    /// The table of database `db`, for writing; made if there is none.
    #[inline]
    pub fn db(&mut self, db: u32) -> &mut Table {
        self.db_and_watched(db).0
    }

    fn place_made(&mut self, db: u32) -> usize {
        self.place(db).unwrap_or_else(|at| {
            self.others.insert(at, (db, Table::default()));
            at
        })
    }

    /// The table of database `db`, if there is one.
    #[inline(always)]
    pub fn table(&self, db: u32) -> Option<&Table> {
        if db == 0 {
            return Some(&self.first);
        }
        Some(&self.others[self.place(db).ok()?].1)
    }

    /// The memory of all databases, in bytes.
    pub fn bytes(&self) -> i64 {
        let others: i64 = self.others.iter().map(|(_, table)| table.census().bytes).sum();
        self.first.census().bytes + others
    }

    /// The number of keys of all databases.
    pub fn keys(&self) -> i64 {
        let others: i64 = self.others.iter().map(|(_, table)| table.census().keys).sum();
        self.first.census().keys + others
    }

    /// A database with keys, or with keys that have an expiry, drawn by the memory that each has.
    pub fn drawn_db(&self, random: u64, volatile: bool) -> u32 {
        if self.others.is_empty() {
            return 0;
        }
        let weight = |table: &Table| {
            let census = table.census();
            let keys = if volatile { census.expiring } else { census.keys };
            if keys > 0 { census.bytes } else { 0 }
        };
        let all = || {
            let others = self.others.iter().map(|(db, table)| (*db, weight(table)));
            std::iter::once((0, weight(&self.first))).chain(others)
        };
        let mut place = random as i64 & i64::MAX;
        place %= all().map(|(_, weight)| weight).sum::<i64>().max(1);
        let mut of_drawn = all().skip_while(|(_, weight)| {
            place -= weight;
            place >= 0
        });
        of_drawn.next().map_or(0, |(db, _)| db)
    }

    /// The counts that move with database `db`: that of expired keys does not.
    pub fn census(&self, db: u32) -> Census {
        let census = self.table(db).map_or(Census::default(), Table::census);
        Census { expired: 0, ..census }
    }

    /// The table of database `db`, made if there is none, and the keys that are watched.
    #[inline]
    pub fn db_and_watched(&mut self, db: u32) -> (&mut Table, &mut Watched) {
        if db == 0 {
            return (&mut self.first, &mut self.watched);
        }
        let at = self.place_made(db);
        (&mut self.others[at].1, &mut self.watched)
    }

    /// The first database from number `from` on that has a table.
    pub fn next_db(&self, from: u32) -> Option<u32> {
        if from == 0 {
            return Some(0);
        }
        let at = self.place(from).unwrap_or_else(|at| at);
        self.others.get(at).map(|&(number, _)| number)
    }

    /// Takes a whole database out and leaves an empty one. The caller frees it, bit by bit, through
    /// [`Table::into_remains`].
    pub fn take_db(&mut self, db: u32) -> Table {
        if db == 0 {
            return std::mem::take(&mut self.first);
        }
        self.place(db).map(|at| self.others.remove(at).1).unwrap_or_default()
    }

    /// Exchanges two databases (SWAPDB).
    pub fn swap_dbs(&mut self, a: u32, b: u32) {
        if a == b {
            return;
        }
        let from_a = self.take_db(a);
        let from_b = self.replace_db(b, from_a);
        self.put_db(a, from_b);
    }

    /// The databases that have a table, by ascending number.
    pub fn databases(&self) -> impl Iterator<Item = u32> {
        std::iter::once(0).chain(self.others.iter().map(|&(number, _)| number))
    }

    /// Puts a whole database in the place of another, and returns that.
    pub fn replace_db(&mut self, db: u32, table: Table) -> Table {
        let before = self.take_db(db);
        self.put_db(db, table);
        before
    }

    /// Takes out all databases that have keys.
    pub fn take_all(&mut self) -> impl Iterator<Item = (u32, Table)> + use<> {
        let first = (0, std::mem::take(&mut self.first));
        let all = std::iter::once(first).chain(std::mem::take(&mut self.others));
        all.filter(|(_, table)| !table.is_empty())
    }

    fn put_db(&mut self, db: u32, table: Table) {
        if !table.is_empty() {
            *self.db(db) = table;
        }
    }

    /// A lower bound of the next time at which a key of any database is due.
    pub fn next_due(&self) -> UnixMs {
        self.others
            .iter()
            .map(|(_, table)| table.next_due())
            .fold(self.first.next_due(), UnixMs::min)
    }
}
