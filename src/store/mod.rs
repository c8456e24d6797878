//! The data of one shard: entries, tables, databases, expiry.
//!
//! Pure data structures. Nothing here knows threads, the host, sockets or a
//! clock: the time comes in as a [`Now`], and whoever calls holds the shard.
//!
//! ```text
//! Store (one shard) ── Table (one per database) ── Segment ── Bucket ── Entry
//! ```

mod entry;
mod hash;
mod segment;
mod shared;
mod table;
mod time;

pub use entry::{Entry, Value, block_bytes};
pub use hash::{KeyHash, KeyHasher};
pub use segment::EntryRef;
pub use shared::{SharedBytes, SharedValue};

pub use table::{Census, Found, Remains, Table};
pub use time::{Now, UnixMs};

/// One shard's databases. Database 0 lives inside the struct, so that its
/// header shares the cache line of the shard's token.
#[derive(Default)]
pub struct Store {
    first: Table,
    others: Vec<Table>,
}

impl Store {
    /// The table of database `db`, made empty where it does not exist yet.
    pub fn db(&mut self, db: u32) -> &mut Table {
        if db == 0 {
            return &mut self.first;
        }
        let index = db as usize - 1;
        if index >= self.others.len() {
            self.others.resize_with(index + 1, Table::default);
        }
        &mut self.others[index]
    }

    /// How many databases have been touched so far; those beyond are empty.
    pub fn databases(&self) -> u32 {
        self.others.len() as u32 + 1
    }

    /// Takes a whole database out and leaves an empty one. Constant time:
    /// the caller frees the table with [`Table::drop_some`].
    pub fn take_db(&mut self, db: u32) -> Table {
        if db >= self.databases() {
            return Table::default();
        }
        std::mem::take(self.db(db))
    }

    /// Exchanges two databases (SWAPDB). Constant time.
    pub fn swap_dbs(&mut self, a: u32, b: u32) {
        if a == b {
            return;
        }
        let taken = self.take_db(a);
        let other = std::mem::replace(self.db(b), taken);
        *self.db(a) = other;
    }

    /// A lower bound of the next moment at which a key of any database is due.
    pub fn next_due(&self) -> UnixMs {
        self.others.iter().map(Table::next_due).fold(self.first.next_due(), UnixMs::min)
    }
}
