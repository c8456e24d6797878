//! A string in the encoding of RDB files.
//!
//! ```text
//! 00LLLLLL                      L bytes follow
//! 01LLLLLL LLLLLLLL             the same
//! 10000000 4 bytes, big-endian  the same
//! 10000001 8 bytes, big-endian  the same
//! 110000NN 1, 2 or 4 bytes      an integer, little-endian, as text
//! 11000011 length length bytes  LZF: packed, unpacked
//! ```

use super::super::lzf::{self, Packer};
use super::super::{Error, Limits, parse_integer};
use super::text::PayloadText;

const LEN_14: u8 = 0x40;
const LEN_32: u8 = 0x80;
const LEN_64: u8 = 0x81;
const ENCODED: u8 = 0xc0;
const INT_8: u8 = 0;
const INT_16: u8 = 1;
const INT_32: u8 = 2;
const LZF: u8 = 3;

/// The length of the longest text of a 32-bit integer.
const INT_TEXT: usize = 11;
/// Redis does not pack shorter strings.
const PACKED_FROM: usize = 21;

/// Adds a string: as a number, packed or as it is, whichever Redis would choose.
pub(super) fn write_string(to: &mut Vec<u8>, value: &[u8], packer: &mut Packer) {
    if value.len() <= INT_TEXT
        && let Some(number) = parse_integer(value).and_then(|number| i32::try_from(number).ok())
    {
        return write_integer(to, number);
    }
    if value.len() >= PACKED_FROM
        && let Some(packed) = packer.pack(value)
    {
        to.push(ENCODED | LZF);
        write_len(to, packed.len());
        write_len(to, value.len());
        return to.extend(packed);
    }
    write_len(to, value.len());
    to.extend(value);
}

fn write_integer(to: &mut Vec<u8>, number: i32) {
    if let Ok(number) = i8::try_from(number) {
        to.push(ENCODED | INT_8);
        to.extend(number.to_le_bytes());
    } else if let Ok(number) = i16::try_from(number) {
        to.push(ENCODED | INT_16);
        to.extend(number.to_le_bytes());
    } else {
        to.push(ENCODED | INT_32);
        to.extend(number.to_le_bytes());
    }
}

/// Adds a length or a count.
pub(super) fn write_len(to: &mut Vec<u8>, len: usize) {
    if len < 1 << 6 {
        to.push(len as u8);
    } else if len < 1 << 14 {
        to.extend([LEN_14 | (len >> 8) as u8, len as u8]);
    } else if let Ok(len) = u32::try_from(len) {
        to.push(LEN_32);
        to.extend(len.to_be_bytes());
    } else {
        to.push(LEN_64);
        to.extend((len as u64).to_be_bytes());
    }
}

/// The next string. A string above the limit is refused before memory is allocated for it.
pub(super) fn read_string<'a>(
    rest: &mut PayloadReader<'a>,
    limits: &Limits,
) -> Result<PayloadText<'a>, Error> {
    match rest.len().ok_or(Error::BadData)? {
        Len::Bytes(len) => {
            let value = rest.take(len).ok_or(Error::BadData)?;
            limits.value(value.len())?;
            Ok(PayloadText::Borrowed(value))
        }
        Len::Encoded(LZF) => read_packed(rest, limits),
        Len::Encoded(kind) => {
            let number = rest.integer(kind).ok_or(Error::BadData)?;
            Ok(PayloadText::number(number.into()))
        }
    }
}

fn read_packed<'a>(
    rest: &mut PayloadReader<'a>,
    limits: &Limits,
) -> Result<PayloadText<'a>, Error> {
    let (packed, len) = rest.packed().ok_or(Error::BadData)?;
    if len == 0 {
        // Redis's unpacker returns 0 for an error too, so the value is empty whatever the packed
        // bytes are.
        return Ok(PayloadText::Borrowed(b""));
    }
    let len = usize::try_from(len).map_err(|_| Error::BadData)?;
    limits.value(len)?;
    limits.reply(len)?;
    let text = lzf::unpack(packed, len).ok_or(Error::BadData)?;
    Ok(PayloadText::Unpacked(text.into_boxed_slice()))
}

/// A length, or how a string is encoded.
enum Len {
    Bytes(u64),
    Encoded(u8),
}

/// The bytes that are not read yet.
pub(super) struct PayloadReader<'a>(pub(super) &'a [u8]);

impl<'a> PayloadReader<'a> {
    pub(super) fn take(&mut self, len: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(len).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn len(&mut self) -> Option<Len> {
        let [first] = self.array()?;
        let low = first & !ENCODED;
        Some(match first {
            LEN_32 => Len::Bytes(u32::from_be_bytes(self.array()?).into()),
            LEN_64 => Len::Bytes(u64::from_be_bytes(self.array()?)),
            _ if first & ENCODED == ENCODED => Len::Encoded(low),
            _ if first & ENCODED == LEN_14 => {
                let [second] = self.array()?;
                Len::Bytes(u64::from(low) << 8 | u64::from(second))
            }
            _ if first & ENCODED == 0 => Len::Bytes(low.into()),
            _ => return None,
        })
    }

    /// A length that is a number, not an encoding.
    pub(super) fn number(&mut self) -> Option<u64> {
        match self.len()? {
            Len::Bytes(number) => Some(number),
            Len::Encoded(_) => None,
        }
    }

    fn integer(&mut self, kind: u8) -> Option<i32> {
        Some(match kind {
            INT_8 => i8::from_le_bytes(self.array()?).into(),
            INT_16 => i16::from_le_bytes(self.array()?).into(),
            INT_32 => i32::from_le_bytes(self.array()?),
            _ => return None,
        })
    }

    /// A packed string and its unpacked length; `None` if it cannot unpack to that length.
    fn packed(&mut self) -> Option<(&'a [u8], u64)> {
        let [packed, len] = [self.len()?, self.len()?].map(|len| match len {
            // Redis does not check here that the number is a length and not an encoding.
            Len::Bytes(number) => number,
            Len::Encoded(number) => number.into(),
        });
        let packed = self.take(packed)?;
        lzf::may_unpack_to(packed.len(), len).then_some((packed, len))
    }
}
