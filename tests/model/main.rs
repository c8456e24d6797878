//! The promises about commands, checked against plain models in memory.
#![cfg(not(loom))]

mod hash_model;
mod hash_programs;
mod hashes;
mod model;
mod programs;
mod strings_and_keys;
