//! Bounds of scripts on the ports.

/// Bytes of arguments of one pipeline's scripts that go to the main thread together: a hand-over
/// costs as much as a short script, so more brings little.
pub const SCRIPTS_BYTES_TOGETHER: usize = 64 << 10;

/// Digests of scripts with allow-oom that are remembered: programs have a few each.
pub const SCRIPTS_KNOWN: usize = 1024;
