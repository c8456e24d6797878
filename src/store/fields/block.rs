//! The small form of a hash: one block of bytes.
//!
//! ```text
//! count 2 │ tags, 1 each │ lengths of fields, 1 each │ of values, 1 each │ field value field value …
//! ```
//!
//! A field's tag is a byte that is drawn from its bytes. A search compares many tags at once, and
//! reads only fields whose tag and length fit.

use crate::limits::{SMALL_HASH_BYTES, SMALL_HASH_ELEMENT_BYTES, SMALL_HASH_FIELDS};

const COUNT_BYTES: usize = size_of::<u16>();

/// What a field takes besides its bytes and those of its value.
const FIELD_OVERHEAD: usize = 3;

const _: () = assert!(SMALL_HASH_ELEMENT_BYTES <= u8::MAX as usize);
const _: () = assert!(SMALL_HASH_FIELDS <= u16::MAX as usize);

/// A view of a block.
#[derive(Clone, Copy)]
pub struct Block<'a>(&'a [u8]);

/// Where a field is in a block.
#[derive(Clone, Copy)]
pub struct FieldPlace {
    number: usize,
    /// The offset of its bytes.
    at: usize,
}

impl<'a> Block<'a> {
    /// A view of bytes that [`Block::with`] has made.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Block(bytes)
    }

    /// One without fields, to begin with. No entry has such a one.
    pub const EMPTY: Block<'static> = Block(&[0, 0]);

    /// How many fields it has.
    #[inline]
    pub fn len(self) -> usize {
        let [low, high, ..] = *self.0 else { return 0 };
        u16::from_le_bytes([low, high]).into()
    }

    fn tags(self) -> &'a [u8] {
        &self.0[COUNT_BYTES..COUNT_BYTES + self.len()]
    }

    /// The lengths of the fields, and those of the values.
    fn lengths(self) -> (&'a [u8], &'a [u8]) {
        let start = COUNT_BYTES + self.len();
        self.0[start..start + 2 * self.len()].split_at(self.len())
    }

    fn bytes_at(self) -> usize {
        COUNT_BYTES + FIELD_OVERHEAD * self.len()
    }

    fn place(self, number: usize) -> FieldPlace {
        let (fields, values) = self.lengths();
        let sum = |lens: &[u8]| lens[..number].iter().map(|&len| usize::from(len)).sum::<usize>();
        FieldPlace { number, at: self.bytes_at() + sum(fields) + sum(values) }
    }

    /// Finds a field.
    pub fn find(self, field: &[u8]) -> Option<FieldPlace> {
        let (lens, _) = self.lengths();
        memchr::memchr_iter(tag(field), self.tags())
            .filter(|&number| usize::from(lens[number]) == field.len())
            .map(|number| self.place(number))
            .find(|place| &self.0[place.at..place.at + field.len()] == field)
    }

    /// Where the value of a field lies in the block.
    pub fn value_range(self, place: FieldPlace) -> std::ops::Range<usize> {
        let (fields, values) = self.lengths();
        let start = place.at + usize::from(fields[place.number]);
        start..start + usize::from(values[place.number])
    }

    /// The value of a field.
    pub fn value(self, place: FieldPlace) -> &'a [u8] {
        &self.0[self.value_range(place)]
    }

    /// All fields and their values, in the order in which they were added.
    pub fn iter(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let (fields, values) = self.lengths();
        let mut rest = &self.0[self.bytes_at()..];
        fields.iter().zip(values).map(move |(&field_len, &value_len)| {
            let (field, behind) = rest.split_at(field_len.into());
            let (value, behind) = behind.split_at(value_len.into());
            rest = behind;
            (field, value)
        })
    }

    /// Whether it stays a block with this value of a field, which is at `place` if it is there.
    pub fn has_room(self, place: Option<FieldPlace>, field: &[u8], value: &[u8]) -> bool {
        let more = match place {
            Some(place) => value.len() as isize - self.value_range(place).len() as isize,
            None => (FIELD_OVERHEAD + field.len() + value.len()) as isize,
        };
        field.len().max(value.len()) <= SMALL_HASH_ELEMENT_BYTES
            && self.len() + usize::from(place.is_none()) <= SMALL_HASH_FIELDS
            && self.0.len() as isize + more <= SMALL_HASH_BYTES as isize
    }

    /// Writes the block with this value of a field to `out`. There is room for it.
    pub fn with(self, place: Option<FieldPlace>, field: &[u8], value: &[u8], out: &mut Vec<u8>) {
        out.clear();
        let (fields, values) = self.lengths();
        match place {
            Some(place) => {
                let old = self.value_range(place);
                out.extend_from_slice(&self.0[..old.start]);
                out.extend_from_slice(value);
                out.extend_from_slice(&self.0[old.end..]);
                let len_at = COUNT_BYTES + 2 * self.len() + place.number;
                out[len_at] = value.len() as u8;
            }
            None => {
                out.extend_from_slice(&(self.len() as u16 + 1).to_le_bytes());
                for (array, last) in [
                    (self.tags(), tag(field)),
                    (fields, field.len() as u8),
                    (values, value.len() as u8),
                ] {
                    out.extend_from_slice(array);
                    out.push(last);
                }
                out.extend_from_slice(&self.0[self.bytes_at()..]);
                out.extend_from_slice(field);
                out.extend_from_slice(value);
            }
        }
    }

    /// Writes the block without a field to `out`.
    pub fn without(self, place: FieldPlace, out: &mut Vec<u8>) {
        out.clear();
        let (fields, values) = self.lengths();
        out.extend_from_slice(&(self.len() as u16 - 1).to_le_bytes());
        for array in [self.tags(), fields, values] {
            out.extend_from_slice(&array[..place.number]);
            out.extend_from_slice(&array[place.number + 1..]);
        }
        out.extend_from_slice(&self.0[self.bytes_at()..place.at]);
        out.extend_from_slice(&self.0[self.value_range(place).end..]);
    }
}

