//! Running what a connection asks: parsed ahead, in the order sent, answered together.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::ahead::Ahead;
use super::connection::{Backlog, Connection, State};
use super::driver::{Driver, Received, Sent};
use super::group::Group;
use super::outbox::Piece;
use super::plan::{Stop, request_limits};
use super::resp::{ArgList, room_for};
use super::shared::{Shared, count};
use super::transaction::Transaction;
use crate::command::{Args, Limits, Reply, Tape};
use crate::limits::{
    HEAVY_TURN, HELD_OUTPUT, INPUT_BYTES, LEFTOVER_BYTES, LOOKS_AT_CLOCK, OUTPUT_KEPT, OUTPUT_PAUSE,
    READ_BYTES, SERVED_AT_ONCE, SERVED_AT_ONCE_MIN, SERVED_TOGETHER, UNAUTHENTICATED_OUTPUT_BYTES,
    UNAUTHENTICATED_QUERY_BYTES,
};
use crate::shard::{Call, Engine, Home, Outcome, Request, Seat, Taking};

/// What is to become of a connection after its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It waits until something happens to it.
    Stays,
    /// It can go on at once, after others.
    Ready,
    /// It is to try again soon: the host holds it up.
    Deferred,
    /// It is to be closed.
    Ends,
}

/// For how long a connection has been served in one go.
#[derive(Default)]
pub(super) struct Pace {
    rounds: u32,
    since: Option<Instant>,
}

impl Pace {
    /// Begins another round, unless that has been so long. The clock is not looked at in the first
    /// round, which for most connections is the only one, and seldom after that.
    pub(super) fn is_over(&mut self, most: Duration) -> bool {
        self.rounds += 1;
        if self.rounds % LOOKS_AT_CLOCK != 2 {
            return false;
        }
        let now = Instant::now();
        now - *self.since.get_or_insert(now) > most
    }
}

/// What a worker serves connections with.
pub struct Service<D: Driver> {
    /// What all workers share.
    pub shared: Arc<Shared>,
    /// This worker.
    pub worker: usize,
    /// How bytes come and go.
    pub driver: D,
    /// When this turn began.
    pub now: Instant,
    /// The same on the ports' clock, as of the last tick of a few hundredths of a second.
    pub recently: u64,
    /// For how long a connection is served in one go in this turn.
    pub(super) at_once: Duration,
    /// How long the commands took that the connection being served has run by themselves.
    pub(super) spent: Duration,
    /// Holds what is received, one connection after the other, or a group's.
    pub(super) input: Vec<u8>,
    /// Holds what is answered in this turn.
    pub(super) output: Vec<u8>,
    pub(super) outbox: Vec<Piece>,
    pub(super) group: Group,
    pub(super) args: ArgList,
    /// An empty transaction, for whoever says MULTI next.
    pub(super) spare: Option<Box<Transaction>>,
}

impl<D: Driver> Service<D> {
    /// For one worker.
    pub fn new(shared: Arc<Shared>, worker: usize, driver: D) -> Self {
        Service {
            shared,
            worker,
            driver,
            now: Instant::now(),
            at_once: SERVED_AT_ONCE,
            spent: Duration::ZERO,
            recently: 0,
            input: Vec::with_capacity(INPUT_BYTES),
            output: Vec::new(),
            outbox: Vec::new(),
            group: Group::default(),
            args: ArgList::default(),
            spare: None,
        }
    }

