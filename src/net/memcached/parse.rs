//! Requests of memcached's text and meta protocols, as memcached 1.6 reads them: pure, without a
//! socket.
//!
//! A request is a line, and with the storage commands a block of data behind it. The words of a
//! line are between spaces. The keys of a `get` are taken one by one, so a line of ten thousand
//! takes no memory of its own.

mod meta;

pub use meta::{DebugRequest, MetaRequest};

use memchr::memchr;

use crate::command::{MetaCommand, signed_32, unsigned_32, unsigned_64};
use crate::limits::{MEMCACHED_KEY_BYTES, MEMCACHED_LINE_BYTES};

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemcachedRequest<'i> {
    /// `get`, `gets`, `gat` or `gats`, up to its first key; every key of it may be one.
    Get(KeysOfLine<'i>),
    /// A storage command whose data has come.
    Store(StoreRequest<'i>),
    /// `delete`.
    Delete(&'i [u8]),
    /// `incr` or `decr`: the word, the key, the number.
    Count(&'i [u8], &'i [u8], &'i [u8]),
    /// `touch`: the key, and when it expires.
    Touch(&'i [u8], &'i [u8]),
    /// `flush_all`, in so many seconds.
    FlushAll(i32),
    /// `stats`, with the two words behind it.
    Stats(&'i [u8], &'i [u8]),
    /// `version`.
    Version,
    /// `quit`, or a line that ends the connection.
    Quit,
    /// A meta command.
    Meta(MetaRequest<'i>),
    /// `me`.
    Debug(DebugRequest<'i>),
    /// A storage command whose data is too large: the key that is to be removed, and whether that
    /// is in base64; the bytes to skip.
    TooLarge(Option<(&'i [u8], bool)>, usize),
    /// A storage command with this answer, and the bytes of its data, which are to be skipped.
    Refused(&'static str, usize),
    /// Something with this answer.
    Answer(&'static str),
}

/// The keys of a line that have not been taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeysOfLine<'i> {
    /// Whether their numbers are wanted.
    pub numbers: bool,
    /// When they expire from now on; empty if that stays.
    pub touch: &'i [u8],
    /// The bytes of the line behind the keys that have been taken, without its end.
    pub left: usize,
    /// The bytes of the line's end.
    pub line_end: usize,
}

impl KeysOfLine<'_> {
    /// Those of a [`plain_get`] whose key has been taken.
    pub(super) const NONE: KeysOfLine<'static> =
        KeysOfLine { numbers: false, touch: b"", left: 0, line_end: LINE_END };
}

/// A storage command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreRequest<'i> {
    /// Its name.
    pub mode: &'i [u8],
    /// The key.
    pub key: &'i [u8],
    /// The flags, which are a number.
    pub flags: &'i [u8],
    /// When it expires, which is a number.
    pub expiry: &'i [u8],
    /// The number of `cas`.
    pub number: &'i [u8],
    /// The data.
    pub value: &'i [u8],
}

/// The result of parsing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParsedRequest<'i> {
    /// A request, which ends there, and whether it is not to be answered.
    Request(MemcachedRequest<'i>, usize, bool),
    /// The beginning of a line.
    NoLine,
    /// The beginning of a request, of which so many bytes are missing.
    Incomplete(usize),
    /// A line that is too long, or a request of the binary protocol.
    TooLong,
}

const ERROR: &str = "ERROR";
const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
const BAD_EXPIRY: &str = "CLIENT_ERROR invalid exptime argument";
const BAD_DATA: &str = "CLIENT_ERROR bad data chunk";
const BAD_DELTA: &str = "CLIENT_ERROR invalid numeric delta argument";
const BAD_DELETE: &str = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]";

/// The first byte of each request of memcached's binary protocol.
const BINARY_REQUEST: u8 = 0x80;

/// The most words of a line that are looked at, but for keys.
const WORDS: usize = 8;

type LineWords<'i> = arrayvec::ArrayVec<&'i [u8], WORDS>;

/// The request at the start of the input. `most` is the longest value that is stored; `seen` are
/// the bytes of the input in which there is no end of a line.
pub fn parse(input: &[u8], most: usize, seen: usize) -> ParsedRequest<'_> {
    match plain_set(input, most) {
        Some((set, end)) => ParsedRequest::Request(MemcachedRequest::Store(set), end, false),
        None => parse_other(input, most, seen),
    }
}

/// A `set` as nearly all are: complete, one space between its words, numbers of few digits, and to
/// be answered; and where it ends. `None` means that it may be something else.
#[inline(always)]
pub(super) fn plain_set(input: &[u8], most: usize) -> Option<(StoreRequest<'_>, usize)> {
    let line = input.strip_prefix(b"set ")?;
    let (key, line) = plain_key(line)?;
    let (flags, _, line) = plain_number(line)?;
    let (expiry, _, line) = plain_number(line)?;
    let (_, length, line) = plain_number(line)?;
    let (value, behind) = line.strip_prefix(b"\r\n")?.split_at_checked(length)?;
    let behind = behind.strip_prefix(b"\r\n")?;
    if length > most {
        return None;
    }
    let store = StoreRequest { mode: b"set", key, flags, expiry, number: b"", value };
    Some((store, input.len() - behind.len()))
}

/// The key of a `get` as nearly all are: of one key, with one space before it; and where the key
/// ends. `None` means that it may be something else.
#[inline(always)]
pub fn plain_get(input: &[u8]) -> Option<(&[u8], usize)> {
    let (key, behind) = plain_key(input.strip_prefix(b"get ")?)?;
    behind.starts_with(b"\r\n").then(|| (key, input.len() - behind.len()))
}

/// The key at the start of the text, and what is behind it. No more bytes are looked at than a key
/// has: a line that comes in pieces is looked at with each of them.
#[inline(always)]
fn plain_key(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let longest = &text[..text.len().min(MEMCACHED_KEY_BYTES + 1)];
    let length = longest.iter().position(|&byte| byte <= b' ')?;
    (length > 0).then(|| text.split_at(length))
}

/// A number of one to nine digits behind a space, as text and as a number, and what follows it.
#[inline(always)]
fn plain_number(text: &[u8]) -> Option<(&[u8], usize, &[u8])> {
    let text = text.strip_prefix(b" ")?;
    let (mut number, mut digits) = (0, 0);
    while let Some(digit @ 0..=9) = text.get(digits).map(|byte| byte.wrapping_sub(b'0')) {
        (number, digits) = (number * 10 + usize::from(digit), digits + 1);
        if digits > 9 {
            return None;
        }
    }
    (digits > 0).then(|| (&text[..digits], number, &text[digits..]))
}

/// [`parse`] for what is no [`plain_set`].
#[inline(always)]
pub(super) fn parse_other(input: &[u8], most: usize, seen: usize) -> ParsedRequest<'_> {
    // Its client would wait for a reply that never comes.
    if input.first() == Some(&BINARY_REQUEST) {
        return ParsedRequest::TooLong;
    }
    let Some(newline) = memchr(b'\n', &input[seen.min(input.len())..]) else {
        return without_end(input);
    };
    let newline = newline + seen;
    let has_return = newline > 1 && input[newline - 1] == b'\r';
    let line = &input[..newline - usize::from(has_return)];
    let words = words_of(line);
    let Some(&name) = words.first().filter(|name| name.len() > 1) else {
        return ParsedRequest::Request(MemcachedRequest::Answer(ERROR), newline + 1, false);
    };
    let line = RequestLine { input, line, words: &words, end: newline + 1, has_return, most };
    line.request(name)
}

fn without_end(input: &[u8]) -> ParsedRequest<'_> {
    let line = &input[input.iter().position(|&byte| byte != b' ').unwrap_or(input.len())..];
    let may_be_long = line.starts_with(b"get ") || line.starts_with(b"gets ");
    if input.len() > MEMCACHED_LINE_BYTES && !may_be_long {
        return ParsedRequest::TooLong;
    }
    ParsedRequest::NoLine
}

fn words_of(line: &[u8]) -> LineWords<'_> {
    let (mut words, mut rest) = (LineWords::new(), line);
    while !words.is_full() {
        while let [b' ', behind @ ..] = rest {
            rest = behind;
        }
        if rest.is_empty() {
            break;
        }
        let (word, behind) = rest.split_at(length_of_word(rest));
        words.push(word);
        rest = behind;
    }
    words
}

/// How many bytes there are before the first space.
#[inline]
fn length_of_word(text: &[u8]) -> usize {
    text.iter().position(|&byte| byte == b' ').unwrap_or(text.len())
}

struct RequestLine<'a, 'i> {
    input: &'i [u8],
    line: &'i [u8],
    words: &'a [&'i [u8]],
    end: usize,
    has_return: bool,
    most: usize,
}

