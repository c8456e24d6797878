//! Values as bit strings: single bits, counts, searches, combinations, and fields that hold
//! numbers. Offsets count bits; bit 0 is the highest bit of the first byte.

use std::ops::Range;

const WORD_BYTES: usize = size_of::<u64>();

/// The bit at offset `at`; 0 beyond the end.
pub(super) fn bit(bytes: &[u8], at: u64) -> bool {
    let byte = usize::try_from(at / 8).ok().and_then(|place| bytes.get(place));
    byte.is_some_and(|byte| byte & (0x80 >> (at % 8)) != 0)
}

/// Writes the bit at offset `at`, which must be within the bytes.
pub(super) fn set_bit(bytes: &mut [u8], at: u64, on: bool) {
    let (byte, mask) = (&mut bytes[(at / 8) as usize], 0x80 >> (at % 8));
    *byte = if on { *byte | mask } else { *byte & !mask };
}

/// The number of 1 bits in the range, which must be within the bytes.
pub(super) fn count(bytes: &[u8], bits: Range<u64>) -> u64 {
    if bits.is_empty() {
        return 0;
    }
    let bytes = &bytes[(bits.start / 8) as usize..bits.end.div_ceil(8) as usize];
    // The bits of the first and the last byte that are outside of the range.
    let before = u16::from(bytes[0]) >> (8 - bits.start % 8);
    let behind =
        if bits.end.is_multiple_of(8) { 0 } else { bytes[bytes.len() - 1] << (bits.end % 8) };
    count_all(bytes) - u64::from(before.count_ones()) - u64::from(behind.count_ones())
}

fn count_all(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
    let in_words: u64 =
        words.iter().map(|word| u64::from(u64::from_ne_bytes(*word).count_ones())).sum();
    in_words + rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>()
}

/// The offset of the first bit equal to `wanted` in the range, which must be within the bytes.
pub(super) fn find(bytes: &[u8], bits: Range<u64>, wanted: bool) -> Option<u64> {
    if bits.is_empty() {
        return None;
    }
    let bytes = &bytes[..bits.end.div_ceil(8) as usize];
    // After flipping, the search is for a 1.
    let flip = if wanted { 0 } else { u8::MAX };
    let first = (bits.start / 8) as usize;
    let head = (bytes[first] ^ flip) & (u8::MAX >> (bits.start % 8));
    let (byte, found) = if head != 0 {
        (first, head)
    } else {
        let byte = first + 1 + whole_words(&bytes[first + 1..], flip);
        let place = bytes[byte..].iter().position(|byte| byte ^ flip != 0)?;
        (byte + place, bytes[byte + place] ^ flip)
    };
    Some(byte as u64 * 8 + u64::from(found.leading_zeros())).filter(|&at| at < bits.end)
}

/// The length in bytes of the whole words at the beginning that consist of this byte only.
fn whole_words(bytes: &[u8], byte: u8) -> usize {
    let (words, _) = bytes.as_chunks::<WORD_BYTES>();
    let other = words.iter().position(|word| *word != [byte; WORD_BYTES]);
    other.unwrap_or(words.len()) * WORD_BYTES
}

/// The operations of BITOP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    And,
    Or,
    Xor,
    /// Takes one value.
    Not,
    /// The bits of the first value that are in none of the others.
    Diff,
    /// The bits of any of the others that are not in the first value.
    Diff1,
    /// The bits of the first value that are in any of the others.
    AndOr,
    /// The bits that are in exactly one of the values.
    One,
}

/// The result is made in blocks of this size: a block stays in the L1 cache while one value after
/// the other is read.
const BLOCK_BYTES: usize = 8 << 10;

/// The result is as long as the longest value; the others are padded with zeros.
pub(super) fn combine(operation: Operation, values: &[&[u8]]) -> Vec<u8> {
    let longest = values.iter().map(|value| value.len()).max().unwrap_or(0);
    let mut result = vec![0; longest];
    for (number, block) in result.chunks_mut(BLOCK_BYTES).enumerate() {
        let (start, len) = (number * BLOCK_BYTES, block.len());
        combine_block(operation, block, values.iter().map(|value| part(value, start, len)));
    }
    result
}

