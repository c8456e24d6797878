use std::cell::Cell;

/// Milliseconds since the Unix epoch. Signed, as in Redis: a moment before
/// 1970 is a valid (long past) expiry.
pub type UnixMs = i64;

/// Stands for the moment until it has been read.
const UNREAD: UnixMs = UnixMs::MAX;

/// The time a command runs at: read from its source on first use, then fixed,
/// so that everything in one command sees the same moment, and a command that
/// meets no expiry never reads a clock.
///
/// A key whose expiry lies before that moment is hidden. It may be removed by whoever meets it if
/// its expiry lies before the *horizon* as well: where somebody else decides what goes, and when,
/// the horizon is behind the clock.
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

    /// This moment.
    pub fn at(ms: UnixMs) -> Self {
        Now { read: Cell::new(ms), source: || 0, horizon: UnixMs::MAX }
    }

    /// The same moment, at which only what was due before `horizon` may be removed. Without one,
    /// all that is hidden may.
    pub fn with_horizon(self, horizon: UnixMs) -> Self {
        Now { horizon, ..self }
    }

    /// The moment, in milliseconds.
    #[inline]
    pub fn ms(&self) -> UnixMs {
        match self.read.get() {
            UNREAD => self.read_source(),
            ms => ms,
        }
    }

    /// What was due before this may be removed.
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
