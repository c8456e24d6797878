//! The fields of a hash that a client sees.

use crate::store::{FieldCursor, FieldRef, Fields, Now, UnixMs};

/// How often a field is drawn before all are looked at: most are there, as those that have expired
/// are soon removed.
pub(super) const TRIES: usize = 64;

/// The fields of a hash without those whose expiry has passed.
#[derive(Clone, Copy)]
pub(in crate::command) struct LiveFields<'a> {
    fields: Fields<'a>,
    now: &'a Now,
}

impl<'a> LiveFields<'a> {
    /// Those of these fields that are there at this time.
    #[inline]
    pub(in crate::command) fn new(fields: Fields<'a>, now: &'a Now) -> Self {
        LiveFields { fields, now }
    }

    /// How many there are, with those that have expired and are not removed yet.
    pub(super) fn len(self) -> usize {
        self.fields.len()
    }

    /// Whether any of them may expire, or has expired and is not removed yet.
    pub(super) fn may_expire(self) -> bool {
        self.fields.may_expire()
    }

    fn find(self, name: &[u8]) -> Option<FieldRef<'a>> {
        self.fields.find(name).filter(|field| field.is_live(self.now))
    }

    /// The value of a field.
    #[inline]
    pub(super) fn get(self, name: &[u8]) -> Option<&'a [u8]> {
        self.find(name).map(|field| field.value)
    }

    /// Whether there is such a field that has expired and is not removed yet.
    #[inline]
    pub(super) fn hide(self, name: &[u8]) -> bool {
        self.fields.find(name).is_some_and(|field| !field.is_live(self.now))
    }

    /// When a field expires, if there is such a field.
    pub(super) fn expiry(self, name: &[u8]) -> Option<Option<UnixMs>> {
        self.find(name).map(|field| field.expire_at)
    }

    /// All of them. The order is that in which they were added, while the hash is small.
    pub(super) fn iter(self) -> impl Iterator<Item = FieldRef<'a>> {
        self.fields.iter().filter(move |field| field.is_live(self.now))
    }

    /// How many [`LiveFields::iter`] gives.
    pub(super) fn count(self) -> usize {
        if self.fields.may_expire() { self.iter().count() } else { self.fields.len() }
    }

    /// See [`Fields::scan`]. Counts the fields that it has looked at, with those that have expired.
    pub(super) fn scan(
        self,
        cursor: FieldCursor,
        looked_at: &mut usize,
        visit: &mut dyn FnMut(FieldRef<'a>),
    ) -> Option<FieldCursor> {
        self.fields.scan(cursor, &mut |field| {
            *looked_at += 1;
            if field.is_live(self.now) {
                visit(field);
            }
        })
    }

    /// One of them, drawn so that all are as likely; `None` if there is none.
    pub(super) fn drawn(self, draw: &mut dyn FnMut() -> u64) -> Option<FieldRef<'a>> {
        if !self.fields.may_expire() {
            return self.fields.drawn(draw);
        }
        if !self.are_few()
            && let Some(field) = (0..TRIES).find_map(|_| self.draw_once(draw))
        {
            return Some(field);
        }
        let all: Vec<FieldRef<'a>> = self.iter().collect();
        let count = all.len().max(1) as u64;
        all.get((draw() % count) as usize).copied()
    }

    /// Likewise, but `None` also if the draw meets a field that has expired.
    pub(super) fn draw_once(self, draw: &mut dyn FnMut() -> u64) -> Option<FieldRef<'a>> {
        self.fields.drawn(draw).filter(|field| field.is_live(self.now))
    }

    /// Whether looking at all of them costs no more than drawing some.
    pub(super) fn are_few(self) -> bool {
        matches!(self.fields, Fields::Small(_))
    }
}
