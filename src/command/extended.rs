//! Numbers as INCRBYFLOAT computes them: extended precision with 64 bits of significand, as C's
//! `long double` on x86, which Redis uses.

use std::cmp::Ordering;

use num_bigint::BigUint;

use super::args::split_sign;

/// Longer texts are not numbers: Redis copies a text to a buffer of 5 KiB first.
const MAX_TEXT_BYTES: usize = 5 * 1024 - 1;

/// The exponents of the last bit of the significand: of the smallest numbers and of the largest.
const LOWEST: i64 = -16_445;
const HIGHEST: i64 = 16_320;

/// Decimal exponents of the first digit: above the first one every number is too large; below the
/// second one every number is nearer to zero than to the smallest number.
const LARGEST_DECIMAL: i64 = 4932;
const SMALLEST_DECIMAL: i64 = -4951;

/// An exponent far beyond all of these, to which parsed exponents are clamped.
const FAR: i64 = 1 << 32;

/// Fraction digits that Redis prints.
const FRACTION_DIGITS: usize = 17;
const FRACTION_UNIT: u128 = 10u128.pow(FRACTION_DIGITS as u32);

/// A number that strtold accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extended {
    /// `inf` or `infinity`, with any sign.
    Infinite,
    /// Any other number.
    Finite(Finite),
}

/// `significand × 2^exponent`. The first bit of the significand is set, except at the lowest
/// exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Finite {
    negative: bool,
    significand: u64,
    exponent: i64,
}

impl Extended {
    /// Zero, the value of a missing key.
    pub(super) const ZERO: Extended = Extended::Finite(Finite::ZERO);

    /// Reads a number as strtold does, with the conditions of Redis's string2ld: nothing before or
    /// after it, and neither overflow nor underflow.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > MAX_TEXT_BYTES {
            return None;
        }
        let (negative, text) = split_sign(text);
        if text.eq_ignore_ascii_case(b"inf") || text.eq_ignore_ascii_case(b"infinity") {
            return Some(Extended::Infinite);
        }
        let finite = match text {
            [b'0', b'x' | b'X', rest @ ..] => Numeral::parse(rest, 16, b'p')?.hexadecimal(negative),
            _ => Numeral::parse(text, 10, b'e')?.decimal(negative),
        };
        finite.map(Extended::Finite)
    }

    /// The sum, rounded to the nearest number; `None` if it is not finite.
    pub(super) fn plus(self, other: Extended) -> Option<Finite> {
        match (self, other) {
            (Extended::Finite(a), Extended::Finite(b)) => a.plus(b),
            _ => None,
        }
    }
}

/// A parsed number: the values of its digits without leading and trailing zeros, an integer times a
/// power of the radix or of two.
struct Numeral {
    digits: Vec<u8>,
    /// Digits after the point, less those cut off at the end.
    fraction: i64,
    exponent: i64,
}

impl Numeral {
    /// Digits with at most one point, then perhaps `mark` and an exponent.
    fn parse(text: &[u8], radix: u32, mark: u8) -> Option<Self> {
        let end = text.iter().position(|byte| byte.eq_ignore_ascii_case(&mark));
        let exponent = end.map_or(Some(0), |end| parse_exponent(&text[end + 1..]))?;
        let text = &text[..end.unwrap_or(text.len())];
        let point = text.iter().position(|&byte| byte == b'.');
        let (whole, fraction) = point.map_or((text, &[][..]), |at| (&text[..at], &text[at + 1..]));
        let value = |&byte: &u8| char::from(byte).to_digit(radix).map(|value| value as u8);
        let mut digits = whole.iter().chain(fraction).map(value).collect::<Option<Vec<u8>>>()?;
        if digits.is_empty() {
            return None;
        }
        let mut fraction = fraction.len() as i64;
        while digits.pop_if(|digit| *digit == 0).is_some() {
            fraction -= 1;
        }
        let zeros = digits.iter().take_while(|&&digit| digit == 0).count();
        digits.drain(..zeros);
        Some(Numeral { digits, fraction, exponent })
    }

    /// The digits as one number; `None` if it is zero.
    fn whole(&self, radix: u32) -> Option<BigUint> {
        BigUint::from_radix_be(&self.digits, radix).filter(|_| !self.digits.is_empty())
    }

    fn hexadecimal(&self, negative: bool) -> Option<Finite> {
        let Some(whole) = self.whole(16) else { return Some(Finite::ZERO) };
        nearest(negative, &whole, false, self.exponent - 4 * self.fraction)
    }

