//! The limit of midi's memory, and what happens at it.
//!
//! ```text
//! room ──────────────► writes run
//! above the limit ───► a write evicts in its shard, if that has more than its share of the limit;
//!                      workers evict in the other shards that have (`dispatch/eviction.rs`)
//! far above ─────────► writes wait for the workers (`Gates::EVICTING`)
//! nothing to evict ──► writes are refused (`Gates::FULL`)
//! ```
//!
//! A database may have a limit of its own besides, with its own policy.
//!
//! The bytes are those that the tables count, added up over all threads. A thread adds them up each
//! time that it has changed a small part of the limit.

mod duel;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering::Relaxed};

use crate::command::Error;
use crate::limits::{DUEL_LEADERS, FAR_ABOVE_PART, SUMMED_PART, SUMMED_RANGE};
use crate::store::{First, Victims};
use duel::{Duel, LFU_SHARE, LRU_SHARE};

/// What is evicted: the values of `midi.maxmemory-policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Policy {
    /// Nothing: writes are refused.
    NoEviction,
    /// What is used least, as the shards find out by themselves: see [`Duel`].
    Auto,
    /// What was not used for long.
    Lru,
    /// What is not used often.
    Lfu,
    /// Any key.
    Random,
    /// As [`Policy::Lru`], of the keys that have an expiry.
    VolatileLru,
    /// As [`Policy::VolatileLru`]: those keys are too few to tell more about them.
    VolatileLfu,
    /// Any key that has an expiry.
    VolatileRandom,
    /// The key that expires first.
    VolatileTtl,
}

impl Policy {
    /// All of them, with their names.
    pub const ALL: [(Policy, &str); 9] = [
        (Policy::NoEviction, "noeviction"),
        (Policy::Auto, "allkeys-auto"),
        (Policy::Lru, "allkeys-lru"),
        (Policy::Lfu, "allkeys-lfu"),
        (Policy::Random, "allkeys-random"),
        (Policy::VolatileLru, "volatile-lru"),
        (Policy::VolatileLfu, "volatile-lfu"),
        (Policy::VolatileRandom, "volatile-random"),
        (Policy::VolatileTtl, "volatile-ttl"),
    ];

    /// Whether it goes by how often keys are used.
    pub fn counts_uses(self) -> bool {
        matches!(self, Policy::Auto | Policy::Lfu | Policy::VolatileLfu)
    }

    /// The policy of this name.
    pub fn named(name: &str) -> Option<Policy> {
        Policy::ALL.iter().find(|(_, other)| *other == name).map(|&(policy, _)| policy)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Policy::ALL[self as usize].1
    }

    /// Whether it evicts anything.
    pub fn evicts(self) -> bool {
        self != Policy::NoEviction
    }

    /// Whether only keys that have an expiry may go.
    pub fn is_volatile(self) -> bool {
        self as u8 >= Policy::VolatileLru as u8
    }

    fn of(number: u8) -> Policy {
        Policy::ALL[usize::from(number) % Policy::ALL.len()].0
    }
}

/// The limit as it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The policy in force.
    pub policy: Policy,
    /// The bytes that midi's keys may take; `i64::MAX` for no limit.
    pub bytes: i64,
    /// Whether `midi.maxmemory` sets it; else the host's `maxmemory` does.
    pub is_own: bool,
}

impl Limit {
    /// No limit.
    pub const NONE: Limit = Limit { policy: Policy::NoEviction, bytes: i64::MAX, is_own: false };
}

/// What a limit concerns: all keys, or those of one database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Scope {
    /// All keys.
    All,
    /// Those of this database.
    Database(u32),
}

/// What came of the search for a key to evict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Search {
    /// At least one key is gone.
    Freed,
    /// None was found yet: see [`Evicted`](crate::store::Evicted).
    NotYet,
    /// There is none.
    Nothing,
}

/// The keys that one limit concerns.
struct Pool {
    policy: AtomicU8,
    bytes: AtomicI64,
    /// Bytes above the limit when they were last added up, less what was evicted since; negative
    /// below it.
    above: AtomicI64,
}

