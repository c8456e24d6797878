//! The small form of a hash: one block of bytes.
//!
//! ```text
//! due 0 or 8 │ count 2 │ tags, 1 each │ lengths of fields, 1 each │ of values, 1 each
//!            │ expiries, 0 or 8 each │ field value field value …
//! ```
//!
//! A field's tag is a byte that is drawn from its bytes. A search compares many tags at once, and
//! reads only fields whose tag and length fit. If any field has an expiry, the block is *timed*: it
//! begins with the first of them, which the entry reads, and has a time for every field.

use std::ops::Range;

use super::FieldRef;
use crate::limits::{
    SMALL_HASH_BYTES, SMALL_HASH_ELEMENT_BYTES, SMALL_HASH_FIELDS, SMALL_TIMED_HASH_FIELDS,
};
use crate::store::UnixMs;

const COUNT_BYTES: usize = size_of::<u16>();
const TIME_BYTES: usize = size_of::<UnixMs>();

/// What a field takes besides its bytes and those of its value.
const FIELD_OVERHEAD: usize = 3;

/// The time of a field without an expiry.
const NO_TIME: UnixMs = UnixMs::MAX;

const _: () = assert!(SMALL_HASH_ELEMENT_BYTES <= u8::MAX as usize);
const _: () = assert!(SMALL_HASH_FIELDS <= u16::MAX as usize);

/// A view of a block.
#[derive(Clone, Copy)]
pub struct Block<'a> {
    /// From the count on.
    bytes: &'a [u8],
    is_timed: bool,
}

/// Where a field is in a block.
#[derive(Clone, Copy)]
pub struct FieldPlace {
    number: usize,
    /// The offset of its bytes.
    at: usize,
}

impl<'a> Block<'a> {
    /// A view of a block.
    #[inline]
    pub fn new(bytes: &'a [u8], is_timed: bool) -> Self {
        Block { bytes: if is_timed { &bytes[TIME_BYTES..] } else { bytes }, is_timed }
    }

    /// One without fields, to begin with. No entry has such a one.
    pub const EMPTY: Block<'static> = Block { bytes: &[0, 0], is_timed: false };

    /// Whether it has expiries.
    pub fn is_timed(self) -> bool {
        self.is_timed
    }

    /// How many fields it has.
    #[inline]
    pub fn len(self) -> usize {
        let [low, high, ..] = *self.bytes else { return 0 };
        u16::from_le_bytes([low, high]).into()
    }

