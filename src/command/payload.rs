//! The payload of DUMP and RESTORE: a string in the encoding of RDB files, between a type byte and
//! a footer.
//!
//! ```text
//! type 1 │ string │ version 2 │ CRC-64 of all before 8
//!
//! string:  00LLLLLL                      L bytes follow
//!          01LLLLLL LLLLLLLL             the same
//!          10000000 4 bytes, big-endian  the same
//!          10000001 8 bytes, big-endian  the same
//!          110000NN 1, 2 or 4 bytes      an integer, little-endian, as text
//!          11000011 length length bytes  LZF: packed, unpacked
//! ```

use std::borrow::Cow;

use crc::{CRC_64_REDIS, Crc, Table};

use super::{Error, Limits, lzf, parse_integer};

static CRC: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// The version that is written: Redis 7.0's. All later hosts read it.
const WRITTEN_VERSION: u16 = 10;

/// The newest version that is read. Redis 7.0 writes 10, Redis 8 up to 14, Valkey 9 writes 80. The
/// version changes with other types; strings are the same in all of them. The version of a newer
/// host is refused, as Redis refuses versions newer than its own.
const MAX_VERSION: u16 = 80;

const FOOTER_BYTES: usize = 10;
const CRC_BYTES: usize = 8;

const STRING_TYPE: u8 = 0;
/// Type bytes from here on do not denote values.
const NO_TYPES: u8 = 64;

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

/// The payload of a value.
pub(super) fn of(value: &[u8]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(value.len() + 24);
    payload.push(STRING_TYPE);
    write_string(&mut payload, value);
    seal(&mut payload, WRITTEN_VERSION);
    payload
}

/// Adds the footer.
fn seal(payload: &mut Vec<u8>, version: u16) {
    payload.extend(version.to_le_bytes());
    let crc = CRC.checksum(payload);
    payload.extend(crc.to_le_bytes());
}

fn write_string(to: &mut Vec<u8>, value: &[u8]) {
    if value.len() <= INT_TEXT
        && let Some(number) = parse_integer(value).and_then(|number| i32::try_from(number).ok())
    {
        return write_integer(to, number);
    }
    if value.len() >= PACKED_FROM
        && let Some(packed) = lzf::pack(value)
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

fn write_len(to: &mut Vec<u8>, len: usize) {
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

/// The value in a payload. A value above the limit is refused before memory is allocated for it. As
/// in Redis, bytes between the string and the footer are ignored. Redis would also accept a string
/// that extends into the footer; that is refused here.
pub(super) fn value<'a>(payload: &'a [u8], limits: &Limits) -> Result<Cow<'a, [u8]>, Error> {
    let content = verified(payload).ok_or(Error::WrongPayload)?;
    match content.split_first() {
        Some((&STRING_TYPE, string)) => read_string(&mut PayloadReader(string), limits),
        Some((&other, _)) if other < NO_TYPES => Err(Error::NotAString),
        _ => Err(Error::BadData),
    }
}

/// The bytes before the footer, if the footer is valid.
fn verified(payload: &[u8]) -> Option<&[u8]> {
    let (content, footer) = payload.split_at(payload.len().checked_sub(FOOTER_BYTES)?);
    let (checked, crc) = payload.split_at(payload.len() - CRC_BYTES);
    let version = u16::from_le_bytes([footer[0], footer[1]]);
    let right = version <= MAX_VERSION && CRC.checksum(checked).to_le_bytes() == crc;
    right.then_some(content)
}

fn read_string<'a>(rest: &mut PayloadReader<'a>, limits: &Limits) -> Result<Cow<'a, [u8]>, Error> {
    match rest.len().ok_or(Error::BadData)? {
        Len::Bytes(len) => {
            let value = rest.take(len).ok_or(Error::BadData)?;
            limits.value(value.len())?;
            Ok(Cow::Borrowed(value))
        }
        Len::Encoded(LZF) => read_packed(rest, limits).map(Cow::Owned),
        Len::Encoded(kind) => {
            let number = rest.integer(kind).ok_or(Error::BadData)?;
            Ok(Cow::Owned(itoa::Buffer::new().format(number).as_bytes().to_vec()))
        }
    }
}

fn read_packed(rest: &mut PayloadReader<'_>, limits: &Limits) -> Result<Vec<u8>, Error> {
    let (packed, len) = rest.packed().ok_or(Error::BadData)?;
    if len == 0 {
        // Redis's unpacker returns 0 for an error too, so the value is empty whatever the packed
        // bytes are.
        return Ok(Vec::new());
    }
    let len = usize::try_from(len).map_err(|_| Error::BadData)?;
    limits.value(len)?;
    limits.reply(len)?;
    lzf::unpack(packed, len).ok_or(Error::BadData)
}

/// A length, or how a string is encoded.
enum Len {
    Bytes(u64),
    Encoded(u8),
}

/// The bytes that are not read yet.
struct PayloadReader<'a>(&'a [u8]);

