//! A text of records that refers to large values.

use std::borrow::Cow;

use super::Words;
use crate::store::SharedValue;

/// A text of records. Large values are in it by reference: their bytes are copied when the host
/// gets them, and not before.
///
/// As long as it refers to a value, an APPEND or SETRANGE of that value copies it. So what is
/// logged must let go of it: see [`RecordText::forget_values`].
#[derive(Default)]
pub struct RecordText {
    /// All but these values.
    own: Vec<u8>,
    /// Each with its place in `own`, in ascending order.
    values: Vec<(usize, SharedValue)>,
    /// Bytes of `values`.
    value_bytes: usize,
}

impl RecordText {
    /// Its length, in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.own.len() + self.value_bytes
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its own bytes, to append to.
    #[inline]
    pub fn own(&mut self) -> &mut Vec<u8> {
        &mut self.own
    }

    /// Its bytes, if it refers to nothing.
    #[inline]
    pub fn plain(&self) -> Option<&[u8]> {
        self.values.is_empty().then_some(&self.own[..])
    }

    /// Appends a large value.
    pub fn refer(&mut self, value: SharedValue) {
        self.value_bytes += value.bytes().len();
        self.values.push((self.own.len(), value));
    }

    /// Appends another text.
    #[inline]
    pub fn add(&mut self, other: &RecordText) {
        if !other.values.is_empty() {
            let before = self.own.len();
            let moved = other.values.iter().map(|(at, value)| (before + at, value.clone()));
            self.values.extend(moved);
            self.value_bytes += other.value_bytes;
        }
        self.own.extend_from_slice(&other.own);
    }

    /// Removes so many of its own bytes from this place of them on. No value stands among them.
    pub fn remove_own(&mut self, start: usize, len: usize) {
        self.own.drain(start..start + len);
        let behind = self.values.iter_mut().filter(|(at, _)| *at >= start + len);
        behind.for_each(|(at, _)| *at -= len);
    }

    /// Makes its own bytes a value, if it refers to none: adding it to another text copies nothing
    /// then. It has no [words](RecordText::words) any more.
    pub fn share_own(&mut self) {
        if self.values.is_empty() {
            let own = std::mem::take(&mut self.own);
            self.refer(SharedValue::new(own));
        }
    }

    /// Lets go of its values. It is of no use then until it is cleared.
    #[inline]
    pub fn forget_values(&mut self) {
        if !self.values.is_empty() {
            self.values = Vec::new();
            self.value_bytes = 0;
        }
    }

    /// Makes it empty, and keeps memory for so many bytes of its own at most.
    #[inline]
    pub fn clear(&mut self, kept: usize) {
        if self.own.capacity() > kept {
            self.own = Vec::new();
        }
        self.own.clear();
        self.forget_values();
    }

    /// The words of the one record in it, its name first.
    #[inline]
    pub fn words(&self) -> Words<'_> {
        match Words::of_record(&self.own) {
            Words::Text(text) if !self.values.is_empty() => {
                Words::Referring { text, head: self.own.len() - text.len(), values: &self.values }
            }
            words => words,
        }
    }

    /// Its bytes in one piece.
    #[inline]
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        if self.values.is_empty() {
            return Cow::Borrowed(&self.own);
        }
        let mut whole = Vec::with_capacity(self.len());
        self.write(&mut whole);
        Cow::Owned(whole)
    }

    /// Appends its bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.pieces().for_each(|piece| out.extend_from_slice(piece));
    }

    /// Appends `len` of its bytes, from this offset on.
    pub fn write_range(&self, mut offset: usize, mut len: usize, out: &mut Vec<u8>) {
        for piece in self.pieces() {
            let (_, rest) = piece.split_at(offset.min(piece.len()));
            offset -= piece.len() - rest.len();
            let rest = &rest[..len.min(rest.len())];
            out.extend_from_slice(rest);
            len -= rest.len();
        }
    }

    /// Its bytes, in order.
    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.values.iter().map(|&(at, _)| at));
        let ends = self.values.iter().map(|&(at, _)| at).chain([self.own.len()]);
        let own = starts.zip(ends).map(|(start, end)| &self.own[start..end]);
        let values = self.values.iter().map(|(_, value)| value.bytes()).chain([&[][..]]);
        own.zip(values).flat_map(|(own, value)| [own, value])
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
        text.add_set(key, value.clone(), Some(7), Origin::Edited);
    }

    fn copied(records: &[(&[u8], &SharedValue)]) -> Vec<u8> {
        let mut text = Vec::new();
        for (key, value) in records {
            let (value, expire_at) = (value.bytes(), Some(7));
            Record::Set { key, value, expire_at, origin: Origin::Edited }.write(&mut text);
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
        shared.own().extend_from_slice(&whole);
        shared.share_own();
        shared.add(&text);
        assert_eq!(shared.bytes(), [&whole[..], &whole].concat());
        let head = b"*1\r\n$4\r\nEXEC\r\n";
        let mut grouped = RecordText::default();
        set(&mut grouped, b"1", &a);
        let start = grouped.own().len();
        grouped.own().extend_from_slice(head);
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
