//! Changes of the fields of a hash.

use super::{ChangeKind, Edit, Keeping};
use crate::store::before::FieldNames;
use crate::store::fields::change;
use crate::store::{Before, Entry, Fields, FoundEntry, SharedValue, Type, Value, WrongType};

impl Edit<'_> {
    /// The fields of the key's hash; `None` if the key does not exist.
    ///
    /// # Errors
    /// [`WrongType`] if its value is not a hash.
    #[inline]
    pub fn fields(&self) -> Result<Option<Fields<'_>>, WrongType> {
        self.read().map(Fields::of).transpose()
    }

    /// Sets a field of the key's hash, which is made if the key does not exist. True if the field
    /// is new.
    ///
    /// # Errors
    /// [`WrongType`] if the value is not a hash; nothing is changed then.
    pub fn set_field(&mut self, field: &[u8], value: Value<'_>) -> Result<bool, WrongType> {
        let hasher = self.hasher;
        let Some(found) = self.found() else {
            let name = self.name;
            let entry = || change::of_field(hasher, name, field, value);
            self.insert(self.kind_of(field), entry);
            return Ok(true);
        };
        Fields::of(self.table.entry(found))?;
        self.keep_field(found, field);
        let mut is_new = false;
        self.apply(self.kind_of(field), |table| {
            is_new = table.change_other(found, |entry| change::set(entry, hasher, field, value));
        });
        Ok(is_new)
    }

    /// Removes a field of the key's hash, and the key with its last field. False if there is no
    /// such field.
    pub fn remove_field(&mut self, field: &[u8]) -> bool {
        let Some(found) = self.found() else { return false };
        let Ok(fields) = Fields::of(self.table.entry(found)) else { return false };
        if fields.get(field).is_none() {
            return false;
        }
        if fields.len() == 1 {
            return self.remove();
        }
        let removed = self.table.change_other(found, |entry| change::remove(entry, field));
        let Some(removed) = removed else { return false };
        self.done.keep(|| Before::FieldWas(removed));
        self.apply(self.kind_of(field), |_| ());
        true
    }

    /// A copy of the key under another name, which shares no fields with it.
    pub fn copy_apart(&self, name: &[u8]) -> Option<Entry> {
        self.read().map(|entry| change::apart_as(&entry, self.hasher, name))
    }

    fn kind_of(&self, field: &[u8]) -> ChangeKind {
        match self.done.keeping {
            Keeping::Nothing => ChangeKind::Nothing,
            _ => ChangeKind::Fields(FieldNames::one(field)),
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

    /// Gives a field the value that this entry has.
    pub(super) fn restore_field(&mut self, before: &Entry) {
        let shared: Option<SharedValue> = before.shared_value();
        let value = shared.as_ref().map_or_else(|| before.value(), Value::Shared);
        // It was a hash then, and all that came later has been taken back.
        let _ = self.set_field(before.key(), value);
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
