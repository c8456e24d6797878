//! A command that could not run at once, on its way to a thread that can run it, and back to its
//! origin.

use std::any::Any;
use std::time::Duration;

use super::call::{Author, Call, KeptCall};
use super::jobs::{JobOwner, JobReply};
use super::slot::ThreadSlot;
use super::slow_log::{Called, CalledFrom, LoggedWords, SlowLog};
use crate::command::{COMMANDS, Keys, Transcript};
use crate::sync::Locked;

/// The client that waits for a queued command.
pub enum Origin {
    /// A client of the host's door, on the host's main thread.
    Main(Box<dyn HostClient>),
    /// A client of a port, on this worker.
    Worker {
        /// The worker.
        worker: usize,
        /// The connection, as its port numbers it.
        connection: u64,
        /// The client.
        client: Box<dyn PortClient>,
    },
}

/// A client of the host's door that waits for a command's reply, or for a job.
pub trait HostClient: Any + Send {
    /// The client whose changes its commands make.
    fn author(&self) -> Author;

    /// The largest reply that it may get, in bytes.
    fn most_reply(&self) -> usize;

    /// Writes a reply that is too large for the main thread, or for the client, whose connection is
    /// closed then; [`HostClient::answer`] follows. On any thread.
    fn write_large(&self, transcript: &Transcript);

    /// Answers it; an empty reply means that there is nothing left to write.
    fn answer(self: Box<Self>, locked: Locked<'_>, reply: Transcript);

    /// The client, for the slow log.
    fn called_from(&self, _: Locked<'_>) -> CalledFrom {
        CalledFrom::default()
    }

    /// Has it wait for a job; returns the job's owner and reply.
    fn wait_for_job(self: Box<Self>, locked: Locked<'_>, db: u32) -> (JobOwner, Box<dyn JobReply>);
}

/// A client of a port that waits for a command's reply, or for a job.
pub trait PortClient: Send {
    /// Whether its connection has been closed: then no command runs for it any more.
    fn is_gone(&self) -> bool;

    /// The client, for the slow log.
    fn called_from(&self) -> CalledFrom {
        CalledFrom::default()
    }

    /// Has it wait for a job; returns the job's owner and reply. On any thread.
    fn wait_for_job(self: Box<Self>, db: u32) -> (JobOwner, Box<dyn JobReply>);
}

/// A queued command.
pub struct Request {
    pub(super) call: KeptCall,
    /// The client that waits for it.
    pub origin: Origin,
    /// The reply, once it has run.
    pub reply: Transcript,
    /// The position in the log that its reply must wait for; 0 for none.
    pub seen: u64,
    /// It took this long, and is to be logged as slow: only the main thread knows its client.
    pub(super) slow: Option<Box<(Duration, LoggedWords)>>,
    /// How often tokens were busy.
    pub(super) tries: u8,
    /// It was found to be long work.
    pub(super) is_long: bool,
}

impl Request {
    /// A copy of a call, for another thread.
    pub fn new(call: &Call<'_>, origin: Origin) -> Self {
        Request {
            call: KeptCall::of(call, call.limits.keep_bytes),
            origin,
            reply: Transcript::default(),
            seen: 0,
            slow: None,
            tries: 0,
            is_long: false,
        }
    }

    /// A worker has run it. A reply that is too large for the main thread is written here.
    pub(super) fn finish(&mut self, slot: &ThreadSlot) {
        slot.ran_queued.add(1);
        if self.reply.is_large()
            && let Origin::Main(client) = &self.origin
        {
            client.write_large(&std::mem::take(&mut self.reply));
        }
    }

    /// It has taken this long: logs it if it was slow.
    pub(super) fn took(&mut self, time: Duration, log: &SlowLog) {
        if !log.ran_for(time) {
            return;
        }
        let words = self
            .call
            .args
            .with(|args| Called::of(self.call.command, self.call.prefix, &args).words);
        match &self.origin {
            Origin::Main(_) => self.slow = Some(Box::new((time, words))),
            Origin::Worker { client, .. } => log.add(time, words, client.called_from()),
        }
    }

    /// Whether its client is one of the host's door.
    pub fn is_of_host(&self) -> bool {
        matches!(self.origin, Origin::Main(_))
    }

    /// See [`Call::author`].
    pub(super) fn author(&self) -> Author {
        match &self.origin {
            Origin::Main(client) => client.author(),
            Origin::Worker { .. } => Author::Nobody,
        }
    }

    /// Whether its client is gone: then it is not run.
    pub fn is_abandoned(&self) -> bool {
        matches!(&self.origin, Origin::Worker { client, .. } if client.is_gone())
    }

    /// Whether it is a write.
    pub fn writes(&self) -> bool {
        COMMANDS[self.call.command].flags.write
    }

    /// Whether it may need memory for keys of several shards.
    pub(super) fn brings_several_keys(&self) -> bool {
        COMMANDS[self.call.command].flags.deny_oom && !self.is_on_one_shard()
    }

    /// Whether it needs one shard only.
    pub(super) fn is_on_one_shard(&self) -> bool {
        COMMANDS[self.call.command].is_on_one_shard(self.call.args.len())
    }

    /// Whether the command only reads its key, if it is on one.
    pub(in crate::engine) fn reads_key(&self) -> bool {
        COMMANDS[self.call.command].action.reads_key()
    }

    /// The key that decides which shard it needs, or needs first.
    pub(super) fn first_key(&self) -> Option<&[u8]> {
        let row = COMMANDS[self.call.command];
        (row.keys != Keys::None).then(|| self.call.args.get(row.first_key()))
    }
}
