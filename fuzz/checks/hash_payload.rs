//! The payloads of hashes: any bytes are read or refused, and a hash that was read survives being
//! written in every form and read again.

use crc::{CRC_64_REDIS, Crc};
use midi::command::{HashWriter, Limits, Restored, WrittenHash, read_payload};

type Field = (Vec<u8>, Vec<u8>, Option<i64>);

/// Longer ones may be read, but are not written as a listpack.
const LISTPACK_TEXT_BYTES: usize = 16_377;

/// The first byte is the payload's version, the rest its content.
pub fn check(data: &[u8]) {
    let Some((&version, content)) = data.split_first() else { return };
    let mut payload = [content, &[version, 0]].concat();
    payload.extend(Crc::<u64>::new(&CRC_64_REDIS).checksum(&payload).to_le_bytes());
    let Some(mut fields) = fields(&payload) else { return };
    assert!(!fields.is_empty());

    let least_due = fields.iter().filter_map(|field| field.2).min().unwrap_or(0);
    let count = fields.len();
    comes_back(WrittenHash::ValkeyDueTable(count), &fields);
    // Redis's due times have 48 bits.
    fields.iter_mut().for_each(|field| field.2 = field.2.map(|at| at.min((1 << 48) - 1)));
    comes_back(WrittenHash::RedisDueTable { fields: count, least_due }, &fields);
    fields.iter_mut().for_each(|field| field.2 = None);
    comes_back(WrittenHash::Table(count), &fields);
    let longest = fields.iter().map(|field| field.0.len().max(field.1.len())).max();
    if longest <= Some(LISTPACK_TEXT_BYTES) {
        comes_back(WrittenHash::Listpack, &fields);
    }
}

/// The fields of a payload; `None` if it is refused or has no hash.
fn fields(payload: &[u8]) -> Option<Vec<Field>> {
    // Enough for any input, and soon reached by lengths that are only claimed.
    let limits = Limits { max_value_bytes: 1 << 20, max_reply_bytes: 1 << 22, ..Limits::NONE };
    let Ok(Restored::Hash(hash)) = read_payload(payload, &limits) else { return None };
    let fields = hash.fields(&limits).ok()?;
    let owned = fields
        .iter()
        .map(|field| (field.field.bytes().to_vec(), field.value.bytes().to_vec(), field.expire_at));
    Some(owned.collect())
}

fn comes_back(form: WrittenHash, all: &[Field]) {
    let mut writer = HashWriter::new(form);
    for (field, value, expire_at) in all {
        writer.add(field, value, *expire_at);
    }
    assert_eq!(fields(&writer.finish()).as_deref(), Some(all));
}
