//! Writing records. This runs once for each logged write, so it only appends bytes.

use super::super::parse_integer;
use super::traits::{has_word, word_of};
use super::{Pieces, RECORD_VERSION, Record, RecordText, Words};
use crate::store::{SharedValue, Traits, UnixMs};

/// The most that the lengths, line ends and options of a record take, in bytes.
const FRAME_BYTES: usize = 128;

/// [`Record::Multi`] as it is written.
pub const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";

/// The beginning of a text, but for its version.
const VERSION: &[u8] = b"*2\r\n$7\r\nVERSION\r\n";

/// Appends what a text of records begins with that need this version.
pub fn header(version: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(VERSION);
    number(out, version);
}

/// The version that a text says it is of, if that can be read.
pub fn version_of(text: &[u8]) -> Option<u32> {
    (1..=RECORD_VERSION).find(|&version| behind_header(text, version).is_some())
}

/// What stands behind the version of a text, if it is this one, of one digit.
pub(super) fn behind_header(text: &[u8], version: u32) -> Option<&[u8]> {
    let (word, rest) = bulk_at(text.strip_prefix(VERSION)?)?;
    (word == [b'0' + version as u8]).then_some(rest)
}

/// The bulk string with which a text begins, and the text behind it.
#[inline]
pub(super) fn bulk_at(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.strip_prefix(b"$")?;
    let digits = text.iter().position(|byte| *byte == b'\r')?;
    let len = parse_integer(&text[..digits])?.try_into().ok()?;
    let (word, rest) = text.get(digits + 2..)?.split_at_checked(len)?;
    Some((word, rest.strip_prefix(b"\r\n")?))
}

/// What stands behind the length of the bulk string with which a text begins.
pub(super) fn behind_head(text: &[u8]) -> Option<&[u8]> {
    let line = text.iter().position(|&byte| byte == b'\n')?;
    Some(&text[line + 1..])
}

