//! The limit of midi's memory, as it follows from midi's settings and the host's `maxmemory`.
//!
//! | `midi.maxmemory` | `maxmemory` | the limit |
//! |---|---|---|
//! | 0 | 0 | none |
//! | 0 | set | what is left below `maxmemory`, but for a reserve: who grows pays |
//! | set | 0, or the host evicts | `midi.maxmemory`: the host's keys give way |
//! | set | set, and the host does not evict | the smaller one of both |
//!
//! *Who grows pays*: midi evicts its own keys for its own growth, and the host sees itself above
//! `maxmemory` only by its own. Where nobody has grown, because `maxmemory` was lowered or a file
//! was loaded that needs more, both pay, in proportion to their data. A host without keys of its
//! own cannot pay: midi gives way to whatever grows.
//!
//! Where midi's policy does not evict and `midi.maxmemory` is 0, the host's limit is kept by credit
//! (`gates.rs`), as if it were the host's own write.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use super::api::{Ctx, Level, c_text, log};
use super::config::table::{
    DB_MAXMEMORY, DB_MAXMEMORY_POLICY, MAXMEMORY, MAXMEMORY_POLICY, bytes_of, databases_in,
    numbered, written,
};
use super::instance::instance;
use crate::engine::{Limit, Policy};
use crate::limits::{
    GIVES_WAY_EVERY, LIMIT_SLACK_PART, RESERVE_MIN, RESERVE_PART, RESERVE_PER_THREAD,
};
use crate::store::count_exactly;

/// The settings as last read.
#[derive(Clone, Copy, PartialEq, Eq)]
struct KnownLimits {
    /// `midi.maxmemory`.
    own: i64,
    /// The policy in force for midi's keys.
    policy: Policy,
    /// The host's `maxmemory`; 0 for none.
    host: i64,
    host_policy: Policy,
}

/// The settings of the limit.
pub struct EvictionSettings {
    known: Mutex<KnownLimits>,
    /// The host's limit was lowered, and midi's does not follow from it yet.
    is_lower: AtomicBool,
    /// When midi's limit was last lowered for the growth of others.
    gave_way: Mutex<Option<Instant>>,
}

impl EvictionSettings {
    /// Before they are read.
    pub const fn new() -> Self {
        let policy = Policy::NoEviction;
        let known = KnownLimits { own: 0, policy, host: 0, host_policy: policy };
        EvictionSettings {
            known: Mutex::new(known),
            is_lower: AtomicBool::new(false),
            gave_way: Mutex::new(None),
        }
    }

    /// Reads the settings, and warns of some. At load, and when a setting has changed.
    pub fn look(&self, ctx: Ctx<'_>) {
        let of_host = ctx.info_text(c"memory", c"maxmemory_policy").unwrap_or_default();
        let host_policy = policy_of_host(&String::from_utf8_lossy(&of_host));
        let own_policy = Policy::named(&written(MAXMEMORY_POLICY));
        let host = ctx.info_number(c"memory", c"maxmemory").unwrap_or(0);
        let known = KnownLimits {
            own: numbered(MAXMEMORY).value.load(Ordering::Relaxed),
            policy: own_policy.unwrap_or(host_policy),
            host: i64::try_from(host).unwrap_or(i64::MAX),
            host_policy,
        };
        let last = std::mem::replace(&mut *self.known.lock(), known);
        if last != known
            && let Some(warning) = known.warning()
        {
            log(ctx, Level::Warning, &warning);
        }
        if known.host < last.host {
            self.is_lower.store(true, Ordering::Relaxed);
        }
        let engine = &instance().engine;
        // As on the host, OBJECT FREQ is an error under a policy that is named after LRU.
        let counts_uses = own_policy.map_or(of_host.ends_with(b"-lfu"), Policy::counts_uses);
        engine.settings().counts_uses.store(counts_uses, Ordering::Relaxed);
        engine.ledger.eviction.set_telling_uses(counts_uses);
        engine.ledger.set_database_limits(ctx.locked(), &limits_of_databases(known.policy));
        instance().gates.may_change();
    }

