//! The host's users, for the ports and, as far as the host does not judge module commands, for the
//! host door: their passwords, and their rules in midi's own form.
//!
//! A user is read from the text that the host keeps of it (RM_GetModuleUserACLString), so no ACL
//! command is called, and none need exist. [`text`] parses it, [`judge`] asks the host what the
//! rules allow, [`known`] keeps the result; [`changes`] decides when to read users again and
//! [`touched`] which ones, [`at_door`] judges commands at the host door.
//!
//! No event reports a change: a command filter sees ACL and CONFIG SET before they are executed,
//! queued or refused, and the users' texts are also compared once a second. Any client can send
//! these commands, so in a turn of the main loop they cost at most one look at the users that they
//! name.

mod at_door;
mod changes;
mod judge;
mod known;
mod text;
mod touched;

use std::cell::LazyCell;
use std::sync::Arc;

use super::api::Ctx;
use super::context::Filtered;
use super::instance::instance;
use crate::engine::{Call, DEFAULT_USER, Locked, User};
use at_door::AtDoor;
use changes::Changes;
use known::{Known, Seen, default_is_open};
pub use known::{authenticate, is_on};
use touched::{Touched, UserChange};

/// The host's users, as far as midi knows them.
pub static USERS: Users =
    Users { known: Known::new(), changes: Changes::new(), at_door: AtDoor::new() };

/// The host's users as last read, those that may have changed since, and the consequences for the
/// host door.
pub struct Users {
    known: Known,
    changes: Changes,
    at_door: AtDoor,
}

impl Users {
    /// At load.
    pub fn prepare(&self, ctx: Ctx<'_>) {
        self.at_door.users_may_change(ctx.locked());
    }

    /// A user with its rights at the ports; `None` if there is no such user.
    pub fn look(&self, locked: Locked<'_>, name: &[u8]) -> Option<User> {
        self.known.with(locked, name, |seen| (*seen.user).clone())
    }

    /// A user with its rights at the host's door, or else at the ports; `None` if there is no such
    /// user.
    pub fn rights(&self, locked: Locked<'_>, name: &[u8], at_door: bool) -> Option<Arc<User>> {
        let of_door = |seen: &Seen| Arc::clone(if at_door { &seen.at_door } else { &seen.user });
        self.known.with(locked, name, of_door)
    }

    /// Checks whether a client of the host may run its command, as far as the host has not checked
    /// it.
    ///
    /// # Errors
    /// The host's error text, if the command is not allowed.
    #[inline]
    pub fn check(&self, ctx: Ctx<'_>, call: &Call<'_>, in_unit: bool) -> Result<(), Vec<u8>> {
        if self.at_door.is_asked(call.command) {
            self.at_door.judge(&self.known, ctx, call, in_unit)
        } else {
            Ok(())
        }
    }

    /// A client's user may be about to change: AUTH, HELLO or RESET.
    pub fn before_login(&self) {
        self.at_door.forget();
    }

    /// An ACL command is about to be executed, queued or refused.
    pub fn before_acl(&self, command: Filtered<'_>) {
        if command.arg(1).eq_ignore_ascii_case(b"setuser") {
            self.changes.note_one(command, command.arg(2));
            return self.may_change(command.locked());
        }
        self.before_change(command, changes::touched_by_acl(command));
    }

    /// A CONFIG command is about to be executed, queued or refused.
    pub fn before_config(&self, command: Filtered<'_>) {
        if command.arg(1).eq_ignore_ascii_case(b"resetstat") {
            self.changes.reset_comes();
        }
        self.before_change(command, changes::touched_by_config(command));
    }

    fn before_change(&self, command: Filtered<'_>, touched: Option<Touched>) {
        if let Some(touched) = touched {
            self.changes.note(command, &touched);
            self.may_change(command.locked());
        }
    }

    /// A client may be about to begin a transaction.
    pub fn before_multi(&self) {
        self.changes.multi_comes();
    }

    /// An EXEC is about to be executed: a change may have been queued in it.
    pub fn before_exec(&self, command: Filtered<'_>) {
        self.at_door.forget();
        if self.changes.note_exec(command) {
            self.may_change(command.locked());
        }
    }

    /// Users that were noted may be about to change. The sender may not even be logged in, so no
    /// client is held up for it: the users are read once in this turn of the main loop, before any
    /// reply leaves the host. If replies leave sooner, the ports wait until the users have been
    /// read.
    fn may_change(&self, locked: Locked<'_>) {
        self.at_door.users_may_change(locked);
        let engine = &instance().engine;
        if self.replies_leave_early(locked) {
            engine.users.mark_stale(locked);
            // While a script keeps the main loop from turning, this wake-up lets us read them.
            engine.context().outside.wake_main();
        }
    }

    /// Whether the reply to the command that is about to be executed may leave before the next
    /// BEFORE_SLEEP.
    pub fn replies_leave_early(&self, locked: Locked<'_>) -> bool {
        self.changes.replies_leave_early(locked)
    }

    /// Reads the known users again if they may have changed, before any reply of this turn of the
    /// main loop leaves the host.
    #[inline]
    pub fn refresh(&self, locked: Locked<'_>) {
        if self.changes.are_any(locked) || instance().engine.users.are_stale() {
            self.look_again(locked);
        }
    }

    /// The main loop is about to sleep. Before that the host may execute what a pause has held up:
    /// the ports then wait until users have been read.
    pub fn before_sleep(&self, locked: Locked<'_>) {
        if self.changes.may_execute_held_up(locked) {
            instance().engine.users.mark_stale(locked);
            instance().engine.context().outside.wake_main();
        }
    }

    #[cold]
    fn look_again(&self, locked: Locked<'_>) {
        let touched = self.changes.take(locked);
        let stale = instance().engine.users.are_stale();
        match &touched {
            Some(touched) => self.look_at(locked, touched, stale),
            // At the start every user is new.
            None => self.look_at(locked, &Touched::everybody(UserChange::Changed), stale),
        }
    }

    /// Reads these users again; notifies the ports if any has changed, or if `must_tell`.
    fn look_at(&self, locked: Locked<'_>, touched: &Touched, must_tell: bool) {
        let engine = &instance().engine;
        if self.known.forget_changed(locked, touched.names()) || must_tell {
            let have_removed = LazyCell::new(|| self.changes.have_removed(instance().ctx(locked)));
            // The host never removes the default user, nor its clients.
            let replaced = |name: &[u8]| {
                name != DEFAULT_USER
                    && touched.change(name) == Some(UserChange::Replaced)
                    && *have_removed
            };
            let look = |name: &[u8]| self.look(locked, name);
            engine.users.refresh(locked, default_is_open(locked), touched.names(), replaced, look);
            self.at_door.users_may_change(locked);
            engine.context().wake_ports();
        }
    }

    /// Reads all users from time to time: the filter does not see what another module does to a
    /// user, nor the ACL command under another name.
    pub fn on_cron(&self, locked: Locked<'_>) {
        if self.changes.is_time_for_all() {
            self.look_at(locked, &Touched::everybody(UserChange::Changed), false);
            self.at_door.look_at_all(locked);
        }
    }
}
