//! The commands of several connections, run as those of one pipeline.

use std::ops::Range;

use arrayvec::ArrayVec;

use super::arg_list::ArgList;
use super::batch::{CommandBatch, Stop, request_limits};
use super::caller::RespCaller;
use super::named::note;
use super::reply::RespReply;
use super::session::RespSession;
use crate::command::Limits;
use crate::engine::Outcome;
use crate::limits::{AHEAD, HELD_OUTPUT};
use crate::net::protocol::{Kind, Ran, Serving};
use crate::net::transport::Output;
use crate::net::worker::PortWorker;

/// Commands of connections that have the same database and speak the same version. They run as
/// those of one pipeline do; each connection has a range of their numbers.
pub struct RespGroup<'i> {
    worker: &'i PortWorker,
    kind: Kind,
    limits: Limits,
    batch: CommandBatch<'i>,
    /// Where the replies begin, and where each ends.
    start: usize,
    ends: ArrayVec<usize, AHEAD>,
    /// How many commands are done, and the outcome of the last one tried.
    done: usize,
    outcome: Outcome,
    /// The position of the log that the commands have seen; 0 for none. All have the same.
    seen: u64,
    /// The last reply was cut off.
    is_cut: bool,
}

impl<'i> RespGroup<'i> {
    /// No commands so far.
    pub fn begin(worker: &'i PortWorker, kind: Kind) -> Self {
        RespGroup {
            worker,
            kind,
            limits: worker.engine().context().limits_alone(usize::MAX),
            batch: CommandBatch::default(),
            start: 0,
            ends: ArrayVec::new(),
            done: 0,
            outcome: Outcome::Done,
            seen: 0,
            is_cut: false,
        }
    }

    /// Adds the commands of a connection, if its whole input are such that can run together;
    /// returns their numbers.
    pub fn add(
        &mut self,
        session: &mut RespSession,
        input: &'i [u8],
        args: &mut ArgList,
    ) -> Range<usize> {
        let (engine, before) = (self.worker.engine(), self.batch.len());
        self.batch.begin_another(session);
        let limits = request_limits(session, &self.limits);
        session.parser.hear(input.len());
        if self.batch.take(engine, session, input, args, &limits) != Stop::End {
            self.batch.truncate(before);
            session.parser.begin_again();
        }
        before..self.batch.len()
    }

    /// Runs them, and appends their replies to `output`. False if there are none.
    pub fn run(&mut self, output: &mut Output) -> bool {
        if self.batch.is_empty() {
            return false;
        }
        let (worker, (db, resp3)) = (self.worker, self.kind);
        self.start = output.end();
        let most = worker.engine().settings().port.most_output();
        let most = most.saturating_add(output.len() + HELD_OUTPUT);
        let mut reply = RespReply::new(output, resp3).up_to(most);
        worker.slot().take_seen();
        let ends = &mut self.ends;
        (self.done, self.outcome) =
            self.batch.run(worker, db, &self.limits, &mut reply, |end| ends.push(end));
        self.seen = worker.slot().take_seen();
        self.is_cut = output.len() > most;
        true
    }

    /// Ends the part of a connection; the first of its commands that could not run here and now
    /// goes on elsewhere. `None` if the connection's reply was cut off, because it is too large.
    pub fn end(
        &self,
        session: &mut RespSession,
        commands: Range<usize>,
        serving: &mut Serving<'_>,
    ) -> Option<Ran> {
        let (batch, Range { start: first, end }) = (&self.batch, commands);
        let ran = end.min(self.done).max(first);
        batch.log_slow(self.worker.engine(), first..ran, &session.flow.client);
        note(batch.named(ran.max(first + 1) - 1), &session.flow.client);
        let (mut replies, mut used) = (0..0, 0);
        if ran > first {
            if self.is_cut && ran == self.done {
                return None;
            }
            let before = first.checked_sub(1).map_or(self.start, |before| self.ends[before]);
            replies = before..self.ends[ran - 1];
            used = batch.end_of(ran - 1);
        }
        // Those that only read need not wait for what the others have written, unless reads wait
        // at all.
        if self.seen != 0
            && (self.worker.engine().ledger.log.reads_wait()
                || (first..ran).any(|number| batch.writes(number)))
        {
            session.flow.wait_for(self.seen);
        }
        let more = serving.output.end();
        if ran < end && ran == self.done && self.outcome != Outcome::Done {
            // This command could not run here and now.
            used = batch.go_on(ran, self.outcome, &mut RespCaller::new(serving, session));
        }
        session.flow.missing = usize::from(ran == end);
        Some(Ran { replies, more: more..serving.output.end(), used })
    }
}
