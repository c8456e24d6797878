//! RESP, the protocol of Redis's clients, as Redis 7.0 reads and writes it.
//!
//! ```text
//! input ─► request ─► run ─┬─► batch: several together ──────────► engine
//!                          └─► by itself: dispatch ─► commands ─► engine
//! reply ◄──────────────────────────────────────────────────────────┘
//! ```
//!
//! `session.rs` has what a connection keeps between its commands. Commands are functions of a
//! caller (`caller.rs`): the worker, the session, the output. Parsing and writing are a port's hot
//! path: neither allocates for a command, and neither touches a socket.

mod arg_list;
mod batch;
mod caller;
mod commands;
mod dispatch;
mod exec_replies;
mod gathered;
mod group;
mod head;
mod inline;
mod job;
mod named;
mod pending_scripts;
mod plain;
mod protocol;
mod published;
mod reply;
mod request;
mod run;
mod scripts;
mod session;
mod subscribed;
mod transaction;

pub use arg_list::ArgList;
pub(super) use commands::{leave, leave_all};
pub(super) use group::RespGroup;
pub use head::Head;
pub(super) use protocol::{FULL, PROTECTED};
pub use reply::RespReply;
pub use request::{Parsed, ProtocolError, RequestLimits, RequestParser};
pub(super) use session::RespSession;
pub(super) use transaction::Transaction;
