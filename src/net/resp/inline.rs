//! Inline commands: a line of words, for users of telnet.

use super::ArgList;

/// Splits a line without NUL into arguments. `None` if a quotation does not end, or if its end is
/// not followed by a blank.
pub(super) fn split(line: &[u8], args: &mut ArgList) -> Option<()> {
    let mut rest = skip_blanks(line);
    while !rest.is_empty() {
        rest = skip_blanks(args.own(|bytes| word(rest, bytes))?);
    }
    Some(())
}

/// Appends a word to `bytes`, without its quotes, and returns the rest of the line. A quotation may
/// begin anywhere in a word, and ends it.
fn word<'a>(mut rest: &'a [u8], bytes: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            // Vertical tabs and form feeds separate words, but do not end one.
            [] | [b' ' | b'\t' | b'\r' | b'\n', ..] => return Some(rest),
            [b'"', quoted @ ..] => return double_quoted(quoted, bytes),
            [b'\'', quoted @ ..] => return single_quoted(quoted, bytes),
            [byte, after @ ..] => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
}

fn double_quoted<'a>(mut rest: &'a [u8], bytes: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (byte, after) = match rest {
            [] => return None,
            [b'"', after @ ..] => return closed(after),
            [b'\\', after @ ..] => escaped(after),
            [byte, after @ ..] => (*byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
}

/// The byte that a backslash and `rest` mean, and what follows.
fn escaped(rest: &[u8]) -> (u8, &[u8]) {
    if let [b'x', high, low, after @ ..] = rest
        && let (Some(high), Some(low)) = (hex(*high), hex(*low))
    {
        return (high << 4 | low, after);
    }
    match rest {
        [b'n', after @ ..] => (b'\n', after),
        [b'r', after @ ..] => (b'\r', after),
        [b't', after @ ..] => (b'\t', after),
        [b'b', after @ ..] => (0x08, after),
        [b'a', after @ ..] => (0x07, after),
        [byte, after @ ..] => (*byte, after),
        [] => (b'\\', rest),
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], bytes: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (byte, after) = match rest {
            [] => return None,
            [b'\'', after @ ..] => return closed(after),
            [b'\\', b'\'', after @ ..] => (b'\'', after),
            [byte, after @ ..] => (*byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
}

/// The rest after a quotation, if it may follow one.
fn closed(rest: &[u8]) -> Option<&[u8]> {
    rest.first().is_none_or(|&byte| is_blank(byte)).then_some(rest)
}

fn skip_blanks(line: &[u8]) -> &[u8] {
    let words = line.iter().position(|&byte| !is_blank(byte)).unwrap_or(line.len());
    &line[words..]
}

/// C's isspace.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
        let mut args = ArgList::default();
        split(line, &mut args)?;
        Some(args.iter(line).map(<[u8]>::to_vec).collect())
    }

    #[test]
    fn lines_are_cut_as_redis_cuts_them() {
        let cases: [(&[u8], &[&[u8]]); 16] = [
            (b"", &[]),
            (b" \t\x0b\x0c\r ", &[]),
            (b"GET key", &[b"GET", b"key"]),
            (b"  GET\tkey\r ", &[b"GET", b"key"]),
            (b"a\rb", &[b"a", b"b"]),
            (b"a\x0bb \x0bc", &[b"a\x0bb", b"c"]),
            (b"\"\" ''", &[b"", b""]),
            (b"\"a b\" 'c d'", &[b"a b", b"c d"]),
            (b"pre\"quoted\"", &[b"prequoted"]),
            (b"\"a\"\x0b\"b\"", &[b"a", b"b"]),
            (b"\"\\x41\\xfF\\x00\"", &[b"A\xff\0"]),
            (b"\"\\xg1\\x1\"", &[b"xg1x1"]),
            (b"\"\\n\\r\\t\\b\\a\\\"\\\\\\q\"", &[b"\n\r\t\x08\x07\"\\q"]),
            (b"'\\n\\'\\\"'", &[b"\\n'\\\""]),
            (b"a\\ b", &[b"a\\", b"b"]),
            (b"a'b'", &[b"ab"]),
        ];
        for (line, expected) in cases {
            let shown = String::from_utf8_lossy(line);
            assert_eq!(
                words(line).as_deref(),
                Some(&*expected.iter().map(|word| word.to_vec()).collect::<Vec<_>>()),
                "{shown}"
            );
        }
    }

    #[test]
    fn quotations_must_end_and_be_followed_by_a_blank() {
        for line in [
            &b"\""[..],
            b"'",
            b"\"a",
            b"\"a\\\"",
            b"'a\\'",
            b"\"a\"b",
            b"'a'b",
            b"\"a\"\"b\"",
            b"\"\\",
            b"get \"",
        ] {
            assert_eq!(words(line), None, "{}", String::from_utf8_lossy(line));
        }
    }
}
