use super::*;

const MOST: usize = 100;

fn request(input: &[u8]) -> (MemcachedRequest<'_>, bool) {
    match parse(input, MOST, 0) {
        ParsedRequest::Request(request, end, is_silent) => {
            if !matches!(request, MemcachedRequest::Get(_)) {
                assert_eq!(end, input.len(), "{}", input.escape_ascii());
            }
            (request, is_silent)
        }
        other => panic!("{}: {other:?}", input.escape_ascii()),
    }
}

#[test]
fn storage_commands_have_data() {
    let store = |mode, number| StoreRequest {
        mode,
        key: b"key",
        flags: b"1",
        expiry: b"-2",
        number,
        value: b"a\r\nb",
    };
    for mode in [&b"set"[..], b"add", b"replace", b"append", b"prepend"] {
        let input = [mode, b" key 1 -2 4\r\na\r\nb\r\n"].concat();
        assert_eq!(request(&input), (MemcachedRequest::Store(store(mode, b"")), false));
        let input = [mode, b" key 1 -2 4 noreply\r\na\r\nb\r\n"].concat();
        assert_eq!(request(&input), (MemcachedRequest::Store(store(mode, b"")), true));
    }
    let input = b"cas key 1 -2 4 77\r\na\r\nb\r\n";
    assert_eq!(request(input), (MemcachedRequest::Store(store(b"cas", b"77")), false));
    for cut in 0..input.len() {
        let expected = match cut {
            0..19 => ParsedRequest::NoLine,
            _ => ParsedRequest::Incomplete(input.len() - cut),
        };
        assert_eq!(parse(&input[..cut], MOST, 0), expected, "{cut}");
    }
}