impl<'a> PayloadReader<'a> {
    fn take(&mut self, len: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(len).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits {
        listpack_entries: 0,
        listpack_value: 0,
        max_pattern_bytes: 0,
        max_key_bytes: 0,
        max_value_bytes: 1 << 20,
        keep_bytes: 0,
        max_atomic_keys: 0,
        max_reply_bytes: usize::MAX,
        max_bytes_at_once: usize::MAX,
    };

    fn sealed(content: &[u8], version: u16) -> Vec<u8> {
        let mut payload = content.to_vec();
        seal(&mut payload, version);
        payload
    }

    fn read(content: &[u8]) -> Result<Vec<u8>, Error> {
        value(&sealed(content, WRITTEN_VERSION), &LIMITS).map(Cow::into_owned)
    }

    #[test]
    fn known_bytes() {
        // Made by Redis 7.0.15.
        assert_eq!(of(b"1"), b"\0\xc0\x01\n\0\x26\x78\xe7\xb6\xd1\x01\x11\xfc");
        assert_eq!(of(b"hello"), b"\0\x05hello\n\0\x63\x72\xdf\x76\x65\x34\x20\n");
    }

    #[test]
    fn every_kind_comes_back() {
        let lens = [0, 1, 20, 21, 63, 64, 16_383, 16_384, 100_000];
        let mut values: Vec<Vec<u8>> = lens.iter().map(|&len| vec![b'x'; len]).collect();
        values.extend(
            lens.iter().map(|&len| (0..len as u64).map(|at| ((at * at) >> 7) as u8).collect()),
        );
        for number in [0, -1, 127, 128, -128, -129, 32_767, 32_768, -32_768, -32_769] {
            values.push(i64::to_string(&number).into());
        }
        for text in
            ["2147483647", "2147483648", "-2147483648", "-2147483649", "007", "-0", "+1", " 1"]
        {
            values.push(text.into());
        }
        for text in &values {
            assert_eq!(value(&of(text), &LIMITS).map(Cow::into_owned).as_ref(), Ok(text));
        }
    }

    #[test]
    fn footers_are_checked() {
        let good = of(b"value");
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                assert_eq!(value(&bad, &LIMITS), Err(Error::WrongPayload));
            }
            assert_eq!(value(&good[..at], &LIMITS), Err(Error::WrongPayload));
        }
        for (version, good) in
            [(1, true), (10, true), (12, true), (80, true), (81, false), (0xffff, false)]
        {
            assert_eq!(value(&sealed(b"\0\x01a", version), &LIMITS).is_ok(), good, "{version}");
        }
    }

    #[test]
    fn other_content_is_refused() {
        for content in [
            &b""[..],
            b"\0",
            b"\0\x02a",
            b"\0\x40",
            b"\0\x40\x02a",
            b"\0\x80\0\0\0",
            b"\0\x80\xff\xff\xff\xffabc",
            b"\0\x81\xff\xff\xff\xff\xff\xff\xff\xffabc",
            b"\0\x82\x01a",
            b"\0\xbf",
            b"\0\xc0",
            b"\0\xc1\0",
            b"\0\xc2\0\0\0",
            b"\0\xc4",
            b"\0\xff",
            b"\0\xc3",
            b"\0\xc3\x02",
            b"\0\xc3\x03\x05\0a",
            b"\0\xc3\x02\x05\0a",
            b"\0\xc3\x02\x81\xff\xff\xff\xff\xff\xff\xff\xff\0a",
            b"\x40",
            b"\xff\x01a",
        ] {
            assert_eq!(read(content), Err(Error::BadData), "{content:?}");
        }
        for other in [1, 2, 4, 10, 18, 22, 30] {
            assert_eq!(read(&[other, 1, b'a']), Err(Error::NotAString));
        }
    }

    #[test]
    fn long_values_are_refused_before_they_are_made() {
        let limit = Err(Error::ValueTooLong(LIMITS.max_value_bytes));
        assert_eq!(value(&of(&vec![b'x'; (1 << 20) + 1]), &LIMITS), limit);
        let plain = [b"\0\x80\0\x10\0\x01".as_slice(), &[0; (1 << 20) + 1]].concat();
        assert_eq!(value(&sealed(&plain, 10), &LIMITS), limit);
        let here = Limits { max_reply_bytes: 1000, ..LIMITS };
        assert_eq!(value(&of(&[b'x'; 1001]), &here), Err(Error::ReplyTooLarge));
    }

    proptest! {
        #[test]
        fn any_value_comes_back(text: Vec<u8>) {
            let payload = of(&text);
            prop_assert_eq!(value(&payload, &LIMITS), Ok(Cow::Borrowed(&text[..])));
        }

        #[test]
        fn any_content_is_read_or_refused(content: Vec<u8>) {
            let content = [b"\0".as_slice(), &content].concat();
            let _ = read(&content);
        }

        /// A valid payload, perhaps damaged afterwards.
        #[test]
        fn damaged_content_is_read_or_refused(
            text in proptest::collection::vec(0..3u8, 0..200),
            cut in 0..100usize,
            changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..4),
        ) {
            let mut content = of(&text);
            content.truncate(content.len() - FOOTER_BYTES);
            content.truncate(content.len().saturating_sub(cut / 4));
            for (at, byte) in changes {
                if let Some(there) = at.checked_rem(content.len()) {
                    content[there] = byte;
                }
            }
            let payload = sealed(&content, WRITTEN_VERSION);
            if let Ok(text) = value(&payload, &LIMITS) {
                prop_assert!(text.len() <= LIMITS.max_value_bytes);
            }
        }

        #[test]
        fn any_bytes_at_all_are_read_or_refused(payload: Vec<u8>) {
            let _ = value(&payload, &LIMITS);
        }
    }
}
