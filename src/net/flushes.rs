//! When databases are to be emptied: what `flush_all` with a delay has left behind.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::store::UnixMs;

/// The databases that are to be emptied, each at most once.
#[derive(Default)]
pub struct DelayedFlushes {
    when: Mutex<BTreeMap<u32, UnixMs>>,
    count: AtomicUsize,
}

impl DelayedFlushes {
    /// Notes when a database is to be emptied, in place of what was noted before; `None` for no
    /// more.
    pub fn set(&self, db: u32, at: Option<UnixMs>) {
        let mut when = self.when.lock();
        match at {
            Some(at) => _ = when.insert(db, at),
            None => _ = when.remove(&db),
        }
        self.count.store(when.len(), Ordering::Relaxed);
    }

    /// Forgets a database that was to be emptied then, unless another time has been noted since.
    pub fn forget(&self, db: u32, at: UnixMs) {
        let mut when = self.when.lock();
        if when.get(&db) == Some(&at) {
            when.remove(&db);
        }
        self.count.store(when.len(), Ordering::Relaxed);
    }

    /// Forgets all: this server's keys become those of a master.
    pub fn forget_all(&self) {
        let mut when = self.when.lock();
        when.clear();
        self.count.store(0, Ordering::Relaxed);
    }

    /// A database that is to be emptied now, and since when.
    pub fn due(&self, now: UnixMs) -> Option<(u32, UnixMs)> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let when = self.when.lock();
        when.iter().find(|&(_, &at)| at <= now).map(|(&db, &at)| (db, at))
    }
}
