//! Requests: parsing a connection's bytes into commands.

use std::mem;

use super::inline;
use super::plain::{HEAD, LINE_END, PLAIN_NUMBER, plain_arguments, plain_head, plain_line};
use crate::command::parse_integer;
use crate::limits::{
    ARGUMENTS_KEPT, INPUT_GROWTH, LINE_BYTES, READ_BYTES, UNAUTHENTICATED_ARGUMENTS,
    UNAUTHENTICATED_BULK_BYTES,
};

/// The range of an argument; [`ArgList::source`] has the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArgRange {
    /// Its first byte.
    pub start: usize,
    /// The byte after its last.
    pub end: usize,
}

/// The arguments of a command; number 0 is its name. One list is reused for one command after
/// another, of any number of connections.
#[derive(Default)]
pub struct ArgList {
    /// The ranges of the command, followed by leftovers of earlier ones: overwriting is cheaper
    /// than pushing.
    slots: Vec<ArgRange>,
    len: usize,
    /// The arguments of an inline command, without quotes and backslashes.
    unquoted: Vec<u8>,
    is_inline: bool,
}

impl ArgList {
    /// The number of arguments.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no arguments.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The ranges of the arguments in [`ArgList::source`].
    #[inline]
    pub fn ranges(&self) -> &[ArgRange] {
        &self.slots[..self.len]
    }

    /// Whether it is an inline command: then the list itself holds the bytes.
    #[inline]
    pub fn is_inline(&self) -> bool {
        self.is_inline
    }

    /// The bytes that the ranges refer to: the input, or the list's own bytes for an inline
    /// command.
    #[inline]
    pub fn source<'a>(&'a self, input: &'a [u8]) -> &'a [u8] {
        if self.is_inline { &self.unquoted } else { input }
    }

    /// The arguments; `input` is the parser's input.
    #[inline]
    pub fn iter<'a>(&'a self, input: &'a [u8]) -> impl ExactSizeIterator<Item = &'a [u8]> {
        let source = self.source(input);
        self.ranges().iter().map(move |range| &source[range.start..range.end])
    }

    /// Adds an argument that `write` appends to the list's own bytes; returns the result of
    /// `write`.
    pub(super) fn own<R>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let start = self.unquoted.len();
        let result = write(&mut self.unquoted);
        self.push(ArgRange { start, end: self.unquoted.len() });
        self.is_inline = true;
        result
    }

    #[inline]
    fn push(&mut self, range: ArgRange) {
        match self.slots.get_mut(self.len) {
            Some(slot) => *slot = range,
            None => self.slots.push(range),
        }
        self.len += 1;
    }

    fn clear(&mut self) {
        if self.slots.len() > ARGUMENTS_KEPT {
            self.slots = Vec::new();
        }
        self.len = 0;
        self.unquoted.clear();
        self.is_inline = false;
    }

    /// Parses a plain command, the form of nearly all: complete, and without a number of more than
    /// four digits. Returns its length. `None` means that it may be in another form.
    #[inline]
    fn take_plain(&mut self, input: &[u8]) -> Option<usize> {
        // A list that has grown too long must be cleared first.
        if self.slots.len() > ARGUMENTS_KEPT {
            return None;
        }
        let Some((count, name)) = plain_head(input) else { return self.take_long_head(input) };
        let (first, others) = self.slots.get_mut(..count)?.split_first_mut()?;
        *first = ArgRange { start: HEAD, end: HEAD + name };
        let consumed = plain_arguments(others, input, HEAD + name + LINE_END)?;
        self.len = count;
        self.is_inline = false;
        Some(consumed)
    }

    #[inline(never)]
    fn take_long_head(&mut self, input: &[u8]) -> Option<usize> {
        let (count, line) = plain_line(b'*', input).filter(|&(count, _)| count > 0)?;
        let consumed = plain_arguments(self.slots.get_mut(..count)?, input, line)?;
        self.len = count;
        self.is_inline = false;
        Some(consumed)
    }
}