impl Default for Pool {
    fn default() -> Self {
        Pool {
            policy: AtomicU8::new(Policy::NoEviction as u8),
            bytes: AtomicI64::new(i64::MAX),
            above: AtomicI64::new(i64::MIN),
        }
    }
}

impl Pool {
    fn set(&self, policy: Policy, bytes: i64) {
        self.policy.store(policy as u8, Relaxed);
        self.bytes.store(bytes, Relaxed);
        if !self.has_limit() {
            self.above.store(i64::MIN, Relaxed);
        }
    }

    fn has_limit(&self) -> bool {
        self.limit() != i64::MAX
    }

    fn limit(&self) -> i64 {
        self.bytes.load(Relaxed)
    }

    fn policy(&self) -> Policy {
        Policy::of(self.policy.load(Relaxed))
    }

    fn above(&self) -> i64 {
        self.above.load(Relaxed)
    }

    /// Notes the bytes that its keys have.
    fn note_sum(&self, bytes: i64) {
        self.above.store(bytes.saturating_sub(self.limit()), Relaxed);
    }
}

/// The limits, how far the keys are above them, and the choice of victims.
pub struct Eviction {
    is_on: AtomicBool,
    notes_uses: AtomicBool,
    is_own: AtomicBool,
    all: Pool,
    databases: Box<[Pool]>,
    /// Whether any database has a limit.
    has_databases: AtomicBool,
    /// Workers have found nothing that may go now, in all shards.
    is_stuck: AtomicBool,
    /// The host imports keys, and evicts none meanwhile.
    rests: AtomicBool,
    /// OBJECT FREQ tells how often keys are used.
    tells_uses: AtomicBool,
    duel: Duel,
}

impl Eviction {
    /// Without limits, for so many databases.
    pub(super) fn new(databases: u32) -> Self {
        Eviction {
            is_on: AtomicBool::new(false),
            notes_uses: AtomicBool::new(false),
            is_own: AtomicBool::new(false),
            all: Pool::default(),
            databases: (0..databases).map(|_| Pool::default()).collect(),
            has_databases: AtomicBool::new(false),
            is_stuck: AtomicBool::new(false),
            rests: AtomicBool::new(false),
            tells_uses: AtomicBool::new(false),
            duel: Duel::default(),
        }
    }

    /// Whether there is a limit.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Whether commands note that they used a key.
    #[inline]
    pub fn notes_uses(&self) -> bool {
        self.notes_uses.load(Relaxed)
    }

    /// Sets whether OBJECT FREQ tells of uses: they are noted then without a limit, too.
    pub fn set_telling_uses(&self, tells: bool) {
        self.tells_uses.store(tells, Relaxed);
        self.switch();
    }

    /// The limit of all keys in force.
    pub fn limit(&self) -> Limit {
        Limit { policy: self.all.policy(), bytes: self.all.limit(), is_own: self.is_own() }
    }

    pub(super) fn set_limit(&self, limit: Limit) {
        self.all.set(limit.policy, limit.bytes);
        self.is_own.store(limit.is_own, Relaxed);
        self.switch();
    }

    /// Sets the limits of single databases. The others have none.
    pub(super) fn set_database_limits(&self, limits: &[(u32, Policy, i64)]) {
        for (db, pool) in self.databases.iter().enumerate() {
            let limit = limits.iter().find(|(of, ..)| *of as usize == db);
            let (policy, bytes) =
                limit.map_or((Policy::NoEviction, i64::MAX), |&(_, policy, bytes)| (policy, bytes));
            pool.set(policy, bytes);
        }
        self.has_databases.store(self.databases.iter().any(Pool::has_limit), Relaxed);
        self.switch();
    }

    fn switch(&self) {
        self.is_stuck.store(false, Relaxed);
        let is_on = self.all.has_limit() || self.has_databases.load(Relaxed);
        self.is_on.store(is_on, Relaxed);
        self.notes_uses.store(is_on || self.tells_uses.load(Relaxed), Relaxed);
    }

    fn is_own(&self) -> bool {
        self.is_own.load(Relaxed)
    }

