//! The state of a key before a change, kept so that the change can be taken back.

use smallvec::SmallVec;

use super::{Entry, Origin, Traits, Type, UnixMs};

/// The first byte of a part of a value, and the byte after its last one.
pub type ValuePart = (u32, u32);

/// Parts of a value, in ascending order; they do not overlap.
pub type ValueParts = SmallVec<[ValuePart; 2]>;

/// The state of a key before one change. Taking a change back is a change too, and keeps a state
/// with which it can be made again: see [`Edit::restore`](super::Edit::restore).
pub enum Before {
    /// It did not exist.
    Absent,
    /// It was this.
    Was(Entry),
    /// It had this expiry; its value is unchanged.
    Expiry(Option<UnixMs>),
    /// Its value had this origin; the value itself is unchanged.
    Origin(Origin),
    /// This was known of its value; the value itself is unchanged.
    Traits(Box<Traits>),
    /// Parts of its value were different. A second reference to a large value would force a copy of
    /// it when it next changes.
    Parts(Box<PartsBefore>),
    /// A field of its hash had this value.
    FieldWas(Entry),
    /// Its hash did not have this field.
    FieldAbsent(Box<[u8]>),
}

impl Before {
    /// Whether it is the whole state of the key: then no later state need be restored first.
    pub fn is_whole(&self) -> bool {
        matches!(self, Before::Absent | Before::Was(_))
    }

    /// Whether it has to do with the fields of a hash. Another entry may refer to the same fields,
    /// as they were: so such a state must be restored even if a whole state follows.
    pub fn is_of_fields(&self) -> bool {
        match self {
            Before::FieldWas(_) | Before::FieldAbsent(_) => true,
            Before::Was(entry) => entry.value_type() == Type::Hash,
            _ => false,
        }
    }

    /// The memory that it keeps, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Before::Absent | Before::Expiry(_) | Before::Origin(_) => 0,
            Before::Traits(_) => size_of::<Traits>(),
            Before::Was(entry) | Before::FieldWas(entry) => entry.weight(),
            Before::FieldAbsent(field) => field.len(),
            Before::Parts(parts) => {
                size_of::<PartsBefore>()
                    + parts.bytes.len()
                    + parts.parts.len() * size_of::<ValuePart>()
            }
        }
    }
}

/// Parts of a value before it was changed. Between them, beyond the end of the shorter of the two
/// values, the one before and the one after, there are zeros only.
pub struct PartsBefore {
    /// The length of the whole value.
    len: usize,
    /// The parts that were written; the last may reach beyond the end.
    parts: ValueParts,
    /// The bytes of these parts, one after the other, as far as the value went.
    bytes: Box<[u8]>,
    origin: Origin,
}

/// Where a part is in a value of so many bytes.
fn within(&(start, end): &ValuePart, len: usize) -> std::ops::Range<usize> {
    (start as usize).min(len)..(end as usize).min(len)
}

impl PartsBefore {
    /// The bytes of `value` that may be lost if only these parts are written, and the value grows
    /// no further than the end of the last one, by zeros where it is not written.
    pub(super) fn of(value: &[u8], parts: &[ValuePart], origin: Origin) -> Box<Self> {
        let len = value.len();
        let there: usize = parts.iter().map(|part| within(part, len).len()).sum();
        let mut bytes = Vec::with_capacity(there);
        parts.iter().for_each(|part| bytes.extend_from_slice(&value[within(part, len)]));
        Box::new(PartsBefore { len, parts: parts.into(), bytes: bytes.into(), origin })
    }

    /// The origin that the value had.
    pub(super) fn origin(&self) -> Origin {
        self.origin
    }

    /// The parts that [`PartsBefore::restore`] changes.
    pub(super) fn parts(&self) -> &[ValuePart] {
        &self.parts
    }

    /// Gives `value` back its old bytes.
    pub(super) fn restore(&self, value: &mut Vec<u8>) {
        value.resize(self.len, 0);
        let mut rest = &self.bytes[..];
        for part in &self.parts {
            let place = within(part, self.len);
            let (bytes, behind) = rest.split_at(place.len());
            value[place].copy_from_slice(bytes);
            rest = behind;
        }
    }
}

/// The kind of change that an edit made to a key, for the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ChangeKind {
    /// Nothing.
    #[default]
    Nothing,
    /// Only its expiry changed.
    Expiry,
    /// Only what is known of its value changed, and perhaps its expiry.
    Traits,
    /// Only these parts of its value were written; it had `before` bytes, 0 if it did not exist.
    /// Between the parts it has grown by zeros only.
    Parts {
        /// The parts; at least one.
        parts: ValueParts,
        /// The length of the value before.
        before: usize,
    },
    /// Only these fields of its hash were set or removed; the hash may be new.
    Fields(FieldNames),
    /// Anything else.
    Whole,
}

impl ChangeKind {
    /// Whether it has no memory of its own.
    #[inline(always)]
    pub(super) fn owns_nothing(&self) -> bool {
        matches!(
            self,
            ChangeKind::Nothing | ChangeKind::Expiry | ChangeKind::Traits | ChangeKind::Whole
        )
    }

    /// The kind of this change and another one together.
    pub(super) fn and(&mut self, other: Self) {
        match (&mut *self, other) {
            (ChangeKind::Nothing, other) => *self = other,
            (ChangeKind::Expiry, ChangeKind::Expiry) => {}
            (ChangeKind::Expiry | ChangeKind::Traits, ChangeKind::Expiry | ChangeKind::Traits) => {
                *self = ChangeKind::Traits;
            }
            (ChangeKind::Fields(names), ChangeKind::Fields(others)) => names.add(&others),
            _ => *self = ChangeKind::Whole,
        }
    }
}

/// Names of fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldNames {
    bytes: Vec<u8>,
    /// Where each ends, and whether only the expiry of the field was changed.
    ends: SmallVec<[(u32, bool); 1]>,
}

impl FieldNames {
    /// One.
    pub(super) fn one(name: &[u8], only_expiry: bool) -> Self {
        let ends = smallvec::smallvec![(name.len() as u32, only_expiry)];
        FieldNames { bytes: name.into(), ends }
    }

    fn add(&mut self, others: &FieldNames) {
        let before = self.bytes.len() as u32;
        self.bytes.extend_from_slice(&others.bytes);
        self.ends.extend(others.ends.iter().map(|(end, only)| (before + end, *only)));
    }

    /// They, in the order of the changes; each with whether only its field's expiry was changed.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], bool)> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(end, _)| *end));
        let name = |start: u32, end: u32| &self.bytes[start as usize..end as usize];
        starts.zip(&self.ends).map(move |(start, &(end, only))| (name(start, end), only))
    }
}
