//! Keyspace notifications and client-side caching: what the host is told of changes.
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
use super::door::door;
use crate::command::Class;
use crate::shard::Author;

/// Whether any client ever wanted it.
static EVER_TRACKED: AtomicBool = AtomicBool::new(false);

/// Looks whether anybody listens. Under the global lock: at load, when a setting
/// has changed, and at every cron tick.
pub fn refresh(ctx: Ctx) {
    let engine = &door().engine;
    if engine.is_tracked() {
        let clients = ctx.info_number(c"clients", c"tracking_clients");
        engine.set_tracked(clients != Some(0));
    }
    engine.set_listening(ctx.notifies() || engine.is_tracked());
}

/// A client wants to be told of changes, or may get an error.
pub fn tracking_begins() {
    EVER_TRACKED.store(true, Ordering::Relaxed);
    door().engine.set_tracked(true);
    door().engine.set_listening(true);
}

/// An EXEC is about to be executed: a CLIENT TRACKING may have been queued in it.
pub fn before_exec() {
    if EVER_TRACKED.load(Ordering::Relaxed) {
        tracking_begins();
    }
}

/// Tells the host what has changed. Under the global lock, with no token in hand:
/// other modules may call our commands in answer.
///
/// `running` is the context of the command that has just run, if one has.
#[inline]
pub fn tell(running: Option<Ctx>) {
    if door().engine.has_news() {
        tell_all(running);
    }
}

#[cold]
fn tell_all(running: Option<Ctx>) {
    for news in door().engine.take_news() {
        let ctx = door().ctx();
        if door().engine.is_tracked() {
            match (news.author, running) {
                (Author::Waiting(client), _) => WAITING.lock().add(client, news.db, &news.key),
                (Author::Running, Some(running)) => signal(running, news.db, &news.key),
                _ => signal(ctx, news.db, &news.key),
            }
        }
        let class = match news.event.class {
            Class::Generic => raw::REDISMODULE_NOTIFY_GENERIC,
            Class::String => raw::REDISMODULE_NOTIFY_STRING,
            Class::Expired => raw::REDISMODULE_NOTIFY_EXPIRED,
        };
        ctx.notify(news.db, &news.key, class as u32, news.event.name);
    }
}

fn signal(ctx: Ctx, db: u32, key: &[u8]) {
    // Everybody hears of it: whoever changed the key before need not be known any more.
    WAITING.lock().last.remove(key);
    ctx.signal_modified(db, key);
}

/// Databases and keys.
type Changes = Vec<(u32, Box<[u8]>)>;

/// Changes by clients that wait for their replies.
#[derive(Default)]
struct Waiting {
    /// By client.
    changes: HashMap<u64, Changes>,
    /// Who made the last change of a key. Others who changed it before are told of that one.
    last: HashMap<Box<[u8]>, u64>,
}

static WAITING: LazyLock<Mutex<Waiting>> = LazyLock::new(Mutex::default);

/// Whether there are any, for a look without the lock: it is asked with every reply.
static ANY_WAITING: AtomicBool = AtomicBool::new(false);

impl Waiting {
    fn add(&mut self, client: u64, db: u32, key: &[u8]) {
        ANY_WAITING.store(true, Ordering::Relaxed);
        self.changes.entry(client).or_default().push((db, key.into()));
        self.last.insert(key.into(), client);
    }

    /// What of a client's changes is still to be told.
    fn take(&mut self, client: u64) -> Changes {
        let mut changes = self.changes.remove(&client).unwrap_or_default();
        ANY_WAITING.store(!self.changes.is_empty(), Ordering::Relaxed);
        changes.retain(|(_, key)| self.last.get(key) == Some(&client) && self.last.remove(key).is_some());
        changes
    }
}

/// Tells the host what a client has changed that is about to be answered; `ctx` is its own, if
/// it is still there.
pub fn tell_of(author: Author, ctx: Ctx) {
    let Author::Waiting(client) = author else { return };
    if !ANY_WAITING.load(Ordering::Relaxed) {
        return;
    }
    let changes = WAITING.lock().take(client);
    changes.iter().for_each(|(db, key)| ctx.signal_modified(*db, key));
}

/// Tells the host now what it would be told later.
pub fn forget_authors() {
    let Waiting { changes, last } = std::mem::take(&mut *WAITING.lock());
    for (db, key) in changes.into_values().flatten().filter(|(_, key)| last.contains_key(key)) {
        door().ctx().signal_modified(db, &key);
    }
}