/// Combines the parts of values that a block of the result consists of. The block is all zeros.
fn combine_block<'a>(
    operation: Operation,
    block: &mut [u8],
    mut parts: impl Iterator<Item = &'a [u8]>,
) {
    let Some(first) = parts.next() else { return };
    if let Operation::Diff1 | Operation::AndOr = operation {
        parts.for_each(|other| apply(Operation::Or, block, other));
        let last = if operation == Operation::Diff1 { Operation::Diff } else { Operation::And };
        return apply(last, block, first);
    }
    block[..first.len()].copy_from_slice(first);
    match operation {
        Operation::Not => block.iter_mut().for_each(|byte| *byte = !*byte),
        Operation::One => {
            let mut twice = [0; BLOCK_BYTES];
            parts.for_each(|other| count_once(block, &mut twice, other));
            apply(Operation::Diff, block, &twice[..block.len()]);
        }
        _ => parts.for_each(|other| apply(operation, block, other)),
    }
}

/// Adds a value to the bits that were in any value before, and to those that were in two.
fn count_once(any: &mut [u8], twice: &mut [u8], other: &[u8]) {
    for ((any, twice), other) in any.iter_mut().zip(twice).zip(other) {
        *twice |= *any & other;
        *any |= other;
    }
}

/// The part of the value that overlaps the `len` bytes from `start` on.
fn part(value: &[u8], start: usize, len: usize) -> &[u8] {
    &value[start.min(value.len())..(start + len).min(value.len())]
}

/// Short loops without branches, which the compiler vectorizes.
fn apply(operation: Operation, block: &mut [u8], other: &[u8]) {
    let (both, alone) = block.split_at_mut(other.len());
    let pairs = both.iter_mut().zip(other);
    match operation {
        Operation::And => {
            pairs.for_each(|(byte, other)| *byte &= other);
            alone.fill(0);
        }
        Operation::Or => pairs.for_each(|(byte, other)| *byte |= other),
        Operation::Xor => pairs.for_each(|(byte, other)| *byte ^= other),
        Operation::Diff => pairs.for_each(|(byte, other)| *byte &= !other),
        // Made of the others, block by block.
        Operation::Not | Operation::Diff1 | Operation::AndOr | Operation::One => {}
    }
}

/// The type of a number: its width and its sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// Whether its highest bit is a sign.
    pub(super) signed: bool,
    /// The width: 1 to 64, or 1 to 63 without a sign, so every number fits an `i64`.
    pub(super) bits: u32,
}

/// What happens to a number that does not fit its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overflow {
    /// Its lowest bits are written.
    Wrap,
    /// The nearest number that fits is written.
    Saturate,
    /// Nothing is written.
    Fail,
}

/// The maximum number of bytes that a field touches: 64 bits that begin in the middle of a byte.
const FIELD_BYTES: usize = 9;

impl Field {
    /// Reads the number at offset `at`; bits beyond the end are 0.
    pub(super) fn read(self, bytes: &[u8], at: u64) -> i64 {
        let (window, _) = window(bytes, at);
        self.number((window << (at % 8) >> (u128::BITS - self.bits)) as u64)
    }

    /// Writes the lowest bits of a number at offset `at`. The whole field must be within the bytes.
    pub(super) fn write(self, bytes: &mut [u8], at: u64, number: i64) {
        let (window, range) = window(bytes, at);
        let shift = u128::BITS - self.bits - (at % 8) as u32;
        let mask = (u128::MAX >> (u128::BITS - self.bits)) << shift;
        let written = window & !mask | (number as u128) << shift & mask;
        let len = range.len();
        bytes[range].copy_from_slice(&written.to_be_bytes()[..len]);
    }

    /// The number to write for this one; `None` if it does not fit and is not to be written.
    pub(super) fn fit(self, number: i128, overflow: Overflow) -> Option<i64> {
        let (least, most) = self.limits();
        match overflow {
            _ if (least..=most).contains(&number) => Some(number as i64),
            Overflow::Wrap => Some(self.number(number as u64)),
            Overflow::Saturate => Some(number.clamp(least, most) as i64),
            Overflow::Fail => None,
        }
    }

    /// The number that SET of BITFIELD means. In an unsigned field a negative number means a large
    /// one. As in Redis, a number is also too large if its distance from the largest does not fit
    /// 64 bits.
    pub(super) fn meant(self, number: i64) -> i128 {
        let (number, (_, most)) = (i128::from(number), self.limits());
        let is_above = match self.signed {
            true => self.bits < i64::BITS && most - number > i128::from(i64::MAX),
            false => number < 0,
        };
        if is_above { number + (1 << u64::BITS) } else { number }
    }

