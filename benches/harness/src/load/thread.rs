//! One load thread: its connections, its clock, its tally.

use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::connection::{Connection, Ns};
use super::keys::Source;
use super::replies::Seen;
use super::template::Template;

/// Bytes per read: large enough for a pipeline's replies, small enough for the cache.
const READ_BYTES: usize = 128 << 10;

/// The outcome of a read: bytes, the end, or an error.
const READABLE: epoll::EventFlags =
    epoll::EventFlags::IN.union(epoll::EventFlags::HUP).union(epoll::EventFlags::ERR);

/// How often a thread wakes up when nothing happens.
const LOOK_UP: Duration = Duration::from_millis(20);

/// The figures of all threads of a run.
pub struct Run {
    /// When it began.
    pub began: Instant,
    /// Commands sent from here on are measured.
    pub measure_from: Ns,
    /// From here on nothing is sent; `u64::MAX` until that is known.
    pub until: Arc<AtomicU64>,
    /// How long replies are waited for after the end.
    pub drain: Ns,
    /// Whether each connection sends the kinds one after the other.
    pub in_turn: bool,
    /// Whether each pipeline has a connection of its own.
    pub reconnects: bool,
}

impl Run {
    /// Nanoseconds since the beginning.
    #[inline]
    pub fn now(&self) -> Ns {
        self.began.elapsed().as_nanos() as Ns
    }
}

/// One kind of command, and how often it is chosen.
pub struct Kind {
    /// The command that is sent.
    pub template: Template,
    /// Chosen when the draw is below this, and not below an earlier kind's.
    pub below: u32,
}

/// When commands are sent.
pub enum Pace {
    /// This many commands in flight on each connection; the next ones when those are answered.
    Closed(u64),
    /// At fixed times, whatever the server does; at most this many in flight.
    Open {
        /// Nanoseconds between two commands of this thread.
        interval: f64,
        /// When the first one is due.
        next: f64,
        /// The pipeline's depth.
        depth: u64,
    },
}

/// The counts of a thread.
pub struct Tally {
    /// Latencies in nanoseconds, one histogram a kind.
    pub latencies: Vec<Histogram<u64>>,
    /// Open loop: how late this thread itself sent, in nanoseconds; included in the latencies.
    pub lateness: Histogram<u64>,
    /// Replies inside the measured time.
    pub operations: u64,
    /// Never answered; they count in the histograms with their age at the end.
    pub unfinished: u64,
    /// Errors and nulls, including the warm-up's.
    pub seen: Seen,
    /// When the last reply came.
    pub last: Ns,
}

/// A thread of the load generator.
pub struct LoadThread<'a> {
    run: &'a Run,
    progress: &'a AtomicU64,
    connections: Vec<Connection>,
    kinds: Vec<Kind>,
    source: Source,
    pace: Pace,
    tally: Tally,
    epoll: OwnedFd,
    /// Open loop: the connection that gets the next command.
    turn: usize,
}

