//! Finds where replies end, and keeps the first error. Values are skipped, not parsed; what
//! is cut off at the end of a read continues in the next.

use memchr::memchr;

use super::Protocol;

/// Longest accepted line: a peer that sends more is not one of our servers.
const MAX_LINE_BYTES: usize = 64 << 10;

/// Counts complete replies in a stream of bytes.
pub struct Replies {
    protocol: Protocol,
    /// Replies, or parts of one, still to come before the current reply ends.
    parts: u64,
    /// Bytes of a value to skip.
    skip: usize,
    /// A line that is not complete yet.
    line: Vec<u8>,
    /// The replies that were found so far.
    pub seen: Seen,
}

/// Counts of replies.
#[derive(Default, Clone)]
pub struct Seen {
    /// Error replies.
    pub errors: u64,
    /// Null replies and elements: keys that do not exist.
    pub nulls: u64,
    /// The first error's text.
    pub first_error: Option<String>,
}

impl Replies {
    /// At the start of a connection.
    pub fn new(protocol: Protocol) -> Self {
        Replies { protocol, parts: 0, skip: 0, line: Vec::new(), seen: Seen::default() }
    }

    /// How many replies these bytes complete.
    ///
    /// # Errors
    /// Bytes that are not a reply: the connection is not usable any more.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<u64, String> {
        let mut complete = 0;
        while !bytes.is_empty() {
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len());
                self.skip -= skipped;
                bytes = &bytes[skipped..];
                // The value's reply ends with its last byte.
                if self.skip == 0 {
                    complete += self.part_ends();
                }
                continue;
            }
            let Some(end) = memchr(b'\n', bytes) else {
                self.line.extend_from_slice(bytes);
                if self.line.len() > MAX_LINE_BYTES {
                    return Err("a reply line without end".into());
                }
                break;
            };
            let (head, rest) = bytes.split_at(end + 1);
            bytes = rest;
            let ended = if self.line.is_empty() {
                self.on_line(head)?
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(head);
                let ended = self.on_line(&line)?;
                line.clear();
                self.line = line;
                ended
            };
            if ended {
                complete += self.part_ends();
            }
        }
        Ok(complete)
    }

    /// 1 if the whole reply ends with this part.
    #[inline]
    fn part_ends(&mut self) -> u64 {
        self.parts = self.parts.saturating_sub(1);
        u64::from(self.parts == 0)
    }

    /// Whether the part that begins with this line ends with it, too.
    #[inline]
    fn on_line(&mut self, line: &[u8]) -> Result<bool, String> {
        let text = line.strip_suffix(b"\r\n").ok_or("a reply line that does not end in CR LF")?;
        match self.protocol {
            Protocol::Resp => self.on_resp(text),
            Protocol::Memcached => self.on_memcached(text),
        }
    }

    fn on_resp(&mut self, text: &[u8]) -> Result<bool, String> {
        let Some((&kind, rest)) = text.split_first() else {
            return Err("an empty reply line".into());
        };
        match kind {
            b'$' | b'=' => match number(rest)? {
                None => {
                    self.seen.nulls += 1;
                    Ok(true)
                }
                Some(length) => {
                    self.skip = length as usize + 2;
                    Ok(false)
                }
            },
            b'*' | b'~' | b'>' | b'%' => match number(rest)? {
                None => {
                    self.seen.nulls += 1;
                    Ok(true)
                }
                Some(count) => {
                    // One for the array itself, which ends at once, unless it is part of another.
                    let elements = if kind == b'%' { count * 2 } else { count };
                    self.parts = self.parts.max(1) + elements;
                    Ok(true)
                }
            },
            b'-' | b'!' => {
                self.error(rest);
                Ok(true)
            }
            b'_' => {
                self.seen.nulls += 1;
                Ok(true)
            }
            b'+' | b':' | b',' | b'#' | b'(' => Ok(true),
            _ => Err(format!("no reply: {}", String::from_utf8_lossy(text))),
        }
    }

    fn on_memcached(&mut self, text: &[u8]) -> Result<bool, String> {
        if let Some(rest) = text.strip_prefix(b"VALUE ") {
            // VALUE key flags bytes [cas]
            let length = rest.split(|&byte| byte == b' ').nth(2).map(number).transpose()?.flatten();
            self.skip = length.ok_or("VALUE without a length")? as usize + 2;
            // This value, and what follows it up to END.
            self.parts = 2;
            return Ok(false);
        }
        if let Some(rest) = text.strip_prefix(b"VA ") {
            let length = rest.split(|&byte| byte == b' ').next().map(number).transpose()?.flatten();
            self.skip = length.ok_or("VA without a length")? as usize + 2;
            return Ok(false);
        }
        if text.ends_with(b"ERROR")
            || text.starts_with(b"CLIENT_ERROR")
            || text.starts_with(b"SERVER_ERROR")
        {
            self.error(text);
        } else if text == b"EN" || text == b"END" && self.parts == 0 {
            self.seen.nulls += 1;
        }
        Ok(true)
    }

    #[cold]
    fn error(&mut self, text: &[u8]) {
        self.seen.errors += 1;
        self.seen.first_error.get_or_insert_with(|| String::from_utf8_lossy(text).into_owned());
    }
}

