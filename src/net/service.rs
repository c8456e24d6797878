//! What a worker serves its connections with: the driver, and buffers that all share.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::client::Key;
use super::connection::Connection;
use super::driver::Driver;
use super::resp::ArgList;
use super::shared::{Shared, count};
use super::transaction::Transaction;
use crate::limits::{
    HELD_OUTPUT, INPUT_BYTES, LOOKS_AT_CLOCK, OUTPUT_PAUSE, SERVED_AT_ONCE, SERVED_AT_ONCE_MIN,
    SERVED_TOGETHER,
};
use crate::shard::{Engine, Seat};

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

/// Some connection's replies in the turn's buffer.
pub struct Piece {
    /// Whose.
    pub key: Key,
    /// Where.
    pub bytes: Range<usize>,
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
}
