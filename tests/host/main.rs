//! What the host door promises: MIDI.* commands on the port of a real server. One file per promise.

#[path = "../common/mod.rs"]
mod common;

mod always;
mod aof_base;

mod aof_load;
mod bitmaps;
mod cluster;
mod commands;
mod config;
mod copy;
mod copy_jobs;
mod counters;
mod differential;
mod disk;
mod dispatch;
mod dump;
mod expiry;
mod failed_saves;
mod floods;
mod forks;
mod hardened;
mod keys;
mod keyspace_digest;
mod large;
mod lcs;
mod linearizability;
mod loading;
mod memory;
mod notifications;
mod object;
mod output;
mod persistence;
mod ranges;
mod refused_rdb;
mod rename;
mod replica_doors;
mod replica_gate;
mod replication;
mod roles;
mod save_points;
mod scan;
mod set_family;
mod settings;
mod snapshots;
mod storms;
mod strings;
mod units;
mod watch;
mod writes;
