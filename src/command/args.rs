//! A command's arguments, borrowed from the door or owned by the queue.

use smallvec::SmallVec;

use super::Error;
use crate::store::SharedValue;

/// Keeps a whole argument without copying it, if the door supports it.
pub trait Keep {
    /// The argument at `index` as a buffer of its own; `None` if the door cannot keep it.
    fn keep(&self, index: usize) -> Option<SharedValue>;
}

/// The arguments of one call; number 0 is the command's name.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    list: &'a [&'a [u8]],
    keeper: Option<&'a dyn Keep>,
}

impl<'a> Args<'a> {
    /// Plain slices. An argument beyond the end reads as empty.
    pub fn new(list: &'a [&'a [u8]]) -> Self {
        Args { list, keeper: None }
    }

    /// Slices of a door that can keep large arguments.
    pub fn with_keeper(list: &'a [&'a [u8]], keeper: &'a dyn Keep) -> Self {
        Args { list, keeper: Some(keeper) }
    }

    /// The number of arguments, the name included.
    #[inline]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// The bytes of all arguments.
    pub fn bytes(&self) -> usize {
        self.list.iter().map(|arg| arg.len()).sum()
    }

    /// Whether even the name is missing.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Argument number `index`, empty if there is none.
    #[inline]
    pub fn get(&self, index: usize) -> &'a [u8] {
        self.list.get(index).copied().unwrap_or_default()
    }

    /// The arguments from `index` on.
    pub fn from(&self, index: usize) -> &'a [&'a [u8]] {
        self.list.get(index..).unwrap_or_default()
    }

    /// Argument `index` as a buffer of its own if it has at least `min_bytes`: the door's, or a
    /// copy if the door cannot keep it.
    #[inline(always)]
    pub fn keep(&self, index: usize, min_bytes: usize) -> Option<SharedValue> {
        let bytes = self.get(index);
        if bytes.len() < min_bytes { None } else { self.keep_large(index, bytes) }
    }

    #[cold]
    fn keep_large(&self, index: usize, bytes: &[u8]) -> Option<SharedValue> {
        let kept = self.keeper.and_then(|keeper| keeper.keep(index));
        Some(kept.unwrap_or_else(|| SharedValue::new(bytes.to_vec())))
    }

    /// Whether argument `index` is this word, in any case.
    #[inline]
    pub fn is(&self, index: usize, word: &str) -> bool {
        self.get(index).eq_ignore_ascii_case(word.as_bytes())
    }

    /// Argument `index` as a 64-bit integer.
    pub fn integer(&self, index: usize) -> Result<i64, Error> {
        parse_integer(self.get(index)).ok_or(Error::NotAnInteger)
    }

    /// A copy that outlives the call. Arguments of at least `keep_bytes` get a buffer of their own:
    /// see [`Args::keep`].
    pub fn to_owned(&self, keep_bytes: usize) -> OwnedArgs {
        let mut owned = OwnedArgs::default();
        for index in 0..self.len() {
            owned.parts.push(match self.keep(index, keep_bytes) {
                Some(kept) => ArgPart::Kept(kept),
                None => {
                    let start = owned.bytes.len();
                    owned.bytes.extend_from_slice(self.get(index));
                    ArgPart::Copied(start, owned.bytes.len())
                }
            });
        }
        owned
    }
}

/// Arguments that outlive the call they came with.
#[derive(Default)]
pub struct OwnedArgs {
    bytes: SmallVec<[u8; 128]>,
    parts: SmallVec<[ArgPart; 4]>,
}

enum ArgPart {
    Copied(usize, usize),
    Kept(SharedValue),
}

impl OwnedArgs {
    /// The number of arguments, the name included.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Argument number `index`, empty if there is none.
    pub fn get(&self, index: usize) -> &[u8] {
        self.parts.get(index).map_or(&[], |part| self.part(part))
    }

    /// Lends the arguments.
    pub fn with<R>(&self, use_them: impl FnOnce(Args<'_>) -> R) -> R {
        let list: SmallVec<[&[u8]; 8]> = self.parts.iter().map(|part| self.part(part)).collect();
        use_them(Args::with_keeper(&list, self))
    }

    fn part<'a>(&'a self, part: &'a ArgPart) -> &'a [u8] {
        match part {
            ArgPart::Copied(start, end) => &self.bytes[*start..*end],
            ArgPart::Kept(value) => value.bytes(),
        }
    }
}

impl Keep for OwnedArgs {
    fn keep(&self, index: usize) -> Option<SharedValue> {
        match self.parts.get(index)? {
            ArgPart::Kept(value) => Some(value.clone()),
            ArgPart::Copied(..) => None,
        }
    }
}

/// Splits a sign off a number; true if it is a minus.
pub(super) fn split_sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    }
}

/// Redis's string2ll: an optional minus, no leading zeros, no spaces, 64 bits.
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        [b'0'] if digits.len() == text.len() => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut number: i64 = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        // Counts down from 0, because there is one more negative number than positive ones.
        number = number.checked_mul(10)?.checked_sub(i64::from(digit - b'0'))?;
    }
    if digits.len() == text.len() { number.checked_neg() } else { Some(number) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_as_redis_reads_them() {
        for (text, number) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("42", Some(42)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("-0", None),
            ("+1", None),
            ("01", None),
            ("00", None),
            (" 1", None),
            ("1 ", None),
            ("", None),
            ("-", None),
            ("1e3", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(parse_integer(text.as_bytes()), number, "{text:?}");
        }
    }

    #[test]
    fn owned_arguments_are_the_same() {
        let long = vec![b'x'; 5000];
        let list: [&[u8]; 3] = [b"set", b"", &long];
        let owned = Args::new(&list).to_owned(1000);
        owned.with(|args| {
            assert_eq!(args.len(), 3);
            assert_eq!((args.get(0), args.get(1), args.get(2)), (list[0], list[1], list[2]));
            assert_eq!(args.get(3), b"");
            let kept = |index, min_bytes| args.keep(index, min_bytes).map(|it| it.bytes().as_ptr());
            assert_eq!(kept(2, 10), Some(args.get(2).as_ptr()), "it has its own buffer by now");
            assert_ne!(kept(0, 3), Some(args.get(0).as_ptr()), "this one is copied");
            assert_eq!(kept(0, 4), None);
        });
    }
}