    /// Whether midi evicts keys of its own where there is a limit: then its writes need no credit
    /// of the host's.
    pub fn evicts(&self) -> bool {
        self.known.lock().policy.evicts()
    }

    /// Brings the limit up to date. Like the host's own keys, those of a replica are evicted by the
    /// master alone.
    pub fn refresh(&self, ctx: Ctx<'_>, is_replica: bool) {
        let known = *self.known.lock();
        let ledger = &instance().engine.ledger;
        // A limit that was lowered is one that holds for the first time.
        let is_lower = self.is_lower.swap(false, Ordering::Relaxed);
        let last = if is_lower { Limit::NONE } else { ledger.eviction.limit() };
        let mut gave_way = self.gave_way.lock();
        let limit = if is_replica { Limit::NONE } else { known.limit(ctx, last, &mut gave_way) };
        if ledger.eviction.limit() != limit {
            ledger.set_limit(ctx.locked(), limit);
        } else if ledger.eviction.is_on() {
            ledger.add_up_memory();
        }
    }

    /// The policy for midi's keys, and the limit as an operator has set it: midi's, or the host's.
    pub fn as_set(&self) -> (Policy, i64) {
        let known = *self.known.lock();
        (known.policy, if known.own > 0 { known.own } else { known.host })
    }

    /// The keys of its own that the host evicts when midi's need room, for INFO.
    pub fn evictable_host_keys(&self) -> &'static str {
        let known = *self.known.lock();
        match known.host_policy {
            _ if known.host == 0 || !known.has_host_pay() => "none",
            policy if policy.is_volatile() => "volatile",
            policy if policy.evicts() => "all",
            _ => "none",
        }
    }
}

impl KnownLimits {
    /// Whether midi's growth may take the host above its limit.
    fn has_host_pay(self) -> bool {
        self.own > 0 || !self.policy.evicts()
    }

    fn limit(self, ctx: Ctx<'_>, last: Limit, gave_way: &mut Option<Instant>) -> Limit {
        let limit = |bytes| Limit { policy: self.policy, bytes, is_own: self.own > 0 };
        let mut has_room = || self.what_host_leaves(ctx, last, gave_way);
        match (self.own, self.host) {
            (0, 0) => Limit::NONE,
            (0, _) if self.policy.evicts() => limit(has_room()),
            (0, _) => Limit::NONE,
            (own, 0) => limit(own),
            (own, _) if !self.host_policy.evicts() => limit(own.min(has_room())),
            (own, host) if self.policy.evicts() => limit(own.min(host - reserve(host))),
            (own, _) => limit(own),
        }
    }

    /// The bytes that midi's keys may have as long as all else takes what it takes now. Where that
    /// has left no room, midi keeps what it has: it does not pay for the growth of others.
    fn what_host_leaves(self, ctx: Ctx<'_>, last: Limit, gave_way: &mut Option<Instant>) -> i64 {
        let bytes = instance().engine.ledger.books.totals().bytes;
        let mut memory = HostMemory::now(ctx);
        let reserve = reserve(self.host);
        let room = |memory: &HostMemory| self.host - reserve - memory.used;
        if room(&memory) > 0 {
            return bytes + room(&memory);
        }
        let may_give_way = gave_way.is_none_or(|last| last.elapsed() >= GIVES_WAY_EVERY);
        if room(&memory) < -reserve / 2 && may_give_way && !has_keys(ctx) {
            // Nobody else can. What the host counts too much would cost too many keys.
            count_exactly();
            memory = HostMemory::now(ctx);
            if room(&memory) < 0 && bytes + room(&memory) > 0 {
                *gave_way = Some(Instant::now());
                return bytes + room(&memory);
            }
        }
        if last != Limit::NONE {
            // A little above what there is: else the limit would follow each key that is evicted.
            return last.bytes.min(bytes + bytes / LIMIT_SLACK_PART);
        }
        if memory.used <= self.host {
            return bytes;
        }
        // Nobody has grown: the limit is new. What evicting all keys would not help, evicts none.
        let theirs = if self.host_policy.evicts() { memory.data - bytes } else { 0 };
        let part = share(bytes, theirs.max(0), bytes + room(&memory));
        if part > 0 { part } else { bytes }
    }

