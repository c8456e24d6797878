//! The word of a record for what is known of a value.

use super::super::parse_integer;
use crate::store::{Origin, Traits};

/// Whether there is a word.
#[inline]
pub(super) fn has_word(traits: &Traits) -> bool {
    !traits.are_logged_plain() || traits.origin != Origin::Given
}

/// The word; `None` if there is nothing to say.
#[inline]
pub(super) fn word_of(traits: &Traits) -> Option<Vec<u8>> {
    has_word(traits).then(|| some_word(traits))
}

#[cold]
fn some_word(traits: &Traits) -> Vec<u8> {
    let mut words: Vec<String> = Vec::new();
    match traits.origin {
        Origin::Given => {}
        Origin::Edited => words.push("EDITED".to_owned()),
        Origin::Computed => words.push("COMPUTED".to_owned()),
    }
    if traits.flags != 0 {
        words.push(format!("FLAGS={}", traits.flags));
    }
    if traits.stale {
        words.push("STALE".to_owned());
    }
    if traits.won {
        words.push("WON".to_owned());
    }
    words.join(",").into_bytes()
}

/// What a word says.
pub(super) fn read(word: &[u8]) -> Option<Traits> {
    let mut traits = Traits::default();
    for part in word.split(|&byte| byte == b',') {
        match part {
            b"EDITED" => traits.origin = Origin::Edited,
            b"COMPUTED" => traits.origin = Origin::Computed,
            b"STALE" => traits.stale = true,
            b"WON" => traits.won = true,
            _ => {
                traits.flags = parse_integer(part.strip_prefix(b"FLAGS=")?)?.try_into().ok()?;
            }
        }
    }
    // Only in the one form in which they are written.
    (word_of(&traits)? == word).then_some(traits)
}
