//! `maxmemory` with a policy that evicts. midi's keys count towards the host's limit but cannot be
//! evicted yet: as they grow, the host evicts its own.

use parking_lot::Mutex;

use super::api::{Ctx, Level, log};

/// The host's own keys that make room for midi's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Victims {
    None,
    /// Those with a time to live.
    Volatile,
    All,
}

/// The host's settings as last read.
pub struct Eviction(Mutex<Victims>);

impl Eviction {
    /// Before they are read.
    pub const fn new() -> Self {
        Eviction(Mutex::new(Victims::None))
    }

    /// Reads the host's settings, and warns if they have become dangerous. At load, and when a
    /// setting has changed.
    pub fn look(&self, ctx: Ctx<'_>) {
        let policy = ctx.info_text(c"memory", c"maxmemory_policy").unwrap_or_default();
        let limited = ctx.info_number(c"memory", c"maxmemory").is_some_and(|limit| limit > 0);
        let victims = if limited { victims(&policy) } else { Victims::None };
        let whose = match victims {
            _ if std::mem::replace(&mut *self.0.lock(), victims) == victims => return,
            Victims::None => return,
            Victims::Volatile => "its own keys that have a time to live",
            Victims::All => "its own keys, all of them in the end",
        };
        let text = format!(
            "maxmemory is set and maxmemory-policy is {}. midi's keys count towards maxmemory, but \
             cannot be evicted yet: as they grow, the server evicts {whose}, and then answers \
             writes with OOM. Set maxmemory-policy noeviction, or leave room in maxmemory for all \
             of midi's keys.",
            String::from_utf8_lossy(&policy)
        );
        log(ctx, Level::Warning, &text);
    }

    /// The keys of its own that the host evicts when midi's need room, for INFO.
    pub fn evictable_host_keys(&self) -> &'static str {
        match *self.0.lock() {
            Victims::None => "none",
            Victims::Volatile => "volatile",
            Victims::All => "all",
        }
    }
}

fn victims(policy: &[u8]) -> Victims {
    if policy.starts_with(b"allkeys-") {
        Victims::All
    } else if policy.starts_with(b"volatile-") {
        Victims::Volatile
    } else {
        Victims::None
    }
}
