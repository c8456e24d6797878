use std::cell::Cell;

/// Milliseconds since the Unix epoch. Signed, as in Redis: a moment before
/// 1970 is a valid (long past) expiry.
pub type UnixMs = i64;

/// The time a command runs at: read from its source on first use, then fixed,
/// so that everything in one command sees the same moment, and a command that
/// meets no expiry never reads a clock.
pub struct Now {
    read: Cell<Option<UnixMs>>,
    source: fn() -> UnixMs,
}

impl Now {
    /// A time that is read from `source` when it is first asked for.
    pub fn lazy(source: fn() -> UnixMs) -> Self {
        Now { read: Cell::new(None), source }
    }

    /// This moment.
    pub fn at(ms: UnixMs) -> Self {
        Now { read: Cell::new(Some(ms)), source: || 0 }
    }

    /// The moment, in milliseconds.
    #[inline]
    pub fn ms(&self) -> UnixMs {
        match self.read.get() {
            Some(ms) => ms,
            None => self.read_source(),
        }
    }

    #[cold]
    fn read_source(&self) -> UnixMs {
        let ms = (self.source)();
        self.read.set(Some(ms));
        ms
    }
}
