//! Error replies by kind, for INFO.

use crate::limits::ERROR_KINDS_MAX;

/// What stands for all kinds above the limit, as on newer hosts.
const OTHERS: &[u8] = b"ERRORSTATS_OVERFLOW";
/// A kind is the first word of the text, if that ends so soon.
const KIND_BYTES: usize = 31;

/// Error replies by kind.
#[derive(Clone, Debug, Default)]
pub struct ErrorCounts {
    kinds: Vec<(Box<[u8]>, u64)>,
    /// How many there were.
    pub total: u64,
}

impl ErrorCounts {
    /// Counts an error reply with this text, which has no sign in front.
    #[cold]
    pub fn add(&mut self, text: &[u8]) {
        let beginning = &text[..text.len().min(KIND_BYTES)];
        let end = beginning.iter().position(|&byte| byte == b' ');
        self.add_kind(end.map_or(b"ERR", |end| &beginning[..end]), 1);
        self.total += 1;
    }

    fn add_kind(&mut self, kind: &[u8], number: u64) {
        let known = |kinds: &[(Box<[u8]>, u64)], kind: &[u8]| {
            kinds.iter().position(|(known, _)| **known == *kind)
        };
        if let Some(at) = known(&self.kinds, kind) {
            self.kinds[at].1 += number;
        } else if self.kinds.len() < ERROR_KINDS_MAX || kind == OTHERS {
            self.kinds.push((kind.into(), number));
        } else {
            self.add_kind(OTHERS, number);
        }
    }

    /// Adds another one's.
    pub fn absorb(&mut self, other: ErrorCounts) {
        for (kind, number) in other.kinds {
            self.add_kind(&kind, number);
        }
        self.total += other.total;
    }

    /// Kinds and their numbers, by name.
    pub fn sorted(mut self) -> Vec<(Box<[u8]>, u64)> {
        self.kinds.sort();
        self.kinds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_first_words() {
        let mut counts = ErrorCounts::default();
        for text in ["ERR a", "WRONGTYPE b", "ERR c", "oneword", &"x".repeat(40), ""] {
            counts.add(text.as_bytes());
        }
        assert_eq!(counts.total, 6);
        let kinds = counts.sorted();
        assert_eq!(kinds, [((*b"ERR").into(), 5), ((*b"WRONGTYPE").into(), 1)]);
    }

    #[test]
    fn too_many_kinds_are_one() {
        let mut counts = ErrorCounts::default();
        (0..1000).for_each(|number| counts.add(format!("E{number} text").as_bytes()));
        let mut all = ErrorCounts::default();
        all.add(b"OTHER text");
        all.absorb(counts);
        assert_eq!(all.total, 1001);
        let kinds = all.sorted();
        assert_eq!(kinds.len(), ERROR_KINDS_MAX + 1);
        assert_eq!(kinds.iter().map(|(_, number)| number).sum::<u64>(), 1001);
    }
}
