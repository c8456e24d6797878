//! Facts about the host that only its version tells. Most are about the I/O threads of Redis, whose
//! use has changed with its versions; Valkey's differ.

use super::api::Ctx;
use super::instance::instance;
use crate::command::getex_checks_first;

/// The first version that runs commands of I/O threads after it has synced its AOF, and sends their
/// replies in the same turn.
pub const ANSWERS_EARLY: (u32, u32) = (8, 2);

/// The first version whose I/O threads ask modules for the keys of commands.
///
/// This is a defect of Redis (8.6.3, `moduleGetCommandKeysViaAPI`): such a question counts as a
/// command that is being executed, in a counter that only the main thread may touch. When the
/// counter is wrong, Redis leaves writes out of its AOF, or ends with a failed assertion.
pub const ASKS_FOR_KEYS: (u32, u32) = (8, 4);

/// The first version of Valkey whose GETEX checks its expiry before it looks for the key.
const VALKEY_CHECKS_FIRST: (u32, u32) = (9, 1);

/// The first version of Redis that judges a write by its AOF's state when no client is served; all
/// of Valkey do.
const JUDGES_AT_ANY_TIME: (u32, u32) = (8, 0);

/// Answers as the host does where its versions differ in more than words. In OnLoad.
pub fn adopt(ctx: Ctx<'_>) {
    let version = ctx.info_text(c"server", c"valkey_version");
    if version.as_deref().is_some_and(|text| numbers(text) >= VALKEY_CHECKS_FIRST) {
        getex_checks_first();
    }
    let redis = ctx.info_text(c"server", c"redis_version");
    let judges =
        version.is_some() || redis.is_some_and(|text| numbers(&text) >= JUDGES_AT_ANY_TIME);
    instance().gates.judges_at_any_time.set(judges);
}

/// Whether the host is Redis of this version or a later one, with I/O threads; both as far as it
/// reports them.
pub fn is_redis_since(ctx: Ctx<'_>, first: (u32, u32)) -> bool {
    // Valkey reports a version of Redis's too.
    let is_valkey = ctx.info_text(c"server", c"valkey_version").is_some();
    if is_valkey || ctx.config_number(c"io-threads").is_some_and(|threads| threads <= 1) {
        return false;
    }
    ctx.info_text(c"server", c"redis_version").is_none_or(|text| numbers(&text) >= first)
}

/// The first two numbers of a version.
fn numbers(version: &[u8]) -> (u32, u32) {
    let text = String::from_utf8_lossy(version);
    let mut numbers = text.split('.').map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}