/// The limits of a client's requests.
pub struct RequestLimits {
    /// The longest argument: Redis's proto-max-bulk-len.
    pub max_bulk_bytes: usize,
    /// Whether the client has logged in. Others may send short commands only.
    pub authenticated: bool,
}

/// What the input begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A command; its arguments are in the list.
    Command {
        /// Length in the input.
        consumed: usize,
    },
    /// Nothing to run or to answer: a blank line, or an array without elements.
    Empty {
        /// Length in the input.
        consumed: usize,
    },
    /// A part of a command.
    Incomplete {
        /// At least this many bytes of it are still to come, if the client's lengths are right: see
        /// [`room_for`].
        missing: usize,
    },
}

/// How much room to make for input that a client has announced, if `present` bytes have arrived.
/// Announcing costs a client nothing, so the buffer grows by no more than three times that.
pub fn room_for(missing: usize, present: usize) -> usize {
    missing.min(present.saturating_mul(INPUT_GROWTH)).max(READ_BYTES)
}

/// Input that is not a request. The connection is closed after this reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// The line with the number of arguments does not end.
    CountTooLong,
    /// The number of arguments is invalid or too large.
    InvalidCount,
    /// Too many arguments from a client that has not logged in.
    UnauthenticatedCount,
    /// The line with an argument's length does not end.
    LengthTooLong,
    /// An argument begins with this instead of `$`.
    NoDollar(u8),
    /// An argument's length is invalid or too large.
    InvalidLength,
    /// Too long an argument from a client that has not logged in.
    UnauthenticatedLength,
    /// An inline command does not end.
    InlineTooLong,
    /// A quotation of an inline command does not end.
    UnbalancedQuotes,
}

impl ProtocolError {
    /// The reply in Redis's words, without `-` and line end.
    pub fn text(self) -> Vec<u8> {
        let what = match self {
            ProtocolError::CountTooLong => "too big mbulk count string",
            ProtocolError::InvalidCount => "invalid multibulk length",
            ProtocolError::UnauthenticatedCount => "unauthenticated multibulk length",
            ProtocolError::LengthTooLong => "too big bulk count string",
            ProtocolError::NoDollar(byte) => {
                // A line end would end the reply.
                let byte = if matches!(byte, b'\r' | b'\n') { b' ' } else { byte };
                return [b"ERR Protocol error: expected '$', got '", &[byte][..], b"'"].concat();
            }
            ProtocolError::InvalidLength => "invalid bulk length",
            ProtocolError::UnauthenticatedLength => "unauthenticated bulk length",
            ProtocolError::InlineTooLong => "too big inline request",
            ProtocolError::UnbalancedQuotes => "unbalanced quotes in request",
        };
        format!("ERR Protocol error: {what}").into()
    }
}

/// Parses one connection's input into commands.
///
/// It keeps no state between commands. Within one it keeps its position, so a command that arrives
/// in many pieces costs no more than one that arrives at once.
#[derive(Default)]
pub struct RequestParser {
    /// Whether the input so far ends within a command.
    within: bool,
    /// Everything before this is parsed.
    at: usize,
    /// Arguments from `at` on; 0 before the line with their number is parsed.
    arguments: usize,
    /// The length of the argument at `at`, if its line is parsed.
    length: Option<usize>,
    /// This many bytes from `at` on have no line end.
    searched: usize,
    /// The arguments before `at`.
    found: Vec<ArgRange>,
}

impl RequestParser {
    /// Whether the next call begins with a new command.
    #[inline]
    pub fn is_between(&self) -> bool {
        !self.within
    }

