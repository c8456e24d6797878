//! WATCH, which is the host's command: what it must be told of midi's keys.
//!
//! Host and module share the names: a watched key is one in both keyspaces.
//!
//! The filter sees a WATCH before the host has asked who says it. So a turn of the main loop marks few names
//! at once; the others wait until somebody could act on what the WATCH answered: until the end of the turn, or
//! the next of midi's commands. Then the host is asked whether it has executed any WATCH at all.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use parking_lot::Mutex;
use redis_module::raw;

use super::api::{RawCtx, api, bytes, must_not_replicate, subscribe};
use super::door::door;
use super::{guarded, news, users};
use crate::limits::{WATCHED_AT_ONCE_BYTES, WATCHED_NAME_BYTES, WATCHED_WAITING_BYTES};

/// Whether a WATCH has been said since the marks were last counted.
static SAID: AtomicBool = AtomicBool::new(false);

/// After a pause the host takes a turn of its main loop or two to come to the commands that waited.
const TURNS_AFTER_PAUSE: u8 = 3;

/// Turns until what waited for the end of a pause has been executed; 0 where there was none.
static PAUSED: AtomicU8 = AtomicU8::new(0);

/// What WATCH has said in this turn of the main loop.
static TURN: Mutex<Turn> = Mutex::new(Turn {
    marked: 0,
    waiting: Vec::new(),
    waiting_bytes: 0,
    has_asked: false,
    said: 0,
    counts: Counts { executed: 0, refused: 0 },
});

/// Whether any name waits, for a look without the lock.
static ANY_WAITING: AtomicBool = AtomicBool::new(false);

/// Who said a WATCH, where the host tells, and its names.
type Waiting = (Option<u64>, Vec<Box<[u8]>>);

struct Turn {
    /// Bytes of names that were marked at once.
    marked: usize,
    /// What is not marked yet.
    waiting: Vec<Waiting>,
    /// Their bytes.
    waiting_bytes: usize,
    /// The host has been asked before the end of the turn.
    has_asked: bool,
    /// WATCHes since the host was last asked.
    said: u64,
    /// What it answered then.
    counts: Counts,
}

/// WATCHes by what became of them, as the host has counted them.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Counts {
    executed: u64,
    refused: u64,
}

/// A WATCH is about to be executed, or refused: anybody can say it, without a password, too.
pub fn before_watch(filter: *mut raw::RedisModuleCommandFilterCtx) {
    let client = client_of(filter);
    SAID.store(true, Ordering::Relaxed);
    // News from before are none for who watches from now on.
    news::tell(None);
    news::forget_authors();
    // SAFETY: the filter's own context, and arguments that it holds while the filter runs.
    let names = (1..unsafe { api!(RedisModule_CommandFilterArgsCount)(filter) })
        .map(|number| unsafe { bytes(api!(RedisModule_CommandFilterArgGet)(filter, number)) });
    let size: usize = names.clone().map(|name| name.len() + WATCHED_NAME_BYTES).sum();
    let mut turn = TURN.lock();
    if turn.waiting_bytes > WATCHED_WAITING_BYTES {
        drop(turn);
        settle();
        turn = TURN.lock();
    }
    turn.said += 1;
    let is_little = turn.waiting.is_empty() && turn.marked + size <= WATCHED_AT_ONCE_BYTES;
    if is_little || may_wait_itself() || users::changes::replies_leave_early() {
        turn.marked += size;
        drop(turn);
        return mark(client, names);
    }
    turn.waiting.push((client, names.map(Into::into).collect()));
    turn.waiting_bytes += size;
    ANY_WAITING.store(true, Ordering::Relaxed);
}

/// From here on changes of these keys are told.
fn mark<'a>(client: Option<u64>, names: impl Iterator<Item = &'a [u8]>) {
    let engine = &door().engine;
    engine.begin_watch(client, may_wait_itself());
    names.for_each(|name| engine.watch(name, client));
}

/// A command of midi's, or an EXEC, follows in the same turn: it may come from a client whose WATCH waits.
#[inline]
pub fn before_read() {
    if ANY_WAITING.load(Ordering::Relaxed) {
        let has_asked = std::mem::replace(&mut TURN.lock().has_asked, true);
        // Once in a turn is enough: it takes as long as marking some names.
        if has_asked { mark_waiting() } else { settle() }
    }
}

