//! The promise: the port's protocol is Redis 7.0's, byte for byte.
//!
//! Input is split into commands as a real server does it, whatever the reads; output is parsed back
//! to the reply that was written.
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

use crate::common::hosts::host;
use crate::common::{Builder, HANG, Random, Server, Value, encoded};
use midi::command::Reply;
use midi::net::resp::{ArgList, Parsed, RequestLimits, RequestParser, RespReply};
use midi::net::{Announced, Output};
use proptest::prelude::*;

type Command = Vec<Vec<u8>>;

const ANYBODY: RequestLimits =
    RequestLimits { max_bulk_bytes: 512 << 20, authenticated: true, large_bytes: usize::MAX };
const STRANGER: RequestLimits = RequestLimits { authenticated: false, ..ANYBODY };

/// The input of a connection if its bytes come in these pieces: commands, and the error that ends
/// it.
fn heard<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    limits: &RequestLimits,
) -> (Vec<Command>, Option<Vec<u8>>) {
    let (mut parser, mut args) = (RequestParser::default(), ArgList::default());
    let (mut buffer, mut commands) = (Vec::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            if let Some(gathered) = parser.gathered().filter(|gathered| gathered.missing() > 0) {
                buffer.drain(..gathered.fill_from(&buffer));
                if gathered.missing() > 0 {
                    break;
                }
            }
            let consumed = match parser.next(&buffer, &mut args, limits) {
                Err(error) => return (commands, Some(error.text())),
                Ok(Parsed::Incomplete { .. }) => break,
                Ok(Parsed::Large(large)) => {
                    parser.gather(&buffer, large, &mut args, &Announced::default())
                }
                Ok(Parsed::Empty { consumed }) => consumed,
                Ok(Parsed::Command { consumed }) => {
                    commands.push(args.iter(&buffer).map(<[u8]>::to_vec).collect());
                    args.forget_gathered();
                    consumed
                }
            };
            buffer.drain(..consumed);
        }
    }
    (commands, None)
}

/// Cuts at these distances, used in turn.
fn pieces<'a>(mut bytes: &'a [u8], steps: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    steps.iter().cycle().map_while(move |&step| {
        let (piece, rest) = bytes.split_at_checked(step).unwrap_or((bytes, &[]));
        bytes = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

/// A command as it may arrive.
#[derive(Clone, Debug)]
enum Sent {
    Array(Command),
    Inline(Command),
    Nothing(&'static str),
}

impl Sent {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Sent::Array(args) => encoded(args),
            Sent::Inline(args) => {
                [args.iter().flat_map(|arg| quoted(arg)).collect(), b"\r\n".to_vec()].concat()
            }
            Sent::Nothing(bytes) => bytes.as_bytes().to_vec(),
        }
    }
}

/// A word of an inline command that means these bytes.
fn quoted(arg: &[u8]) -> Vec<u8> {
    let escaped: String = arg.iter().map(|byte| format!("\\x{byte:02x}")).collect();
    format!(" \"{escaped}\"\t").into()
}

/// Up to 13 arguments of fewer than `bytes` bytes.
fn args(bytes: usize) -> impl Strategy<Value = Command> {
    let near_ends = prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'$'), Just(b'*')];
    let arg = prop_oneof![
        4 => proptest::collection::vec(any::<u8>(), 0..12),
        2 => proptest::collection::vec(near_ends, 0..8),
        1 => (0..bytes).prop_map(|len| vec![b'v'; len]),
    ];
    proptest::collection::vec(arg, 1..14)
}