    fn tags(self) -> &'a [u8] {
        &self.bytes[COUNT_BYTES..COUNT_BYTES + self.len()]
    }

    /// The lengths of the fields, and those of the values.
    fn lengths(self) -> (&'a [u8], &'a [u8]) {
        let start = COUNT_BYTES + self.len();
        self.bytes[start..start + 2 * self.len()].split_at(self.len())
    }

    fn times_at(self) -> usize {
        COUNT_BYTES + FIELD_OVERHEAD * self.len()
    }

    fn expiry(self, number: usize) -> Option<UnixMs> {
        if !self.is_timed {
            return None;
        }
        let at = self.times_at() + number * TIME_BYTES;
        let time = self.bytes[at..].first_chunk().copied().map_or(NO_TIME, UnixMs::from_le_bytes);
        (time != NO_TIME).then_some(time)
    }

    fn bytes_at(self) -> usize {
        self.times_at() + if self.is_timed { self.len() * TIME_BYTES } else { 0 }
    }

    /// The place of this field, which is not before the other.
    fn place_behind(self, other: FieldPlace, number: usize) -> FieldPlace {
        // With what is behind them: whole words can be read.
        let fields = &self.bytes[COUNT_BYTES + self.len()..];
        let (from, count) = (other.number, number - other.number);
        let between = sum_of_first(&fields[from..], count)
            + sum_of_first(&fields[self.len() + from..], count);
        FieldPlace { number, at: other.at + between }
    }

    /// Finds a field.
    pub fn find(self, field: &[u8]) -> Option<FieldPlace> {
        let (lens, _) = self.lengths();
        let (tags, tag) = (&self.bytes[COUNT_BYTES..], u64::from(tag(field)) * EACH_BYTE);
        // The last field whose tag and length fit, to go on from.
        let (mut first, mut found) = (0, FieldPlace { number: 0, at: self.bytes_at() });
        while first < lens.len() {
            let mut hits = zero_bytes(word_at(tags, first) ^ tag);
            while hits != 0 {
                let number = first + hits.trailing_zeros() as usize / 8;
                hits &= hits - 1;
                // Behind the last tag there are other bytes.
                if lens.get(number).is_some_and(|&len| usize::from(len) == field.len()) {
                    let place = self.place_behind(found, number);
                    found = place;
                    if &self.bytes[place.at..place.at + field.len()] == field {
                        return Some(place);
                    }
                }
            }
            first += WORD;
        }
        None
    }

    fn value_range(self, place: FieldPlace) -> Range<usize> {
        let (fields, values) = self.lengths();
        let start = place.at + usize::from(fields[place.number]);
        start..start + usize::from(values[place.number])
    }

    /// A field that was found.
    pub fn field(self, place: FieldPlace) -> FieldRef<'a> {
        let value = self.value_range(place);
        FieldRef {
            name: &self.bytes[place.at..value.start],
            value: &self.bytes[value],
            expire_at: self.expiry(place.number),
        }
    }

    /// All fields, in the order in which they were added.
    pub fn iter(self) -> impl Iterator<Item = FieldRef<'a>> {
        let (fields, values) = self.lengths();
        let mut rest = &self.bytes[self.bytes_at()..];
        fields.iter().zip(values).enumerate().map(move |(number, (&field_len, &value_len))| {
            let (name, behind) = rest.split_at(field_len.into());
            let (value, behind) = behind.split_at(value_len.into());
            rest = behind;
            FieldRef { name, value, expire_at: self.expiry(number) }
        })
    }

    /// Where the value of a field is in the entry's value, if nothing but its bytes changes when
    /// it is set to one with this length and expiry.
    pub fn same_place(
        self,
        place: FieldPlace,
        len: usize,
        expire_at: Option<UnixMs>,
    ) -> Option<Range<usize>> {
        let range = self.value_range(place);
        let start = if self.is_timed { TIME_BYTES } else { 0 };
        (range.len() == len && self.expiry(place.number) == expire_at)
            .then(|| start + range.start..start + range.end)
    }

    /// Whether it stays a block with this field, which is at `place` if it is there.
    pub fn has_room(self, place: Option<FieldPlace>, field: FieldRef<'_>) -> bool {
        let FieldRef { name, value, expire_at } = field;
        let count = self.len() + usize::from(place.is_none());
        let is_timed = self.is_timed || expire_at.is_some();
        let times = if is_timed { TIME_BYTES * count } else { 0 };
        let most = if is_timed { SMALL_TIMED_HASH_FIELDS } else { SMALL_HASH_FIELDS };
        let old = place.map_or(0, |place| self.value_range(place).len() + name.len());
        let bytes = self.bytes.len() - self.bytes_at() + name.len() + value.len() - old;
        name.len().max(value.len()) <= SMALL_HASH_ELEMENT_BYTES
            && count <= most
            && COUNT_BYTES + FIELD_OVERHEAD * count + times + bytes <= SMALL_HASH_BYTES
    }

    /// Writes the block with this field to `out`. There is room for it. True if that is timed.
    pub fn with(self, place: Option<FieldPlace>, field: FieldRef<'_>, out: &mut Vec<u8>) -> bool {
        if self.is_timed || field.expire_at.is_some() {
            let number = place.map(|place| place.number);
            let others = self.iter().enumerate();
            let changed = others.map(|(at, other)| if Some(at) == number { field } else { other });
            let new = number.is_none().then_some(field);
            return write(changed.chain(new), out);
        }
        out.clear();
        let FieldRef { name, value, .. } = field;
        let (fields, values) = self.lengths();
        match place {
            Some(place) => {
                let old = self.value_range(place);
                out.extend_from_slice(&self.bytes[..old.start]);
                out.extend_from_slice(value);
                out.extend_from_slice(&self.bytes[old.end..]);
                let len_at = COUNT_BYTES + 2 * self.len() + place.number;
                out[len_at] = value.len() as u8;
            }
            None => {
                out.extend_from_slice(&(self.len() as u16 + 1).to_le_bytes());
                for (array, last) in [
                    (self.tags(), tag(name)),
                    (fields, name.len() as u8),
                    (values, value.len() as u8),
                ] {
                    out.extend_from_slice(array);
                    out.push(last);
                }
                out.extend_from_slice(&self.bytes[self.bytes_at()..]);
                out.extend_from_slice(name);
                out.extend_from_slice(value);
            }
        }
        false
    }

    /// Writes the block without a field to `out`. True if that is timed.
    pub fn without(self, place: FieldPlace, out: &mut Vec<u8>) -> bool {
        let others = self.iter().enumerate().filter(|(number, _)| *number != place.number);
        write(others.map(|(_, field)| field), out)
    }
}

