//! Which users may have changed, by what a command filter sees before it is executed, queued or
//! refused.
//!
//! ```text
//! ACL or CONFIG SET is sent ─┬──────────────────────────────► touched ─► read once, in the same
//!                            └─ in MULTI ─► queued ─ EXEC ───►    ▲       turn of the main loop
//!                                                    every second, all users
//! ```
//!
//! A pause may hold up the command: newer hosts execute it at the end of the pause, and no filter
//! sees it then. So what is sent during a pause is read again after it.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use midi_module_api as raw;
use parking_lot::Mutex;

use super::super::api::{CallCounts, Ctx, InfoSection, client_flags};
use super::super::context::Filtered;
use super::super::instance::instance;
use super::super::pause;
use super::super::state::{Flag, Gauge, part};
use super::touched::{Touched, UserChange};
use crate::engine::{DEFAULT_USER, Locked};
use crate::limits::{QUEUED_USER_CHANGES, USERS_NOTICED_EVERY};

part! {
    /// The users that may have changed since they were last read.
    pub struct Changes {
        /// `None` if there are none.
        touched: Mutex<Option<Touched>> = Mutex::new(None),
        /// Whether there are any, readable without the lock in every turn of the main loop.
        any_touched: Flag = Flag::new(false),
        /// Those of commands that may wait for the end of a pause.
        held_up: Mutex<Touched> = Mutex::new(Touched::NONE),
        /// Whether there are any.
        any_held_up: Flag = Flag::new(false),
        /// The clients whose changes are queued in a transaction, the latest first, and the users
        /// that they touch.
        queued: Mutex<Vec<(u64, Touched)>> = Mutex::new(Vec::new()),
        /// Those of clients that the host does not report, or that were too many.
        queued_by_any: Mutex<Touched> = Mutex::new(Touched::NONE),
        /// Whether any change may ever have been queued.
        any_queued: Flag = Flag::new(false),
        /// The client that was last found outside a transaction, if nobody has sent MULTI since;
        /// else 0, which no client has. To ask the host costs as much as a short command.
        outside: AtomicU64 = AtomicU64::new(0),
        /// How many ACL DELUSER and ACL LOAD had succeeded when they were last counted.
        removals: AtomicU64 = AtomicU64::new(0),
        /// CONFIG RESETSTATs that have been sent since then, and the host's counts then: of these,
        /// and of all commands.
        resets_sent: Gauge = Gauge::new(0),
        resets: Mutex<CallCounts> = Mutex::new(CallCounts::NONE),
        commands: AtomicU64 = AtomicU64::new(0),
        /// When all users were last read.
        last_of_all: Mutex<Option<Instant>> = Mutex::new(None),
    }
}

impl Changes {
    /// Notes users that may be about to change, now or at an EXEC.
    pub fn note(&self, command: Filtered<'_>, touched: &Touched) {
        if self.queues(command) {
            self.note_queued(command.client_id(), touched);
        }
        self.add(touched);
    }

    /// Notes one user that may be about to change, now or at an EXEC. Any client can repeat this: a
    /// user that is noted already costs little.
    pub fn note_one(&self, command: Filtered<'_>, name: &[u8]) {
        let one = || Touched::these([name].into_iter(), UserChange::Changed);
        if !self.is_queued(command.client_id(), name) && self.queues(command) {
            self.note_queued(command.client_id(), &one());
        }
        if !self.is_touched(name) {
            self.add(&one());
        }
    }

    /// Whether the command is, or may be, queued in a transaction.
    fn queues(&self, command: Filtered<'_>) -> bool {
        let Some(client) = command.client_id() else { return true };
        if self.outside.load(Ordering::Relaxed) == client {
            return false;
        }
        // A client that the host does not know queues nothing.
        let queues = client_flags(client) & raw::REDISMODULE_CLIENTINFO_FLAG_MULTI != 0;
        if !queues {
            self.outside.store(client, Ordering::Relaxed);
        }
        queues
    }

