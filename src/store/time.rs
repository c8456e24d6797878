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
#[derive(Clone)]
pub struct Now {
    read: Cell<UnixMs>,
    source: fn() -> UnixMs,
    horizon: UnixMs,
    passed: Passed,
    is_silent: bool,
}

/// The effect of an expiry that has passed on a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Passed {
    /// The key is hidden. A command that sets such an expiry deletes the key.
    #[default]
    Gone,
    /// The key is hidden. A command that sets such an expiry leaves the key with it: keys are being
    /// imported from a server that will delete it.
    Kept,
    /// The key is there, to the client that imports it.
    Seen,
}

impl Now {
    /// A time that is read from `source` when it is first asked for.
    pub fn lazy(source: fn() -> UnixMs) -> Self {
        Now {
            read: Cell::new(UNREAD),
            source,
            horizon: UnixMs::MAX,
            passed: Passed::Gone,
            is_silent: false,
        }
    }

    /// This time, in milliseconds.
    pub fn at(ms: UnixMs) -> Self {
        Now { read: Cell::new(ms), ..Now::lazy(|| 0) }
    }

    /// The same time, at which only keys that were due before `horizon` may be removed. Without a
    /// horizon, all that are hidden may.
    pub fn with_horizon(self, horizon: UnixMs) -> Self {
        Now { horizon, ..self }
    }

    /// The same time, at which no hidden key may be removed.
    pub fn hiding(&self) -> Self {
        Now { read: self.read.clone(), horizon: UnixMs::MIN, ..*self }
    }

    /// The same time, for a client that sees keys whose expiry has passed, or for another.
    pub fn seeing_passed(self, sees: bool) -> Self {
        Now { passed: if sees { Passed::Seen } else { Passed::Gone }, ..self }
    }

    /// Whether it is for a client that sees keys whose expiry has passed.
    pub fn sees_passed(&self) -> bool {
        self.passed == Passed::Seen
    }

    /// The same time, for a client whose commands are no use of their keys, or for another.
    pub fn silent(self, is_silent: bool) -> Self {
        Now { is_silent, ..self }
    }

    /// Whether it is for a client whose commands are no use of their keys.
    pub fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// The same time, while keys are being imported.
    pub fn keeping_passed(self) -> Self {
        Now { passed: if self.sees_passed() { Passed::Seen } else { Passed::Kept }, ..self }
    }

    /// Whether a key whose expiry has passed stays, hidden from this client.
    pub fn keeps_passed(&self) -> bool {
        self.passed == Passed::Kept
    }

    /// Whether a key with this expiry no longer exists.
    #[inline]
    pub fn hides(&self, expiry: UnixMs) -> bool {
        !self.sees_passed() && expiry < self.ms()
    }

    /// Whether a key that is given this expiry is deleted at once.
    pub fn deletes(&self, expiry: UnixMs) -> bool {
        self.passed == Passed::Gone && expiry <= self.ms()
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
