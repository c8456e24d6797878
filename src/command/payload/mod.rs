//! The payload of DUMP and RESTORE: a value in the encoding of RDB files, between a type byte and a
//! footer.
//!
//! ```text
//! type 1 │ value │ version 2 │ CRC-64 of all before 8
//! ```
//!
//! `string.rs` has the encoding of strings, `hash/` that of hashes.

mod hash;
mod string;
mod text;

pub use hash::{HashWriter, PackedHash, PayloadField, WrittenHash};
pub use text::{NumberText, PayloadText};

use std::borrow::Cow;

use crc::{CRC_64_REDIS, Crc, Digest, Table};

use super::lzf::Packer;
use super::{Error, Limits};
use crate::limits::CHUNK_BYTES;
use hash::HashForm;
use string::{PayloadReader, read_string, write_string};

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

/// The payload of a value.
pub(super) fn of(value: &[u8]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(value.len() + 24);
    payload.push(STRING_TYPE);
    write_string(&mut payload, value, &mut Packer::default());
    seal(&mut payload, WRITTEN_VERSION);
    payload
}

/// Adds the footer.
fn seal(payload: &mut Vec<u8>, version: u16) {
    Checksum::default().seal(payload, version);
}

/// The checksum of a payload that grows.
struct Checksum {
    digest: Digest<'static, u64, Table<16>>,
    /// How many bytes of the payload are in it.
    bytes: usize,
}

impl Default for Checksum {
    fn default() -> Self {
        Checksum { digest: CRC.digest(), bytes: 0 }
    }
}

impl Checksum {
    /// Takes in what the payload has gained, once that is worth a call: so there is little to do
    /// at its end.
    fn keep_up(&mut self, payload: &[u8]) {
        if payload.len() - self.bytes >= CHUNK_BYTES {
            self.add(payload);
        }
    }

    fn add(&mut self, payload: &[u8]) {
        self.digest.update(&payload[self.bytes..]);
        self.bytes = payload.len();
    }

    /// Adds the footer.
    fn seal(mut self, payload: &mut Vec<u8>, version: u16) {
        payload.extend(version.to_le_bytes());
        self.add(payload);
        payload.extend(self.digest.finalize().to_le_bytes());
    }
}

/// The value of a payload.
#[derive(Debug)]
pub enum Restored<'a> {
    /// A string.
    String(PayloadText<'a>),
    /// A hash, not yet checked: [`PackedHash::fields`] does that.
    Hash(PackedHash<'a>),
}

/// The value in a payload. A value above the limit is refused before memory is allocated for it. As
/// in Redis, bytes between a string and the footer are ignored. Redis would also accept a string
/// that extends into the footer; that is refused here.
pub fn read_payload<'a>(payload: &'a [u8], limits: &Limits) -> Result<Restored<'a>, Error> {
    let (kind, value, version) = opened(payload)?;
    if kind == STRING_TYPE {
        return read_string(&mut PayloadReader(value), limits).map(Restored::String);
    }
    let form = HashForm::of_type(kind, version).ok_or(Error::OtherType)?;
    PackedHash::open(form, value, limits).map(Restored::Hash)
}

/// The string in a payload; see [`read_payload`].
pub(super) fn value<'a>(payload: &'a [u8], limits: &Limits) -> Result<Cow<'a, [u8]>, Error> {
    match opened(payload)? {
        (STRING_TYPE, string, _) => {
            read_string(&mut PayloadReader(string), limits).map(PayloadText::into)
        }
        _ => Err(Error::OtherType),
    }
}

/// The type, the value and the version of a payload whose footer is valid.
fn opened(payload: &[u8]) -> Result<(u8, &[u8], u16), Error> {
    let (content, version) = verified(payload).ok_or(Error::WrongPayload)?;
    match content.split_first() {
        Some((&kind, value)) if kind < NO_TYPES => Ok((kind, value, version)),
        _ => Err(Error::BadData),
    }
}

/// The bytes before the footer and the footer's version, if the footer is valid.
fn verified(payload: &[u8]) -> Option<(&[u8], u16)> {
    let (content, footer) = payload.split_at(payload.len().checked_sub(FOOTER_BYTES)?);
    let (checked, crc) = payload.split_at(payload.len() - CRC_BYTES);
    let version = u16::from_le_bytes([footer[0], footer[1]]);
    let right = version <= MAX_VERSION && CRC.checksum(checked).to_le_bytes() == crc;
    right.then_some((content, version))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { max_value_bytes: 1 << 20, ..Limits::NONE };

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
            assert_eq!(read(&[other, 1, b'a']), Err(Error::OtherType));
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
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

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