    fn decimal(&self, negative: bool) -> Option<Finite> {
        let Some(whole) = self.whole(10) else { return Some(Finite::ZERO) };
        let power = self.exponent - self.fraction;
        let first = power + self.digits.len() as i64 - 1;
        if !(SMALLEST_DECIMAL..=LARGEST_DECIMAL).contains(&first) {
            return None;
        }
        let scale = BigUint::from(10u32).pow(power.unsigned_abs() as u32);
        if power >= 0 {
            return nearest(negative, &(whole * scale), false, 0);
        }
        // The quotient has enough bits to round it; of the remainder it only matters whether it is
        // zero.
        let shift = (100 + scale.bits()).saturating_sub(whole.bits());
        let shifted = whole << shift;
        let quotient = &shifted / &scale;
        let lost = &quotient * scale != shifted;
        nearest(negative, &quotient, lost, -(shift as i64))
    }
}

/// A sign and at least one digit.
fn parse_exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = split_sign(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number =
        digits.iter().fold(0, |number, digit| (number * 10 + i64::from(digit - b'0')).min(FAR));
    Some(if negative { -number } else { number })
}

/// The number nearest to `whole × 2^exponent`, which is not zero; with `lost` the exact value is a
/// little larger. `None` if the number overflows or underflows to zero.
fn nearest(negative: bool, whole: &BigUint, lost: bool, exponent: i64) -> Option<Finite> {
    let cut = whole.bits().saturating_sub(128);
    let lost = lost || whole.trailing_zeros().is_some_and(|zeros| zeros < cut);
    let high = u128::try_from(whole >> cut).unwrap_or(u128::MAX);
    rounded(negative, high, lost, exponent + cut as i64).filter(|finite| finite.significand != 0)
}

/// `magnitude × 2^exponent`, rounded to the nearest number, ties to even; `None` if it overflows.
/// With `lost` the exact magnitude, of at least 66 bits, is a little larger.
fn rounded(negative: bool, magnitude: u128, lost: bool, exponent: i64) -> Option<Finite> {
    if magnitude == 0 {
        return Some(Finite::ZERO);
    }
    let bits = i64::from(128 - magnitude.leading_zeros());
    let mut shift = (bits - 64).max(LOWEST - exponent);
    let mut significand = if shift <= 0 {
        magnitude << -shift
    } else if shift > bits {
        0
    } else {
        let kept = magnitude.checked_shr(shift as u32).unwrap_or(0);
        let half = 1u128 << (shift - 1);
        let rest = magnitude & (half | (half - 1));
        let up = rest > half || rest == half && (lost || kept % 2 == 1);
        kept + u128::from(up)
    };
    if significand > u128::from(u64::MAX) {
        significand >>= 1;
        shift += 1;
    }
    let exponent = exponent + shift;
    (exponent <= HIGHEST).then_some(Finite { negative, significand: significand as u64, exponent })
}

impl Finite {
    /// Zero; there is no negative one.
    pub(super) const ZERO: Self = Finite { negative: false, significand: 0, exponent: LOWEST };
    /// One.
    pub(super) const ONE: Self = Finite { negative: false, significand: 1 << 63, exponent: -63 };
    /// The largest number.
    pub(super) const LARGEST: Self =
        Finite { negative: false, significand: u64::MAX, exponent: HIGHEST };

    /// The number with the other sign.
    pub(super) const fn negated(self) -> Self {
        Finite { negative: !self.negative && self.significand != 0, ..self }
    }

    /// The sum, rounded to the nearest number; `None` if it is not finite.
    pub(super) fn plus(self, other: Finite) -> Option<Finite> {
        let size = |number: Finite| (number.exponent, number.significand);
        let (large, small) = if size(self) >= size(other) { (self, other) } else { (other, self) };
        if small.significand == 0 {
            return Some(large);
        }
        // Both get as many bits below the last one as rounding the sum can need.
        let distance = u32::try_from(large.exponent - small.exponent).unwrap_or(u32::MAX);
        let (a, b) = (u128::from(large.significand) << 62, u128::from(small.significand) << 62);
        let aligned = b.checked_shr(distance).unwrap_or(0);
        let lost = aligned.checked_shl(distance) != Some(b);
        let sum = if large.negative == small.negative {
            a + aligned
        } else {
            a - aligned - u128::from(lost)
        };
        rounded(large.negative, sum, lost, large.exponent - 62)
    }

    /// The text as printf's `%.17Lf` writes it, without trailing zeros.
    pub(super) fn text(self) -> String {
        let sign = if self.negative { "-" } else { "" };
        if self.exponent >= 0 {
            return format!("{sign}{}", BigUint::from(self.significand) << self.exponent);
        }
        match self.fraction_units() {
            0 => "0".into(),
            units => {
                let (whole, fraction) = (units / FRACTION_UNIT, units % FRACTION_UNIT);
                let text = format!("{sign}{whole}.{fraction:0FRACTION_DIGITS$}");
                text.trim_end_matches('0').trim_end_matches('.').into()
            }
        }
    }

