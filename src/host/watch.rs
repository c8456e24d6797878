//! WATCH, which is the host's command: how the host is notified of changes to midi's keys.
//!
//! Host and module share the names: a watched name is watched in both keyspaces.
//!
//! The filter sees a WATCH before the host has checked the client's rights. So a turn of the main
//! loop marks only a few names at once. The others wait until a client could act on the reply to
//! the WATCH: until the end of the turn, or the next of midi's commands. Then the host is asked
//! whether it has executed any WATCH at all.

use std::ffi::c_void;

use midi_module_api as raw;

use super::api::{Ctx, RawCtx, RawEvent, subscribe};
use super::context::Filtered;
use super::instance::instance;
use super::pause::Paused;
use super::state::clients::{PendingName, PendingNames, WatchTurn};
use super::string::HostString;
use super::users::USERS;
use super::{guarded, notifications};
use crate::engine::Locked;
use crate::limits::{WATCHED_AT_ONCE_BYTES, WATCHED_NAME_BYTES, WATCHED_WAITING_BYTES};

/// A WATCH is about to be executed or refused: any client can send it, even one that has not logged
/// in.
pub fn before_watch(command: Filtered<'_>) {
    let (client, locked) = (client_of(command), command.locked());
    instance().watches.sent.set(true);
    // Earlier changes must not count for a client that watches from now on: send their
    // notifications first.
    notifications::tell(locked, None);
    notifications::forget_authors(locked);
    let names = (1..command.count()).filter_map(|number| command.string(number));
    let size: usize = names.clone().map(|name| name.bytes().len() + WATCHED_NAME_BYTES).sum();
    let mut turn = instance().watches.turn.lock();
    if turn.waiting_bytes > WATCHED_WAITING_BYTES {
        drop(turn);
        settle(locked);
        turn = instance().watches.turn.lock();
    }
    turn.sent += 1;
    let is_little = turn.waiting.is_empty() && turn.marked + size <= WATCHED_AT_ONCE_BYTES;
    if is_little || may_wait_itself(locked) || USERS.replies_leave_early(locked) {
        turn.marked += size;
        drop(turn);
        return mark(locked, client, names.map(HostString::bytes));
    }
    // Not copied: a client that is refused costs little more than without midi.
    turn.waiting.push((client, names.map(|name| PendingName(name.hold())).collect()));
    turn.waiting_bytes += size;
    instance().watches.any_waiting.set(true);
}

/// Marks the names: from here on the host is notified of changes to these keys.
fn mark<'a>(locked: Locked<'_>, client: Option<u64>, names: impl Iterator<Item = &'a [u8]>) {
    let engine = &instance().engine;
    engine.ledger.begin_watch(locked, client, may_wait_itself(locked));
    names.for_each(|name| engine.ledger.watch(locked, name, client));
}

/// A command of midi's, or an EXEC, follows in the same turn: it may come from a client whose names
/// wait to be marked.
#[inline]
pub fn before_read(locked: Locked<'_>) {
    if instance().watches.any_waiting.get() {
        let has_asked = std::mem::replace(&mut instance().watches.turn.lock().has_asked, true);
        // Asking once in a turn is enough: it takes as long as marking some names.
        if has_asked { mark_waiting(locked) } else { settle(locked) }
    }
}

/// Marks the names that wait, or forgets them if the host has executed no WATCH since it was last
/// asked.
fn settle(locked: Locked<'_>) {
    let mut turn = instance().watches.turn.lock();
    if turn.was_any_executed(locked) {
        drop(turn);
        mark_waiting(locked);
        // These names were asked for before the host was: the next look finds no WATCH behind them.
        instance().engine.ledger.confirm_marks();
    } else {
        turn.take_waiting();
    }
}

fn mark_waiting(locked: Locked<'_>) {
    let waiting = instance().watches.turn.lock().take_waiting();
    for (client, names) in waiting {
        mark(locked, client, names.iter().map(|name| name.0.bytes()));
    }
}

impl WatchTurn {
    fn take_waiting(&mut self) -> Vec<PendingNames> {
        instance().watches.any_waiting.set(false);
        self.waiting_bytes = 0;
        std::mem::take(&mut self.waiting)
    }

    /// Whether the host has executed any WATCH since this was last asked, as far as it reports. If
    /// not, earlier marks are taken back: the clients that asked for them were refused.
    fn was_any_executed(&mut self, locked: Locked<'_>) -> bool {
        let (engine, sent) = (&instance().engine, std::mem::take(&mut self.sent));
        let counts = instance().ctx(locked).call_counts(c"cmdstat_watch");
        let before = std::mem::replace(&mut self.counts, counts);
        let none = counts.are_refused_since(before, sent) && !may_wait_itself(locked);
        if none {
            engine.ledger.take_back_marks(locked)
        } else {
            engine.ledger.confirm_marks()
        }
        !none
    }
}

/// A tenth of a second has passed: marks of clients that were refused are removed, however few
/// there are.
pub fn on_cron(locked: Locked<'_>) {
    if instance().watches.any_waiting.get() || instance().engine.ledger.has_unconfirmed_marks() {
        settle(locked);
    }
}

/// The client that sent the command, if the host also reports when it disconnects; `None`
/// otherwise.
fn client_of(command: Filtered<'_>) -> Option<u64> {
    let client = command.client_id()?;
    // Only when needed: it costs the host something for every client that connects or disconnects.
    let is_subscribed = &instance().watches.is_subscribed;
    if !is_subscribed.get() {
        let ctx = instance().ctx(command.locked());
        is_subscribed.set(subscribe(ctx, raw::REDISMODULE_EVENT_CLIENT_CHANGE, on_client));
    }
    is_subscribed.get().then_some(client)
}

unsafe extern "C" fn on_client(ctx: *mut RawCtx, _: RawEvent, sub: u64, data: *mut c_void) {
    if sub == raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED {
        // SAFETY: the event's context, and its data is this structure.
        let (ctx, client) = unsafe { (Ctx::new(ctx), &*data.cast::<raw::RedisModuleClientInfo>()) };
        guarded((), || instance().engine.ledger.watcher_left(ctx.locked(), client.id));
    }
}

/// The main loop is about to sleep: every WATCH that was sent has been executed or refused.
pub fn before_sleep(locked: Locked<'_>) {
    let (watches, may_wait) = (&instance().watches, instance().pause.was_lately());
    if watches.sent.get() {
        watches.sent.set(may_wait);
        {
            let mut turn = watches.turn.lock();
            (turn.marked, turn.has_asked) = (0, false);
        }
        if instance().watches.any_waiting.get() {
            settle(locked);
        }
        instance().engine.ledger.give_up_marks(locked, may_wait);
    }
    if may_wait {
        // An EXEC that was held up comes without a filter.
        instance().engine.ledger.tell_expired(locked);
    }
}

/// Whether a WATCH that is sent now may have to wait until a pause has ended.
fn may_wait_itself(locked: Locked<'_>) -> bool {
    instance().pause.now(locked) != Paused::No
}

/// An EXEC is about to be executed or aborted: the host is first notified of watched keys that have
/// expired.
pub fn before_exec(locked: Locked<'_>) {
    before_read(locked);
    instance().engine.ledger.tell_expired(locked);
}

/// Notifies the host that a watched key has changed in these databases.
pub fn tell(locked: Locked<'_>, databases: &[u32], key: &[u8]) {
    instance().ctx(locked).signal_modified_in(databases, key);
}
