use std::cell::Cell;

/// Milliseconds since the Unix epoch. Signed, as in Redis: a moment before
/// 1970 is a valid (long past) expiry.
pub type UnixMs = i64;

/// Stands for a time that has not been read yet.
const UNREAD: UnixMs = UnixMs::MAX;

/// The time at which a command runs: read from its source on first use, then fixed. So everything
/// in one command sees the same time, and a command that meets no expiry never reads a clock.
///
/// A key whose expiry is before that time is hidden. A thread that meets it may remove it only if
/// its expiry is before the *horizon* too: if removal is decided elsewhere, the horizon is behind
/// the clock.
pub struct Now {
    read: Cell<UnixMs>,
    source: fn() -> UnixMs,
    horizon: UnixMs,
}

impl Now {
    /// A time that is read from `source` when it is first asked for.
    pub fn lazy(source: fn() -> UnixMs) -> Self {
        Now { read: Cell::new(UNREAD), source, horizon: UnixMs::MAX }
    }

    /// This time, in milliseconds.
    pub fn at(ms: UnixMs) -> Self {
        Now { read: Cell::new(ms), source: || 0, horizon: UnixMs::MAX }
    }

    /// The same time, at which only keys that were due before `horizon` may be removed. Without a
    /// horizon, all that are hidden may.
    pub fn with_horizon(self, horizon: UnixMs) -> Self {
        Now { horizon, ..self }
    }

    /// The same time, at which no hidden key may be removed.
    pub fn hiding(&self) -> Self {
        Now { read: self.read.clone(), source: self.source, horizon: UnixMs::MIN }
    }

    /// The time, in milliseconds.
    #[inline]
    pub fn ms(&self) -> UnixMs {
        match self.read.get() {
            UNREAD => self.read_source(),
            ms => ms,
        }
    }

    /// Keys that were due before this may be removed.
    pub fn horizon(&self) -> UnixMs {
        self.ms().min(self.horizon)
    }

    #[cold]
    fn read_source(&self) -> UnixMs {
        let ms = (self.source)();
        self.read.set(ms);
        ms
    }
}