    /// Whether the host imports keys. The caller holds all tokens.
    pub(super) fn set_resting(&self, rests: bool) {
        self.rests.store(rests, Relaxed);
    }

    /// The policy by which a limit is kept now: none while eviction rests.
    pub(super) fn policy_of(&self, scope: Scope) -> Policy {
        if self.rests.load(Relaxed) { Policy::NoEviction } else { self.pool(scope).policy() }
    }

    /// The error for a write that there is no room for.
    pub fn error(&self) -> Error {
        if self.is_own() { Error::OverOwnLimit } else { Error::NothingToEvict }
    }

    fn pool(&self, scope: Scope) -> &Pool {
        match scope {
            Scope::Database(db) => self.databases.get(db as usize).unwrap_or(&self.all),
            Scope::All => &self.all,
        }
    }

    /// The databases that have limits.
    pub(super) fn limited_databases(&self) -> impl Iterator<Item = u32> {
        let databases = if self.has_databases.load(Relaxed) { &self.databases[..] } else { &[] };
        let numbered = (0..).zip(databases);
        numbered.filter(|(_, pool)| pool.has_limit()).map(|(db, _)| db)
    }

    /// The limits that concern a key of this database.
    pub(in crate::engine) fn scopes_of(&self, db: u32) -> impl Iterator<Item = Scope> {
        let own = self.limited_databases().find(|&limited| limited == db).map(Scope::Database);
        own.into_iter().chain([Scope::All])
    }

    /// All limits that are exceeded and evict.
    pub(in crate::engine) fn exceeded(&self) -> impl Iterator<Item = Scope> {
        let databases = self.limited_databases().map(Scope::Database);
        [Scope::All].into_iter().chain(databases).filter(|&scope| self.evicts(scope))
    }

    /// Whether keys are to be evicted for this limit.
    #[inline]
    pub(in crate::engine) fn evicts(&self, scope: Scope) -> bool {
        self.is_above(scope) && self.policy_of(scope).evicts()
    }

    /// Bytes that a thread may have changed before it adds up again.
    pub(super) fn is_sum_old(&self, changed: u64) -> bool {
        let databases = self.limited_databases().map(|db| self.databases[db as usize].limit());
        let least = databases.fold(self.all.limit(), i64::min);
        let part = least.max(0) as u64 / SUMMED_PART;
        changed >= part.clamp(*SUMMED_RANGE.start(), *SUMMED_RANGE.end())
    }

    /// Notes the bytes of the keys that a limit concerns. True if they are above it.
    pub(super) fn note_sum(&self, scope: Scope, bytes: i64) -> bool {
        self.pool(scope).note_sum(bytes);
        self.is_above(scope)
    }

    /// Whether the keys were above the limit when they were last added up.
    #[inline]
    pub(super) fn is_above(&self, scope: Scope) -> bool {
        self.pool(scope).above() > 0
    }

    /// Whether all keys are so far above their limit that writes should wait.
    pub(in crate::engine) fn is_far_above(&self) -> bool {
        self.all.above() > self.all.limit().max(0) / FAR_ABOVE_PART
    }

    /// Whether not a byte is left.
    pub(super) fn has_no_room(&self) -> bool {
        self.all.above() >= 0
    }

    /// Why a write in this database is refused: for its own limit, at which nothing is evicted.
    /// `has_victims` says whether it has a key that may be.
    pub(super) fn refusal_in(
        &self,
        db: u32,
        has_victims: impl FnOnce(Policy) -> bool,
    ) -> Option<Error> {
        let scope = Scope::Database(db);
        if !self.limited_databases().any(|limited| limited == db) || !self.is_above(scope) {
            return None;
        }
        let policy = self.policy_of(scope);
        let refuses = !policy.evicts() || !has_victims(policy);
        refuses.then_some(Error::OverDatabaseLimit(db))
    }

    /// Whether workers have found nothing that may go now.
    pub(in crate::engine) fn is_stuck(&self) -> bool {
        self.is_stuck.load(Relaxed)
    }