    /// A client may be about to begin a transaction.
    pub fn multi_comes(&self) {
        self.outside.store(0, Ordering::Relaxed);
    }

    /// Whether the latest queued change is this client's and touches this user.
    fn is_queued(&self, client: Option<u64>, name: &[u8]) -> bool {
        let is_in = |all: &Touched| all.has(name, UserChange::Changed);
        self.any_queued.get()
            && match client {
                Some(client) => {
                    let queued = self.queued.lock();
                    queued.first().is_some_and(|(last, all)| *last == client && is_in(all))
                }
                None => is_in(&self.queued_by_any.lock()),
            }
    }

    /// Whether this user is to be read again.
    fn is_touched(&self, name: &[u8]) -> bool {
        self.touched.lock().as_ref().is_some_and(|touched| touched.has(name, UserChange::Changed))
    }

    /// Remembers the sender of a change that is, or may be, queued in a transaction.
    fn note_queued(&self, client: Option<u64>, touched: &Touched) {
        self.any_queued.set(true);
        let Some(client) = client else { return self.queued_by_any.lock().add(touched) };
        let (mut queued, mut all) = (self.queued.lock(), touched.clone());
        if let Some(before) = take_of(&mut queued, client) {
            all.add(&before);
        }
        queued.insert(0, (client, all));
        if queued.len() > QUEUED_USER_CHANGES
            && let Some((_, oldest)) = queued.pop()
        {
            self.queued_by_any.lock().add(&oldest);
        }
    }

    /// Notes the users whose changes are queued for this EXEC. False if there are none.
    pub fn note_exec(&self, command: Filtered<'_>) -> bool {
        if !self.any_queued.get() {
            return false;
        }
        let of_client = command.client_id().and_then(|it| take_of(&mut self.queued.lock(), it));
        if let Some(own) = &of_client {
            self.add(own);
        }
        let by_any = self.queued_by_any.lock();
        let is_by_any = *by_any != Touched::NONE;
        if is_by_any {
            self.add(&by_any);
        }
        of_client.is_some() || is_by_any
    }

    /// Adds users to be read again.
    fn add(&self, touched: &Touched) {
        self.touched.lock().get_or_insert_default().add(touched);
        self.any_touched.set(true);
    }

    /// Whether any users are to be read again.
    #[inline]
    pub fn are_any(&self, locked: Locked<'_>) -> bool {
        self.any_touched.get() || self.may_be_released(locked)
    }

    /// Whether the host may have executed, or be about to execute, what a pause held up.
    fn may_be_released(&self, locked: Locked<'_>) -> bool {
        self.any_held_up.get() && !pause::is_on(locked)
    }

    /// Takes the users to be read again, which the caller then reads.
    pub fn take(&self, locked: Locked<'_>) -> Option<Touched> {
        self.any_touched.set(false);
        let mut touched = self.touched.lock().take();
        if let Some(touched) = &touched
            && instance().pause.holds_up(locked)
        {
            self.held_up.lock().add(touched);
            self.any_held_up.set(true);
        }
        if self.may_be_released(locked) {
            touched.get_or_insert_default().add(&self.held_up.lock());
        }
        touched
    }

    /// The host may execute what a pause held up before the main loop turns again. True if users
    /// are to be read then: no reply may leave before.
    pub fn may_execute_held_up(&self, locked: Locked<'_>) -> bool {
        let may = self.may_be_released(locked);
        if may && !instance().pause.was_lately() {
            *self.held_up.lock() = Touched::NONE;
            self.any_held_up.set(false);
            return false;
        }
        may
    }

    /// Whether an ACL DELUSER or ACL LOAD has succeeded since this was last asked. Any client can
    /// send one that is refused.
    pub fn have_removed(&self, ctx: Ctx<'_>) -> bool {
        let stats = ctx.info(c"commandstats");
        let succeeded = |field: &CStr| {
            let counts = stats.calls(field);
            counts.executed.saturating_sub(counts.failed)
        };
        let now = succeeded(c"cmdstat_acl|deluser") + succeeded(c"cmdstat_acl|load");
        let has_changed = self.removals.swap(now, Ordering::Relaxed) != now;
        // It may have been counted before the counts were reset.
        self.are_counts_reset(ctx, &stats) || has_changed
    }

