//! The zipmap, in which Redis kept small hashes up to 2.4.
//!
//! ```text
//! count 1 │ (length │ field │ length │ unused 1 │ value │ unused bytes)… │ ff
//!
//! length:  one byte up to fd, or fe and 4 bytes, little-endian
//! ```
//!
//! A count of fe is not known.

use super::super::string::PayloadReader;
use super::super::text::PayloadText;
use super::pairs::PackedElements;

const END: u8 = 0xff;
const UNKNOWN_COUNT: u8 = 0xfe;
const LONG: u8 = 0xfe;

/// Reads all fields and values; `None` if the zipmap is damaged or one is refused.
pub(super) fn read<'a>(zipmap: &'a [u8], to: &mut PackedElements<'a>) -> Option<()> {
    let (&expected, rest) = zipmap.split_first()?;
    let (&END, pairs) = rest.split_last()? else { return None };
    let mut rest = PayloadReader(pairs);
    let mut count = 0_usize;
    while !rest.0.is_empty() {
        let field = len(&mut rest)?;
        to.push(PayloadText::Borrowed(rest.take(field)?))?;
        let value = len(&mut rest)?;
        let [unused] = rest.array()?;
        to.push(PayloadText::Borrowed(rest.take(value)?))?;
        rest.take(unused.into())?;
        count += 1;
    }
    (expected == UNKNOWN_COUNT || usize::from(expected) == count).then_some(())
}

fn len(rest: &mut PayloadReader<'_>) -> Option<u64> {
    match rest.array()? {
        [END] => None,
        [LONG] => rest.array().map(|len| u32::from_le_bytes(len).into()),
        [len] => Some(len.into()),
    }
}
