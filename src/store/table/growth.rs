//! How a table grows.

use smallvec::SmallVec;

use super::super::hash::{KeyHash, KeyHasher};
use super::super::segment::{MAX_BUCKET_BITS, Segment};
use super::{MAX_DEPTH, NO_SEGMENT, Table};
use crate::limits::GROWTH_DIVISOR;

/// How many directory bits a split adds at most, where more keys are expected: an expectation that
/// is wrong then costs no more than 64 KiB for 256 keys.
const MAX_SPLIT_BITS: u8 = 5;

impl Table {
    /// The most that the buffer of a key's value may take, if it has one of its own: the value, and
    /// room to grow. A change may have moved it whole, although the value has hardly grown.
    pub fn most_of_buffer(&self, hash: KeyHash, key: &[u8]) -> usize {
        let value = self.find(hash, key).and_then(|found| self.entry(found).shared_value());
        let bytes = value.map_or(0, |value| value.bytes().len());
        bytes + bytes / GROWTH_DIVISOR
    }

    /// Says about how many keys the table will have. It then grows in few large steps towards that
    /// size, each of which costs no more than the keys that are there justify.
    pub fn presize(&mut self, keys: usize) {
        self.expected = keys.try_into().unwrap_or(u32::MAX);
    }

    /// Doubles a small segment, splits a full-grown one.
    pub(super) fn grow(&mut self, hasher: &KeyHasher, at: usize) {
        let segment = &self.segments[at];
        let (bucket_bits, depth) = (segment.bucket_bits() + 1, segment.depth);
        let expected = self.expected as usize;
        // Only a failing hash gives keys that share all directory bits; then segments outgrow their
        // usual size instead.
        if bucket_bits <= MAX_BUCKET_BITS || depth == MAX_DEPTH {
            self.resize(hasher, at, bucket_bits.max(Segment::bucket_bits_for(expected >> depth)));
        } else {
            let most = MAX_SPLIT_BITS.min(MAX_DEPTH - depth);
            let is_enough =
                |bits: &u8| expected >> (depth + bits) <= Segment::capacity(MAX_BUCKET_BITS);
            self.split(hasher, at, (1..most).find(is_enough).unwrap_or(most));
        }
    }

    /// Splits a segment in 2^`bits`.
    fn split(&mut self, hasher: &KeyHasher, at: usize, bits: u8) {
        let (start, depth) = (self.segments[at].start, self.segments[at].depth + bits);
        while self.depth < depth {
            self.double_directory();
        }
        let width_bits = 32 - depth;
        let mut parts: SmallVec<[Segment; 2]> = (0..1 << bits)
            .map(|part: u32| Segment::new(start + (part << width_bits), depth, MAX_BUCKET_BITS))
            .collect();
        for entry in self.segments[at].drain() {
            let hash = hasher.hash(entry.0.key());
            parts[((hash.order() - start) >> width_bits) as usize].insert(hash, entry);
        }
        if depth == self.depth {
            self.deepest += 1 << bits;
        }
        let mut parts = parts.into_iter();
        self.segments[at] = parts.next().unwrap_or_else(Segment::unused);
        for part in parts {
            self.census.bytes += part.bytes();
            let place = self.add_segment(part);
            self.point_cells_to(place);
        }
    }

    /// Stores a segment, and says where.
    fn add_segment(&mut self, new: Segment) -> u32 {
        match self.unused {
            NO_SEGMENT => {
                self.segments.push(new);
                self.segments.len() as u32 - 1
            }
            place => {
                self.unused = std::mem::replace(&mut self.segments[place as usize], new).start;
                place
            }
        }
    }
}
