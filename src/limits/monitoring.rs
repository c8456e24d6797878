//! Bounds of what midi reports of itself.

use std::time::Duration;

/// How often the ports' rates in INFO are sampled at most, ...
pub const RATE_EVERY: Duration = Duration::from_millis(100);
/// ... and the samples that are averaged: both as in Redis.
pub const RATE_SAMPLES: usize = 16;

/// Kinds of error replies that INFO counts apart, as on newer hosts: scripts make any.
pub const ERROR_KINDS_MAX: usize = 128;
