//! Keys as texts of records: what the base of an AOF has of midi's if it is not an RDB. Each piece
//! is a whole MIDI.JOURNAL, as it stands in the file.

use super::format::{self, Content, EntryHead};
use crate::command::record::{
    RECORD_VERSION, Record, Words, header, journal_head, part_of_text, raise_version, select,
    set_before_value, set_behind_value,
};
use crate::store::FieldRef;

const LINE_END: &[u8] = b"\r\n";

/// Begins a text with keys of one database.
pub(super) fn begin(text: &mut Vec<u8>, db: u32) {
    header(1, text);
    select(db, text);
}

/// Appends a key.
pub(super) fn put_entry(text: &mut Vec<u8>, head: &EntryHead<'_>, value: &[u8]) {
    let EntryHead { key, expire_at, traits, content } = *head;
    if content == Content::String {
        return put(text, &Record::Set { key, value, expire_at, traits });
    }
    let fields: Vec<FieldRef<'_>> = format::fields_of_hash(value).flatten().collect();
    let pairs: Vec<&[u8]> = fields.iter().flat_map(|it| [it.name, it.value]).collect();
    put(text, &Record::HSet { key, pairs: Words::List(&pairs) });
    for field in fields {
        if let Some(at) = field.expire_at {
            let fields = Words::List(&[field.name]);
            put(text, &Record::HPexpireAt { key, at, fields });
        }
    }
    if let Some(at) = expire_at
        && content != Content::MoreOfHash
    {
        put(text, &Record::PexpireAt { key, at });
    }
}

fn put(text: &mut Vec<u8>, record: &Record<'_>) {
    raise_version(text, record.version());
    record.write(text);
}

/// A part of a text that was begun, as a MIDI.JOURNAL.
pub(super) fn part(offset: usize, bytes: &[u8]) -> Vec<u8> {
    let mut text = part_of_text(offset, bytes);
    seal(&mut text);
    text
}

/// Makes a text a MIDI.JOURNAL.
pub(super) fn seal(text: &mut Vec<u8>) {
    text.splice(0..0, journal_head(text.len()));
    text.extend_from_slice(LINE_END);
}

/// What stands before and behind a value of `len` bytes in a MIDI.JOURNAL of its own.
pub(super) fn large_entry(db: u32, head: &EntryHead<'_>, len: usize) -> (Vec<u8>, Vec<u8>) {
    let EntryHead { key, expire_at, traits, .. } = *head;
    let (mut before, mut behind) = (Vec::new(), Vec::new());
    begin(&mut before, db);
    if !traits.are_logged_plain() {
        raise_version(&mut before, RECORD_VERSION);
    }
    set_before_value(&mut before, key, len, expire_at, &traits);
    set_behind_value(&mut behind, expire_at, &traits);
    before.splice(0..0, journal_head(before.len() + len + behind.len()));
    behind.extend_from_slice(LINE_END);
    (before, behind)
}
