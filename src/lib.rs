//! midi
pub mod command;
pub mod store;
