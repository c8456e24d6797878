//! The bounds of eviction.

use std::ops::RangeInclusive;
use std::time::Duration;

/// How many buckets of a table the search for one key to evict looks at: some 2 µs if none of them
/// is in a cache, and more than it takes unless most keys may not be evicted.
pub const BUCKETS_PER_VICTIM: u32 = 32;

/// How many keys a write evicts in its shard before it runs: some 4 µs.
pub const VICTIMS_PER_WRITE: usize = 8;

/// And how many more for each key of a command on several keys, or of a transaction: in the whole
/// of its shards. As many bytes as it brings, unless its values are larger than those of others.
pub const VICTIMS_PER_KEY: usize = 2;

/// How many searches for a key to evict the main thread makes after a command of its own, where
/// writes have brought more than they have evicted: some 50 µs if each finds one.
pub const SEARCHES_ON_MAIN: usize = 64;
/// And in how many shards it looks whether they are above their share.
pub const SHARDS_ON_MAIN: u32 = 256;

/// A thread adds up the memory of all tables after it has changed this part of the limit, within
/// these bounds in bytes. So all of 64 threads together are 1.6 % above it at most.
pub const SUMMED_PART: u64 = 4096;
/// See [`SUMMED_PART`]. Adding up reads a cache line of each thread.
pub const SUMMED_RANGE: RangeInclusive<u64> = 4 << 10..=256 << 10;

/// Writes wait while the tables are above the limit by this part of it: 0.8 %.
pub const FAR_ABOVE_PART: i64 = 128;

/// Below the host's `maxmemory` midi leaves a part of it free, so that the host does not see itself
/// above it by midi's growth between two looks: 3 %.
pub const RESERVE_PART: i64 = 32;
/// At least this, in bytes.
pub const RESERVE_MIN: i64 = 1 << 20;
/// And this for each thread: the arenas' ballast is as coarse.
pub const RESERVE_PER_THREAD: i64 = 512 << 10;
/// Where the host leaves no room, midi may have what it has and this part more.
pub const LIMIT_SLACK_PART: i64 = 64;
/// Midi gives way to the growth of others once in this time: what is evicted is in the buffers of
/// the log for a moment.
pub const GIVES_WAY_EVERY: Duration = Duration::from_millis(250);

/// In so many shards one tries each of the two ways to evict that the others choose from.
pub const DUEL_LEADERS: u32 = 32;
/// With fewer shards than this, leaders would be too many of them.
pub const DUEL_FROM_SHARDS: u32 = 64;
/// New keys that the leaders must have before the others follow one.
pub const DUEL_LEAST: u64 = 1024;
/// At so many new keys the counts of the leaders are halved, so that a change of load is noticed.
pub const DUEL_HALVED_AT: u64 = 16 << 10;
