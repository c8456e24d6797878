//! A turn of a worker's port: its time, and how it is divided among connections.

use std::time::{Duration, Instant};

use super::resp::Transaction;
use crate::limits::{
    HEAVY_PIPELINE, HEAVY_TURN, HEAVY_TURN_MIN, HELD_TIME, LOOKS_AT_CLOCK, READY_PER_TURN,
    SERVED_AT_ONCE, SERVED_AT_ONCE_MIN, SERVED_TOGETHER,
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

/// What the connections of a turn have, one after another.
pub struct ThisTurn {
    /// When the turn began.
    pub now: Instant,
    /// The same on the ports' clock, updated every few hundredths of a second.
    pub recently: u64,
    /// How long a connection is served in one go.
    pub at_once: Duration,
    /// The time of commands that are timed.
    pub timed: Timed,
    /// An empty transaction, for the next MULTI.
    pub spare: Option<Box<Transaction>>,
}

impl Default for ThisTurn {
    fn default() -> Self {
        ThisTurn {
            now: Instant::now(),
            recently: 0,
            at_once: SERVED_AT_ONCE,
            timed: Timed::default(),
            spare: None,
        }
    }
}

impl ThisTurn {
    /// Divides the time of this turn among this many connections. So many heavy ones wait beside
    /// them.
    pub fn divide(&mut self, connections: usize, heavy: usize) {
        let parts = connections.div_ceil(SERVED_TOGETHER).max(1) as u32;
        self.at_once = (SERVED_AT_ONCE / parts).max(SERVED_AT_ONCE_MIN);
        let share = READY_PER_TURN / (connections + heavy).max(1) as u32;
        self.timed.next_turn(self.at_once, share.max(HEAVY_TURN_MIN));
    }
}

/// How long a connection has been served in one go.
#[derive(Default)]
pub struct Pace {
    rounds: u32,
    since: Option<Instant>,
}

impl Pace {
    /// Begins another round unless the time is over. It does not look at the clock in the first
    /// round, which for most connections is the only one, and seldom after that.
    pub fn is_over(&mut self, most: Duration) -> bool {
        self.rounds += 1;
        if self.rounds % LOOKS_AT_CLOCK != 2 {
            return false;
        }
        let now = Instant::now();
        now - *self.since.get_or_insert(now) > most
    }
}

/// The time of commands each of which may take any time: those that run by themselves, and those
/// that run together and may be slow.
pub struct Timed {
    /// How long a connection may run them in one go: it doubles until other connections have
    /// commands.
    at_once: Duration,
    /// A connection's share of the time. A turn of many commands is heavy if it takes longer.
    share: Duration,
    /// How long those of the current connection have taken.
    spent: Duration,
    /// How many there were.
    ran: u32,
    /// How long quick ones have taken that ran together.
    together: Duration,
    /// When the last of them ended, if nothing else has run since.
    ended: Option<Instant>,
}

impl Default for Timed {
    fn default() -> Self {
        Timed {
            at_once: HEAVY_TURN,
            share: HEAVY_TURN,
            spent: Duration::ZERO,
            ran: 0,
            together: Duration::ZERO,
            ended: None,
        }
    }
}

impl Timed {
    /// A turn of the port begins, in which a connection is served for at most this long, and this
    /// is its share of the time.
    fn next_turn(&mut self, most: Duration, share: Duration) {
        self.at_once = (self.at_once * 2).min(most);
        self.share = share;
    }

    /// A connection with short turns has input: those with long turns must not delay it.
    pub fn hear_light(&mut self) {
        self.at_once = HEAVY_TURN;
    }

    /// A connection's turn begins.
    pub fn begin(&mut self) {
        (self.spent, self.ran, self.ended) = (Duration::ZERO, 0, None);
        self.together = Duration::ZERO;
    }

    /// Whether the connection has run such commands for as long as it may in one go.
    pub fn is_over(&self) -> bool {
        self.spent > self.at_once || self.spent + self.together > SERVED_AT_ONCE
    }

    /// Whether that was long: for any connection, or for a pipeline beside so many connections.
    pub fn is_heavy(&self) -> bool {
        self.spent > HEAVY_TURN || (self.ran > HEAVY_PIPELINE && self.spent > self.share)
    }

    /// The start time of a command that runs by itself. If it follows another, it is the end of
    /// that one: a look at the clock costs as much as a short command.
    pub fn command_begins(&self) -> Instant {
        self.ended.unwrap_or_else(Instant::now)
    }

    /// Such a command has ended; returns how long it took.
    pub fn command_ended(&mut self, began: Instant) -> Duration {
        let now = Instant::now();
        self.spent += now - began;
        self.ran += 1;
        self.ended = Some(now);
        now - began
    }

    /// So many commands that may be slow ran together, for so long. They were slow if that ended
    /// their run.
    pub fn ran_together(&mut self, commands: usize, took: Duration) {
        if took > HELD_TIME {
            self.spent += took;
            self.ran += commands as u32;
        } else {
            self.together += took;
        }
    }

    /// Other commands run now; their time is not counted here.
    pub fn interrupt(&mut self) {
        self.ended = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_over_after(timed: &mut Timed, spent: Duration) -> bool {
        timed.begin();
        timed.command_ended(Instant::now() - spent);
        timed.is_over()
    }

    #[test]
    fn long_turns_are_short_beside_others() {
        let (mut timed, long) = (Timed::default(), SERVED_AT_ONCE * 4);
        for _ in 0..10 {
            timed.next_turn(long, HEAVY_TURN);
        }
        assert!(!is_over_after(&mut timed, HEAVY_TURN * 2), "nobody else is there");
        assert!(timed.is_heavy());
        assert!(is_over_after(&mut timed, long));
        timed.hear_light();
        assert!(is_over_after(&mut timed, HEAVY_TURN), "others are");
        timed.next_turn(long, HEAVY_TURN);
        assert!(is_over_after(&mut timed, HEAVY_TURN * 2), "or were a moment ago");
        timed.begin();
        assert!(!timed.is_over() && !timed.is_heavy(), "the next connection has its own time");
    }

    #[test]
    fn a_pipeline_is_heavy_beyond_its_share() {
        let mut turn = ThisTurn::default();
        let mut is_heavy = |(connections, heavy), ran, spent| {
            turn.divide(connections, heavy);
            (turn.timed.ran, turn.timed.spent) = (ran, spent);
            turn.timed.is_heavy()
        };
        let (share, many) = (READY_PER_TURN / 100, HEAVY_PIPELINE + 1);
        assert!(!is_heavy((1, 0), many, share * 2), "alone it has the whole");
        assert!(is_heavy((100, 0), many, share * 2));
        assert!(is_heavy((1, 99), many, share * 2), "those that were heavy count, too");
        assert!(!is_heavy((100, 0), 1, share * 2), "it waits for each reply");
        assert!(!is_heavy((1_000_000, 0), many, HEAVY_TURN_MIN));
        assert!(is_heavy((1, 0), 1, HEAVY_TURN * 2), "whatever it is");
    }

    #[test]
    fn commands_that_ran_together_count_as_one_turn() {
        let mut timed = Timed::default();
        timed.begin();
        let batches = (SERVED_AT_ONCE.as_nanos() / HELD_TIME.as_nanos()) as u32;
        (0..batches).for_each(|_| timed.ran_together(32, HELD_TIME));
        assert!(!timed.is_over() && !timed.is_heavy(), "they are quick");
        timed.ran_together(32, HELD_TIME);
        assert!(timed.is_over() && !timed.is_heavy(), "and many");
        timed.begin();
        timed.ran_together(1, HELD_TIME * 2);
        assert!(timed.is_over() && timed.is_heavy(), "one is slow");
    }

    #[test]
    fn time_between_commands_counts_unless_others_ran() {
        let (mut timed, long) = (Timed::default(), Duration::from_secs(1));
        timed.begin();
        timed.ended = Some(Instant::now() - long);
        timed.command_ended(timed.command_begins());
        assert!(timed.spent >= long);
        timed.begin();
        timed.ended = Some(Instant::now() - long);
        timed.interrupt();
        assert!(timed.command_begins().elapsed() < long);
    }
}
