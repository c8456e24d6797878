//! What the host sends to a connection that subscribes, in RESP2: the listener's input. The host is
//! trusted to be honest, not to be free of faults: what it sends is checked.

use super::{SubscriptionKind, parse_integer};
use crate::limits::{MAX_STRING_BYTES, PUSHED_ELEMENTS, PUSHED_LINE_BYTES};

/// Something that the host has sent.
#[derive(Debug, PartialEq, Eq)]
pub enum HostPush<'a> {
    /// A message.
    Message {
        /// What the subscription is to ...
        kind: SubscriptionKind,
        /// ... and its channel or pattern.
        name: &'a [u8],
        /// The message's channel.
        channel: &'a [u8],
        /// The message.
        payload: &'a [u8],
    },
    /// A subscription has begun (true) or ended.
    Confirmed(SubscriptionKind, &'a [u8], bool),
    /// A status line.
    Status(&'a [u8]),
    /// An error.
    Error(&'a [u8]),
}

/// Bytes that the host does not send to such a connection.
#[derive(Debug, PartialEq, Eq)]
pub struct NotPushed;

/// The first of what the host has sent, and its length. `None` if it is not complete.
///
/// # Errors
/// It is nothing that the host sends to such a connection.
pub fn read_pushed(input: &[u8]) -> Result<Option<(HostPush<'_>, usize)>, NotPushed> {
    let Some((line, mut at)) = line_at(input, 0)? else { return Ok(None) };
    match line.split_first() {
        Some((b'+', text)) => return Ok(Some((HostPush::Status(text), at))),
        Some((b'-', text)) => return Ok(Some((HostPush::Error(text), at))),
        Some((b'*', _)) => {}
        _ => return Err(NotPushed),
    }
    let count = number(line)?.filter(|count| (3..=PUSHED_ELEMENTS).contains(count));
    let count = count.ok_or(NotPushed)?;
    let mut elements = [&[][..]; PUSHED_ELEMENTS];
    for element in &mut elements[..count] {
        let Some((bytes, end)) = element_at(input, at)? else { return Ok(None) };
        (*element, at) = (bytes, end);
    }
    Ok(Some((pushed(&elements[..count]).ok_or(NotPushed)?, at)))
}

fn pushed<'a>(elements: &[&'a [u8]]) -> Option<HostPush<'a>> {
    use SubscriptionKind::{Channel, Pattern, Shard};
    Some(match elements {
        [b"message", name, payload] => {
            HostPush::Message { kind: Channel, name, channel: name, payload }
        }
        [b"smessage", name, payload] => {
            HostPush::Message { kind: Shard, name, channel: name, payload }
        }
        [b"pmessage", name, channel, payload] => {
            HostPush::Message { kind: Pattern, name, channel, payload }
        }
        [b"subscribe", name, _] => HostPush::Confirmed(Channel, name, true),
        [b"psubscribe", name, _] => HostPush::Confirmed(Pattern, name, true),
        [b"ssubscribe", name, _] => HostPush::Confirmed(Shard, name, true),
        [b"unsubscribe", name, _] => HostPush::Confirmed(Channel, name, false),
        [b"punsubscribe", name, _] => HostPush::Confirmed(Pattern, name, false),
        [b"sunsubscribe", name, _] => HostPush::Confirmed(Shard, name, false),
        _ => return None,
    })
}

/// The line that begins there, without its end, and where the next one begins.
fn line_at(input: &[u8], at: usize) -> Result<Option<(&[u8], usize)>, NotPushed> {
    let rest = &input[at..];
    let seen = &rest[..rest.len().min(PUSHED_LINE_BYTES)];
    match seen.windows(2).position(|end| end == b"\r\n") {
        Some(end) => Ok(Some((&rest[..end], at + end + 2))),
        None if seen.len() < rest.len() => Err(NotPushed),
        None => Ok(None),
    }
}

/// The string, or the text of the number, that begins there, and where the next element begins.
fn element_at(input: &[u8], at: usize) -> Result<Option<(&[u8], usize)>, NotPushed> {
    let Some((line, start)) = line_at(input, at)? else { return Ok(None) };
    match line.split_first() {
        Some((b':', text)) => Ok(Some((text, start))),
        Some((b'$', _)) => {
            // The name of nothing: UNSUBSCRIBE of a connection without subscriptions.
            let Some(length) = number(line)? else { return Ok(Some((&[], start))) };
            let end = start + length;
            match input.get(end..end + 2) {
                Some(b"\r\n") => Ok(Some((&input[start..end], end + 2))),
                Some(_) => Err(NotPushed),
                None => Ok(None),
            }
        }
        _ => Err(NotPushed),
    }
}

/// The number behind the sign of a line; `None` for -1.
fn number(line: &[u8]) -> Result<Option<usize>, NotPushed> {
    match parse_integer(&line[1..]) {
        Some(-1) => Ok(None),
        Some(number) if (0..=MAX_STRING_BYTES).contains(&number) => Ok(Some(number as usize)),
        _ => Err(NotPushed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &[u8] = b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$4\r\na\r\nb\r\n";

    #[test]
    fn each_kind_is_read() {
        use SubscriptionKind::{Channel, Pattern, Shard};
        let cases: [(&[u8], HostPush<'_>); 6] = [
            (
                MESSAGE,
                HostPush::Message { kind: Channel, name: b"c", channel: b"c", payload: b"a\r\nb" },
            ),
            (
                b"*4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$1\r\nc\r\n$0\r\n\r\n",
                HostPush::Message { kind: Pattern, name: b"*", channel: b"c", payload: b"" },
            ),
            (
                b"*3\r\n$10\r\nssubscribe\r\n$1\r\nc\r\n:1\r\n",
                HostPush::Confirmed(Shard, b"c", true),
            ),
            (
                b"*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n",
                HostPush::Confirmed(Channel, b"", false),
            ),
            (b"+OK\r\n", HostPush::Status(b"OK")),
            (b"-ERR no\r\n", HostPush::Error(b"ERR no")),
        ];
        for (bytes, expected) in cases {
            assert_eq!(read_pushed(bytes), Ok(Some((expected, bytes.len()))));
            for end in 0..bytes.len() {
                assert_eq!(read_pushed(&bytes[..end]), Ok(None), "{end}");
            }
        }
    }

    #[test]
    fn what_the_host_does_not_send_is_refused() {
        for bytes in [
            &b"x\r\n"[..],
            b"\r\n",
            b"*2\r\n",
            b"*5\r\n",
            b"*-1\r\n",
            b"*x\r\n",
            b"*3\r\n$3\r\nabc\r\n$1\r\nc\r\n$1\r\nd\r\n",
            b"*3\r\n$3\r\nabcd\r\n",
            b"*3\r\n$-2\r\n",
            b"*3\r\n$99999999999\r\n",
            &[b'+'; PUSHED_LINE_BYTES + 1],
        ] {
            assert_eq!(read_pushed(bytes), Err(NotPushed), "{:?}", String::from_utf8_lossy(bytes));
        }
    }
}
