//! The contexts in which a thread may write to the host's log.

use std::cell::Cell;

use midi_module_api as raw;

use super::super::super::api::{Ctx, RawCtx, is_connected};
use super::super::super::instance::instance;
use super::super::super::string::HostString;
use super::super::super::{modules, pause, rights};
use super::replicate::{
    is_as_command, replicate_command, replicate_each, replicate_record, replicate_text,
};
use crate::command::Command;
use crate::command::record::{Words, are_words_of};
use crate::engine::{HostLog, Locked, Logged, Mode};
use crate::limits::PARTS_UNWRITTEN_BYTES;

thread_local! {
    /// Where this thread may log. Not a field of the instance: in RM_Yield a thread lends the
    /// global lock to another, in the middle of a command.
    static PLACE: Cell<Option<LogPlace>> = const { Cell::new(None) };
}

/// A context in which a thread may log.
#[derive(Clone, Copy)]
struct LogPlace {
    ctx: *mut RawCtx,
    /// The command that the host has called in it, and its arguments, the name included.
    command: Option<(&'static Command, *const [HostString<'static>])>,
}

/// While it lives, this thread logs in this context.
pub struct Logging {
    outer: Option<LogPlace>,
}

impl Logging {
    /// From now on the thread logs in the context of an event in which midi may log. `None` if
    /// nothing is logged.
    #[inline]
    pub fn begin(ctx: Ctx<'_>) -> Option<Self> {
        Self::at(LogPlace { ctx: ctx.raw(), command: None })
    }

    /// As [`Logging::begin`], in the context of a command of midi's, with its arguments.
    #[inline]
    pub fn begin_command(
        ctx: Ctx<'_>,
        row: &'static Command,
        argv: &[HostString<'_>],
    ) -> Option<Self> {
        let argv: *const [HostString<'_>] = argv;
        Self::at(LogPlace { ctx: ctx.raw(), command: Some((row, argv as *const _)) })
    }

    fn at(place: LogPlace) -> Option<Self> {
        let is_logged = instance().engine.mode() != Mode::Fast;
        is_logged.then(|| Logging { outer: PLACE.replace(Some(place)) })
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        PLACE.set(self.outer);
    }
}

/// Whether the host lets a module log in this context, of this command or of an event. The host
/// ends its process otherwise. During a pause only the transaction that has begun it may. A write
/// that a client has queued is in that one, since the host begins no other with a write then.
pub fn may_log(ctx: Ctx<'_>, row: Option<&Command>) -> bool {
    // What the host takes for a write.
    let writes = |row: &Command| row.flags.write || row.flags.host_write;
    !pause::is_on(ctx.locked())
        || ctx.flags() & raw::REDISMODULE_CTX_FLAGS_MULTI != 0
            && (row.is_some_and(writes) && is_of_client(ctx)
                || instance().pause.surely_began_in_exec())
}

/// Whether the command is a client's own, not called by another module. Not known of a script's
/// where other modules are loaded.
fn is_of_client(ctx: Ctx<'_>) -> bool {
    modules::is_midi_alone() || is_connected(ctx.client_id())
}

/// Whether another module has called the command. If it did not ask for replication, the host
/// logs nothing of what is done here, and reports nothing: that is not for the writes of others.
pub fn is_called_by_module(ctx: Ctx<'_>) -> bool {
    const UNIT: u32 = raw::REDISMODULE_CTX_FLAGS_MULTI | raw::REDISMODULE_CTX_FLAGS_LUA;
    let flags = ctx.flags();
    flags & UNIT == 0
        && (flags & raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING != 0 || rights::is_of_module(ctx))
}

/// The host's log, as the engine knows it.
pub struct TheLog;

impl HostLog for TheLog {
    fn may_log(&self, _: Locked<'_>) -> bool {
        PLACE.get().is_some_and(|place| place.may_log())
    }

    /// Not while slots leave: then each record is logged by itself.
    fn takes_parts(&self) -> bool {
        !instance().slots.leaving.get()
    }

    /// Beside an fsync of `everysec` the host does not write, and all that is logged stays in its
    /// buffer. It looks again ten times a second, or when a client has it turn its main loop.
    /// Before a pause nothing waits.
    fn has_room_for_part(&self, locked: Locked<'_>) -> bool {
        let unwritten = instance().ctx(locked).info_number(c"persistence", c"aof_buffer_length");
        instance().hand_over.calls_journal.get()
            || unwritten.unwrap_or(0) < PARTS_UNWRITTEN_BYTES as u64
    }

    fn write(&self, _: Locked<'_>, logged: Logged<'_>) -> bool {
        let Some(place) = PLACE.get() else { return false };
        let ctx = place.ctx();
        let has_others = !logged.is_own_only() && !instance().hand_over.calls_journal.get();
        // Events have no caller.
        if !place.may_log() || has_others && place.command.is_some() && is_called_by_module(ctx) {
            return false;
        }
        match logged {
            Logged::Record { db, text, version }
                if db == ctx.selected_db()
                    && (version <= 2 || instance().slots.leaving.get())
                    && place.is_command(text.words()) =>
            {
                replicate_command(ctx)
            }
            Logged::Record { db, text, .. } if db == ctx.selected_db() && is_as_command(text) => {
                replicate_record(ctx, text.words())
            }
            _ if instance().slots.leaving.get() => replicate_each(ctx, &logged.text()),
            _ => replicate_text(ctx, &logged.text()),
        }
    }
}

impl LogPlace {
    fn ctx<'a>(self) -> Ctx<'a> {
        // SAFETY: `Logging` was made of a context that is valid while it lives.
        unsafe { Ctx::new(self.ctx) }
    }

    fn may_log(self) -> bool {
        may_log(self.ctx(), self.command.map(|(row, _)| row))
    }

    /// Whether the command that the host has called says just what this record says.
    fn is_command(&self, record: Words<'_>) -> bool {
        let Some((row, argv)) = self.command else { return false };
        // SAFETY: `Logging` was made of arguments that are valid while it lives.
        let argv = unsafe { &*argv };
        are_words_of(record, row.name, argv.iter().skip(1).map(|arg| arg.bytes()))
    }
}
