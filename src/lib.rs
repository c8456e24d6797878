//! midi
pub mod command;
pub mod limits;
pub mod shard;
pub mod store;
