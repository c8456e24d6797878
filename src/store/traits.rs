//! What is known of a value besides its bytes: how it came about, and what memcached keeps of an
//! item.
//!
//! Most values have nothing but an origin, which is in the entry's first byte. The others have a
//! few bytes behind their value:
//!
//! ```text
//! which 1 │ flags 0 or 4 │ number 0 or 8
//! ```

use super::Origin;

/// What is known of a value besides its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// How it came about.
    pub origin: Origin,
    /// The flags of a memcached item, which only its clients understand.
    pub flags: u32,
    /// A memcached client has marked it as out of date.
    pub stale: bool,
    /// A memcached client was told to renew it.
    pub won: bool,
    /// The number of its last change (CAS), if somebody has asked since; 0 if not.
    pub number: u64,
}

impl From<Origin> for Traits {
    fn from(origin: Origin) -> Self {
        Traits { origin, ..Traits::default() }
    }
}

const EDITED: u8 = 1 << 0;
const COMPUTED: u8 = 1 << 1;
const HAS_FLAGS: u8 = 1 << 2;
const HAS_NUMBER: u8 = 1 << 3;
const STALE: u8 = 1 << 4;
const WON: u8 = 1 << 5;

/// The most bytes that they take behind a value.
const MOST_BYTES: usize = 1 + size_of::<u32>() + size_of::<u64>();

/// Traits as they stand behind a value.
pub(super) type WrittenTraits = arrayvec::ArrayVec<u8, MOST_BYTES>;

impl Traits {
    /// Whether there is no more than an origin.
    #[inline]
    pub fn are_plain(&self) -> bool {
        Traits::from(self.origin) == *self
    }

    /// Whether the log has no more of them than an origin: numbers are not logged.
    #[inline]
    pub fn are_logged_plain(&self) -> bool {
        self.flags == 0 && !self.are_marked()
    }

    /// Whether a client has marked the value. A change of a part takes the marks away, so the log
    /// then has the whole value.
    #[inline]
    pub(super) fn are_marked(&self) -> bool {
        self.stale || self.won
    }

    /// Those that stay when a part of the value changes.
    pub(super) fn after_part(self) -> Self {
        Traits { stale: false, won: false, number: 0, ..self }
    }

    /// Their bytes behind the value; none if they are plain.
    pub(super) fn written(self) -> WrittenTraits {
        let mut bytes = WrittenTraits::new();
        if self.are_plain() {
            return bytes;
        }
        let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let origin = match self.origin {
            Origin::Given => 0,
            Origin::Edited => EDITED,
            Origin::Computed => COMPUTED,
        };
        bytes.push(
            origin
                | bit(self.flags != 0, HAS_FLAGS)
                | bit(self.number != 0, HAS_NUMBER)
                | bit(self.stale, STALE)
                | bit(self.won, WON),
        );
        if self.flags != 0 {
            bytes.extend(self.flags.to_le_bytes());
        }
        if self.number != 0 {
            bytes.extend(self.number.to_le_bytes());
        }
        bytes
    }

    /// How many bytes they take, as the first of them says.
    pub(super) fn bytes_from(which: u8) -> usize {
        let flags = if which & HAS_FLAGS != 0 { size_of::<u32>() } else { 0 };
        let number = if which & HAS_NUMBER != 0 { size_of::<u64>() } else { 0 };
        1 + flags + number
    }

    /// Those that [`Traits::written`] has made these bytes of.
    pub(super) fn read(bytes: &[u8]) -> Self {
        let Some((&which, mut rest)) = bytes.split_first() else { return Traits::default() };
        let mut traits = Traits {
            origin: match which & (EDITED | COMPUTED) {
                0 => Origin::Given,
                EDITED => Origin::Edited,
                _ => Origin::Computed,
            },
            stale: which & STALE != 0,
            won: which & WON != 0,
            ..Traits::default()
        };
        if which & HAS_FLAGS != 0
            && let Some((flags, behind)) = rest.split_first_chunk()
        {
            (traits.flags, rest) = (u32::from_le_bytes(*flags), behind);
        }
        if which & HAS_NUMBER != 0
            && let Some((number, _)) = rest.split_first_chunk()
        {
            traits.number = u64::from_le_bytes(*number);
        }
        traits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for origin in [Origin::Given, Origin::Edited, Origin::Computed] {
            for (flags, number) in [(0, 0), (1, 0), (u32::MAX, u64::MAX), (0, 1)] {
                for (stale, won) in [(false, false), (true, false), (true, true), (false, true)] {
                    let traits = Traits { origin, flags, stale, won, number };
                    let bytes = traits.written();
                    assert_eq!(bytes.is_empty(), traits.are_plain());
                    if let Some(which) = bytes.first() {
                        assert_eq!(Traits::bytes_from(*which), bytes.len());
                        assert_eq!(Traits::read(&bytes), traits);
                    }
                }
            }
        }
    }
}
