//! DEBUG SET-ACTIVE-EXPIRE: whether the host looks for keys that have expired, so whether midi
//! does. The host does not report it. A filter sees the command before the host has judged it, and
//! anybody may have sent it; so it counts once the host has executed as many DEBUGs as were sent in
//! this turn of the main loop. One that is queued by MULTI does not count.

use parking_lot::Mutex;

use super::api::{Ctx, leading_number};
use super::context::Filtered;
use super::state::{Flag, Gauge, part};

part! {
    /// The host's search for keys that have expired, as far as midi knows.
    pub struct ActiveExpiry {
        /// Whether the host may execute DEBUG at all: no client changes that while it runs.
        may_debug: Flag = Flag::new(false),
        /// How many DEBUGs were sent in this turn.
        sent: Gauge = Gauge::new(0),
        /// Whether the last SET-ACTIVE-EXPIRE of this turn asks for rest; `None` without one.
        asked: Mutex<Option<bool>> = Mutex::new(None),
        /// How many DEBUGs the host had executed when it was last asked.
        executed: Gauge = Gauge::new(0),
        /// Whether the host was told not to look for keys that have expired.
        rests: Flag = Flag::new(false),
    }
}

impl ActiveExpiry {
    /// In OnLoad.
    pub fn prepare(&self, ctx: Ctx<'_>) {
        let enabled = ctx.config_text(c"enable-debug-command");
        self.may_debug.set(enabled.is_none_or(|text| text != b"no"));
        self.executed.set(ctx.calls_of(c"cmdstat_debug"));
    }

    /// Whether the host may execute DEBUG at all.
    pub fn may_debug(&self) -> bool {
        self.may_debug.get()
    }

    /// A DEBUG command, which the host may execute, is about to be executed, queued or refused.
    pub fn before_debug(&self, command: Filtered<'_>) {
        self.sent.add(1);
        if command.count() == 3 && command.arg(1).eq_ignore_ascii_case(b"set-active-expire") {
            *self.asked.lock() = Some(leading_number(command.arg(2)) == 0);
        }
    }

    /// The main loop is about to sleep: a DEBUG that was sent has run or was refused. True if the
    /// answer of [`ActiveExpiry::rests`] has changed.
    #[inline]
    pub fn before_sleep(&self, ctx: Ctx<'_>) -> bool {
        self.sent.get() != 0 && self.look_into(ctx)
    }

    #[cold]
    fn look_into(&self, ctx: Ctx<'_>) -> bool {
        let (sent, asked) = (self.sent.replace(0), self.asked.lock().take());
        let executed = ctx.calls_of(c"cmdstat_debug");
        // CONFIG RESETSTAT has it count from 0; and an EXEC may have run one that was sent earlier.
        let before = self.executed.replace(executed);
        let were_executed = executed.checked_sub(before).unwrap_or(executed) >= sent;
        asked.is_some_and(|rests| were_executed && self.rests.replace(rests) != rests)
    }

    /// Whether the host was told not to look for keys that have expired.
    pub fn rests(&self) -> bool {
        self.rests.get()
    }
}
