//! WATCH, which is the host's command: how the host is notified of changes to midi's keys.
//!
//! Host and module share the names: a watched name is watched in both keyspaces.
//!
//! The filter sees a WATCH before the host has checked the client's rights. So a turn of the main
//! loop marks only a few names at once. The others wait until a client could act on the reply to
//! the WATCH: until the end of the turn, or the next of midi's commands. Then the host is asked
//! whether it has executed any WATCH at all.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use parking_lot::Mutex;
use redis_module::raw;

use super::api::{Ctx, RawCtx, RawEvent, must_not_replicate, subscribe};
use super::context::Filtered;
use super::instance::instance;
use super::users::USERS;
use super::{guarded, notifications};
use crate::engine::Locked;
use crate::limits::{WATCHED_AT_ONCE_BYTES, WATCHED_NAME_BYTES, WATCHED_WAITING_BYTES};

/// Whether a WATCH has been sent since the marks were last counted.
static SAID: AtomicBool = AtomicBool::new(false);

/// After a pause the host needs one or two turns of its main loop to reach the commands that
/// waited.
const TURNS_AFTER_PAUSE: u8 = 3;

/// Turns left until what waited for the end of a pause has been executed; 0 if there was no pause.
static PAUSED: AtomicU8 = AtomicU8::new(0);

/// The WATCHes of this turn of the main loop.
static TURN: Mutex<Turn> = Mutex::new(Turn {
    marked: 0,
    waiting: Vec::new(),
    waiting_bytes: 0,
    has_asked: false,
    said: 0,
    counts: WatchCounts { executed: 0, refused: 0 },
});

/// Whether any name waits, readable without the lock.
static ANY_WAITING: AtomicBool = AtomicBool::new(false);

/// The client that sent a WATCH, if the host reports it, and its names.
type PendingNames = (Option<u64>, Vec<Box<[u8]>>);

struct Turn {
    /// Bytes of names that were marked at once.
    marked: usize,
    /// Names that are not marked yet.
    waiting: Vec<PendingNames>,
    /// The bytes of those.
    waiting_bytes: usize,
    /// Whether the host has been asked before the end of the turn.
    has_asked: bool,
    /// WATCHes since the host was last asked.
    said: u64,
    /// The host's counts at that time.
    counts: WatchCounts,
}

/// The host's counts of WATCHes, by their outcome.
#[derive(Clone, Copy, PartialEq, Eq)]
struct WatchCounts {
    executed: u64,
    refused: u64,
}

/// A WATCH is about to be executed or refused: any client can send it, even one that has not logged
/// in.
pub fn before_watch(command: Filtered<'_>) {
    let (client, locked) = (client_of(command), command.locked());
    SAID.store(true, Ordering::Relaxed);
    // Earlier changes must not count for a client that watches from now on: send their
    // notifications first.
    notifications::tell(locked, None);
    notifications::forget_authors(locked);
    let names = (1..command.count()).map(|number| command.arg(number));
    let size: usize = names.clone().map(|name| name.len() + WATCHED_NAME_BYTES).sum();
    let mut turn = TURN.lock();
    if turn.waiting_bytes > WATCHED_WAITING_BYTES {
        drop(turn);
        settle(locked);
        turn = TURN.lock();
    }
    turn.said += 1;
    let is_little = turn.waiting.is_empty() && turn.marked + size <= WATCHED_AT_ONCE_BYTES;
    if is_little || may_wait_itself(locked) || USERS.replies_leave_early(locked) {
        turn.marked += size;
        drop(turn);
        return mark(locked, client, names);
    }
    turn.waiting.push((client, names.map(Into::into).collect()));
    turn.waiting_bytes += size;
    ANY_WAITING.store(true, Ordering::Relaxed);
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
    if ANY_WAITING.load(Ordering::Relaxed) {
        let has_asked = std::mem::replace(&mut TURN.lock().has_asked, true);
        // Asking once in a turn is enough: it takes as long as marking some names.
        if has_asked { mark_waiting(locked) } else { settle(locked) }
    }
}

/// Marks the names that wait, or forgets them if the host has executed no WATCH since it was last
/// asked.
fn settle(locked: Locked<'_>) {
    let mut turn = TURN.lock();
    if turn.was_any_executed(locked) {
        drop(turn);
        mark_waiting(locked);
    } else {
        turn.take_waiting();
    }
}

