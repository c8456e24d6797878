//! RESP, the protocol of Redis's clients, as Redis 7.0 reads and writes it.
//!
//! Both halves are a port's hot path: neither allocates for a command, and neither touches a
//! socket.

mod inline;
mod plain;
mod reply;
mod request;

pub use plain::Head;
pub use reply::RespReply;
pub use request::{ArgList, Parsed, ProtocolError, RequestLimits, RequestParser, room_for};
