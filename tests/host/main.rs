//! What the host door promises: MIDI.* commands on the port of a real server. One file per promise.

#[path = "../common/mod.rs"]
mod common;

mod bitmaps;
mod cluster;
mod commands;
mod config;
mod copy;
mod copy_jobs;
mod counters;
mod differential;
mod dispatch;
mod dump;
mod expiry;
mod floods;
mod forks;
mod hardened;
mod keys;
mod keyspace_digest;
mod large;
mod lcs;
mod linearizability;
mod memory;
mod notifications;
mod object;
mod output;
mod persistence;
mod ranges;
mod rename;
mod roles;
mod scan;
mod set_family;
mod settings;
mod snapshots;
mod storms;
mod strings;
mod units;
mod watch;
mod writes;
