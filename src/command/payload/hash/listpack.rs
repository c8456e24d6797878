//! The listpack, in which Redis and Valkey keep small hashes since Redis 7.0.
//!
//! ```text
//! bytes 4 │ count 2 │ element… │ ff         little-endian; a count of ffff is not known
//! element: text or number │ its length
//!
//! 0NNNNNNN                         a number from 0 to 127
//! 10LLLLLL  text                   up to 63 bytes
//! 110NNNNN NNNNNNNN                a number of 13 bits, signed, the high bits first
//! 1110LLLL LLLLLLLL  text          up to 4095 bytes
//! f0 4 bytes  text                 longer texts, the length little-endian
//! f1 to f4 and 2, 3, 4 or 8 bytes  a number, signed, little-endian
//! ```
//!
//! The length at the end of an element counts the bytes before it. Its groups of seven bits stand
//! with the highest first; bit 7 is set in all groups but the first. So a reader can go backwards.

use super::super::super::parse_integer;
use super::super::string::PayloadReader;
use super::super::text::PayloadText;
use super::pairs::PackedElements;

const HEADER_BYTES: usize = 6;
const END: u8 = 0xff;
const UNKNOWN_COUNT: u16 = u16::MAX;

const LONG_TEXT: u8 = 0xf0;
const INT_16: u8 = 0xf1;
const INT_24: u8 = 0xf2;
const INT_32: u8 = 0xf3;
const INT_64: u8 = 0xf4;

/// Who wrote the length at an element's end. In three lengths Redis and Valkey 9.1 differ; see
/// [`LISTPACK_TEXT_BYTES`](crate::limits::LISTPACK_TEXT_BYTES).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EndedBy {
    Redis,
    Valkey,
}

/// Reads all elements; `None` if the listpack is damaged or one is refused.
pub(super) fn read<'a>(listpack: &'a [u8], to: &mut PackedElements<'a>) -> Option<()> {
    let mut header = PayloadReader(listpack);
    let bytes = u32::from_le_bytes(header.array()?);
    let expected = u16::from_le_bytes(header.array()?);
    let (&END, mut elements) = header.0.split_last()? else { return None };
    let mut count = 0_usize;
    while !elements.is_empty() {
        to.push(element(&mut elements)?)?;
        count += 1;
    }
    let counted = expected == UNKNOWN_COUNT || usize::from(expected) == count;
    (counted && bytes as usize == listpack.len()).then_some(())
}

fn element<'a>(elements: &mut &'a [u8]) -> Option<PayloadText<'a>> {
    let mut rest = PayloadReader(elements);
    let [kind] = rest.array()?;
    let text = match kind {
        0..0x80 => PayloadText::number(kind.into()),
        0x80..0xc0 => PayloadText::Borrowed(rest.take(u64::from(kind & 0x3f))?),
        0xc0..0xe0 => {
            let [low] = rest.array()?;
            // Shifted so that the highest of the 13 bits is the sign.
            let number = i16::from_be_bytes([kind << 3, 0]) >> 3;
            PayloadText::number((number | i16::from(low)).into())
        }
        0xe0..0xf0 => {
            let [low] = rest.array()?;
            PayloadText::Borrowed(rest.take(u64::from(kind & 0xf) << 8 | u64::from(low))?)
        }
        LONG_TEXT => {
            let len = u32::from_le_bytes(rest.array()?);
            PayloadText::Borrowed(rest.take(len.into())?)
        }
        INT_16 => PayloadText::number(i16::from_le_bytes(rest.array()?).into()),
        INT_24 => PayloadText::number(int_24(rest.array()?)),
        INT_32 => PayloadText::number(i32::from_le_bytes(rest.array()?).into()),
        INT_64 => PayloadText::number(i64::from_le_bytes(rest.array()?)),
        _ => return None,
    };
    let len = elements.len() - rest.0.len();
    let ends = [EndedBy::Redis, EndedBy::Valkey].map(|by| back_len(len, by));
    *elements = ends.iter().find_map(|(back, count)| rest.0.strip_prefix(&back[..*count]))?;
    Some(text)
}

/// Begins a listpack.
pub(super) fn begin(to: &mut Vec<u8>) {
    to.extend([0; HEADER_BYTES]);
}

/// Adds an element: a number, if the text is one exactly.
pub(super) fn write(to: &mut Vec<u8>, text: &[u8]) {
    let begin = to.len();
    match parse_integer(text) {
        Some(number) => write_number(to, number),
        None => write_text(to, text),
    }
    let (back, count) = back_len(to.len() - begin, EndedBy::Redis);
    to.extend(&back[..count]);
}

/// Ends a listpack of that many elements, which is alone in `to`.
pub(super) fn end(to: &mut Vec<u8>, count: usize) {
    to.push(END);
    let bytes = to.len() as u32;
    let count = u16::try_from(count).unwrap_or(UNKNOWN_COUNT);
    to[..4].copy_from_slice(&bytes.to_le_bytes());
    to[4..HEADER_BYTES].copy_from_slice(&count.to_le_bytes());
}

fn write_text(to: &mut Vec<u8>, text: &[u8]) {
    let len = text.len();
    match len {
        0..0x40 => to.push(0x80 | len as u8),
        0x40..0x1000 => to.extend([0xe0 | (len >> 8) as u8, len as u8]),
        _ => {
            to.push(LONG_TEXT);
            to.extend((len as u32).to_le_bytes());
        }
    }
    to.extend(text);
}

fn write_number(to: &mut Vec<u8>, number: i64) {
    let bytes = number.to_le_bytes();
    match number {
        0..0x80 => to.push(bytes[0]),
        -0x1000..0x1000 => to.extend([0xc0 | bytes[1] & 0x1f, bytes[0]]),
        -0x8000..0x8000 => write_wide(to, INT_16, &bytes[..2]),
        -0x80_0000..0x80_0000 => write_wide(to, INT_24, &bytes[..3]),
        -0x8000_0000..0x8000_0000 => write_wide(to, INT_32, &bytes[..4]),
        _ => write_wide(to, INT_64, &bytes),
    }
}

fn write_wide(to: &mut Vec<u8>, kind: u8, bytes: &[u8]) {
    to.push(kind);
    to.extend(bytes);
}

/// A signed number of three bytes, little-endian.
pub(super) fn int_24([low, middle, high]: [u8; 3]) -> i64 {
    (i32::from_le_bytes([0, low, middle, high]) >> 8).into()
}

/// The length at the end of an element, and how many bytes it has.
pub(super) fn back_len(len: usize, by: EndedBy) -> ([u8; 5], usize) {
    // Redis gives a length of all ones another group, unless it fits in the first.
    let more = usize::from(by == EndedBy::Redis);
    let count = match len {
        0..0x80 => 1,
        _ if len + more < 1 << 14 => 2,
        _ if len + more < 1 << 21 => 3,
        _ if len + more < 1 << 28 => 4,
        _ => 5,
    };
    let mut groups = [0; 5];
    for (at, group) in groups[..count].iter_mut().enumerate() {
        let more = if at == 0 { 0 } else { 0x80 };
        *group = (len >> (7 * (count - 1 - at))) as u8 & 0x7f | more;
    }
    (groups, count)
}
