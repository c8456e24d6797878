//! The promises of midi's own port, in a real server. One file per promise.

#[path = "../common/mod.rs"]
mod common;

mod acl;
mod clients;
mod databases;
mod deaths;
mod described;
mod faults;
mod figures;
mod floods;
mod gates;
mod hardened;
mod held_replies;
mod io;
mod large;
mod long_copies;
mod long_reads;
mod long_reads_roles;
mod memcached;
mod memcached_beside;
mod memcached_clients;
mod memcached_crash;
mod memcached_failover;
mod memcached_gates;
mod memcached_meta;
mod memcached_stats;
mod mget;
mod pubsub;
mod pubsub_many;
mod reports;
mod rights;
mod scripts;
mod serving;
mod session;
mod settings;
mod slow_log;
mod socket_faults;
mod strangers;
mod tls;
mod tls_settings;
mod transactions;
mod unfinished;
mod walks;
mod watch;
mod watchers;
