//! DEBUG SET-ACTIVE-EXPIRE: whether the host looks for keys that have expired, so whether midi
//! does. The host does not report it. A filter sees the command before the host has judged it, and
//! anybody may have sent it; so it counts once the host has executed as many DEBUGs as were sent in
//! this turn of the main loop. One that is queued by MULTI does not count.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use super::api::Ctx;
use super::context::Filtered;

/// Whether the host may execute DEBUG at all.
static IS_ENABLED: AtomicBool = AtomicBool::new(false);

/// How many DEBUGs were sent in this turn.
static SENT: AtomicU64 = AtomicU64::new(0);

/// What the last SET-ACTIVE-EXPIRE of this turn asks for.
static ASKED: AtomicU8 = AtomicU8::new(NOTHING);
const NOTHING: u8 = 0;
const ON: u8 = 1;
const OFF: u8 = 2;

/// How many DEBUGs the host had executed when it was last asked.
static EXECUTED: AtomicU64 = AtomicU64::new(0);

/// Whether the host was told not to look for keys that have expired.
static RESTS: AtomicBool = AtomicBool::new(false);

/// In OnLoad.
pub fn prepare(ctx: Ctx<'_>) {
    let enabled = ctx.config_text(c"enable-debug-command");
    IS_ENABLED.store(enabled.is_some_and(|text| text != b"no"), Ordering::Relaxed);
    EXECUTED.store(executed(ctx), Ordering::Relaxed);
}

/// A DEBUG command is about to be executed, queued or refused.
pub fn before_debug(command: Filtered<'_>) {
    if !IS_ENABLED.load(Ordering::Relaxed) {
        return;
    }
    SENT.fetch_add(1, Ordering::Relaxed);
    if command.count() == 3 && command.arg(1).eq_ignore_ascii_case(b"set-active-expire") {
        let asked = if leading_number(command.arg(2)) == 0 { OFF } else { ON };
        ASKED.store(asked, Ordering::Relaxed);
    }
}

/// The main loop is about to sleep: what was sent has been executed or refused. True if the answer
/// of [`rests`] has changed.
#[inline]
pub fn before_sleep(ctx: Ctx<'_>) -> bool {
    SENT.load(Ordering::Relaxed) != 0 && look_into(ctx)
}

#[cold]
fn look_into(ctx: Ctx<'_>) -> bool {
    let sent = SENT.swap(0, Ordering::Relaxed);
    let asked = ASKED.swap(NOTHING, Ordering::Relaxed);
    let executed = executed(ctx);
    let were_all = executed.checked_sub(EXECUTED.swap(executed, Ordering::Relaxed)) == Some(sent);
    let rests = asked == OFF;
    asked != NOTHING && were_all && RESTS.swap(rests, Ordering::Relaxed) != rests
}

/// Whether the host was told not to look for keys that have expired.
pub fn rests() -> bool {
    RESTS.load(Ordering::Relaxed)
}

fn executed(ctx: Ctx<'_>) -> u64 {
    let text = ctx.info_text(c"commandstats", c"cmdstat_debug").unwrap_or_default();
    leading_number(text.strip_prefix(b"calls=").unwrap_or_default())
}

/// As C's atoi reads a number that is not negative.
fn leading_number(text: &[u8]) -> u64 {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |number: u64, digit| {
        number.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
    })
}
