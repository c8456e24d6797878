//! The counts of a table.

use std::ops::{AddAssign, Sub};

/// The keys and bytes of a table, counted while it changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Keys, including those that are due but not removed yet.
    pub keys: i64,
    /// Keys with an expiry.
    pub expiring: i64,
    /// Bytes of entries, of values with buffers of their own, and of buckets.
    pub bytes: i64,
    /// Keys removed because they were due, ever.
    pub expired: i64,
}

impl Sub for Census {
    type Output = Census;
    #[inline]
    fn sub(self, before: Census) -> Census {
        Census {
            keys: self.keys - before.keys,
            expiring: self.expiring - before.expiring,
            bytes: self.bytes - before.bytes,
            expired: self.expired - before.expired,
        }
    }
}

impl AddAssign for Census {
    #[inline]
    fn add_assign(&mut self, change: Census) {
        self.keys += change.keys;
        self.expiring += change.expiring;
        self.bytes += change.bytes;
        self.expired += change.expired;
    }
}
