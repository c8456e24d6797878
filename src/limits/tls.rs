//! Bounds of TLS on the ports.

/// What may wait of a TLS record (16 KiB), or of a message of the handshake, that has not come as a
/// whole: chains of certificates have a few KiB.
pub const TLS_PARTIAL_BYTES: usize = 32 << 10;
/// How much text is sealed before its records are sent: a socket's usual room. Its records, which
/// are kept where the socket has none, have no more than 64 KiB.
pub const TLS_SEALED_AT_ONCE: usize = 63 << 10;
/// The most of tls-session-cache-size that counts: rustls takes the room for their names at once,
/// 9 MiB for so many.
pub const TLS_SESSIONS: usize = 1 << 16;
