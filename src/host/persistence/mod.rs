//! midi's keys in the host's RDB, AOF and replication stream: saved by its forked children and
//! without a fork, logged, loaded at its start and from its master, and followed on a replica.
//!
//! ```text
//! fork ─ all tokens ─► child: section::aux_save ─► report ─► parent: saving
//! SAVE ─ keyspace closed ─► section::aux_save ─► saving
//! start, full sync ─► section::aux_load ─► second keyspace ─► loading: exchanged at the end
//!
//! writes ─► tail of the log ─► hand_over: the host's AOF, and its replicas
//! AOF ─► MIDI.JOURNAL, MIDI.SET, … ─► replay: on the keyspace that its base has brought
//! the master's stream ─► replay: the same commands, as they come
//! ```
//!
//! `crate::snapshot` has the format, and knows nothing of the host.

pub mod backlog;
pub mod base;
pub mod fork;
pub mod hand_over;
pub mod loading;
pub mod replay;
pub mod report;
pub mod save_points;
pub mod saving;
pub mod section;
