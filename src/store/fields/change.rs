//! Entries whose value is a hash: how they are made and changed.

use std::cell::Cell;
use std::sync::Arc;

use super::Fields;
use super::block::Block;
use super::large::LargeHash;
use crate::store::entry::{LARGE_HASH, SMALL_HASH};
use crate::store::{Entry, KeyHasher, UnixMs, Value};

thread_local! {
    /// Memory for blocks that are being made.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A hash with one field.
pub fn of_field(hasher: &KeyHasher, key: &[u8], field: &[u8], value: Value<'_>) -> Entry {
    if let Value::Inline(bytes) = value
        && Block::EMPTY.has_room(None, field, bytes)
    {
        let mut block = SCRATCH.take();
        Block::EMPTY.with(None, field, bytes, &mut block);
        let entry = Entry::of_block(SMALL_HASH, key, &block, None);
        SCRATCH.set(block);
        return entry;
    }
    let large = LargeHash::new(hasher.clone());
    large.set(field, value);
    of_large(key, large, None)
}

fn of_large(key: &[u8], large: LargeHash, expire_at: Option<UnixMs>) -> Entry {
    Entry::of_reference(LARGE_HASH, key, Arc::new(large), expire_at)
}

/// A copy of a hash that shares nothing with it; of any other value, what [`Entry::copy_as`] makes.
pub fn apart_as(entry: &Entry, hasher: &KeyHasher, key: &[u8]) -> Entry {
    match Fields::of_entry(entry) {
        Ok(fields @ Fields::Large(_)) => {
            of_large(key, LargeHash::of(hasher, fields.iter()), entry.expire_at())
        }
        _ => entry.copy_as(key),
    }
}

/// A field of a hash, as an entry of its own.
pub fn field(entry: &Entry, field: &[u8]) -> Option<Entry> {
    match Fields::of_entry(entry).ok()? {
        Fields::Small(block) => {
            let place = block.find(field)?;
            Some(Entry::new(field, Value::Inline(block.value(place)), None))
        }
        Fields::Large(large) => large.entry_of(field),
    }
}

/// Sets a field of a hash; true if it is new. May move the entry to another block.
pub fn set(entry: &mut Entry, hasher: &KeyHasher, field: &[u8], value: Value<'_>) -> bool {
    let block = match Fields::of_entry(entry) {
        Ok(Fields::Small(block)) => block,
        Ok(Fields::Large(large)) => return large.set(field, value),
        Err(_) => return false,
    };
    let place = block.find(field);
    match value {
        Value::Inline(bytes) if block.has_room(place, field, bytes) => {
            let mut new = SCRATCH.take();
            block.with(place, field, bytes, &mut new);
            entry.set_block(&new);
            SCRATCH.set(new);
        }
        _ => {
            let large = LargeHash::of(hasher, block.iter());
            large.set(field, value);
            *entry = of_large(entry.key(), large, entry.expire_at());
        }
    }
    place.is_none()
}

/// Removes a field of a hash that has others, and returns it. May move the entry to another block.
pub fn remove(entry: &mut Entry, field: &[u8]) -> Option<Entry> {
    let block = match Fields::of_entry(entry).ok()? {
        Fields::Small(block) => block,
        Fields::Large(large) => return large.remove(field),
    };
    let place = block.find(field)?;
    let removed = Entry::new(field, Value::Inline(block.value(place)), None);
    let mut new = SCRATCH.take();
    block.without(place, &mut new);
    entry.set_block(&new);
    SCRATCH.set(new);
    Some(removed)
}
