//! Commands that run together, of one connection or of several: parsed ahead, allowed, laid out for
//! the shards, and run.

use std::ops::Range;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;

use super::caller::RespCaller;
use super::gathered::LargeArgument;
use super::plain::PLAIN_NUMBER;
use super::session::RespSession;
use super::{ArgList, Head, Parsed, ProtocolError, RequestLimits, RespReply};
use crate::command::{Args, COMMANDS, Limits, Named};
use crate::engine::{Author, Call, Engine, Gate, Intent, Outcome, Taking, Together, may_be_slow};
use crate::limits::{AHEAD, AHEAD_ARGUMENTS, HELD_OUTPUT, HELD_TIME, LEAST_ARGUMENT_BYTES};
use crate::net::access::SessionRights;
use crate::net::client::Client;
use crate::net::shared::count;
use crate::net::worker::PortWorker;
use crate::store::Now;

/// Commands that run together.
#[derive(Default)]
pub struct CommandBatch<'i> {
    /// Those of the commands, and no others.
    args: ArrayVec<&'i [u8], { AHEAD * AHEAD_ARGUMENTS }>,
    commands: ArrayVec<PlannedCommand, AHEAD>,
    /// The forms of the last commands of two kinds: another command of the same form needs no
    /// checks. Two, because many programs read and write in turn.
    known: [Option<KnownCommand>; 2],
    /// The rights that `known` was checked with, if connections are served together.
    rights: Option<SessionRights>,
    /// Whether one of them may be slow.
    may_be_slow: bool,
    /// Those that were slow, and how long each took.
    slow: Vec<(usize, Duration)>,
    /// How long all took, if one of them may be slow.
    took: Duration,
}

/// One of them.
#[derive(Clone, Copy)]
struct PlannedCommand {
    number: u16,
    /// Where its arguments begin and end, and which of them all is its key.
    args: (u16, u16),
    key: u16,
    prefix: &'static str,
    /// Where it ends in the input.
    end: usize,
}

/// A command that the user may call on every key.
#[derive(Clone, Copy)]
struct KnownCommand {
    head: Head,
    number: u16,
    /// Which argument is the key.
    key: u16,
    prefix: &'static str,
}

/// What follows the commands that run together.
#[derive(PartialEq, Eq)]
pub enum Stop {
    /// The end of the input.
    End,
    /// There is no room for more commands.
    Full,
    /// A command that runs by itself, or later, up to `end`; its arguments are in the list.
    Alone { end: usize },
    /// An empty line, up to `end`.
    Empty { end: usize },
    /// The beginning of a command, up to a large argument.
    Large(LargeArgument),
    /// The beginning of a command, of which at least this many bytes are missing.
    Incomplete { missing: usize },
    /// Input that is not a command.
    Malformed(ProtocolError),
}

impl<'i> CommandBatch<'i> {
    /// How many commands there are.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether there are no commands.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Keeps only the first `commands` commands.
    pub fn truncate(&mut self, commands: usize) {
        self.commands.truncate(commands);
        let end = self.commands.last().map_or(0, |last| last.args.1.into());
        self.args.truncate(end);
    }

    /// The commands that follow are another connection's. The known forms stay if it has the same
    /// rights.
    pub fn begin_another(&mut self, session: &RespSession) {
        let rights = session.access.rights();
        if Some(rights) != self.rights || !session.parser.is_between() {
            self.known = [None, None];
        }
        self.rights = Some(rights);
    }

    /// Where a command ends in its connection's input.
    pub fn end_of(&self, command: usize) -> usize {
        self.commands[command].end
    }

    /// Whether a command is one that writes.
    pub fn writes(&self, command: usize) -> bool {
        self.named(command).row().flags.write
    }

    /// The name that a command was called by.
    pub fn named(&self, command: usize) -> Named {
        let planned = &self.commands[command];
        Named { number: planned.number.into(), prefix: planned.prefix }
    }

    /// Adds the commands at the start of a connection's input, until something stops it.
    #[inline]
    pub fn take(
        &mut self,
        engine: &Engine,
        session: &mut RespSession,
        input: &'i [u8],
        args: &mut ArgList,
        limits: &RequestLimits,
    ) -> Stop {
        let mut at = 0;
        while at < input.len() {
            if let Some(end) = self.add_known(input, at) {
                at = end;
                continue;
            }
            if self.commands.is_full() {
                return Stop::Full;
            }
            let rest = &input[at..];
            let end = match session.parser.next(rest, args, limits) {
                Ok(Parsed::Command { consumed }) => at + consumed,
                Ok(Parsed::Empty { consumed }) => return Stop::Empty { end: at + consumed },
                Ok(Parsed::Large(large)) => return Stop::Large(large),
                Ok(Parsed::Incomplete { missing }) => return Stop::Incomplete { missing },
                Err(error) => return Stop::Malformed(error),
            };
            if !self.add(engine, session, rest, args, end) {
                return Stop::Alone { end };
            }
            if self.rights.is_some() || end < input.len() {
                self.expect_more(session, rest, args, limits);
            }
            at = end;
        }
        Stop::End
    }

