use super::super::Head;
use super::*;

const ANYBODY: RequestLimits =
    RequestLimits { max_bulk_bytes: 512 << 20, authenticated: true, large_bytes: usize::MAX };
const STRANGER: RequestLimits = RequestLimits { authenticated: false, ..ANYBODY };

/// Parses with a list that has had longer commands, as plain commands need it.
fn first(input: &[u8], limits: &RequestLimits) -> Result<(Parsed, Vec<Vec<u8>>), String> {
    let slots = vec![ArgRange { start: 0, end: 0 }; 200];
    let mut args = ArgList::default();
    args.slots = slots;
    let parsed = RequestParser::default().next(input, &mut args, limits);
    let parsed = parsed.map_err(|error| String::from_utf8_lossy(&error.text()).into_owned())?;
    Ok((parsed, args.iter(input).map(<[u8]>::to_vec).collect()))
}

fn command(input: &[u8]) -> Vec<Vec<u8>> {
    let (parsed, args) = first(input, &ANYBODY).expect("no error");
    assert_eq!(parsed, Parsed::Command { consumed: input.len() });
    args
}

fn error(input: &[u8]) -> String {
    first(input, &ANYBODY).expect_err("an error")
}

#[test]
fn arrays_of_strings() {
    assert_eq!(command(b"*1\r\n$4\r\nPING\r\n"), [b"PING"]);
    assert_eq!(command(b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n"), [&b"GET"[..], b""]);
    assert_eq!(command(b"*2\r\n$4\r\nECHO\r\n$2\r\n\r\n\r\n"), [&b"ECHO"[..], b"\r\n"]);
    for len in [9, 10, 99, 100, 12345] {
        let long = "x".repeat(len);
        let input = format!("*2\r\n$4\r\nECHO\r\n${len}\r\n{long}\r\n");
        assert_eq!(command(input.as_bytes()), [b"ECHO", long.as_bytes()]);
    }
    let many = format!("*1234\r\n{}", "$1\r\na\r\n".repeat(1234));
    assert_eq!(command(many.as_bytes()).len(), 1234);
}

/// Every byte of some plain commands is made every other one.
#[test]
fn plain_commands_are_no_others() {
    let nothing_plain = RequestLimits { max_bulk_bytes: PLAIN_NUMBER - 1, ..ANYBODY };
    for (count, len) in [(2, 0), (2, 9), (2, 10), (3, 99), (10, 16), (12, 100), (2, 999), (2, 1000)]
    {
        let argument = format!("${len}\r\n{}\r\n", "x".repeat(len));
        let input = format!("*{count}\r\n$3\r\nGET\r\n{}", argument.repeat(count - 1));
        for at in 0..input.len().min(40) {
            for byte in 0..=u8::MAX {
                let mut input = input.clone().into_bytes();
                input[at] = byte;
                let expected = first(&input, &nothing_plain);
                assert_eq!(first(&input, &ANYBODY), expected, "{}", input.escape_ascii());
            }
        }
    }
}

/// What the head of a command takes from another input.
fn known(input: &[u8], limits: &RequestLimits, other: &[u8]) -> Option<(usize, Vec<Vec<u8>>)> {
    let mut args = ArgList::default();
    RequestParser::default().next(input, &mut args, limits).expect("a command");
    let mut taken = Vec::new();
    let length = Head::of(input, &args, limits)?.take(other, |arg| taken.push(arg.to_vec()))?;
    Some((length, taken))
}

/// Every byte of some commands is made every other one: what is taken for a known one is that
/// very one.
#[test]
fn known_commands_are_no_others() {
    for (first_one, count, len) in [
        ("*1\r\n$6\r\nDBSIZE\r\n", 1, 0),
        ("*2\r\n$3\r\nGET\r\n$1\r\na\r\n", 2, 9),
        ("*3\r\n$6\r\nINCRBY\r\n$1\r\na\r\n$0\r\n\r\n", 3, 999),
    ] {
        let name = &first_one[..first_one.find("$1").unwrap_or(first_one.len())];
        let input =
            format!("{name}{}", format!("${len}\r\n{}\r\n", "x".repeat(len)).repeat(count - 1));
        let whole = known(first_one.as_bytes(), &ANYBODY, input.as_bytes());
        assert_eq!(whole, Some((input.len(), command(input.as_bytes()))));
        for at in 0..input.len().min(40) {
            assert_eq!(known(first_one.as_bytes(), &ANYBODY, &input.as_bytes()[..at]), None);
            for byte in 0..=u8::MAX {
                let mut input = input.clone().into_bytes();
                input[at] = byte;
                if let Some((consumed, taken)) = known(first_one.as_bytes(), &ANYBODY, &input) {
                    assert_eq!(first(&input, &ANYBODY), Ok((Parsed::Command { consumed }, taken)));
                }
            }
        }
    }
}

#[test]
fn only_plain_commands_are_known() {
    let get = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n";
    assert!(known(get, &ANYBODY, get).is_some());
    let narrow = RequestLimits { max_bulk_bytes: PLAIN_NUMBER - 1, ..ANYBODY };
    assert_eq!(known(get, &narrow, get), None);
    assert_eq!(known(get, &STRANGER, get), None);
    for other in [&b"GET aaaaaaaaaaaaaaaaaa\r\n"[..], b"*2\r\n$7\r\nGETINFO\r\n$1\r\na\r\n"] {
        assert_eq!(known(other, &ANYBODY, other), None, "{}", text(other));
    }
}

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

#[test]
fn the_byte_after_a_carriage_return_is_not_looked_at() {
    assert_eq!(command(b"*1\rx$4\ryPINGzz"), [b"PING"]);
}

#[test]
fn nothing_to_do() {
    for input in
        [&b"\n"[..], b"\r\n", b" \t\r\n", b"*0\r\n", b"*-1\r\n", b"*-9223372036854775808\r\n"]
    {
        let consumed = input.len();
        assert_eq!(first(input, &ANYBODY), Ok((Parsed::Empty { consumed }, vec![])), "{input:?}");
    }
}

#[test]
fn inline_commands() {
    assert_eq!(command(b"PING\n"), [b"PING"]);
    assert_eq!(command(b" SET key \"a\\x20b\"\r\n"), [&b"SET"[..], b"key", b"a b"]);
    assert_eq!(command(b"$4\r\n"), [b"$4"]);
}

#[test]
fn errors_as_redis_says_them() {
    let long = |sign: &[u8]| [sign, &[b'1'; 65_536]].concat();
    for (input, text) in [
        (&b"*\r\n"[..], "invalid multibulk length"),
        (b"*x\r\n", "invalid multibulk length"),
        (b"*01\r\n", "invalid multibulk length"),
        (b"* 1\r\n", "invalid multibulk length"),
        (b"*2147483648\r\n", "invalid multibulk length"),
        (b"*1\r\nxyz\r\n", "expected '$', got 'x'"),
        (b"*1\r\n\xff\r\n", "expected '$', got '\u{fffd}'"),
        (b"*1\r\n\r\n", "expected '$', got ' '"),
        (b"*1\r\n$\r\n", "invalid bulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$01\r\n", "invalid bulk length"),
        (b"*1\r\n$536870913\r\n", "invalid bulk length"),
        (b"*1\r\n$9223372036854775808\r\n", "invalid bulk length"),
        (b"get \"\r\n", "unbalanced quotes in request"),
        (&long(b"*"), "too big mbulk count string"),
        (&long(b"*1\r\n$"), "too big bulk count string"),
        (&long(b"a"), "too big inline request"),
    ] {
        assert_eq!(error(input), format!("ERR Protocol error: {text}"));
    }
}

#[test]
fn strangers_may_send_short_commands() {
    let stranger = |input: &str| first(input.as_bytes(), &STRANGER).map(|(parsed, _)| parsed);
    let incomplete = |missing| Ok(Parsed::Incomplete { missing });
    assert_eq!(stranger("*10\r\n"), incomplete(60));
    assert_eq!(
        stranger("*11\r\n"),
        Err("ERR Protocol error: unauthenticated multibulk length".into())
    );
    assert_eq!(stranger("*1\r\n$16384\r\n"), incomplete(16_386));
    assert_eq!(
        stranger("*1\r\n$16385\r\n"),
        Err("ERR Protocol error: unauthenticated bulk length".into())
    );
}

#[test]
fn lines_wait_for_their_end() {
    let edge = |line: &str, len: usize| line.to_owned() + &"1".repeat(len - line.len());
    for input in
        ["", "*", "*1", "*1\r", "*1\r\n", "*1\r\n$", "*1\r\n$1\r", "*1\r\nx\r", "PING", "PING\r"]
    {
        let parsed = first(input.as_bytes(), &ANYBODY).map(|(parsed, _)| parsed);
        assert!(matches!(parsed, Ok(Parsed::Incomplete { .. })), "{input:?}");
    }
    for input in
        [edge("*", 65_536), edge("a", 65_536), edge("a\0\r\n", 65_536), edge("*1\0\r\n", 65_536)]
    {
        assert!(matches!(
            first(input.as_bytes(), &ANYBODY),
            Ok((Parsed::Incomplete { missing: 1 }, _))
        ));
        assert!(error((input + "1").as_bytes()).contains("too big"));
    }
    assert_eq!(command((edge("a", 65_536) + "\n").as_bytes())[0].len(), 65_536);
}

#[test]
fn it_goes_on_where_it_stopped() {
    let input = b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$11\r\nhello world\r\n";
    let (mut parser, mut args) = (RequestParser::default(), ArgList::default());
    for end in 0..input.len() {
        let parsed = parser.next(&input[..end], &mut args, &ANYBODY).expect("no error");
        let Parsed::Incomplete { missing } = parsed else { panic!("{parsed:?} of {end} bytes") };
        assert!(missing <= input.len() - end);
    }
    for _ in 0..2 {
        let parsed = parser.next(input, &mut args, &ANYBODY);
        assert_eq!(parsed, Ok(Parsed::Command { consumed: input.len() }));
        assert_eq!(args.iter(input).collect::<Vec<_>>(), [&b"SET"[..], b"key", b"hello world"]);
    }
}

/// What is understood is spoiled before the parser goes on: it must not look there again.
#[test]
fn nothing_is_read_twice() {
    let lens = [4, 3, 3000, 40_000].repeat(20);
    let encode = |&len: &usize| format!("${len}\r\n{}\r\n", "x".repeat(len));
    let input = format!("*80\r\n{}", lens.iter().map(encode).collect::<String>());
    let (mut parser, mut args, mut moved) = (RequestParser::default(), ArgList::default(), 0);
    for step in [1, 7, 1000] {
        let (mut seen, mut spoiled) = (Vec::new(), 1);
        for piece in input.as_bytes().chunks(step) {
            let list = parser.found.as_ptr();
            seen.extend_from_slice(piece);
            let parsed = parser.next(&seen, &mut args, &ANYBODY).expect("no error");
            let Parsed::Incomplete { .. } = parsed else { continue };
            moved += usize::from(parser.found.as_ptr() != list);
            let understood = if parser.length.is_some() { seen.len() } else { parser.at };
            assert!(
                seen.len() - understood - parser.searched <= 1,
                "a line's end is half there at most"
            );
            if understood > spoiled {
                seen[spoiled..understood].fill(b'!');
                spoiled = understood;
            }
        }
        assert_eq!(args.iter(input.as_bytes()).map(<[u8]>::len).collect::<Vec<_>>(), lens);
    }
    assert!(moved < 30, "the list moves only when it grows: {moved} times");
}

#[test]
fn a_list_does_not_stay_long() {
    let long = format!("*5000\r\n{}", "$1\r\na\r\n".repeat(5000));
    let (mut parser, mut args) = (RequestParser::default(), ArgList::default());
    for input in [&long, "*2\r\n$3\r\nGET\r\n$1\r\na\r\n"] {
        let parsed = parser.next(input.as_bytes(), &mut args, &ANYBODY);
        assert_eq!(parsed, Ok(Parsed::Command { consumed: input.len() }));
    }
    assert!(args.len() == 2 && args.slots.capacity() < 100);
}

/// Each costs the same, however many there are.
#[test]
fn very_many_large_arguments() {
    const ARGUMENTS: usize = 100_000;
    let input = format!("*{ARGUMENTS}\r\n{}", "$1\r\na\r\n".repeat(ARGUMENTS)).into_bytes();
    let limits = RequestLimits { large_bytes: 1, ..ANYBODY };
    let (mut parser, mut args) = (RequestParser::default(), ArgList::default());
    let (announced, mut at) = (Announced::default(), 0);
    let parsed = loop {
        match parser.next(&input[at..], &mut args, &limits) {
            Ok(Parsed::Large(large)) => {
                at += parser.gather(&input[at..], large, &mut args, &announced);
            }
            other => break other,
        }
    };
    assert_eq!(parsed, Ok(Parsed::Command { consumed: LINE_END }));
    // As if it could not run yet.
    parser.put_back(&mut args);
    let again = parser.next(&input[at..], &mut args, &limits);
    assert_eq!(again, Ok(Parsed::Command { consumed: LINE_END }));
    assert_eq!(args.iter(&input[at..]).filter(|arg| *arg == b"a").count(), ARGUMENTS);
}