/// Appends the sign and the number of a record's words.
fn count(out: &mut Vec<u8>, words: usize) {
    out.push(b'*');
    out.extend_from_slice(itoa::Buffer::new().format(words).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Makes a text that begins with [`header`] one of this version, if it is of an older one.
pub fn raise_version(text: &mut [u8], version: u32) {
    let at = VERSION.len() + b"$1\r\n".len();
    if let Some(digit) = text.get_mut(at) {
        *digit = (*digit).max(b'0' + version as u8);
    }
}

/// Appends `SELECT db`.
pub fn select(db: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(b"*2\r\n$6\r\nSELECT\r\n");
    number(out, db);
}

/// Appends a bulk string.
#[inline]
fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    bulk_head(out, bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends what stands before the bytes of a bulk string.
#[inline]
pub(super) fn bulk_head(out: &mut Vec<u8>, len: usize) {
    out.push(b'$');
    out.extend_from_slice(itoa::Buffer::new().format(len).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends a number as a bulk string.
#[inline]
pub(super) fn number(out: &mut Vec<u8>, number: impl itoa::Integer) {
    bulk(out, itoa::Buffer::new().format(number).as_bytes());
}

/// The head of a MIDI.JOURNAL in an AOF, before its text of `len` bytes. A line's end stands behind
/// that.
pub fn journal_head(len: usize) -> Vec<u8> {
    let mut out = b"*2\r\n$12\r\nMIDI.JOURNAL\r\n".to_vec();
    bulk_head(&mut out, len);
    out
}

/// Whether these are the words of a record with this name, in whatever case, and these arguments.
pub fn are_words_of<'w>(
    words: Words<'_>,
    name: &str,
    mut args: impl Iterator<Item = &'w [u8]>,
) -> bool {
    let mut words = words.iter();
    // A large argument that is kept is the value itself: there is nothing to be compared.
    let is = |word: &[u8], arg: &[u8]| std::ptr::eq(word, arg) || word == arg;
    words.next().is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
        && args.all(|arg| words.next().is_some_and(|word| is(word, arg)))
        && words.next().is_none()
}

impl RecordText {
    /// Appends a [`Record::Set`] of a large value, which is not copied.
    pub fn add_set(
        &mut self,
        key: &[u8],
        value: SharedValue,
        expire_at: Option<UnixMs>,
        traits: &Traits,
    ) {
        set_before_value(&mut self.own, key, value.bytes().len(), expire_at, traits);
        self.refer(value);
        set_behind_value(&mut self.own, expire_at, traits);
    }
}

impl Record<'_> {
    /// Appends the record to a text.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        match *self {
            Record::Select { db } => select(db, out),
            Record::Multi => out.extend_from_slice(MULTI),
            Record::Exec => out.extend_from_slice(b"*1\r\n$4\r\nEXEC\r\n"),
            Record::Set { key, value, expire_at, ref traits } => {
                write_set(out, key, value, expire_at, traits);
            }
            Record::Del { key } => write_key(out, b"*2\r\n$3\r\nDEL\r\n", key, 0),
            Record::PexpireAt { key, at } => {
                write_key(out, b"*3\r\n$9\r\nPEXPIREAT\r\n", key, 0);
                number(out, at);
            }
            Record::Persist { key } => write_key(out, b"*2\r\n$7\r\nPERSIST\r\n", key, 0),
            Record::Traits { key, expire_at, ref traits } => {
                count(out, 2 + words_behind_value(expire_at, traits));
                write_key(out, b"$6\r\nTRAITS\r\n", key, 0);
                options(out, expire_at, traits);
            }
            Record::Append { key, bytes } => {
                write_key(out, b"*3\r\n$6\r\nAPPEND\r\n", key, bytes.len());
                bulk(out, bytes);
            }
            Record::SetRange { key, offset, bytes } => {
                write_key(out, b"*4\r\n$8\r\nSETRANGE\r\n", key, bytes.len());
                number(out, offset);
                bulk(out, bytes);
            }
            Record::SetRanges { key, pieces } => write_ranges(out, key, pieces),
            Record::Restore { key, payload, expire_at } => {
                write_key(out, b"*6\r\n$7\r\nRESTORE\r\n", key, payload.len());
                number(out, expire_at.unwrap_or(0));
                bulk(out, payload);
                out.extend_from_slice(b"$7\r\nREPLACE\r\n$6\r\nABSTTL\r\n");
            }
            Record::BitOp { args } => write_bit_op(out, args),
            Record::HSet { key, pairs } => write_fields(out, b"$4\r\nHSET\r\n", key, pairs),
            Record::HPersist { key, fields } => {
                write_fields(out, b"$8\r\nHPERSIST\r\n", key, fields);
            }
            Record::HPexpireAt { key, at, fields } => {
                count(out, 3 + fields.iter().count());
                write_key(out, b"$10\r\nHPEXPIREAT\r\n", key, 0);
                number(out, at);
                fields.iter().for_each(|word| bulk(out, word));
            }
            Record::HDel { key, fields } => write_fields(out, b"$4\r\nHDEL\r\n", key, fields),
            Record::Rename { key, to } => {
                write_key(out, b"*3\r\n$6\r\nRENAME\r\n", key, to.len());
                bulk(out, to);
            }
            Record::Copy { key, to, db } => {
                write_key(out, b"*6\r\n$4\r\nCOPY\r\n", key, to.len());
                bulk(out, to);
                out.extend_from_slice(b"$2\r\nDB\r\n");
                number(out, db);
                out.extend_from_slice(b"$7\r\nREPLACE\r\n");
            }
            Record::FlushDb => out.extend_from_slice(b"*1\r\n$7\r\nFLUSHDB\r\n"),
            Record::FlushAll => out.extend_from_slice(b"*1\r\n$8\r\nFLUSHALL\r\n"),
            Record::SwapDb { a, b } => {
                out.extend_from_slice(b"*3\r\n$6\r\nSWAPDB\r\n");
                number(out, a);
                number(out, b);
            }
            Record::Move { key, db } => {
                write_key(out, b"*3\r\n$4\r\nMOVE\r\n", key, 0);
                number(out, db);
            }
        }
    }
}

/// Appends the head of a record and its key; `more` bytes of other arguments will follow.
#[inline]
fn write_key(out: &mut Vec<u8>, head: &[u8], key: &[u8], more: usize) {
    out.reserve(FRAME_BYTES + key.len() + more);
    out.extend_from_slice(head);
    bulk(out, key);
}

#[cold]
fn write_ranges(out: &mut Vec<u8>, key: &[u8], pieces: Pieces<'_>) {
    count(out, 2 + 2 * pieces.iter().count());
    write_key(out, b"$8\r\nSETRANGE\r\n", key, 0);
    for (offset, bytes) in pieces.iter() {
        number(out, offset);
        bulk(out, bytes);
    }
}

fn write_fields(out: &mut Vec<u8>, name: &[u8], key: &[u8], words: Words<'_>) {
    count(out, 2 + words.iter().count());
    write_key(out, name, key, 0);
    words.iter().for_each(|word| bulk(out, word));
}

#[cold]
fn write_bit_op(out: &mut Vec<u8>, args: Words<'_>) {
    count(out, 1 + args.iter().count());
    out.extend_from_slice(b"$5\r\nBITOP\r\n");
    args.iter().for_each(|word| bulk(out, word));
}

#[inline]
fn write_set(
    out: &mut Vec<u8>,
    key: &[u8],
    value: &[u8],
    expire_at: Option<UnixMs>,
    traits: &Traits,
) {
    out.reserve(FRAME_BYTES + key.len() + value.len());
    set_before_value(out, key, value.len(), expire_at, traits);
    out.extend_from_slice(value);
    set_behind_value(out, expire_at, traits);
}

/// Appends the text of a [`Record::Set`] up to its value, which has `len` bytes.
#[inline]
pub fn set_before_value(
    out: &mut Vec<u8>,
    key: &[u8],
    len: usize,
    expire_at: Option<UnixMs>,
    traits: &Traits,
) {
    let head: &[u8] = match words_behind_value(expire_at, traits) {
        0 => b"*3\r\n$3\r\nSET\r\n",
        1 => b"*4\r\n$3\r\nSET\r\n",
        2 => b"*5\r\n$3\r\nSET\r\n",
        _ => b"*6\r\n$3\r\nSET\r\n",
    };
    out.extend_from_slice(head);
    bulk(out, key);
    bulk_head(out, len);
}

/// Appends the text of a [`Record::Set`] from the end of its value on.
#[inline]
pub fn set_behind_value(out: &mut Vec<u8>, expire_at: Option<UnixMs>, traits: &Traits) {
    out.extend_from_slice(b"\r\n");
    options(out, expire_at, traits);
}

/// How many words [`options`] appends.
#[inline]
fn words_behind_value(expire_at: Option<UnixMs>, traits: &Traits) -> usize {
    2 * usize::from(expire_at.is_some()) + usize::from(has_word(traits))
}

/// Appends `[PXAT ms] [traits]`.
#[inline]
fn options(out: &mut Vec<u8>, expire_at: Option<UnixMs>, traits: &Traits) {
    if let Some(at) = expire_at {
        out.extend_from_slice(b"$4\r\nPXAT\r\n");
        number(out, at);
    }
    if let Some(word) = word_of(traits) {
        bulk(out, &word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_says_the_same() {
        let mut text = Vec::new();
        Record::SetRange { key: b"key", offset: 12, bytes: b"" }.write(&mut text);
        let is = |name: &str, args: &[&[u8]]| {
            are_words_of(Words::of_record(&text), name, args.iter().copied())
        };
        assert!(is("setrange", &[b"key", b"12", b""]));
        for (name, args) in [
            ("setrangE", &[&b"key"[..], b"12"][..]),
            ("setrange", &[b"key", b"12", b"", b""]),
            ("setrange", &[b"kez", b"12", b""]),
            ("setrange", &[b"key", b"012", b""]),
            ("append", &[b"key", b"12", b""]),
        ] {
            assert!(!is(name, args), "{name} {args:?}");
        }
        let cut = Words::of_record(&text[..text.len() - 1]);
        assert!(!are_words_of(cut, "setrange", [&b"key"[..], b"12", b""].into_iter()));
    }
}
