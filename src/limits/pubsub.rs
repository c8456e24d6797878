//! Bounds of publish and subscribe on the ports.

use std::time::Duration;

/// `midi.max-channel-bytes`: the name of a channel, or a pattern, to which a client of a port
/// subscribes. The host sends it to the listener, which all clients share.
pub const MAX_CHANNEL_BYTES_DEFAULT: i64 = 64 << 10;
/// The maximum: far below [`PUBSUB_OUTPUT_HARD`], at which the host would close the listener.
pub const MAX_CHANNEL_BYTES: i64 = 1 << 20;

/// Bytes of messages that workers have not given to their clients. Above it the listener reads no
/// more, and the host's own output limit counts what it sends.
pub const UNHEARD_BYTES: usize = 32 << 20;

/// Elements of an array that the host sends to a subscriber.
pub const PUSHED_ELEMENTS: usize = 4;

/// The longest line there: an error, or a length.
pub const PUSHED_LINE_BYTES: usize = 4096;

/// Patterns that the host matches: it sends the listener a message once for each of them that
/// matches. With more of them the listener subscribes to `*`, and midi matches the others.
pub const PATTERNS_AT_HOST: usize = 16;

/// A map or queue of subscriptions keeps its memory if it has room for no more names than this.
pub const NAMES_KEPT: usize = 1024;

/// What the listener reads at once.
pub const LISTENER_READ_BYTES: usize = 64 << 10;

/// How long the listener waits before it connects again after it could not: a client that
/// subscribes meanwhile waits as long for the error.
pub const LISTENER_RETRY: Duration = Duration::from_secs(1);

/// How long the host may take to let the listener in, and to tell where it listens: it may be busy
/// with a command.
pub const LISTENER_LOGIN: Duration = Duration::from_secs(10);

/// The listener's naps while workers are behind.
pub const LISTENER_NAP: Duration = Duration::from_millis(1);

/// How many times a worker gives a subscriber a message in one turn: each may cost a system call,
/// and a message to very many must not delay other clients.
pub const HEARD_PER_TURN: usize = 256;

/// `client-output-buffer-limit pubsub` where the host does not report it: Redis's default.
pub const PUBSUB_OUTPUT_HARD: i64 = 32 << 20;
/// The same, of the soft limit.
pub const PUBSUB_OUTPUT_SOFT: i64 = 8 << 20;
/// The same, in seconds.
pub const PUBSUB_OUTPUT_SECONDS: i64 = 60;
