//! Requests: however a stream is cut into reads, the same commands are in it, and a
//! command that is written again is read again.

use midi::command::Reply;
use midi::net::resp::{ArgList, Parsed, RequestLimits, RequestParser, RespReply};

/// The first byte says whose stream it is, the second how it is cut.
pub fn check(data: &[u8]) {
    let [mode, cut, stream @ ..] = data else { return };
    let limits = RequestLimits {
        max_bulk_bytes: if mode & 1 == 0 { 512 << 20 } else { 40 },
        authenticated: mode & 2 == 0,
    };
    let stream = if mode & 4 == 0 { stream.to_vec() } else { unfolded(stream) };
    let whole = heard(&stream, &limits, |_| stream.len());
    assert_eq!(heard(&stream, &limits, steps(*cut)), whole);
    if stream.len() < 4096 {
        assert_eq!(heard(&stream, &limits, |_| 1), whole);
    }
    whole.commands.iter().for_each(|command| comes_back(command));
}

/// In such a stream 0xff stands for many times the byte before it: lines become too long.
fn unfolded(stream: &[u8]) -> Vec<u8> {
    const TIMES: usize = 22_000;
    let (mut unfolded, mut folds) = (Vec::new(), 0);
    for &byte in stream {
        match unfolded.last() {
            Some(&last) if byte == 0xff && folds < 4 => {
                folds += 1;
                unfolded.resize(unfolded.len() + TIMES, last);
            }
            _ => unfolded.push(byte),
        }
    }
    unfolded
}

/// Lengths of reads: short ones and, now and then, a longer one.
fn steps(cut: u8) -> impl FnMut(usize) -> usize {
    let mut state = u32::from(cut);
    move |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let drawn = (state >> 16) as usize;
        if drawn.is_multiple_of(8) { drawn } else { 1 + drawn % 24 }.max(1)
    }
}

/// What a connection hears, how much of it it has understood, and the error that ends it.
#[derive(Debug, Default, PartialEq)]
struct Heard {
    commands: Vec<Vec<Vec<u8>>>,
    understood: usize,
    error: Option<Vec<u8>>,
}

/// A list that has had a longer command, as most have.
fn used_list() -> ArgList {
    let input = b"*16\r\n".iter().chain(b"$0\r\n\r\n".repeat(16).iter()).copied().collect::<Vec<u8>>();
    let limits = RequestLimits { max_bulk_bytes: 1, authenticated: true };
    let mut args = ArgList::default();
    let parsed = RequestParser::default().next(&input, &mut args, &limits);
    assert_eq!(parsed, Ok(Parsed::Command { consumed: input.len() }));
    args
}

fn heard(stream: &[u8], limits: &RequestLimits, mut step: impl FnMut(usize) -> usize) -> Heard {
    let (mut parser, mut args, mut heard) = (RequestParser::default(), used_list(), Heard::default());
    // What the current command cannot be shorter than.
    let (mut end, mut least) = (0, 0);
    while end < stream.len() {
        end = stream.len().min(end + step(end));
        loop {
            let input = &stream[heard.understood..end];
            let consumed = match parser.next(input, &mut args, limits) {
                Ok(Parsed::Incomplete { missing }) => {
                    assert!(missing > 0, "something is missing");
                    least = input.len() + missing;
                    break;
                }
                Ok(Parsed::Empty { consumed }) => consumed,
                Ok(Parsed::Command { consumed }) => {
                    assert!(consumed >= least, "no more was missing than came");
                    assert!(!args.is_empty());
                    heard.commands.push(args.iter(input).map(<[u8]>::to_vec).collect());
                    consumed
                }
                Err(error) => {
                    heard.error = Some(error.text());
                    return heard;
                }
            };
            assert!(consumed > 0 && consumed <= input.len());
            heard.understood += consumed;
            least = 0;
        }
    }
    heard
}

/// A command, written as an array of strings, is that command.
fn comes_back(command: &[Vec<u8>]) {
    let mut bytes = Vec::new();
    let mut writer = RespReply::new(&mut bytes, false);
    writer.array(command.len());
    command.iter().for_each(|arg| writer.bulk(arg));
    let limits = RequestLimits { max_bulk_bytes: 512 << 20, authenticated: true };
    let again = heard(&bytes, &limits, |_| bytes.len());
    assert_eq!(again, Heard { commands: vec![command.to_vec()], understood: bytes.len(), error: None });
}
