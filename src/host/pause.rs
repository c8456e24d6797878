//! CLIENT PAUSE: whether a pause is for writes only. The host reports that clients are paused, but
//! not which kind of pause it is.
//!
//! ```text
//!           CLIENT PAUSE was sent,       before sleep: clients are paused, and the
//!           or an EXEC may have it       host has executed one that was not for writes
//! Unknown ─────────────────────► Sent ──────────────────────────────────────────► OfAll
//!    ▲                             │ if not                                          │
//!    └─────────────────────────────┴─────────────────────────────────────────────────┘
//!                                         clients are not paused any more
//! ```

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::api::{Ctx, must_not_replicate};

/// What is known of pauses.
pub struct Pause {
    /// Whether any client has sent CLIENT PAUSE in this turn of the main loop.
    said: AtomicBool,
    /// Whether any of these is not for writes only.
    said_of_all: AtomicBool,
    /// Whether any client ever sent one that is not for writes only.
    ever_said: AtomicBool,
    /// How many CLIENT PAUSEs of any kind the host had executed when it was last asked.
    executed: AtomicU64,
    /// Whether a pause, if there is one, may be for reads too.
    of_all: AtomicBool,
}

impl Pause {
    /// No CLIENT PAUSE yet.
    pub const fn new() -> Self {
        Pause {
            said: AtomicBool::new(false),
            said_of_all: AtomicBool::new(false),
            ever_said: AtomicBool::new(false),
            executed: AtomicU64::new(0),
            of_all: AtomicBool::new(false),
        }
    }

    /// A CLIENT PAUSE is about to be executed, queued or refused: any client can send it, even one
    /// that has not logged in. A filter learns no more than that, and the host does not report
    /// which kind is in force.
    pub fn said(&self, kind: &[u8]) {
        self.said.store(true, Ordering::Relaxed);
        if !kind.eq_ignore_ascii_case(b"write") {
            self.said_of_all.store(true, Ordering::Relaxed);
            self.ever_said.store(true, Ordering::Relaxed);
        }
    }

    /// An EXEC is about to be executed: a CLIENT PAUSE may have been queued in it.
    pub fn before_exec(&self) {
        if self.ever_said.load(Ordering::Relaxed) {
            self.said.store(true, Ordering::Relaxed);
            self.said_of_all.store(true, Ordering::Relaxed);
        }
    }

    /// The main loop is about to sleep: what was sent has been executed, queued or refused.
    #[inline]
    pub fn before_sleep(&self, ctx: Ctx<'_>) {
        if self.said.load(Ordering::Relaxed) && self.said.swap(false, Ordering::Relaxed) {
            self.look_into(ctx);
        }
    }

    /// What was sent counts if clients are paused and the host has executed a CLIENT PAUSE since
    /// the last check.
    #[cold]
    fn look_into(&self, ctx: Ctx<'_>) {
        let of_all = self.said_of_all.swap(false, Ordering::Relaxed);
        if !must_not_replicate(ctx.locked()) {
            return;
        }
        let executed = executed(ctx);
        // A lower count means that the host has reset it: that is a change too.
        if self.executed.swap(executed, Ordering::Relaxed) != executed && of_all {
            self.of_all.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the pause, if there is one, is for reads too. Without one, what was known of it is
    /// forgotten.
    pub fn is_of_all(&self, paused: bool) -> bool {
        if !paused {
            self.of_all.store(false, Ordering::Relaxed);
        }
        self.of_all.load(Ordering::Relaxed)
    }
}

/// How often CLIENT PAUSE was called, of any kind.
fn executed(ctx: Ctx<'_>) -> u64 {
    let text = ctx.info_text(c"commandstats", c"cmdstat_client|pause").unwrap_or_default();
    let calls = text.strip_prefix(b"calls=").unwrap_or_default();
    let digits = calls.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
}
