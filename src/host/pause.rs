//! Whether the host's clients are paused: by CLIENT PAUSE, FAILOVER, SHUTDOWN, or while slots leave
//! the node. The host reports that they are, but not which kind of pause it is.
//!
//! ```text
//!  No ─────────────────────► Writes ──────────────────────────────────────► All
//!  ▲    clients are paused     │    before sleep: the host has not refused a │
//!  │                           │    CLIENT PAUSE that was sent in this turn  │
//!  │                           │    (or an EXEC may have it), and was not    │
//!  │                           │    for writes only                          │
//!  │                           ▼                                             │
//!  └──────────────────────── Lately ◄────────────────────────────────────────┘
//!    turns of the main loop           clients are not paused any more
//! ```
//!
//! Everybody asks [`Pause::now`], or [`is_on`] where only the first difference matters. The gates
//! keep a copy for the workers, as of the last look ([`super::gates`]).

use parking_lot::Mutex;

use super::api::{CallCounts, Ctx, must_not_replicate};
use super::state::{Flag, Gauge, part};
use crate::engine::Locked;

/// After a pause the host needs one or two turns of its main loop to reach the commands that
/// waited.
const TURNS_AFTER_PAUSE: u64 = 3;

/// Whether clients are paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Paused {
    /// They are not.
    No,
    /// They were: commands that waited for the end of the pause may still have to be executed, and
    /// newer hosts do not filter them then.
    Lately,
    /// Writes are, as far as is known. A module that logs something now ends the host.
    Writes,
    /// All commands are.
    All,
}

part! {
    /// The state of pauses, as far as it is known.
    pub struct Pause {
        /// Whether any client has sent CLIENT PAUSE, or an EXEC that may have one, in this turn of
        /// the main loop.
        may_begin: Flag = Flag::new(false),
        /// Whether any of these is not for writes only.
        sent_of_all: Flag = Flag::new(false),
        /// Whether any client ever sent one that is not for writes only.
        ever_sent: Flag = Flag::new(false),
        /// CLIENT PAUSEs of any kind since the host was last asked about them.
        sent: Gauge = Gauge::new(0),
        /// The host's counts of them at that time.
        counts: Mutex<CallCounts> = Mutex::new(CallCounts::NONE),
        /// Whether a pause, if there is one, may be for reads too.
        of_all: Flag = Flag::new(false),
        /// Turns left until commands that waited for the end of a pause have run; 0 without one.
        turns_left: Gauge = Gauge::new(0),
        /// Whether clients were paused before the last EXEC that the filter has seen.
        was_on_before_exec: Flag = Flag::new(false),
        /// How many of the next EXECs may have a command that pauses clients: for `before_pause`.
        pub execs: Gauge = Gauge::new(0),
    }
}

impl Pause {
    /// Whether clients are paused.
    pub fn now(&self, locked: Locked<'_>) -> Paused {
        if is_on(locked) {
            return if self.of_all.get() { Paused::All } else { Paused::Writes };
        }
        if self.was_lately() { Paused::Lately } else { Paused::No }
    }

    /// As of the last turn of the main loop: whether clients were paused then, or lately.
    #[inline]
    pub fn was_lately(&self) -> bool {
        self.turns_left.get() > 0
    }

    /// Whether commands may wait for the end of a pause: also one that may have begun, and ended,
    /// in this turn of the main loop.
    pub fn holds_up(&self, locked: Locked<'_>) -> bool {
        is_on(locked) || self.was_lately() || self.may_begin.get()
    }

    /// A CLIENT PAUSE is about to be executed, queued or refused: any client can send it, even one
    /// that has not logged in. A filter learns no more than that, and the host does not report
    /// which kind is in force.
    pub fn before_pause(&self, kind: &[u8]) {
        self.may_begin.set(true);
        self.sent.add(1);
        if !kind.eq_ignore_ascii_case(b"write") {
            self.sent_of_all.set(true);
            self.ever_sent.set(true);
        }
    }

    /// An EXEC is about to be executed: a CLIENT PAUSE may have been queued in it.
    pub fn before_exec(&self, locked: Locked<'_>) {
        self.was_on_before_exec.set(is_on(locked));
        if self.ever_sent.get() {
            self.may_begin.set(true);
            self.sent_of_all.set(true);
        }
    }

    /// Whether the pause, which is on, has begun in the running EXEC. False, too, for an EXEC that
    /// an earlier pause may have held up: no filter need have seen it.
    pub fn surely_began_in_exec(&self) -> bool {
        !self.was_on_before_exec.get() && !self.was_lately()
    }

    /// The main loop is about to sleep, or has slept. True if clients are paused, or were lately.
    pub fn main_turned(&self, locked: Locked<'_>) -> bool {
        if is_on(locked) {
            self.turns_left.set(TURNS_AFTER_PAUSE);
        }
        self.was_lately()
    }

    /// The main loop is about to sleep: commands that were sent have been executed, queued or
    /// refused.
    #[inline]
    pub fn before_sleep(&self, ctx: Ctx<'_>) {
        if self.may_begin.take() {
            // One that has ended by now may have held up commands, too.
            self.turns_left.set(TURNS_AFTER_PAUSE);
            self.look_into(ctx);
        }
    }

    /// A CLIENT PAUSE that was sent counts if clients are paused, unless the host has refused all
    /// of them.
    #[cold]
    fn look_into(&self, ctx: Ctx<'_>) {
        let of_all = self.sent_of_all.replace(false);
        if !is_on(ctx.locked()) {
            return;
        }
        let counts = ctx.call_counts(c"cmdstat_client|pause");
        let before = std::mem::replace(&mut *self.counts.lock(), counts);
        let were_refused = counts.are_refused_since(before, self.sent.replace(0));
        if of_all && !were_refused {
            self.of_all.set(true);
        }
    }

    /// The main loop is about to sleep, and no script keeps it from turning: another turn has
    /// passed since the pause.
    pub fn turn_ends(&self, locked: Locked<'_>) {
        if self.was_lately() && !is_on(locked) {
            self.turns_left.set(self.turns_left.get() - 1);
        }
    }

    /// As [`Pause::now`], for the gates. Forgets the kind of a pause that is over.
    pub fn look(&self, locked: Locked<'_>) -> Paused {
        let now = self.now(locked);
        if now < Paused::Writes {
            self.of_all.set(false);
        }
        now
    }
}

/// Whether clients are paused, and nothing may be logged: [`Paused::Writes`] or [`Paused::All`].
#[inline]
pub fn is_on(locked: Locked<'_>) -> bool {
    must_not_replicate(locked)
}
