//! What INFO reports of commands and look-ups.

use crate::engine::counters::CommandCount;
use crate::engine::times::TimesSum;

/// What all threads have counted.
#[derive(Clone, Default)]
pub struct Counted {
    /// For each row of the command table.
    pub commands: Vec<CountedCommand>,
    /// Look-ups to read that found their key.
    pub hits: u64,
    /// Those that did not.
    pub misses: u64,
    /// Keys that were evicted.
    pub evicted: u64,
    /// Keys that have expired.
    pub expired: u64,
}

/// A command's count, and how long its calls took.
#[derive(Clone, Default)]
pub struct CountedCommand {
    /// Its count.
    pub count: CommandCount,
    /// How long its timed calls took; `None` if it was not called.
    pub times: Option<Box<TimesSum>>,
}

impl Counted {
    /// What was counted after `before`.
    pub(super) fn since(mut self, before: &Counted) -> Counted {
        self.hits -= before.hits.min(self.hits);
        self.misses -= before.misses.min(self.misses);
        self.evicted -= before.evicted.min(self.evicted);
        self.expired -= before.expired.min(self.expired);
        for (now, before) in self.commands.iter_mut().zip(&before.commands) {
            now.count = now.count.since(&before.count);
            if let (Some(times), Some(before)) = (&mut now.times, &before.times) {
                **times = times.since(before);
            }
        }
        self
    }

    /// How many commands were run.
    pub fn calls(&self) -> u64 {
        self.commands.iter().map(|command| command.count.calls).sum()
    }
}
