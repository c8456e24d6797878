//! The ziplist, in which Redis kept small hashes up to 6.2.
//!
//! ```text
//! bytes 4 │ last 4 │ count 2 │ element… │ ff    little-endian; a count of ffff is not known
//! element: the length of the one before │ text or number
//!
//! length:  one byte up to fd, or fe and 4 bytes
//!
//! 00LLLLLL  text                up to 63 bytes
//! 01LLLLLL LLLLLLLL  text       up to 16,383 bytes
//! 10?????? 4 bytes  text        longer texts, the length big-endian
//! c0 d0 e0 and 2, 4 or 8 bytes  a number, signed, little-endian
//! f0 and 3 bytes, fe and 1      the same
//! 1111NNNN                      N − 1: a number from 0 to 12
//! ```
//!
//! `last` is where the last element begins.

use super::super::string::PayloadReader;
use super::super::text::PayloadText;
use super::listpack::int_24;
use super::pairs::PackedElements;

const HEADER_BYTES: usize = 10;
const END: u8 = 0xff;
const UNKNOWN_COUNT: u16 = u16::MAX;
const LONG_BEFORE: u8 = 0xfe;

const INT_16: u8 = 0xc0;
const INT_32: u8 = 0xd0;
const INT_64: u8 = 0xe0;
const INT_24: u8 = 0xf0;
const INT_8: u8 = 0xfe;

/// Reads all elements; `None` if the ziplist is damaged or one is refused.
pub(super) fn read<'a>(ziplist: &'a [u8], to: &mut PackedElements<'a>) -> Option<()> {
    let mut header = PayloadReader(ziplist);
    let bytes = u32::from_le_bytes(header.array()?);
    let last = u32::from_le_bytes(header.array()?);
    let expected = u16::from_le_bytes(header.array()?);
    let (&END, elements) = header.0.split_last()? else { return None };
    let mut rest = PayloadReader(elements);
    let (mut count, mut begin, mut len) = (0_usize, HEADER_BYTES, 0_usize);
    while !rest.0.is_empty() {
        let left = rest.0.len();
        if len_before(&mut rest)? as usize != len {
            return None;
        }
        to.push(element(&mut rest)?)?;
        begin += len;
        len = left - rest.0.len();
        count += 1;
    }
    let counted = expected == UNKNOWN_COUNT || usize::from(expected) == count;
    (counted && bytes as usize == ziplist.len() && last as usize == begin).then_some(())
}

fn len_before(rest: &mut PayloadReader<'_>) -> Option<u32> {
    match rest.array()? {
        [END] => None,
        [LONG_BEFORE] => rest.array().map(u32::from_le_bytes),
        [len] => Some(len.into()),
    }
}

fn element<'a>(rest: &mut PayloadReader<'a>) -> Option<PayloadText<'a>> {
    let [kind] = rest.array()?;
    Some(match kind {
        0..0x40 => PayloadText::Borrowed(rest.take(kind.into())?),
        0x40..0x80 => {
            let [low] = rest.array()?;
            PayloadText::Borrowed(rest.take(u64::from(kind & 0x3f) << 8 | u64::from(low))?)
        }
        0x80..0xc0 => {
            let len = u32::from_be_bytes(rest.array()?);
            PayloadText::Borrowed(rest.take(len.into())?)
        }
        INT_16 => PayloadText::number(i16::from_le_bytes(rest.array()?).into()),
        INT_32 => PayloadText::number(i32::from_le_bytes(rest.array()?).into()),
        INT_64 => PayloadText::number(i64::from_le_bytes(rest.array()?)),
        INT_24 => PayloadText::number(int_24(rest.array()?)),
        INT_8 => PayloadText::number(i8::from_le_bytes(rest.array()?).into()),
        0xf1..=0xfd => PayloadText::number(i64::from(kind & 0xf) - 1),
        _ => return None,
    })
}
