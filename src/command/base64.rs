//! Base64, as memcached's meta commands have keys in it.

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A byte that is no letter of base64.
const NO_LETTER: u8 = 0xff;

/// The number of each letter; `=` counts as 0.
const NUMBERS: [u8; 256] = {
    let mut numbers = [NO_LETTER; 256];
    let mut number = 0;
    while number < LETTERS.len() {
        numbers[LETTERS[number] as usize] = number as u8;
        number += 1;
    }
    numbers[b'=' as usize] = 0;
    numbers
};

/// Appends bytes in base64.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let number = bits >> (18 - 6 * at) & 63;
            out.push(if at > three.len() { b'=' } else { LETTERS[number as usize] });
        }
    }
}

/// The bytes of a text in base64. As memcached does it passes over what is no letter, and ends at
/// the first four letters that have a `=`. `None` if that gives no bytes, or letters are missing.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let letters: Vec<u8> =
        text.iter().copied().filter(|&byte| NUMBERS[byte as usize] != NO_LETTER).collect();
    let (fours, []) = letters.as_chunks::<4>() else { return None };
    let mut bytes = Vec::with_capacity(letters.len() / 4 * 3);
    for four in fours {
        let bits =
            four.iter().fold(0, |bits, &letter| bits << 6 | u32::from(NUMBERS[letter as usize]));
        let filled = four.iter().filter(|&&letter| letter == b'=').count();
        if filled > 2 {
            return None;
        }
        bytes.extend_from_slice(&bits.to_be_bytes()[1..4 - filled]);
        if filled > 0 {
            break;
        }
    }
    (!bytes.is_empty()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        for (bytes, text) in [
            (&b"f"[..], &b"Zg=="[..]),
            (b"fo", b"Zm8="),
            (b"foo", b"Zm9v"),
            (b"foob", b"Zm9vYg=="),
            (b"\x00\xff \n", b"AP8gCg=="),
            (b"\xfb\xef\xff", b"++//"),
        ] {
            let mut encoded = Vec::new();
            encode(bytes, &mut encoded);
            assert_eq!(encoded, text);
            assert_eq!(decode(text).as_deref(), Some(bytes));
        }
    }

    #[test]
    fn what_is_no_base64_is_told() {
        for text in [&b""[..], b"Zm9", b"Z", b"====", b"Z===", b"-_-_", b"Zm9vZ"] {
            assert_eq!(decode(text), None, "{}", text.escape_ascii());
        }
        assert_eq!(decode(b"Z!m-9v").as_deref(), Some(&b"foo"[..]));
        assert_eq!(decode(b"Zg==Zm9v").as_deref(), Some(&b"f"[..]));
    }
}
