//! A text of records that refers to large values.

use std::borrow::Cow;

use super::Words;
use crate::store::{Piece, SharedValue, Spliced};

/// A text of records. Large values are in it by reference: their bytes are copied when the host
/// gets them, and not before.
///
/// As long as it refers to a value, an APPEND or SETRANGE of that value copies it. So what is
/// logged must let go of it: see [`Spliced::forget_values`].
pub type RecordText = Spliced;

impl Spliced {
    /// Makes its own bytes a value, if it refers to none: adding it to another text copies nothing
    /// then. It has no [words](Spliced::words) any more.
    pub fn share_own(&mut self) {
        if self.values().is_empty() {
            let own = std::mem::take(&mut self.own);
            self.refer(SharedValue::new(own));
        }
    }

    /// Its bytes, if it refers to nothing.
    #[inline]
    pub fn plain(&self) -> Option<&[u8]> {
        self.values().is_empty().then_some(&self.own[..])
    }

    /// The words of the one record in it, its name first.
    #[inline]
    pub fn words(&self) -> Words<'_> {
        match Words::of_record(&self.own) {
            Words::Text(text) if !self.values().is_empty() => {
                Words::Referring { text, head: self.own.len() - text.len(), values: self.values() }
            }
            words => words,
        }
    }

    /// Its bytes in one piece.
    #[inline]
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        if self.values().is_empty() {
            return Cow::Borrowed(&self.own);
        }
        let mut whole = Vec::with_capacity(self.len());
        self.write(&mut whole);
        Cow::Owned(whole)
    }

    /// Appends its bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.pieces().for_each(|piece| out.extend_from_slice(piece.bytes()));
    }

    /// Appends `len` of its bytes, from this offset on.
    pub fn write_range(&self, mut offset: usize, mut len: usize, out: &mut Vec<u8>) {
        for piece in self.pieces().map(Piece::bytes) {
            let (_, rest) = piece.split_at(offset.min(piece.len()));
            offset -= piece.len() - rest.len();
            let rest = &rest[..len.min(rest.len())];
            out.extend_from_slice(rest);
            len -= rest.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Record;
    use super::*;
    use crate::store::Origin;

    fn large(byte: u8) -> SharedValue {
        SharedValue::new(vec![byte; 100])
    }

    fn set(text: &mut RecordText, key: &[u8], value: &SharedValue) {
        text.add_set(key, value.clone(), Some(7), &Origin::Edited.into());
    }

    fn copied(records: &[(&[u8], &SharedValue)]) -> Vec<u8> {
        let mut text = Vec::new();
        for (key, value) in records {
            let (value, expire_at) = (value.bytes(), Some(7));
            Record::Set { key, value, expire_at, traits: Origin::Edited.into() }.write(&mut text);
        }
        text
    }

    #[test]
    fn a_text_that_refers_is_the_text_that_copies() {
        let (a, b) = (large(b'a'), large(b'b'));
        let (mut text, mut later) = (RecordText::default(), RecordText::default());
        set(&mut text, b"1", &a);
        set(&mut later, b"2", &b);
        set(&mut later, b"3", &a);
        text.add(&later);
        let whole = copied(&[(b"1", &a), (b"2", &b), (b"3", &a)]);
        assert_eq!(text.bytes(), whole);
        assert_eq!(text.len(), whole.len());
        for (offset, len) in (0..=whole.len()).flat_map(|at| [(at, 90), (0, at), (at, 1)]) {
            let mut part = Vec::new();
            let len = len.min(whole.len() - offset);
            text.write_range(offset, len, &mut part);
            assert_eq!(part, whole[offset..offset + len], "{len} bytes from {offset} on");
        }
        let mut shared = RecordText::default();
        shared.own.extend_from_slice(&whole);
        shared.share_own();
        shared.add(&text);
        assert_eq!(shared.bytes(), [&whole[..], &whole].concat());
        let head = b"*1\r\n$4\r\nEXEC\r\n";
        let mut grouped = RecordText::default();
        set(&mut grouped, b"1", &a);
        let start = grouped.own.len();
        grouped.own.extend_from_slice(head);
        grouped.add(&later);
        grouped.remove_own(start, head.len());
        assert_eq!(grouped.bytes(), whole);
        grouped.clear(0);
        assert_eq!((grouped.len(), grouped.bytes().len()), (0, 0));
    }

    #[test]
    fn the_words_of_a_record_that_refers() {
        let value = large(b'v');
        let mut text = RecordText::default();
        set(&mut text, b"key", &value);
        let words: Vec<&[u8]> = text.words().iter().collect();
        assert_eq!(words, [b"SET", &b"key"[..], value.bytes(), b"PXAT", b"7", b"EDITED"]);
        assert!(std::ptr::eq(words[2], value.bytes()), "not a copy");
    }
}
