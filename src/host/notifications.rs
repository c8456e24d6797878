//! Keyspace notifications and client-side caching: how the host is notified of changes.
//!
//! A caching client may have asked not to be notified of its own changes (NOLOOP). The host takes
//! the client of the context in which it is notified for the author of a change. The context of a
//! client that waits for a worker is available only when its reply is made: the host is notified of
//! those changes then, unless another client has changed the key since.

use midi_module_api as raw;

use super::api::Ctx;
use super::instance::instance;
use super::state::clients::PendingChanges;
use crate::command::Class;
use crate::engine::{Author, Locked, Notification};

/// Finds out whether any client listens, at load: clients may have begun to track before that.
pub fn begin(ctx: Ctx<'_>) {
    let are_tracking = anybody_tracks(ctx);
    instance().tracking.ever.set(are_tracking);
    set_tracked(ctx, are_tracking);
}

/// Finds out whether any client listens: when a setting has changed, and at every cron tick.
pub fn refresh(ctx: Ctx<'_>) {
    let tracked = instance().engine.ledger.notifications.is_tracked() && anybody_tracks(ctx);
    set_tracked(ctx, tracked);
}

fn anybody_tracks(ctx: Ctx<'_>) -> bool {
    ctx.info_number(c"clients", c"tracking_clients") != Some(0)
}

fn set_tracked(ctx: Ctx<'_>, tracked: bool) {
    let engine = &instance().engine;
    engine.ledger.notifications.set_tracked(ctx.locked(), tracked);
    engine.ledger.notifications.set_listening(ctx.locked(), tracked || ctx.notifies());
}

/// A CLIENT TRACKING is about to be executed, queued or refused. Any client can send it, even one
/// that has not logged in: so the host is asked once in a turn of its main loop, before the sender
/// has its reply.
pub fn tracking_begins(locked: Locked<'_>) {
    let tracking = &instance().tracking;
    tracking.ever.set(true);
    tracking.asked_for.set(true);
    if instance().doing.turn_is_over.get() {
        before_read(locked);
    }
    instance().wake_behind_turn();
}

/// An EXEC is about to be executed: a CLIENT TRACKING may have been queued in it.
pub fn before_exec(locked: Locked<'_>) {
    if instance().tracking.ever.get() {
        tracking_begins(locked);
    }
}

/// A command of midi's follows in the same turn. If it reads, its client may have to be notified of
/// changes from here on.
#[inline]
pub fn before_read(locked: Locked<'_>) {
    if instance().tracking.asked_for.get() {
        set_tracked(instance().ctx(locked), true);
    }
}

/// The main loop is about to send its clients their replies, and to sleep.
#[inline]
pub fn before_sleep(ctx: Ctx<'_>) {
    let here = instance();
    if here.tracking.asked_for.take() {
        set_tracked(ctx, anybody_tracks(ctx));
    }
    // One that a pause holds up is executed later without the filter.
    if here.tracking.ever.get() && here.pause.was_lately() {
        here.tracking.asked_for.set(true);
    }
}

/// Notifies the host of all changes. No token may be held: other modules may call our commands in
/// response.
///
/// `running` is the context of the command that has just run, if one has.
#[inline]
pub fn tell(locked: Locked<'_>, running: Option<Ctx<'_>>) {
    if instance().engine.ledger.notifications.are_waiting() {
        tell_all(locked, running);
    }
}

#[cold]
fn tell_all(locked: Locked<'_>, running: Option<Ctx<'_>>) {
    let engine = &instance().engine;
    // Take all of them first: what another module does in response to one has its own notifications
    // and its own client.
    let all: Vec<Notification> =
        std::iter::from_fn(|| engine.ledger.notifications.next(locked)).collect();
    all.iter().for_each(|notification| tell_one(locked, notification, running));
    engine.ledger.make_room_for_notifications(locked);
}

/// Notifies the host of as many changes as this turn's budget allows, up to notification `number`.
/// True if all of those have been sent.
pub fn tell_up_to(locked: Locked<'_>, number: u64) -> bool {
    let engine = &instance().engine;
    let is_told = || engine.ledger.notifications.sent() >= number;
    if engine.ledger.notifications.are_waiting()
        || engine.ledger.admission.has_notification_backlog()
    {
        instance().budget.spend(|| !is_told() && tell_next(locked));
        engine.ledger.make_room_for_notifications(locked);
    }
    is_told()
}

fn tell_next(locked: Locked<'_>) -> bool {
    let notification = instance().engine.ledger.notifications.next(locked);
    if let Some(notification) = &notification {
        tell_one(locked, notification, None);
    }
    notification.is_some()
}

fn tell_one(locked: Locked<'_>, notification: &Notification, running: Option<Ctx<'_>>) {
    let ctx = instance().ctx(locked);
    if instance().engine.ledger.notifications.is_tracked() {
        match (notification.author, running) {
            (Author::Waiting(client), _) => {
                instance().tracking.add(client, notification.db, &notification.key)
            }
            (Author::Running, Some(running)) => signal(running, notification.db, &notification.key),
            _ => signal(ctx, notification.db, &notification.key),
        }
    }
    let class = match notification.event.class {
        Class::Generic => raw::REDISMODULE_NOTIFY_GENERIC,
        Class::String => raw::REDISMODULE_NOTIFY_STRING,
        Class::Hash => raw::REDISMODULE_NOTIFY_HASH,
        Class::Expired => raw::REDISMODULE_NOTIFY_EXPIRED,
        Class::Evicted => raw::REDISMODULE_NOTIFY_EVICTED,
    };
    ctx.notify(notification.db, &notification.key, class as u32, notification.event.name);
}

fn signal(ctx: Ctx<'_>, db: u32, key: &[u8]) {
    // All tracking clients are notified: an earlier author of a change no longer matters.
    instance().tracking.waiting.lock().last.remove(key);
    ctx.signal_modified(db, key);
}

/// Notifies the host of the changes of a client that is about to be answered. `ctx` is the client's
/// own if it is still connected.
pub fn tell_of(author: Author, ctx: Ctx<'_>) {
    let Author::Waiting(client) = author else { return };
    let changes = instance().tracking.take(client);
    changes.iter().for_each(|(db, key)| ctx.signal_modified(*db, key));
}

/// Notifies the host now of all changes that wait for a client's reply.
pub fn forget_authors(locked: Locked<'_>) {
    let PendingChanges { changes, last } = std::mem::take(&mut *instance().tracking.waiting.lock());
    for (db, key) in changes.into_values().flatten().filter(|(_, key)| last.contains_key(key)) {
        instance().ctx(locked).signal_modified(db, &key);
    }
}
