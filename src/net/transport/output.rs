//! What is to be sent: bytes, and large values between them.
//!
//! A large value is sent from where it is: a reply refers to it. So a client that reads slowly
//! takes no memory for values that others have too, and a value that is overwritten meanwhile stays
//! whole for it.

use std::ops::{Deref, DerefMut};

use crate::engine::ErrorCounts;
use crate::limits::KEEP_BYTES_DEFAULT;
use crate::store::{SharedValue, Spliced, StringRef};

/// What is to be sent. No large value stands at the beginning or the end of a reply.
#[derive(Default)]
pub struct Output {
    text: Spliced,
    /// Large values that were ever said, and the bytes of those that had to be copied.
    pub counts: LargeCounts,
    /// Error replies that are not counted elsewhere yet.
    pub errors: ErrorCounts,
}

/// Large values in replies.
#[derive(Clone, Copy, Default)]
pub struct LargeCounts {
    /// How many there were.
    pub values: u64,
    /// The bytes of those that were copied.
    pub copied: u64,
}

impl Output {
    /// The place of what is said next, for [`Spliced::truncate`] and [`Spliced::pieces_between`].
    #[inline]
    pub fn end(&self) -> usize {
        self.own.len()
    }

    /// Whether there are large values.
    #[inline]
    pub fn has_large(&self) -> bool {
        !self.values().is_empty()
    }

    /// Adds a large value. Some bytes must follow.
    pub fn add_large(&mut self, value: SharedValue) {
        self.counts.values += 1;
        self.refer(value);
    }

    /// A value that is long enough to be sent by reference, if it has a buffer of its own. One that
    /// has none will be copied, and is counted if it is a large one.
    #[inline(always)]
    pub fn by_reference(&mut self, value: &StringRef<'_>) -> Option<SharedValue> {
        let (shared, bytes) = (value.shared(), value.bytes().len());
        if shared.is_none() && bytes >= KEEP_BYTES_DEFAULT as usize {
            self.counts.values += 1;
            self.counts.copied += bytes as u64;
        }
        shared
    }

    /// Counts the large values and errors of another one, too.
    pub fn count_also(&mut self, other: &mut Output) {
        self.counts.values += other.counts.values;
        self.counts.copied += other.counts.copied;
        self.errors.absorb(std::mem::take(&mut other.errors));
    }
}

impl Deref for Output {
    type Target = Spliced;

    #[inline]
    fn deref(&self) -> &Spliced {
        &self.text
    }
}

impl DerefMut for Output {
    #[inline]
    fn deref_mut(&mut self) -> &mut Spliced {
        &mut self.text
    }
}

impl From<Vec<u8>> for Output {
    fn from(bytes: Vec<u8>) -> Self {
        Output { text: bytes.into(), ..Output::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    /// Two replies, of which each has a large value, and the place between them.
    fn two() -> (Output, usize) {
        let (mut output, mut between) = (Output::default(), 0);
        for large in ["LARGE", "ANOTHER"] {
            between = output.end();
            output.own.extend_from_slice(b"<");
            output.add_large(SharedValue::new(large.as_bytes().to_vec()));
            output.own.extend_from_slice(b">");
        }
        (output, between)
    }

    fn text(output: &Output, said: Range<usize>) -> String {
        output
            .pieces_between(said)
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
