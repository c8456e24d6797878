//! Connections whose next command a gate holds up: they are looked at again and again, because no
//! message tells when it would be let through.

use std::mem::take;
use std::time::{Duration, Instant};

use super::transport::Key;
use crate::limits::DEFERRED_NAP;

/// Connections that wait for a gate.
pub struct Deferred {
    keys: Vec<Key>,
    /// They are not looked at again before.
    again_at: Instant,
}

impl Deferred {
    /// None.
    pub fn new(now: Instant) -> Self {
        Deferred { keys: Vec::new(), again_at: now }
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
    pub fn take_due(&mut self, now: Instant) -> Vec<Key> {
        if now >= self.again_at { take(&mut self.keys) } else { Vec::new() }
    }

    /// So many were looked at, which took so long. If all are still held up, they wait: a command
    /// is parsed again each time, and it may be a large one. So they take a tenth of the time.
    pub fn looked_at(&mut self, count: usize, now: Instant, took: Duration) {
        if count > 0 && self.keys.len() >= count {
            self.again_at = now + took * 9;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_take_a_tenth_of_the_time() {
        let now = Instant::now();
        let ms = Duration::from_millis;
        let mut deferred = Deferred::new(now);
        assert_eq!(deferred.wait(ms(50)), ms(50));
        deferred.push(Key::default());
        assert_eq!(deferred.wait(ms(50)), DEFERRED_NAP);
        assert_eq!(deferred.take_due(now).len(), 1);
        // It is held up again.
        deferred.push(Key::default());
        deferred.looked_at(1, now, ms(20));
        assert_eq!(deferred.take_due(now + ms(179)).len(), 0);
        assert_eq!(deferred.take_due(now + ms(180)).len(), 1);
        // Now it has run.
        deferred.looked_at(1, now + ms(180), ms(20));
        deferred.push(Key::default());
        assert_eq!(deferred.take_due(now + ms(181)).len(), 1);
    }
}
