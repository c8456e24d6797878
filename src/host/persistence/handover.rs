//! The hand-over of the tail before clients are paused.
//!
//! During a pause the host takes nothing for its log, and FAILOVER ends with another master. What
//! workers have written, and the host does not have by then, would be taken back, although readers
//! may have seen it. So when a command that pauses clients is about to run, workers stop writing,
//! and the whole tail goes into the host's log before that command.
//!
//! ```text
//! filter: FAILOVER, CLIENT PAUSE, SHUTDOWN, or an EXEC that may have one ─► Mode::Paused, tail ─► log
//! before sleep: clients are paused ─► it stays so until the pause is over
//!               they are not       ─► workers write again
//! ```
//!
//! The filter does not know whether the sender may do that, and anybody can send such commands. So
//! there is one hand-over in a turn of the main loop at most, and what workers cannot write
//! meanwhile the main thread writes when the turn ends.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use redis_module::raw;

use super::super::api::{Ctx, is_connected, must_not_replicate};
use super::super::context::Filtered;
use super::super::gates::GATES;
use super::super::instance::instance;
use super::super::modules;
use super::journal;
use crate::engine::{Gates, Mode};
use crate::limits::EXECS_AFTER_PAUSE;

/// Whether the tail has been handed over in this turn of the main loop.
static HAS_BEGUN: AtomicBool = AtomicBool::new(false);

/// How many of the next EXECs may have a command that pauses clients.
static EXECS: AtomicU32 = AtomicU32::new(0);

/// A command that pauses clients is about to be executed, queued or refused.
pub fn before_pause(command: Filtered<'_>) {
    EXECS.store(EXECS_AFTER_PAUSE, Ordering::Relaxed);
    begin(command);
}

/// An EXEC is about to be executed or aborted: such a command may be queued in it.
pub fn before_exec(command: Filtered<'_>) {
    let left = EXECS.load(Ordering::Relaxed);
    if left > 0 {
        EXECS.store(left - 1, Ordering::Relaxed);
        begin(command);
    }
}

fn begin(command: Filtered<'_>) {
    let (engine, locked) = (&*instance().engine, command.locked());
    let ctx = instance().ctx(locked);
    // Paused, or closed to all: there is nothing that could be logged.
    let is_of_use = engine.mode() == Mode::Logged
        && !engine.gates().has(Gates::AOF_ERROR)
        && !must_not_replicate(locked)
        && is_outermost(command, ctx);
    if !is_of_use || HAS_BEGUN.swap(true, Ordering::Relaxed) {
        return;
    }
    GATES.begin_handover(ctx);
    if engine.context().main.is_asleep() {
        // Commands also run after BEFORE_SLEEP: the turn must end soon all the same.
        engine.context().outside.wake_main();
    }
    journal::hand_over(ctx);
}

/// Whether the command is called by nothing else: what is logged inside of another command the host
/// has only when that ends, and clients are paused by then.
fn is_outermost(command: Filtered<'_>, ctx: Ctx<'_>) -> bool {
    const INSIDE: u32 = raw::REDISMODULE_CTX_FLAGS_MULTI | raw::REDISMODULE_CTX_FLAGS_LUA;
    let by_client = command.client_id().map_or_else(modules::is_midi_alone, is_connected);
    by_client && ctx.flags() & INSIDE == 0
}

/// The main loop is about to sleep: what was sent has been executed, queued or refused.
#[inline]
pub fn turn_ends(ctx: Ctx<'_>) {
    if HAS_BEGUN.load(Ordering::Relaxed) {
        HAS_BEGUN.store(false, Ordering::Relaxed);
        GATES.end_handover(ctx);
    }
}
