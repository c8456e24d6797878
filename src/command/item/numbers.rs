//! Numbers in memcached's requests, as its own parser reads them.

/// Reads a number as C's strtoull does, but for what memcached refuses: it ends with the text or at
/// a blank, and is not negative.
pub fn unsigned_64(text: &[u8]) -> Option<u64> {
    if let Some(number) = few_digits(text) {
        return Some(number.into());
    }
    let (is_negative, digits) = sign_and_digits(text)?;
    let number: u64 = digits.parse().ok()?;
    let number = if is_negative { number.wrapping_neg() } else { number };
    (!is_negative || number as i64 >= 0).then_some(number)
}

/// Reads a number of 32 bits as memcached does: higher bits are cut off.
pub fn unsigned_32(text: &[u8]) -> Option<u32> {
    unsigned_64(text).map(|number| number as u32)
}

/// Reads a number of 32 bits with a sign as memcached does: higher bits are cut off.
pub fn signed_32(text: &[u8]) -> Option<i32> {
    if let Some(number) = few_digits(text) {
        return Some(number as i32);
    }
    let (is_negative, digits) = sign_and_digits(text)?;
    let number: i128 = digits.parse().ok()?;
    let number = i64::try_from(if is_negative { -number } else { number });
    number.ok().map(|number| number as i32)
}

/// A number of one to nine digits, as nearly all are; `None` if the text is something else.
#[inline]
fn few_digits(text: &[u8]) -> Option<u32> {
    if text.is_empty() || text.len() > 9 {
        return None;
    }
    let mut number = 0;
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number * 10 + u32::from(digit);
    }
    Some(number)
}

#[cold]
fn sign_and_digits(text: &[u8]) -> Option<(bool, &str)> {
    let start = text.iter().position(|&byte| !is_blank(byte))?;
    let text = &text[start..];
    let (is_negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let end = text.iter().position(|&byte| is_blank(byte)).unwrap_or(text.len());
    let digits = &text[..end];
    let are_digits = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    are_digits
        .then(|| std::str::from_utf8(digits).ok())
        .flatten()
        .map(|digits| (is_negative, digits))
}

/// As C's isspace.
fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_of_64_bits_without_a_sign() {
        for (value, number) in [
            (&b"0"[..], Some(0)),
            (b"18446744073709551615", Some(u64::MAX)),
            (b"18446744073709551616", None),
            (b"007", Some(7)),
            (b"999999999", Some(999_999_999)),
            (b"1000000000", Some(1_000_000_000)),
            (b"00000000000000000000012", Some(12)),
            (b"7/", None),
            (b"7:", None),
            (b"7  ", Some(7)),
            (b"7 x", Some(7)),
            (b"\x0b7\x0b", Some(7)),
            (b" +7", Some(7)),
            (b"-7", None),
            (b"7x", None),
            (b"", None),
            (b" ", None),
            (b"+-7", None),
        ] {
            assert_eq!(unsigned_64(value), number, "{}", value.escape_ascii());
        }
        assert_eq!(unsigned_32(b"4294967297"), Some(1));
        assert_eq!(
            (signed_32(b"999999999"), signed_32(b"2147483648")),
            (Some(999_999_999), Some(i32::MIN))
        );
        assert_eq!(
            (signed_32(b"-1"), signed_32(b"+12"), signed_32(b"x")),
            (Some(-1), Some(12), None)
        );
        assert_eq!(
            (signed_32(b"-9223372036854775808"), signed_32(b"9223372036854775808")),
            (Some(0), None)
        );
    }
}