fn sent() -> impl Strategy<Value = Sent> {
    // A line of more than 64 KiB is an error, and `quoted` makes four bytes of one.
    let inline_bytes = (64 << 10) / 13 / 4 - 1;
    let nothing = ["\n", "\r\n", " \t\r\n", "*0\r\n", "*-1\r\n"].map(Sent::Nothing);
    prop_oneof![
        5 => args(3000).prop_map(Sent::Array),
        2 => args(inline_bytes).prop_map(Sent::Inline),
        1 => proptest::sample::select(nothing.to_vec()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_split_gives_the_same_commands(
        list in proptest::collection::vec(sent(), 0..12),
        steps in proptest::collection::vec(prop_oneof![1..4usize, 1..200usize, 1..5000usize], 1..8),
        large_bytes in prop_oneof![Just(usize::MAX), 0..12usize, 0..4000usize],
    ) {
        let bytes: Vec<u8> = list.iter().flat_map(Sent::bytes).collect();
        let expected: Vec<Command> = list
            .into_iter()
            .filter_map(|sent| match sent {
                Sent::Array(args) | Sent::Inline(args) => Some(args),
                Sent::Nothing(_) => None,
            })
            .collect();
        let limits = RequestLimits { large_bytes, ..ANYBODY };
        prop_assert_eq!(heard(pieces(&bytes, &steps), &limits), (expected, None));
    }

    #[test]
    fn garbage_is_cut_the_same_however_it_comes(
        bytes in proptest::collection::vec(
            prop_oneof![any::<u8>(), proptest::sample::select(b"*$0123\r\n\"' ".to_vec())],
            0..200,
        ),
        steps in proptest::collection::vec(1..20usize, 1..8),
    ) {
        for limits in [&ANYBODY, &STRANGER] {
            prop_assert_eq!(heard(pieces(&bytes, &steps), limits), heard([&bytes[..]], limits));
        }
    }
}

/// A reply, and everything in it.
fn reply() -> impl Strategy<Value = Value> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..200);
    let line = proptest::collection::vec(
        any::<u8>().prop_filter("ends a line", |byte| !b"\r\n".contains(byte)),
        0..40,
    );
    let leaf = prop_oneof![
        proptest::sample::select(vec!["OK", "PONG", "QUEUED", ""])
            .prop_map(|text| Value::Simple(text.into())),
        line.prop_map(Value::Error),
        any::<i64>().prop_map(Value::Integer),
        (-200..200i64).prop_map(Value::Integer),
        bytes().prop_map(Value::Bulk),
        (0..70_000usize).prop_map(|len| Value::Bulk(vec![b'v'; len])),
        bytes().prop_map(Value::Verbatim),
        Just(Value::Null),
    ];
    leaf.prop_recursive(3, 300, 20, |element| {
        prop_oneof![
            proptest::collection::vec(element.clone(), 0..20).prop_map(Value::Array),
            proptest::collection::vec((element.clone(), element), 0..10).prop_map(Value::Map),
        ]
    })
}

fn say(value: &Value, to: &mut RespReply<'_>) {
    match value {
        Value::Simple(text) if text == b"OK" => to.ok(),
        Value::Simple(text) if text == b"PONG" => to.simple("PONG"),
        Value::Simple(text) if text == b"QUEUED" => to.simple("QUEUED"),
        Value::Simple(_) => to.simple(""),
        Value::Error(text) => to.error(text),
        Value::Integer(number) => to.integer(*number),
        Value::Bulk(bytes) => to.bulk(bytes),
        Value::Verbatim(text) => to.verbatim(text),
        Value::Array(list) => {
            to.array(list.len());
            list.iter().for_each(|element| say(element, to));
        }
        Value::Map(pairs) => {
            to.map(pairs.len());
            pairs.iter().for_each(|(key, value)| {
                say(key, to);
                say(value, to);
            });
        }
        _ => to.null(),
    }
}

/// The same reply as a client of this protocol sees it.
fn seen(value: &Value, resp3: bool) -> Value {
    let list = |list: &[Value]| list.iter().map(|element| seen(element, resp3)).collect();
    match value {
        Value::Array(elements) => Value::Array(list(elements)),
        Value::Null if !resp3 => Value::NullBulk,
        Value::Verbatim(text) if resp3 => Value::Verbatim([b"txt:", &text[..]].concat()),
        Value::Verbatim(text) => Value::Bulk(text.clone()),
        Value::Map(pairs) if resp3 => Value::Map(
            pairs.iter().map(|(key, value)| (seen(key, true), seen(value, true))).collect(),
        ),
        Value::Map(pairs) => Value::Array(
            pairs.iter().flat_map(|(key, value)| [seen(key, false), seen(value, false)]).collect(),
        ),
        other => other.clone(),
    }
}

