//! Entries whose value is a hash: how they are made and changed.

use std::cell::Cell;
use std::sync::Arc;

use super::block::{Block, FieldPlace};
use super::large::LargeHash;
use super::{FieldRef, Fields};
use crate::store::entry::{LARGE_HASH, SMALL_HASH, TIMED_HASH};
use crate::store::{Entry, KeyHasher, UnixMs, Value};

thread_local! {
    /// Memory for blocks that are being made.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The bits of an entry with such a block.
fn kind(is_timed: bool) -> u8 {
    if is_timed { TIMED_HASH } else { SMALL_HASH }
}

/// A field on its way into a hash.
#[derive(Clone, Copy)]
pub struct NewField<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Its value.
    pub value: Value<'a>,
    /// When it expires.
    pub expire_at: Option<UnixMs>,
}

impl<'a> NewField<'a> {
    /// The field as it stands in a block, if it may.
    fn in_block(self, block: Block<'_>, place: Option<FieldPlace>) -> Option<FieldRef<'a>> {
        let NewField { name, value, expire_at } = self;
        let Value::Inline(value) = value else { return None };
        let field = FieldRef { name, value, expire_at };
        block.has_room(place, field).then_some(field)
    }
}

/// A hash with one field.
pub fn of_field(hasher: &KeyHasher, key: &[u8], new: NewField<'_>) -> Entry {
    if let Some(field) = new.in_block(Block::EMPTY, None) {
        let mut out = SCRATCH.take();
        let is_timed = Block::EMPTY.with(None, field, &mut out);
        let entry = Entry::of_block(kind(is_timed), key, &out, None);
        SCRATCH.set(out);
        return entry;
    }
    let large = LargeHash::new(hasher.clone());
    large.set(new.name, new.value, new.expire_at);
    of_large(key, large, None)
}

/// A key with a large hash.
pub(super) fn of_large(key: &[u8], large: LargeHash, expire_at: Option<UnixMs>) -> Entry {
    Entry::of_reference(LARGE_HASH, key, Arc::new(large), expire_at)
}

/// A field of a hash, as an entry of its own.
pub fn field(entry: &Entry, name: &[u8]) -> Option<Entry> {
    match Fields::of_entry(entry).ok()? {
        Fields::Small(block) => Some(as_entry(block.field(block.find(name)?))),
        Fields::Large(large) => large.entry_of(name),
    }
}

fn as_entry(field: FieldRef<'_>) -> Entry {
    Entry::new(field.name, Value::Inline(field.value), field.expire_at)
}

/// Sets a field of a hash; true if it is new. May move the entry to another block.
pub fn set(entry: &mut Entry, hasher: &KeyHasher, new: NewField<'_>) -> bool {
    let block = match Fields::of_entry(entry) {
        Ok(Fields::Small(block)) => block,
        Ok(Fields::Large(large)) => return large.set(new.name, new.value, new.expire_at),
        Err(_) => return false,
    };
    let place = block.find(new.name);
    if let (Some(place), Value::Inline(value)) = (place, new.value)
        && let Some(range) = block.same_place(place, value.len(), new.expire_at)
    {
        entry.overwrite_block(range, value);
        return false;
    }
    match new.in_block(block, place) {
        Some(field) => {
            let mut out = SCRATCH.take();
            let is_timed = block.with(place, field, &mut out);
            entry.set_block(kind(is_timed), &out);
            SCRATCH.set(out);
        }
        None => {
            let large = LargeHash::of(hasher, block.iter());
            large.set(new.name, new.value, new.expire_at);
            *entry = of_large(entry.key(), large, entry.expire_at());
        }
    }
    place.is_none()
}

/// Sets or clears the expiry of a field that is there. May move the entry to another block.
pub fn expire(entry: &mut Entry, hasher: &KeyHasher, name: &[u8], expire_at: Option<UnixMs>) {
    match Fields::of_entry(entry) {
        Ok(Fields::Large(large)) => large.set_expiry(name, expire_at),
        Ok(Fields::Small(block)) => {
            let Some(place) = block.find(name) else { return };
            let value = block.field(place).value.to_vec();
            set(entry, hasher, NewField { name, value: Value::Inline(&value), expire_at });
        }
        Err(_) => {}
    }
}

/// Removes a field of a hash that has others, and returns it. May move the entry to another block.
pub fn remove(entry: &mut Entry, name: &[u8]) -> Option<Entry> {
    let block = match Fields::of_entry(entry).ok()? {
        Fields::Small(block) => block,
        Fields::Large(large) => return large.remove(name),
    };
    let place = block.find(name)?;
    let removed = as_entry(block.field(place));
    let mut out = SCRATCH.take();
    let is_timed = block.without(place, &mut out);
    entry.set_block(kind(is_timed), &out);
    SCRATCH.set(out);
    Some(removed)
}

/// Removes some fields of a large hash that were due before `horizon`; see
/// [`LargeHash::remove_due`].
pub fn remove_due(
    entry: &mut Entry,
    horizon: UnixMs,
    position: &mut usize,
    removed: &mut dyn FnMut(Entry),
) -> bool {
    match Fields::of_entry(entry) {
        Ok(Fields::Large(large)) => large.remove_due(horizon, position, removed),
        _ => true,
    }
}
