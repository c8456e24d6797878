//! What a connection has to say: bytes for its client, whatever they mean.
//!
//! The replies of a turn, of all connections, are in one buffer, the [`Outbox`]. They are sent when
//! all have been served: so a client is woken once for many replies, and not in between. A reply
//! that cannot be sent, or must wait for the log (`held.rs`), stays with its connection.

use std::collections::VecDeque;
use std::mem::take;
use std::ops::Range;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;

use super::Key;
use super::backlog::Backlog;
use super::driver::Sent;
use super::output::Output;
use crate::limits::{OUTPUT_KEPT, OUTPUT_PAUSE, OUTPUT_PER_TURN, SENT_TOGETHER};
use crate::store::{Piece, SharedValue};

/// What a worker's connections say in this turn.
#[derive(Default)]
pub struct Outbox {
    /// The words of one connection after another.
    pub said: Output,
    /// The connections, in that order. One may stand here twice: its bytes of this turn may have
    /// been moved or sent before it said more.
    pub keys: Vec<Key>,
}

impl Outbox {
    /// Whether it must be sent before the end of the turn: it has many bytes, or refers to so many
    /// that connections behind it would not be served.
    pub fn is_full(&self) -> bool {
        self.said.own.len() > OUTPUT_PER_TURN || self.said.len() > OUTPUT_PAUSE
    }

    /// Empties it after all has been sent. After a very large reply the memory is freed.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.said.clear(OUTPUT_KEPT);
    }
}

/// The wait of bytes that may not be sent yet.
pub struct LogWait {
    /// The log must be safe up to this position.
    pub position: u64,
    /// Since when they wait.
    pub since: Instant,
}

/// A large value of an earlier turn.
struct UnsentValue {
    /// The bytes before it.
    before: Backlog,
    value: SharedValue,
    /// How much of the value has been sent.
    sent: usize,
}

impl UnsentValue {
    fn rest(&self) -> &[u8] {
        &self.value.bytes()[self.sent..]
    }
}

