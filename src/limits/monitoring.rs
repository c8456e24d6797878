//! Bounds of what midi reports of itself.

use std::time::Duration;

/// How often the ports' rates in INFO are sampled at most, ...
pub const RATE_EVERY: Duration = Duration::from_millis(100);
/// ... and the samples that are averaged: both as in Redis.
pub const RATE_SAMPLES: usize = 16;

/// Kinds of error replies that INFO counts apart, as on newer hosts: scripts make any.
pub const ERROR_KINDS_MAX: usize = 128;

/// `slowlog-log-slower-than` where the host does not report it, in microseconds: Redis's default,
/// ...
pub const SLOWER_THAN_DEFAULT: i64 = 10_000;
/// ... and `slowlog-max-len`.
pub const SLOW_CALLS_DEFAULT: usize = 128;
/// The most commands in the slow log, even if `slowlog-max-len` is larger: with 5 KB each 50 MB.
pub const SLOW_CALLS: usize = 10_000;
/// The arguments of a command in the slow log, ...
pub const SLOW_ARGUMENTS: usize = 32;
/// ... and the bytes of each: both as in Redis.
pub const SLOW_ARGUMENT_BYTES: usize = 128;
/// Below this `slowlog-log-slower-than`, in microseconds, each command is timed. Above it commands
/// of constant time are not: a look at the clock costs a tenth of a GET.
pub const TIMED_EACH_BELOW: i64 = 1_000;
