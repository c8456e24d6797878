//! Requests: parsing a connection's bytes into commands.

use std::mem;

use super::arg_list::ArgList;
use super::gathered::{GatheredCommand, LargeArgument};
use super::inline;
use super::plain::{ArgRange, LINE_END, PLAIN_NUMBER, plain_line};
use crate::command::parse_integer;
use crate::limits::{
    EXPECTED_WITHIN, LINE_BYTES, UNAUTHENTICATED_ARGUMENTS, UNAUTHENTICATED_BULK_BYTES,
};
use crate::net::transport::Announced;

/// The limits of a client's requests.
pub struct RequestLimits {
    /// The longest argument: Redis's proto-max-bulk-len.
    pub max_bulk_bytes: usize,
    /// Whether the client has logged in. Others may send short commands only.
    pub authenticated: bool,
    /// From this length on, an argument is received into a buffer of its own.
    pub large_bytes: usize,
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
    /// The beginning of a command, up to a large argument. [`RequestParser::gather`] takes it.
    Large(LargeArgument),
    /// A part of a command.
    Incomplete {
        /// At least this many bytes of it are still to come, if the client's lengths are right: see
        /// [`room_for`](crate::net::transport::room_for).
        missing: usize,
    },
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
    /// The part of the command before the input, if it has a large argument.
    gathered: Option<Box<GatheredCommand>>,
    /// What is known of large arguments to come.
    expected: Expected,
}

/// The next large argument, as the last one was.
#[derive(Clone, Copy, Default)]
struct Expected {
    /// How many bytes its command had before it; 0 if none is expected.
    head: usize,
    /// After this much input without one it is no longer expected.
    patience: usize,
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
    /// the bytes in place of a `\n`, or of the `\r\n` after an argument, are not checked.
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
            _ if self.gathered.is_some() => self.behind_large(input, args, limits)?,
            Some(b'*') => self.array(input, args, limits)?,
            Some(_) => self.inline(input, args)?,
            // No command has begun.
            None => return Ok(Parsed::Incomplete { missing: 1 }),
        };
        if let Parsed::Incomplete { .. } | Parsed::Large(_) = parsed {
            self.within = true;
        } else if self.within {
            let mut expected = self.expected;
            args.gathered = self.gathered.take();
            if let Some(gathered) = args.gathered() {
                expected = Expected { head: gathered.head(), patience: EXPECTED_WITHIN };
            }
            *self = RequestParser { expected, ..RequestParser::default() };
        }
        Ok(parsed)
    }

    /// Parses what follows a large argument.
    fn behind_large(
        &mut self,
        input: &[u8],
        args: &mut ArgList,
        limits: &RequestLimits,
    ) -> Result<Parsed, ProtocolError> {
        if input.len() < LINE_END {
            return Ok(Parsed::Incomplete { missing: LINE_END - input.len() });
        }
        if let Some(gathered) = self.gathered.as_mut().filter(|_| self.at == 0) {
            self.arguments = gathered.give_args(&mut self.found);
            self.at = LINE_END;
        }
        if self.arguments > 0 {
            return self.array(input, args, limits);
        }
        // Copied: other connections use the list, too.
        self.found.iter().for_each(|&range| args.push(range));
        Ok(Parsed::Command { consumed: LINE_END })
    }

    /// Takes the beginning of a command, which [`RequestParser::next`] has just parsed up to a
    /// large argument. Returns its length in the input.
    pub fn gather(
        &mut self,
        input: &[u8],
        large: LargeArgument,
        args: &mut ArgList,
        announced: &Announced,
    ) -> usize {
        let mut gathered = self.gathered.take().unwrap_or_default();
        let taken = gathered.add(input, args, large, announced);
        *self =
            RequestParser { within: true, gathered: Some(gathered), ..RequestParser::default() };
        taken
    }

    /// The part of the command before the input, if it has a large argument.
    #[inline]
    pub fn gathered(&mut self) -> Option<&mut GatheredCommand> {
        self.gathered.as_deref_mut()
    }

    /// How many bytes that part has, and the memory that they take.
    pub fn gathered_bytes(&self) -> (usize, usize) {
        self.gathered.as_ref().map_or((0, 0), |gathered| gathered.bytes())
    }

    /// Whether it has such a part.
    #[inline]
    pub fn has_gathered(&self) -> bool {
        self.gathered.is_some()
    }

    /// The next call must get the beginning of a command, as it was not taken.
    pub fn begin_again(&mut self) {
        *self = RequestParser { expected: self.expected, ..RequestParser::default() };
    }

    /// The command in the list has not been run: the next call must get the same bytes again.
    pub fn put_back(&mut self, args: &mut ArgList) {
        if let Some(mut gathered) = args.gathered.take() {
            gathered.put_back(args);
            let gathered = Some(gathered);
            *self = RequestParser { within: true, gathered, ..RequestParser::default() };
        }
    }

    /// The most bytes to receive next: if a large argument is expected, no more than come before
    /// it, because those behind them should get into its own buffer.
    #[inline]
    pub fn expected(&self) -> usize {
        match &self.gathered {
            None if self.expected.head > 0 => self.expected.head,
            None => usize::MAX,
            Some(gathered) => gathered.expected().unwrap_or(usize::MAX),
        }
    }

    /// So much input has come. If there is no large argument for long, none is expected any more.
    #[inline]
    pub fn hear(&mut self, bytes: usize) {
        if self.expected.head > 0 {
            self.expected.patience = self.expected.patience.saturating_sub(bytes);
            if self.expected.patience == 0 {
                self.expected = Expected::default();
            }
        }
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
        let base = self.gathered.as_ref().map_or(0, |gathered| gathered.base());
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
            if length >= limits.large_bytes {
                let start = input.len() - rest.len();
                let large = LargeArgument { start, len: length, arguments: arguments - 1 };
                return Ok(Parsed::Large(large));
            }
            let Some(after) = rest.get(length + LINE_END..) else {
                return Ok(self.pause(input, rest, (arguments, Some(length)), args));
            };
            let start = base + input.len() - rest.len();
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
