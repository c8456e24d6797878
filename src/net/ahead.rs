//! Commands that run together: parsed, allowed, and laid out for the shards.

use arrayvec::ArrayVec;

use super::connection::Connection;
use super::resp::{ArgList, Head, RequestLimits};
use super::session::SessionRights;
use crate::command::{Args, Limits, Named};
use crate::engine::{Author, Call, Engine};
use crate::limits::{AHEAD, AHEAD_ARGUMENTS};
use crate::store::Now;

/// Commands that run together.
#[derive(Default)]
pub(super) struct Ahead<'i> {
    args: ArrayVec<&'i [u8], { AHEAD * AHEAD_ARGUMENTS }>,
    commands: ArrayVec<PlannedCommand, AHEAD>,
    /// The forms of the last commands of two kinds: another command of the same form needs no
    /// checks. Two, because many programs read and write in turn.
    known: [Option<KnownCommand>; 2],
    /// The rights that `known` was checked with, if connections are served together.
    rights: Option<SessionRights>,
}

/// One of them.
#[derive(Clone, Copy)]
struct PlannedCommand {
    number: u16,
    /// Where its arguments begin and end.
    args: (u16, u16),
    prefix: &'static str,
    /// Where it ends in the input.
    end: usize,
}

/// A command that the user may call on every key.
#[derive(Clone, Copy)]
struct KnownCommand {
    head: Head,
    number: u16,
    prefix: &'static str,
}

impl<'i> Ahead<'i> {
    /// How many commands there are.
    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether there are no commands.
    pub(super) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Whether there is no room for another one.
    pub(super) fn is_full(&self) -> bool {
        self.commands.is_full()
    }

    /// Whether several connections are served together.
    pub(super) fn are_several(&self) -> bool {
        self.rights.is_some()
    }

    /// Keeps only the first `commands` commands.
    pub(super) fn truncate(&mut self, commands: usize) {
        self.commands.truncate(commands);
    }

    /// The commands that follow are another connection's. The known forms stay if it has the same
    /// rights.
    pub(super) fn begin_another(&mut self, connection: &Connection) {
        let rights = connection.session.rights();
        if Some(rights) != self.rights || !connection.parser.is_between() {
            self.known = [None, None];
        }
        self.rights = Some(rights);
    }

    /// Where a command ends in its connection's input.
    pub(super) fn end_of(&self, command: usize) -> usize {
        self.commands[command].end
    }

    /// Whether a command is one that writes.
    pub(super) fn writes(&self, command: usize) -> bool {
        self.named(command).row().flags.write
    }

    /// The name that a command was called by.
    pub(super) fn named(&self, command: usize) -> Named {
        let planned = &self.commands[command];
        Named { number: planned.number.into(), prefix: planned.prefix }
    }

    /// Where the arguments of the commands end.
    #[inline]
    fn args_end(&self) -> usize {
        self.commands.last().map_or(0, |last| last.args.1.into())
    }

    /// Lays out the arguments of a command that may be added next; not of an inline command.
    #[inline]
    pub(super) fn lay_out(&mut self, input: &'i [u8], args: &ArgList) -> &[&'i [u8]] {
        let first = self.args_end();
        self.args.truncate(first);
        let ranges = args.ranges().iter().take(AHEAD_ARGUMENTS);
        self.args.extend(ranges.map(|range| &input[range.start..range.end]));
        &self.args[first..]
    }

    /// Adds the command whose arguments were laid out; `end` is its end in the input.
    #[inline]
    pub(super) fn add(&mut self, named: Named, end: usize) {
        let Named { number, prefix } = named;
        let (number, args) = (number as u16, (self.args_end() as u16, self.args.len() as u16));
        self.commands.push(PlannedCommand { number, args, prefix, end });
    }

    /// Remembers the form of the last command if the user may call it on every key: other commands
    /// of this form are added without further checks. `input` begins with that command.
    pub(super) fn expect_more(
        &mut self,
        connection: &Connection,
        input: &[u8],
        args: &ArgList,
        limits: &RequestLimits,
    ) {
        let Some(&PlannedCommand { number, prefix, .. }) = self.commands.last() else { return };
        if connection.session.may_on_all_keys(number.into())
            && let Some(head) = Head::of(input, args, limits)
        {
            self.known = [Some(KnownCommand { head, number, prefix }), self.known[0]];
        }
    }

    /// Adds the command at `at` if its form is known; returns where it ends.
    #[inline]
    pub(super) fn add_known(&mut self, input: &'i [u8], at: usize) -> Option<usize> {
        if self.commands.is_full() {
            return None;
        }
        let first = self.args_end();
        for known in self.known.iter().flatten() {
            self.args.truncate(first);
            let args = &mut self.args;
            let Some(length) = known.head.take(&input[at..], |arg| args.push(arg)) else {
                continue;
            };
            let (number, prefix, end) = (known.number, known.prefix, at + length);
            self.commands.push(PlannedCommand {
                number,
                args: (first as u16, self.args.len() as u16),
                prefix,
                end,
            });
            return Some(end);
        }
        None
    }

    /// The commands as calls in a database, in the order in which they were added.
    #[inline]
    pub(super) fn calls(
        &self,
        engine: &Engine,
        db: u32,
        limits: &Limits,
    ) -> impl Iterator<Item = Call<'_>> + Clone {
        let clock = engine.config().clock;
        self.commands.iter().map(move |planned| Call {
            command: planned.number.into(),
            args: Args::new(&self.args[planned.args.0.into()..planned.args.1.into()]),
            db,
            now: Now::lazy(clock),
            limits: *limits,
            prefix: planned.prefix,
            author: Author::Nobody,
        })
    }
}
