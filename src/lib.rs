//! midi
pub mod store;
