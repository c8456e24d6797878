//! A call of a command, and what can come of trying to run it.

use crate::command::{Args, COMMANDS, Command, Error, Limits, Reply};
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
    /// When it happens.
    pub now: Now,
    /// What it must keep to.
    pub limits: Limits,
    /// What the door puts before the standard name, for error texts.
    pub prefix: &'static str,
    /// Whose changes these are, for the host.
    pub author: Author,
}

impl Call<'_> {
    /// The row of the command table.
    #[inline]
    pub fn row(&self) -> &'static Command {
        COMMANDS[self.command]
    }

    /// The key that says which shard it needs, or needs first.
    #[inline]
    pub fn first_key(&self) -> &[u8] {
        self.args.get(self.row().first_key())
    }

    /// Says an error in Redis's words.
    #[cold]
    pub fn refuse(&self, error: Error, reply: &mut dyn Reply) {
        let name = format!("{}{}", self.prefix, self.row().name);
        reply.error(&error.text(&name, &self.args));
    }
}

/// How to come by tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Taking<'l> {
    /// Try so often.
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

/// What became of an attempt. What is next for the call, the dispatcher says (`dispatch.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The reply, or an error, has been said.
    Done,
    /// A token was not to be had. Nothing has been done.
    Busy,
    /// The reply is too large for this thread. Nothing has been done.
    TooLarge,
    /// This is long work: start a job, or run it to its end. What the reply has been told is to be
    /// taken back.
    Long,
    /// It writes to a watched key, which only the main thread may do. Nothing has been done.
    NeedsMain,
}

/// The client of the host that makes a change. It may have asked to hear nothing of its own ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    /// None, or one that need not be known.
    Nobody,
    /// The one whose command the main thread runs.
    Running,
    /// The one of that id, which waits for its reply.
    Waiting(u64),
}
