//! Patterns: the results equal those of a plain search through all possibilities.

use std::ops::RangeInclusive;

use midi::command::glob::Pattern;

/// The first byte gives the length of the pattern; the text follows it.
pub fn check(data: &[u8]) {
    let Some((&len, rest)) = data.split_first() else { return };
    let (pattern, text) = rest.split_at(usize::from(len).min(MOST_BYTES).min(rest.len()));
    let text = &text[..text.len().min(MOST_BYTES)];
    let expected = pattern == b"*" || text_matches(&elements(pattern), text);
    assert_eq!(Pattern::new(pattern).matches(text), expected);
}

const MOST_BYTES: usize = 64;

enum Element {
    Star,
    One(Set),
}

/// Bytes, as C's signed characters, or all but these.
struct Set {
    ranges: Vec<RangeInclusive<i8>>,
    negated: bool,
}

impl Set {
    fn has(&self, byte: u8) -> bool {
        self.ranges.iter().any(|range| range.contains(&(byte as i8))) != self.negated
    }
}

fn just(byte: u8) -> RangeInclusive<i8> {
    byte as i8..=byte as i8
}

fn elements(mut pattern: &[u8]) -> Vec<Element> {
    let mut elements = Vec::new();
    while let Some((&first, rest)) = pattern.split_first() {
        pattern = rest;
        elements.push(match (first, rest) {
            (b'*', _) => Element::Star,
            (b'?', _) => Element::One(Set { ranges: Vec::new(), negated: true }),
            (b'[', _) => Element::One(set(&mut pattern)),
            (b'\\', [escaped, after @ ..]) => {
                pattern = after;
                Element::One(Set { ranges: vec![just(*escaped)], negated: false })
            }
            _ => Element::One(Set { ranges: vec![just(first)], negated: false }),
        });
    }
    elements
}

/// The content of brackets; the closing one may be missing.
fn set(pattern: &mut &[u8]) -> Set {
    let mut set = Set { ranges: Vec::new(), negated: false };
    if let Some(rest) = pattern.strip_prefix(b"^") {
        (set.negated, *pattern) = (true, rest);
    }
    while let Some((&first, rest)) = pattern.split_first() {
        *pattern = rest;
        match (first, rest) {
            (b'\\', [escaped, after @ ..]) => {
                set.ranges.push(just(*escaped));
                *pattern = after;
            }
            (b']', _) => break,
            (_, [b'-', last, after @ ..]) => {
                let (first, last) = (first as i8, *last as i8);
                set.ranges.push(first.min(last)..=first.max(last));
                *pattern = after;
            }
            _ => set.ranges.push(just(first)),
        }
    }
    set
}

/// An empty text is matched by the empty pattern only.
fn text_matches(elements: &[Element], text: &[u8]) -> bool {
    if text.is_empty() {
        return elements.is_empty();
    }
    // The prefixes of the text that the elements so far can match.
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    for element in elements {
        match element {
            Element::Star => {
                let first = reached.iter().position(|&reached| reached).unwrap_or(reached.len());
                reached[first..].fill(true);
            }
            Element::One(set) => {
                for at in (0..text.len()).rev() {
                    reached[at + 1] = reached[at] && set.has(text[at]);
                }
                reached[0] = false;
            }
        }
    }
    reached[text.len()]
}
