//! Requests of memcached's protocol: what the parser finds is in the input, and the same comes of
//! the input in pieces.

use midi::net::memcached::parse::{
    KeysOfLine, MemcachedRequest, ParsedRequest, next_key, parse, plain_get,
};

const MOST: usize = 64;

pub fn check(input: &[u8]) {
    let mut at = 0;
    while at < input.len() {
        let rest = &input[at..];
        let parsed = parse(rest, MOST, 0);
        if let Some(plain) = plain_get(rest) {
            assert_eq!(only_key(rest, parsed), Some(plain));
        }
        match parsed {
            ParsedRequest::Request(request, end, _) => {
                assert!(end <= rest.len() && end > 0);
                // Nothing of a request depends on what is behind it.
                if !matches!(request, MemcachedRequest::Get(_)) {
                    assert_eq!(parse(&rest[..end], MOST, 0), parsed);
                }
                at += end;
                match request {
                    MemcachedRequest::Get(keys) => at += all_keys(&rest[end..], keys),
                    MemcachedRequest::TooLarge(_, skipped)
                    | MemcachedRequest::Refused(_, skipped) => at += skipped,
                    MemcachedRequest::Meta(meta) => assert!(meta.value.len() <= MOST),
                    MemcachedRequest::Store(store) => assert!(store.value.len() <= MOST),
                    _ => {}
                }
            }
            ParsedRequest::NoLine => {
                // Those bytes need not be looked at again.
                assert!(!rest.contains(&b'\n'));
                let more = [rest, b"\n"].concat();
                if !matches!(
                    parse(&more, MOST, 0),
                    ParsedRequest::Request(MemcachedRequest::Get(_), ..)
                ) {
                    assert_eq!(parse(&more, MOST, rest.len()), parse(&more, MOST, 0));
                }
                return;
            }
            ParsedRequest::Incomplete(missing) => {
                assert!(missing > 0 && missing <= MOST + 2);
                let whole = [rest, &vec![b'x'; missing]].concat();
                assert!(matches!(parse(&whole, MOST, 0), ParsedRequest::Request(..)));
                return;
            }
            ParsedRequest::TooLong => return,
        }
    }
}

/// The key of a request that gets one, and where it ends.
fn only_key<'i>(input: &'i [u8], parsed: ParsedRequest<'i>) -> Option<(&'i [u8], usize)> {
    let ParsedRequest::Request(MemcachedRequest::Get(keys), at, false) = parsed else {
        return None;
    };
    let (key, end, left) = next_key(&input[at..], keys)?;
    let is_alone = left == KeysOfLine { left: 0, line_end: 2, numbers: false, touch: b"" };
    is_alone.then_some((key, at + end))
}

/// Takes all keys of a line; returns how long it is.
fn all_keys(line: &[u8], mut keys: KeysOfLine<'_>) -> usize {
    let (mut at, len) = (0, keys.left + keys.line_end);
    assert!(line.len() >= len && line[len - 1] == b'\n');
    while keys.left > 0 {
        let Some((key, end, left)) = next_key(&line[at..], keys) else { panic!("no key") };
        assert!(!key.is_empty() && key.len() <= 250 && !key.contains(&b' '));
        assert_eq!(end + left.left, keys.left);
        (at, keys) = (at + end, left);
    }
    len
}