    fn warning(self) -> Option<String> {
        if self.host == 0 {
            return None;
        }
        if self.own >= self.host {
            return Some(format!(
                "midi.maxmemory ({}) is not below maxmemory ({}): the server's own keys, buffers \
                 and midi's keys together have no more than maxmemory.",
                self.own, self.host
            ));
        }
        let whose = match self.host_policy {
            policy if !policy.evicts() || self.policy.evicts() => return None,
            policy if policy.is_volatile() => "its own keys that have a time to live",
            _ => "its own keys, all of them in the end",
        };
        Some(format!(
            "maxmemory-policy evicts, and midi.maxmemory-policy is {}. midi's keys count towards \
             maxmemory, and are not evicted: as they grow, the server evicts {whose}, and then \
             answers writes with OOM.",
            self.policy.name()
        ))
    }
}

/// The limits of single databases; `policy` is for those that have none of their own.
fn limits_of_databases(policy: Policy) -> Vec<(u32, Policy, i64)> {
    let policies = databases_in(&written(DB_MAXMEMORY_POLICY), Policy::named).unwrap_or_default();
    let policy_of = |db| policies.iter().find(|(of, _)| *of == db).map_or(policy, |&(_, own)| own);
    let limits = databases_in(&written(DB_MAXMEMORY), bytes_of).unwrap_or_default();
    let limits = limits.into_iter().filter(|&(_, bytes)| bytes > 0);
    limits.map(|(db, bytes)| (db, policy_of(db), bytes)).collect()
}

/// The memory that the host counts, in bytes.
struct HostMemory {
    /// What it compares with `maxmemory`.
    used: i64,
    /// Keys and values, midi's included.
    data: i64,
}

impl HostMemory {
    fn now(ctx: Ctx<'_>) -> Self {
        let memory = ctx.info(c"memory");
        let number = |name| memory.number(name).unwrap_or(0) as i64;
        HostMemory {
            used: number(c"used_memory") - number(c"mem_not_counted_for_evict"),
            data: number(c"used_memory_dataset"),
        }
    }
}

/// Whether the host has keys of its own.
fn has_keys(ctx: Ctx<'_>) -> bool {
    let keyspace = ctx.info(c"keyspace");
    (0..instance().engine.config().databases)
        .any(|db| keyspace.text(&c_text(&format!("db{db}"))).is_some())
}

/// midi's part of what midi's data and others' may take together. `room` is what is left for midi's
/// while the others keep all of theirs.
fn share(midis: i64, theirs: i64, room: i64) -> i64 {
    let both = i128::from(room + theirs) * i128::from(midis) / i128::from((midis + theirs).max(1));
    i64::try_from(both).unwrap_or(0).max(0)
}

/// What midi leaves free below the host's limit: the host's own count is coarser than midi's.
fn reserve(host: i64) -> i64 {
    let threads = instance().engine.config().workers as i64 + 1;
    let least = RESERVE_MIN.max(threads * RESERVE_PER_THREAD);
    (host / RESERVE_PART).max(least).min(host / 8)
}

/// midi's policy for one of the host's. One that a newer host has is taken for the nearest one.
fn policy_of_host(name: &str) -> Policy {
    match name {
        "allkeys-lru" | "allkeys-lfu" => Policy::Auto,
        name => Policy::named(name).unwrap_or(if name.starts_with("allkeys-") {
            Policy::Auto
        } else if name.starts_with("volatile-") {
            Policy::VolatileLru
        } else {
            Policy::NoEviction
        }),
    }
}
