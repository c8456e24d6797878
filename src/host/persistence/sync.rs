//! Whether a replica's keys are its master's.
//!
//! midi's writes are not in the replication stream yet. A full sync brings all keys, and while
//! replicas are attached the master refuses writes. But a replica whose link was down may have
//! missed writes that no partial resync brings: then it does not trust its keys, until the next
//! full sync or until it becomes a master. No more do its own replicas: those that are attached
//! must resync, and the section that new ones get says so.

use std::sync::atomic::{AtomicBool, Ordering};

use super::super::api::{Ctx, Level};
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

    /// A full sync has been loaded, of keys that the master does not trust if `distrusted`.
    pub fn completed(&self, distrusted: bool) {
        self.fresh.store(true, Ordering::Relaxed);
        self.untrusted.store(distrusted, Ordering::Relaxed);
        if distrusted {
            let text = "The master itself does not trust the keys of midi's that it has sent, \
                        since a partial resync: midi answers MASTERDOWN until the next full sync.";
            instance().log(Level::Warning, text);
        }
        GATES.may_change();
    }

    /// The link to the master has come up.
    pub fn link_came_up(&self, ctx: Ctx<'_>) {
        if !self.fresh.swap(false, Ordering::Relaxed) {
            self.untrusted.store(true, Ordering::Relaxed);
            let text = "The link to the master is up again after a partial resync. It does not \
                        bring what was written to midi's keys meanwhile: midi answers MASTERDOWN \
                        until a full sync.";
            instance().log(Level::Warning, text);
            // They come back with a partial resync, and so learn of it.
            ctx.call(c"CLIENT", &[b"KILL", b"TYPE", b"replica"]);
        }
        GATES.may_change();
    }

    /// The server has become a master: its keys are the data.
    pub fn became_master(&self) {
        self.fresh.store(false, Ordering::Relaxed);
        if self.untrusted.swap(false, Ordering::Relaxed) {
            let text = "This server is a master now. Its keys of midi's are those of the last full \
                        sync: what was written on its former master since then is missing.";
            instance().log(Level::Warning, text);
        }
    }
}