fn parsed((set, end): (StoreRequest<'_>, usize)) -> ParsedRequest<'_> {
    ParsedRequest::Request(MemcachedRequest::Store(set), end, false)
}

#[test]
fn a_plain_set_is_what_any_set_is() {
    let long = "k".repeat(MEMCACHED_KEY_BYTES);
    let plain = ["key", "\u{e9}", &long].map(|key| format!("set {key} 007 123456789 2\r\nab\r\n"));
    for input in plain.iter().map(|input| input.as_bytes()) {
        let more = [input, b"set"].concat();
        assert_eq!(plain_set(&more, 2).map(parsed), Some(parse_other(input, 2, 0)));
        for cut in 0..input.len() {
            assert_eq!(plain_set(&input[..cut], 2), None);
        }
        assert_eq!(plain_set(input, 1), None, "too large");
        // Each byte in turn is another one.
        for at in 0..input.len() {
            for byte in *b" \r\n0-:x\xe9" {
                let mut other = input.to_vec();
                other[at] = byte;
                let found = plain_set(&other, 99).map(parsed);
                let is_right = found.is_none_or(|found| found == parse_other(&other, 99, 0));
                assert!(is_right, "{other:?}");
            }
        }
    }
    for other in [
        "set  0 0 1\r\na\r\n",
        "set k 0 0 1 noreply\r\na\r\n",
        "set k 0 0 1\na\r\n",
        "set k 0 0 0000000001\r\na\r\n",
        "set k 0 -1 1\r\na\r\n",
        &format!("set k{long} 0 0 1\r\na\r\n"),
    ] {
        assert_eq!(plain_set(other.as_bytes(), 99), None, "{other}");
    }
}

#[test]
fn a_plain_get_is_what_any_get_is() {
    let long = "k".repeat(MEMCACHED_KEY_BYTES);
    for key in ["key", "\u{e9}", &long] {
        let input = format!("get {key}\r\n").into_bytes();
        let end = input.len() - LINE_END;
        assert_eq!(plain_get(&[&input[..], b"get"].concat()), Some((key.as_bytes(), end)));
        for cut in 0..input.len() {
            assert_eq!(plain_get(&input[..cut]), None);
        }
        for at in 0..input.len() {
            for byte in *b" \r\n\ts\xe9" {
                let mut other = input.clone();
                other[at] = byte;
                let Some((key, end)) = plain_get(&other) else { continue };
                let ParsedRequest::Request(MemcachedRequest::Get(keys), from, false) =
                    parse_other(&other, 99, 0)
                else {
                    panic!("{other:?}");
                };
                let next = next_key(&other[from..], keys);
                assert_eq!(next, Some((key, end - from, KeysOfLine::NONE)), "{other:?}");
            }
        }
    }
    let too_long = format!("get k{long}\r\n");
    for other in ["get \r\n", "get  k\r\n", "get k \r\n", "get a b\r\n", &too_long] {
        assert_eq!(plain_get(other.as_bytes()), None, "{other}");
    }
}

#[test]
fn what_is_wrong_is_said_in_memcacheds_words() {
    let long = "k".repeat(MEMCACHED_KEY_BYTES + 1);
    for (line, answer) in [
        ("", ERROR),
        ("x", ERROR),
        ("get", ERROR),
        ("nosuch a b", ERROR),
        ("set key 1 2", ERROR),
        ("set key x 0 1", BAD_FORMAT),
        ("set key 0 x 1", BAD_FORMAT),
        ("set key 0 0 x", BAD_FORMAT),
        ("set key 0 0 -1", BAD_FORMAT),
        ("set key 0 0 2147483647", BAD_FORMAT),
        ("cas key 0 0 1 x", BAD_FORMAT),
        ("incr key x", BAD_DELTA),
        ("incr key -1", BAD_DELTA),
        ("touch key x", BAD_EXPIRY),
        ("gat x key", BAD_EXPIRY),
        ("gat 10", "END"),
        ("delete key 5", BAD_DELETE),
        ("flush_all x", BAD_EXPIRY),
        ("verbosity x", BAD_FORMAT),
        ("verbosity", ERROR),
        ("cache_memlimit 1", "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m"),
        ("shutdown", "ERROR: shutdown not enabled"),
        (&format!("get a {long}"), BAD_FORMAT),
        (&format!("delete {long}"), BAD_FORMAT),
        (&format!("incr {long} 1"), BAD_FORMAT),
    ] {
        for end in ["\r\n", "\n"] {
            let input = format!("{line}{end}");
            assert_eq!(request(input.as_bytes()).0, MemcachedRequest::Answer(answer), "{line}");
        }
    }
    assert_eq!(request(b"set key 0 0 1\r\nabc").0, MemcachedRequest::Answer(BAD_DATA));
    assert_eq!(parse(&[b'x'; MEMCACHED_LINE_BYTES + 1], MOST, 0), ParsedRequest::TooLong);
    assert_eq!(parse(b"\x80\0\0\x03", MOST, 0), ParsedRequest::TooLong);
    // A NOOP, which has the number 10.
    assert_eq!(parse(b"\x80\x0a\0\0\0\0\0\0", MOST, 0), ParsedRequest::TooLong);
    assert_eq!(parse(&[b"get ", &[b'x'; 5000][..]].concat(), MOST, 0), ParsedRequest::NoLine);
    assert_eq!(request(b"GET / HTTP/1.1\r\n").0, MemcachedRequest::Quit);
    assert_eq!(
        request(b"set key 0 0 101\r\n").0,
        MemcachedRequest::TooLarge(Some((b"key", false)), 103)
    );
    assert_eq!(request(b"add key 0 0 101\r\n").0, MemcachedRequest::TooLarge(None, 103));
}

/// The keys of a line, and where it ends.
fn keys(input: &[u8]) -> (Vec<&[u8]>, usize) {
    let ParsedRequest::Request(MemcachedRequest::Get(mut line), mut at, false) =
        parse(input, MOST, 0)
    else {
        panic!("no get")
    };
    let mut keys = Vec::new();
    while line.left > 0 {
        let (key, end, left) = next_key(&input[at..], line).expect("a key");
        keys.push(key);
        (at, line) = (at + end, left);
    }
    (keys, at + line.line_end)
}

#[test]
fn keys_are_taken_one_by_one() {
    for (line, wanted) in [
        (&b"get a\r\n"[..], &[&b"a"[..]][..]),
        (b"gets  a  bb  \r\n", &[b"a", b"bb"]),
        (b"gat 10 a b c\n", &[b"a", b"b", b"c"]),
        (b"  get get\r\r\n", &[b"get\r"]),
    ] {
        assert_eq!(keys(line), (wanted.to_vec(), line.len()), "{}", line.escape_ascii());
    }
}

#[test]
fn meta_commands_have_flags() {
    let meta = |input| match request(input) {
        (MemcachedRequest::Meta(meta), false) => meta,
        other => panic!("{other:?}"),
    };
    let get = meta(b"mg  key  v  Oab \r\n");
    assert_eq!((get.command, get.key, get.is_base64), (MetaCommand::Get, &b"key"[..], false));
    assert_eq!(get.flags.text(), b"  v  Oab ");
    let set = meta(b"ms eA== 4 b T5\r\na\r\nb\r\n");
    assert_eq!((set.command, set.is_base64, set.value), (MetaCommand::Set, true, &b"a\r\nb"[..]));
    assert_eq!(request(b"ms key 1 k\r\nab\r").0, MemcachedRequest::Answer(BAD_DATA));
    assert_eq!(parse(b"ms key 5\r\n", MOST, 0), ParsedRequest::Incomplete(7));
    for (line, answer) in [
        ("mn", "MN"),
        ("mg", ERROR),
        ("ms", ERROR),
        ("mx key", ERROR),
        ("me", BAD_FORMAT),
        ("me !!!! b", BAD_FORMAT),
        ("ms key", BAD_FORMAT),
        ("ms key x", BAD_FORMAT),
        ("mg !!!! b", "CLIENT_ERROR error decoding key"),
    ] {
        let input = [line.as_bytes(), b"\r\n"].concat();
        assert_eq!(request(&input).0, MemcachedRequest::Answer(answer), "{line}");
    }
    let refused = MemcachedRequest::Refused("CLIENT_ERROR invalid flag", 7);
    assert_eq!(request(b"ms key 5 z\r\n").0, refused);
    let too_large = MemcachedRequest::TooLarge(Some((b"eA==", true)), 103);
    assert_eq!(request(b"ms eA== 101 b\r\n").0, too_large);
    assert_eq!(
        (too_large.base64_key(), too_large.about(b"x").base64_key()),
        (Some(&b"eA=="[..]), None)
    );
}