    /// Parses the command at the start of `input`. If it is incomplete, the next call must get the
    /// same bytes again, with more after them. After an error there must be no further call.
    ///
    /// If Redis's answer to a line of more than 64 KiB depends on how its bytes are split into
    /// reads, this is its answer to single bytes. As in Redis, a NUL hides the end of its line, and
    /// the bytes in place of a `
    /// `, or of the `\r
    /// ` after an argument, are not checked.
    #[inline]
    pub fn next(
        &mut self,
        input: &[u8],
        args: &mut ArgList,
        limits: &RequestLimits,
    ) -> Result<Parsed, ProtocolError> {
        if !self.within
            && limits.allow_plain()
            && let Some(consumed) = args.take_plain(input)
        {
            return Ok(Parsed::Command { consumed });
        }
        self.next_of_any_form(input, args, limits)
    }

    #[inline(never)]
    fn next_of_any_form(
        &mut self,
        input: &[u8],
        args: &mut ArgList,
        limits: &RequestLimits,
    ) -> Result<Parsed, ProtocolError> {
        args.clear();
        let parsed = match input.first() {
            Some(b'*') => self.array(input, args, limits)?,
            Some(_) => self.inline(input, args)?,
            // No command has begun.
            None => return Ok(Parsed::Incomplete { missing: 1 }),
        };
        if let Parsed::Incomplete { .. } = parsed {
            self.within = true;
        } else if self.within {
            *self = RequestParser::default();
        }
        Ok(parsed)
    }

    fn array(
        &mut self,
        input: &[u8],
        args: &mut ArgList,
        limits: &RequestLimits,
    ) -> Result<Parsed, ProtocolError> {
        if self.at > 0 {
            mem::swap(&mut self.found, &mut args.slots);
            args.len = args.slots.len();
        }
        let mut rest = input.get(self.at..).unwrap_or_default();
        let mut arguments = self.arguments;
        if arguments == 0 {
            let Some(line) = self.line(rest, ProtocolError::CountTooLong)? else {
                return Ok(Parsed::Incomplete { missing: 1 });
            };
            arguments = limits.count(line)?;
            rest = &rest[line.len() + LINE_END..];
            if arguments == 0 {
                return Ok(Parsed::Empty { consumed: input.len() - rest.len() });
            }
        }
        while arguments > 0 {
            let length = match self.length.take() {
                Some(length) => length,
                None => {
                    let Some((length, line)) = self.length(rest, limits)? else {
                        return Ok(self.pause(input, rest, (arguments, None), args));
                    };
                    rest = &rest[line..];
                    length
                }
            };
            let Some(after) = rest.get(length + LINE_END..) else {
                return Ok(self.pause(input, rest, (arguments, Some(length)), args));
            };
            let start = input.len() - rest.len();
            args.push(ArgRange { start, end: start + length });
            rest = after;
            arguments -= 1;
        }
        Ok(Parsed::Command { consumed: input.len() - rest.len() })
    }

    /// The length of an argument, and the length of its line.
    fn length(
        &mut self,
        rest: &[u8],
        limits: &RequestLimits,
    ) -> Result<Option<(usize, usize)>, ProtocolError> {
        if limits.allow_plain()
            && let Some(plain) = plain_line(b'$', rest)
        {
            self.searched = 0;
            return Ok(Some(plain));
        }
        match self.line(rest, ProtocolError::LengthTooLong)? {
            Some(line) => Ok(Some((limits.length(line)?, line.len() + LINE_END))),
            None => Ok(None),
        }
    }

