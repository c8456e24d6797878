//! The mode: what a run may do with keys. One word, read by every run under its tokens, and changed
//! only while all tokens are held. So no run is half in one mode, and none writes after the
//! keyspace was closed.
//!
//! ```text
//!          a gate that keeps all clients from writing closes
//! Fast, Logged ──────────────────────────────────────────────► Closed
//!              ◄──────────────────────────────────────────────
//!                           it opens
//! Fast ──────────────────────────────────────────────────────► Logged
//!      ◄──────────────────────────────────────────────────────
//!            the host logs nothing, and the tail is empty
//!
//!           clients are paused, or may be about to be
//! Logged ────────────────────────────────────────────────────► Paused
//!        ◄────────────────────────────────────────────────────
//! ```
//!
//! While the host imports keys, the mode says that too: a key whose expiry has passed is hidden in
//! every mode, and stays until the import has ended.
//!
//! A door reads the gates before a command runs, and refuses it or has it wait in the words that
//! the reason calls for. The mode catches the few writes that had passed the gate just before it
//! closed: they go to the main thread, which asks the gate again.

use std::sync::atomic::Ordering;

use super::admission::Admission;
use super::gates::Gates;
use crate::store::Now;

/// What a run may do with keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// Nothing consumes a log of writes: they take effect at once.
    Fast,
    /// Writes take effect at once, and are logged: see `log`.
    Logged,
    /// As [`Mode::Logged`], but only the holder of the global lock may write. During a pause the
    /// host takes nothing for its log, and at its end the server may be a replica: what a worker
    /// wrote now would be seen, and then taken back.
    Paused,
    /// Nobody may write, and keys that are due are hidden, not removed: the host loads data, saves
    /// without a fork, or is a replica.
    Closed,
}

impl Mode {
    /// The name in INFO.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Fast => "fast",
            Mode::Logged => "logged",
            Mode::Paused => "paused",
            Mode::Closed => "closed",
        }
    }

    /// Whether what is written is logged.
    #[inline]
    pub fn is_logged(self) -> bool {
        matches!(self, Mode::Logged | Mode::Paused)
    }

    /// Whether workers may write.
    #[inline]
    pub fn is_open_to_workers(self) -> bool {
        matches!(self, Mode::Fast | Mode::Logged)
    }
}

/// The gates that close the keyspace.
const CLOSING: Gates = Gates::LOADING.and(Gates::READ_ONLY).and(Gates::SAVING);

/// The gates that say that the host has a log of writes.
const LOGGING: Gates = Gates::AOF_ON.and(Gates::BACKLOG);

/// In the word beside the mode: the host imports keys.
const IMPORTING: u8 = 1 << 2;

impl Admission {
    /// The mode. It stays as it is while the caller holds a token, or reads a shard together with
    /// others: who holds all tokens has waited for those.
    #[inline]
    pub fn mode(&self) -> Mode {
        match self.mode.load(Ordering::Relaxed) & !IMPORTING {
            0 => Mode::Fast,
            1 => Mode::Logged,
            2 => Mode::Paused,
            _ => Mode::Closed,
        }
    }

    /// Whether a worker's run may not write.
    #[inline]
    pub(in crate::engine) fn is_closed_to_workers(&self) -> bool {
        !self.mode().is_open_to_workers()
    }

    /// Whether the keyspace is empty, or will be, for a load.
    #[inline]
    pub(in crate::engine) fn is_emptied(&self) -> bool {
        self.mode() == Mode::Closed && self.gates().has(Gates::LOADING)
    }

    /// Whether the mode is fast, and no keys are being imported.
    #[inline]
    pub(in crate::engine) fn is_plain(&self) -> bool {
        self.mode.load(Ordering::Relaxed) == Mode::Fast as u8
    }

    /// Whether no key may be removed because it has expired, whatever the mode: the host imports
    /// keys, or was told not to look for such keys.
    pub(super) fn expiry_rests(&self) -> bool {
        self.gates().has(Gates::IMPORTING.and(Gates::NO_ACTIVE_EXPIRY))
    }

    /// The word for the mode that follows from the gates, if it is another one than now.
    /// `is_settled` says whether the host has all of the log, and all is safe.
    pub(super) fn next_mode(&self, is_settled: impl FnOnce() -> bool) -> Option<u8> {
        let gates = self.gates();
        let wanted = if gates.has(CLOSING) {
            Mode::Closed
        } else if gates.has(Gates::WORKERS_PAUSED) {
            Mode::Paused
        } else if gates.has(LOGGING) || !is_settled() {
            Mode::Logged
        } else {
            Mode::Fast
        };
        let importing = if gates.has(Gates::IMPORTING) { IMPORTING } else { 0 };
        let word = wanted as u8 | importing;
        (self.mode.load(Ordering::Relaxed) != word).then_some(word)
    }

    /// Sets the mode to this word. The caller holds all tokens.
    pub(super) fn set_mode(&self, word: u8) {
        // Relaxed: who takes a token next sees what was done while it was held.
        self.mode.store(word, Ordering::Relaxed);
    }

    /// The time for a run: where only the host's log may decide that a key has expired, due keys
    /// are hidden and stay. `hiding` keeps the changed time.
    #[inline]
    pub(in crate::engine) fn now_in_mode<'n>(
        &self,
        now: &'n Now,
        hiding: &'n mut Option<Now>,
    ) -> &'n Now {
        if self.is_plain() {
            return now;
        }
        let is_importing = self.mode.load(Ordering::Relaxed) & IMPORTING != 0;
        let now = now.hiding();
        hiding.insert(if is_importing { now.keeping_passed() } else { now })
    }
}
