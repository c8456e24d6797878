//! What is promised of the commands, shown against plain models in memory.
#![cfg(not(loom))]

mod strings_and_keys;
