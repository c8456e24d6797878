//! Glob patterns exactly as Redis 7.0 matches them (stringmatchlen of its util.c).
//!
//! Redis recurses at every star. Here only the last star is tried again. That finds the same
//! matches, because the elements after a star have the same width wherever they match, and it takes
//! time pattern × text at worst.

use std::borrow::Cow;

/// A pattern, with Redis's shortcut for `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: Vec<u8>,
    all: bool,
}

impl Pattern {
    /// Makes a pattern; any bytes are valid.
    pub fn new(text: &[u8]) -> Self {
        Pattern { text: text.to_vec(), all: text == b"*" }
    }

    /// Makes a pattern without that shortcut, as the host's ACL matches keys: `*` does not match
    /// the empty key.
    pub fn strict(text: &[u8]) -> Self {
        Pattern { text: text.to_vec(), all: false }
    }

    /// Whether this is the pattern's own text.
    pub fn is(&self, text: &[u8]) -> bool {
        self.text == text
    }

    /// Whether `text` matches, as in KEYS and SCAN.
    #[inline]
    pub fn matches(&self, text: &[u8]) -> bool {
        self.all || matches(&self.text, text)
    }
}

/// Keys that a command may find.
pub enum KeySet<'a> {
    /// Those that match a pattern, as in KEYS and SCAN.
    Matching(&'a [u8]),
    /// Those that begin with these bytes.
    Beginning(Cow<'a, [u8]>),
}

/// The bytes that mean something other than themselves in a pattern.
const SPECIAL: [u8; 4] = *b"*?[\\";

impl Pattern {
    /// Whether all of these keys match. False also if that is not plain to see: it is for a single
    /// key, for the same pattern, and for a pattern that is a beginning and a star. The empty key,
    /// which the star of a strict pattern leaves out, is not looked at.
    pub fn covers(&self, keys: &KeySet<'_>) -> bool {
        let begins = |with: &[u8]| self.beginning().is_some_and(|own| with.starts_with(own));
        match keys {
            KeySet::Beginning(bytes) => begins(bytes),
            KeySet::Matching(pattern) => {
                let plain = pattern.iter().position(|byte| SPECIAL.contains(byte));
                match plain {
                    None => self.matches(pattern),
                    Some(end) => begins(&pattern[..end]) || self.text == *pattern,
                }
            }
        }
    }

    /// The bytes before the star, if the pattern is plain bytes and then a star.
    fn beginning(&self) -> Option<&[u8]> {
        let plain = self.text.strip_suffix(b"*")?;
        (!plain.iter().any(|byte| SPECIAL.contains(byte))).then_some(plain)
    }
}

/// Whether the whole of `text` matches. Case matters. As in Redis, only the empty pattern matches
/// the empty text.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    if text.is_empty() {
        return pattern.is_empty();
    }
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            star = Some((p, t));
            continue;
        }
        if let Some(next) = match_one(&pattern[p..], text[t]) {
            p += next;
            t += 1;
        } else if let Some((after, from)) = star {
            p = after;
            t = from + 1;
            star = Some((after, t));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// Matches one byte with the pattern's first element (never a star). Returns the element's length
/// if it matches.
fn match_one(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern.first()? {
        b'?' => Some(1),
        b'[' => {
            let (matched, len) = match_class(pattern, byte);
            matched.then_some(len)
        }
        b'\\' if pattern.len() >= 2 => (pattern[1] == byte).then_some(2),
        literal => (literal == byte).then_some(1),
    }
}

/// Matches a class `[...]`; without a closing bracket it extends to the pattern's end. Returns
/// whether the byte matches, and the length of the class.
fn match_class(pattern: &[u8], byte: u8) -> (bool, usize) {
    let mut at = 1;
    let negated = pattern.get(at) == Some(&b'^');
    if negated {
        at += 1;
    }
    let mut matched = false;
    loop {
        match &pattern[at.min(pattern.len())..] {
            [] => break,
            [b'\\', escaped, ..] => {
                matched |= *escaped == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [start, b'-', end, ..] => {
                // Redis compares values of C's char, which is signed on x86-64.
                let (start, end, byte) = (*start as i8, *end as i8, byte as i8);
                matched |= (start.min(end)..=start.max(end)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                matched |= *literal == byte;
                at += 1;
            }
        }
    }
    (matched != negated, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_as_redis_matches_them() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("*", "", true),
            ("**", "", false),
            ("a*", "a", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("[]]", "]", false),
            ("[\\]]", "]", true),
            ("[abc", "b", true),
            ("[abc", "bb", false),
            ("[^", "x", true),
            ("[a-", "-", true),
            ("\\*", "*", true),
            ("\\", "\\", true),
            ("a\\", "a\\", true),
            ("*a*b*c", "xxaxxbxxc", true),
            ("*a*b*c", "xxaxxbxx", false),
            ("*abab", "abaabab", true),
            ("*[0-9]", "key9", true),
            ("key:1*", "key:12", true),
            ("key:1*", "key:21", false),
        ] {
            assert_eq!(
                Pattern::new(pattern.as_bytes()).matches(text.as_bytes()),
                expected,
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn the_empty_key_is_matched_by_the_short_cut_alone() {
        assert!(Pattern::new(b"*").matches(b""));
        assert!(!Pattern::strict(b"*").matches(b""));
        assert!(Pattern::strict(b"*").matches(b"key"));
    }

    #[test]
    fn patterns_cover_others() {
        for (rule, keys, covered) in [
            ("app:*", "app:*", true),
            ("app:*", "app:1", true),
            ("app:*", "app:?[12]*", true),
            ("app:*", "app*", false),
            ("app:*", "ap[p]:1", false),
            ("app:*", "*", false),
            ("app:*", "", false),
            ("*", "*", true),
            ("*", "a?", true),
            ("a?*", "a?*", true),
            ("a?*", "ab*", false),
            ("a\\*", "a\\*", true),
            ("a\\*", "a\\b", false),
            ("a[b]", "ab", true),
            ("a", "a", true),
            ("a", "a*", false),
        ] {
            let keys = KeySet::Matching(keys.as_bytes());
            assert_eq!(Pattern::strict(rule.as_bytes()).covers(&keys), covered, "{rule}");
        }
        for (rule, beginning, covered) in [
            ("app:*", "app:", true),
            ("app:*", "app", false),
            ("app:", "app:", false),
            ("a[b]*", "a[b]:", false),
            ("*", "", true),
        ] {
            let keys = KeySet::Beginning(beginning.as_bytes().into());
            assert_eq!(Pattern::strict(rule.as_bytes()).covers(&keys), covered, "{rule}");
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        let pattern = Pattern::new("*a".repeat(500).as_bytes());
        assert!(!pattern.matches("a".repeat(499).as_bytes()));
        assert!(pattern.matches(&"ab".repeat(500).as_bytes()[..999]));
    }
}