    /// The line at the start of `rest`, without its line end, which must be there too.
    fn line<'a>(
        &mut self,
        rest: &'a [u8],
        too_long: ProtocolError,
    ) -> Result<Option<&'a [u8]>, ProtocolError> {
        let Some(end) = self.search(rest, b'\r', too_long)? else {
            return Ok(None);
        };
        if rest.len() < end + LINE_END {
            self.searched = end;
            return Ok(None);
        }
        Ok(Some(&rest[..end]))
    }

    /// The position of the first `wanted`.
    fn search(
        &mut self,
        rest: &[u8],
        wanted: u8,
        too_long: ProtocolError,
    ) -> Result<Option<usize>, ProtocolError> {
        let window = &rest[..rest.len().min(LINE_BYTES + 1)];
        let unseen = window.get(self.searched..).unwrap_or_default();
        let stop = unseen.iter().position(|&byte| byte == wanted || byte == 0);
        let stop = stop.map_or(window.len(), |stop| self.searched + stop);
        if window.get(stop) == Some(&wanted) {
            self.searched = 0;
            return Ok(Some(stop));
        }
        self.searched = stop;
        if rest.len() > LINE_BYTES { Err(too_long) } else { Ok(None) }
    }

    fn inline(&mut self, input: &[u8], args: &mut ArgList) -> Result<Parsed, ProtocolError> {
        let Some(end) = self.search(input, b'\n', ProtocolError::InlineTooLong)? else {
            return Ok(Parsed::Incomplete { missing: 1 });
        };
        let line = &input[..end];
        inline::split(line.strip_suffix(b"\r").unwrap_or(line), args)
            .ok_or(ProtocolError::UnbalancedQuotes)?;
        let consumed = end + 1;
        Ok(if args.is_empty() { Parsed::Empty { consumed } } else { Parsed::Command { consumed } })
    }

    /// Keeps the position within the command.
    ///
    /// The first time, the arguments are copied, so that the caller keeps its list, which other
    /// connections use too. After that, the list that grew is swapped, and nothing is copied.
    fn pause(
        &mut self,
        input: &[u8],
        rest: &[u8],
        (arguments, length): (usize, Option<usize>),
        args: &mut ArgList,
    ) -> Parsed {
        if self.at > 0 {
            mem::swap(&mut self.found, &mut args.slots);
        } else {
            self.found.extend_from_slice(args.ranges());
        }
        args.len = 0;
        self.at = input.len() - rest.len();
        self.arguments = arguments;
        self.length = length;
        let first = length.map_or(ARGUMENT_BYTES_MIN, |length| length + LINE_END);
        let expected = first + (arguments - 1) * ARGUMENT_BYTES_MIN;
        Parsed::Incomplete { missing: expected.saturating_sub(rest.len()).max(1) }
    }
}

/// The shortest argument: `$0` and two line ends.
const ARGUMENT_BYTES_MIN: usize = 6;

impl RequestLimits {
    /// Whether the limits allow everything that is parsed without checking them.
    #[inline]
    pub(super) fn allow_plain(&self) -> bool {
        self.authenticated && self.max_bulk_bytes >= PLAIN_NUMBER
    }

    /// The number of arguments in a line; a negative number means none.
    fn count(&self, line: &[u8]) -> Result<usize, ProtocolError> {
        let count = line
            .get(1..)
            .and_then(parse_integer)
            .and_then(|count| i32::try_from(count.max(0)).ok());
        let count = count.ok_or(ProtocolError::InvalidCount)? as usize;
        if count > UNAUTHENTICATED_ARGUMENTS && !self.authenticated {
            return Err(ProtocolError::UnauthenticatedCount);
        }
        Ok(count)
    }

    /// The length of an argument in a line.
    fn length(&self, line: &[u8]) -> Result<usize, ProtocolError> {
        let Some(digits) = line.strip_prefix(b"$") else {
            // An empty line begins with its end.
            return Err(ProtocolError::NoDollar(line.first().copied().unwrap_or(b'\r')));
        };
        let length = parse_integer(digits).and_then(|length| usize::try_from(length).ok());
        let length = length.filter(|&length| length <= self.max_bulk_bytes);
        let length = length.ok_or(ProtocolError::InvalidLength)?;
        if length > UNAUTHENTICATED_BULK_BYTES && !self.authenticated {
            return Err(ProtocolError::UnauthenticatedLength);
        }
        Ok(length)
    }
}

#[cfg(test)]
mod tests;
