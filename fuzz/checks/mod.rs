//! Checks for any bytes from outside: for the fuzzer's targets, and for `tests/engine/inputs.rs`,
//! which runs them without a fuzzer. They panic on a failure.

#![allow(dead_code)] // Every target has its own part of this.

pub mod glob;
pub mod hash_payload;
pub mod memcached;
pub mod payload;
pub mod pushed;
pub mod records;
pub mod request;
pub mod snapshot;
pub mod tls;
