//! When to look at the users again. No event tells of it: a command filter sees ACL and CONFIG SET before they
//! are executed, queued or refused, and the users' texts are compared once a second besides. Anybody can say these
//! words, so they cost no more than one look at the users that they name in a turn of the main loop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use redis_module::raw;

use super::super::api::{Ctx, api};
use super::super::context::Filtered;
use super::super::instance::instance;
use super::touched::{Fate, Touched};
use super::{at_door, default_is_open, forget_changed, look};
use crate::limits::{QUEUED_USER_CHANGES, USERS_NOTICED_EVERY};
use crate::shard::{DEFAULT_USER, Locked};

/// Who may have changed since somebody last looked; `None` where nothing was said.
static TOUCHED: Mutex<Option<Touched>> = Mutex::new(None);

/// The same, for a look at every turn of the main loop without the lock.
static ANY_TOUCHED: AtomicBool = AtomicBool::new(false);

/// Whom an ACL command may change.
fn touched_by_acl(command: Filtered<'_>) -> Option<Touched> {
    let subcommand = command.arg(1);
    let is = |word: &[u8]| subcommand.eq_ignore_ascii_case(word);
    if is(b"setuser") {
        Some(Touched::these([command.arg(2)].into_iter(), Fate::Changed))
    } else if is(b"deluser") {
        let names = (2..command.count()).map(|number| command.arg(number));
        Some(Touched::these(names, Fate::Replaced))
    } else if is(b"load") {
        Some(Touched::everybody(if load_replaces_users() { Fate::Replaced } else { Fate::Changed }))
    } else {
        None
    }
}

/// Whether ACL LOAD ends the sessions of all users. From 7.4 on, where modules can make categories of their own,
/// it ends those of users that are gone.
fn load_replaces_users() -> bool {
    // SAFETY: filled in at load, and never changed.
    unsafe { raw::RedisModule_AddACLCategory }.is_none()
}

/// An ACL command is about to be executed, queued or refused.
pub fn before_acl(command: Filtered<'_>) {
    if let Some(touched) = touched_by_acl(command) {
        before_change(command, &touched);
    }
}

/// A CONFIG command is about to be executed, queued or refused.
pub fn before_config(command: Filtered<'_>) {
    let mut names = (2..command.count()).step_by(2).map(|number| command.arg(number));
    if command.arg(1).eq_ignore_ascii_case(b"set")
        && names.any(|name| name.eq_ignore_ascii_case(b"requirepass"))
    {
        before_change(command, &Touched::these([DEFAULT_USER].into_iter(), Fate::Changed));
    }
}

fn before_change(command: Filtered<'_>, touched: &Touched) {
    if queues(command) {
        QUEUED.store(true, Ordering::Relaxed);
        let (client, mut queued) = (command.client_id(), QUEUED_BY.lock());
        let mut all = touched.clone();
        if let Some(at) = queued.iter().position(|(other, _)| *other == client) {
            all.add(&queued.remove(at).1);
        }
        queued.truncate(QUEUED_USER_CHANGES - 1);
        queued.insert(0, (client, all));
    }
    may_change(command.locked(), touched);
}

/// These users may be about to change. Who said so may not even be logged in, so nobody is held up for it: they are
/// looked at once in this turn of the main loop, before any reply leaves the host. Where replies leave sooner, the
/// ports wait until somebody has looked.
fn may_change(locked: Locked<'_>, touched: &Touched) {
    TOUCHED.lock().get_or_insert_default().add(touched);
    ANY_TOUCHED.store(true, Ordering::Relaxed);
    at_door::users_may_change();
    let engine = &instance().engine;
    if replies_leave_early(locked) {
        engine.users.mark_stale(locked);
        // Where a script keeps the main loop from turning, this is how we get to look again.
        engine.wake_main();
    }
}