/// Writes a block of these fields. True if it is timed.
fn write<'f>(fields: impl Iterator<Item = FieldRef<'f>>, out: &mut Vec<u8>) -> bool {
    let fields: Vec<FieldRef<'f>> = fields.collect();
    let due = fields.iter().filter_map(|field| field.expire_at).min();
    out.clear();
    if let Some(due) = due {
        out.extend_from_slice(&due.to_le_bytes());
    }
    out.extend_from_slice(&(fields.len() as u16).to_le_bytes());
    out.extend(fields.iter().map(|field| tag(field.name)));
    out.extend(fields.iter().map(|field| field.name.len() as u8));
    out.extend(fields.iter().map(|field| field.value.len() as u8));
    if due.is_some() {
        let times = fields.iter().map(|field| field.expire_at.unwrap_or(NO_TIME));
        times.for_each(|time| out.extend_from_slice(&time.to_le_bytes()));
    }
    for field in fields {
        out.extend_from_slice(field.name);
        out.extend_from_slice(field.value);
    }
    due.is_some()
}

/// Bytes that are looked at together.
const WORD: usize = size_of::<u64>();

/// A word of ones.
const EACH_BYTE: u64 = u64::from_le_bytes([1; WORD]);

/// The bytes from `at` on; zeros behind the last.
fn word_at(bytes: &[u8], at: usize) -> u64 {
    let bytes = &bytes[at..];
    match bytes.first_chunk() {
        Some(word) => u64::from_le_bytes(*word),
        None => bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
    }
}

/// The highest bit of each byte that is zero; and perhaps of some behind the first of them.
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(EACH_BYTE) & !word & (EACH_BYTE << 7)
}

/// The sum of the first so many bytes.
fn sum_of_first(bytes: &[u8], count: usize) -> usize {
    const PAIRS: u64 = 0x00ff_00ff_00ff_00ff;
    const EACH_PAIR: u64 = 0x0001_0001_0001_0001;
    let sum_of = |word: u64| {
        let pairs = (word & PAIRS) + (word >> 8 & PAIRS);
        (pairs.wrapping_mul(EACH_PAIR) >> 48) as usize
    };
    let (mut sum, mut at) = (0, 0);
    while at + WORD <= count {
        sum += sum_of(word_at(bytes, at));
        at += WORD;
    }
    if at < count {
        sum += sum_of(word_at(bytes, at) << (8 * (WORD - (count - at))));
    }
    sum
}

