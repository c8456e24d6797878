//! Bytes to be sent, and large values between them.
//!
//! A large value is sent from where it is: a reply refers to it. So a client that reads slowly
//! takes no memory for values that others have too, and a value that is overwritten meanwhile stays
//! whole for it.

use std::ops::Range;

use crate::limits::KEEP_BYTES_DEFAULT;
use crate::store::SharedValue;

/// What is to be sent.
#[derive(Default)]
pub struct Output {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Large values, and before which of the bytes each stands: in ascending order. None stands at
    /// the beginning or the end of a reply.
    large: Vec<(usize, SharedValue)>,
    /// The bytes of these.
    large_bytes: usize,
    /// Large values that were ever said, and the bytes of those that had to be copied.
    pub counts: LargeCounts,
}

/// Large values in replies.
#[derive(Clone, Copy, Default)]
pub struct LargeCounts {
    /// How many there were.
    pub values: u64,
    /// The bytes of those that were copied.
    pub copied: u64,
}

/// A piece of it.
pub enum Piece<'a> {
    /// Bytes.
    Bytes(&'a [u8]),
    /// A large value.
    Large(&'a SharedValue),
}

impl Piece<'_> {
    /// What is to be sent.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Piece::Bytes(bytes) => bytes,
            Piece::Large(value) => value.bytes(),
        }
    }
}

impl Output {
    /// How many bytes will be sent.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() + self.large_bytes
    }

    /// Whether nothing will be.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The place of what is said next, for [`Output::truncate`] and [`Output::pieces`].
    #[inline]
    pub fn end(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are large values.
    #[inline]
    pub fn has_large(&self) -> bool {
        !self.large.is_empty()
    }

    /// Adds a large value. Some bytes must follow.
    pub fn add_large(&mut self, value: SharedValue) {
        self.counts.values += 1;
        self.large_bytes += value.bytes().len();
        self.large.push((self.bytes.len(), value));
    }

    /// A value of so many bytes was copied. Counts it if it is a large one.
    pub fn note_copied(&mut self, bytes: usize) {
        if bytes >= KEEP_BYTES_DEFAULT as usize {
            self.counts.values += 1;
            self.counts.copied += bytes as u64;
        }
    }

    /// Counts the large values of another one, too.
    pub fn count_also(&mut self, other: LargeCounts) {
        self.counts.values += other.values;
        self.counts.copied += other.copied;
    }

    /// Drops what was said from this place on.
    pub fn truncate(&mut self, end: usize) {
        self.bytes.truncate(end);
        while let Some((_, value)) = self.large.pop_if(|(at, _)| *at >= end) {
            self.large_bytes -= value.bytes().len();
        }
    }

    /// Drops everything. Keeps the memory, up to `most` bytes.
    pub fn clear(&mut self, most: usize) {
        self.truncate(0);
        if self.bytes.capacity() > most {
            self.bytes = Vec::new();
        }
    }

    /// What was said between two places.
    pub fn pieces(&self, said: Range<usize>) -> impl Iterator<Item = Piece<'_>> {
        let first = self.large.partition_point(|(at, _)| *at < said.start);
        let behind = self.large.partition_point(|(at, _)| *at < said.end);
        let mut from = said.start;
        let large = self.large[first..behind].iter().flat_map(move |(at, value)| {
            let before = Piece::Bytes(&self.bytes[std::mem::replace(&mut from, *at)..*at]);
            [before, Piece::Large(value)]
        });
        let rest = self.large[first..behind].last().map_or(said.start, |(at, _)| *at);
        large.chain([Piece::Bytes(&self.bytes[rest..said.end])])
    }
}

impl From<Vec<u8>> for Output {
    fn from(bytes: Vec<u8>) -> Self {
        Output { bytes, ..Output::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two replies, of which each has a large value, and the place between them.
    fn two() -> (Output, usize) {
        let (mut output, mut between) = (Output::default(), 0);
        for large in ["LARGE", "ANOTHER"] {
            between = output.end();
            output.bytes.extend_from_slice(b"<");
            output.add_large(SharedValue::new(large.as_bytes().to_vec()));
            output.bytes.extend_from_slice(b">");
        }
        (output, between)
    }

    fn text(output: &Output, said: Range<usize>) -> String {
        output
            .pieces(said)
            .map(|piece| String::from_utf8_lossy(piece.bytes()).into_owned())
            .collect()
    }

    #[test]
    fn values_stand_between_the_bytes() {
        let (mut output, between) = two();
        assert_eq!((output.len(), output.end()), (16, 4));
        assert_eq!(text(&output, 0..output.end()), "<LARGE><ANOTHER>");
        assert_eq!(text(&output, 0..between), "<LARGE>");
        assert_eq!(text(&output, between..output.end()), "<ANOTHER>");
        assert_eq!(text(&output, between..between), "");
        output.truncate(between);
        assert_eq!((text(&output, 0..output.end()), output.len()), ("<LARGE>".to_owned(), 7));
        output.clear(0);
        assert!(output.is_empty() && !output.has_large());
    }
}
