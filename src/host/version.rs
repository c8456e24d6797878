//! Facts about the host that only its version tells.

use super::api::Ctx;
use super::instance::instance;
use crate::command::{dump_as_valkey, getex_checks_first};

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
    if version.is_some() {
        dump_as_valkey();
    }
    let redis = ctx.info_text(c"server", c"redis_version");
    let judges =
        version.is_some() || redis.is_some_and(|text| numbers(&text) >= JUDGES_AT_ANY_TIME);
    instance().gates.judges_at_any_time.set(judges);
}

/// Whether the host is Redis or Valkey of these versions or later ones, as far as it reports its
/// version: Redis that does not is a late one. `None` stands for no version of Valkey.
pub fn is_since(ctx: Ctx<'_>, redis: (u32, u32), valkey: Option<(u32, u32)>) -> bool {
    // Valkey reports a version of Redis's too.
    match ctx.info_text(c"server", c"valkey_version") {
        Some(text) => valkey.is_some_and(|first| numbers(&text) >= first),
        None => {
            let text = ctx.info_text(c"server", c"redis_version");
            text.is_none_or(|text| numbers(&text) >= redis)
        }
    }
}

/// The first two numbers of a version.
fn numbers(version: &[u8]) -> (u32, u32) {
    let text = String::from_utf8_lossy(version);
    let mut numbers = text.split('.').map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}