/// Marks the names that wait, or forgets them where the host has executed no WATCH since it was last asked.
fn settle() {
    let mut turn = TURN.lock();
    if turn.was_any_executed() {
        drop(turn);
        mark_waiting();
    } else {
        turn.take_waiting();
    }
}

fn mark_waiting() {
    let waiting = TURN.lock().take_waiting();
    for (client, names) in waiting {
        mark(client, names.iter().map(|name| &**name));
    }
}

impl Turn {
    fn take_waiting(&mut self) -> Vec<Waiting> {
        ANY_WAITING.store(false, Ordering::Relaxed);
        self.waiting_bytes = 0;
        std::mem::take(&mut self.waiting)
    }

    /// Whether the host has executed any WATCH since this was last asked, as far as it tells. Marks of before are
    /// taken back where not: whoever said those was refused.
    fn was_any_executed(&mut self) -> bool {
        let (engine, said) = (&door().engine, std::mem::take(&mut self.said));
        let counts = Counts::now();
        let before = std::mem::replace(&mut self.counts, counts);
        // Not by the number of executed ones alone: somebody may have reset it meanwhile.
        let none = counts == Counts { refused: before.refused + said, ..before } && !may_wait_itself();
        if none {
            engine.take_back_marks()
        } else {
            engine.confirm_marks()
        }
        !none
    }
}

impl Counts {
    /// As the host says; none before it has come across a WATCH.
    fn now() -> Counts {
        let text = door().ctx().info_text(c"commandstats", c"cmdstat_watch").unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let number = |name: &str| text.split(',').find_map(|field| field.strip_prefix(name)?.parse().ok());
        Counts { executed: number("calls=").unwrap_or(0), refused: number("rejected_calls=").unwrap_or(0) }
    }
}

/// A tenth of a second has passed: marks of those who were refused go, however few there are.
pub fn on_cron() {
    if ANY_WAITING.load(Ordering::Relaxed) || door().engine.has_unconfirmed_marks() {
        settle();
    }
}

/// Who says it, and then is told of when gone; `None` where the host tells of neither.
fn client_of(filter: *mut raw::RedisModuleCommandFilterCtx) -> Option<u64> {
    static HEARS: AtomicBool = AtomicBool::new(false);
    // SAFETY: filled in at load, and never changed; the filter's own context.
    let client = unsafe { raw::RedisModule_CommandFilterGetClientId.map(|ask| ask(filter)) }?;
    // Not before there is need: it costs the host something with every client that comes or goes.
    if !HEARS.load(Ordering::Relaxed) {
        HEARS.store(
            subscribe(door().ctx(), raw::REDISMODULE_EVENT_CLIENT_CHANGE, on_client),
            Ordering::Relaxed,
        );
    }
    HEARS.load(Ordering::Relaxed).then_some(client)
}

unsafe extern "C" fn on_client(_: *mut RawCtx, _: raw::RedisModuleEvent, sub: u64, data: *mut c_void) {
    if sub == raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED {
        // SAFETY: the data of this event is this structure.
        let client = unsafe { &*data.cast::<raw::RedisModuleClientInfo>() };
        guarded((), || door().engine.watcher_left(client.id));
    }
}

/// The main loop is about to sleep: what was said has been executed or refused.
pub fn before_sleep() {
    if must_not_replicate() {
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
            settle();
        }
        door().engine.give_up_marks(is_paused());
    }
}

/// Whether the WATCH that is said now may have to wait until a pause has ended.
fn may_wait_itself() -> bool {
    is_paused() || must_not_replicate()
}

/// Whether a WATCH that came while clients were paused may still have to be executed.
fn is_paused() -> bool {
    PAUSED.load(Ordering::Relaxed) > 0
}

/// An EXEC is about to be judged.
pub fn before_exec() {
    before_read();
    door().engine.tell_expired();
}

/// A watched key has changed in these databases. Under the global lock.
pub fn tell(databases: &[u32], key: &[u8]) {
    door().ctx().signal_modified_in(databases, key);
}
