//! OnAllKeys notifications and client-side caching: what the host is told of changes.
//!
//! A client that caches may have asked to hear nothing of its own changes (NOLOOP). The host
//! takes the client of the context in which it is told for the one that made a change. That of a
//! client which waits for a worker can be had only when its reply is made: so the host is told
//! of those changes then, unless somebody else has changed the key since.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;
use redis_module::raw;

use super::api::Ctx;
use super::budget;
use super::instance::instance;
use crate::command::Class;
use crate::engine::{Author, Locked, Notification};

/// Whether any client ever asked for it.
static EVER_TRACKED: AtomicBool = AtomicBool::new(false);

/// Whether this turn's clients have been asked for. Some hosts run commands after that, and answer
/// them at once.
static TURN_IS_OVER: AtomicBool = AtomicBool::new(false);

/// Whether one may have asked since the host was last asked who does.
static ASKED_FOR: AtomicBool = AtomicBool::new(false);

/// Looks whether anybody listens: at load, when a setting
/// has changed, and at every cron tick.
pub fn refresh(ctx: Ctx<'_>) {
    let tracked = instance().engine.is_tracked() && anybody_tracks(ctx);
    set_tracked(ctx, tracked);
}

fn anybody_tracks(ctx: Ctx<'_>) -> bool {
    ctx.info_number(c"clients", c"tracking_clients") != Some(0)
}

fn set_tracked(ctx: Ctx<'_>, tracked: bool) {
    let engine = &instance().engine;
    engine.set_tracked(ctx.locked(), tracked);
    engine.set_listening(ctx.locked(), tracked || ctx.notifies());
}

/// A CLIENT TRACKING is about to be executed, queued or refused. Anybody can say it, without a
/// password, too: so the host is asked, once in a turn of its main loop, before who said it has an
/// answer.
pub fn tracking_begins(locked: Locked<'_>) {
    EVER_TRACKED.store(true, Ordering::Relaxed);
    ASKED_FOR.store(true, Ordering::Relaxed);
    if TURN_IS_OVER.load(Ordering::Relaxed) {
        before_read(locked);
        instance().engine.outside.wake_main();
    }
}

/// An EXEC is about to be executed: a CLIENT TRACKING may have been queued in it.
pub fn before_exec(locked: Locked<'_>) {
    if EVER_TRACKED.load(Ordering::Relaxed) {
        tracking_begins(locked);
    }
}

/// A command of midi's follows in the same turn. If it reads, its client may want to hear of
/// changes from here on.
#[inline]
pub fn before_read(locked: Locked<'_>) {
    if ASKED_FOR.load(Ordering::Relaxed) {
        set_tracked(instance().ctx(locked), true);
    }
}

/// The main loop has slept.
pub fn awake() {
    TURN_IS_OVER.store(false, Ordering::Relaxed);
}

/// The main loop is about to sleep, and then to send its clients their answers.
#[inline]
pub fn before_sleep(ctx: Ctx<'_>) {
    TURN_IS_OVER.store(true, Ordering::Relaxed);
    if ASKED_FOR.load(Ordering::Relaxed) && ASKED_FOR.swap(false, Ordering::Relaxed) {
        set_tracked(ctx, anybody_tracks(ctx));
    }
}

/// Tells the host what has changed, with no token in hand:
/// other modules may call our commands in answer.
///
/// `running` is the context of the command that has just run, if one has.
#[inline]
pub fn tell(locked: Locked<'_>, running: Option<Ctx<'_>>) {
    if instance().engine.has_notifications() {
        tell_all(locked, running);
    }
}

#[cold]
fn tell_all(locked: Locked<'_>, running: Option<Ctx<'_>>) {
    let engine = &instance().engine;
    // All of them first: what another module does in answer to one has notifications of its own,
    // and a client of its own.
    let all: Vec<Notification> = std::iter::from_fn(|| engine.next_notification(locked)).collect();
    all.iter().for_each(|notifications| tell_one(locked, notifications, running));
    engine.make_room_for_notifications(locked);
}

