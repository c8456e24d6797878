//! The bounds of file descriptors.

/// If the system has too few descriptors for all clients that the host and the ports may have, the
/// ports take at most this part of them (an eighth), ...
pub const DESCRIPTORS_DIVISOR: usize = 8;
/// ... and at least this many.
pub const DESCRIPTORS_MIN: usize = 32;

/// Descriptors of the ports that are neither clients nor a worker's: Unix sockets, connections
/// being accepted.
pub const DESCRIPTORS_SPARE: usize = 64;
/// Descriptors of each worker, but for what it listens on: its waker, ticker and epoll. A ring of
/// io_uring stays among the host's: the crate that makes it cannot move it.
pub const DESCRIPTORS_OF_WORKER: usize = 3;
