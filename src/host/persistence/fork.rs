//! Forks. The host does not tell modules before it forks, but pthread_atfork does: the forking
//! thread takes all tokens, so that the child's memory is the state at one moment, and releases
//! them in the parent.
//!
//! The child keeps them for good, and saves from the shards that it holds. No other thread lives
//! there: a lock that one of them held when the process forked is never released. So what runs in
//! the child takes no locks.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::super::instance::{if_in_use, instance};
use super::super::state::doing::ModuleStage;
use super::super::{guarded, kept};
use crate::engine::{AllHeld, Locked};
use crate::limits::FORK_PATIENCE;
use crate::store::Store;

thread_local! {
    /// While this thread forks: all tokens, if it has them, and how long it took to take them.
    static FORKING: Cell<Option<(Option<AllHeld<'static>>, Duration)>> = const { Cell::new(None) };
}

/// Has the handlers called at each fork from now on.
pub fn register() {
    // SAFETY: the handlers live forever: the library stays in memory even if the host takes the
    // module back.
    unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
}

/// All tokens, if this is a forked child whose memory is the state at one moment.
pub fn held_in_child() -> Option<&'static AllHeld<'static>> {
    instance().forks.in_child.get()
}

/// Why a child holds no tokens, for the log.
pub const NOT_HELD: &str = "a thread that is not the server's main thread has forked, and did not \
                            get hold of all shards in time";

/// Lends the shards that a child holds to whoever saves them.
pub fn lend(all: &'static AllHeld<'static>) -> impl FnMut(u32, &mut dyn FnMut(&Store)) + use<> {
    |shard, look| {
        if let Some(store) = all.store(shard) {
            look(store);
        }
    }
}

extern "C" fn prepare() {
    guarded((), || {
        // A child of a child: its parent holds all tokens already.
        if if_in_use().is_some_and(|instance| !instance.doing.is_child()) {
            let began = Instant::now();
            let held = if kept::is_main() { hold_on_main() } else { hold_elsewhere() };
            FORKING.set(Some((held, began.elapsed())));
        }
    });
}

/// The main thread holds the global lock whenever it forks.
fn hold_on_main() -> Option<AllHeld<'static>> {
    // SAFETY: see above.
    let locked = unsafe { Locked::assume() };
    // The child may be for a replica, or for an AOF: from now on writes would be missing there.
    instance().gates.before_fork(instance().ctx(locked));
    Some(instance().engine.shards().hold_all(locked))
}

/// Another thread may hold the global lock, but there is no way to find out. So it does not wait
/// for as long as it takes. If it does not get all tokens, its child cannot save midi's keys.
fn hold_elsewhere() -> Option<AllHeld<'static>> {
    instance().backlog.before_unknown_fork();
    instance().engine.shards().try_hold_all(Instant::now() + FORK_PATIENCE)
}

extern "C" fn in_parent() {
    guarded((), || {
        let Some((held, taking)) = FORKING.take() else { return };
        let began = Instant::now();
        match held {
            // SAFETY: the main thread holds the global lock whenever it forks.
            Some(all) if kept::is_main() => all.release_on_workers(unsafe { Locked::assume() }),
            // A worker may hold the lock now: only before it waits for a token does it look for
            // those that are left.
            Some(all) => all.release(),
            None => {}
        }
        let pause = (taking + began.elapsed()).as_micros() as u64;
        let forks = &instance().forks;
        forks.count.fetch_add(1, Ordering::Relaxed);
        forks.last_pause.store(pause, Ordering::Relaxed);
        forks.longest_pause.fetch_max(pause, Ordering::Relaxed);
    });
}

extern "C" fn in_child() {
    instance().doing.enter(ModuleStage::Forked);
    if let Some((Some(mut all), _)) = FORKING.take() {
        // A snapshot must not have the tail: the host's log has it later.
        // SAFETY: no other thread is here.
        let locked = unsafe { Locked::assume() };
        let is_whole = instance().engine.ledger.take_back_in_child(locked, &mut all);
        // Set once: `prepare` takes no tokens in a child. Without them the child cannot save.
        let unused = if is_whole { instance().forks.in_child.set(all).err() } else { Some(all) };
        std::mem::forget(unused);
    }
    if let Some(instance) = if_in_use() {
        instance.engine.ledger.admission.close_in_child();
    }
    close_listeners();
}

/// Closes the ports, so that the child does not keep their addresses when the server goes first.
fn close_listeners() {
    let ports = if_in_use().and_then(|instance| instance.engine.context().outside.ports());
    for &listener in ports.map_or(&[][..], |ports| ports.listeners()) {
        // SAFETY: the child's own copy of the descriptor, which nothing in it uses.
        unsafe { libc::close(listener) };
    }
}
