//! Parts of records whose number is not fixed.

use std::fmt;

use super::super::parse_integer;
use super::write::{behind_head, bulk_at};
use crate::store::{SharedValue, ValuePart};

/// Words of a record, or of a command.
#[derive(Clone, Copy)]
pub enum Words<'a> {
    /// In a list.
    List(&'a [&'a [u8]]),
    /// As many bulk strings of a text, which has been looked through.
    Text(&'a [u8]),
    /// The same, where the bytes of large words stand elsewhere.
    Referring {
        /// The text without them.
        text: &'a [u8],
        /// How many bytes are before it.
        head: usize,
        /// They, each with its place in the text and what is before it.
        values: &'a [(usize, SharedValue)],
    },
}

impl<'a> Words<'a> {
    /// The words of a record that has been written as this text, its name first.
    pub fn of_record(text: &'a [u8]) -> Self {
        let head = text.iter().position(|&byte| byte == b'\n').map_or(text.len(), |end| end + 1);
        Words::Text(&text[head..])
    }

    /// The words.
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        let (list, mut text, mut values, end) = match self {
            Words::List(list) => (list, &[][..], &[][..], 0),
            Words::Text(text) => (&[][..], text, &[][..], 0),
            Words::Referring { text, head, values } => (&[][..], text, values, head + text.len()),
        };
        list.iter().copied().chain(std::iter::from_fn(move || {
            if let [(at, value), others @ ..] = values
                && let Some(rest) = behind_head(text)
                && end - rest.len() == *at
            {
                (text, values) = (rest.strip_prefix(b"\r\n")?, others);
                return Some(value.bytes());
            }
            let (word, rest) = bulk_at(text)?;
            text = rest;
            Some(word)
        }))
    }
}

impl PartialEq for Words<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Words<'_> {}

impl fmt::Debug for Words<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.iter().map(|word| word.escape_ascii().to_string())).finish()
    }
}

/// What is written to parts of a value.
#[derive(Clone, Copy)]
pub enum Pieces<'a> {
    /// These parts of this value.
    Of(&'a [u8], &'a [ValuePart]),
    /// An offset and bytes in turn.
    Words(Words<'a>),
}

impl<'a> Pieces<'a> {
    /// Each piece, with its offset in bytes.
    pub fn iter(self) -> impl Iterator<Item = (usize, &'a [u8])> {
        let ((value, parts), words) = match self {
            Pieces::Of(value, parts) => ((value, parts), Words::List(&[])),
            Pieces::Words(words) => ((&[][..], &[][..]), words),
        };
        let part = |&(start, end): &ValuePart| {
            (start as usize, value.get(start as usize..end as usize).unwrap_or_default())
        };
        let mut words = words.iter();
        let next = move || Some((offset(words.next()?)? as usize, words.next()?));
        parts.iter().map(part).chain(std::iter::from_fn(next))
    }

    /// Whether these words are pieces.
    pub(super) fn are(words: Words<'_>) -> bool {
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if offset(word).is_none() || words.next().is_none() {
                return false;
            }
        }
        true
    }
}

fn offset(word: &[u8]) -> Option<u32> {
    parse_integer(word)?.try_into().ok()
}

impl PartialEq for Pieces<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Pieces<'_> {}

impl fmt::Debug for Pieces<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let piece = |(at, bytes): (usize, &[u8])| (at, bytes.escape_ascii().to_string());
        out.debug_list().entries(self.iter().map(piece)).finish()
    }
}
