//! Text out of a payload.

use std::borrow::Cow;

/// A string, a field or a value of a payload. It borrows from the payload where the text stands
/// there.
#[derive(Clone, Debug)]
pub enum PayloadText<'a> {
    /// The text stands in the payload.
    Borrowed(&'a [u8]),
    /// The payload has a number instead of its text.
    Number(NumberText),
    /// The payload has the text packed.
    Unpacked(Box<[u8]>),
}

impl PayloadText<'_> {
    /// The text of a number.
    pub(super) fn number(number: i64) -> Self {
        let mut buffer = itoa::Buffer::new();
        let text = buffer.format(number).as_bytes();
        let mut digits = [0; NUMBER_TEXT];
        digits[..text.len()].copy_from_slice(text);
        PayloadText::Number(NumberText { len: text.len() as u8, digits })
    }

    /// The bytes of memory that unpacking took.
    pub(super) fn unpacked_bytes(&self) -> usize {
        match self {
            PayloadText::Unpacked(text) => text.len(),
            PayloadText::Borrowed(_) | PayloadText::Number(_) => 0,
        }
    }

    /// The text.
    pub fn bytes(&self) -> &[u8] {
        match self {
            PayloadText::Borrowed(text) => text,
            PayloadText::Number(text) => &text.digits[..usize::from(text.len)],
            PayloadText::Unpacked(text) => text,
        }
    }
}

impl<'a> From<PayloadText<'a>> for Cow<'a, [u8]> {
    fn from(text: PayloadText<'a>) -> Self {
        match text {
            PayloadText::Borrowed(text) => Cow::Borrowed(text),
            PayloadText::Unpacked(text) => Cow::Owned(text.into_vec()),
            number @ PayloadText::Number(_) => Cow::Owned(number.bytes().to_vec()),
        }
    }
}

/// The length of the longest text of a 64-bit integer.
const NUMBER_TEXT: usize = 20;

/// The text of a number. A hash of numbers needs no allocation for each.
#[derive(Clone, Copy, Debug)]
pub struct NumberText {
    len: u8,
    digits: [u8; NUMBER_TEXT],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_text() {
        for number in [0, -1, 42, i64::MAX, i64::MIN] {
            let text = PayloadText::number(number);
            assert_eq!(text.bytes(), number.to_string().as_bytes());
            assert_eq!(Cow::from(text).as_ref(), number.to_string().as_bytes());
        }
        assert_eq!(size_of::<PayloadText<'_>>(), 24);
    }
}
