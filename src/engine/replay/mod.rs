//! Replay: putting what a log has back into the keyspace, in the order of the log.
//!
//! ```text
//! a text ─┬─ of an AOF ─────────► on_workers: its records by the owners of their shards ─┐
//!         └─ of a master, and     here: all its records by the main thread ──────────────┤
//!            where workers cannot                                                        ▼
//!                                                            records: an edit of the key each
//! ```

mod error;
mod here;
mod on_workers;
mod queue;
mod records;
mod share;

pub use error::{ReplayError, TextError};
pub use here::{is_for_here, replay_here};
pub use on_workers::Replay;
pub use records::Replayed;
