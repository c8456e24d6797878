//! The payload of a hash, written field by field.

use super::super::super::lzf::Packer;
use super::super::string::{write_len, write_string};
use super::super::{Checksum, WRITTEN_VERSION};
use super::pairs::LAST_DUE_OF_REDIS;
use super::{
    DUE_TABLE_TYPE, FIRST_VERSION_OF_VALKEY, LISTPACK_TYPE, TABLE_TYPE, TYPE_22, listpack,
};
use crate::limits::LISTPACK_TEXT_BYTES;

/// The version of Redis 7.4, the first with due times.
const VERSION_OF_DUE_TIMES: u16 = 12;

/// How a hash is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrittenHash {
    /// A listpack, as all hosts write a small hash. No field or value may be longer than
    /// [`LISTPACK_TEXT_BYTES`](crate::limits::LISTPACK_TEXT_BYTES).
    Listpack,
    /// A table of so many fields, as all hosts write a large hash.
    Table(usize),
    /// A table with due times, which Redis accepts since 7.4.
    RedisDueTable {
        /// The number of fields.
        fields: usize,
        /// The least due time of all fields, or an earlier one that a field had, in Unix
        /// milliseconds; not negative.
        least_due: i64,
    },
    /// A table of so many fields with due times, which Valkey accepts since 9.
    ValkeyDueTable(usize),
}

/// Writes the payload of a hash: the bytes that the host's DUMP would return for the same fields in
/// the same order, but for the least due time that they are counted from.
pub struct HashWriter {
    form: WrittenHash,
    /// The payload so far, or the listpack.
    bytes: Vec<u8>,
    /// The fields that were written.
    fields: usize,
    packer: Packer,
    /// Of the payload so far, but for its end.
    checksum: Checksum,
}

impl HashWriter {
    /// A payload without any field.
    pub fn new(form: WrittenHash) -> Self {
        let mut bytes = Vec::new();
        match form {
            WrittenHash::Listpack => listpack::begin(&mut bytes),
            WrittenHash::Table(fields) => {
                bytes.push(TABLE_TYPE);
                write_len(&mut bytes, fields);
            }
            WrittenHash::RedisDueTable { fields, least_due } => {
                bytes.push(DUE_TABLE_TYPE);
                bytes.extend(known_to_redis(least_due).to_le_bytes());
                write_len(&mut bytes, fields);
            }
            WrittenHash::ValkeyDueTable(fields) => {
                bytes.push(TYPE_22);
                write_len(&mut bytes, fields);
            }
        }
        let (packer, checksum) = (Packer::default(), Checksum::default());
        HashWriter { form, bytes, fields: 0, packer, checksum }
    }

    /// Adds a field. Only the tables with due times keep when it expires.
    pub fn add(&mut self, field: &[u8], value: &[u8], expire_at: Option<i64>) {
        self.fields += 1;
        let to = &mut self.bytes;
        if self.form == WrittenHash::Listpack {
            debug_assert!(field.len().max(value.len()) <= LISTPACK_TEXT_BYTES, "a table's");
            listpack::write(to, field);
            return listpack::write(to, value);
        }
        if let WrittenHash::RedisDueTable { least_due, .. } = self.form {
            write_len(to, due_from(least_due, expire_at));
        }
        write_string(to, field, &mut self.packer);
        write_string(to, value, &mut self.packer);
        if let WrittenHash::ValkeyDueTable(_) = self.form {
            to.extend(expire_at.unwrap_or(-1).to_le_bytes());
        }
        self.checksum.keep_up(to);
    }

    /// Gets memory for so many more bytes.
    pub fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    /// How many bytes there are so far.
    pub fn written(&self) -> usize {
        self.bytes.len()
    }

    /// The payload. A table must have got as many fields as it was said to.
    pub fn finish(mut self) -> Vec<u8> {
        let (expected, version) = match self.form {
            WrittenHash::Listpack => {
                listpack::end(&mut self.bytes, 2 * self.fields);
                let mut payload = vec![LISTPACK_TYPE];
                write_string(&mut payload, &self.bytes, &mut self.packer);
                self.bytes = payload;
                (self.fields, WRITTEN_VERSION)
            }
            WrittenHash::Table(fields) => (fields, WRITTEN_VERSION),
            WrittenHash::RedisDueTable { fields, .. } => (fields, VERSION_OF_DUE_TIMES),
            WrittenHash::ValkeyDueTable(fields) => (fields, FIRST_VERSION_OF_VALKEY),
        };
        debug_assert_eq!(self.fields, expected, "fields of a table");
        self.checksum.seal(&mut self.bytes, version);
        self.bytes
    }
}

/// A due time in Redis's table: 0 is none, 1 the least.
fn due_from(least_due: i64, expire_at: Option<i64>) -> usize {
    let after = |at| known_to_redis(at).saturating_sub(known_to_redis(least_due)) as usize;
    expire_at.map_or(0, |at| after(at) + 1)
}

/// The due time that Redis knows nearest to this one. Its last is some 8900 years from 1970.
fn known_to_redis(at: i64) -> u64 {
    (at.max(0) as u64).min(LAST_DUE_OF_REDIS)
}
