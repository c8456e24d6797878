//! A hash in a payload. Each host writes small hashes in one packed string and large ones as a
//! table of strings; what came before is read as well.
//!
//! ```text
//!  4  count, (field, value)…                            a table
//!  9  a string with a zipmap                            Redis up to 2.4
//! 13  a string with a ziplist                           Redis up to 6.2
//! 16  a string with a listpack                          since Redis 7.0
//! 22  count, (due, field, value)…                       Redis 7.4's candidates
//! 23  a string with a listpack of (field, value, due)   Redis 7.4's candidates
//! 24  least due 8, count, (due, field, value)…          since Redis 7.4
//! 25  least due 8, a string as in 23                    since Redis 7.4
//! 22  count, (field, value, due 8)…                     since Valkey 9
//! ```
//!
//! A due time is when a field expires, in Unix milliseconds. In 24 it is 1 at the least due time
//! and counts from there. 0 means that the field does not expire; Valkey writes −1 for that.

mod listpack;
mod pairs;
mod write;
mod ziplist;
mod zipmap;

use std::borrow::Cow;

use super::super::{Error, Limits};
use super::string::{PayloadReader, read_string};
use crate::limits::PACKED_HASH_BYTES;
pub use pairs::PayloadField;
use pairs::{DistinctFields, PackedElements, due_of_redis};
pub use write::{HashWriter, WrittenHash};

const TABLE_TYPE: u8 = 4;
const ZIPMAP_TYPE: u8 = 9;
const ZIPLIST_TYPE: u8 = 13;
const LISTPACK_TYPE: u8 = 16;
/// The number of two forms: Valkey's table with due times, and one of Redis.
const TYPE_22: u8 = 22;
const CANDIDATES_DUE_LISTPACK_TYPE: u8 = 23;
const DUE_TABLE_TYPE: u8 = 24;
const DUE_LISTPACK_TYPE: u8 = 25;

/// Valkey counts its versions from here and Redis below. Each numbers its newer types alone.
const FIRST_VERSION_OF_VALKEY: u16 = 80;

/// How a hash stands in a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HashForm {
    Table,
    Zipmap,
    Ziplist,
    Listpack,
    /// Redis's table with due times. In those of 7.4's candidates they count from 0.
    DueTable {
        of_candidates: bool,
    },
    /// Redis's listpack with due times. Those of 7.4's candidates have no least one before it.
    DueListpack {
        of_candidates: bool,
    },
    /// Valkey's table with due times.
    ValkeysDueTable,
}

impl HashForm {
    /// The form of a type byte; `None` if it is not a hash's.
    pub(super) fn of_type(kind: u8, version: u16) -> Option<Self> {
        let is_valkeys = version >= FIRST_VERSION_OF_VALKEY;
        Some(match kind {
            TABLE_TYPE => HashForm::Table,
            ZIPMAP_TYPE => HashForm::Zipmap,
            ZIPLIST_TYPE => HashForm::Ziplist,
            LISTPACK_TYPE => HashForm::Listpack,
            TYPE_22 if is_valkeys => HashForm::ValkeysDueTable,
            _ if is_valkeys => return None,
            TYPE_22 => HashForm::DueTable { of_candidates: true },
            CANDIDATES_DUE_LISTPACK_TYPE => HashForm::DueListpack { of_candidates: true },
            DUE_TABLE_TYPE => HashForm::DueTable { of_candidates: false },
            DUE_LISTPACK_TYPE => HashForm::DueListpack { of_candidates: false },
            _ => return None,
        })
    }

    fn is_table(self) -> bool {
        matches!(self, HashForm::Table | HashForm::DueTable { .. } | HashForm::ValkeysDueTable)
    }

    fn has_least_due(self) -> bool {
        let of_candidates = false;
        self == HashForm::DueTable { of_candidates }
            || self == HashForm::DueListpack { of_candidates }
    }
}

