//! What a worker serves its connections with: the driver, and buffers that all connections share.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::client::Key;
use super::connection::Connection;
use super::driver::Driver;
use super::held::HeldConnections;
use super::resp::ArgList;
use super::shared::{Shared, count};
use super::transaction::Transaction;
use crate::engine::{Engine, ThreadSlot};
use crate::limits::{
    HEAVY_TURN, HELD_OUTPUT, INPUT_BYTES, LOOKS_AT_CLOCK, OUTPUT_PAUSE, SERVED_AT_ONCE,
    SERVED_AT_ONCE_MIN, SERVED_TOGETHER,
};

/// What follows for a connection after its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnOutcome {
    /// It waits for an event.
    Stays,
    /// It can go on at once, after others.
    Ready,
    /// The host holds it up: it retries soon.
    Deferred,
    /// It is to be closed.
    Ends,
}

/// How long a connection has been served in one go.
#[derive(Default)]
pub(super) struct Pace {
    rounds: u32,
    since: Option<Instant>,
}

impl Pace {
    /// Begins another round unless the time is over. It does not look at the clock in the first
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

/// The time of commands that run by themselves, each of which may take any time.
pub(super) struct Alone {
    /// How long a connection may run them in one go: it doubles until other connections have
    /// commands.
    at_once: Duration,
    /// How long those of the current connection have taken.
    spent: Duration,
    /// When the last of them ended, if nothing else has run since.
    ended: Option<Instant>,
}

impl Default for Alone {
    fn default() -> Self {
        Alone { at_once: HEAVY_TURN, spent: Duration::ZERO, ended: None }
    }
}

impl Alone {
    /// A turn of the port begins, in which a connection is served for at most this long.
    fn next_turn(&mut self, most: Duration) {
        self.at_once = (self.at_once * 2).min(most);
    }

    /// A connection with short turns has input: those with long turns must not delay it.
    pub(super) fn hear_light(&mut self) {
        self.at_once = HEAVY_TURN;
    }

    /// A connection's turn begins.
    pub(super) fn begin(&mut self) {
        (self.spent, self.ended) = (Duration::ZERO, None);
    }

    /// Whether the connection has run such commands for as long as it may in one go.
    pub(super) fn is_over(&self) -> bool {
        self.spent > self.at_once
    }

    /// Whether that took long.
    pub(super) fn is_heavy(&self) -> bool {
        self.spent > HEAVY_TURN
    }

    /// The start time of a command that runs by itself. If it follows another, it is the end of
    /// that one: a look at the clock costs as much as a short command.
    pub(super) fn command_begins(&self) -> Instant {
        self.ended.unwrap_or_else(Instant::now)
    }

    /// Such a command has ended.
    pub(super) fn command_ended(&mut self, began: Instant) {
        let now = Instant::now();
        self.spent += now - began;
        self.ended = Some(now);
    }

    /// Other commands run now; their time is not counted here.
    pub(super) fn interrupt(&mut self) {
        self.ended = None;
    }
}

/// A connection's replies in the turn's buffer.
pub struct Piece {
    /// The connection.
    pub key: Key,
    /// Their range in the buffer.
    pub bytes: Range<usize>,
}

/// What a worker serves connections with.
pub struct Service<D: Driver> {
    /// What all workers share.
    pub shared: Arc<Shared>,
    /// This worker.
    pub worker: usize,
    /// Moves bytes between sockets and buffers.
    pub driver: D,
    /// When this turn began.
    pub now: Instant,
    /// The same on the ports' clock, updated every few hundredths of a second.
    pub recently: u64,
    /// How long a connection is served in one go in this turn.
    pub(super) at_once: Duration,
    /// The time of commands that run by themselves.
    pub(super) alone: Alone,
    /// Received input: of one connection after another, or of a group.
    pub(super) input: Vec<u8>,
    /// The replies of this turn.
    pub(super) output: Vec<u8>,
    pub(super) outbox: Vec<Piece>,
    pub(super) args: ArgList,
    /// Connections whose replies wait for the log.
    pub(super) held: HeldConnections,
    /// An empty transaction, for the next MULTI.
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
            alone: Alone::default(),
            recently: 0,
            input: Vec::with_capacity(INPUT_BYTES),
            output: Vec::new(),
            outbox: Vec::new(),
            args: ArgList::default(),
            held: HeldConnections::default(),
            spare: None,
        }
    }

    /// Divides the time of this turn among this many connections.
    pub fn share_out(&mut self, connections: usize) {
        let shares = connections.div_ceil(SERVED_TOGETHER).max(1) as u32;
        self.at_once = (SERVED_AT_ONCE / shares).max(SERVED_AT_ONCE_MIN);
        self.alone.next_turn(self.at_once);
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    pub(super) fn slot(&self) -> &ThreadSlot {
        self.shared.engine.worker_slot(self.worker)
    }

    /// Limits the output of a connection whose replies begin at `said`: to the bytes that may wait
    /// for it, plus what is written before the length is checked.
    pub(super) fn limit_output(&self, connection: &mut Connection, said: usize) {
        let most = self.engine().settings().port.most_output();
        connection.session.most_output = most.saturating_add(said + OUTPUT_PAUSE + HELD_OUTPUT);
    }

    /// Whether a connection's reply grew larger than may wait for it. Then it is cut off, and the
    /// connection must be closed.
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

    /// Counts a connection that is closed for a limit.
    pub(super) fn note_limit(&self) {
        count(&self.shared.counts(self.worker).closed_for_limits, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_over_after(alone: &mut Alone, spent: Duration) -> bool {
        alone.begin();
        alone.command_ended(Instant::now() - spent);
        alone.is_over()
    }

    #[test]
    fn long_turns_are_short_beside_others() {
        let (mut alone, long) = (Alone::default(), SERVED_AT_ONCE * 4);
        for _ in 0..10 {
            alone.next_turn(long);
        }
        assert!(!is_over_after(&mut alone, HEAVY_TURN * 2), "nobody else is there");
        assert!(alone.is_heavy());
        assert!(is_over_after(&mut alone, long));
        alone.hear_light();
        assert!(is_over_after(&mut alone, HEAVY_TURN), "others are");
        alone.next_turn(long);
        assert!(is_over_after(&mut alone, HEAVY_TURN * 2), "or were a moment ago");
        alone.begin();
        assert!(!alone.is_over() && !alone.is_heavy(), "the next connection has its own time");
    }

    #[test]
    fn time_between_commands_counts_unless_others_ran() {
        let (mut alone, long) = (Alone::default(), Duration::from_secs(1));
        alone.begin();
        alone.ended = Some(Instant::now() - long);
        alone.command_ended(alone.command_begins());
        assert!(alone.spent >= long);
        alone.begin();
        alone.ended = Some(Instant::now() - long);
        alone.interrupt();
        assert!(alone.command_begins().elapsed() < long);
    }
}
