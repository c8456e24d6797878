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

use midi_module_api as raw;

use super::super::super::api::{Ctx, is_connected};
use super::super::super::context::Filtered;
use super::super::super::instance::instance;
use super::super::super::{modules, pause};
use crate::engine::{Gates, Mode};
use crate::limits::EXECS_AFTER_PAUSE;

/// A command that pauses clients is about to be executed, queued or refused.
pub fn before_pause(command: Filtered<'_>) {
    instance().pause.execs.set(EXECS_AFTER_PAUSE.into());
    begin(command);
}

/// An EXEC is about to be executed or aborted: such a command may be queued in it.
pub fn before_exec(command: Filtered<'_>) {
    let execs = &instance().pause.execs;
    if execs.get() > 0 {
        execs.set(execs.get() - 1);
        begin(command);
    }
}

fn begin(command: Filtered<'_>) {
    let (engine, locked) = (&*instance().engine, command.locked());
    let ctx = instance().ctx(locked);
    instance().wake_behind_turn();
    if instance().doing.hands_over.get() {
        return;
    }
    // Else nothing could be logged.
    if engine.gates().has(Gates::AOF_ERROR) || pause::is_on(locked) || !is_outermost(command, ctx) {
        return;
    }
    // A save that came in this turn is over.
    instance().gates.check(ctx);
    if engine.mode() != Mode::Logged {
        return;
    }
    // From here to the end of the turn no worker writes.
    instance().doing.hands_over.set(true);
    instance().gates.look(ctx);
    super::hand_over(ctx);
}

/// Whether the command is called by nothing else, and not while the host loads: what is logged
/// inside of another command the host has only when that ends, and clients are paused by then.
fn is_outermost(command: Filtered<'_>, ctx: Ctx<'_>) -> bool {
    const INSIDE: u32 = raw::REDISMODULE_CTX_FLAGS_MULTI
        | raw::REDISMODULE_CTX_FLAGS_LUA
        | raw::REDISMODULE_CTX_FLAGS_LOADING;
    let by_client = command.client_id().map_or_else(modules::is_midi_alone, is_connected);
    by_client && ctx.flags() & INSIDE == 0
}
