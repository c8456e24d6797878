//! WATCH, which is the host's command: what it must be told of midi's keys.
//!
//! Host and module share the names: a watched key is one in both keyspaces.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use redis_module::raw;

use super::api::{RawCtx, api, bytes, must_not_replicate, subscribe};
use super::door::door;
use super::{guarded, news};

/// Whether a WATCH has been said since the marks were last counted.
static SAID: AtomicBool = AtomicBool::new(false);

/// After a pause the host takes a turn of its main loop or two to come to the commands that waited.
const TURNS_AFTER_PAUSE: u8 = 3;

/// Turns until what waited for the end of a pause has been executed; 0 where there was none.
static PAUSED: AtomicU8 = AtomicU8::new(0);

/// A WATCH is about to be executed, or refused: anybody can say it, without a password, too.
pub fn before_watch(filter: *mut raw::RedisModuleCommandFilterCtx) {
    let (engine, client) = (&door().engine, client_of(filter));
    SAID.store(true, Ordering::Relaxed);
    engine.begin_watch(client, is_paused() || must_not_replicate());
    // SAFETY: the filter's own context, and arguments that it holds.
    unsafe {
        for number in 1..api!(RedisModule_CommandFilterArgsCount)(filter) {
            engine.watch(bytes(api!(RedisModule_CommandFilterArgGet)(filter, number)), client);
        }
    }
    // News from before are none for who watches from now on.
    news::tell(None);
    news::forget_authors();
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
        door().engine.give_up_marks(is_paused());
    }
}

/// Whether a WATCH that came while clients were paused may still have to be executed.
fn is_paused() -> bool {
    PAUSED.load(Ordering::Relaxed) > 0
}

/// An EXEC is about to be judged.
pub fn before_exec() {
    door().engine.tell_expired();
}

/// A watched key has changed in these databases. Under the global lock.
pub fn tell(databases: &[u32], key: &[u8]) {
    door().ctx().signal_modified_in(databases, key);
}