fn mark_waiting(locked: Locked<'_>) {
    let waiting = TURN.lock().take_waiting();
    for (client, names) in waiting {
        mark(locked, client, names.iter().map(|name| &**name));
    }
}

impl Turn {
    fn take_waiting(&mut self) -> Vec<PendingNames> {
        ANY_WAITING.store(false, Ordering::Relaxed);
        self.waiting_bytes = 0;
        std::mem::take(&mut self.waiting)
    }

    /// Whether the host has executed any WATCH since this was last asked, as far as it reports. If
    /// not, earlier marks are taken back: the clients that asked for them were refused.
    fn was_any_executed(&mut self, locked: Locked<'_>) -> bool {
        let (engine, said) = (&instance().engine, std::mem::take(&mut self.said));
        let counts = WatchCounts::now(locked);
        let before = std::mem::replace(&mut self.counts, counts);
        // Do not compare the number of executed ones alone: CONFIG RESETSTAT may have reset it
        // meanwhile.
        let none = counts == WatchCounts { refused: before.refused + said, ..before }
            && !may_wait_itself(locked);
        if none {
            engine.ledger.take_back_marks(locked)
        } else {
            engine.ledger.confirm_marks()
        }
        !none
    }
}

impl WatchCounts {
    /// As the host reports them; 0 before its first WATCH.
    fn now(locked: Locked<'_>) -> WatchCounts {
        let text =
            instance().ctx(locked).info_text(c"commandstats", c"cmdstat_watch").unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let number =
            |name: &str| text.split(',').find_map(|field| field.strip_prefix(name)?.parse().ok());
        WatchCounts {
            executed: number("calls=").unwrap_or(0),
            refused: number("rejected_calls=").unwrap_or(0),
        }
    }
}

/// A tenth of a second has passed: marks of clients that were refused are removed, however few
/// there are.
pub fn on_cron(locked: Locked<'_>) {
    if ANY_WAITING.load(Ordering::Relaxed) || instance().engine.ledger.has_unconfirmed_marks() {
        settle(locked);
    }
}

/// The client that sent the command, if the host also reports when it disconnects; `None`
/// otherwise.
fn client_of(command: Filtered<'_>) -> Option<u64> {
    static IS_SUBSCRIBED: AtomicBool = AtomicBool::new(false);
    let client = command.client_id()?;
    // Only when needed: it costs the host something for every client that connects or disconnects.
    if !IS_SUBSCRIBED.load(Ordering::Relaxed) {
        let ctx = instance().ctx(command.locked());
        IS_SUBSCRIBED.store(
            subscribe(ctx, raw::REDISMODULE_EVENT_CLIENT_CHANGE, on_client),
            Ordering::Relaxed,
        );
    }
    IS_SUBSCRIBED.load(Ordering::Relaxed).then_some(client)
}

unsafe extern "C" fn on_client(ctx: *mut RawCtx, _: RawEvent, sub: u64, data: *mut c_void) {
    if sub == raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED {
        // SAFETY: the event's context, and its data is this structure.
        let (ctx, client) = unsafe { (Ctx::new(ctx), &*data.cast::<raw::RedisModuleClientInfo>()) };
        guarded((), || instance().engine.ledger.watcher_left(ctx.locked(), client.id));
    }
}

/// The main loop is about to sleep: what was sent has been executed or refused.
pub fn before_sleep(locked: Locked<'_>) {
    if must_not_replicate(locked) {
        PAUSED.store(TURNS_AFTER_PAUSE, Ordering::Relaxed);
    } else if is_paused() {
        PAUSED.fetch_sub(1, Ordering::Relaxed);
    }
    if SAID.load(Ordering::Relaxed) {
        SAID.store(is_paused(), Ordering::Relaxed);
        {
            let mut turn = TURN.lock();
            (turn.marked, turn.has_asked) = (0, false);
        }
        if ANY_WAITING.load(Ordering::Relaxed) {
            settle(locked);
        }
        instance().engine.ledger.give_up_marks(locked, is_paused());
    }
}

/// Whether a WATCH that is sent now may have to wait until a pause has ended.
fn may_wait_itself(locked: Locked<'_>) -> bool {
    is_paused() || must_not_replicate(locked)
}

/// Whether a WATCH that was sent while clients were paused may still have to be executed.
fn is_paused() -> bool {
    PAUSED.load(Ordering::Relaxed) > 0
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
