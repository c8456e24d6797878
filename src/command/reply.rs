//! Where replies go: the host's client, a port's buffer, a transcript.

use crate::limits::MAX_MAIN_REPLY_BYTES;
use crate::store::{SharedValue, StringRef};

/// Takes a reply, element by element, in protocol order.
pub trait Reply {
    /// A status line such as `OK`.
    fn simple(&mut self, text: &'static str);
    /// A null: `$-1` in RESP2, `_` in RESP3.
    fn null(&mut self);
    /// An integer.
    fn integer(&mut self, number: i64);
    /// A string.
    fn bulk(&mut self, bytes: &[u8]);
    /// A number with a fraction, as text: a string in RESP2, a double in RESP3.
    fn double(&mut self, text: &str);
    /// Text for people: a verbatim string in RESP3.
    fn verbatim(&mut self, text: &[u8]);
    /// An error: code and text without `-` and line end.
    fn error(&mut self, text: &[u8]);
    /// The head of an array; `len` elements follow.
    fn array(&mut self, len: usize);
    /// The head of a map; `len` pairs follow.
    fn map(&mut self, len: usize);

    /// The head of a list of `len` pairs; [`Reply::pair`] begins each. In RESP2 it is a flat array,
    /// in RESP3 an array of arrays.
    fn pairs(&mut self, len: usize) {
        self.array(2 * len);
    }
    /// The head of a pair; two elements follow.
    fn pair(&mut self) {}

    /// A string that is a value of the keyspace.
    fn value(&mut self, value: &StringRef<'_>) {
        self.bulk(value.bytes());
    }

    /// The flags of the value that is said next; 0 if this is not called.
    fn flags(&mut self, _: u32) {}

    /// A string that has a buffer of its own.
    fn shared(&mut self, value: &SharedValue) {
        self.bulk(value.bytes());
    }

    /// `+OK`.
    fn ok(&mut self) {
        self.simple("OK");
    }
}

impl<R: Reply + ?Sized> Reply for &mut R {
    fn simple(&mut self, text: &'static str) {
        (**self).simple(text);
    }
    fn null(&mut self) {
        (**self).null();
    }
    fn integer(&mut self, number: i64) {
        (**self).integer(number);
    }
    fn bulk(&mut self, bytes: &[u8]) {
        (**self).bulk(bytes);
    }
    fn double(&mut self, text: &str) {
        (**self).double(text);
    }
    fn verbatim(&mut self, text: &[u8]) {
        (**self).verbatim(text);
    }
    fn error(&mut self, text: &[u8]) {
        (**self).error(text);
    }
    fn array(&mut self, len: usize) {
        (**self).array(len);
    }
    fn map(&mut self, len: usize) {
        (**self).map(len);
    }
    fn pairs(&mut self, len: usize) {
        (**self).pairs(len);
    }
    fn pair(&mut self) {
        (**self).pair();
    }
    fn value(&mut self, value: &StringRef<'_>) {
        (**self).value(value);
    }
    fn flags(&mut self, flags: u32) {
        (**self).flags(flags);
    }
    fn shared(&mut self, value: &SharedValue) {
        (**self).shared(value);
    }
}

/// A recorded reply, to be played to another sink on another thread.
pub struct Transcript {
    bytes: Vec<u8>,
    simple: Vec<&'static str>,
    shared: Vec<SharedValue>,
    shared_bytes: usize,
    /// The maximum size in bytes.
    most: usize,
    is_cut: bool,
}

impl Default for Transcript {
    fn default() -> Self {
        Transcript::up_to(usize::MAX)
    }
}

const SIMPLE: u8 = 0;
const NULL: u8 = 1;
const INTEGER: u8 = 2;
const BULK: u8 = 3;
const VERBATIM: u8 = 4;
const ERROR: u8 = 5;
const ARRAY: u8 = 6;
const MAP: u8 = 7;
const SHARED: u8 = 8;
const DOUBLE: u8 = 9;
const FLAGS: u8 = 10;
const PAIRS: u8 = 11;
const PAIR: u8 = 12;

impl Transcript {
    /// An empty transcript of at most about `most` bytes; strings beyond that are left out.
    pub fn up_to(most: usize) -> Self {
        let (bytes, simple, shared) = (Vec::new(), Vec::new(), Vec::new());
        Transcript { bytes, simple, shared, shared_bytes: 0, most, is_cut: false }
    }

