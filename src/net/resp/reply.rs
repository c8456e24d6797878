//! Replies as bytes of RESP.

use crate::command::Reply;
use crate::limits::SENT_BY_REFERENCE_BYTES;
use crate::net::transport::Output;
use crate::store::{SharedValue, StringRef};

/// Appends replies in RESP2 or RESP3 to an output.
pub struct RespReply<'a> {
    out: &'a mut Output,
    resp3: bool,
    /// The most bytes that `out` may hold.
    most: usize,
}

/// A sign, the longest number and two line ends.
const HEAD_BYTES: usize = 32;

/// The last two digits of a number, and the line end.
const LINES: [[u8; 4]; 100] = {
    let mut lines = [*b"00\r\n"; 100];
    let mut number = 0;
    while number < 100 {
        lines[number][0] += number as u8 / 10;
        lines[number][1] += number as u8 % 10;
        number += 1;
    }
    lines
};

impl<'a> RespReply<'a> {
    /// A writer that appends to `out`.
    #[inline]
    pub fn new(out: &'a mut Output, resp3: bool) -> Self {
        RespReply { out, resp3, most: usize::MAX }
    }

    /// Limits `out` to `most` bytes. Beyond that, strings are cut off and left out: a buffer that
    /// exceeds it has an incomplete reply, which must not be sent.
    #[inline]
    pub fn up_to(self, most: usize) -> Self {
        RespReply { most, ..self }
    }

    /// Writes only as much of a string as makes the buffer exceed its limit.
    #[cold]
    fn cut(&mut self, bytes: &[u8]) {
        let room = self.most.saturating_add(1).saturating_sub(self.out.len());
        self.out.own.extend_from_slice(&bytes[..room.min(bytes.len())]);
    }

