//! Whether a replica's keys are its master's.
//!
//! midi's writes are not in the replication stream yet. A full sync brings all keys, and while
//! replicas are attached the master refuses writes. But a replica whose link was down may have
//! missed writes that no partial resync brings: then it does not trust its keys, until the next
//! full sync or until it becomes a master.

use std::sync::atomic::{AtomicBool, Ordering};

use super::super::api::Level;
use super::super::gates::GATES;
use super::super::instance::instance;

/// What is known of this replica's keys.
pub static SYNC: Sync = Sync { fresh: AtomicBool::new(false), untrusted: AtomicBool::new(false) };

/// See [`SYNC`].
pub struct Sync {
    /// A full sync has been completed since the link was last up.
    fresh: AtomicBool,
    /// The link is up again without one.
    untrusted: AtomicBool,
}

impl Sync {
    /// Whether the master may have changed keys without this replica's knowledge.
    pub fn is_untrusted(&self) -> bool {
        self.untrusted.load(Ordering::Relaxed)
    }

    /// A full sync has been loaded.
    pub fn completed(&self) {
        self.fresh.store(true, Ordering::Relaxed);
        self.untrusted.store(false, Ordering::Relaxed);
        GATES.may_change();
    }

    /// The link to the master is up.
    pub fn link_is_up(&self) {
        if !self.fresh.swap(false, Ordering::Relaxed) {
            self.untrusted.store(true, Ordering::Relaxed);
            let text = "The link to the master is up again after a partial resync. It does not \
                        bring what was written to midi's keys meanwhile: midi answers MASTERDOWN \
                        until a full sync.";
            instance().log(Level::Warning, text);
        }
        GATES.may_change();
    }

    /// The server is a master now: its keys are the data.
    pub fn is_master(&self) {
        self.fresh.store(false, Ordering::Relaxed);
        if self.untrusted.swap(false, Ordering::Relaxed) {
            let text = "This server is a master now. Its keys of midi's are those of the last full \
                        sync: what was written on its former master since then is missing.";
            instance().log(Level::Warning, text);
        }
    }
}