/// The reply that `bytes` begin with. Parses only what the port writes.
fn decoded(bytes: &mut &[u8]) -> Option<Value> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    let (line, rest) = (&bytes[..end], &bytes[end + 2..]);
    *bytes = rest;
    let (&sign, text) = line.split_first()?;
    let number: Option<i64> = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    Some(match (sign, number) {
        (b'+', _) => Value::Simple(text.to_vec()),
        (b'-', _) => Value::Error(text.to_vec()),
        (b':', Some(number)) => Value::Integer(number),
        (b'$', Some(-1)) => Value::NullBulk,
        (b'_', None) if text.is_empty() => Value::Null,
        (b'$' | b'=', Some(len)) => {
            let (string, rest) = bytes.split_at_checked(len as usize)?;
            *bytes = rest.strip_prefix(b"\r\n")?;
            if sign == b'$' {
                Value::Bulk(string.to_vec())
            } else {
                Value::Verbatim(string.to_vec())
            }
        }
        (b'*', Some(len)) => Value::Array((0..len).map(|_| decoded(bytes)).collect::<Option<_>>()?),
        (b'%', Some(len)) => {
            let mut pair = || Some((decoded(bytes)?, decoded(bytes)?));
            Value::Map((0..len).map(|_| pair()).collect::<Option<_>>()?)
        }
        _ => return None,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn replies_are_read_back_as_they_were_said(
        list in proptest::collection::vec(reply(), 1..4), resp3: bool,
    ) {
        let mut out = Output::from(b"before".to_vec());
        list.iter().for_each(|value| say(value, &mut RespReply::new(&mut out, resp3)));
        let mut rest = out.own.strip_prefix(b"before").expect("what was there stays");
        for value in &list {
            prop_assert_eq!(decoded(&mut rest), Some(seen(value, resp3)));
        }
        prop_assert_eq!(rest, b"");
    }
}

/// Everything that a server answers to these bytes, until one of the two has closed.
fn answered(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
    stream.set_read_timeout(Some(HANG)).expect("a timeout");
    // It may have closed before it has read everything.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return answer,
            Ok(len) => answer.extend_from_slice(&buffer[..len]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return answer,
            Err(error) => panic!("{error} after {}", bytes.escape_ascii()),
        }
    }
}

/// The port's answers if it had only PING and ECHO. Of commands' errors the first word is kept.
fn expected(bytes: &[u8], limits: &RequestLimits) -> Vec<Value> {
    let (commands, error) = heard([bytes], limits);
    let answers = commands.iter().map(|command| match &command[..] {
        _ if !limits.authenticated => Value::error("NOAUTH"),
        [name] if name.eq_ignore_ascii_case(b"ping") => Value::Simple(b"PONG".to_vec()),
        [name, text]
            if name.eq_ignore_ascii_case(b"ping") || name.eq_ignore_ascii_case(b"echo") =>
        {
            Value::bulk(text)
        }
        _ => Value::error("ERR"),
    });
    answers.chain(error.map(Value::Error)).collect()
}

#[track_caller]
fn compare(server: &Server, bytes: &[u8], limits: &RequestLimits) {
    // Valkey treats this byte of an inline command as a space.
    if host().valkey && bytes.contains(&0xff) {
        return;
    }
    let answer = answered(server, bytes);
    let (mut rest, mut answers) = (&answer[..], Vec::new());
    while let Some(value) = decoded(&mut rest) {
        answers.push(match value {
            Value::Error(ref text) if !is_protocol_error(&value) => {
                Value::error(String::from_utf8_lossy(text).split(' ').next().unwrap_or_default())
            }
            other => other,
        });
    }
    assert_eq!(rest, b"");
    let expected = expected(bytes, limits);
    // Newer hosts are stricter about line ends, and no longer answer some half-closed clients.
    let malformed = |answers: &[Value]| answers.iter().any(is_protocol_error);
    if host().is_newer() && (malformed(&answers) || malformed(&expected)) {
        return;
    }
    assert_eq!(answers, expected, "{}", bytes[..bytes.len().min(500)].escape_ascii());
}

fn is_protocol_error(answer: &Value) -> bool {
    matches!(answer, Value::Error(text) if text.starts_with(b"ERR Protocol error"))
}

/// Valid commands, to send before and after.
const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// Lines too long for Redis, without their ends.
fn too_long() -> Vec<Vec<u8>> {
    let line = |start: &str| [start.as_bytes(), &[b'1'; 65_536]].concat();
    vec![
        line("*"),
        line("*1\r\n$"),
        line("1"),
        line("*1\0\r\n"),
        line("a\0b\r\n"),
        line("*1\r\n$4\0\r\n"),
    ]
}