    /// The number in units of the last printed digit, rounded to nearest, ties to even. For numbers
    /// with bits after the point.
    fn fraction_units(self) -> u128 {
        let shift = (-self.exponent) as u32;
        let units = u128::from(self.significand) * FRACTION_UNIT;
        // All units are below 2^121.
        if shift > 121 {
            return 0;
        }
        let half = 1u128 << (shift - 1);
        let (kept, rest) = (units >> shift, units & (half | (half - 1)));
        kept + u128::from(rest > half || rest == half && kept % 2 == 1)
    }
}

impl Ord for Finite {
    fn cmp(&self, other: &Self) -> Ordering {
        // The first bit of the significand is set, so the exponent decides first.
        let size = |number: &Finite| (number.exponent, number.significand);
        match (self.negative, other.negative) {
            (false, false) => size(self).cmp(&size(other)),
            (true, true) => size(other).cmp(&size(self)),
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
        }
    }
}

impl PartialOrd for Finite {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(a: &str, b: &str) -> String {
        let (a, b) = (Extended::parse(a.as_bytes()), Extended::parse(b.as_bytes()));
        match (a, b) {
            (Some(a), Some(b)) => a.plus(b).map_or("not finite".into(), Finite::text),
            _ => "not a number".into(),
        }
    }

    #[test]
    fn sums_as_the_x87_makes_them() {
        for (a, b, expected) in [
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("0", "0", "0"),
            ("-0", "-0", "0"),
            ("1", "-1.0000000000000000001", "0"),
            ("3", "-1e-30", "3"),
            ("1e-17", "0", "0.00000000000000001"),
            ("4e-18", "0", "0"),
            ("-4e-18", "0", "0"),
            ("18446744073709551615", "1", "18446744073709551616"),
            // A tie, rounded to the even neighbour.
            ("18446744073709551616", "1", "18446744073709551616"),
            ("18446744073709551616", "3", "18446744073709551620"),
            ("0x1p-3", "0X.8", "0.625"),
            ("0x1.8p1", "-1", "2"),
            ("1.", ".5", "1.5"),
        ] {
            assert_eq!(sum(a, b), expected, "{a} + {b}");
        }
    }

    #[test]
    fn other_texts_and_infinite_sums_are_refused() {
        for text in [
            "",
            " 1",
            "1 ",
            "abc",
            ".",
            "-",
            "+",
            "--1",
            "1e",
            "1e+",
            "e5",
            "0x",
            "0x.",
            "0xp1",
            "0x1p",
            "1.2.3",
            "nan",
            "NaN(1)",
            "infi",
            "1\0",
            "1e5000",
            "-1e5000",
            "1e-5000",
            "1,5",
            "1_000",
            "1e99999999999999999999",
        ] {
            assert_eq!(sum(text, "1"), "not a number", "{text:?}");
        }
        for text in ["inf", "-INF", "+Infinity"] {
            assert_eq!(sum(text, "1"), "not finite", "{text:?}");
        }
        let largest = "1.18973149535723176502e4932";
        assert_eq!(sum(largest, largest), "not finite");
        assert!(sum(largest, &format!("-{largest}")) == "0");
        assert_eq!(sum(&"1".repeat(5119), "0"), "not a number", "beyond the largest");
        assert_eq!(sum(&format!("{}1", "0".repeat(5118)), "0"), "1");
        assert_eq!(sum(&format!("{}1", "0".repeat(5119)), "0"), "not a number", "too long");
        assert_eq!(sum("0e99999999999999999999", "0x0p-99999999999999999999"), "0");
    }

    #[test]
    fn the_smallest_numbers_are_told_from_zero() {
        let smallest = Extended::parse(b"3.6451995318824746025e-4951");
        let Some(Extended::Finite(smallest)) = smallest else { panic!("{smallest:?}") };
        assert_eq!((smallest.significand, smallest.exponent), (1, LOWEST));
        assert!(Extended::parse(b"1.83e-4951").is_some(), "nearer to the smallest than to zero");
        assert!(Extended::parse(b"1.82e-4951").is_none());
        assert!(Extended::parse(b"0x1p-16445").is_some());
        assert!(Extended::parse(b"0x1p-16446").is_none(), "halfway, and zero is even");
        assert!(Extended::parse(b"0x1.00000000000000000000000000000000001p-16446").is_some());
    }
}
