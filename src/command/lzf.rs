//! LZF, the compression of strings in Redis's dump format. Implemented from the format:
//!
//! ```text
//! 000LLLLL                     L + 1 literal bytes follow
//! LLLDDDDD DDDDDDDD            copy L + 2 bytes from D + 1 back; L is 1 to 6
//! 111DDDDD LLLLLLLL DDDDDDDD   copy L + 9 bytes from D + 1 back
//! ```
//!
//! The format leaves the choice of matches to the packer. This one decides as Redis's does, so both
//! produce the same bytes: where it looks for an earlier match, which positions it remembers, how
//! far it goes at the end. Redis's may find a little more, because it does not clear the table that
//! an earlier call left.

/// Packing must save at least this many bytes, or it is not done.
const LEAST_SAVED: usize = 4;

/// The number of remembered positions, one for each value of a hash of three bytes.
const SLOTS: usize = 1 << 16;

const MAX_LITERALS: usize = 1 << 5;
const MAX_DISTANCE: usize = 1 << 13;
const MAX_LENGTH: usize = (1 << 8) + (1 << 3);

/// The minimum length of a match.
const MIN_LENGTH: usize = 3;

/// Unpacks to exactly `len` bytes. `None` if the packed bytes are invalid. The caller has checked
/// that this many bytes may be allocated; see [`may_unpack_to`].
pub(super) fn unpack(packed: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut text = Vec::with_capacity(len);
    let mut rest = packed.iter();
    while let Some(&control) = rest.next() {
        let (high, low) = (usize::from(control >> 5), usize::from(control & 0x1f));
        if high == 0 {
            let (literals, after) = rest.as_slice().split_at_checked(low + 1)?;
            text.extend_from_slice(literals);
            rest = after.iter();
        } else {
            let longer = if high == 7 { usize::from(*rest.next()?) } else { 0 };
            let distance = (low << 8 | usize::from(*rest.next()?)) + 1;
            copy_back(&mut text, distance, high + longer + 2)?;
        }
        if text.len() > len {
            return None;
        }
    }
    (text.len() == len).then_some(text)
}

/// Whether `packed` bytes can unpack to `len` bytes. A payload that claims more is refused before
/// memory is allocated.
pub(super) fn may_unpack_to(packed: usize, len: u64) -> bool {
    len <= (packed / 3 + 1) as u64 * MAX_LENGTH as u64
}

/// Repeats `len` bytes from `distance` back. The source may overlap the bytes that are being
/// written.
fn copy_back(text: &mut Vec<u8>, distance: usize, len: usize) -> Option<()> {
    let from = text.len().checked_sub(distance)?;
    let mut left = len;
    while left > 0 {
        let now = left.min(text.len() - from);
        text.extend_from_within(from..from + now);
        left -= now;
    }
    Some(())
}

/// Packs texts, each on its own, with one table of remembered positions. To clear that for each
/// text would take longer than to pack a short one.
#[derive(Debug, Default)]
pub(super) struct Packer {
    /// Counted from `base`. What is not above that is of an earlier text, or none.
    places: Vec<u32>,
    base: u32,
}

impl Packer {
    /// Packs a text; `None` if that saves too little, or if the text has 4 GiB or more.
    pub(super) fn pack(&mut self, text: &[u8]) -> Option<Vec<u8>> {
        let len = u32::try_from(text.len()).ok()?;
        if self.places.is_empty() || self.base.checked_add(len).is_none() {
            self.places = vec![0; SLOTS];
            self.base = 0;
        }
        let packed = self.packed(text);
        self.base += len;
        packed
    }

    fn packed(&mut self, text: &[u8]) -> Option<Vec<u8>> {
        let room = text.len().checked_sub(LEAST_SAVED).filter(|&room| room > 0)?;
        let mut packed = Packed { bytes: Vec::with_capacity(room), room, literals: 0 };
        packed.bytes.push(0);
        let mut at = 0;
        while at + 2 < text.len() {
            let earlier = self.remember(text, at);
            match match_len(text, earlier, at) {
                Some(len) => {
                    packed.reference(at - earlier, len)?;
                    at += len;
                    if at + 2 >= text.len() {
                        break;
                    }
                    // Of the positions within the match, only the last two are remembered.
                    for place in [at - 2, at - 1] {
                        self.remember(text, place);
                    }
                }
                None => {
                    packed.literal(text[at])?;
                    at += 1;
                }
            }
        }
        packed.end(&text[at..])
    }

    /// Remembers a position, and returns that of the same three bytes before it. Position 0 means
    /// none: Redis's packer does not refer to the first byte either.
    fn remember(&mut self, text: &[u8], at: usize) -> usize {
        let place = &mut self.places[slot(text, at)];
        let earlier = std::mem::replace(place, self.base + at as u32);
        earlier.saturating_sub(self.base) as usize
    }
}

/// The slot of the table for the three bytes at `at`.
fn slot(text: &[u8], at: usize) -> usize {
    let three = u32::from_be_bytes([0, text[at], text[at + 1], text[at + 2]]);
    (three >> 8).wrapping_sub(three.wrapping_mul(5)) as usize & (SLOTS - 1)
}

/// The length of the match of the bytes at `earlier` and at `at`; `None` if it is too short.
fn match_len(text: &[u8], earlier: usize, at: usize) -> Option<usize> {
    if earlier == 0 || at - earlier > MAX_DISTANCE || text[earlier..earlier + 3] != text[at..at + 3]
    {
        return None;
    }
    // As in Redis, a match stops two bytes before the end, unless it is still short.
    let left = (text.len() - at - 2).min(MAX_LENGTH);
    let most = if left > 16 { left.max(19) } else { left };
    let differs = (MIN_LENGTH..most).find(|&ahead| text[earlier + ahead] != text[at + ahead]);
    Some(differs.unwrap_or(most.max(MIN_LENGTH)))
}

