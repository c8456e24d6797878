//! What a connection has said of its next transaction, and what EXEC has still to answer.

use std::mem::{replace, take};

use smallvec::SmallVec;

use crate::command::{Args, Flags, Named, Transcript};
use crate::engine::Watching;
use crate::limits::TRANSACTION_BYTES_KEPT;

/// What a connection has said of its next transaction.
#[derive(Default)]
pub struct Transaction {
    /// A command was refused: EXEC will be, too.
    pub(super) is_spoiled: bool,
    /// How often tokens were not to be had.
    pub(super) tries: u8,
    /// Everything that the queued commands are, those aside that run whatever the host is.
    pub(super) flags: Option<Flags>,
    /// Keys of the queued commands.
    pub(super) keys: usize,
    pub(super) commands: Vec<Queued>,
    /// All their arguments, one behind the other, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    pub(super) watching: Watching,
}

/// A queued command.
pub(super) struct Queued {
    pub(super) named: Named,
    /// Its first argument's number among all.
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
        // What a stale replica refuses, it refuses EXEC for as well.
        if !row.flags.stale {
            let flags = self.flags.get_or_insert(Flags::NONE);
            flags.write |= row.flags.write;
            flags.host_write |= row.flags.host_write;
            flags.deny_oom |= row.flags.deny_oom;
        }
    }

    /// Its memory, to be used again: most transactions are alike. Not where it is much.
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

    /// Keys that EXEC must hold, each as often as it is named.
    pub(super) fn all_keys(&self) -> usize {
        self.keys + self.watching.len()
    }

    /// Memory that it takes, roughly.
    pub(super) fn memory(&self) -> usize {
        self.bytes.len()
            + self.ends.len() * size_of::<usize>()
            + self.commands.len() * size_of::<Queued>()
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

    /// Those of a command, among all.
    pub(super) fn args_of<'a>(&self, command: usize, all: &'a [&'a [u8]]) -> Args<'a> {
        let end = self.commands.get(command + 1).map_or(all.len(), |next| next.first);
        Args::new(&all[self.commands[command].first..end])
    }
}

/// What came of it for one of the commands.
pub(super) enum ExecReply {
    Transcript(Transcript),
    Error(Vec<u8>),
    /// It is to be run when its turn has come.
    Own,
}

impl ExecReply {
    pub(super) fn is_cut(&self) -> bool {
        matches!(self, ExecReply::Transcript(transcript) if transcript.is_cut())
    }
}

/// Replies of a transaction that have not been said yet.
pub struct ExecReplies {
    pub(super) transaction: Box<Transaction>,
    pub(super) said: std::vec::IntoIter<ExecReply>,
    pub(super) next: usize,
}