    /// Adds a command if it goes with the others: it is on one shard, it is allowed, and nothing
    /// holds it up. There must be room. `end` is its end in the input of its connection.
    #[inline]
    fn add(
        &mut self,
        engine: &Engine,
        session: &RespSession,
        input: &'i [u8],
        args: &ArgList,
        end: usize,
    ) -> bool {
        if args.is_empty() || !args.is_simple() || args.len() > AHEAD_ARGUMENTS {
            return false;
        }
        let first = self.args.len();
        self.args.extend(args.ranges().iter().map(|range| &input[range.start..range.end]));
        let list = Args::new(&self.args[first..]);
        let Some(named) = Named::find(list.get(0)) else {
            self.args.truncate(first);
            return false;
        };
        let row = named.row();
        let goes = row.is_on_one_shard(list.len())
            && row.first_key() < list.len()
            && session.is_plain()
            && row.check_arity(&list).is_ok()
            && engine.ledger.gate(Intent::OfPort(row.flags)) == Gate::Go
            && session.access.may(engine, named.number, &list);
        if goes {
            let Named { number, prefix } = named;
            let (args, key) = ((first as u16, self.args.len() as u16), first + row.first_key());
            let (number, key) = (number as u16, key as u16);
            self.commands.push(PlannedCommand { number, args, key, prefix, end });
            self.may_be_slow |= may_be_slow(row);
        } else {
            self.args.truncate(first);
        }
        goes
    }

    /// Remembers the form of the last command if the user may call it on every key: other commands
    /// of this form are added without further checks. `input` begins with that command.
    fn expect_more(
        &mut self,
        session: &RespSession,
        input: &[u8],
        args: &ArgList,
        limits: &RequestLimits,
    ) {
        let Some(&PlannedCommand { number, prefix, .. }) = self.commands.last() else { return };
        if session.access.may_on_all_keys(number.into())
            && let Some(head) = Head::of(input, args, limits)
        {
            let key = COMMANDS[usize::from(number)].first_key() as u16;
            self.known = [Some(KnownCommand { head, number, key, prefix }), self.known[0]];
        }
    }

    /// Adds the command at `at` if its form is known; returns where it ends.
    #[inline]
    pub(super) fn add_known(&mut self, input: &'i [u8], at: usize) -> Option<usize> {
        if self.commands.is_full() {
            return None;
        }
        let first = self.args.len();
        for known in self.known.iter().map_while(Option::as_ref) {
            let args = &mut self.args;
            let Some(length) = known.head.take(&input[at..], |arg| args.push(arg)) else {
                args.truncate(first);
                continue;
            };
            let (number, prefix, end) = (known.number, known.prefix, at + length);
            let (args, key) = ((first as u16, self.args.len() as u16), first as u16 + known.key);
            self.commands.push(PlannedCommand { number, args, key, prefix, end });
            return Some(end);
        }
        None
    }

    /// Runs the commands in one database; those of several shards hold them together. Tells `each`
    /// where each reply ends. Stops early if those that are done were slow, or have replied much.
    /// Returns how many are done, and the outcome of the last one tried.
    #[inline]
    pub fn run(
        &mut self,
        worker: &PortWorker,
        db: u32,
        limits: &Limits,
        reply: &mut RespReply<'_>,
        mut each: impl FnMut(usize),
    ) -> (usize, Outcome) {
        if self.may_be_slow || worker.engine().slow_log.times(false) {
            return self.run_timed(worker, db, limits, reply, each);
        }
        self.run_all(worker, db, limits, reply, |end| {
            each(end);
            false
        })
    }

    /// How long the commands have taken; `None` if none of them may be slow.
    #[inline]
    pub fn took(&self) -> Option<Duration> {
        self.may_be_slow.then_some(self.took)
    }

    /// [`CommandBatch::run`] with a look at the clock after each command.
    #[inline(never)]
    fn run_timed(
        &mut self,
        worker: &PortWorker,
        db: u32,
        limits: &Limits,
        reply: &mut RespReply<'_>,
        mut each: impl FnMut(usize),
    ) -> (usize, Outcome) {
        let start = Instant::now();
        let (mut began, mut number, mut slow) = (start, 0, Vec::new());
        let ran = self.run_all(worker, db, limits, reply, |end| {
            let now = Instant::now();
            if worker.engine().slow_log.ran_for(now - began) {
                slow.push((number, now - began));
            }
            (began, number) = (now, number + 1);
            each(end);
            now - start > HELD_TIME
        });
        (self.slow, self.took) = (slow, began - start);
        ran
    }