impl<'a> LoadThread<'a> {
    /// # Errors
    /// The system's, if it has no more descriptors.
    pub fn new(
        run: &'a Run,
        progress: &'a AtomicU64,
        connections: Vec<Connection>,
        kinds: Vec<Kind>,
        source: Source,
        pace: Pace,
    ) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (number, connection) in connections.iter().enumerate() {
            add(&epoll, connection, number)?;
        }
        // Three digits, up to an hour.
        let histogram = || Histogram::new_with_bounds(1, 3_600_000_000_000, 3);
        let latencies = kinds.iter().map(|_| histogram()).collect::<Result<_, _>>()?;
        let lateness = histogram()?;
        let tally = Tally {
            latencies,
            lateness,
            operations: 0,
            unfinished: 0,
            seen: Seen::default(),
            last: 0,
        };
        Ok(LoadThread { run, progress, connections, kinds, source, pace, tally, epoll, turn: 0 })
    }

    /// Runs until the time or the budget is used up.
    ///
    /// # Errors
    /// Any error on a connection.
    pub fn drive(mut self) -> Result<Tally> {
        if matches!(self.pace, Pace::Open { .. }) {
            // Otherwise the kernel lets timers be 50 µs late.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        }
        let mut buffer = vec![0; READ_BYTES];
        let mut events = Vec::with_capacity(256);
        let mut now = self.run.now();
        for number in 0..self.connections.len() {
            self.send(number, now)?;
        }
        loop {
            let until = self.run.until.load(Ordering::Relaxed);
            if now < until {
                self.schedule(now, until)?;
            } else if now >= until.saturating_add(self.run.drain) || self.is_answered() {
                break;
            }
            if self.is_spent() && self.is_answered() {
                break;
            }
            events.clear();
            let timeout = self.timeout(now, until);
            epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout))?;
            now = self.run.now();
            for event in &events {
                let (number, flags) = (event.data.u64() as usize, event.flags);
                if flags.contains(epoll::EventFlags::OUT) {
                    self.flush(number)?;
                }
                if flags.intersects(READABLE) {
                    now = self.run.now();
                    self.receive(number, now, &mut buffer)?;
                    if self.connections[number].is_unsent() {
                        self.flush(number)?;
                    }
                    self.send(number, now)?;
                }
            }
            self.progress.store(self.tally.operations, Ordering::Relaxed);
        }
        self.finish(now);
        Ok(self.tally)
    }

    fn is_spent(&self) -> bool {
        self.connections.iter().all(|connection| connection.budget == 0)
    }

    fn is_answered(&self) -> bool {
        self.connections
            .iter()
            .all(|connection| connection.outstanding == 0 && connection.late.is_empty())
    }

    /// Open loop: assigns the commands that are due to connections.
    fn schedule(&mut self, now: Ns, until: Ns) -> Result<()> {
        let end = now.min(until);
        loop {
            let Pace::Open { interval, next, .. } = &mut self.pace else { return Ok(()) };
            let number = self.turn;
            // Budgets shrink in turn: when one is used up, all are.
            if self.connections[number].budget == 0 || *next as Ns > end {
                return Ok(());
            }
            let due = *next as Ns;
            *next += *interval;
            if due >= self.run.measure_from {
                self.tally.lateness.saturating_record(now.saturating_sub(due));
            }
            self.connections[number].budget -= 1;
            self.turn = (self.turn + 1) % self.connections.len();
            self.connections[number].late.push_back(due);
            self.send(number, now)?;
        }
    }

    fn timeout(&self, now: Ns, until: Ns) -> Timespec {
        let mut wait = LOOK_UP.as_nanos() as Ns;
        if now < until {
            wait = wait.min(until - now);
            if let Pace::Open { next, .. } = self.pace
                && self.connections[self.turn].budget > 0
            {
                wait = wait.min((next as Ns).saturating_sub(now));
            }
        }
        Timespec { tv_sec: 0, tv_nsec: wait as _ }
    }

    /// Sends what is due on this connection now.
    #[inline]
    fn send(&mut self, number: usize, now: Ns) -> Result<()> {
        let before = self.connections[number].outstanding;
        match self.pace {
            Pace::Closed(depth) => {
                if before > 0 || now >= self.run.until.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let count = depth.min(self.connections[number].budget);
                if self.run.reconnects && count > 0 && self.connections[number].pushed > 0 {
                    self.reopen(number)?;
                }
                self.connections[number].budget -= count;
                for _ in 0..count {
                    self.push(number, now);
                }
            }
            Pace::Open { depth, .. } => {
                while self.connections[number].outstanding < depth {
                    let Some(due) = self.connections[number].late.pop_front() else { break };
                    self.push(number, due);
                }
            }
        }
        if self.connections[number].outstanding == before { Ok(()) } else { self.flush(number) }
    }

    fn reopen(&mut self, number: usize) -> Result<()> {
        // Its old socket leaves the set when it is closed.
        self.connections[number].reopen()?;
        add(&self.epoll, &self.connections[number], number)
    }

    #[inline]
    fn push(&mut self, number: usize, at: Ns) {
        let kind = match self.kinds.as_slice() {
            [_] => 0,
            kinds if self.run.in_turn => {
                (self.connections[number].pushed % kinds.len() as u64) as usize
            }
            kinds => {
                let draw = self.source.below(kinds[kinds.len() - 1].below);
                kinds.iter().position(|kind| draw < kind.below).unwrap_or(0)
            }
        };
        let connection = &mut self.connections[number];
        self.source.keep_to(number, connection.share);
        connection.push(&mut self.kinds[kind].template, &mut self.source, kind, at);
    }

    /// Asks for an event when the socket accepts more, but only if it did not take everything.
    #[inline]
    fn flush(&mut self, number: usize) -> Result<()> {
        let connection = &mut self.connections[number];
        let was_full = connection.is_waiting;
        connection.is_waiting = !connection.flush()?;
        if connection.is_waiting != was_full {
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, connection.is_waiting);
            epoll::modify(
                &self.epoll,
                &*connection,
                epoll::EventData::new_u64(number as u64),
                flags,
            )?;
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self, number: usize, now: Ns, buffer: &mut [u8]) -> Result<()> {
        let (run, tally) = (self.run, &mut self.tally);
        let until = run.until.load(Ordering::Relaxed);
        self.connections[number].receive(buffer, |at, kind, count| {
            if now >= run.measure_from && now < until {
                tally.operations += count;
                tally.last = now;
            }
            if at >= run.measure_from {
                tally.latencies[kind].saturating_record_n(now.saturating_sub(at), count);
            }
        })
    }

    /// Open commands count with their age: leaving them out would hide a stall.
    fn finish(&mut self, now: Ns) {
        let tally = &mut self.tally;
        for connection in &mut self.connections {
            connection.give_up(|at, kind, count| {
                tally.unfinished += count;
                if at >= self.run.measure_from {
                    tally.latencies[kind].saturating_record_n(now.saturating_sub(at), count);
                }
            });
            let seen = std::mem::take(&mut connection.replies.seen);
            tally.seen.errors += seen.errors;
            tally.seen.nulls += seen.nulls;
            tally.seen.first_error = tally.seen.first_error.take().or(seen.first_error);
        }
        self.progress.store(tally.operations, Ordering::Relaxed);
    }
}

fn add(epoll: &OwnedFd, connection: &Connection, number: usize) -> Result<()> {
    let data = epoll::EventData::new_u64(number as u64);
    Ok(epoll::add(epoll, connection, data, epoll::EventFlags::IN)?)
}