/// Whether the reply to what is about to be executed may leave before the next BEFORE_SLEEP: from Redis 8 on by
/// a thread of the host's; while loading, or a script that takes too long, from within; and that of a client
/// that was blocked, which is served after BEFORE_SLEEP, in the same turn.
pub fn replies_leave_early(locked: Locked<'_>) -> bool {
    const WITHIN: u32 = raw::REDISMODULE_CTX_FLAGS_LOADING
        | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING
        | raw::REDISMODULE_CTX_FLAGS_LUA;
    HAS_IO_THREADS.load(Ordering::Relaxed)
        || instance().engine.main.is_asleep()
        || instance().ctx(locked).flags() & WITHIN != 0
}

/// Whether the host may have threads that send replies.
static HAS_IO_THREADS: AtomicBool = AtomicBool::new(true);

/// Asks the host what does not change. At load.
pub fn prepare(ctx: Ctx<'_>) {
    HAS_IO_THREADS.store(ctx.config_number(c"io-threads") != Some(1), Ordering::Relaxed);
}

/// An EXEC is about to be executed: a change may have been queued in it.
pub fn before_exec(command: Filtered<'_>) {
    at_door::forget();
    if !QUEUED.load(Ordering::Relaxed) {
        return;
    }
    let client = command.client_id();
    let mut queued = QUEUED_BY.lock();
    let Some(at) = queued.iter().position(|(other, _)| *other == client) else { return };
    // Where the host does not tell whose EXEC it is, any may be the one.
    let touched = if client.is_none() { queued[at].1.clone() } else { queued.remove(at).1 };
    drop(queued);
    may_change(command.locked(), &touched);
}

/// Whether any change of users may have been queued in a transaction.
static QUEUED: AtomicBool = AtomicBool::new(false);

/// Whose changes those are, the latest first, and whom they touch; `None` where the host does not tell.
static QUEUED_BY: Mutex<Vec<(Option<u64>, Touched)>> = Mutex::new(Vec::new());

/// Whether the command is one of a transaction's, or may be.
fn queues(command: Filtered<'_>) -> bool {
    let Some(client) = command.client_id() else { return true };
    // SAFETY: a structure of numbers and bytes, which says its version to the host; a client
    // that the host does not know queues nothing.
    unsafe {
        let mut client_info: raw::RedisModuleClientInfoV1 = std::mem::zeroed();
        client_info.version = u64::from(raw::REDISMODULE_CLIENTINFO_VERSION);
        let found = api!(RedisModule_GetClientInfoById)((&raw mut client_info).cast(), client);
        found == raw::REDISMODULE_OK as i32
            && client_info.flags & u64::from(raw::REDISMODULE_CLIENTINFO_FLAG_MULTI) != 0
    }
}

/// Looks at the known users again, where they may have changed,
/// before any reply of this turn of the main loop leaves the host.
#[inline]
pub fn refresh(locked: Locked<'_>) {
    if ANY_TOUCHED.load(Ordering::Relaxed) || instance().engine.users.are_stale() {
        look_again(locked);
    }
}

#[cold]
fn look_again(locked: Locked<'_>) {
    ANY_TOUCHED.store(false, Ordering::Relaxed);
    let touched = TOUCHED.lock().take();
    let stale = instance().engine.users.are_stale();
    match &touched {
        Some(touched) => look_at(locked, touched, stale),
        // At the start everybody is new.
        None => look_at(locked, &Touched::everybody(Fate::Changed), stale),
    }
}

/// Looks at these users; `must_tell` the ports also where none has changed.
fn look_at(locked: Locked<'_>, touched: &Touched, must_tell: bool) {
    let engine = &instance().engine;
    if forget_changed(locked, touched.names()) || must_tell {
        let replaced = |name: &[u8]| touched.fate(name) == Some(Fate::Replaced);
        let look = |name: &[u8]| look(locked, name);
        engine.users.refresh(locked, default_is_open(locked), touched.names(), replaced, look);
        at_door::users_may_change();
        engine.wake_ports();
    }
}

/// Now and then: the filter does not see what another module does to a user, nor the ACL
/// command under another name.
pub fn on_cron(locked: Locked<'_>) {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let mut last = LAST.lock();
    if last.is_none_or(|last| last.elapsed() >= USERS_NOTICED_EVERY) {
        *last = Some(Instant::now());
        look_at(locked, &Touched::everybody(Fate::Changed), false);
        at_door::look_at_all(locked);
    }
}
