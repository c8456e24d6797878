//! WATCH, which is the host's command: what it must be told of midi's keys.
//!
//! Host and module share the names: a watched key is one in both keyspaces.

use redis_module::raw;

use super::api::{api, bytes};
use super::door::door;
use super::news;

/// A WATCH is about to be executed, or refused.
pub fn before_watch(filter: *mut raw::RedisModuleCommandFilterCtx) {
    let engine = &door().engine;
    // SAFETY: the filter's own context, and arguments that it holds.
    unsafe {
        for number in 1..api!(RedisModule_CommandFilterArgsCount)(filter) {
            engine.watch(bytes(api!(RedisModule_CommandFilterArgGet)(filter, number)));
        }
    }
    // News from before are none for who watches from now on.
    news::tell(None);
    news::forget_authors();
}

/// An EXEC is about to be judged.
pub fn before_exec() {
    door().engine.tell_expired();
}

/// A watched key has changed. Under the global lock.
pub fn tell(db: u32, key: &[u8]) {
    door().ctx().signal_modified(db, key);
}