    /// Whether a string was left out: then the transcript is not a complete reply.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Whether there is room for another `bytes` bytes; if not, the transcript is cut.
    fn has_room(&mut self, bytes: usize) -> bool {
        let has = self.len() + bytes <= self.most;
        self.is_cut |= !has;
        has
    }

    /// Whether it is too large for the main thread to write.
    pub fn is_large(&self) -> bool {
        self.is_cut || self.len() > MAX_MAIN_REPLY_BYTES
    }

    /// The approximate size of the reply in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.shared_bytes
    }

    /// The text of the error that it begins with, if it does.
    pub fn first_error(&self) -> Option<&[u8]> {
        let mut rest = TranscriptReader(&self.bytes);
        (rest.mark() == Some(ERROR)).then(|| rest.string())
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn number(&mut self, mark: u8, number: u64) {
        self.bytes.push(mark);
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    fn string(&mut self, mark: u8, bytes: &[u8]) {
        if self.has_room(bytes.len()) {
            self.number(mark, bytes.len() as u64);
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Writes the recorded reply to `to`.
    pub fn play(&self, to: &mut dyn Reply) {
        let mut rest = TranscriptReader(&self.bytes);
        let mut shared = self.shared.iter();
        let mut simple = self.simple.iter();
        while let Some(mark) = rest.mark() {
            match mark {
                SIMPLE => to.simple(simple.next().copied().unwrap_or_default()),
                NULL => to.null(),
                INTEGER => to.integer(rest.number() as i64),
                BULK => to.bulk(rest.string()),
                DOUBLE => to.double(std::str::from_utf8(rest.string()).unwrap_or_default()),
                VERBATIM => to.verbatim(rest.string()),
                ERROR => to.error(rest.string()),
                ARRAY => to.array(rest.number() as usize),
                MAP => to.map(rest.number() as usize),
                PAIRS => to.pairs(rest.number() as usize),
                PAIR => to.pair(),
                FLAGS => to.flags(rest.number() as u32),
                _ => shared.next().into_iter().for_each(|value| to.shared(value)),
            }
        }
    }
}

/// The bytes that are not played yet.
struct TranscriptReader<'a>(&'a [u8]);

impl<'a> TranscriptReader<'a> {
    fn mark(&mut self) -> Option<u8> {
        let (&mark, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(mark)
    }

    fn number(&mut self) -> u64 {
        let (number, rest) = self.0.split_at(8);
        self.0 = rest;
        u64::from_le_bytes(number.try_into().unwrap_or_default())
    }

    fn string(&mut self) -> &'a [u8] {
        let len = self.number() as usize;
        let (string, rest) = self.0.split_at(len);
        self.0 = rest;
        string
    }
}

impl Reply for Transcript {
    fn simple(&mut self, text: &'static str) {
        self.bytes.push(SIMPLE);
        self.simple.push(text);
    }
    fn null(&mut self) {
        self.bytes.push(NULL);
    }
    fn integer(&mut self, number: i64) {
        self.number(INTEGER, number as u64);
    }
    fn bulk(&mut self, bytes: &[u8]) {
        self.string(BULK, bytes);
    }
    fn double(&mut self, text: &str) {
        self.string(DOUBLE, text.as_bytes());
    }
    fn verbatim(&mut self, text: &[u8]) {
        self.string(VERBATIM, text);
    }
    fn error(&mut self, text: &[u8]) {
        self.string(ERROR, text);
    }
    fn array(&mut self, len: usize) {
        self.number(ARRAY, len as u64);
    }
    fn map(&mut self, len: usize) {
        self.number(MAP, len as u64);
    }
    fn pairs(&mut self, len: usize) {
        self.number(PAIRS, len as u64);
    }
    fn pair(&mut self) {
        self.bytes.push(PAIR);
    }
    fn flags(&mut self, flags: u32) {
        self.number(FLAGS, flags.into());
    }
    fn value(&mut self, value: &StringRef<'_>) {
        let flags = value.traits().flags;
        if flags != 0 {
            self.flags(flags);
        }
        match value.shared() {
            Some(shared) => self.shared(&shared),
            None => self.bulk(value.bytes()),
        }
    }
    fn shared(&mut self, value: &SharedValue) {
        if self.has_room(value.bytes().len()) {
            self.bytes.push(SHARED);
            self.shared_bytes += value.bytes().len();
            self.shared.push(value.clone());
        }
    }
}
