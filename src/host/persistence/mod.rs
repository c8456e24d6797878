//! midi's keys in the host's RDB, AOF and replication stream: saved by its forked children and
//! without a fork, logged, loaded at its start and from its master, and followed on a replica.
//!
//! ```text
//! fork ─ all tokens ─► child: section::aux_save ─► report ─► parent: saving
//! SAVE ─ keyspace closed ─► section::aux_save ─► saving
//! writes ─► journal ─► the host's AOF, and its replicas
//! start, full sync ─► section::aux_load ─► second keyspace ─► loading: exchanged at the end
//! AOF ─► MIDI.JOURNAL, MIDI.SET, … ─► replaying: on the keyspace that its base has brought
//! the master's stream ─► replaying: the same commands, as they come
//! ```
//!
//! `journal::snapshot` has the format, and knows nothing of the host.

pub mod always;
pub mod backlog;
pub mod base;
pub mod confirmed;
pub mod fork;
pub mod handover;
pub mod journal;
mod loaded_file;
pub mod loading;
pub mod quarantine;
pub mod replaying;
pub mod report;
pub mod save_points;
pub mod saving;
pub mod section;
pub mod sync;