/// What a connection has to say.
#[derive(Default)]
pub struct Outgoing {
    /// What it has said in earlier turns, behind the last large value there.
    unsent: Backlog,
    /// Those values, and what was said before them.
    large: VecDeque<UnsentValue>,
    /// How many bytes `large` has to send.
    large_bytes: usize,
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
        self.said.is_empty() && self.unsent() == 0
    }

    /// How many bytes of earlier turns have not been sent.
    #[inline]
    pub fn unsent(&self) -> usize {
        self.unsent.len() + self.large_bytes
    }

    /// The memory that those take. Large values are not counted: others may have them too.
    pub fn capacity(&self) -> usize {
        let before: usize = self.large.iter().map(|large| large.before.capacity()).sum();
        self.unsent.capacity() + before
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

    /// Says something that comes from elsewhere.
    pub fn say_more(&mut self, mut more: Output, outbox: &Outbox) {
        self.claim(outbox);
        if more.has_large() {
            self.keep(&more, 0..more.end(), 0);
        } else {
            self.unsent.append(take(&mut more.own));
        }
    }

    /// Says nothing but this: nothing of what it has said before is sent.
    pub fn say_only(&mut self, bytes: Vec<u8>) {
        (self.unsent, self.said) = (Backlog::of(bytes, 0), 0..0);
        (self.large, self.large_bytes) = (VecDeque::new(), 0);
    }

    /// Moves what it has said in this turn out of the outbox, before what follows.
    #[inline]
    fn claim(&mut self, outbox: &Outbox) {
        if !self.said.is_empty() {
            let said = take(&mut self.said);
            self.keep(&outbox.said, said, 0);
        }
    }

    /// Keeps what was said there, but for the first `sent` bytes of it.
    fn keep(&mut self, output: &Output, said: Range<usize>, mut sent: usize) {
        for piece in output.pieces_between(said) {
            let rest = piece.bytes().get(sent..).unwrap_or_default();
            let sent_of_it = sent.min(piece.bytes().len());
            sent -= sent_of_it;
            match piece {
                Piece::Own(_) => self.unsent.add(rest),
                Piece::Value(value) if !rest.is_empty() => {
                    let before = take(&mut self.unsent);
                    self.large_bytes += before.len() + rest.len();
                    let value = value.clone();
                    self.large.push_back(UnsentValue { before, value, sent: sent_of_it });
                }
                Piece::Value(_) => {}
            }
        }
    }

    /// So many bytes of earlier turns have been sent.
    fn use_up(&mut self, mut sent: usize) {
        while let Some(first) = self.large.front_mut().filter(|_| sent > 0) {
            let before = sent.min(first.before.len());
            first.before.use_up(before);
            let of_value = (sent - before).min(first.rest().len());
            first.sent += of_value;
            if first.rest().is_empty() {
                self.large.pop_front();
            }
            sent -= before + of_value;
            self.large_bytes -= before + of_value;
        }
        if sent > 0 {
            self.unsent.use_up(sent);
        }
    }

    /// What it has said in earlier turns, piece by piece.
    fn unsent_pieces(&self) -> impl Iterator<Item = &[u8]> {
        let large = self.large.iter().flat_map(|large| [large.before.bytes(), large.rest()]);
        large.chain([self.unsent.bytes()])
    }

    /// Takes the whole outbox if its last bytes, which are this connection's, are very many: all
    /// others have been sent already, so what is left of these need not be copied.
    pub fn take_over(&mut self, outbox: &mut Outbox) {
        let is_last = self.said.end == outbox.said.end() && !outbox.said.has_large();
        if is_last && self.said.len() > OUTPUT_KEPT && self.unsent() == 0 {
            let bytes = take(&mut outbox.said.own);
            self.unsent = Backlog::of(bytes, take(&mut self.said).start);
        }
    }

    /// What is sent next, if it is all said in this turn, in one piece.
    pub fn sends_next<'a>(&self, outbox: &'a Outbox) -> Option<&'a [u8]> {
        let is_simple = !self.is_held() && self.unsent() == 0 && !outbox.said.has_large();
        (is_simple && !self.said.is_empty()).then(|| &outbox.said.own[self.said.clone()])
    }

    /// Sends with `send`, which gets pieces that follow each other, as much as may be sent, and
    /// keeps the rest. Returns how much was sent.
    #[inline]
    pub fn send(&mut self, outbox: &Outbox, mut send: impl FnMut(&[&[u8]]) -> Sent) -> Sent {
        let said = take(&mut self.said);
        let sent = if outbox.said.has_large() || !self.large.is_empty() {
            self.send_large(&outbox.said, said, &mut send)
        } else {
            self.send_bytes(&outbox.said.own[said], &mut send)
        };
        if self.unsent() == 0 {
            self.over_soft_limit = None;
        }
        sent
    }

    #[inline]
    fn send_bytes(&mut self, said: &[u8], send: &mut impl FnMut(&[&[u8]]) -> Sent) -> Sent {
        let is_first = self.unsent.is_empty();
        if self.is_held() || !is_first {
            self.unsent.add(said);
        }
        let bytes = if is_first { said } else { self.unsent.bytes() };
        if self.is_held() || bytes.is_empty() {
            return Sent::Bytes(0);
        }
        let Sent::Bytes(sent) = send(&[bytes]) else { return Sent::Broken };
        if is_first {
            self.unsent.add(&said[sent..]);
        } else {
            self.unsent.use_up(sent);
        }
        Sent::Bytes(sent)
    }

    /// [`Outgoing::send`] if there are large values.
    #[inline(never)]
    fn send_large(
        &mut self,
        output: &Output,
        mut said: Range<usize>,
        send: &mut impl FnMut(&[&[u8]]) -> Sent,
    ) -> Sent {
        if self.is_held() {
            self.keep(output, said, 0);
            return Sent::Bytes(0);
        }
        let mut sent = 0;
        loop {
            let (all, now) = self.send_pieces(output, said.clone(), send);
            let Sent::Bytes(now) = now else { return Sent::Broken };
            let earlier = now.min(self.unsent());
            self.use_up(earlier);
            self.keep(output, take(&mut said), now - earlier);
            sent += now;
            if now < all || self.unsent() == 0 {
                return Sent::Bytes(sent);
            }
        }
    }

    /// Sends as many pieces as are sent together. Returns how many bytes they had, and what became
    /// of these.
    fn send_pieces(
        &self,
        output: &Output,
        said: Range<usize>,
        send: &mut impl FnMut(&[&[u8]]) -> Sent,
    ) -> (usize, Sent) {
        let said: ArrayVec<Piece<'_>, SENT_TOGETHER> =
            output.pieces_between(said).take(SENT_TOGETHER).collect();
        let pieces = self.unsent_pieces().chain(said.iter().map(|piece| piece.bytes()));
        let pieces = pieces.filter(|piece| !piece.is_empty());
        let pieces: ArrayVec<&[u8], SENT_TOGETHER> = pieces.take(SENT_TOGETHER).collect();
        if pieces.is_empty() {
            return (0, Sent::Bytes(0));
        }
        (pieces.iter().map(|piece| piece.len()).sum(), send(&pieces))
    }

    /// Whether more waits than may, together with `more` bytes elsewhere: more than `hard` bytes.
    /// Notes since when it is more than `soft`; 0 for no such limit.
    pub fn is_over(&mut self, more: usize, hard: usize, soft: usize, now: Instant) -> bool {
        let unsent = self.unsent() + more;
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
        let start = outbox.said.end();
        outbox.said.own.extend_from_slice(text);
        outgoing.say(Key::default(), start..outbox.said.end(), outbox);
    }

    /// What is sent through a socket that has so much room.
    fn sent(outgoing: &mut Outgoing, outbox: &Outbox, room: usize) -> Vec<u8> {
        let mut got = Vec::new();
        outgoing.send(outbox, |pieces| {
            let before = got.len();
            let bytes = pieces.iter().flat_map(|piece| piece.iter());
            got.extend(bytes.take(room.saturating_sub(before)));
            Sent::Bytes(got.len() - before)
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
        outgoing.say_more(b"ef".to_vec().into(), &outbox);
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
        assert!(outbox.said.is_empty());
        assert_eq!(sent(&mut outgoing, &outbox, OUTPUT_KEPT), vec![b'x'; OUTPUT_KEPT]);
        assert_eq!(outgoing.unsent(), 1);
    }

    /// Says a large value between two bytes.
    fn say_large(outgoing: &mut Outgoing, outbox: &mut Outbox, value: &SharedValue) {
        let start = outbox.said.end();
        outbox.said.own.push(b'<');
        outbox.said.add_large(value.clone());
        outbox.said.own.push(b'>');
        outgoing.say(Key::default(), start..outbox.said.end(), outbox);
    }

    #[test]
    fn large_values_are_sent_from_where_they_are() {
        for room in 1..=20 {
            let value = SharedValue::new(b"LARGE".to_vec());
            let (mut outgoing, mut outbox) = (Outgoing::default(), Outbox::default());
            say_large(&mut Outgoing::default(), &mut outbox, &value);
            say(&mut outgoing, &mut outbox, b"ab");
            say_large(&mut outgoing, &mut outbox, &value);
            let mut got = sent(&mut outgoing, &outbox, room);
            outbox.clear();
            say_large(&mut outgoing, &mut outbox, &value);
            say(&mut outgoing, &mut outbox, b"cd");
            let all = b"ab<LARGE><LARGE>cd";
            while got.len() < all.len() {
                let before = got.len();
                got.extend(sent(&mut outgoing, &outbox, room));
                assert!(got.len() > before, "{room}");
                assert_eq!(outgoing.unsent(), all.len() - got.len(), "{room}");
                outbox.clear();
            }
            assert_eq!((&got[..], outgoing.is_empty()), (&all[..], true), "{room}");
        }
    }

    #[test]
    fn large_values_wait_too() {
        let (mut outgoing, mut outbox) = (Outgoing::default(), Outbox::default());
        let value = SharedValue::new(b"LARGE".to_vec());
        outgoing.wait = Some(LogWait { position: 1, since: Instant::now() });
        (0..SENT_TOGETHER).for_each(|_| say_large(&mut outgoing, &mut outbox, &value));
        assert_eq!(sent(&mut outgoing, &outbox, usize::MAX), b"");
        outbox.clear();
        outgoing.wait = None;
        assert_eq!(sent(&mut outgoing, &outbox, usize::MAX), b"<LARGE>".repeat(SENT_TOGETHER));
        say_large(&mut outgoing, &mut outbox, &value);
        outgoing.say_only(b"c".to_vec());
        assert_eq!(sent(&mut outgoing, &outbox, usize::MAX), b"c");
    }

    #[test]
    fn nothing_is_sent_while_it_waits_for_the_log() {
        let (mut outgoing, mut outbox) = (Outgoing::default(), Outbox::default());
        outgoing.wait = Some(LogWait { position: 1, since: Instant::now() });
        assert!(outgoing.is_held());
        say(&mut outgoing, &mut outbox, b"ab");
        assert_eq!(sent(&mut outgoing, &outbox, usize::MAX), b"");
        assert!(outgoing.is_over(0, 1, 0, Instant::now()));
        outgoing.say_only(b"c".to_vec());
        outgoing.wait = None;
        assert_eq!(sent(&mut outgoing, &outbox, usize::MAX), b"c");
    }
}