/// A byte that differs between most fields: from their length, first and last bytes.
fn tag(field: &[u8]) -> u8 {
    let ends = match (field.first_chunk(), field.last_chunk()) {
        (Some(first), Some(last)) => {
            u64::from_le_bytes(*first) ^ u64::from_le_bytes(*last).rotate_left(29)
        }
        _ => field.iter().fold(0, |all, &byte| all << 8 | u64::from(byte)),
    };
    ((ends ^ field.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks against a list.
    #[test]
    fn a_block_is_the_list_that_it_was_made_of() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let (mut block, mut list) = (vec![0, 0], Vec::<(Vec<u8>, Vec<u8>)>::new());
            for _ in 0..random.usize(1..200) {
                let field = vec![b'a' + random.u8(0..26); random.usize(0..20)];
                let value: Vec<u8> = (0..random.usize(0..40)).map(|_| random.u8(..)).collect();
                let (view, mut out) = (Block::new(&block), Vec::new());
                let place = view.find(&field);
                let at = list.iter().position(|(name, _)| *name == field);
                assert_eq!(place.is_some(), at.is_some());
                match (place, at) {
                    (Some(place), Some(at)) if random.bool() => {
                        view.without(place, &mut out);
                        list.remove(at);
                    }
                    _ if !view.has_room(place, &field, &value) => continue,
                    (_, Some(at)) => {
                        view.with(place, &field, &value, &mut out);
                        list[at].1 = value;
                    }
                    (_, None) => {
                        view.with(place, &field, &value, &mut out);
                        list.push((field, value));
                    }
                }
                block = out;
                let view = Block::new(&block);
                assert_eq!(view.len(), list.len());
                let of_list = list.iter().map(|(field, value)| (&field[..], &value[..]));
                assert!(view.iter().eq(of_list));
                for (field, value) in &list {
                    assert_eq!(view.find(field).map(|place| view.value(place)), Some(&value[..]));
                }
            }
        }
    }

    #[test]
    fn room_ends_at_each_limit() {
        let long = [b'x'; SMALL_HASH_ELEMENT_BYTES + 1];
        assert!(Block::EMPTY.has_room(None, &long[1..], &long[1..]));
        assert!(!Block::EMPTY.has_room(None, &long, b""));
        assert!(!Block::EMPTY.has_room(None, b"", &long));
        let (mut block, mut out) = (vec![0, 0], Vec::new());
        for number in 0..SMALL_HASH_FIELDS {
            let field = number.to_string();
            assert!(Block::new(&block).has_room(None, field.as_bytes(), b""));
            Block::new(&block).with(None, field.as_bytes(), b"", &mut out);
            std::mem::swap(&mut block, &mut out);
        }
        assert!(!Block::new(&block).has_room(None, b"one", b""));
        let view = Block::new(&block);
        let place = view.find(b"0");
        let left = SMALL_HASH_BYTES - block.len();
        let most = &long[..left.min(SMALL_HASH_ELEMENT_BYTES)];
        assert!(view.has_room(place, b"0", most));
    }
}