impl<'i> RequestLine<'_, 'i> {
    #[inline]
    fn request(&self, name: &'i [u8]) -> ParsedRequest<'i> {
        let count = self.words.len();
        let is_one = |names: &[&[u8]]| names.contains(&name);
        match name {
            b"get" | b"gets" | b"gat" | b"gats" | b"bget" => self.get(name),
            b"set" | b"add" | b"replace" | b"append" | b"prepend" if matches!(count, 5 | 6) => {
                self.store(name, b"")
            }
            b"cas" if matches!(count, 6 | 7) => self.store(name, self.words[5]),
            b"incr" | b"decr" if matches!(count, 3 | 4) => self.count(name),
            b"touch" if matches!(count, 3 | 4) => self.touch(),
            b"delete" if matches!(count, 2..=4) => self.delete(),
            b"flush_all" if count <= 3 => self.flush_all(),
            b"verbosity" if matches!(count, 2 | 3) => match unsigned_32(self.words[1]) {
                Some(_) => self.answer("OK"),
                None => self.answer(BAD_FORMAT),
            },
            b"cache_memlimit" if matches!(count, 2 | 3) => self.memory_limit(),
            b"mg" => self.meta(MetaCommand::Get),
            b"ms" => self.meta_set(),
            b"md" => self.meta(MetaCommand::Delete),
            b"ma" => self.meta(MetaCommand::Count),
            b"mn" => self.plain(MemcachedRequest::Answer("MN")),
            b"me" => self.debug(),
            b"stats" => self.plain(MemcachedRequest::Stats(self.word(1), self.word(2))),
            b"version" => self.plain(MemcachedRequest::Version),
            b"quit" => self.plain(MemcachedRequest::Quit),
            b"shutdown" => self.plain(MemcachedRequest::Answer("ERROR: shutdown not enabled")),
            _ if is_one(COMMANDS) => self.plain(MemcachedRequest::Answer(ERROR)),
            // A browser, or a proxy of one.
            _ if self.last_word().starts_with(b"HTTP/") => self.plain(MemcachedRequest::Quit),
            _ => self.plain(MemcachedRequest::Answer(ERROR)),
        }
    }

    /// A word of the line; empty if it has fewer.
    fn word(&self, number: usize) -> &'i [u8] {
        self.words.get(number).copied().unwrap_or_default()
    }

    fn last_word(&self) -> &'i [u8] {
        let mut words = self.line.rsplit(|&byte| byte == b' ');
        words.find(|word| !word.is_empty()).unwrap_or_default()
    }

    /// The line behind a word of it.
    #[inline]
    fn behind(&self, word: &'i [u8]) -> &'i [u8] {
        // Words are slices of the line.
        &self.line[word.as_ptr().addr() - self.line.as_ptr().addr() + word.len()..]
    }

    /// The data of a storage command, if they are well-formed, and where they end.
    ///
    /// # Errors
    /// How many bytes are missing.
    #[inline]
    fn data(&self, length: usize) -> Result<(Option<&'i [u8]>, usize), usize> {
        let end = self.end + length + LINE_END;
        let data = self.input.get(self.end..end).ok_or(end - self.input.len().min(end))?;
        let (value, line_end) = data.split_at(length);
        Ok(((line_end == b"\r\n").then_some(value), end))
    }

    /// A request that is answered in any case.
    fn plain(&self, request: MemcachedRequest<'i>) -> ParsedRequest<'i> {
        ParsedRequest::Request(request, self.end, false)
    }

    /// A request that is not answered if its last word is `noreply`.
    fn maybe_silent(&self, request: MemcachedRequest<'i>) -> ParsedRequest<'i> {
        ParsedRequest::Request(request, self.end, self.is_silent())
    }

    fn answer(&self, text: &'static str) -> ParsedRequest<'i> {
        self.maybe_silent(MemcachedRequest::Answer(text))
    }

    #[inline]
    fn is_silent(&self) -> bool {
        self.words.last().is_some_and(|word| *word == b"noreply")
    }

    #[inline]
    fn get(&self, name: &'i [u8]) -> ParsedRequest<'i> {
        let touches = matches!(name, b"gat" | b"gats");
        if self.words.len() < 2 {
            return self.plain(MemcachedRequest::Answer(ERROR));
        }
        // As memcached: a time without keys is well-formed.
        let touch = if touches { self.words[1] } else { b"" };
        if touches && signed_32(touch).is_none() {
            return self.plain(MemcachedRequest::Answer(BAD_EXPIRY));
        }
        if touches && self.words.len() < 3 {
            return self.plain(MemcachedRequest::Answer("END"));
        }
        let last = if touches { touch } else { name };
        let keys = self.behind(last);
        let at = self.line.len() - keys.len();
        let is_too_long = |key: &[u8]| key.len() > MEMCACHED_KEY_BYTES;
        if is_too_long(keys) && keys.split(|&byte| byte == b' ').any(is_too_long) {
            return self.plain(MemcachedRequest::Answer(BAD_FORMAT));
        }
        let numbers = matches!(name, b"gets" | b"gats");
        let line_end = 1 + usize::from(self.has_return);
        let keys = KeysOfLine { numbers, touch, left: keys.len(), line_end };
        ParsedRequest::Request(MemcachedRequest::Get(keys), at, false)
    }

    #[inline]
    fn store(&self, mode: &'i [u8], number: &'i [u8]) -> ParsedRequest<'i> {
        let &[_, key, flags, expiry, length, ..] = self.words else { return self.answer(ERROR) };
        let length = signed_32(length);
        let are_numbers = unsigned_32(flags).is_some()
            && signed_32(expiry).is_some()
            && (mode != b"cas" || unsigned_64(number).is_some());
        let Some(length) = length.filter(|_| are_numbers && key.len() <= MEMCACHED_KEY_BYTES)
        else {
            return self.answer(BAD_FORMAT);
        };
        // Two bytes behind it must fit a number of 32 bits.
        if !(0..=i32::MAX - LINE_END as i32).contains(&length) {
            return self.answer(BAD_FORMAT);
        }
        let length = length as usize;
        if length > self.most {
            let key = (mode == b"set").then_some((key, false));
            return self.maybe_silent(MemcachedRequest::TooLarge(key, length + LINE_END));
        }
        let (value, end) = match self.data(length) {
            Ok(data) => data,
            Err(missing) => return ParsedRequest::Incomplete(missing),
        };
        let request = match value {
            Some(value) => {
                MemcachedRequest::Store(StoreRequest { mode, key, flags, expiry, number, value })
            }
            None => MemcachedRequest::Answer(BAD_DATA),
        };
        ParsedRequest::Request(request, end, self.is_silent())
    }

    fn count(&self, name: &'i [u8]) -> ParsedRequest<'i> {
        let (key, delta) = (self.words[1], self.words[2]);
        match unsigned_64(delta) {
            _ if key.len() > MEMCACHED_KEY_BYTES => self.answer(BAD_FORMAT),
            None => self.answer(BAD_DELTA),
            Some(_) => self.maybe_silent(MemcachedRequest::Count(name, key, delta)),
        }
    }

    fn touch(&self) -> ParsedRequest<'i> {
        let (key, expiry) = (self.words[1], self.words[2]);
        match signed_32(expiry) {
            _ if key.len() > MEMCACHED_KEY_BYTES => self.answer(BAD_FORMAT),
            None => self.answer(BAD_EXPIRY),
            Some(_) => self.maybe_silent(MemcachedRequest::Touch(key, expiry)),
        }
    }

    fn delete(&self) -> ParsedRequest<'i> {
        let key = self.words[1];
        let is_valid = match self.words.len() {
            2 => true,
            3 => self.words[2] == b"0" || self.is_silent(),
            _ => self.words[2] == b"0" && self.is_silent(),
        };
        if !is_valid {
            return self.answer(BAD_DELETE);
        }
        if key.len() > MEMCACHED_KEY_BYTES {
            return self.answer(BAD_FORMAT);
        }
        ParsedRequest::Request(
            MemcachedRequest::Delete(key),
            self.end,
            self.words.len() > 2 && self.is_silent(),
        )
    }

    fn flush_all(&self) -> ParsedRequest<'i> {
        let delay = match self.words {
            [_] => Some(0),
            [_, _] if self.is_silent() => Some(0),
            [_, delay, ..] => signed_32(delay),
            [] => None,
        };
        match delay {
            Some(delay) => self.maybe_silent(MemcachedRequest::FlushAll(delay)),
            None => self.answer(BAD_EXPIRY),
        }
    }

    fn memory_limit(&self) -> ParsedRequest<'i> {
        self.answer(match unsigned_32(self.words[1]) {
            None => ERROR,
            Some(0..8) => "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m",
            Some(1_000_000_001..) => "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes",
            Some(_) => "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust",
        })
    }
}

/// Commands that were called with a wrong number of words.
const COMMANDS: &[&[u8]] = &[
    b"set",
    b"add",
    b"replace",
    b"append",
    b"prepend",
    b"cas",
    b"incr",
    b"decr",
    b"touch",
    b"delete",
    b"flush_all",
    b"verbosity",
    b"cache_memlimit",
];

/// `\r\n`.
const LINE_END: usize = 2;

/// The next key of a line, at the start of the input, where it ends, and what is left of the line
/// behind it. `None` at the end of the line.
#[inline]
pub fn next_key<'i, 'k>(
    input: &'i [u8],
    keys: KeysOfLine<'k>,
) -> Option<(&'i [u8], usize, KeysOfLine<'k>)> {
    let line = input.get(..keys.left)?;
    let from = line.iter().position(|&byte| byte != b' ')?;
    let len = memchr(b' ', &line[from..]).unwrap_or(line.len() - from);
    // Spaces behind the last key belong to it.
    let mut end = from + len;
    if line[end..].iter().all(|&byte| byte == b' ') {
        end = line.len();
    }
    Some((&line[from..from + len], end, KeysOfLine { left: keys.left - end, ..keys }))
}

#[cfg(test)]
mod tests;