    /// Shares the time of this turn out among so many connections.
    pub fn share_out(&mut self, connections: usize) {
        let shares = connections.div_ceil(SERVED_TOGETHER).max(1) as u32;
        self.at_once = (SERVED_AT_ONCE / shares).max(SERVED_AT_ONCE_MIN);
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    pub(super) fn seat(&self) -> &Seat {
        self.shared.engine.worker_seat(self.worker)
    }

    /// A connection's turn: receives once, runs what came, sends the replies together.
    #[inline(never)]
    pub fn serve(&mut self, connection: &mut Connection) -> Fate {
        if connection.client.killed.load(Ordering::Relaxed) {
            return Fate::Ends;
        }
        self.claim(connection);
        // Room first: a connection that has left replies lying goes on when they are gone.
        if !connection.unsent.is_empty() && self.send(connection, &[]) == Fate::Ends {
            return Fate::Ends;
        }
        let mut output = std::mem::take(&mut self.output);
        let said = output.len();
        self.limit_output(connection, said);
        self.spent = Duration::ZERO;
        let fate = self.receive_and_run(connection, &mut output);
        self.note_weight(connection);
        if self.has_too_much_output(connection, said, &mut output) {
            self.output = output;
            return Fate::Ends;
        }
        // Whoever has the reply may ask what others see of it.
        connection.show_condition();
        let at_once =
            fate == Fate::Ends || connection.state == State::Closing || !connection.unsent.is_empty();
        let mut sent = Fate::Stays;
        if at_once {
            sent = self.send(connection, &output[said..]);
            output.truncate(said);
        }
        self.put_in_outbox(connection, said..output.len());
        self.output = output;
        match fate {
            _ if sent == Fate::Ends => sent,
            Fate::Ends if connection.ended && !connection.unsent.is_empty() => {
                // It sends no more; what it has been answered, it may still read.
                connection.state = State::Closing;
                connection.unread = Backlog::default();
                Fate::Stays
            }
            fate => fate,
        }
    }

    /// From here on a connection that is answered behind `said` bytes may be answered so much: as much as may
    /// wait for it, and what is said before the size is looked at.
    pub(super) fn limit_output(&self, connection: &mut Connection, said: usize) {
        let most = self.engine().settings.port.most_output();
        connection.session.most_output = most.saturating_add(said + OUTPUT_PAUSE + HELD_OUTPUT);
    }

    /// Whether a connection's reply became larger than may wait for it. It was cut off there, and the
    /// connection is to be closed.
    pub(super) fn has_too_much_output(
        &self,
        connection: &Connection,
        said: usize,
        output: &mut Vec<u8>,
    ) -> bool {
        let is_over = output.len() > connection.session.most_output;
        if is_over {
            output.truncate(said);
            self.note_limit();
        }
        is_over
    }

    /// Notes that a connection is closed for a limit.
    pub(super) fn note_limit(&self) {
        count(&self.shared.counts(self.worker).closed_for_limits, 1);
    }

    /// Notes whether the turn that ends was a long one: then the next is shared with others of the kind.
    pub(super) fn note_weight(&self, connection: &mut Connection) {
        connection.is_heavy = self.spent > HEAVY_TURN;
    }

    fn receive_and_run(&mut self, connection: &mut Connection, output: &mut Vec<u8>) -> Fate {
        if connection.state != State::Open {
            return Fate::Stays;
        }
        // A connection that does not take its replies gets no more of them.
        if connection.unsent.len() > OUTPUT_PAUSE {
            return self.take_in(connection);
        }
        if connection.session.saying.is_some() {
            let (limits, said) = (self.engine().settings.limits(usize::MAX), output.len());
            self.go_on_saying(connection, &limits, output);
            if connection.session.is_muted() {
                output.truncate(said);
            }
            if connection.state != State::Open || connection.session.saying.is_some() {
                return self.fate_of(connection);
            }
        }
        if connection.has_commands {
            let mut unread = std::mem::take(&mut connection.unread);
            let used = self.run(connection, unread.bytes(), output);
            unread.use_up(used);
            connection.unread = unread;
        } else if connection.readable {
            if !self.receive(connection, output) {
                return Fate::Ends;
            }
        } else {
            return if connection.ended { Fate::Ends } else { Fate::Stays };
        }
        self.fate_of(connection)
    }

    /// What is to become of a connection that has run what it could.
    pub(super) fn fate_of(&self, connection: &mut Connection) -> Fate {
        match connection.state {
            State::Deferred => Fate::Deferred,
            State::Again => {
                connection.state = State::Open;
                Fate::Ready
            }
            State::Open if connection.can_go_on() => Fate::Ready,
            _ => Fate::Stays,
        }
    }

    /// Receives, and runs. False where the connection has ended.
    fn receive(&mut self, connection: &mut Connection, output: &mut Vec<u8>) -> bool {
        // The beginning of a long command is not moved again for every piece of it.
        if connection.unread.len() > LEFTOVER_BYTES {
            return self.receive_more(connection, output);
        }
        // Behind what a group may have there.
        let mut input = std::mem::take(&mut self.input);
        let start = input.len();
        input.extend_from_slice(connection.unread.bytes());
        // A panic may have taken the buffer with it.
        input.reserve(READ_BYTES);
        let before = input.len();
        let received = self.driver.receive(&connection.socket, &mut input);
        let goes_on = self.note_received(connection, received);
        if input.len() > before {
            connection.unread.use_up(before - start);
            let used = self.run(connection, &input[start..], output);
            connection.unread.add(&input[start + used..]);
        }
        input.truncate(start);
        self.input = input;
        goes_on
    }

    /// The same behind what has been received of a long command.
    fn receive_more(&mut self, connection: &mut Connection, output: &mut Vec<u8>) -> bool {
        let mut unread = std::mem::take(&mut connection.unread);
        let present = unread.len();
        let buffer = unread.buffer();
        buffer.reserve(room_for(connection.missing, present).max(INPUT_BYTES));
        let received = self.driver.receive(&connection.socket, buffer);
        let goes_on = self.note_received(connection, received);
        if self.is_over_query_limit(connection, unread.len()) {
            return false;
        }
        if unread.len() > present {
            let used = self.run(connection, unread.bytes(), output);
            unread.use_up(used);
        }
        connection.unread = unread;
        goes_on
    }

    /// Receives and runs nothing. Many clients send a whole pipeline before they read
    /// anything: one that is not read from would never come to read.
    fn take_in(&mut self, connection: &mut Connection) -> Fate {
        if !connection.readable {
            return Fate::Stays;
        }
        let buffer = connection.unread.buffer();
        buffer.reserve(INPUT_BYTES);
        let received = self.driver.receive(&connection.socket, buffer);
        connection.has_commands |= !connection.unread.is_empty();
        // It may still read; if it is gone, sending tells.
        self.note_received(connection, received);
        if self.is_over_query_limit(connection, connection.unread.len()) {
            return Fate::Ends;
        }
        if connection.readable { Fate::Ready } else { Fate::Stays }
    }

    /// Whether a client has sent more than may wait here. Books it.
    fn is_over_query_limit(&self, connection: &Connection, unread: usize) -> bool {
        let mut most = self.engine().settings.port.query_limit.load(Ordering::Relaxed);
        if connection.session.user.is_none() {
            most = most.min(UNAUTHENTICATED_QUERY_BYTES);
        }
        let is_over = unread > most;
        if is_over {
            self.note_limit();
        }
        is_over
    }

    /// Books what came. False where the connection has ended.
    pub(super) fn note_received(&mut self, connection: &mut Connection, received: Received) -> bool {
        let (bytes, more) = match received {
            Received::More(bytes) => (bytes, true),
            Received::All(bytes) => (bytes, connection.ended),
            Received::End => {
                (connection.ended, connection.readable) = (true, false);
                return false;
            }
        };
        connection.readable = more;
        if bytes > 0 {
            count(&self.shared.counts(self.worker).received, bytes as u64);
            connection.client.last_seen.store(self.recently, Ordering::Relaxed);
        }
        true
    }

    /// Runs the commands that the input begins with; says how much of it they were.
    pub(super) fn run(&mut self, connection: &mut Connection, input: &[u8], output: &mut Vec<u8>) -> usize {
        let mut args = std::mem::take(&mut self.args);
        let mut at = 0;
        let mut pace = Pace::default();
        connection.has_commands = true;
        while connection.may_run()
            && output.len() <= OUTPUT_PAUSE
            && self.spent <= self.at_once
            && !pace.is_over(self.at_once)
        {
            at += self.run_some(connection, &input[at..], &mut args, output);
            // Most reads end with a command.
            connection.has_commands &= at < input.len();
        }
        self.args = args;
        at
    }

    /// Runs the next few commands that go well together, or one that does not.
    fn run_some(
        &mut self,
        connection: &mut Connection,
        input: &[u8],
        args: &mut ArgList,
        output: &mut Vec<u8>,
    ) -> usize {
        let limits = self.engine().settings.limits(usize::MAX);
        let parse_limits = request_limits(connection, &limits);
        let mut ahead = Ahead::default();
        let (_, stop) = self.take_commands(connection, input, args, &parse_limits, &mut ahead);
        if !ahead.is_empty() {
            if stop != Stop::End {
                // These come first; what was parsed last is parsed again.
                connection.parser = Default::default();
            }
            return self.run_ahead(connection, &ahead, &limits, output);
        }
        match stop {
            Stop::Alone { end } => {
                self.run_alone(connection, input, args, &limits, output);
                // One that must be tried again has not been run.
                let again = matches!(connection.state, State::Deferred | State::Again);
                if again { 0 } else { end }
            }
            Stop::Empty { end } => {
                // CLIENT REPLY SKIP takes it for a command.
                connection.session.begin_command();
                end
            }
            Stop::Incomplete { missing } => {
                connection.missing = missing;
                connection.has_commands = false;
                0
            }
            Stop::Malformed(error) => {
                if connection.session.wants_replies() {
                    connection.session.reply(output).error(&error.text());
                }
                connection.state = State::Closing;
                input.len()
            }
            Stop::End | Stop::Full => 0,
        }
    }

    /// Runs commands that go together; says how far they got.
    fn run_ahead(
        &self,
        connection: &mut Connection,
        ahead: &Ahead<'_>,
        limits: &Limits,
        output: &mut Vec<u8>,
    ) -> usize {
        let engine = &*self.shared.engine;
        let seat = engine.worker_seat(self.worker);
        let mut calls = ahead.calls(engine, connection.session.db, limits);
        let mut reply = connection.session.reply(output);
        let (done, outcome) = if ahead.len() == 1 {
            // By itself it needs no preparation.
            match calls.clone().next().map(|call| engine.attempt(seat, &call, Taking::WORKER, &mut reply)) {
                Some(Outcome::Done) => (1, Outcome::Done),
                other => (0, other.unwrap_or(Outcome::Busy)),
            }
        } else {
            let enough = reply.len() + HELD_OUTPUT;
            engine.attempt_run(seat, calls.clone(), &mut reply, |reply| reply.len() > enough)
        };
        engine.book_many_at_once(seat, done);
        count(&self.shared.counts(self.worker).commands, done as u64);
        ahead.named(done.min(ahead.len() - 1)).note(&connection.client);
        if outcome == Outcome::Done {
            return ahead.end_of(done - 1);
        }
        // That one was not to be run here and now.
        let Some(call) = calls.nth(done) else { return 0 };
        self.hand_over(connection, &call, outcome, output);
        ahead.end_of(done)
    }

    /// Runs one command by itself. It may be of any length, so its time is taken.
    fn run_alone(
        &mut self,
        connection: &mut Connection,
        input: &[u8],
        args: &ArgList,
        limits: &Limits,
        output: &mut Vec<u8>,
    ) {
        let list: SmallVec<[&[u8]; 8]> = args.iter(input).collect();
        let list = Args::new(&list);
        connection.session.begin_command();
        let (said, started) = (output.len(), Instant::now());
        self.run_command(connection, &list, limits, output);
        self.spent += started.elapsed();
        if matches!(connection.state, State::Deferred | State::Again) {
            return connection.session.put_off_command();
        }
        if connection.session.is_muted() {
            output.truncate(said);
        }
        count(&self.shared.counts(self.worker).commands, 1);
    }

    /// Gives a command to whoever can go on with it; the connection waits for the reply.
    pub(super) fn hand_over(
        &self,
        connection: &mut Connection,
        call: &Call<'_>,
        outcome: Outcome,
        output: &mut Vec<u8>,
    ) {
        let engine = &*self.shared.engine;
        if outcome == Outcome::Long {
            return self.long(connection, call, output);
        }
        if let Err(error) = engine.book_queued(self.seat()) {
            return call.refuse(error, &mut connection.session.reply(output));
        }
        connection.state = State::Waiting;
        let ticket = connection.key.packed() as usize;
        let mut request = Box::new(Request::new(call, Home::Worker(self.worker), ticket, no_large_reply));
        request.client_gone = Some(Arc::clone(&connection.client.killed));
        match outcome {
            Outcome::NeedsMain => engine.needs_main(request),
            _ => {
                connection.queued_since = Some(self.now);
                engine.enqueue(request);
            }
        }
    }

    /// Sends a connection's replies of this turn.
    pub fn send_piece(&mut self, connection: &mut Connection, piece: &Piece) -> Fate {
        connection.has_outgoing = false;
        let mut output = std::mem::take(&mut self.output);
        let is_last = piece.bytes.end == output.len();
        let fate = if is_last && piece.bytes.len() > OUTPUT_KEPT && connection.unsent.is_empty() {
            // What others were answered is sent already, so the rest need not be copied.
            connection.unsent = Backlog::of(std::mem::take(&mut output), piece.bytes.start);
            self.send(connection, &[])
        } else {
            self.send(connection, &output[piece.bytes.clone()])
        };
        self.output = output;
        if !connection.unsent.is_empty() {
            connection.show_condition();
        }
        fate
    }

    /// Sends what there is to send. `Ends` where the connection is broken, or has been told everything
    /// before its end, or leaves too much lying.
    pub(super) fn send(&mut self, connection: &mut Connection, output: &[u8]) -> Fate {
        let first = connection.unsent.is_empty();
        if !first {
            connection.unsent.add(output);
        }
        let bytes = if first { output } else { connection.unsent.bytes() };
        let mut sent = 0;
        if !bytes.is_empty() {
            match self.driver.send(&connection.socket, bytes) {
                Sent::Broken => return Fate::Ends,
                Sent::Bytes(bytes) => sent = bytes,
            }
            count(&self.shared.counts(self.worker).sent, sent as u64);
        }
        if first {
            connection.unsent.add(&output[sent..]);
        } else {
            connection.unsent.use_up(sent);
        }
        if connection.unsent.is_empty() {
            connection.over_soft_limit = None;
            return if connection.state == State::Closing { Fate::Ends } else { Fate::Stays };
        }
        if self.is_over_limit(connection) { Fate::Ends } else { Fate::Stays }
    }

    /// Whether a connection leaves more lying than it may.
    fn is_over_limit(&mut self, connection: &mut Connection) -> bool {
        let settings = &self.shared.engine.settings.port;
        let (mut hard, soft) = (settings.most_output(), settings.output_soft.load(Ordering::Relaxed));
        if connection.session.user.is_none() {
            hard = hard.min(UNAUTHENTICATED_OUTPUT_BYTES);
        }
        let unsent = connection.unsent.len();
        if unsent > hard {
            self.note_limit();
            return true;
        }
        if soft > 0 && unsent > soft {
            connection.over_soft_limit.get_or_insert(self.now);
        } else {
            connection.over_soft_limit = None;
        }
        false
    }

    /// Whether a connection has been idle, or has left too much lying, for too long.
    pub fn is_overdue(&self, connection: &Connection) -> bool {
        let settings = &self.shared.engine.settings.port;
        let soft = settings.output_soft_seconds.load(Ordering::Relaxed) as u64;
        if connection.over_soft_limit.is_some_and(|since| self.now - since > Duration::from_secs(soft)) {
            return true;
        }
        let timeout = settings.timeout.load(Ordering::Relaxed) as u64;
        let seen = connection.client.last_seen.load(Ordering::Relaxed);
        let idle = self.shared.clock(self.now).saturating_sub(seen);
        timeout > 0 && !connection.is_waiting() && idle > timeout * 1000
    }
}

fn no_large_reply(_: usize, _: &Tape) {}