#[test]
fn malformed_requests_are_answered_as_redis_answers_them() {
    let server = Builder::plain().start();
    let cases: [&[u8]; 62] = [
        b"*\r\n",
        b"*a\r\n",
        b"*1a\r\n",
        b"*+1\r\n",
        b"*01\r\n",
        b"*-0\r\n",
        b"* 1\r\n",
        b"*1 \r\n",
        b"*00\r\n",
        b"*-\r\n",
        b"*--1\r\n",
        b"*0\r\n",
        b"*-1\r\n",
        b"*-2147483649\r\n",
        b"*-9223372036854775808\r\n",
        b"*-9223372036854775809\r\n",
        b"*2147483647\r\n",
        b"*2147483648\r\n",
        b"*9223372036854775807\r\n",
        b"*9223372036854775808\r\n",
        b"*99999999999999999999\r\n",
        b"*100000000000000000000\r\n",
        b"*1\rx$4\ryPINGzz",
        b"*1\r\r$4\r\rPING\r\r",
        b"*1\n$4\nPING\n",
        b"*1\r\nPING\r\n",
        b"*1\r\n\r\n",
        b"*1\r\n\n\r\n",
        b"*1\r\n\xff\r\n",
        b"*1\r\n'\r\n",
        b"*1\r\n:4\r\n",
        b"*1\r\n*1\r\n",
        b"*1\r\n$\r\n",
        b"*1\r\n$-1\r\n",
        b"*1\r\n$-0\r\n",
        b"*1\r\n$04\r\n",
        b"*1\r\n$4 \r\n",
        b"*1\r\n$4x\r\n",
        b"*1\r\n$536870912\r\n",
        b"*1\r\n$536870913\r\n",
        b"*1\r\n$9223372036854775807\r\n",
        b"*1\r\n$9223372036854775808\r\n",
        b"*1\r\n$0\r\n\r\n",
        b"*1\r\n$4\r\nPINGxy",
        b"*1\r\n$3\r\nPING\r\n",
        b"*1\r\n$5\r\nPING\r\n",
        b"*2\r\n$4\r\nECHO\r\n$2\r\n\r\n\r\n",
        b"PING\n",
        b"PING\r\n",
        b"ping \"\"\r\n",
        b"PING \"a\\x41\\n\\\"\" \r\n",
        b"ECHO '\\'\"\\n'\r\n",
        b"ECHO \"a\"b\r\n",
        b"ECHO 'a'b\r\n",
        b"ECHO \"a\r\n",
        b"ECHO 'a\r\n",
        b"ECHO a\"b c\"\r\n",
        b"ECHO \x0bx\x0by\x0c\r\n",
        b"ECHO \"\\\r\n\"\r\n",
        b"\r\n\r\n\n \t \r\n",
        b"\0\r\n",
        b"ECHO \xff\x80\r\n",
    ];
    for case in cases {
        compare(&server, &[case, PING].concat(), &ANYBODY);
        compare(&server, &[PING, b"ECHO first\r\n", case, PING].concat(), &ANYBODY);
        compare(&server, case.strip_suffix(b"\n").unwrap_or(case), &ANYBODY);
    }
    for case in too_long() {
        compare(&server, &case, &ANYBODY);
        compare(&server, &[PING, &case[..65_536 - PING.len()]].concat(), &ANYBODY);
    }
    // More than Redis reads at once, and no more than it sends at once: it sends nothing more to a
    // client that has shut down.
    compare(&server, &encoded(&["ECHO".to_owned(), "x".repeat(40_000)]), &ANYBODY);
    compare(&server, &encoded(&vec!["PING"; 5000]), &ANYBODY);
}

#[test]
fn strangers_are_answered_as_redis_answers_them() {
    let server = Builder::plain().start();
    server.client().ok("CONFIG SET requirepass secret");
    for case in [
        encoded(&["PING"]),
        encoded(&["PING"; 10]),
        encoded(&["PING"; 11]),
        b"*11\r\n".to_vec(),
        b"*2147483648\r\n".to_vec(),
        b"*1\r\n$16384\r\n".to_vec(),
        b"*1\r\n$16385\r\n".to_vec(),
        b"*1\r\n$536870913\r\n".to_vec(),
        encoded(&["ECHO".to_owned(), "x".repeat(16_384)]),
        encoded(&["ECHO".to_owned(), "x".repeat(16_385)]),
        b"MSET a b c d e f g h i j k l\r\n".to_vec(),
        [b"ECHO ", &[b'x'; 20_000][..], b"\r\n"].concat(),
    ] {
        compare(&server, &[&case, PING].concat(), &STRANGER);
    }
}

#[test]
fn random_requests_are_answered_as_redis_answers_them() {
    let server = Builder::plain().start();
    let mut random = Random::new(15);
    for _ in 0..2000 {
        let mut bytes = Vec::new();
        for _ in 0..1 + random.below(4) {
            bytes.extend_from_slice(random.pick(&[
                PING,
                b"*2\r\n$4\r\necho\r\n$11\r\nhello world\r\n",
                b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n",
                b"*3\r\n$4\r\nECHO\r\n$1\r\na\r\n$2\r\n\r\n\r\n",
                b"ECHO \"a\\x41 \\n\" \r\n",
                b" echo 'it\\'s' \n",
                b"*0\r\n",
            ]));
        }
        for _ in 0..random.below(4) {
            let at = random.below(bytes.len());
            let byte = random.pick(&[
                b"\r", b"\n", b"\0", b"*", b"$", b"0", b"1", b"9", b"-", b"\"", b"'", b"\\", b" ",
                b"\xff",
            ])[0];
            match random.below(3) {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ if bytes.len() > 1 => drop(bytes.remove(at)),
                _ => {}
            }
        }
        compare(&server, &bytes, &ANYBODY);
    }
}
