//! A command that could not run at once, on its way to a thread that can run it, and home.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::call::{Author, Call};
use super::job::{JobOwner, JobReply};
use super::seat::Seat;
use crate::command::{COMMANDS, Keys, OwnedArgs, Tape};
use crate::sync::Locked;

/// Who wants a queued command's completion back.
pub enum Home {
    /// The host's main thread, for this client of the host's door.
    Main(Box<dyn HostClient>),
    /// The port of this worker, for the connection of that number.
    Worker {
        /// The worker.
        worker: usize,
        /// The connection, as its port numbers it.
        connection: u64,
    },
}

/// A client of the host's door that waits for a command's reply, or for a job.
pub trait HostClient: Any + Send {
    /// Writes a reply that is too large for the main thread, or for the client, who is closed then;
    /// [`HostClient::answer`] follows. On any thread.
    fn write_large(&self, tape: &Tape);

    /// Answers it; nothing is left to be said where the reply is empty.
    fn answer(self: Box<Self>, locked: Locked<'_>, author: Author, reply: Tape);

    /// Has it wait for a job: whom the job is for, and how it answers.
    fn wait_for_job(self: Box<Self>, locked: Locked<'_>, db: u32) -> (JobOwner, Box<dyn JobReply>);
}

/// What must happen to a request that came home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It ran: give its reply to the client.
    Done,
    /// Only the main thread can go on with it: tokens were not to be had
    /// together, or it writes to a watched key.
    NeedsMain,
    /// It is long work: the port that asked for it starts the job, or the main thread for the host's door.
    Long,
}

/// A queued command.
pub struct Request {
    /// The command's number.
    pub command: usize,
    /// Its arguments, copied or kept.
    pub args: OwnedArgs,
    /// The client's database.
    pub db: u32,
    /// See [`Call::prefix`].
    pub prefix: &'static str,
    /// See [`Call::author`].
    pub author: Author,
    /// Who gets the completion.
    pub home: Home,
    /// The reply, once it has run.
    pub reply: Tape,
    /// What happened to it.
    pub verdict: Verdict,
    /// How often tokens were not to be had.
    pub(super) tries: u8,
    /// Raised when the client's connection is closed, where the door tells.
    pub client_gone: Option<Arc<AtomicBool>>,
}

impl Request {
    /// It ran, and this is its reply.
    pub(super) fn finish(&mut self, seat: &Seat, tape: Tape) {
        seat.ran_queued.add(1);
        self.verdict = Verdict::Done;
        match &self.home {
            Home::Main(client) if tape.is_large() => client.write_large(&tape),
            _ => self.reply = tape,
        }
    }

    /// Whether it is one of the host's door.
    pub fn is_of_host(&self) -> bool {
        matches!(self.home, Home::Main(_))
    }

    /// Whether nobody waits for it any more: then it is not run.
    pub fn is_abandoned(&self) -> bool {
        self.client_gone.as_ref().is_some_and(|gone| gone.load(Ordering::Relaxed))
    }

    /// Whether one shard is all it needs.
    pub(super) fn is_on_one_shard(&self) -> bool {
        COMMANDS[self.command].is_on_one_shard(self.args.len())
    }

    /// The key that says which shard it needs, or needs first.
    pub(super) fn first_key(&self) -> Option<&[u8]> {
        let row = COMMANDS[self.command];
        (row.keys != Keys::None).then(|| self.args.get(row.first_key()))
    }

    /// A copy of a call, for another thread.
    pub fn new(call: &Call<'_>, home: Home) -> Self {
        Request {
            command: call.command,
            args: call.args.to_owned(call.limits.keep_bytes),
            db: call.db,
            prefix: call.prefix,
            author: call.author,
            home,
            reply: Tape::default(),
            verdict: Verdict::Done,
            tries: 0,
            client_gone: None,
        }
    }
}
