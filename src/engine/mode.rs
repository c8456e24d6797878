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
//! A door reads the gates before a command runs, and refuses it or has it wait in the words that
//! the reason calls for. The mode catches the few writes that had passed the gate just before it
//! closed: they go to the main thread, which asks the gate again.

use std::sync::atomic::Ordering;

use super::all_held::AllHeld;
use super::gates::Gates;
use super::state::Engine;
use crate::store::Now;
use crate::sync::Locked;

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
    /// without a fork, is a replica, or has a log that midi cannot write to.
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
const CLOSING: Gates =
    Gates::LOADING.and(Gates::READ_ONLY).and(Gates::SAVING).and(Gates::NO_PREAMBLE);

/// The gates that say that the host has a log of writes.
const LOGGING: Gates = Gates::AOF_ON.and(Gates::BACKLOG);

impl Engine {
    /// The mode. It stays as it is while the caller holds a token.
    #[inline]
    pub fn mode(&self) -> Mode {
        match self.mode.load(Ordering::Relaxed) {
            0 => Mode::Fast,
            1 => Mode::Logged,
            2 => Mode::Paused,
            _ => Mode::Closed,
        }
    }

    /// Whether a worker's run may not write.
    #[inline]
    pub(super) fn is_closed_to_workers(&self) -> bool {
        !self.mode().is_open_to_workers()
    }

    /// Sets the mode. Relaxed: who takes a token next sees what was done while it was held.
    fn set_mode(&self, _: &AllHeld<'_>, mode: Mode) {
        self.mode.store(mode as u8, Ordering::Relaxed);
    }

    /// Brings the mode in line with the gates. The caller holds no token, but for those that an
    /// open unit has laid aside.
    pub(super) fn settle_mode(&self, locked: Locked<'_>) {
        let gates = self.gates();
        let wanted = if gates.has(CLOSING) {
            Mode::Closed
        } else if gates.has(Gates::WORKERS_PAUSED) {
            Mode::Paused
        } else if gates.has(LOGGING) || !self.log.is_settled() {
            Mode::Logged
        } else {
            Mode::Fast
        };
        if self.mode() != wanted {
            let all = self.hold_all(locked);
            self.set_mode(&all, wanted);
            all.release();
        }
    }

    /// The time for a run: where only the host's log may decide that a key has expired, due keys
    /// are hidden and stay. `hiding` keeps the changed time.
    #[inline]
    pub(super) fn now_in_mode<'n>(&self, now: &'n Now, hiding: &'n mut Option<Now>) -> &'n Now {
        match self.mode() {
            Mode::Fast => now,
            Mode::Logged | Mode::Paused | Mode::Closed => hiding.insert(now.hiding()),
        }
    }
}
