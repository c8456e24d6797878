//! The fields of a packed string, made of its elements.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::super::super::parse_integer;
use super::super::text::PayloadText;

/// The latest time at which a field of Redis may expire: 48 bits.
pub(super) const LAST_DUE_OF_REDIS: u64 = (1 << 48) - 1;

/// A field of a hash in a payload.
#[derive(Clone, Debug)]
pub struct PayloadField<'a> {
    /// Its name.
    pub field: PayloadText<'a>,
    /// Its value.
    pub value: PayloadText<'a>,
    /// When it expires, in Unix milliseconds. That may be in the past.
    pub expire_at: Option<i64>,
}

/// The fields so far. No two have the same name: a packed string of the same field over and over
/// would take much more memory than its bytes, if that were found only at the end.
#[derive(Default)]
pub(super) struct DistinctFields<'a> {
    fields: Vec<PayloadField<'a>>,
    /// Where each name is in `fields`.
    names: HashTable<usize>,
    hasher: DefaultHashBuilder,
}

impl<'a> DistinctFields<'a> {
    /// Adds a field; `None` if its name is there already.
    pub(super) fn add(&mut self, field: PayloadField<'a>) -> Option<()> {
        let DistinctFields { fields, names, hasher } = self;
        let name = field.field.bytes();
        let hash = hasher.hash_one(name);
        if names.find(hash, |&at| fields[at].field.bytes() == name).is_some() {
            return None;
        }
        names.insert_unique(hash, fields.len(), |&at| hasher.hash_one(fields[at].field.bytes()));
        fields.push(field);
        Some(())
    }

    /// The fields, if there are any.
    pub(super) fn end(self) -> Option<Vec<PayloadField<'a>>> {
        (!self.fields.is_empty()).then_some(self.fields)
    }
}

/// Takes the elements one by one: a field, its value and, in some forms, its due time.
pub(super) struct PackedElements<'a> {
    fields: DistinctFields<'a>,
    has_due_times: bool,
    next: Element,
    /// The latest due time so far; `None` behind a field without one.
    latest: Option<i64>,
}

/// What the next element is.
#[derive(PartialEq, Eq)]
enum Element {
    Field,
    Value,
    Due,
}

impl<'a> PackedElements<'a> {
    pub(super) fn new() -> Self {
        PackedElements {
            fields: DistinctFields::default(),
            has_due_times: false,
            next: Element::Field,
            latest: Some(0),
        }
    }

    pub(super) fn with_due_times() -> Self {
        PackedElements { has_due_times: true, ..PackedElements::new() }
    }

    /// Takes an element; `None` if it is refused.
    pub(super) fn push(&mut self, element: PayloadText<'a>) -> Option<()> {
        match self.next {
            Element::Field => {
                let value = PayloadText::Borrowed(b"");
                self.fields.add(PayloadField { field: element, value, expire_at: None })?;
                self.next = Element::Value;
            }
            Element::Value => {
                self.fields.fields.last_mut()?.value = element;
                self.next = if self.has_due_times { Element::Due } else { Element::Field };
            }
            Element::Due => {
                self.fields.fields.last_mut()?.expire_at = self.due(&element)?;
                self.next = Element::Field;
            }
        }
        Some(())
    }

    /// A due time, which must be a number. Redis sorts the fields by it, those without one last.
    fn due(&mut self, element: &PayloadText<'_>) -> Option<Option<i64>> {
        let PayloadText::Number(_) = element else { return None };
        let due = due_of_redis(u64::try_from(parse_integer(element.bytes())?).ok()?)?;
        if due == 0 {
            self.latest = None;
            return Some(None);
        }
        let latest = self.latest.filter(|&latest| latest <= due)?;
        self.latest = Some(latest.max(due));
        Some(Some(due))
    }

    /// The fields, if there are any and the last one is complete.
    pub(super) fn end(self) -> Option<Vec<PayloadField<'a>>> {
        if self.next == Element::Field { self.fields.end() } else { None }
    }
}

/// A due time, if it is one that Redis accepts.
pub(super) fn due_of_redis(due: u64) -> Option<i64> {
    (due <= LAST_DUE_OF_REDIS).then_some(due as i64)
}
