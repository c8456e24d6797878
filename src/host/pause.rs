//! CLIENT PAUSE: whether what the host pauses is writes only. That clients are paused it tells, of
//! which kind not.
//!
//! ```text
//!           CLIENT PAUSE is said,        before sleep: clients are paused, and the
//!           or an EXEC may have it       host has executed one that was not for writes
//! Unknown ─────────────────────► Said ──────────────────────────────────────────► OfAll
//!    ▲                             │ not so                                          │
//!    └─────────────────────────────┴─────────────────────────────────────────────────┘
//!                                         clients are not paused any more
//! ```

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::api::{Ctx, must_not_replicate};

/// What is known of pauses.
pub struct Pause {
    /// Whether anybody has said CLIENT PAUSE in this turn of the main loop.
    said: AtomicBool,
    /// And one that is not for writes only.
    said_of_all: AtomicBool,
    /// Whether any client ever said one of these.
    ever_said: AtomicBool,
    /// How many of any kind the host had executed when it was last asked.
    executed: AtomicU64,
    /// Whether a pause, if there is one, may be for reads too.
    of_all: AtomicBool,
}

impl Pause {
    /// None was said.
    pub const fn new() -> Self {
        Pause {
            said: AtomicBool::new(false),
            said_of_all: AtomicBool::new(false),
            ever_said: AtomicBool::new(false),
            executed: AtomicU64::new(0),
            of_all: AtomicBool::new(false),
        }
    }

    /// A CLIENT PAUSE is about to be executed, queued or refused: anybody can say it, without a
    /// password, too. A filter learns no more of pauses than that: which kind is in force, the
    /// host does not tell.
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

    /// The main loop is about to sleep: what was said has been executed, queued or refused.
    #[inline]
    pub fn before_sleep(&self, ctx: Ctx<'_>) {
        if self.said.load(Ordering::Relaxed) && self.said.swap(false, Ordering::Relaxed) {
            self.look_into(ctx);
        }
    }

    /// What was said is believed where clients are paused and the host has executed one since that
    /// was last looked into.
    #[cold]
    fn look_into(&self, ctx: Ctx<'_>) {
        let of_all = self.said_of_all.swap(false, Ordering::Relaxed);
        if !must_not_replicate(ctx.locked()) {
            return;
        }
        let executed = executed(ctx);
        // Where there are fewer than before, the host has begun to count anew.
        if self.executed.swap(executed, Ordering::Relaxed) != executed && of_all {
            self.of_all.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the pause is for reads too, where there is one; where there is none, what was known
    /// of it is forgotten.
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
