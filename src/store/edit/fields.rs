//! Changes of the fields of a hash.

use super::{ChangeKind, Edit, Keeping};
use crate::store::before::FieldNames;
use crate::store::fields::change;
use crate::store::{
    Before, Entry, FieldRef, Fields, FieldsPin, FoundEntry, HashCopy, NewField, SharedValue, Type,
    Unended, UnixMs, Value, WrongType,
};

/// What a change of a field was about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    /// All of it.
    Field,
    /// Its expiry alone.
    Expiry,
}

impl Edit<'_> {
    /// The fields of the key's hash; `None` if the key does not exist.
    ///
    /// # Errors
    /// [`WrongType`] if its value is not a hash.
    #[inline]
    pub fn fields(&self) -> Result<Option<Fields<'_>>, WrongType> {
        self.read().map(Fields::of).transpose()
    }

    /// Sets a field of the key's hash, and its expiry. The hash is made if the key does not exist.
    /// True if the field is new.
    ///
    /// # Errors
    /// [`WrongType`] if the value is not a hash; nothing is changed then.
    pub fn set_field(
        &mut self,
        field: &[u8],
        value: Value<'_>,
        expire_at: Option<UnixMs>,
    ) -> Result<bool, WrongType> {
        let (hasher, new) = (self.hasher, NewField { name: field, value, expire_at });
        let kind = self.kind_of(field, About::Field);
        let Some(found) = self.found() else {
            let name = self.name;
            self.insert(kind, || change::of_field(hasher, name, new));
            return Ok(true);
        };
        Fields::of(self.table.entry(found))?;
        self.keep_field(found, field);
        let mut is_new = false;
        self.apply(kind, |table| {
            is_new = table.change_other(found, |entry| change::set(entry, hasher, new));
        });
        Ok(is_new)
    }

    /// Sets or clears the expiry of a field. False if there is no such field.
    pub fn expire_field(&mut self, field: &[u8], expire_at: Option<UnixMs>) -> bool {
        let Some(found) = self.found_field(field) else { return false };
        let hasher = self.hasher;
        self.keep_field(found, field);
        self.apply(self.kind_of(field, About::Expiry), |table| {
            table.change_other(found, |entry| change::expire(entry, hasher, field, expire_at));
        });
        true
    }

    /// Removes a field of the key's hash, and the key with its last field. False if there is no
    /// such field.
    pub fn remove_field(&mut self, field: &[u8]) -> bool {
        let Some(found) = self.found_field(field) else { return false };
        if Fields::of(self.table.entry(found)).is_ok_and(|fields| fields.len() == 1) {
            return self.remove();
        }
        let removed = self.table.change_other(found, |entry| change::remove(entry, field));
        let Some(removed) = removed else { return false };
        self.done.keep(|| Before::FieldWas(removed));
        self.apply(self.kind_of(field, About::Field), |_| ());
        true
    }

    /// Removes fields that were due before the [horizon](super::super::Now::horizon), a few
    /// hundred at most; the key goes with its last field. A large hash is looked at from
    /// `*position` on, 0 at first. Returns how many were removed, and whether no other is due.
    pub fn remove_due_fields(&mut self, position: &mut usize) -> (usize, bool) {
        let (horizon, mut due) = (self.now.horizon(), Vec::new());
        let Some(found) = self.found() else { return (0, true) };
        match Fields::of(self.table.entry(found)) {
            Ok(fields @ Fields::Small(_)) => {
                let is_due = |field: &FieldRef<'_>| field.expire_at.is_some_and(|at| at < horizon);
                let names: Vec<Box<[u8]>> =
                    fields.iter().filter(is_due).map(|field| field.name.into()).collect();
                (names.iter().filter(|name| self.remove_field(name)).count(), true)
            }
            Ok(Fields::Large(_)) => {
                let is_done = self.table.change_other(found, |entry| {
                    change::remove_due(entry, horizon, position, &mut |field| due.push(field))
                });
                let left = Fields::of(self.table.entry(found)).map_or(0, |fields| fields.len());
                let count = due.len();
                for field in due {
                    let kind = self.kind_of(field.key(), About::Field);
                    self.done.keep(|| Before::FieldWas(field));
                    self.apply(kind, |_| ());
                }
                if left == 0 {
                    self.remove();
                }
                (count, is_done || left == 0)
            }
            Err(WrongType) => (0, true),
        }
    }

    /// Pins the fields of the key's hash, as they are now: see [`FieldsPin`]. `most` is how many
    /// bytes of changed fields it may keep. `None` if the key has no hash, or one that is not
    /// large.
    pub fn pin_fields(&self, most: usize) -> Option<FieldsPin> {
        FieldsPin::new(&*self.read()?, self.hash, most)
    }

    /// Begins to copy the key's hash: see [`HashCopy`]. `None` if there is none, or a small one.
    pub fn begin_copy(&self) -> Option<HashCopy> {
        let entry = self.read()?;
        HashCopy::new(&entry, self.hash, entry.weight())
    }

    /// What [`Edit::copy_apart`] gives, taken out of a copy that was begun before, of which no more
    /// than `most` fields are to be copied.
    ///
    /// # Errors
    /// [`Unended`].
    pub fn end_copy(
        &self,
        copy: &mut HashCopy,
        name: &[u8],
        most: usize,
    ) -> Result<Entry, Unended> {
        self.read().ok_or(Unended::Void).and_then(|entry| copy.end(&entry, name, most))
    }

    /// A copy of the key under another name, which shares no fields with it.
    pub fn copy_apart(&self, name: &[u8]) -> Option<Entry> {
        match self.begin_copy() {
            Some(mut copy) => self.end_copy(&mut copy, name, usize::MAX).ok(),
            None => self.read().map(|entry| entry.copy_as(name)),
        }
    }

    fn found_field(&self, field: &[u8]) -> Option<FoundEntry> {
        let found = self.found()?;
        let fields = Fields::of(self.table.entry(found)).ok()?;
        fields.find(field).map(|_| found)
    }

    fn kind_of(&self, field: &[u8], about: About) -> ChangeKind {
        match self.done.keeping {
            Keeping::Nothing => ChangeKind::Nothing,
            _ => ChangeKind::Fields(FieldNames::one(field, about == About::Expiry)),
        }
    }

    fn keep_field(&mut self, found: FoundEntry, field: &[u8]) {
        if self.done.keeping == Keeping::Before {
            let before = change::field(&self.table.entry(found), field);
            self.done.keep(|| match before {
                Some(entry) => Before::FieldWas(entry),
                None => Before::FieldAbsent(field.into()),
            });
        }
    }

    /// Gives a field what this entry has.
    pub(super) fn restore_field(&mut self, before: &Entry) {
        let shared: Option<SharedValue> = before.shared_value();
        let value = shared.as_ref().map_or_else(|| before.value(), Value::Shared);
        // It was a hash then, and all that came later has been taken back.
        let _ = self.set_field(before.key(), value, before.expire_at());
    }

    /// The key's place, if its value can be overwritten by a string. Another value is removed: it
    /// is kept whole, without a copy.
    #[inline(always)]
    pub(super) fn found_string(&mut self) -> Option<FoundEntry> {
        let found = self.found()?;
        if self.table.entry(found).value_type() == Type::String {
            return Some(found);
        }
        self.remove();
        None
    }
}