/// A length or count; `None` for -1 and RESP3's unknown length.
#[inline]
fn number(text: &[u8]) -> Result<Option<u64>, String> {
    if text == b"-1" {
        return Ok(None);
    }
    let mut number = 0;
    for &digit in text {
        if !digit.is_ascii_digit() || number > u64::from(u32::MAX) {
            return Err(format!("no length: {}", String::from_utf8_lossy(text)));
        }
        number = number * 10 + u64::from(digit - b'0');
    }
    Ok(Some(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every way of cutting the bytes in two gives the same count.
    fn count(protocol: Protocol, bytes: &[u8]) -> (u64, Seen) {
        let mut whole = Replies::new(protocol);
        let expected = whole.feed(bytes).expect("good replies");
        for cut in 0..=bytes.len() {
            let mut replies = Replies::new(protocol);
            let (head, tail) = bytes.split_at(cut);
            let count = replies.feed(head).expect("good") + replies.feed(tail).expect("good");
            assert_eq!(count, expected, "cut at {cut}");
            assert_eq!(replies.seen.nulls, whole.seen.nulls, "cut at {cut}");
        }
        (expected, whole.seen)
    }

    #[test]
    fn resp_replies() {
        let bytes = b"+OK\r\n:1\r\n$5\r\na\r\nbc\r\n$-1\r\n$0\r\n\r\n*-1\r\n_\r\n*0\r\n";
        let (replies, seen) = count(Protocol::Resp, bytes);
        assert_eq!((replies, seen.nulls, seen.errors), (8, 3, 0));
        let (replies, seen) = count(Protocol::Resp, b"-ERR no\r\n*2\r\n$1\r\na\r\n-x\r\n+OK\r\n");
        assert_eq!((replies, seen.errors), (3, 2));
        assert_eq!(seen.first_error.as_deref(), Some("ERR no"));
    }

    #[test]
    fn nested_resp_replies() {
        let bytes = b"*3\r\n*2\r\n$1\r\na\r\n*0\r\n%1\r\n+k\r\n*1\r\n:1\r\n$1\r\nz\r\n+PONG\r\n";
        assert_eq!(count(Protocol::Resp, bytes).0, 2);
        assert_eq!(count(Protocol::Resp, b"*1\r\n*1\r\n*1\r\n*0\r\n:1\r\n").0, 2);
    }

    #[test]
    fn memcached_replies() {
        let bytes =
            b"STORED\r\nVALUE k 0 5\r\na\r\nbc\r\nEND\r\nEND\r\nVALUE a 0 0\r\n\r\nVALUE b \
                      1 1 7\r\nx\r\nEND\r\n";
        let (replies, seen) = count(Protocol::Memcached, bytes);
        assert_eq!((replies, seen.nulls), (4, 1));
        let (replies, seen) =
            count(Protocol::Memcached, b"VA 2 f\r\nab\r\nEN\r\nHD\r\nERROR\r\nCLIENT_ERROR x\r\n");
        assert_eq!((replies, seen.nulls, seen.errors), (5, 1, 2));
    }

    #[test]
    fn garbage_is_told() {
        for bytes in [&b"hello\r\n"[..], b"$x\r\n", b"+OK\n", b"\r\n", b"$99999999999999\r\n"] {
            assert!(Replies::new(Protocol::Resp).feed(bytes).is_err(), "{bytes:?}");
        }
        assert!(Replies::new(Protocol::Resp).feed(&vec![b'+'; 1 << 17]).is_err());
    }
}