/// The packed bytes so far. They end with a run of literals, possibly empty, whose first byte does
/// not have its length yet.
struct Packed {
    bytes: Vec<u8>,
    room: usize,
    literals: usize,
}

impl Packed {
    fn literal(&mut self, byte: u8) -> Option<()> {
        if self.bytes.len() >= self.room {
            return None;
        }
        self.push_literal(byte);
        Some(())
    }

    fn push_literal(&mut self, byte: u8) {
        self.bytes.push(byte);
        self.literals += 1;
        if self.literals == MAX_LITERALS {
            self.close_run();
            self.bytes.push(0);
        }
    }

    /// Writes the length of the run into its first byte; removes an empty run.
    fn close_run(&mut self) {
        if self.literals == 0 {
            self.bytes.pop();
        } else {
            let head = self.bytes.len() - self.literals - 1;
            self.bytes[head] = (self.literals - 1) as u8;
        }
        self.literals = 0;
    }

    fn reference(&mut self, distance: usize, len: usize) -> Option<()> {
        if self.bytes.len() - usize::from(self.literals == 0) + 4 >= self.room {
            return None;
        }
        self.close_run();
        let (distance, len) = (distance - 1, len - 2);
        let high = (distance >> 8) as u8;
        if len < 7 {
            self.bytes.push(high | (len as u8) << 5);
        } else {
            self.bytes.extend([high | 7 << 5, (len - 7) as u8]);
        }
        self.bytes.extend([distance as u8, 0]);
        Some(())
    }

    fn end(mut self, rest: &[u8]) -> Option<Vec<u8>> {
        if self.bytes.len() + 3 > self.room {
            return None;
        }
        rest.iter().for_each(|&byte| self.push_literal(byte));
        self.close_run();
        Some(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pack(text: &[u8]) -> Option<Vec<u8>> {
        Packer::default().pack(text)
    }

    #[test]
    fn known_bytes() {
        // The first was made by Redis 7.0.15.
        let packed = pack(&[b'a'; 100]).expect("packs well");
        assert_eq!(packed, [1, b'a', b'a', 0xe0, 87, 0, 1, b'a', b'a']);
        assert_eq!(unpack(&packed, 100), Some(vec![b'a'; 100]));
        assert_eq!(unpack(&packed, 99), None);
        assert_eq!(unpack(&packed, 101), None);
        assert_eq!(pack(b"abcdefghijklmnopqrstuvwxyz"), None);
        assert_eq!(pack(b""), None);
    }

    #[test]
    fn damaged_bytes_are_refused() {
        for packed in [
            &[0][..],
            &[3, b'a', b'b', b'c'],
            &[0x20],
            &[0x20, 0],
            &[0, b'a', 0x20, 1],
            &[0, b'a', 0xe0],
            &[0, b'a', 0xe0, 0],
            &[0, b'a', 0x3f, 0xff],
        ] {
            assert_eq!(unpack(packed, 4), None, "{packed:?}");
        }
    }

    #[test]
    fn lengths_keep_to_their_bound() {
        let longest = [&[0, b'a'][..], &[0xe0, 255, 0].repeat(50)].concat();
        assert_eq!(unpack(&longest, 1 + 50 * MAX_LENGTH).map(|text| text.len()), Some(13_201));
        assert!(may_unpack_to(longest.len(), 13_201));
        assert!(!may_unpack_to(longest.len(), 14_000));
        assert!(!may_unpack_to(0, u64::MAX));
    }

    /// Texts that pack well, in pieces of many lengths.
    fn text() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            (any::<u8>(), 0..300usize).prop_map(|(byte, len)| vec![byte; len]),
            (0..5usize, 1..60usize)
                .prop_map(|(step, len)| (0..len).map(|at| (at * step) as u8).collect()),
            proptest::collection::vec(0..4u8, 0..40),
            proptest::collection::vec(any::<u8>(), 0..40),
        ];
        proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    #[test]
    fn no_text_depends_on_another() {
        let mut packer = Packer { base: u32::MAX - 100, ..Packer::default() };
        packer.places = vec![0; SLOTS];
        for text in [[b'a'; 60], [b'a'; 60], [b'b'; 60], [b'a'; 60]] {
            assert_eq!(packer.pack(&text), pack(&text));
        }
        assert_eq!(packer.base, 180);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn packers_clear_what_they_remember(texts in proptest::collection::vec(text(), 1..4)) {
            let mut packer = Packer::default();
            for text in texts {
                prop_assert_eq!(packer.pack(&text), pack(&text));
            }
        }

        #[test]
        fn packed_texts_come_back(text in text()) {
            if let Some(packed) = pack(&text) {
                prop_assert!(packed.len() + LEAST_SAVED <= text.len());
                prop_assert!(may_unpack_to(packed.len(), text.len() as u64));
                prop_assert_eq!(unpack(&packed, text.len()), Some(text));
            }
        }

        #[test]
        fn any_bytes_are_unpacked_or_refused(packed: Vec<u8>, len in 0..2000usize) {
            if let Some(text) = unpack(&packed, len) {
                prop_assert_eq!(text.len(), len);
                prop_assert!(may_unpack_to(packed.len(), len as u64));
            }
        }
    }
}