    /// A null array: `*-1` in RESP2, `_` in RESP3.
    pub fn null_array(&mut self) {
        self.out.own.extend_from_slice(if self.resp3 { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// A status line; `text` must not have line ends.
    pub fn status(&mut self, text: &[u8]) {
        self.line(b'+', text);
    }

    /// Replies that the host has encoded. They are cut off beyond the limit, as strings are.
    pub fn encoded(&mut self, bytes: &[u8]) {
        if self.out.len() + bytes.len() > self.most {
            return self.cut(bytes);
        }
        self.out.own.extend_from_slice(bytes);
    }

    /// The head of what is said out of turn; `len` elements follow.
    pub fn push(&mut self, len: usize) {
        self.head(if self.resp3 { b'>' } else { b'*' }, len);
    }

    /// The head of a set; `len` elements follow.
    pub fn set(&mut self, len: usize) {
        self.head(if self.resp3 { b'~' } else { b'*' }, len);
    }

    /// How many bytes the output has.
    #[inline]
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// The place of what is replied next: see [`Output::end`].
    #[inline]
    pub fn end(&self) -> usize {
        self.out.end()
    }

    /// Whether the output has exceeded its limit: there is no use in more.
    pub fn is_cut(&self) -> bool {
        self.out.len() > self.most
    }

    /// Whether the output is empty.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// A line of a sign and a number. Copying pieces of a length known at compile time needs no
    /// call.
    #[inline(always)]
    fn head(&mut self, sign: u8, number: usize) {
        match number {
            0..10 => {
                let [_, b, c, d] = LINES[number];
                self.out.own.extend_from_slice(&[sign, b, c, d]);
            }
            10..100 => {
                let [a, b, c, d] = LINES[number];
                self.out.own.extend_from_slice(&[sign, a, b, c, d]);
            }
            100..1000 => {
                let [a, b, c, d] = LINES[number % 100];
                let hundreds = b'0' + (number / 100) as u8;
                self.out.own.extend_from_slice(&[sign, hundreds, a, b, c, d]);
            }
            _ => self.line(sign, itoa::Buffer::new().format(number).as_bytes()),
        }
    }

    #[inline]
    fn line(&mut self, sign: u8, text: &[u8]) {
        self.out.own.reserve(text.len() + HEAD_BYTES);
        self.out.own.push(sign);
        self.out.own.extend_from_slice(text);
        self.out.own.extend_from_slice(b"\r\n");
    }
}

impl Reply for RespReply<'_> {
    #[inline]
    fn simple(&mut self, text: &'static str) {
        self.line(b'+', text.as_bytes());
    }

    #[inline]
    fn ok(&mut self) {
        self.out.own.extend_from_slice(b"+OK\r\n");
    }

    #[inline]
    fn null(&mut self) {
        self.out.own.extend_from_slice(if self.resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    #[inline]
    fn integer(&mut self, number: i64) {
        match usize::try_from(number) {
            Ok(number) => self.head(b':', number),
            Err(_) => self.line(b':', itoa::Buffer::new().format(number).as_bytes()),
        }
    }

    #[inline(always)]
    fn bulk(&mut self, bytes: &[u8]) {
        if self.out.len() + bytes.len() > self.most {
            return self.cut(bytes);
        }
        self.head(b'$', bytes.len());
        self.out.own.extend_from_slice(bytes);
        self.out.own.extend_from_slice(b"\r\n");
    }

    #[inline(always)]
    fn value(&mut self, value: &StringRef<'_>) {
        let bytes = value.bytes();
        if bytes.len() < SENT_BY_REFERENCE_BYTES {
            return self.bulk(bytes);
        }
        match self.out.by_reference(value) {
            Some(shared) => self.shared(&shared),
            None => self.bulk(bytes),
        }
    }

    #[cold]
    fn shared(&mut self, value: &SharedValue) {
        let len = value.bytes().len();
        if len < SENT_BY_REFERENCE_BYTES {
            return self.bulk(value.bytes());
        }
        self.head(b'$', len);
        self.out.add_large(value.clone());
        self.out.own.extend_from_slice(b"\r\n");
    }

    fn double(&mut self, text: &str) {
        if self.resp3 { self.line(b',', text.as_bytes()) } else { self.bulk(text.as_bytes()) }
    }

    fn verbatim(&mut self, text: &[u8]) {
        if !self.resp3 {
            return self.bulk(text);
        }
        const KIND: &[u8] = b"txt:";
        self.out.own.reserve(text.len() + HEAD_BYTES);
        self.head(b'=', text.len() + KIND.len());
        self.out.own.extend_from_slice(KIND);
        self.out.own.extend_from_slice(text);
        self.out.own.extend_from_slice(b"\r\n");
    }

    fn error(&mut self, text: &[u8]) {
        if self.is_cut() {
            return;
        }
        self.out.errors.add(text);
        self.line(b'-', text);
    }

    #[inline]
    fn array(&mut self, len: usize) {
        self.head(b'*', len);
    }

    #[inline]
    fn map(&mut self, len: usize) {
        if self.resp3 { self.head(b'%', len) } else { self.head(b'*', 2 * len) }
    }

    fn pairs(&mut self, len: usize) {
        self.array(if self.resp3 { len } else { 2 * len });
    }

    fn pair(&mut self) {
        if self.resp3 {
            self.array(2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Say<'a> = &'a dyn Fn(&mut RespReply<'_>);

    fn written(resp3: bool, say: impl Fn(&mut RespReply<'_>)) -> String {
        let mut out = Output::from(b"|".to_vec());
        say(&mut RespReply::new(&mut out, resp3));
        String::from_utf8(out.own.clone()).expect("text")
    }

    #[test]
    fn the_same_in_both_protocols() {
        let cases: [(Say<'_>, &str); 12] = [
            (&|reply| reply.ok(), "|+OK\r\n"),
            (&|reply| reply.simple("PONG"), "|+PONG\r\n"),
            (&|reply| reply.error(b"ERR no"), "|-ERR no\r\n"),
            (&|reply| reply.integer(0), "|:0\r\n"),
            (&|reply| reply.integer(i64::MIN), "|:-9223372036854775808\r\n"),
            (&|reply| reply.integer(i64::MAX), "|:9223372036854775807\r\n"),
            (&|reply| reply.bulk(b""), "|$0\r\n\r\n"),
            (&|reply| reply.bulk(b"hello world"), "|$11\r\nhello world\r\n"),
            (&|reply| reply.array(0), "|*0\r\n"),
            (&|reply| reply.array(9), "|*9\r\n"),
            (&|reply| reply.array(10), "|*10\r\n"),
            (&|reply| reply.array(1_000_000), "|*1000000\r\n"),
        ];
        for (say, bytes) in cases {
            for resp3 in [false, true] {
                assert_eq!(written(resp3, say), bytes);
            }
        }
    }

    #[test]
    fn replies_that_differ_in_resp3() {
        let cases: [(Say<'_>, &str, &str); 3] = [
            (&|reply| reply.null(), "|$-1\r\n", "|_\r\n"),
            (&|reply| reply.map(5), "|*10\r\n", "|%5\r\n"),
            (&|reply| reply.verbatim(b"a text"), "|$6\r\na text\r\n", "|=10\r\ntxt:a text\r\n"),
        ];
        for (say, resp2, resp3) in cases {
            assert_eq!((written(false, say), written(true, say)), (resp2.into(), resp3.into()));
        }
    }

    #[test]
    fn beyond_its_limit_a_buffer_grows_no_more() {
        for len in [90, 91, 1000] {
            let mut out = Output::from(vec![b'|'; 10]);
            let mut reply = RespReply::new(&mut out, false).up_to(100);
            (0..3).for_each(|_| reply.bulk(&vec![b'x'; len]));
            assert!(out.len() > 100 && out.len() < 120, "{len}: {}", out.len());
        }
    }

    #[test]
    fn strings_of_every_length() {
        for len in [9, 10, 99, 100, 999, 65_536, 1 << 20] {
            let text = "x".repeat(len);
            assert_eq!(
                written(false, |reply| reply.bulk(text.as_bytes())),
                format!("|${len}\r\n{text}\r\n")
            );
        }
    }
}
