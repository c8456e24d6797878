//! For `gates`: the host's reasons to refuse commands.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{Flag, Gauge, part};

/// A host that has run no command for so long rests: what its last ones have begun shows by then,
/// such as a sync of the AOF that fails.
const RESTS_AFTER: Duration = Duration::from_secs(3);
/// How often a host at rest is asked.
const ASKED_AT_REST: Duration = Duration::from_secs(1);

part! {
    /// The host's reasons to refuse all commands, or writes, as last read.
    pub struct HostGates {
        /// Something happened: everything must be read again.
        pub stale: Flag = Flag::new(true),
        /// The host's settings may have changed.
        pub settings_stale: Flag = Flag::new(true),
        /// Whether any port is open: then the flags are read in every turn.
        pub ports: Flag = Flag::new(false),
        /// The host's verdict on a write tells of its AOF also between commands.
        pub judges_at_any_time: Flag = Flag::new(false),
        /// From INFO, while a port is open.
        pub disk_error: Flag = Flag::new(false),
        pub aof_error: Flag = Flag::new(false),
        pub few_replicas: Flag = Flag::new(false),
        /// From CONFIG.
        pub serves_stale: Flag = Flag::new(true),
        pub stops_at_disk_error: Flag = Flag::new(false),
        /// Valkey's `import-mode`.
        pub imports: Flag = Flag::new(false),
        /// `min-replicas-to-write`; `gates::UNKNOWN` if the host does not report it.
        pub replicas_wanted: Gauge = Gauge::new(0),
        /// Whether the host counts replicas for writes. It learns by itself how far they lag.
        pub counts_replicas: Flag = Flag::new(false),
        /// The host's cron has run.
        pub has_ticked: Flag = Flag::new(false),
        /// The host has run a command since the last tick of its cron.
        pub has_run: Flag = Flag::new(true),
        /// The bytes of midi's keys at the last tick.
        pub bytes: Gauge = Gauge::new(0),
        /// Whether the host rests.
        pub rest: Mutex<Rest> = Mutex::new(Rest { was_busy: None, was_asked: None }),
    }
}

impl HostGates {
    /// Something happened that may have changed the gates.
    pub fn may_change(&self) {
        self.stale.set(true);
    }
}

/// When the host was last busy, and when it was last asked.
pub struct Rest {
    was_busy: Option<Instant>,
    was_asked: Option<Instant>,
}

impl Rest {
    /// Whether the host is to be asked at this tick of its cron.
    pub fn asks(&mut self, now: Instant, is_busy: bool) -> bool {
        if is_busy {
            self.was_busy = Some(now);
        }
        let is_within = |then: Option<Instant>, time| then.is_some_and(|then| now < then + time);
        let rests = !is_within(self.was_busy, RESTS_AFTER);
        let asks = !(rests && is_within(self.was_asked, ASKED_AT_REST));
        if asks {
            self.was_asked = Some(now);
        }
        asks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_at_rest_is_asked_once_a_second() {
        let mut rest = Rest { was_busy: None, was_asked: None };
        let mut now = Instant::now();
        let mut asked = |is_busy: bool, ticks: u32| -> usize {
            let mut asks = || {
                now += Duration::from_millis(100);
                rest.asks(now, is_busy)
            };
            (0..ticks).filter(|_| asks()).count()
        };
        assert_eq!((asked(false, 1), asked(false, 20)), (1, 2));
        // A command, and what may come of it.
        assert_eq!((asked(true, 1), asked(false, 29)), (1, 29));
        assert_eq!((asked(false, 100), asked(true, 10)), (10, 10));
    }
}
