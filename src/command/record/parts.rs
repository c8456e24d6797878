//! Long texts in parts.
//!
//! A part is a text of version 3 with one record: `PART offset bytes`, or `LAST offset bytes`. The
//! bytes of all parts, from offset 0 to the last one, are a text of records. A text that is begun
//! again, or given up, was never acknowledged: what there is of it is dropped.

use std::borrow::Cow;

use super::super::parse_integer;
use super::RecordError;
use super::error::Flaw;
use super::write::{behind_header, bulk_at, bulk_head, header, number};

/// The version of a text that is a part of a longer one.
pub const PART_VERSION: u32 = 3;

/// Appends a part up to its bytes, of which there are `len`. A line's end stands behind them.
pub fn part_head(is_last: bool, offset: usize, len: usize, out: &mut Vec<u8>) {
    header(PART_VERSION, out);
    out.extend_from_slice(if is_last { b"*3\r\n$4\r\nLAST\r\n" } else { b"*3\r\n$4\r\nPART\r\n" });
    number(out, offset);
    bulk_head(out, len);
}

/// A part of a text.
struct TextPart<'a> {
    offset: usize,
    bytes: &'a [u8],
    is_last: bool,
}

impl<'a> TextPart<'a> {
    /// The part that a text is; `None` if it is of an older version, or of a newer one.
    fn of(text: &'a [u8]) -> Result<Option<Self>, RecordError> {
        let Some(record) = behind_header(text, PART_VERSION) else { return Ok(None) };
        let read = || {
            let (name, rest) = bulk_at(record.strip_prefix(b"*3\r\n")?)?;
            let (offset, rest) = bulk_at(rest)?;
            // It may be longer than any value is.
            let (bytes, rest) = bulk_at(rest)?;
            let is_last = match name {
                b"PART" => false,
                b"LAST" => true,
                _ => return None,
            };
            let offset = parse_integer(offset)?.try_into().ok()?;
            rest.is_empty().then_some(TextPart { offset, bytes, is_last })
        };
        let error = RecordError { offset: text.len() - record.len(), flaw: Flaw::Part };
        read().map(Some).ok_or(error)
    }
}

/// Whether a text is the last part of a longer one.
pub(super) fn is_last_part(text: &[u8]) -> bool {
    matches!(TextPart::of(text), Ok(Some(part)) if part.is_last)
}

/// What has come of a text whose last part has not.
#[derive(Debug, Default)]
pub struct Gathered(Vec<u8>);

impl Gathered {
    /// These bytes, from the first on.
    pub fn new(bytes: Vec<u8>) -> Self {
        Gathered(bytes)
    }

    /// Takes the next text. Returns it; or, if it is the last part of a longer one, that; `None`
    /// if it is a part that others follow.
    ///
    /// # Errors
    /// It is a part that does not follow the one before.
    pub fn add<'t>(&mut self, text: &'t [u8]) -> Result<Option<Cow<'t, [u8]>>, RecordError> {
        let Some(part) = TextPart::of(text)? else {
            self.clear();
            return Ok(Some(Cow::Borrowed(text)));
        };
        if part.offset == 0 {
            self.clear();
        }
        if part.offset != self.0.len() {
            return Err(RecordError { offset: 0, flaw: Flaw::Gap });
        }
        self.0.extend_from_slice(part.bytes);
        Ok(part.is_last.then(|| Cow::Owned(std::mem::take(&mut self.0))))
    }

    /// The bytes so far.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The other parts will not come.
    pub fn clear(&mut self) {
        if !self.0.is_empty() {
            self.0 = Vec::new();
        }
    }
}

/// A part that is not the last one.
pub fn part_of_text(offset: usize, bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len() + 128);
    part_head(false, offset, bytes.len(), &mut text);
    text.extend_from_slice(bytes);
    text.extend_from_slice(b"\r\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn as_parts(bytes: &[u8], most: usize) -> impl Iterator<Item = Vec<u8>> {
        let chunks = bytes.chunks(most).enumerate();
        chunks.map(move |(number, chunk)| part_of_text(number * most, chunk))
    }

    fn last(offset: usize, bytes: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        part_head(true, offset, bytes.len(), &mut text);
        text.extend_from_slice(bytes);
        text.extend_from_slice(b"\r\n");
        text
    }

    #[test]
    fn parts_are_put_together() {
        let parts: Vec<Vec<u8>> = as_parts(b"0123456789", 4).collect();
        let mut gathered = Gathered::default();
        for begun in [1, 3] {
            // Begun again.
            parts[..begun].iter().for_each(|part| assert_eq!(gathered.add(part), Ok(None)));
        }
        assert_eq!(gathered.bytes(), b"0123456789");
        let whole = gathered.add(&last(10, b"ab")).map(|text| text.map(Cow::into_owned));
        assert_eq!(whole, Ok(Some(b"0123456789ab".to_vec())));
        assert!(gathered.bytes().is_empty());
    }

    #[test]
    fn a_part_that_does_not_follow_is_refused() {
        let parts: Vec<Vec<u8>> = as_parts(b"0123456789", 4).collect();
        let mut gathered = Gathered::default();
        assert!(gathered.add(&parts[1]).is_err(), "nothing is before it");
        assert_eq!(gathered.add(&parts[0]), Ok(None));
        assert!(gathered.add(&parts[2]).is_err());
        assert_eq!(gathered.add(b"another text"), Ok(Some(Cow::Borrowed(&b"another text"[..]))));
        assert!(gathered.add(&parts[1]).is_err(), "given up");
        for at in 1..parts[0].len() {
            let is_part = matches!(gathered.add(&parts[0][..at]), Ok(None));
            assert!(!is_part, "cut at {at}");
        }
    }
}