    /// Whether a CONFIG RESETSTAT has taken the counts back to 0 since this was last asked: one
    /// that was sent and not refused, or one in an EXEC, which may be seen long before.
    fn are_counts_reset(&self, ctx: Ctx<'_>, stats: &InfoSection<'_>) -> bool {
        let commands = ctx.info_number(c"stats", c"total_commands_processed").unwrap_or(0);
        let are_fewer = self.commands.swap(commands, Ordering::Relaxed) > commands;
        let resets = stats.calls(c"cmdstat_config|resetstat");
        let before = std::mem::replace(&mut *self.resets.lock(), resets);
        let sent = self.resets_sent.replace(0);
        are_fewer || sent > 0 && !resets.are_refused_since(before, sent)
    }

    /// A CONFIG RESETSTAT is about to be executed, queued or refused.
    pub fn reset_comes(&self) {
        self.resets_sent.add(1);
    }

    /// Whether it is time to read all users. If so, not again for a second.
    pub fn is_time_for_all(&self) -> bool {
        let mut last = self.last_of_all.lock();
        let is_time = last.is_none_or(|last| last.elapsed() >= USERS_NOTICED_EVERY);
        if is_time {
            *last = Some(Instant::now());
        }
        is_time
    }

    /// Whether the reply to the command that is about to be executed may leave before the next
    /// BEFORE_SLEEP. From Redis 8 on a thread of the host may send it; during loading, or a script
    /// that takes too long, the host sends it from within; and a client that was blocked is served
    /// after BEFORE_SLEEP, in the same turn.
    pub fn replies_leave_early(&self, locked: Locked<'_>) -> bool {
        const WITHIN: u32 = raw::REDISMODULE_CTX_FLAGS_LOADING
            | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING
            | raw::REDISMODULE_CTX_FLAGS_LUA;
        instance().io_threads.are_any.get()
            || instance().doing.turn_is_over.get()
            || instance().ctx(locked).flags() & WITHIN != 0
    }
}

/// Takes out what this client has queued.
fn take_of(queued: &mut Vec<(u64, Touched)>, client: u64) -> Option<Touched> {
    let at = queued.iter().position(|(other, _)| *other == client)?;
    Some(queued.remove(at).1)
}

/// The users that an ACL command other than ACL SETUSER may change.
pub fn touched_by_acl(command: Filtered<'_>) -> Option<Touched> {
    let subcommand = command.arg(1);
    let is = |word: &[u8]| subcommand.eq_ignore_ascii_case(word);
    if is(b"deluser") {
        let names = (2..command.count()).map(|number| command.arg(number));
        Some(Touched::these(names, UserChange::Replaced))
    } else if is(b"load") {
        Some(Touched::everybody(if load_replaces_users() {
            UserChange::Replaced
        } else {
            UserChange::Changed
        }))
    } else {
        None
    }
}

/// The users that a CONFIG command may change.
pub fn touched_by_config(command: Filtered<'_>) -> Option<Touched> {
    let mut names = (2..command.count()).step_by(2).map(|number| command.arg(number));
    let is_password = command.arg(1).eq_ignore_ascii_case(b"set")
        && names.any(|name| name.eq_ignore_ascii_case(b"requirepass"));
    is_password.then(|| Touched::these([DEFAULT_USER].into_iter(), UserChange::Changed))
}

/// Whether ACL LOAD ends the sessions of all users. From 7.4 on, when modules can add ACL
/// categories, it ends only those of users that are gone.
fn load_replaces_users() -> bool {
    // SAFETY: filled in at load, and never changed.
    unsafe { raw::RedisModule_AddACLCategory }.is_none()
}
