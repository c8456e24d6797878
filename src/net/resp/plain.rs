//! Commands of the form that nearly all have: arrays of strings, with numbers of at most four
//! digits.

/// The range of an argument in the bytes that it was parsed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArgRange {
    /// Its first byte.
    pub start: usize,
    /// The byte after its last.
    pub end: usize,
}

/// `\r\n`.
pub(super) const LINE_END: usize = 2;

/// The largest number in a plain command.
pub(super) const PLAIN_NUMBER: usize = 9999;

/// Takes as many arguments as there are slots, and tells where they end.
#[inline(always)]
pub(super) fn plain_arguments(slots: &mut [ArgRange], input: &[u8], from: usize) -> Option<usize> {
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
pub(super) const HEAD: usize = 8;

/// The numbers in two lines such as `*2` and `$3`, of one digit each, all their bytes looked at at
/// once.
#[inline(always)]
pub(super) fn plain_head(input: &[u8]) -> Option<(usize, usize)> {
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

/// The number in a line of one to four digits behind `sign`, and how long the line is. `None`
/// also where `rest` has fewer bytes than four digits would need.
#[inline(always)]
pub(super) fn plain_line(sign: u8, rest: &[u8]) -> Option<(usize, usize)> {
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
