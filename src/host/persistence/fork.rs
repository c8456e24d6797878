//! Forks. The host does not tell modules before it forks, but pthread_atfork does: the forking
//! thread stops all shards, so that the child's memory is the state at one moment, and lets them go
//! on in the parent.
//!
//! In the child they stay so for good, and it saves from them. No other thread lives there: a lock
//! that one of them held when the process forked is never released. So what runs in the child takes
//! no locks.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::super::instance::{if_in_use, instance};
use super::super::state::doing::ModuleStage;
use super::super::{guarded, kept};
use crate::engine::{AllHeld, Locked, OnlyThread, Standstill};
use crate::limits::FORK_PATIENCE;
use crate::store::Store;

thread_local! {
    /// While this thread forks: how it keeps the shards as they are, and how long that took.
    static FORKING: Cell<Option<(Stillness, Duration)>> = const { Cell::new(None) };
}

/// How a thread that forks keeps the shards as they are.
enum Stillness {
    /// They are stopped.
    Stopped(Standstill<'static>),
    /// It holds all tokens.
    Tokens(AllHeld<'static>),
    /// It does not.
    Nothing,
}

/// Has the handlers called at each fork from now on.
pub fn register() {
    // SAFETY: the handlers live forever: the library stays in memory even if the host takes the
    // module back.
    unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
}

/// All shards, if this is a forked child whose memory is the state at one moment.
pub fn held_in_child() -> Option<&'static AllHeld<'static>> {
    instance().forks.in_child.get()
}

/// Why a child does not have them, for the log.
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
        // A child of a child: nothing runs in its parent.
        if if_in_use().is_some_and(|instance| !instance.doing.is_child()) {
            let began = Instant::now();
            let hold = if kept::is_main() { stop_on_main() } else { hold_elsewhere() };
            FORKING.set(Some((hold, began.elapsed())));
        }
    });
}

/// The main thread holds the global lock whenever it forks.
fn stop_on_main() -> Stillness {
    // SAFETY: see above.
    let locked = unsafe { Locked::assume() };
    // The child may be for a replica, or for an AOF: from now on writes would be missing there.
    instance().gates.before_fork(instance().ctx(locked));
    Stillness::Stopped(instance().engine.shards().stop(locked))
}

/// Another thread may hold the global lock, but there is no way to find out. So it does not wait
/// for as long as it takes, and does not stop the holder of the lock. If it does not get all
/// tokens, its child cannot save midi's keys.
fn hold_elsewhere() -> Stillness {
    instance().backlog.before_unknown_fork();
    let held = instance().engine.shards().try_hold_all(Instant::now() + FORK_PATIENCE);
    held.map_or(Stillness::Nothing, Stillness::Tokens)
}

extern "C" fn in_parent() {
    guarded((), || {
        let Some((hold, taking)) = FORKING.take() else { return };
        let began = Instant::now();
        match hold {
            Stillness::Stopped(standstill) => drop(standstill),
            Stillness::Tokens(all) => all.release(),
            Stillness::Nothing => {}
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
    let hold = FORKING.take().map_or(Stillness::Nothing, |(hold, _)| hold);
    let all = match hold {
        Stillness::Stopped(standstill) => {
            // SAFETY: no other thread is here, this one held no token, and the gate that is closed
            // below lets no command take one. A child of this child is another process.
            let alone = unsafe { OnlyThread::assume() };
            Some(standstill.in_child(alone))
        }
        Stillness::Tokens(all) => Some(all),
        Stillness::Nothing => None,
    };
    if let Some(mut all) = all {
        // A snapshot must not have the tail: the host's log has it later.
        // SAFETY: no other thread is here.
        let locked = unsafe { Locked::assume() };
        let is_whole = instance().engine.ledger.take_back_in_child(locked, &mut all);
        // Set once: `prepare` does nothing in a child. Without them the child cannot save.
        let unused = if is_whole { instance().forks.in_child.set(all).err() } else { Some(all) };
        std::mem::forget(unused);
    }
    if let Some(instance) = if_in_use() {
        instance.engine.ledger.admission.close_in_child();
    }
    close_ports();
}

/// Closes the ports, so that the child does not keep their addresses when the server goes first.
fn close_ports() {
    let ports = if_in_use().and_then(|instance| instance.engine.context().outside.ports());
    for &descriptor in ports.map_or(&[][..], |ports| ports.descriptors()) {
        // SAFETY: the child's own copy of the descriptor, which nothing in it uses.
        unsafe { libc::close(descriptor) };
    }
}
