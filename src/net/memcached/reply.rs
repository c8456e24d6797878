//! Replies in memcached's words.

use crate::command::Reply;
use crate::limits::SENT_BY_REFERENCE_BYTES;
use crate::net::transport::Output;
use crate::store::{SharedValue, StringRef};

/// How a command is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wording {
    /// By which words.
    pub form: ReplyForm,
    /// Not at all.
    pub is_silent: bool,
}

/// The form of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyForm {
    /// `VALUE`, or nothing; `END` if the key is the last one.
    Value {
        /// It is.
        is_last: bool,
    },
    /// `STORED` and the like.
    Stored,
    /// `DELETED` or `NOT_FOUND`.
    Deleted,
    /// A number, or `NOT_FOUND`.
    Counted,
    /// What the command says.
    Said,
}

/// Appends replies to an output, one for each command of a list.
pub struct MemcachedReply<'o, 'k, L> {
    out: &'o mut Output,
    list: L,
    now: Option<(&'k [u8], Wording)>,
    number: Option<i64>,
    flags: u32,
    /// How many strings the command still says, each on lines of its own.
    strings: usize,
    /// The last reply was an error, and its line has more keys: it stands for those, too.
    ends_line: bool,
    most: usize,
}

/// The commands behind a single one: none.
pub type OneWording<'k> = std::iter::Empty<(&'k [u8], Wording)>;

impl<'o, 'k> MemcachedReply<'o, 'k, OneWording<'k>> {
    /// For one command.
    pub fn of_one(out: &'o mut Output, key: &'k [u8], answered: Wording) -> Self {
        let mut reply = MemcachedReply::new(out, std::iter::empty());
        reply.now = Some((key, answered));
        reply
    }
}

impl<'o, 'k, L: Iterator<Item = (&'k [u8], Wording)>> MemcachedReply<'o, 'k, L> {
    /// For these commands.
    pub fn new(out: &'o mut Output, mut list: L) -> Self {
        let now = list.next();
        let (number, flags, strings, most) = (None, 0, 1, usize::MAX);
        MemcachedReply { out, list, now, number, flags, strings, ends_line: false, most }
    }

    /// Limits the output to `most` bytes: one that exceeds it has an incomplete reply, which must
    /// not be sent.
    pub fn up_to(self, most: usize) -> Self {
        MemcachedReply { most, ..self }
    }

    /// How many bytes the output has.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether the last reply stands for all keys behind its own in their line.
    pub fn ends_line(&self) -> bool {
        self.ends_line
    }

    fn form(&self) -> ReplyForm {
        self.now.map_or(ReplyForm::Said, |(_, answered)| answered.form)
    }

    fn is_silent(&self) -> bool {
        self.now.is_none_or(|(_, answered)| answered.is_silent)
    }

    /// The reply to a command ends, or one of its strings.
    #[inline]
    fn end(&mut self) {
        if self.form() == (ReplyForm::Value { is_last: true }) && !self.is_silent() {
            self.out.own.extend_from_slice(b"END\r\n");
        }
        self.next();
    }

    #[inline]
    fn next(&mut self) {
        self.strings -= 1;
        if self.strings > 0 {
            return;
        }
        (self.now, self.number, self.flags, self.strings) = (self.list.next(), None, 0, 1);
    }

    fn line(&mut self, words: &[&[u8]]) {
        if !self.is_silent() {
            words.iter().for_each(|word| self.out.own.extend_from_slice(word));
            self.out.own.extend_from_slice(b"\r\n");
        }
        self.next();
    }

    /// The line before a value of `len` bytes.
    #[inline]
    fn head(&mut self, len: usize) {
        let own = &mut self.out.own;
        let key = self.now.map_or(&b""[..], |(key, _)| key);
        own.extend_from_slice(b"VALUE ");
        own.extend_from_slice(key);
        own.push(b' ');
        own.extend_from_slice(itoa::Buffer::new().format(self.flags).as_bytes());
        own.push(b' ');
        own.extend_from_slice(itoa::Buffer::new().format(len).as_bytes());
        if let Some(number) = self.number {
            own.push(b' ');
            own.extend_from_slice(itoa::Buffer::new().format(number as u64).as_bytes());
        }
        own.extend_from_slice(b"\r\n");
    }
}

impl<'k, L: Iterator<Item = (&'k [u8], Wording)>> Reply for MemcachedReply<'_, 'k, L> {
    #[inline]
    fn simple(&mut self, text: &'static str) {
        match text {
            "OK" => self.ok(),
            "NON_NUMERIC" => {
                self.line(&[b"CLIENT_ERROR cannot increment or decrement non-numeric value"])
            }
            // Nothing: it is not to be answered.
            "" => self.next(),
            text => self.line(&[text.as_bytes()]),
        }
    }

    #[inline]
    fn ok(&mut self) {
        if self.form() != ReplyForm::Stored {
            return self.line(&[b"OK"]);
        }
        if !self.is_silent() {
            self.out.own.extend_from_slice(b"STORED\r\n");
        }
        self.next();
    }

    #[inline]
    fn null(&mut self) {
        match self.form() {
            ReplyForm::Value { .. } => self.end(),
            _ => self.line(&[b"NOT_FOUND"]),
        }
    }

    fn integer(&mut self, number: i64) {
        match self.form() {
            ReplyForm::Value { .. } => self.number = Some(number),
            ReplyForm::Deleted if number == 0 => self.line(&[b"NOT_FOUND"]),
            ReplyForm::Deleted => self.line(&[b"DELETED"]),
            _ => self.line(&[itoa::Buffer::new().format(number).as_bytes()]),
        }
    }

    #[inline]
    fn bulk(&mut self, bytes: &[u8]) {
        if self.out.len() + bytes.len() > self.most {
            // Only as much as makes it exceed the limit.
            let room = self.most.saturating_add(1).saturating_sub(self.out.len());
            self.out.own.extend_from_slice(&bytes[..room.min(bytes.len())]);
            return self.next();
        }
        if !matches!(self.form(), ReplyForm::Value { .. }) {
            return self.line(&[bytes]);
        }
        self.head(bytes.len());
        self.out.own.extend_from_slice(bytes);
        self.out.own.extend_from_slice(b"\r\n");
        self.end();
    }

    fn double(&mut self, text: &str) {
        self.bulk(text.as_bytes());
    }

    fn verbatim(&mut self, text: &[u8]) {
        self.bulk(text);
    }

    fn error(&mut self, text: &[u8]) {
        self.strings = 1;
        self.ends_line = self.form() == ReplyForm::Value { is_last: false };
        self.out.errors.add(text);
        self.line(&[b"SERVER_ERROR ", text]);
    }

    fn array(&mut self, len: usize) {
        self.strings = len.max(1);
    }

    fn map(&mut self, _: usize) {}

    fn flags(&mut self, flags: u32) {
        self.flags = flags;
    }

    #[inline]
    fn value(&mut self, value: &StringRef<'_>) {
        self.flags = value.traits().flags;
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
        if len < SENT_BY_REFERENCE_BYTES || self.is_silent() {
            return self.bulk(value.bytes());
        }
        if matches!(self.form(), ReplyForm::Value { .. }) {
            self.head(len);
        }
        self.out.add_large(value.clone());
        self.out.own.extend_from_slice(b"\r\n");
        self.end();
    }
}
