//! Requests: parsing a connection's bytes into commands.

use std::mem;

use super::inline;
use crate::command::parse_integer;
use crate::limits::{
    ARGUMENTS_KEPT, LINE_BYTES, READ_BYTES, UNAUTHENTICATED_ARGUMENTS, UNAUTHENTICATED_BULK_BYTES,
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

/// How a plain command begins: the lines of its count and its name. A command with the same head
/// has the same name and as many arguments.
#[derive(Clone, Copy)]
pub struct Head {
    bytes: u128,
    mask: u128,
    len: usize,
    arguments: usize,
}

impl Head {
    /// The head of the command at the start of `input`, which was parsed into `args`. `None` if it
    /// is too long for one comparison, or not plain.
    pub fn of(input: &[u8], args: &ArgList, limits: &RequestLimits) -> Option<Head> {
        let name = args.ranges().first().filter(|_| !args.is_inline && limits.allow_plain())?;
        let len = name.end + LINE_END;
        let mask = u128::MAX >> (size_of::<u128>().checked_sub(len)? * 8);
        let (count, _) =
            plain_head(input).filter(|&head| head == (args.len, name.end - name.start))?;
        Some(Head { bytes: leading(input)? & mask, mask, len, arguments: count - 1 })
    }

    /// Parses another command with this head from the start of `input`; gives `take` its name and
    /// its arguments, and returns its length. `None` means that it may be in another form; what
    /// `take` was given is invalid then.
    #[inline(always)]
    pub fn take<'i>(&self, input: &'i [u8], mut take: impl FnMut(&'i [u8])) -> Option<usize> {
        if leading(input)? & self.mask != self.bytes {
            return None;
        }
        take(&input[HEAD..self.len - LINE_END]);
        let mut rest = &input[self.len..];
        for _ in 0..self.arguments {
            let (length, line) = plain_line(b'$', rest)?;
            take(rest.get(line..line + length)?);
            rest = rest.get(line + length + LINE_END..)?;
        }
        Some(input.len() - rest.len())
    }
}

/// The first bytes, as one number.
#[inline(always)]
fn leading(input: &[u8]) -> Option<u128> {
    input.first_chunk().map(|bytes| u128::from_le_bytes(*bytes))
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
/// Announcing costs a client nothing, so the buffer at most doubles.
pub fn room_for(missing: usize, present: usize) -> usize {
    missing.min(present).max(READ_BYTES)
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

/// `\r\n`.
const LINE_END: usize = 2;

/// The shortest argument: `$0` and two line ends.
const ARGUMENT_BYTES_MIN: usize = 6;

/// The largest number in a plain command.
const PLAIN_NUMBER: usize = 9999;

/// Parses as many arguments as there are slots; returns where they end.
#[inline(always)]
fn plain_arguments(slots: &mut [ArgRange], input: &[u8], from: usize) -> Option<usize> {
    let mut rest = input.get(from..)?;
    for slot in slots {
        let (length, line) = plain_line(b'$', rest)?;
        let start = input.len() - rest.len() + line;
        *slot = ArgRange { start, end: start + length };
        rest = rest.get(line + length + LINE_END..)?;
    }
    Some(input.len() - rest.len())
}

/// The length of the first two lines of a plain command, with one digit each.
const HEAD: usize = 8;

/// The numbers of two lines such as `*2` and `$3`, with one digit each; all bytes are compared at
/// once.
#[inline(always)]
fn plain_head(input: &[u8]) -> Option<(usize, usize)> {
    const ZEROS: u64 = u64::from_le_bytes(*b"*0\r\n$0\r\n");
    const DIGITS: u64 = u64::from_le_bytes([0, 15, 0, 0, 0, 15, 0, 0]);
    const SIXES: u64 = u64::from_le_bytes([0, 6, 0, 0, 0, 6, 0, 0]);
    // Only the two digits differ from the head with zeros. Adding 6 reveals digits above 9.
    let digits = u64::from_le_bytes(*input.first_chunk()?) ^ ZEROS;
    if (digits | digits.wrapping_add(SIXES)) & !DIGITS != 0 {
        return None;
    }
    Some(((digits >> 8 & 15) as usize, (digits >> 40) as usize))
}

/// The number in a line of `sign` and one to four digits, and the length of the line. Also `None`
/// if `rest` has fewer bytes than four digits would need.
#[inline(always)]
fn plain_line(sign: u8, rest: &[u8]) -> Option<(usize, usize)> {
    let &[first, a, b, c, d, e, _] = rest.first_chunk()?;
    if first != sign {
        return None;
    }
    let mut number = digit(a)?;
    if b == b'\r' {
        return Some((number, 4));
    }
    number = number * 10 + digit(b)?;
    if c == b'\r' {
        return (number > 9).then_some((number, 5));
    }
    number = number * 10 + digit(c)?;
    if d == b'\r' {
        return (number > 99).then_some((number, 6));
    }
    number = number * 10 + digit(d)?;
    (number > 999 && e == b'\r').then_some((number, 7))
}

#[inline(always)]
fn digit(byte: u8) -> Option<usize> {
    byte.is_ascii_digit().then(|| usize::from(byte - b'0'))
}

impl RequestLimits {
    /// Whether the limits allow everything that is parsed without checking them.
    #[inline]
    fn allow_plain(&self) -> bool {
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
mod tests {
    use super::*;

    const LOGGED_IN: RequestLimits =
        RequestLimits { max_bulk_bytes: 512 << 20, authenticated: true };
    const NOT_LOGGED_IN: RequestLimits =
        RequestLimits { max_bulk_bytes: 512 << 20, authenticated: false };

    /// Parses with a list that has had longer commands, as plain commands need it.
    fn first(input: &[u8], limits: &RequestLimits) -> Result<(Parsed, Vec<Vec<u8>>), String> {
        let slots = vec![ArgRange { start: 0, end: 0 }; 200];
        let mut args = ArgList { slots, ..ArgList::default() };
        let parsed = RequestParser::default().next(input, &mut args, limits);
        let parsed = parsed.map_err(|error| String::from_utf8_lossy(&error.text()).into_owned())?;
        Ok((parsed, args.iter(input).map(<[u8]>::to_vec).collect()))
    }

    fn command(input: &[u8]) -> Vec<Vec<u8>> {
        let (parsed, args) = first(input, &LOGGED_IN).expect("no error");
        assert_eq!(parsed, Parsed::Command { consumed: input.len() });
        args
    }

    fn error(input: &[u8]) -> String {
        first(input, &LOGGED_IN).expect_err("an error")
    }

    #[test]
    fn arrays_of_strings() {
        assert_eq!(command(b"*1\r\n$4\r\nPING\r\n"), [b"PING"]);
        assert_eq!(command(b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n"), [&b"GET"[..], b""]);
        assert_eq!(command(b"*2\r\n$4\r\nECHO\r\n$2\r\n\r\n\r\n"), [&b"ECHO"[..], b"\r\n"]);
        for len in [9, 10, 99, 100, 12345] {
            let long = "x".repeat(len);
            let input = format!("*2\r\n$4\r\nECHO\r\n${len}\r\n{long}\r\n");
            assert_eq!(command(input.as_bytes()), [b"ECHO", long.as_bytes()]);
        }
        let many = format!("*1234\r\n{}", "$1\r\na\r\n".repeat(1234));
        assert_eq!(command(many.as_bytes()).len(), 1234);
    }

    /// Replaces each byte of some plain commands with every value: parsing them as plain commands
    /// must give the same result as without.
    #[test]
    fn plain_commands_are_no_others() {
        let nothing_plain = RequestLimits { max_bulk_bytes: PLAIN_NUMBER - 1, authenticated: true };
        for (count, len) in
            [(2, 0), (2, 9), (2, 10), (3, 99), (10, 16), (12, 100), (2, 999), (2, 1000)]
        {
            let argument = format!("${len}\r\n{}\r\n", "x".repeat(len));
            let input = format!("*{count}\r\n$3\r\nGET\r\n{}", argument.repeat(count - 1));
            for at in 0..input.len().min(40) {
                for byte in 0..=u8::MAX {
                    let mut input = input.clone().into_bytes();
                    input[at] = byte;
                    let expected = first(&input, &nothing_plain);
                    assert_eq!(first(&input, &LOGGED_IN), expected, "{}", input.escape_ascii());
                }
            }
        }
    }

    /// What the head of a command takes from another input.
    fn known(input: &[u8], limits: &RequestLimits, other: &[u8]) -> Option<(usize, Vec<Vec<u8>>)> {
        let mut args = ArgList::default();
        RequestParser::default().next(input, &mut args, limits).expect("a command");
        let mut taken = Vec::new();
        let length = Head::of(input, &args, limits)?.take(other, |arg| taken.push(arg.to_vec()))?;
        Some((length, taken))
    }

    /// Replaces each byte of some commands with every value: whatever a head takes must be that
    /// very command.
    #[test]
    fn known_commands_are_no_others() {
        for (first_one, count, len) in [
            ("*1\r\n$6\r\nDBSIZE\r\n", 1, 0),
            ("*2\r\n$3\r\nGET\r\n$1\r\na\r\n", 2, 9),
            ("*3\r\n$6\r\nINCRBY\r\n$1\r\na\r\n$0\r\n\r\n", 3, 999),
        ] {
            let name = &first_one[..first_one.find("$1").unwrap_or(first_one.len())];
            let input =
                format!("{name}{}", format!("${len}\r\n{}\r\n", "x".repeat(len)).repeat(count - 1));
            let whole = known(first_one.as_bytes(), &LOGGED_IN, input.as_bytes());
            assert_eq!(whole, Some((input.len(), command(input.as_bytes()))));
            for at in 0..input.len().min(40) {
                assert_eq!(known(first_one.as_bytes(), &LOGGED_IN, &input.as_bytes()[..at]), None);
                for byte in 0..=u8::MAX {
                    let mut input = input.clone().into_bytes();
                    input[at] = byte;
                    if let Some((consumed, taken)) = known(first_one.as_bytes(), &LOGGED_IN, &input)
                    {
                        assert_eq!(
                            first(&input, &LOGGED_IN),
                            Ok((Parsed::Command { consumed }, taken))
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn only_plain_commands_are_known() {
        let get = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n";
        assert!(known(get, &LOGGED_IN, get).is_some());
        let narrow = RequestLimits { max_bulk_bytes: PLAIN_NUMBER - 1, authenticated: true };
        assert_eq!(known(get, &narrow, get), None);
        assert_eq!(known(get, &NOT_LOGGED_IN, get), None);
        for other in [&b"GET aaaaaaaaaaaaaaaaaa\r\n"[..], b"*2\r\n$7\r\nGETINFO\r\n$1\r\na\r\n"] {
            assert_eq!(known(other, &LOGGED_IN, other), None, "{}", text(other));
        }
    }

    fn text(bytes: &[u8]) -> String {
        bytes.escape_ascii().to_string()
    }

    #[test]
    fn what_follows_a_carriage_return_is_not_looked_at() {
        assert_eq!(command(b"*1\rx$4\ryPINGzz"), [b"PING"]);
    }

    #[test]
    fn nothing_to_do() {
        for input in
            [&b"\n"[..], b"\r\n", b" \t\r\n", b"*0\r\n", b"*-1\r\n", b"*-9223372036854775808\r\n"]
        {
            let consumed = input.len();
            assert_eq!(
                first(input, &LOGGED_IN),
                Ok((Parsed::Empty { consumed }, vec![])),
                "{input:?}"
            );
        }
    }

    #[test]
    fn inline_commands() {
        assert_eq!(command(b"PING\n"), [b"PING"]);
        assert_eq!(command(b" SET key \"a\\x20b\"\r\n"), [&b"SET"[..], b"key", b"a b"]);
        assert_eq!(command(b"$4\r\n"), [b"$4"]);
    }

    #[test]
    fn errors_as_redis_says_them() {
        let long = |sign: &[u8]| [sign, &[b'1'; 65_536]].concat();
        for (input, text) in [
            (&b"*\r\n"[..], "invalid multibulk length"),
            (b"*x\r\n", "invalid multibulk length"),
            (b"*01\r\n", "invalid multibulk length"),
            (b"* 1\r\n", "invalid multibulk length"),
            (b"*2147483648\r\n", "invalid multibulk length"),
            (b"*1\r\nxyz\r\n", "expected '$', got 'x'"),
            (b"*1\r\n\xff\r\n", "expected '$', got '\u{fffd}'"),
            (b"*1\r\n\r\n", "expected '$', got ' '"),
            (b"*1\r\n$\r\n", "invalid bulk length"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
            (b"*1\r\n$01\r\n", "invalid bulk length"),
            (b"*1\r\n$536870913\r\n", "invalid bulk length"),
            (b"*1\r\n$9223372036854775808\r\n", "invalid bulk length"),
            (b"get \"\r\n", "unbalanced quotes in request"),
            (&long(b"*"), "too big mbulk count string"),
            (&long(b"*1\r\n$"), "too big bulk count string"),
            (&long(b"a"), "too big inline request"),
        ] {
            assert_eq!(error(input), format!("ERR Protocol error: {text}"));
        }
    }

    #[test]
    fn clients_without_a_login_may_send_short_commands() {
        let short = |input: &str| first(input.as_bytes(), &NOT_LOGGED_IN).map(|(parsed, _)| parsed);
        let incomplete = |missing| Ok(Parsed::Incomplete { missing });
        assert_eq!(short("*10\r\n"), incomplete(60));
        assert_eq!(
            short("*11\r\n"),
            Err("ERR Protocol error: unauthenticated multibulk length".into())
        );
        assert_eq!(short("*1\r\n$16384\r\n"), incomplete(16_386));
        assert_eq!(
            short("*1\r\n$16385\r\n"),
            Err("ERR Protocol error: unauthenticated bulk length".into())
        );
    }

    #[test]
    fn lines_wait_for_their_end() {
        let edge = |line: &str, len: usize| line.to_owned() + &"1".repeat(len - line.len());
        for input in [
            "",
            "*",
            "*1",
            "*1\r",
            "*1\r\n",
            "*1\r\n$",
            "*1\r\n$1\r",
            "*1\r\nx\r",
            "PING",
            "PING\r",
        ] {
            let parsed = first(input.as_bytes(), &LOGGED_IN).map(|(parsed, _)| parsed);
            assert!(matches!(parsed, Ok(Parsed::Incomplete { .. })), "{input:?}");
        }
        for input in [
            edge("*", 65_536),
            edge("a", 65_536),
            edge("a\0\r\n", 65_536),
            edge("*1\0\r\n", 65_536),
        ] {
            assert!(matches!(
                first(input.as_bytes(), &LOGGED_IN),
                Ok((Parsed::Incomplete { missing: 1 }, _))
            ));
            assert!(error((input + "1").as_bytes()).contains("too big"));
        }
        assert_eq!(command((edge("a", 65_536) + "\n").as_bytes())[0].len(), 65_536);
    }

    #[test]
    fn it_goes_on_where_it_stopped() {
        let input = b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$11\r\nhello world\r\n";
        let (mut parser, mut args) = (RequestParser::default(), ArgList::default());
        for end in 0..input.len() {
            let parsed = parser.next(&input[..end], &mut args, &LOGGED_IN).expect("no error");
            let Parsed::Incomplete { missing } = parsed else {
                panic!("{parsed:?} of {end} bytes")
            };
            assert!(missing <= input.len() - end);
        }
        for _ in 0..2 {
            let parsed = parser.next(input, &mut args, &LOGGED_IN);
            assert_eq!(parsed, Ok(Parsed::Command { consumed: input.len() }));
            assert_eq!(args.iter(input).collect::<Vec<_>>(), [&b"SET"[..], b"key", b"hello world"]);
        }
    }

    /// Overwrites what has been parsed before the parser goes on: it must not read that again.
    #[test]
    fn nothing_is_read_twice() {
        let lens = [4, 3, 3000, 40_000].repeat(20);
        let encode = |&len: &usize| format!("${len}\r\n{}\r\n", "x".repeat(len));
        let input = format!("*80\r\n{}", lens.iter().map(encode).collect::<String>());
        let (mut parser, mut args, mut moved) = (RequestParser::default(), ArgList::default(), 0);
        for step in [1, 7, 1000] {
            let (mut seen, mut spoiled) = (Vec::new(), 1);
            for piece in input.as_bytes().chunks(step) {
                let list = parser.found.as_ptr();
                seen.extend_from_slice(piece);
                let parsed = parser.next(&seen, &mut args, &LOGGED_IN).expect("no error");
                let Parsed::Incomplete { .. } = parsed else { continue };
                moved += usize::from(parser.found.as_ptr() != list);
                let understood = if parser.length.is_some() { seen.len() } else { parser.at };
                assert!(
                    seen.len() - understood - parser.searched <= 1,
                    "a line's end is half there at most"
                );
                if understood > spoiled {
                    seen[spoiled..understood].fill(b'!');
                    spoiled = understood;
                }
            }
            assert_eq!(args.iter(input.as_bytes()).map(<[u8]>::len).collect::<Vec<_>>(), lens);
        }
        assert!(moved < 30, "the list moves only when it grows: {moved} times");
    }

    #[test]
    fn a_list_does_not_stay_long() {
        let long = format!("*5000\r\n{}", "$1\r\na\r\n".repeat(5000));
        let (mut parser, mut args) = (RequestParser::default(), ArgList::default());
        for input in [&long, "*2\r\n$3\r\nGET\r\n$1\r\na\r\n"] {
            let parsed = parser.next(input.as_bytes(), &mut args, &LOGGED_IN);
            assert_eq!(parsed, Ok(Parsed::Command { consumed: input.len() }));
        }
        assert!(args.len() == 2 && args.slots.capacity() < 100);
    }

    #[test]
    fn claims_get_no_more_room_than_was_paid_for() {
        assert_eq!(room_for(1, 100), READ_BYTES);
        assert_eq!(room_for(512 << 20, 30), READ_BYTES);
        assert_eq!(room_for(512 << 20, 1 << 20), 1 << 20);
        assert_eq!(room_for(1 << 20, 512 << 20), 1 << 20);
    }
}