/// Tells as much of it as this turn's share of the main loop allows, up to the notifications of
/// that number. True where these have been told.
pub fn tell_up_to(locked: Locked<'_>, number: u64) -> bool {
    let engine = &instance().engine;
    let is_told = || engine.notifications_sent() >= number;
    if engine.has_notifications() || engine.has_notification_backlog() {
        budget::spend(|| !is_told() && tell_next(locked));
        engine.make_room_for_notifications(locked);
    }
    is_told()
}

fn tell_next(locked: Locked<'_>) -> bool {
    let notifications = instance().engine.next_notification(locked);
    if let Some(notifications) = &notifications {
        tell_one(locked, notifications, None);
    }
    notifications.is_some()
}

fn tell_one(locked: Locked<'_>, notifications: &Notification, running: Option<Ctx<'_>>) {
    let ctx = instance().ctx(locked);
    if instance().engine.is_tracked() {
        match (notifications.author, running) {
            (Author::Waiting(client), _) => {
                WAITING.lock().add(client, notifications.db, &notifications.key)
            }
            (Author::Running, Some(running)) => {
                signal(running, notifications.db, &notifications.key)
            }
            _ => signal(ctx, notifications.db, &notifications.key),
        }
    }
    let class = match notifications.event.class {
        Class::Generic => raw::REDISMODULE_NOTIFY_GENERIC,
        Class::String => raw::REDISMODULE_NOTIFY_STRING,
        Class::Expired => raw::REDISMODULE_NOTIFY_EXPIRED,
    };
    ctx.notify(notifications.db, &notifications.key, class as u32, notifications.event.name);
}

fn signal(ctx: Ctx<'_>, db: u32, key: &[u8]) {
    // Everybody hears of it: whoever changed the key before need not be known any more.
    WAITING.lock().last.remove(key);
    ctx.signal_modified(db, key);
}

/// Databases and keys.
type Changes = Vec<(u32, Box<[u8]>)>;

/// Changes by clients that wait for their replies.
#[derive(Default)]
struct PendingChanges {
    /// By client.
    changes: HashMap<u64, Changes>,
    /// Who made the last change of a key. Others who changed it before are told of that one.
    last: HashMap<Box<[u8]>, u64>,
}

static WAITING: LazyLock<Mutex<PendingChanges>> = LazyLock::new(Mutex::default);

/// Whether there are any, for a look without the lock: it is asked with every reply.
static ANY_WAITING: AtomicBool = AtomicBool::new(false);

impl PendingChanges {
    fn add(&mut self, client: u64, db: u32, key: &[u8]) {
        ANY_WAITING.store(true, Ordering::Relaxed);
        self.changes.entry(client).or_default().push((db, key.into()));
        self.last.insert(key.into(), client);
    }

    /// What of a client's changes is still to be told.
    fn take(&mut self, client: u64) -> Changes {
        let mut changes = self.changes.remove(&client).unwrap_or_default();
        ANY_WAITING.store(!self.changes.is_empty(), Ordering::Relaxed);
        changes.retain(|(_, key)| {
            self.last.get(key) == Some(&client) && self.last.remove(key).is_some()
        });
        changes
    }
}

/// Tells the host what a client has changed that is about to be answered; `ctx` is its own, if
/// it is still there.
pub fn tell_of(author: Author, ctx: Ctx<'_>) {
    let Author::Waiting(client) = author else { return };
    if !ANY_WAITING.load(Ordering::Relaxed) {
        return;
    }
    let changes = WAITING.lock().take(client);
    changes.iter().for_each(|(db, key)| ctx.signal_modified(*db, key));
}

/// Tells the host now what it would be told later.
pub fn forget_authors(locked: Locked<'_>) {
    let PendingChanges { changes, last } = std::mem::take(&mut *WAITING.lock());
    for (db, key) in changes.into_values().flatten().filter(|(_, key)| last.contains_key(key)) {
        instance().ctx(locked).signal_modified(db, &key);
    }
}
