//! A client of a port that waits for replicas, or for the AOF: WAIT and WAITAOF.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::command::Error;

/// A client that waits until replicas, or the server's own AOF, have its writes.
pub struct ReplicaWait {
    /// The position in the log of its last write; 0 if that was not logged.
    pub position: u64,
    /// How far a replica must have come in the host's stream to have all that the client wrote.
    /// `None` if that is not known yet.
    pub offset: Option<u64>,
    /// The copies that it waits for.
    pub awaited: Awaited,
    /// It waits no longer than this; `None` for ever.
    pub until: Option<Instant>,
    /// It may wait at all.
    pub blocks: bool,
    /// It has left, or sends no more: it waits no longer.
    pub gone: Arc<AtomicBool>,
    /// Tells it the outcome.
    pub answer: Box<dyn FnOnce(Waited) + Send>,
}

/// The copies of its writes that a client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// So many replicas.
    Replicas(i64),
    /// The server's own AOF, synced; if false, it only asks whether that is so.
    Aof(bool),
}

/// The answer to a client that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// So many replicas have acknowledged all that it wrote: as many as it waits for, or fewer if
    /// the time is over.
    Counted {
        /// How many.
        replicas: usize,
        /// [`ReplicaWait::offset`], if that is known by now.
        offset: Option<u64>,
    },
    /// Whether all that it wrote is synced in the server's own AOF.
    Synced(bool),
    /// Nothing: it cannot be told, for this reason.
    Refused(Error),
    /// Its writes were taken back, or the server has become a replica.
    Undone,
}

impl ReplicaWait {
    /// Whether it waits no longer.
    pub fn is_over(&self, now: Instant) -> bool {
        !self.blocks
            || self.gone.load(Ordering::Relaxed)
            || self.until.is_some_and(|until| until <= now)
    }
}
