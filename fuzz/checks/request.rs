//! Requests: however a stream is cut into reads, and whichever arguments count as large, it
//! contains the same commands, and a command that is encoded again is parsed again.

use midi::command::Reply;
use midi::limits::ARGUMENTS_KEPT;
use midi::net::resp::{ArgList, Head, Parsed, RequestLimits, RequestParser, RespReply};
use midi::net::{Announced, Output};

const ANYBODY: RequestLimits =
    RequestLimits { max_bulk_bytes: 512 << 20, authenticated: true, large_bytes: usize::MAX };

/// The first byte decides whose stream it is, the second how it is cut.
pub fn check(data: &[u8]) {
    let [mode, cut, stream @ ..] = data else { return };
    let limits = RequestLimits {
        max_bulk_bytes: if mode & 1 == 0 { 512 << 20 } else { 40 },
        authenticated: mode & 2 == 0,
        large_bytes: usize::MAX,
    };
    let stream = if mode & 4 == 0 { stream.to_vec() } else { unfolded(stream) };
    let whole = heard(&stream, &limits, &mut used_list(16), |_| stream.len());
    // One list serves all connections. It has had a command so long that the list is not kept.
    let mut args = used_list(if mode & 8 == 0 { 0 } else { ARGUMENTS_KEPT + 1 });
    assert_eq!(heard(&stream, &limits, &mut args, steps(*cut)), whole);
    if stream.len() < 4096 {
        assert_eq!(heard(&stream, &limits, &mut args, |_| 1), whole);
    }
    if mode & 32 != 0 {
        let limits = RequestLimits { large_bytes: usize::from(*cut), ..limits };
        assert_eq!(heard(&stream, &limits, &mut args, steps(*cut)), whole);
    }
    if mode & 16 != 0 {
        both_are_heard(&stream, &limits, steps(*cut), &whole);
    }
    whole.commands.iter().for_each(|command| comes_back(command));
}

