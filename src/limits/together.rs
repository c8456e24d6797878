//! Limits of commands that run together.

/// The most commands of a pipeline that run together, so that the memory that one needs is fetched
/// while another runs. As many cache lines as a core fetches at once.
pub const AHEAD: usize = 32;
/// The most arguments of each of them.
pub const AHEAD_ARGUMENTS: usize = 4;
/// GETs that follow one another hold the shards of so many of them at a time, not of all. Another
/// thread then finds a shard busy less often: docs/design/scaling.md has the counts.
pub const READS_HELD: usize = 16;
