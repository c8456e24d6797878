//! memcached's text and meta protocols, as memcached 1.6 reads and writes them.
//!
//! ```text
//! input ─► parse ─► run ─┬─► plan: several keys together ─► engine
//!                        └─► alone: one by itself ────────► engine
//! reply ◄─────────────────────────────────────────────────────┘
//! ```
//!
//! `session.rs` has what a connection keeps between its commands. Commands are rows of the one
//! command table: those of Redis where they do the same, rows of their own (`command/item.rs`)
//! where they do not.

mod alone;
mod caller;
mod delayed;
mod login;
pub mod parse;
mod plan;
mod protocol;
mod reply;
mod run;
mod session;
mod stats;

pub(super) use delayed::flush_due;
pub(super) use session::MemcachedSession;

/// To a client that connects when all places are taken.
pub const FULL: &[u8] = b"ERROR Too many open connections\r\n";

/// To a client from another machine where protected mode refuses it.
pub const PROTECTED: &[u8] = b"SERVER_ERROR protected mode is on, and the default user needs no \
    password: only clients on the server's own machine are served. Set a password for the default \
    user, or midi.protected-mode no\r\n";

/// The last words to a client whose commands were taken back.
const UNDONE: &[u8] =
    b"SERVER_ERROR UNBLOCKED force unblock from blocking operation, instance state changed (master \
      -> replica?)\r\n";
