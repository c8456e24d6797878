//! Snapshots: all keys as a list of strings, which the host keeps in a section of its RDB.
//!
//! `format.rs` says how the strings look. [`save`] makes them of a keyspace that holds still, in a
//! forked child as a rule; [`load`] fills a [`Staging`](crate::engine::Staging) from them, on all
//! workers, and refuses all that is not exactly what was saved. [`SavedAs::Records`] has the same
//! keys written as records, for an AOF.

mod error;
mod format;
mod inserter;
mod intake;
mod load;
mod numbers;
mod records;
mod save;

pub use error::{Fault, FramePlace, LoadError};
pub use load::{LoadStats, Source, load};
pub use numbers::VERSION;
pub use save::{SaveStats, SavedAs, Sink, VisitShard, save};
