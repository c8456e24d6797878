//! The slots of a cluster: which one a key belongs to, as in Redis's cluster specification.

use super::{Args, Error, parse_integer};

/// How many slots a cluster has.
pub const SLOTS: usize = 16_384;

/// CRC16 of each byte: polynomial 0x1021, the highest bit first (XMODEM).
static TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// The slot of a key. If it has a hash tag, only that counts: the bytes between the first `{` and
/// the next `}`, unless there are none.
pub fn slot_of(key: &[u8]) -> u16 {
    let step = |crc: u16, byte: &u8| crc << 8 ^ TABLE[usize::from(crc >> 8 ^ u16::from(*byte))];
    tag(key).unwrap_or(key).iter().fold(0, step) % SLOTS as u16
}

fn tag(key: &[u8]) -> Option<&[u8]> {
    let behind = &key[key.iter().position(|&byte| byte == b'{')? + 1..];
    let tag = &behind[..behind.iter().position(|&byte| byte == b'}')?];
    (!tag.is_empty()).then_some(tag)
}

/// The name of two bytes that has this slot: each CRC belongs to one such name.
pub fn name_in(slot: u16) -> [u8; 2] {
    // The CRC is made of two values of the table, and no two of these end with the same byte.
    let ending_with = |low: u8| TABLE.iter().position(|crc| *crc as u8 == low).unwrap_or(0);
    let last = ending_with(slot as u8);
    let first = ending_with(((slot ^ TABLE[last]) >> 8) as u8);
    [first as u8, last as u8 ^ (TABLE[first] >> 8) as u8]
}

/// The slot that argument `at` names.
///
/// # Errors
/// Those of the host's CLUSTER COUNTKEYSINSLOT.
pub fn slot_arg(args: &Args<'_>, at: usize) -> Result<u16, Error> {
    args.integer(at)?;
    slot_of_text(args.get(at)).ok_or(Error::InvalidSlot)
}

/// The slot that a text names; `None` if it names none.
pub fn slot_of_text(text: &[u8]) -> Option<u16> {
    let slot = u16::try_from(parse_integer(text)?).ok()?;
    (usize::from(slot) < SLOTS).then_some(slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slot_has_a_name() {
        for slot in 0..SLOTS as u16 {
            assert_eq!(slot_of(&name_in(slot)), slot);
            // NULs in front change nothing.
            assert_eq!(slot_of(&[&[0; 16], &name_in(slot)[..]].concat()), slot);
        }
    }

    #[test]
    fn slots_are_those_of_redis() {
        // CLUSTER KEYSLOT of Redis 7.0.
        for (key, slot) in [
            ("", 0),
            ("123456789", 0x31c3),
            ("foo", 12182),
            ("bar", 5061),
            ("{foo}bar", 12182),
            ("bar{foo}{bar}", 12182),
            ("{foo", 13308),
            ("foo{}{bar}", 8363),
            ("{user1000}.following", 3443),
            ("{user1000}.followers", 3443),
            ("foo{{bar}}zap", 4015),
        ] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }
}
