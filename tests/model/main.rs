//! The promises about commands, checked against plain models in memory.
#![cfg(not(loom))]

mod model;
mod programs;
mod strings_and_keys;
