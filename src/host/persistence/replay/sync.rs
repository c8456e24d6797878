//! Whether a replica's keys are its master's.
//!
//! The stream brings every change. But a newer midi may write a record that this one does not know.
//! It cannot be skipped, and a new sync would end at the next such record. So the replica stops
//! following: it answers MASTERDOWN, and marks the section that it saves, until a full sync brings
//! keys that it can follow, or it becomes a master. Its own replicas get the same stream, and judge
//! for themselves. Its link to the master is cut: see `quarantine`.

use super::super::super::api::{Ctx, Level, clock_ms};
use super::super::super::context::Filtered;
use super::super::super::instance::instance;
use super::super::super::state::persistence::Sync;
use crate::command::parse_integer;
use crate::engine::Gates;

/// How long a count of failed commands is used again.
const COUNTED_EVERY_MS: u64 = 1000;

impl Sync {
    /// Why this replica's keys may not be its master's, if that is so.
    pub fn reason(&self) -> Option<String> {
        self.untrusted.get().then(|| self.reason.lock().clone())
    }

    /// Something has happened that may concern `quarantine`. That looks when the main loop's turn
    /// ends: until then a command of the master's may be running.
    pub fn look_later(&self) {
        self.changed.set(true);
    }

    /// Keys have been loaded, which their sender does not trust if `distrusted`.
    pub fn loaded(&self, distrusted: bool) {
        self.untrusted.set(distrusted);
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
        instance().gates.may_change();
    }

    /// A SELECT or SWAPDB is about to be executed, queued or refused. If it is the master's, and
    /// this server has fewer databases, the host logs an error and applies what follows to the
    /// database before: so midi's keys are not the master's any more.
    pub fn before_database(&self, command: Filtered<'_>) {
        let engine = &instance().engine;
        if !engine.gates().has(Gates::READ_ONLY) || self.suspects.get() {
            return;
        }
        let is_beyond = |number| {
            parse_integer(command.arg(number))
                .is_some_and(|db| db >= engine.config().databases as i64)
        };
        if is_beyond(1) || is_beyond(2) {
            let ctx = instance().ctx(command.locked());
            self.suspects.set(true);
            self.errors.set(errors(ctx));
            // Counting takes long, and any client can cause it: so a count serves for a second.
            // Only clients that have logged in can make it too low.
            let now = clock_ms() as u64;
            if now.abs_diff(self.counted_at.get()) >= COUNTED_EVERY_MS {
                self.counted_at.set(now);
                self.failed.set(failed(ctx));
            }
        }
    }

    /// The main loop is about to sleep: anybody can have sent that command, but the host counts the
    /// errors that it has for its master, and a client that has not logged in is refused before
    /// the command can fail. Once in a turn at most.
    #[inline]
    pub fn before_sleep(&self, ctx: Ctx<'_>) {
        if self.suspects.take()
            && has_grown(errors(ctx), self.errors.get())
            && has_grown(failed(ctx), self.failed.get())
        {
            let databases = instance().engine.config().databases;
            self.refuse(ctx, &format!("it uses more than the {databases} databases here"));
        }
    }

    /// Something in the master's stream cannot be applied.
    pub fn refuse(&self, ctx: Ctx<'_>, reason: &str) {
        if !self.untrusted.replace(true) {
            *self.reason.lock() = reason.replace(['\r', '\n'], " ");
            let text = format!(
                "midi does not follow its master any more, and answers MASTERDOWN until a full \
                 sync: {reason}. If the master's midi is newer, update this one. So that this \
                 replica does not count as one, its link is cut, and its priority is 0."
            );
            instance().log(Level::Warning, &text);
            instance().gates.refresh(ctx);
            self.look_later();
        }
    }

    /// The server has become a master: its keys are the data.
    pub fn became_master(&self) {
        // The rest of a text that has come in part was never acknowledged.
        instance().engine.ledger.log.gathered.lock().clear();
        if self.untrusted.replace(false) {
            let text = "This server is a master now. Its keys of midi's are those from before it \
                        stopped following: what was written on its former master since then is \
                        missing.";
            instance().log(Level::Warning, text);
            self.look_later();
        }
    }
}

/// How many errors the host has had for its master, for its replicas, and for its AOF.
pub fn errors(ctx: Ctx<'_>) -> u64 {
    ctx.info_number(c"stats", c"unexpected_error_replies").unwrap_or(0)
}

/// Whether a count of the host's has grown. CONFIG RESETSTAT has it begin again.
pub fn has_grown(now: u64, before: u64) -> bool {
    if now < before { now > 0 } else { now > before }
}

/// How many commands that name databases have failed, whoever sent them.
fn failed(ctx: Ctx<'_>) -> u64 {
    let counts = ctx.info(c"commandstats");
    [c"cmdstat_select", c"cmdstat_swapdb"].map(|field| counts.calls(field).failed).iter().sum()
}