    /// The lowest bits as a number.
    fn number(self, bits: u64) -> i64 {
        let shift = u64::BITS - self.bits;
        if self.signed { (bits << shift) as i64 >> shift } else { (bits << shift >> shift) as i64 }
    }

    fn limits(self) -> (i128, i128) {
        if self.signed {
            let half = 1i128 << (self.bits - 1);
            (-half, half - 1)
        } else {
            (0, (1i128 << self.bits) - 1)
        }
    }
}

/// The bytes that a field at offset `at` may touch, as one number padded with zeros; and the range
/// of those that exist.
fn window(bytes: &[u8], at: u64) -> (u128, Range<usize>) {
    let start = usize::try_from(at / 8).map_or(bytes.len(), |start| start.min(bytes.len()));
    let range = start..(start + FIELD_BYTES).min(bytes.len());
    let mut window = [0; size_of::<u128>()];
    window[..range.len()].copy_from_slice(&bytes[range.clone()]);
    (u128::from_be_bytes(window), range)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The bits, one at a time.
    fn naive(bytes: &[u8]) -> Vec<bool> {
        bytes.iter().flat_map(|byte| (0..8).map(move |at| byte >> (7 - at) & 1 == 1)).collect()
    }

    fn bytes_of(bits: &[bool]) -> Vec<u8> {
        bits.chunks(8)
            .map(|bits| bits.iter().fold(0, |byte, &bit| byte << 1 | u8::from(bit)))
            .collect()
    }

    /// Many bytes are equal, so that whole words can be skipped.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let alike = (prop_oneof![Just(0), Just(u8::MAX), any::<u8>()], 0..40usize)
            .prop_map(|(byte, len)| vec![byte; len]);
        let any = proptest::collection::vec(any::<u8>(), 0..12);
        (alike.clone(), any, alike).prop_map(|parts| [parts.0, parts.1, parts.2].concat())
    }

    /// A range within this many bits.
    fn range(len: usize, ends: (usize, usize)) -> Range<u64> {
        let (a, b) = (ends.0 % (len + 1), ends.1 % (len + 1));
        a.min(b) as u64..a.max(b) as u64
    }

    fn field() -> impl Strategy<Value = Field> {
        (any::<bool>(), 1..=64u32).prop_map(|(signed, bits)| Field {
            signed,
            bits: bits.min(if signed { 64 } else { 63 }),
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn bits_are_found_where_they_are(
            bytes in bytes(), ends in any::<(usize, usize)>(), wanted in any::<bool>(),
        ) {
            let all = naive(&bytes);
            let range = range(all.len(), ends);
            let part = &all[range.start as usize..range.end as usize];
            let ones = part.iter().filter(|bit| **bit).count() as u64;
            prop_assert_eq!(count(&bytes, range.clone()), ones);
            let place = part.iter().position(|&bit| bit == wanted);
            let place = place.map(|at| range.start + at as u64);
            prop_assert_eq!(find(&bytes, range, wanted), place);
        }

        #[test]
        fn one_bit_is_read_and_written(bytes in bytes(), at in 0..2000usize, on in any::<bool>()) {
            let mut all = naive(&bytes);
            prop_assert_eq!(bit(&bytes, at as u64), all.get(at).copied().unwrap_or(false));
            if at < all.len() {
                all[at] = on;
                let mut bytes = bytes;
                set_bit(&mut bytes, at as u64, on);
                prop_assert_eq!(bytes, bytes_of(&all));
            }
        }

        #[test]
        fn values_are_combined_bit_by_bit(
            values in proptest::collection::vec((bytes(), 1..400usize), 1..5),
            which in 0..8usize,
        ) {
            // Some values span several blocks.
            let values: Vec<Vec<u8>> =
                values.into_iter().map(|(bytes, times)| bytes.repeat(times)).collect();
            // From the bit in the first value, and how many of the others have it.
            let (operation, rule): (_, fn(bool, usize, usize) -> bool) = [
                (Operation::And, (|a, n, of| a && n == of) as fn(bool, usize, usize) -> bool),
                (Operation::Or, |a, n, _| a || n > 0),
                (Operation::Xor, |a, n, _| (usize::from(a) + n) % 2 == 1),
                (Operation::Not, |a, _, _| !a),
                (Operation::Diff, |a, n, _| a && n == 0),
                (Operation::Diff1, |a, n, _| !a && n > 0),
                (Operation::AndOr, |a, n, _| a && n > 0),
                (Operation::One, |a, n, _| usize::from(a) + n == 1),
            ][which];
            let values = if operation == Operation::Not { &values[..1] } else { &values };
            let slices: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
            let longest = slices.iter().map(|value| value.len()).max().unwrap_or(0);
            let expected: Vec<u8> = (0..longest)
                .map(|at| {
                    let has = |value: &&[u8], bit: u8| {
                        value.get(at).is_some_and(|byte| byte & bit != 0)
                    };
                    (0..8).map(|shift| 1 << shift).fold(0, |byte, bit| {
                        let others = slices[1..].iter().filter(|value| has(value, bit)).count();
                        let is_on = rule(has(&slices[0], bit), others, slices.len() - 1);
                        byte | if is_on { bit } else { 0 }
                    })
                })
                .collect();
            prop_assert_eq!(combine(operation, &slices), expected);
        }

        #[test]
        fn fields_are_read_and_written(
            bytes in bytes(), field in field(), at in 0..700u64, number in any::<i64>(),
        ) {
            let all = naive(&bytes);
            let bit = |at: u64| u64::from(all.get(at as usize).copied().unwrap_or(false));
            let raw = (at..at + u64::from(field.bits)).fold(0u64, |raw, at| raw << 1 | bit(at));
            let negative = field.signed && raw >> (field.bits - 1) == 1;
            let expected = i128::from(raw) - if negative { 1 << field.bits } else { 0 };
            prop_assert_eq!(i128::from(field.read(&bytes, at)), expected);

            let mut written = bytes.clone();
            written.resize(written.len().max((at + u64::from(field.bits)).div_ceil(8) as usize), 0);
            let mut expected = naive(&written);
            for place in 0..field.bits {
                let bit = number >> (field.bits - 1 - place) & 1;
                expected[at as usize + place as usize] = bit == 1;
            }
            field.write(&mut written, at, number);
            prop_assert_eq!(&written, &bytes_of(&expected));
            let wrapped = field.fit(number.into(), Overflow::Wrap);
            prop_assert_eq!(Some(field.read(&written, at)), wrapped);
        }

        #[test]
        fn numbers_are_made_to_fit(field in field(), number in any::<i64>(), more in any::<i64>()) {
            let sum = i128::from(number) + i128::from(more);
            let (least, most) = field.limits();
            let wrapped = field.fit(sum, Overflow::Wrap).map(i128::from);
            let fits = (least..=most).contains(&sum);
            prop_assert!(wrapped.is_some_and(|number| (least..=most).contains(&number)));
            prop_assert!(wrapped.is_some_and(|number| (number - sum) % (1 << field.bits) == 0));
            prop_assert_eq!(field.fit(sum, Overflow::Fail).map(i128::from), fits.then_some(sum));
            let nearest = sum.max(least).min(most);
            prop_assert_eq!(field.fit(sum, Overflow::Saturate).map(i128::from), Some(nearest));
        }
    }

    #[test]
    fn far_too_small_numbers_saturate_as_in_redis() {
        for (signed, bits, number, expected) in [
            (true, 8, i64::MIN + 128, -128),
            (true, 8, i64::MIN + 127, 127),
            (true, 63, i64::MIN, i64::MAX / 2),
            (true, 64, i64::MIN, i64::MIN),
            (false, 8, -1, 255),
            (false, 63, i64::MIN, i64::MAX),
        ] {
            let field = Field { signed, bits };
            assert_eq!(
                field.fit(field.meant(number), Overflow::Saturate),
                Some(expected),
                "{field:?}"
            );
        }
    }

    #[test]
    fn the_first_bit_is_the_highest() {
        assert_eq!(find(b"\x00\xff\xf0", 0..24, true), Some(8));
        assert_eq!(find(b"\xff\xf0\x00", 0..24, false), Some(12));
        assert_eq!(find(b"\xff\xff", 0..16, false), None);
        assert_eq!((count(b"foobar", 0..48), count(b"foobar", 5..31)), (26, 17));
        assert!(bit(b"\x01", 7) && !bit(b"\x01", 8) && !bit(b"\xff", u64::MAX));
        let field = Field { signed: false, bits: 5 };
        let mut bytes = vec![0; 2];
        field.write(&mut bytes, 7, 23);
        assert_eq!(bytes, [0b0000_0001, 0b0111_0000]);
        assert_eq!(field.read(&bytes, 7), 23);
        assert_eq!(field.read(b"\xff", u64::MAX), 0);
    }
}
