//! Keyspace notifications and client-side caching: what the host is told of changes.

use std::sync::atomic::{AtomicBool, Ordering};

use redis_module::raw;

use super::api::Ctx;
use super::door::door;
use crate::command::Class;

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
#[inline]
pub fn tell() {
    if door().engine.has_news() {
        tell_all();
    }
}

#[cold]
fn tell_all() {
    for news in door().engine.take_news() {
        let ctx = door().ctx();
        if door().engine.is_tracked() {
            ctx.signal_modified(news.db, &news.key);
        }
        let class = match news.event.class {
            Class::Generic => raw::REDISMODULE_NOTIFY_GENERIC,
            Class::String => raw::REDISMODULE_NOTIFY_STRING,
            Class::Expired => raw::REDISMODULE_NOTIFY_EXPIRED,
        };
        ctx.notify(news.db, &news.key, class as u32, news.event.name);
    }
}
