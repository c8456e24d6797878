//! Whether a replica's keys are its master's.
//!
//! The stream brings every change. But a newer midi may write a record that this one does not know.
//! It cannot be skipped, and a new sync would end at the next such record. So the replica stops
//! following: it answers MASTERDOWN, and marks the section that it saves, until a full sync brings
//! keys that it can follow, or it becomes a master. Its own replicas get the same stream, and judge
//! for themselves.

use std::sync::atomic::{AtomicBool, Ordering};

use super::super::api::{Ctx, Level};
use super::super::gates::GATES;
use super::super::instance::instance;

/// What is known of this replica's keys.
pub static SYNC: Sync = Sync { untrusted: AtomicBool::new(false) };

/// See [`SYNC`].
pub struct Sync {
    untrusted: AtomicBool,
}

impl Sync {
    /// Whether this replica's keys may not be its master's.
    pub fn is_untrusted(&self) -> bool {
        self.untrusted.load(Ordering::Relaxed)
    }

    /// Keys have been loaded, which their sender does not trust if `distrusted`.
    pub fn loaded(&self, distrusted: bool) {
        self.untrusted.store(distrusted, Ordering::Relaxed);
        if distrusted {
            let text = "The keys of midi's that were loaded are of a replica that could not \
                        follow its master: as a replica, midi answers MASTERDOWN until the next \
                        full sync.";
            instance().log(Level::Warning, text);
        }
        GATES.may_change();
    }

    /// Something in the master's stream cannot be applied.
    pub fn refuse(&self, ctx: Ctx<'_>, reason: &str) {
        if !self.untrusted.swap(true, Ordering::Relaxed) {
            let text = format!(
                "midi does not follow its master any more, and answers MASTERDOWN until a full \
                 sync: {reason}. If the master's midi is newer, update this one."
            );
            instance().log(Level::Warning, &text);
            GATES.refresh(ctx);
        }
    }

    /// The server has become a master: its keys are the data.
    pub fn became_master(&self) {
        if self.untrusted.swap(false, Ordering::Relaxed) {
            let text = "This server is a master now. Its keys of midi's are those from before it \
                        stopped following: what was written on its former master since then is \
                        missing.";
            instance().log(Level::Warning, text);
        }
    }
}
