//! A call of a command, and the outcome of trying to run it.

use super::slot::ThreadSlot;
use crate::command::{Args, COMMANDS, Command, Error, Limits, OtherDbs, OwnedArgs, Reply};
use crate::limits::{MAIN_SPINS, WORKER_SPINS};
use crate::store::Now;
use crate::sync::Locked;

/// One call of a command.
pub struct Call<'a> {
    /// The command's number in [`COMMANDS`].
    pub command: usize,
    /// Its arguments.
    pub args: Args<'a>,
    /// The client's database.
    pub db: u32,
    /// The time at which it runs.
    pub now: Now,
    /// The limits that it must keep.
    pub limits: Limits,
    /// The door's prefix of the standard name, for error texts.
    pub prefix: &'static str,
    /// The client that makes its changes, for the host.
    pub author: Author,
}

impl Call<'_> {
    /// The row of the command table.
    #[inline]
    pub fn row(&self) -> &'static Command {
        COMMANDS[self.command]
    }

    /// The database that it would fill: the one that COPY names, or its own.
    pub fn filled_db(&self) -> u32 {
        match self.row().other_dbs {
            OtherDbs::Named(of) => of(&self.args, self.db).last().copied().unwrap_or(self.db),
            _ => self.db,
        }
    }

    /// The key that decides which shard the call needs, or needs first.
    #[inline]
    pub fn first_key(&self) -> &[u8] {
        self.args.get(self.row().first_key())
    }

    /// Whether eviction takes it for a use of its keys.
    #[inline]
    pub(super) fn is_use(&self) -> bool {
        let row = self.row();
        row.uses && (row.always_uses || !self.now.is_silent())
    }

    /// Turns the command's result into an outcome; writes its error to the reply.
    #[inline]
    pub(super) fn outcome_of(
        &self,
        slot: &ThreadSlot,
        result: Result<(), Error>,
        reply: &mut dyn Reply,
    ) -> Outcome {
        match result {
            Ok(()) => Outcome::Done,
            Err(Error::ReplyTooLarge) => Outcome::TooLarge,
            Err(Error::LongWork) => Outcome::Long,
            Err(error) => {
                slot.failed(self.command);
                self.refuse(error, reply);
                Outcome::Done
            }
        }
    }

    /// Answers a call that is not to run with an error, and counts that.
    #[cold]
    pub(super) fn reject(&self, slot: &ThreadSlot, error: Error, reply: &mut dyn Reply) -> Outcome {
        slot.rejected(self.command);
        self.refuse(error, reply);
        Outcome::Done
    }

    /// Writes an error to the reply, in Redis's words.
    #[cold]
    pub fn refuse(&self, error: Error, reply: &mut dyn Reply) {
        let name = format!("{}{}", self.prefix, self.row().name);
        reply.error(&error.text(&name, &self.args));
    }
}

/// A call with arguments of its own, to be made again later: queued, or in the slices of a job.
pub(super) struct KeptCall {
    pub(super) command: usize,
    /// Copied or kept; empty once a queued command has run.
    pub(super) args: OwnedArgs,
    pub(super) db: u32,
    /// Whether its client sees keys whose expiry has passed.
    pub(super) sees_passed: bool,
    /// Whether its client's commands are no use of their keys.
    pub(super) is_silent: bool,
    /// Longest value that its door stores, in bytes.
    max_value_bytes: usize,
    pub(super) prefix: &'static str,
}

impl KeptCall {
    /// A copy of a call. Arguments from `keep_bytes` on are kept instead of copied.
    pub(super) fn of(call: &Call<'_>, keep_bytes: usize) -> Self {
        KeptCall {
            command: call.command,
            args: call.args.to_owned(keep_bytes),
            db: call.db,
            sees_passed: call.now.sees_passed(),
            is_silent: call.now.is_silent(),
            max_value_bytes: call.limits.max_value_bytes,
            prefix: call.prefix,
        }
    }

    /// The call with these arguments.
    pub(super) fn again<'a>(
        &self,
        args: Args<'a>,
        now: Now,
        mut limits: Limits,
        author: Author,
    ) -> Call<'a> {
        limits.max_value_bytes = limits.max_value_bytes.min(self.max_value_bytes);
        Call { command: self.command, args, db: self.db, now, limits, prefix: self.prefix, author }
    }
}

/// How to take tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Taking<'l> {
    /// Try this many times.
    Try(u32),
    /// Wait, as the holder of the host's global lock may.
    Wait(Locked<'l>),
}

impl Taking<'_> {
    /// For the main thread: blocking a client costs it more than a short wait.
    pub const MAIN: Self = Taking::Try(MAIN_SPINS);
    /// For workers.
    pub const WORKER: Self = Taking::Try(WORKER_SPINS);
}

/// The outcome of an attempt. The dispatcher decides how the call goes on (`dispatch/mod.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The reply is complete; it may be an error.
    Done,
    /// A token was busy. Nothing has been done.
    Busy,
    /// The reply, or COPY's copy of a hash, is too large for this thread. Nothing has been done.
    TooLarge,
    /// This is long work: start a job, or run it to its end. The caller must take back the part of
    /// the reply that was written.
    Long,
    /// It writes to a watched key, which only the main thread may do; or the keyspace was closed
    /// just before, and the main thread finds out why. Nothing has been done.
    NeedsMain,
}

/// The client of the host that makes a change. It may have asked not to be notified of its own
/// changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    /// No client, or one that the host need not know.
    Nobody,
    /// The client whose command the main thread is running.
    Running,
    /// The client with this id, which waits for its reply.
    Waiting(u64),
}
