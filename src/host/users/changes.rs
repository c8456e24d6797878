//! When to look at the users again. No event tells of it: a command filter sees ACL and CONFIG SET before they
//! are executed, queued or refused, and the users' texts are compared once a second besides.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use hashbrown::HashSet;
use parking_lot::Mutex;
use redis_module::raw;

use super::super::api::api;
use super::super::door::door;
use super::super::unit::filter_arg;
use super::{any_changed, at_door, default_is_open, forget_changed, look};
use crate::limits::{QUEUED_USER_CHANGES, REPLACED_NAME_BYTES, USERS_NOTICED_EVERY};

type Filter = raw::RedisModuleCommandFilterCtx;

/// Users that may have been deleted and made again under the same name: their sessions end, as on the host.
#[derive(Clone, Default)]
enum Replaced {
    #[default]
    Nobody,
    These(HashSet<Box<[u8]>>),
    Everybody,
}

impl Replaced {
    fn has(&self, name: &[u8]) -> bool {
        match self {
            Replaced::Nobody => false,
            Replaced::These(names) => names.contains(name),
            Replaced::Everybody => true,
        }
    }

    fn add(&mut self, other: Replaced) {
        let both = match (std::mem::take(self), other) {
            (one, Replaced::Nobody) | (Replaced::Nobody, one) => one,
            (Replaced::These(mut names), Replaced::These(more)) => {
                names.extend(more);
                Replaced::These(names).bounded()
            }
            _ => Replaced::Everybody,
        };
        *self = both;
    }

    /// Anybody can say many names, whether or not that is allowed.
    fn bounded(self) -> Self {
        match self {
            Replaced::These(names)
                if names.iter().map(|name| name.len() + 1).sum::<usize>() > REPLACED_NAME_BYTES =>
            {
                Replaced::Everybody
            }
            other => other,
        }
    }
}

/// Who has perhaps been replaced since somebody last looked.
static REPLACED: Mutex<Replaced> = Mutex::new(Replaced::Nobody);

/// What an ACL command may do to users; `None` where it changes none.
fn change(filter: *mut Filter) -> Option<Replaced> {
    let subcommand = filter_arg(filter, 1);
    let is = |word: &[u8]| subcommand.eq_ignore_ascii_case(word);
    if is(b"setuser") {
        Some(Replaced::Nobody)
    } else if is(b"deluser") {
        let names = (2..arg_count(filter)).map(|number| filter_arg(filter, number).into());
        Some(Replaced::These(names.collect()).bounded())
    } else if is(b"load") {
        Some(if load_replaces_users() { Replaced::Everybody } else { Replaced::Nobody })
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

fn arg_count(filter: *mut Filter) -> i32 {
    // SAFETY: the filter's own context.
    unsafe { api!(RedisModule_CommandFilterArgsCount)(filter) }
}

/// An ACL command is about to be executed, queued or refused.
pub fn before_acl(filter: *mut Filter) {
    if let Some(replaced) = change(filter) {
        before_change(filter, replaced);
    }
}

/// A CONFIG command is about to be executed, queued or refused.
pub fn before_config(filter: *mut Filter) {
    let mut names = (2..arg_count(filter)).step_by(2).map(|number| filter_arg(filter, number));
    if filter_arg(filter, 1).eq_ignore_ascii_case(b"set")
        && names.any(|name| name.eq_ignore_ascii_case(b"requirepass"))
    {
        before_change(filter, Replaced::Nobody);
    }
}

fn before_change(filter: *mut Filter, replaced: Replaced) {
    // What an EXEC has changed is not to be taken for this one's.
    if NOTICE.load(Ordering::Relaxed) && !any_changed() {
        end_notice();
    }
    if queues(filter) {
        QUEUED.store(true, Ordering::Relaxed);
        let (client, mut queued) = (client_id(filter), QUEUED_BY.lock());
        let mut all = replaced.clone();
        if let Some(at) = queued.iter().position(|(other, _)| *other == client) {
            all.add(queued.remove(at).1);
        }
        queued.truncate(QUEUED_USER_CHANGES - 1);
        queued.insert(0, (client, all));
    }
    may_change(replaced);
}

/// The host's users may be about to change.
fn may_change(replaced: Replaced) {
    REPLACED.lock().add(replaced);
    let engine = &door().engine;
    engine.users.mark_stale();
    at_door::users_may_change();
    // Where a script keeps the main loop from turning, this is how we get to look again.
    engine.wake_main();
}

/// An EXEC is about to be executed: a change may have been queued in it.
pub fn before_exec(filter: *mut Filter) {
    at_door::forget();
    if !QUEUED.load(Ordering::Relaxed) {
        return;
    }
    at_door::users_may_change();
    let client = client_id(filter);
    let mut queued = QUEUED_BY.lock();
    let Some(at) = queued.iter().position(|(other, _)| *other == client) else { return };
    if client.is_none() {
        // Any EXEC may be the one. It is looked into before its client gets the reply.
        NOTICE_REPLACED.lock().add(queued[at].1.clone());
        NOTICE.store(true, Ordering::Relaxed);
    } else {
        let (_, replaced) = queued.remove(at);
        may_change(replaced);
    }
}

/// Whether any change of users may have been queued in a transaction.
static QUEUED: AtomicBool = AtomicBool::new(false);

/// Whose changes those are, the latest first, and whom they may replace; `None` where the host does not tell.
static QUEUED_BY: Mutex<Vec<(Option<u64>, Replaced)>> = Mutex::new(Vec::new());

/// An EXEC has come that may have changed users.
static NOTICE: AtomicBool = AtomicBool::new(false);

/// Whom it may have replaced.
static NOTICE_REPLACED: Mutex<Replaced> = Mutex::new(Replaced::Nobody);

/// Redis 7.2 and later tell.
fn client_id(filter: *mut Filter) -> Option<u64> {
    // SAFETY: the filter's own context.
    unsafe { raw::RedisModule_CommandFilterGetClientId.map(|ask| ask(filter)) }
}

/// Whether the command is one of a transaction's, or may be.
fn queues(filter: *mut Filter) -> bool {
    let Some(client) = client_id(filter) else { return true };
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

/// Looks at the known users again, where they may have changed. Under the global lock, and
/// before any reply of this turn of the main loop leaves the host.
#[inline]
pub fn refresh() {
    if door().engine.users.are_stale() {
        look_again();
    }
    if NOTICE.load(Ordering::Relaxed) {
        notice_changes();
    }
}

#[cold]
fn look_again() {
    let engine = &door().engine;
    let mut replaced = std::mem::take(&mut *REPLACED.lock());
    replaced.add(end_notice());
    forget_changed();
    engine.users.refresh(default_is_open(), |name| replaced.has(name), look);
    at_door::users_may_change();
    engine.wake_ports();
}

/// Now and then: the filter does not see what another module does to a user, nor the ACL
/// command under another name.
pub fn on_cron() {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let mut last = LAST.lock();
    if last.is_none_or(|last| last.elapsed() >= USERS_NOTICED_EVERY) {
        *last = Some(Instant::now());
        notice_changes();
        at_door::look_at_all();
    }
}

fn notice_changes() {
    if any_changed() {
        look_again();
    } else {
        end_notice();
    }
}

/// What EXEC may have changed has been looked into; whom it may have replaced.
fn end_notice() -> Replaced {
    NOTICE.store(false, Ordering::Relaxed);
    std::mem::take(&mut *NOTICE_REPLACED.lock())
}