    /// Logs those of these commands that were slow; they are this client's.
    #[inline]
    pub fn log_slow(&self, engine: &Engine, commands: Range<usize>, client: &Client) {
        if !self.slow.is_empty() {
            self.log_all_slow(engine, commands, client);
        }
    }

    #[cold]
    fn log_all_slow(&self, engine: &Engine, commands: Range<usize>, client: &Client) {
        for &(number, took) in &self.slow {
            if commands.contains(&number) {
                let planned = &self.commands[number];
                let args = &self.args[planned.args.0.into()..planned.args.1.into()];
                let from = || client.called_from();
                engine.slow_log.log(took, planned.number.into(), &Args::new(args), from);
            }
        }
    }

    /// `is_enough` is told where each reply ends, and says whether the run ends there.
    #[inline(always)]
    fn run_all(
        &self,
        worker: &PortWorker,
        db: u32,
        limits: &Limits,
        reply: &mut RespReply<'_>,
        mut is_enough: impl FnMut(usize) -> bool,
    ) -> (usize, Outcome) {
        let (engine, slot) = (worker.engine(), worker.slot());
        let calls = BatchCalls { batch: self, engine, db, limits };
        let (done, outcome) = if self.len() == 1 {
            // A single command needs no preparation.
            match engine.attempt(slot, &calls.call(0), Taking::WORKER, reply) {
                Outcome::Done => {
                    is_enough(reply.end());
                    (1, Outcome::Done)
                }
                other => (0, other),
            }
        } else {
            let enough = reply.len() + HELD_OUTPUT;
            engine.attempt_run(slot, &calls, reply, |reply| {
                is_enough(reply.end()) || reply.len() > enough
            })
        };
        slot.ran_at_once(done);
        count(&worker.counts().commands, done as u64);
        (done, outcome)
    }

    /// Goes on with a command that could not run here and now. Returns where it ends.
    #[cold]
    pub fn go_on(&self, command: usize, outcome: Outcome, caller: &mut RespCaller<'_>) -> usize {
        let (engine, limits) = (caller.engine(), caller.limits);
        let calls =
            BatchCalls { batch: self, engine, db: caller.session.access.db, limits: &limits };
        let mut call = calls.call(command);
        caller.said = caller.output.end();
        engine.go_on(caller.slot(), &mut call, outcome, caller);
        self.end_of(command)
    }
}

/// The commands of a batch as calls in a database.
struct BatchCalls<'b, 'i> {
    batch: &'b CommandBatch<'i>,
    engine: &'b Engine,
    db: u32,
    limits: &'b Limits,
}

impl Together for BatchCalls<'_, '_> {
    #[inline]
    fn count(&self) -> usize {
        self.batch.len()
    }

    #[inline]
    fn db(&self) -> u32 {
        self.db
    }

    #[inline]
    fn now(&self) -> Now {
        Now::lazy(self.engine.config().clock)
    }

    #[inline]
    fn command(&self, number: usize) -> usize {
        self.batch.commands[number].number.into()
    }

    #[inline]
    fn key(&self, number: usize) -> &[u8] {
        self.batch.args[usize::from(self.batch.commands[number].key)]
    }

    #[inline]
    fn args(&self, number: usize) -> Args<'_> {
        let (start, end) = self.batch.commands[number].args;
        Args::new(&self.batch.args[start.into()..end.into()])
    }

    #[inline]
    fn limits(&self) -> &Limits {
        self.limits
    }

    #[inline(always)]
    fn call(&self, number: usize) -> Call<'_> {
        let planned = &self.batch.commands[number];
        Call {
            command: planned.number.into(),
            args: self.args(number),
            db: self.db,
            now: self.now(),
            limits: *self.limits,
            prefix: planned.prefix,
            author: Author::Nobody,
        }
    }
}

/// The limits for a connection's requests.
#[inline]
pub fn request_limits(session: &RespSession, limits: &Limits) -> RequestLimits {
    // Limits of keys and values have their own errors, and do not apply to names and other
    // arguments.
    let max_bulk_bytes = limits.max_value_bytes.max(limits.max_key_bytes).max(LEAST_ARGUMENT_BYTES);
    let authenticated = session.access.user.is_some();
    // Those of a plain command are short; a client that has not logged in gets no memory.
    let large_bytes =
        if authenticated { limits.keep_bytes.max(PLAIN_NUMBER + 1) } else { usize::MAX };
    RequestLimits { max_bulk_bytes, authenticated, large_bytes }
}
