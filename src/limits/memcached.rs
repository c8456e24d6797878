//! Bounds of the memcached port.

/// Longest key, in bytes: memcached's own.
pub const MEMCACHED_KEY_BYTES: usize = 250;

/// Longest line, in bytes, but for `get` and `gets`: memcached's own. A connection that sends a
/// longer one is closed.
pub const MEMCACHED_LINE_BYTES: usize = 2048;

/// Longest name and password of a login, in bytes: clients that have not logged in get no memory.
pub const MEMCACHED_LOGIN_BYTES: usize = 1024;

/// Longest value by default, in bytes: memcached's `-I`. A request is copied once as it comes.
pub const MEMCACHED_ITEM_SIZE_DEFAULT: i64 = 1 << 20;
/// The smallest setting: memcached's.
pub const MEMCACHED_ITEM_SIZE_MIN: i64 = 1 << 10;
