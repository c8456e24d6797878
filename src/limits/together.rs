//! Limits of commands that run together.

use std::time::Duration;

/// The most commands of a pipeline that run together, so that the memory that one needs is fetched
/// while another runs. As many cache lines as a core fetches at once.
pub const AHEAD: usize = 32;

/// Cache lines of an entry that are prefetched for a command on strings.
pub const LINES_OF_STRING: usize = 2;

/// The same for a command on hashes: of one with 25 fields of 30 bytes, a look-up reads the first
/// three, and then the line of the field.
pub const LINES_OF_HASH: usize = 6;

/// The most arguments of each of them.
pub const AHEAD_ARGUMENTS: usize = 4;

/// Reads that follow one another hold the shards of so many of them at a time, not of all. Another
/// thread then finds a shard busy less often: docs/design/scaling.md has the counts.
pub const READS_HELD: usize = 16;

/// So often in a row a shard is held only to be read before threads may read it together. Closing
/// it again costs the next holder a look at every thread.
pub const OPEN_AFTER: u32 = if cfg!(any(loom, test)) { 2 } else { 64 };

/// A command that may take as long as its key is large (BITCOUNT, HGETALL) reads a larger key than
/// this only as the shard's holder: who waits for a holder sleeps, who waits for readers may not.
pub const SHARED_READ_BYTES: usize = 64 << 10;

/// A command with more arguments than this (HMGET) reads its key only as the shard's holder.
pub const SHARED_READ_ARGUMENTS: usize = 256;

/// Commands that run together let go of their shards, and of their turn, when they have replied
/// this much: copying it takes some 10 µs.
pub const HELD_OUTPUT: usize = 64 << 10;
/// They also do once they have run for this long, if any of them may be slow. The rest is parsed
/// again, which takes two or three microseconds.
pub const HELD_TIME: Duration = Duration::from_micros(100);

/// So many reads in a row, beside a write, hold their shards together with it. More of them are a
/// group of their own, which may share its shards.
pub const READS_BESIDE: usize = 4;

/// A worker keeps the memory of an emptied transaction for the next MULTI, up to this size.
pub const TRANSACTION_BYTES_KEPT: usize = 4 << 10;

/// What EXEC takes for each command, until it is answered: its step, its reply, and its arguments'
/// places, which lists have that double their room.
pub const EXEC_COMMAND_BYTES: usize = 512;
