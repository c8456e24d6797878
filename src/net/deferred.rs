//! Connections whose next command a gate holds up: they are looked at again and again, because no
//! message tells when it would be let through.

use std::mem::take;
use std::time::{Duration, Instant};

use super::transport::Key;
use crate::engine::Gates;
use crate::limits::DEFERRED_NAP;

/// Connections that wait for a gate.
pub struct Deferred {
    keys: Vec<Key>,
    /// They are not looked at again before, ...
    again_at: Instant,
    /// ... or until the gates are others than these.
    gates: Gates,
}

impl Deferred {
    /// None.
    pub fn new(now: Instant) -> Self {
        Deferred { keys: Vec::new(), again_at: now, gates: Gates::OPEN }
    }

    /// Adds a connection.
    pub fn push(&mut self, key: Key) {
        self.keys.push(key);
    }

    /// How long the port may sleep for them, at most `wait`.
    pub fn wait(&self, wait: Duration) -> Duration {
        if self.keys.is_empty() { wait } else { wait.min(DEFERRED_NAP) }
    }

    /// Takes them, if they are to be looked at again.
    pub fn take_due(&mut self, now: Instant, gates: Gates) -> Vec<Key> {
        let is_due = now >= self.again_at || gates != self.gates;
        self.gates = gates;
        if is_due { take(&mut self.keys) } else { Vec::new() }
    }

    /// They were looked at in vain, which took so long. A command is parsed again each time, and it
    /// may be a large one: so they take a tenth of the time.
    pub fn were_held_up(&mut self, now: Instant, took: Duration) {
        self.again_at = now + took * 9;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_take_a_tenth_of_the_time() {
        let now = Instant::now();
        let ms = Duration::from_millis;
        let paused = Gates::WRITES_PAUSED;
        let mut deferred = Deferred::new(now);
        assert_eq!(deferred.wait(ms(50)), ms(50));
        deferred.push(Key::default());
        assert_eq!(deferred.wait(ms(50)), DEFERRED_NAP);
        assert_eq!(deferred.take_due(now, paused).len(), 1);
        deferred.push(Key::default());
        deferred.were_held_up(now, ms(20));
        assert_eq!(deferred.take_due(now + ms(179), paused).len(), 0);
        assert_eq!(deferred.take_due(now + ms(180), paused).len(), 1);
        // A gate opens.
        deferred.push(Key::default());
        deferred.were_held_up(now + ms(180), ms(20));
        assert_eq!(deferred.take_due(now + ms(181), Gates::OPEN).len(), 1);
    }
}
