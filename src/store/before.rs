//! What a key was before a change, kept so that the change can be taken back.

use std::ops::Range;

use super::{Entry, Origin, UnixMs};

/// What a key was before one change. Taking a change back is a change too, which keeps what is
/// needed to make it again: see [`Edit::restore`](super::Edit::restore).
pub enum Before {
    /// It did not exist.
    Absent,
    /// It was this.
    Was(Entry),
    /// It had this expiry; its value is unchanged.
    Expiry(Option<UnixMs>),
    /// Its value had come about so; the value itself is unchanged.
    Origin(Origin),
    /// A part of its value was different. A second reference to a large value would force a copy of
    /// it when it next changes.
    Part(Box<PartBefore>),
}

impl Before {
    /// The memory that it keeps, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Before::Absent | Before::Expiry(_) | Before::Origin(_) => 0,
            Before::Was(entry) => {
                entry.bytes() + entry.shared_value().map_or(0, |value| value.bytes().len())
            }
            Before::Part(part) => size_of::<PartBefore>() + part.bytes.len(),
        }
    }
}

/// A part of a value before it was changed.
pub struct PartBefore {
    /// The length of the whole value.
    len: usize,
    /// Where the bytes were.
    at: usize,
    bytes: Box<[u8]>,
    origin: Origin,
}

impl PartBefore {
    /// What of `value` may be lost if only bytes of this range are written and the value grows no
    /// further than its end.
    pub(super) fn of(value: &[u8], range: &Range<usize>, origin: Origin) -> Box<Self> {
        let (at, end) = (range.start.min(value.len()), range.end.min(value.len()));
        Box::new(PartBefore { len: value.len(), at, bytes: value[at..end].into(), origin })
    }

    /// How the value had come about.
    pub(super) fn origin(&self) -> Origin {
        self.origin
    }

    /// The bytes of `value` that [`PartBefore::restore`] changes.
    pub(super) fn range(&self, value: &[u8]) -> Range<usize> {
        let end = self.at + self.bytes.len();
        let longest = self.len.max(value.len());
        self.at..if self.len == value.len() { end } else { longest }
    }

    /// Makes `value` what it was.
    pub(super) fn restore(&self, value: &mut Vec<u8>) {
        value.resize(self.len, 0);
        value[self.at..self.at + self.bytes.len()].copy_from_slice(&self.bytes);
    }
}

/// What became of a key in an edit, for the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChangeKind {
    /// Nothing.
    #[default]
    Nothing,
    /// Only its expiry changed.
    Expiry,
    /// Only these bytes of its value were written; it had `before` bytes.
    Part {
        /// The first byte.
        start: usize,
        /// The byte after the last one.
        end: usize,
        /// The length of the value before.
        before: usize,
    },
    /// Anything else.
    Whole,
}

impl ChangeKind {
    /// What became of a key by this change and another one.
    pub(super) fn and(self, other: Self) -> Self {
        if self == ChangeKind::Nothing { other } else { ChangeKind::Whole }
    }
}
