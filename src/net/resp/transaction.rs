//! A connection's transaction, and the replies that EXEC still owes.

use std::mem::{replace, take};

use smallvec::SmallVec;

use super::published::{PublishedTo, published_to};
use crate::command::{Args, Flags, Named, Transcript};
use crate::engine::{ScriptReply, Watching};
use crate::limits::{EXEC_COMMAND_BYTES, TRANSACTION_BYTES_KEPT};

/// What MULTI and WATCH have collected for EXEC.
#[derive(Default)]
pub struct Transaction {
    /// A command was refused, so EXEC will be refused too.
    pub(super) is_spoiled: bool,
    /// How often EXEC did not get its tokens.
    pub(super) tries: u8,
    /// The union of the queued commands' flags, without commands that run in any state of the host.
    pub(super) flags: Option<Flags>,
    /// Keys of the queued commands.
    pub(super) keys: usize,
    /// The database that the latest queued SELECT chooses, if there is one.
    pub(super) db: Option<u32>,
    pub(super) commands: Vec<Queued>,
    /// All their arguments, one after another, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    pub(super) watching: Watching,
    /// Its client sees keys whose expiry has passed. Set by EXEC.
    pub(super) sees_passed: bool,
    /// Its client's commands are no use of their keys. Set by EXEC.
    pub(super) is_silent: bool,
}

/// A queued command.
pub(super) struct Queued {
    pub(super) named: Named,
    /// The index of its first argument among all.
    first: usize,
}

impl Transaction {
    /// Without commands so far.
    pub(super) fn of(watching: Watching) -> Self {
        Transaction { watching, ..Transaction::default() }
    }

    pub(super) fn add(&mut self, named: Named, args: &Args<'_>) {
        self.commands.push(Queued { named, first: self.ends.len() });
        for arg in args.from(0) {
            self.bytes.extend_from_slice(arg);
            self.ends.push(self.bytes.len());
        }
        let row = named.row();
        self.keys += row.key_positions(args).len();
        // What a stale or loading server refuses, it refuses in EXEC too.
        if !row.flags.stale || row.flags.script {
            let flags =
                self.flags.get_or_insert(Flags { loading: true, stale: true, ..Flags::NONE });
            flags.loading &= row.flags.loading;
            flags.stale &= row.flags.stale;
            flags.write |= row.flags.write;
            flags.host_write |= row.flags.host_write;
            flags.deny_oom |= row.flags.deny_oom;
            flags.script |= row.flags.script;
        }
    }

    /// Empties it so that its memory can be reused, as most transactions are alike; `None` if that
    /// is too much memory to keep.
    pub(super) fn emptied(mut self: Box<Self>) -> Option<Box<Self>> {
        let (mut commands, mut bytes, mut ends) =
            (take(&mut self.commands), take(&mut self.bytes), take(&mut self.ends));
        if bytes.capacity() + ends.capacity() * size_of::<usize>() > TRANSACTION_BYTES_KEPT {
            return None;
        }
        commands.clear();
        bytes.clear();
        ends.clear();
        *self = Transaction { commands, bytes, ends, ..Transaction::default() };
        Some(self)
    }

    /// How many keys EXEC must hold; a key that is named twice counts twice.
    pub(super) fn all_keys(&self) -> usize {
        self.keys + self.watching.len()
    }

    /// Its memory in bytes, roughly, and that which EXEC will take for it.
    pub(super) fn memory(&self) -> usize {
        self.bytes.len()
            + self.ends.len() * size_of::<usize>()
            + self.commands.len() * (size_of::<Queued>() + EXEC_COMMAND_BYTES)
    }

    /// All arguments of all commands.
    pub(super) fn arguments(&self) -> SmallVec<[&[u8]; 16]> {
        let mut start = 0;
        self.ends.iter().map(|&end| &self.bytes[replace(&mut start, end)..end]).collect()
    }

    /// The arguments of one command.
    pub(super) fn arguments_of(&self, command: usize) -> SmallVec<[&[u8]; 16]> {
        let first = self.commands[command].first;
        let end = self.commands.get(command + 1).map_or(self.ends.len(), |next| next.first);
        let mut start = if first == 0 { 0 } else { self.ends[first - 1] };
        self.ends[first..end]
            .iter()
            .map(|&end| &self.bytes[replace(&mut start, end)..end])
            .collect()
    }

    /// The channels to which its commands send messages.
    pub(super) fn publishes_to(&self) -> Vec<PublishedTo> {
        if !self.flags.is_some_and(|flags| flags.script) {
            return Vec::new();
        }
        let all = self.arguments();
        let commands = self.commands.iter().enumerate();
        commands
            .filter_map(|(at, queued)| published_to(queued.named.row(), &self.args_of(at, &all)))
            .collect()
    }

    /// The arguments of one command, as a part of `all`.
    pub(super) fn args_of<'a>(&self, command: usize, all: &'a [&'a [u8]]) -> Args<'a> {
        let end = self.commands.get(command + 1).map_or(all.len(), |next| next.first);
        Args::new(&all[self.commands[command].first..end])
    }
}

/// The outcome of one command of a transaction.
pub(super) enum ExecReply {
    Transcript(Transcript),
    Error(Vec<u8>),
    /// A reply that the host has encoded; `None` if it is too large for the client.
    Encoded(Option<ScriptReply>),
    /// One of the port's own commands: it runs when its turn comes.
    Own,
}

impl ExecReply {
    pub(super) fn is_cut(&self) -> bool {
        match self {
            ExecReply::Transcript(transcript) => transcript.is_cut(),
            ExecReply::Encoded(reply) => reply.is_none(),
            _ => false,
        }
    }
}

/// Replies of a transaction that have not been written yet.
pub struct ExecReplies {
    pub(super) transaction: Box<Transaction>,
    pub(super) said: std::vec::IntoIter<ExecReply>,
    pub(super) next: usize,
}
