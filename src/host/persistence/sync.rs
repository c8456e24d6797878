//! Whether a replica's keys are its master's.
//!
//! The stream brings every change. But a newer midi may write a record that this one does not know.
//! It cannot be skipped, and a new sync would end at the next such record. So the replica stops
//! following: it answers MASTERDOWN, and marks the section that it saves, until a full sync brings
//! keys that it can follow, or it becomes a master. Its own replicas get the same stream, and judge
//! for themselves. Its link to the master is cut: see `quarantine`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::super::api::{Ctx, Level};
use super::super::context::Filtered;
use super::super::gates::GATES;
use super::super::instance::instance;
use crate::command::parse_integer;
use crate::engine::Gates;

/// What is known of this replica's keys.
pub static SYNC: Sync = Sync {
    untrusted: AtomicBool::new(false),
    reason: Mutex::new(String::new()),
    changed: AtomicBool::new(false),
    suspects: AtomicBool::new(false),
    errors: AtomicU64::new(0),
};

/// See [`SYNC`].
pub struct Sync {
    untrusted: AtomicBool,
    /// Why, for INFO.
    reason: Mutex<String>,
    /// Whether any of this may have changed in this turn of the main loop.
    changed: AtomicBool,
    /// Whether a database has been named in this turn that is not there, and how many errors the
    /// host had for its master before.
    suspects: AtomicBool,
    errors: AtomicU64,
}

impl Sync {
    /// Whether this replica's keys may not be its master's.
    pub fn is_untrusted(&self) -> bool {
        self.untrusted.load(Ordering::Relaxed)
    }

    /// Why this replica's keys may not be its master's, if that is so.
    pub fn reason(&self) -> Option<String> {
        self.is_untrusted().then(|| self.reason.lock().clone())
    }

    /// Something has happened that may concern `quarantine`. That looks when the main loop's turn
    /// ends: until then a command of the master's may be running.
    pub fn look_later(&self) {
        self.changed.store(true, Ordering::Relaxed);
    }

    /// Whether something has happened since this was last asked.
    #[inline]
    pub fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Relaxed) && self.changed.swap(false, Ordering::Relaxed)
    }

    /// Keys have been loaded, which their sender does not trust if `distrusted`.
    pub fn loaded(&self, distrusted: bool) {
        self.untrusted.store(distrusted, Ordering::Relaxed);
        if distrusted {
            let reason = "the keys of midi's that were loaded are of a replica that could not \
                          follow its master";
            *self.reason.lock() = reason.into();
            let text = format!(
                "As a replica, midi answers MASTERDOWN until a full sync: {reason}. A link that \
                 brings no full sync is cut."
            );
            instance().log(Level::Warning, &text);
        }
        self.look_later();
        GATES.may_change();
    }

    /// A SELECT or SWAPDB is about to be executed, queued or refused. If it is the master's, and
    /// this server has fewer databases, the host logs an error and applies what follows to the
    /// database before: so midi's keys are not the master's any more.
    pub fn before_database(&self, command: Filtered<'_>) {
        let engine = &instance().engine;
        if !engine.gates().has(Gates::READ_ONLY) || self.suspects.load(Ordering::Relaxed) {
            return;
        }
        let is_beyond = |number| {
            parse_integer(command.arg(number))
                .is_some_and(|db| db >= engine.config().databases as i64)
        };
        if is_beyond(1) || is_beyond(2) {
            self.suspects.store(true, Ordering::Relaxed);
            self.errors.store(errors(instance().ctx(command.locked())), Ordering::Relaxed);
        }
    }

    /// The main loop is about to sleep: anybody can have sent that command, but the host counts the
    /// errors that it has for its master. Once in a turn at most.
    #[inline]
    pub fn before_sleep(&self, ctx: Ctx<'_>) {
        if self.suspects.load(Ordering::Relaxed) {
            self.suspects.store(false, Ordering::Relaxed);
            if errors(ctx) != self.errors.load(Ordering::Relaxed) {
                let databases = instance().engine.config().databases;
                self.refuse(ctx, &format!("it uses more than the {databases} databases here"));
            }
        }
    }

    /// Something in the master's stream cannot be applied.
    pub fn refuse(&self, ctx: Ctx<'_>, reason: &str) {
        if !self.untrusted.swap(true, Ordering::Relaxed) {
            *self.reason.lock() = reason.replace(['\r', '\n'], " ");
            let text = format!(
                "midi does not follow its master any more, and answers MASTERDOWN until a full \
                 sync: {reason}. If the master's midi is newer, update this one. So that this \
                 replica does not count as one, its link is cut, and its priority is 0."
            );
            instance().log(Level::Warning, &text);
            GATES.refresh(ctx);
            self.look_later();
        }
    }

    /// The server has become a master: its keys are the data.
    pub fn became_master(&self) {
        if self.untrusted.swap(false, Ordering::Relaxed) {
            let text = "This server is a master now. Its keys of midi's are those from before it \
                        stopped following: what was written on its former master since then is \
                        missing.";
            instance().log(Level::Warning, text);
            self.look_later();
        }
    }
}

/// How many errors the host has had for its master, and for its replicas.
fn errors(ctx: Ctx<'_>) -> u64 {
    ctx.info_number(c"stats", c"unexpected_error_replies").unwrap_or(0)
}
