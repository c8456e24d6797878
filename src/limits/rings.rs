//! Limits of io_uring: `midi.io io_uring`.

/// The buffers into which a worker's ring receives, with `midi.io io_uring`. A connection has one
/// only while it has input: so many are enough for a turn of busy connections, and 4 MiB.
pub const RECEIVED_BUFFERS: u16 = 1024;
/// The bytes of each: a hundred short commands. What is longer takes several.
pub const RECEIVED_BYTES: usize = 4 << 10;
/// A connection that has so many of them, whose bytes nobody has taken, gets no more: 64 KiB, as
/// much as is received in one go. The rest waits in its socket.
pub const RECEIVED_UNTAKEN: u16 = 16;
/// Requests that wait to be submitted together; beyond that those before are submitted first.
pub const RING_REQUESTS: u32 = 512;
/// Completions that the ring has room for, all buffers and some more; beyond that the kernel keeps
/// them, and ends requests that go on and on, which are made again.
pub const RING_COMPLETIONS: u32 = 4096;