/// In such a stream 0xff means many times the byte before it, so that lines become too long;
/// 0xfe means many times the seven bytes before it, which can be an argument, so that the list
/// of arguments becomes too long.
fn unfolded(stream: &[u8]) -> Vec<u8> {
    const LINE: usize = 22_000;
    const ARGUMENT: usize = b"$1\r\na\r\n".len();
    let (mut unfolded, mut folds) = (Vec::new(), 0);
    for &byte in stream {
        let (repeated, times) = match byte {
            0xff => (1, LINE),
            0xfe => (ARGUMENT, ARGUMENTS_KEPT),
            _ => (0, 0),
        };
        if times > 0 && folds < 4 && unfolded.len() >= repeated {
            folds += 1;
            let again = unfolded[unfolded.len() - repeated..].repeat(times);
            unfolded.extend(again);
        } else {
            unfolded.push(byte);
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

/// What a connection has received, how much of it was parsed, and the error that ends it.
#[derive(Debug, Default, PartialEq)]
struct Heard {
    commands: Vec<Vec<Vec<u8>>>,
    understood: usize,
    error: Option<Vec<u8>>,
}

/// A list that has had a command of this many arguments; most lists have had a longer one.
fn used_list(arguments: usize) -> ArgList {
    let mut args = ArgList::default();
    if arguments > 0 {
        let input =
            [format!("*{arguments}\r\n").as_bytes(), &b"$0\r\n\r\n".repeat(arguments)].concat();
        let limits = RequestLimits { max_bulk_bytes: 1, ..ANYBODY };
        let parsed = RequestParser::default().next(&input, &mut args, &limits);
        assert_eq!(parsed, Ok(Parsed::Command { consumed: input.len() }));
    }
    args
}

/// A connection that receives a stream piece by piece.
#[derive(Default)]
struct Listener {
    parser: RequestParser,
    heard: Heard,
    announced: Announced,
    /// How much of the stream has arrived, ...
    end: usize,
    /// ... and how much of that has been taken.
    taken: usize,
    /// The minimum length of the current command.
    least: usize,
    /// The form of the last command.
    known: Option<Head>,
}

impl Listener {
    /// This many more bytes arrive. False if no more can.
    fn hear(
        &mut self,
        stream: &[u8],
        limits: &RequestLimits,
        args: &mut ArgList,
        bytes: usize,
    ) -> bool {
        self.end = stream.len().min(self.end + bytes);
        loop {
            if self.parser.gathered().is_some_and(|gathered| gathered.missing() > 0)
                && !self.fill(stream)
            {
                return self.end < stream.len();
            }
            let input = &stream[self.taken..self.end];
            let expected = self.recognised(input);
            let parsed = self.parser.next(input, args, limits);
            if let Some((consumed, list)) = expected {
                assert_eq!(parsed, Ok(Parsed::Command { consumed }), "one like the last");
                assert!(args.iter(input).eq(list), "one like the last");
            }
            let consumed = match parsed {
                Ok(Parsed::Incomplete { missing }) => {
                    assert!(missing > 0, "something is missing");
                    self.least = input.len() + missing;
                    return self.end < stream.len();
                }
                Ok(Parsed::Large(large)) => {
                    self.taken += self.parser.gather(input, large, args, &self.announced);
                    self.least = 0;
                    continue;
                }
                Ok(Parsed::Empty { consumed }) => consumed,
                Ok(Parsed::Command { consumed }) => {
                    assert!(consumed >= self.least, "no more was missing than came");
                    assert!(!args.is_empty());
                    self.heard.commands.push(args.iter(input).map(<[u8]>::to_vec).collect());
                    self.known = Head::of(input, args, limits);
                    args.forget_gathered();
                    consumed
                }
                Err(error) => {
                    self.heard.error = Some(error.text());
                    return false;
                }
            };
            assert!(consumed > 0 && consumed <= input.len());
            self.taken += consumed;
            self.heard.understood = self.taken;
            self.least = 0;
        }
    }

    /// Gives the parser what has arrived of a large argument. Whether that is all of it.
    fn fill(&mut self, stream: &[u8]) -> bool {
        let Some(gathered) = self.parser.gathered() else { return true };
        self.taken += gathered.fill_from(&stream[self.taken..self.end]);
        gathered.missing() == 0
    }

    /// The next command, if it is known to have the last one's form: its length, and its arguments.
    fn recognised<'i>(&self, input: &'i [u8]) -> Option<(usize, Vec<&'i [u8]>)> {
        let known = self.known.filter(|_| self.parser.is_between())?;
        let mut list = Vec::new();
        let length = known.take(input, |arg| list.push(arg))?;
        Some((length, list))
    }
}

fn heard(
    stream: &[u8],
    limits: &RequestLimits,
    args: &mut ArgList,
    mut step: impl FnMut(usize) -> usize,
) -> Heard {
    let mut listener = Listener::default();
    while listener.hear(stream, limits, args, step(listener.end)) {}
    listener.heard
}

/// Two connections take turns with one list: neither gets anything of the other's.
fn both_are_heard(
    stream: &[u8],
    limits: &RequestLimits,
    mut step: impl FnMut(usize) -> usize,
    whole: &Heard,
) {
    let (mut first, mut second, mut args) =
        (Listener::default(), Listener::default(), used_list(16));
    let (mut first_goes_on, mut second_goes_on) = (true, true);
    while first_goes_on || second_goes_on {
        first_goes_on = first_goes_on && first.hear(stream, limits, &mut args, step(0));
        second_goes_on = second_goes_on && second.hear(stream, limits, &mut args, step(0));
    }
    assert_eq!((&first.heard, &second.heard), (whole, whole));
}

/// A command that is written as an array of strings parses to that command.
fn comes_back(command: &[Vec<u8>]) {
    let mut output = Output::default();
    let mut writer = RespReply::new(&mut output, false);
    writer.array(command.len());
    command.iter().for_each(|arg| writer.bulk(arg));
    let bytes = &output.own[..];
    let limits = ANYBODY;
    let again = heard(bytes, &limits, &mut used_list(16), |_| bytes.len());
    assert_eq!(
        again,
        Heard { commands: vec![command.to_vec()], understood: bytes.len(), error: None }
    );
}
