//! What a connection has to say: bytes for its client, whatever they mean.
//!
//! The replies of a turn, of all connections, are in one buffer, the [`Outbox`]. They are sent when
//! all have been served: so a client is woken once for many replies, and not in between. A reply
//! that cannot be sent, or must wait for the log (`held.rs`), stays with its connection.

use std::mem::take;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::Key;
use super::backlog::Backlog;
use super::driver::Sent;
use crate::limits::{OUTPUT_KEPT, OUTPUT_PER_TURN};

/// What a worker's connections say in this turn.
#[derive(Default)]
pub struct Outbox {
    /// The bytes of one connection after another.
    pub bytes: Vec<u8>,
    /// The connections, in that order. One may stand here twice: its bytes of this turn may have
    /// been moved or sent before it said more.
    pub keys: Vec<Key>,
}

impl Outbox {
    /// Whether it must be sent before the end of the turn.
    pub fn is_full(&self) -> bool {
        self.bytes.len() > OUTPUT_PER_TURN
    }

    /// Empties it after all has been sent. After a very large reply the memory is freed.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.bytes.clear();
        if self.bytes.capacity() > OUTPUT_KEPT {
            self.bytes = Vec::new();
        }
    }
}

/// The wait of bytes that may not be sent yet.
pub struct LogWait {
    /// The log must be safe up to this position.
    pub position: u64,
    /// Since when they wait.
    pub since: Instant,
}

/// What a connection has to say.
#[derive(Default)]
pub struct Outgoing {
    /// What it has said in earlier turns.
    unsent: Backlog,
    /// What it says in this turn: a range of the outbox.
    said: Range<usize>,
    /// Nothing is sent while it waits for the log.
    pub wait: Option<LogWait>,
    /// Since when `unsent` is above the soft limit.
    over_soft_limit: Option<Instant>,
}