/// A byte that differs between most fields: from their length, first, middle and last bytes.
fn tag(field: &[u8]) -> u8 {
    let ends = match (field.first_chunk(), field.last_chunk()) {
        (Some(first), Some(last)) => {
            let middle = word_at(field, (field.len() - WORD) / 2).rotate_left(47);
            u64::from_le_bytes(*first) ^ middle ^ u64::from_le_bytes(*last).rotate_left(29)
        }
        _ => match (field.first_chunk(), field.last_chunk()) {
            (Some(first), Some(last)) => {
                u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << 32
            }
            _ => word_at(field, 0),
        },
    };
    ((ends ^ field.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain<'a>(name: &'a [u8], value: &'a [u8]) -> FieldRef<'a> {
        FieldRef { name, value, expire_at: None }
    }

    /// Blocks against a list.
    #[test]
    fn a_block_is_the_list_that_it_was_made_of() {
        let (mut random, mut in_place) = (fastrand::Rng::with_seed(7), 0);
        for round in 0..300 {
            let (mut block, mut is_timed) = (vec![0, 0], false);
            let mut list = Vec::<(Vec<u8>, Vec<u8>, Option<UnixMs>)>::new();
            for _ in 0..random.usize(1..200) {
                let name = vec![b'a' + random.u8(0..26); random.usize(0..20)];
                let len = if random.bool() { 8 } else { random.usize(0..40) };
                let value: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
                let expire_at = (round % 3 == 0 && random.bool()).then(|| random.i64(0..1000));
                let field = FieldRef { expire_at, ..plain(&name, &value) };
                let (view, mut out) = (Block::new(&block, is_timed), Vec::new());
                let place = view.find(&name);
                let at = list.iter().position(|(other, ..)| *other == name);
                assert_eq!(place.is_some(), at.is_some());
                is_timed = match (place, at) {
                    (Some(place), Some(at)) if random.bool() => {
                        list.remove(at);
                        view.without(place, &mut out)
                    }
                    _ if !view.has_room(place, field) => continue,
                    (place, at) => {
                        let is_timed = view.with(place, field, &mut out);
                        if let Some(place) = place
                            && let Some(range) = view.same_place(place, value.len(), expire_at)
                        {
                            in_place += 1;
                            let mut same = block.clone();
                            same[range].copy_from_slice(&value);
                            assert!(same == out);
                        }
                        match at {
                            Some(at) => list[at] = (name, value, expire_at),
                            None => list.push((name, value, expire_at)),
                        }
                        is_timed
                    }
                };
                block = out;
                let view = Block::new(&block, is_timed);
                assert!(view.len() == list.len() && block.len() <= SMALL_HASH_BYTES + TIME_BYTES);
                let due = list.iter().filter_map(|(.., at)| *at).min();
                let said = block.first_chunk().map(|bytes| UnixMs::from_le_bytes(*bytes));
                assert!(if is_timed { said == due } else { due.is_none() });
                let fields = || {
                    list.iter().map(|(name, value, expire_at)| FieldRef {
                        expire_at: *expire_at,
                        ..plain(name, value)
                    })
                };
                assert!(view.iter().eq(fields()));
                for field in fields() {
                    assert!(view.find(field.name).map(|place| view.field(place)) == Some(field));
                }
            }
        }
        assert!(in_place > 100);
    }

    #[test]
    fn tags_differ_wherever_names_do() {
        let names: [fn(u32) -> String; 4] = [
            |number| format!("{number}"),
            |number| format!("field:{number}"),
            |number| format!("user:{number:04}:last_seen"),
            |number| format!("{number:04}abcdefghijklmnop"),
        ];
        for name in names {
            let mut tags: Vec<u8> = (0..256).map(|number| tag(name(number).as_bytes())).collect();
            tags.sort_unstable();
            tags.dedup();
            assert!(tags.len() > 100, "{}: {}", name(0), tags.len());
        }
    }

    #[test]
    fn room_ends_at_each_limit() {
        let long = [b'x'; SMALL_HASH_ELEMENT_BYTES + 1];
        assert!(Block::EMPTY.has_room(None, plain(&long[1..], &long[1..])));
        assert!(!Block::EMPTY.has_room(None, plain(&long, b"")));
        assert!(!Block::EMPTY.has_room(None, plain(b"", &long)));
        let (mut block, mut out) = (vec![0, 0], Vec::new());
        for number in 0..SMALL_HASH_FIELDS {
            let (field, view) = (number.to_string(), Block::new(&block, false));
            let field = plain(field.as_bytes(), b"");
            assert!(view.has_room(None, field));
            let timed = FieldRef { expire_at: Some(1), ..field };
            assert_eq!(view.has_room(None, timed), number < SMALL_TIMED_HASH_FIELDS);
            view.with(None, field, &mut out);
            std::mem::swap(&mut block, &mut out);
        }
        let view = Block::new(&block, false);
        assert!(!view.has_room(None, plain(b"one", b"")));
        let left = SMALL_HASH_BYTES - block.len();
        let most = &long[..left.min(SMALL_HASH_ELEMENT_BYTES)];
        assert!(view.has_room(view.find(b"0"), plain(b"0", most)));
    }
}
