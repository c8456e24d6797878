//! Who may have changed, from what a command filter sees before it is executed, queued or refused.
//!
//! ```text
//! ACL or CONFIG SET is said ─┬──────────────────────────────► touched ─► looked at once, in the same turn of the
//!                            └─ in MULTI ─► queued ─ EXEC ───►    ▲       main loop
//!                                                    every second, everybody
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use redis_module::raw;

use super::super::api::{Ctx, client_flags};
use super::super::context::Filtered;
use super::super::instance::instance;
use super::touched::{Touched, UserChange};
use crate::engine::{DEFAULT_USER, Locked};
use crate::limits::{QUEUED_USER_CHANGES, USERS_NOTICED_EVERY};

/// Who may have changed since somebody last looked.
pub struct Changes {
    /// `None` where nothing was said.
    touched: Mutex<Option<Touched>>,
    /// Whether anything was, for a look at every turn of the main loop without the lock.
    any_touched: AtomicBool,
    /// Whose changes are queued in a transaction, the latest first, and whom they touch; `None`
    /// where the host does not tell who says them.
    queued: Mutex<Vec<(Option<u64>, Touched)>>,
    /// Whether any may ever have been.
    any_queued: AtomicBool,
    /// Whether the host may have threads that send replies.
    has_io_threads: AtomicBool,
    /// When everybody was last looked at.
    last_of_all: Mutex<Option<Instant>>,
}

impl Changes {
    /// Nothing was said yet.
    pub const fn new() -> Self {
        Changes {
            touched: Mutex::new(None),
            any_touched: AtomicBool::new(false),
            queued: Mutex::new(Vec::new()),
            any_queued: AtomicBool::new(false),
            has_io_threads: AtomicBool::new(true),
            last_of_all: Mutex::new(None),
        }
    }

    /// Asks the host what does not change. At load.
    pub fn prepare(&self, ctx: Ctx<'_>) {
        self.has_io_threads.store(ctx.config_number(c"io-threads") != Some(1), Ordering::Relaxed);
    }

    /// These may be about to change, or will be at an EXEC.
    pub fn note(&self, command: Filtered<'_>, touched: &Touched) {
        if queues(command) {
            self.note_queued(command.client_id(), touched);
        }
        self.add(touched);
    }

    /// The same of one user. Anybody can say it over and over: what is noted already costs little.
    pub fn note_one(&self, command: Filtered<'_>, name: &[u8]) {
        let one = || Touched::these([name].into_iter(), UserChange::Changed);
        if !self.is_queued(command.client_id(), name) && queues(command) {
            self.note_queued(command.client_id(), &one());
        }
        if !self.is_touched(name) {
            self.add(&one());
        }
    }

    /// Whether a change of that user was the client's last one to be remembered for an EXEC.
    fn is_queued(&self, client: Option<u64>, name: &[u8]) -> bool {
        self.any_queued.load(Ordering::Relaxed)
            && self
                .queued
                .lock()
                .first()
                .is_some_and(|(last, all)| *last == client && all.has(name, UserChange::Changed))
    }

    /// Whether that user is to be looked at.
    fn is_touched(&self, name: &[u8]) -> bool {
        self.touched.lock().as_ref().is_some_and(|touched| touched.has(name, UserChange::Changed))
    }

    /// Remembers who said this, where it is one of a transaction's, or may be.
    fn note_queued(&self, client: Option<u64>, touched: &Touched) {
        self.any_queued.store(true, Ordering::Relaxed);
        let (mut queued, mut all) = (self.queued.lock(), touched.clone());
        if let Some(at) = queued.iter().position(|(other, _)| *other == client) {
            all.add(&queued.remove(at).1);
        }
        queued.truncate(QUEUED_USER_CHANGES - 1);
        queued.insert(0, (client, all));
    }

    /// Those whose changes are queued for this EXEC are to be looked at. False where there are
    /// none.
    pub fn note_exec(&self, command: Filtered<'_>) -> bool {
        if !self.any_queued.load(Ordering::Relaxed) {
            return false;
        }
        let client = command.client_id();
        let mut queued = self.queued.lock();
        let Some(at) = queued.iter().position(|(other, _)| *other == client) else { return false };
        // Where the host does not tell whose EXEC it is, any may be the one.
        if client.is_none() {
            self.add(&queued[at].1);
        } else {
            self.add(&queued.remove(at).1);
        }
        true
    }

    /// These are to be looked at.
    fn add(&self, touched: &Touched) {
        self.touched.lock().get_or_insert_default().add(touched);
        self.any_touched.store(true, Ordering::Relaxed);
    }

    /// Whether there are any such.
    #[inline]
    pub fn are_any(&self) -> bool {
        self.any_touched.load(Ordering::Relaxed)
    }

    /// Who they are; somebody looks.
    pub fn take(&self) -> Option<Touched> {
        self.any_touched.store(false, Ordering::Relaxed);
        self.touched.lock().take()
    }

    /// Whether it is time to look at everybody. From now on it is not, for a second.
    pub fn is_time_for_all(&self) -> bool {
        let mut last = self.last_of_all.lock();
        let is_time = last.is_none_or(|last| last.elapsed() >= USERS_NOTICED_EVERY);
        if is_time {
            *last = Some(Instant::now());
        }
        is_time
    }

    /// Whether the reply to what is about to be executed may leave before the next BEFORE_SLEEP:
    /// from Redis 8 on by a thread of the host's; while loading, or a script that takes too
    /// long, from within; and that of a client that was blocked, which is served after
    /// BEFORE_SLEEP, in the same turn.
    pub fn replies_leave_early(&self, locked: Locked<'_>) -> bool {
        const WITHIN: u32 = raw::REDISMODULE_CTX_FLAGS_LOADING
            | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING
            | raw::REDISMODULE_CTX_FLAGS_LUA;
        self.has_io_threads.load(Ordering::Relaxed)
            || instance().engine.main.is_asleep()
            || instance().ctx(locked).flags() & WITHIN != 0
    }
}

/// Whom an ACL command may change, but for ACL SETUSER.
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

/// Whom a CONFIG command may change.
pub fn touched_by_config(command: Filtered<'_>) -> Option<Touched> {
    let mut names = (2..command.count()).step_by(2).map(|number| command.arg(number));
    let is_password = command.arg(1).eq_ignore_ascii_case(b"set")
        && names.any(|name| name.eq_ignore_ascii_case(b"requirepass"));
    is_password.then(|| Touched::these([DEFAULT_USER].into_iter(), UserChange::Changed))
}

/// Whether ACL LOAD ends the sessions of all users. From 7.4 on, where modules can make categories
/// of their own, it ends those of users that are gone.
fn load_replaces_users() -> bool {
    // SAFETY: filled in at load, and never changed.
    unsafe { raw::RedisModule_AddACLCategory }.is_none()
}

/// Whether the command is one of a transaction's, or may be.
fn queues(command: Filtered<'_>) -> bool {
    let Some(client) = command.client_id() else { return true };
    // One that the host does not know queues nothing.
    client_flags(client) & u64::from(raw::REDISMODULE_CLIENTINFO_FLAG_MULTI) != 0
}