impl Outgoing {
    /// Whether it waits for the log.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.wait.is_some()
    }

    /// Whether there is nothing to send.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.said.is_empty() && self.unsent.is_empty()
    }

    /// How many bytes of earlier turns have not been sent.
    #[inline]
    pub fn unsent(&self) -> usize {
        self.unsent.len()
    }

    /// The memory that those take.
    pub fn capacity(&self) -> usize {
        self.unsent.capacity()
    }

    /// Says what is in this range of the outbox.
    #[inline]
    pub fn say(&mut self, key: Key, bytes: Range<usize>, outbox: &mut Outbox) {
        if bytes.is_empty() {
            return;
        }
        self.claim(outbox);
        self.said = bytes;
        outbox.keys.push(key);
    }

    /// Says bytes that come from elsewhere.
    pub fn say_more(&mut self, bytes: Vec<u8>, outbox: &Outbox) {
        self.claim(outbox);
        self.unsent.append(bytes);
    }

    /// Says nothing but this: nothing of what it has said before is sent.
    pub fn say_only(&mut self, bytes: Vec<u8>) {
        (self.unsent, self.said) = (Backlog::of(bytes, 0), 0..0);
    }

    /// Moves what it has said in this turn out of the outbox, before what follows.
    #[inline]
    fn claim(&mut self, outbox: &Outbox) {
        if !self.said.is_empty() {
            self.unsent.add(&outbox.bytes[take(&mut self.said)]);
        }
    }

    /// Takes the whole outbox if its last bytes, which are this connection's, are very many: all
    /// others have been sent already, so what is left of these need not be copied.
    pub fn take_over(&mut self, outbox: &mut Outbox) {
        let is_last = self.said.end == outbox.bytes.len();
        if is_last && self.said.len() > OUTPUT_KEPT && self.unsent.is_empty() {
            self.unsent = Backlog::of(take(&mut outbox.bytes), take(&mut self.said).start);
        }
    }

    /// Sends with `send` as much as may be sent, and keeps the rest. Returns how much was sent.
    #[inline]
    pub fn send(&mut self, outbox: &Outbox, send: impl FnOnce(&[u8]) -> Sent) -> Sent {
        let said = &outbox.bytes[take(&mut self.said)];
        let is_first = self.unsent.is_empty();
        if self.is_held() || !is_first {
            self.unsent.add(said);
        }
        let bytes = if is_first { said } else { self.unsent.bytes() };
        if self.is_held() || bytes.is_empty() {
            return Sent::Bytes(0);
        }
        let Sent::Bytes(sent) = send(bytes) else { return Sent::Broken };
        if is_first {
            self.unsent.add(&said[sent..]);
        } else {
            self.unsent.use_up(sent);
        }
        if self.unsent.is_empty() {
            self.over_soft_limit = None;
        }
        Sent::Bytes(sent)
    }

    /// Whether more waits than may: more than `hard` bytes. Notes since when it is more than
    /// `soft`; 0 for no such limit.
    pub fn is_over(&mut self, hard: usize, soft: usize, now: Instant) -> bool {
        let unsent = self.unsent.len();
        if soft > 0 && unsent > soft {
            self.over_soft_limit.get_or_insert(now);
        } else {
            self.over_soft_limit = None;
        }
        unsent > hard
    }

    /// Whether it has been above the soft limit for longer than this.
    pub fn is_slow(&self, now: Instant, most: Duration) -> bool {
        self.over_soft_limit.is_some_and(|since| now - since > most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(outgoing: &mut Outgoing, outbox: &mut Outbox, text: &[u8]) {
        let start = outbox.bytes.len();
        outbox.bytes.extend_from_slice(text);
        outgoing.say(Key::default(), start..outbox.bytes.len(), outbox);
    }

    /// What is sent through a socket that has so much room.
    fn sent(outgoing: &mut Outgoing, outbox: &Outbox, room: usize) -> Vec<u8> {
        let mut got = Vec::new();
        outgoing.send(outbox, |bytes| {
            got.extend_from_slice(&bytes[..room.min(bytes.len())]);
            Sent::Bytes(got.len())
        });
        got
    }

    #[test]
    fn bytes_stay_in_order() {
        let (mut outgoing, mut outbox) = (Outgoing::default(), Outbox::default());
        say(&mut outgoing, &mut outbox, b"ab");
        say(&mut Outgoing::default(), &mut outbox, b"another's");
        say(&mut outgoing, &mut outbox, b"cd");
        assert_eq!(sent(&mut outgoing, &outbox, 3), b"abc");
        assert_eq!(outgoing.unsent(), 1);
        outgoing.say_more(b"ef".to_vec(), &outbox);
        say(&mut outgoing, &mut outbox, b"gh");
        outgoing.take_over(&mut outbox);
        assert_eq!(sent(&mut outgoing, &outbox, usize::MAX), b"defgh");
        assert!(outgoing.is_empty());
    }

    #[test]
    fn a_large_rest_is_not_copied() {
        let (mut outgoing, mut outbox) = (Outgoing::default(), Outbox::default());
        say(&mut Outgoing::default(), &mut outbox, b"another's");
        say(&mut outgoing, &mut outbox, &vec![b'x'; OUTPUT_KEPT + 1]);
        outgoing.take_over(&mut outbox);
        assert!(outbox.bytes.is_empty());
        assert_eq!(sent(&mut outgoing, &outbox, OUTPUT_KEPT), vec![b'x'; OUTPUT_KEPT]);
        assert_eq!(outgoing.unsent(), 1);
    }

    #[test]
    fn nothing_is_sent_while_it_waits_for_the_log() {
        let (mut outgoing, mut outbox) = (Outgoing::default(), Outbox::default());
        outgoing.wait = Some(LogWait { position: 1, since: Instant::now() });
        assert!(outgoing.is_held());
        say(&mut outgoing, &mut outbox, b"ab");
        assert_eq!(sent(&mut outgoing, &outbox, usize::MAX), b"");
        assert!(outgoing.is_over(1, 0, Instant::now()));
        outgoing.say_only(b"c".to_vec());
        outgoing.wait = None;
        assert_eq!(sent(&mut outgoing, &outbox, usize::MAX), b"c");
    }
}