    /// Workers have gone through all shards for this limit and found nothing that may go now.
    pub(in crate::engine) fn found_nothing(&self, scope: Scope) {
        if scope == Scope::All {
            self.is_stuck.store(true, Relaxed);
        }
    }

    /// Deducts what was evicted from a database.
    pub(super) fn note_freed(&self, db: u32, bytes: i64) {
        if bytes > 0 && self.is_stuck() {
            self.is_stuck.store(false, Relaxed);
        }
        for scope in self.scopes_of(db) {
            self.pool(scope).above.fetch_sub(bytes, Relaxed);
        }
    }

    /// The share of one of so many shards.
    pub(in crate::engine) fn share(&self, scope: Scope, shards: u32) -> i64 {
        self.pool(scope).limit() / i64::from(shards)
    }

    /// The keys that go first in this shard.
    pub(super) fn victims(&self, scope: Scope, shard: u32, shards: u32) -> Victims {
        let policy = self.pool(scope).policy();
        let first = match policy {
            Policy::VolatileTtl => First::Due,
            Policy::Random | Policy::VolatileRandom => First::Any,
            Policy::Lru => First::Unused(LRU_SHARE),
            Policy::Lfu => First::Unused(LFU_SHARE),
            _ => First::Unused(self.duel.share(shard, shards)),
        };
        Victims { volatile: policy.is_volatile(), first }
    }

    /// A new key was added to this shard.
    #[inline]
    pub(super) fn note_new_key(&self, shard: u32) {
        if self.is_on() && shard % DUEL_LEADERS < 2 {
            self.duel.note(shard % DUEL_LEADERS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_have_the_names_at_their_numbers() {
        for (policy, name) in Policy::ALL {
            assert_eq!((policy.name(), Policy::named(name)), (name, Some(policy)));
            assert_eq!(policy.is_volatile(), name.starts_with("volatile-"));
            assert_eq!(policy.evicts(), name != "noeviction");
        }
        assert_eq!(Policy::named("allkeys-LRU"), None);
    }

    #[test]
    fn a_limit_is_a_share_for_each_shard() {
        let eviction = Eviction::new(16);
        assert!(!eviction.is_on());
        eviction.set_limit(Limit { policy: Policy::Lru, bytes: 1 << 20, is_own: true });
        assert_eq!(eviction.share(Scope::All, 1024), 1024);
        assert!(!eviction.note_sum(Scope::All, 1 << 20) && eviction.has_no_room());
        assert!(eviction.note_sum(Scope::All, (1 << 20) + 10) && eviction.evicts(Scope::All));
        assert!(!eviction.is_far_above());
        eviction.note_freed(3, 10);
        assert!(!eviction.evicts(Scope::All));
        assert!(eviction.note_sum(Scope::All, 2 << 20) && eviction.is_far_above());
        eviction.set_limit(Limit::NONE);
        assert!(!eviction.is_on() && !eviction.evicts(Scope::All));
    }

    #[test]
    fn databases_have_limits_of_their_own() {
        let eviction = Eviction::new(16);
        let limits = [(3, Policy::Lru, 1000), (5, Policy::NoEviction, 500)];
        eviction.set_database_limits(&limits);
        assert!(eviction.is_on());
        assert_eq!(eviction.limited_databases().collect::<Vec<_>>(), [3, 5]);
        eviction.note_sum(Scope::Database(3), 1100);
        eviction.note_sum(Scope::Database(5), 501);
        assert_eq!(eviction.exceeded().collect::<Vec<_>>(), [Scope::Database(3)]);
        assert_eq!(eviction.refusal_in(3, |_| true), None);
        assert_eq!(eviction.refusal_in(3, |_| false), Some(Error::OverDatabaseLimit(3)));
        assert_eq!(eviction.refusal_in(5, |_| true), Some(Error::OverDatabaseLimit(5)));
        assert_eq!(eviction.refusal_in(0, |_| false), None);
        eviction.note_freed(3, 100);
        assert_eq!(eviction.exceeded().count(), 0);
        eviction.set_database_limits(&[]);
        assert!(!eviction.is_on());
    }
}