/// A hash in a payload. Its packed string is unpacked, but not yet checked.
#[derive(Debug)]
pub struct PackedHash<'a> {
    form: HashForm,
    /// The content of the packed string, or the table.
    content: Cow<'a, [u8]>,
    /// The due time that 1 stands for in a table.
    first_due: u64,
}

impl<'a> PackedHash<'a> {
    /// Takes the packed string out of the bytes behind the type, unless that is a table.
    pub(super) fn open(form: HashForm, value: &'a [u8], limits: &Limits) -> Result<Self, Error> {
        let mut rest = PayloadReader(value);
        let mut first_due = 1;
        if form.has_least_due() {
            first_due = u64::from_le_bytes(rest.array().ok_or(Error::BadData)?);
        }
        let content = if form.is_table() {
            Cow::Borrowed(rest.0)
        } else {
            // The setting limits a field or a value, not a whole hash.
            let whole = Limits { max_value_bytes: PACKED_HASH_BYTES, ..*limits };
            let string = read_string(&mut rest, &whole)?;
            if !rest.0.is_empty() {
                return Err(Error::BadData);
            }
            string.into()
        };
        Ok(PackedHash { form, content, first_due })
    }

    /// The fields, in the payload's order: at least one, and no name twice. The payload is checked
    /// as strictly as Redis does with `sanitize-dump-payload yes`. Unlike there, bytes between the
    /// last field and the footer are refused. Memory is taken for the fields that are there, not
    /// for as many as the payload claims.
    pub fn fields(&self, limits: &Limits) -> Result<Vec<PayloadField<'_>>, Error> {
        if self.form.is_table() { self.table(limits) } else { self.packed_fields(limits) }
    }

    fn packed_fields(&self, limits: &Limits) -> Result<Vec<PayloadField<'_>>, Error> {
        let mut pairs = match self.form {
            HashForm::DueListpack { .. } => PackedElements::with_due_times(),
            _ => PackedElements::new(),
        };
        let read = match self.form {
            HashForm::Zipmap => zipmap::read,
            HashForm::Ziplist => ziplist::read,
            _ => listpack::read,
        };
        let fields = read(&self.content, &mut pairs).and_then(|()| pairs.end());
        let fields = fields.ok_or(Error::BadData)?;
        for PayloadField { field, value, .. } in &fields {
            limits.value(field.bytes().len())?;
            limits.value(value.bytes().len())?;
        }
        Ok(fields)
    }

    fn table(&self, limits: &Limits) -> Result<Vec<PayloadField<'_>>, Error> {
        let mut rest = PayloadReader(&self.content);
        let mut fields = DistinctFields::default();
        let mut unpacked = 0;
        for _ in 0..rest.number().ok_or(Error::BadData)? {
            let mut expire_at = self.due_before(&mut rest).ok_or(Error::BadData)?;
            let [field, value] = [read_string(&mut rest, limits)?, read_string(&mut rest, limits)?];
            if self.form == HashForm::ValkeysDueTable {
                expire_at = due_of_valkey(&mut rest).ok_or(Error::BadData)?;
            }
            unpacked += field.unpacked_bytes() + value.unpacked_bytes();
            limits.reply(unpacked)?;
            fields.add(PayloadField { field, value, expire_at }).ok_or(Error::BadData)?;
        }
        fields.end().filter(|_| rest.0.is_empty()).ok_or(Error::BadData)
    }

    /// The due time before a field, which Redis's tables with due times have; `None` if it is
    /// invalid.
    fn due_before(&self, rest: &mut PayloadReader<'_>) -> Option<Option<i64>> {
        if !matches!(self.form, HashForm::DueTable { .. }) {
            return Some(None);
        }
        match rest.number()? {
            0 => Some(None),
            due => due_of_redis(self.first_due.checked_add(due - 1)?).map(Some),
        }
    }
}

fn due_of_valkey(rest: &mut PayloadReader<'_>) -> Option<Option<i64>> {
    match i64::from_le_bytes(rest.array()?) {
        -1 => Some(None),
        due => (due >= 0).then_some(Some(due)),
    }
}

#[cfg(test)]
mod tests;
