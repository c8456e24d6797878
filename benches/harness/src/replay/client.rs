//! A cache's client: asks for keys, and stores those that were not there.

use std::io::{BufRead as _, BufReader, Write as _};
use std::iter::Peekable;
use std::net::TcpStream;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use super::trace::Request;
use crate::load::Protocol;

/// Bytes that a connection reads at once: a batch of replies.
const READ_BYTES: usize = 256 << 10;

/// The replies so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Values found.
    pub hits: u64,
    /// Values not found.
    pub misses: u64,
    /// Values not stored for want of memory.
    pub out_of_memory: u64,
    /// Other errors.
    pub errors: u64,
}

/// The client's way of speaking to a server.
#[derive(Clone, Copy)]
pub struct Dialect<'a> {
    /// The server's protocol.
    pub protocol: Protocol,
    /// What stands before a command's name.
    pub prefix: &'a str,
}

/// A connection: it sends what was not there in the last batch, and then the next batch.
pub struct Connection {
    stream: BufReader<TcpStream>,
    protocol: Protocol,
    /// Beginnings of the two commands.
    get: String,
    set: String,
    values: Vec<u8>,
    batch: usize,
    /// The requests whose replies have not come yet.
    asked: Vec<Request>,
    /// Those that were not there, and are to be stored.
    missed: Vec<Request>,
    /// Values that were sent, and are not acknowledged yet.
    stored: usize,
    out: Vec<u8>,
    line: Vec<u8>,
    first_error: Option<String>,
}

enum Reply {
    Found,
    Missing,
    Done,
    OutOfMemory,
    Error,
}

impl Connection {
    /// Connects to this address; asks for so many keys at once.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn open(address: &str, dialect: Dialect<'_>, batch: usize) -> Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| address.to_owned())?;
        stream.set_nodelay(true)?;
        let named = |words, name| {
            let command = format!("{}{name}", dialect.prefix);
            format!("*{words}\r\n${}\r\n{command}\r\n$16\r\n", command.len())
        };
        let (get, set) = match dialect.protocol {
            Protocol::Resp => (named(2, "GET"), named(3, "SET")),
            Protocol::Memcached => ("get ".into(), "set ".into()),
        };
        Ok(Connection {
            stream: BufReader::with_capacity(READ_BYTES, stream),
            protocol: dialect.protocol,
            get,
            set,
            values: Vec::new(),
            batch,
            asked: Vec::new(),
            missed: Vec::new(),
            stored: 0,
            out: Vec::new(),
            line: Vec::new(),
            first_error: None,
        })
    }

    /// Sends the next batch; returns whether there was anything to send.
    ///
    /// # Errors
    /// A broken connection.
    pub fn send(&mut self, requests: &mut Peekable<impl Iterator<Item = Request>>) -> Result<bool> {
        self.out.clear();
        self.stored = self.missed.len();
        for request in std::mem::take(&mut self.missed) {
            self.add_set(request);
        }
        while self.asked.len() < self.batch {
            // A key twice in a batch would be missed twice, and that would be the client's fault.
            let is_asked = |next: &Request| self.asked.iter().any(|asked| asked.key == next.key);
            let Some(request) = requests.next_if(|next| !is_asked(next)) else { break };
            self.asked.push(request);
            self.add_get(request);
        }
        self.stream.get_mut().write_all(&self.out)?;
        Ok(!self.out.is_empty())
    }

    /// Reads all replies to what was sent.
    ///
    /// # Errors
    /// A broken connection; bytes that are no reply.
    pub fn receive(&mut self, tally: &mut Tally) -> Result<()> {
        for _ in 0..std::mem::take(&mut self.stored) {
            match self.reply()? {
                Reply::Done => {}
                Reply::OutOfMemory => tally.out_of_memory += 1,
                _ => tally.errors += 1,
            }
        }
        let asked = std::mem::take(&mut self.asked);
        for &request in &asked {
            match self.reply()? {
                Reply::Found => tally.hits += 1,
                Reply::Missing => {
                    tally.misses += 1;
                    self.missed.push(request);
                }
                _ => tally.errors += 1,
            }
        }
        // Its memory is used again.
        self.asked = asked;
        self.asked.clear();
        Ok(())
    }

    /// The first error other than a want of memory.
    pub fn first_error(&self) -> Option<&str> {
        self.first_error.as_deref()
    }

    fn add_get(&mut self, request: Request) {
        let _ = write!(self.out, "{}{:016x}\r\n", self.get, request.key);
    }

    fn add_set(&mut self, request: Request) {
        let length = request.value_bytes;
        let _ = match self.protocol {
            Protocol::Resp => write!(self.out, "{}{:016x}\r\n${length}\r\n", self.set, request.key),
            Protocol::Memcached => write!(self.out, "set {:016x} 0 0 {length}\r\n", request.key),
        };
        if self.values.len() < length {
            self.values.resize(length, b'v');
        }
        self.out.extend_from_slice(&self.values[..length]);
        self.out.extend_from_slice(b"\r\n");
    }

    fn reply(&mut self) -> Result<Reply> {
        self.read_line()?;
        let line = self.line.as_slice();
        match self.protocol {
            Protocol::Resp => match line {
                b"$-1" | b"_" => Ok(Reply::Missing),
                [b'$', length @ ..] => {
                    let length = number(length)?;
                    self.skip(length + 2)?;
                    Ok(Reply::Found)
                }
                [b'+', ..] => Ok(Reply::Done),
                [b'-', error @ ..] if error.starts_with(b"OOM") => Ok(Reply::OutOfMemory),
                [b'-', ..] => Ok(self.error()),
                _ => bail!("no reply: {}", String::from_utf8_lossy(line)),
            },
            Protocol::Memcached => match line {
                b"END" => Ok(Reply::Missing),
                b"STORED" => Ok(Reply::Done),
                line if line.starts_with(b"VALUE ") => {
                    let length = line.rsplit(|&byte| byte == b' ').next().unwrap_or_default();
                    let length = number(length)?;
                    self.skip(length + 2)?;
                    self.read_line()?;
                    Ok(Reply::Found)
                }
                line if line.starts_with(b"SERVER_ERROR out of memory") => Ok(Reply::OutOfMemory),
                line if line.ends_with(b"ERROR") || line.contains(&b'_') => Ok(self.error()),
                _ => bail!("no reply: {}", String::from_utf8_lossy(line)),
            },
        }
    }

    #[cold]
    fn error(&mut self) -> Reply {
        let line = &self.line;
        self.first_error.get_or_insert_with(|| String::from_utf8_lossy(line).into_owned());
        Reply::Error
    }

    /// A line without its end.
    fn read_line(&mut self) -> Result<()> {
        self.line.clear();
        self.stream.read_until(b'\n', &mut self.line)?;
        let Some(text) = self.line.strip_suffix(b"\r\n") else {
            bail!("the server closed the connection")
        };
        self.line.truncate(text.len());
        Ok(())
    }

    fn skip(&mut self, mut bytes: usize) -> Result<()> {
        while bytes > 0 {
            let there = self.stream.fill_buf()?.len().min(bytes);
            if there == 0 {
                bail!("the server closed the connection");
            }
            self.stream.consume(there);
            bytes -= there;
        }
        Ok(())
    }
}

fn number(text: &[u8]) -> Result<usize> {
    std::str::from_utf8(text)?.parse().with_context(|| String::from_utf8_lossy(text).into_owned())
}

/// Sends all of these requests, and waits until every value is stored.
///
/// # Errors
/// A broken connection.
pub fn drive(
    connections: &mut [Connection],
    requests: impl Iterator<Item = Request>,
    tally: &mut Tally,
) -> Result<()> {
    let mut requests = requests.peekable();
    for connection in &mut *connections {
        connection.send(&mut requests)?;
    }
    // While this one's replies are read, the server works for the others.
    loop {
        let mut is_busy = false;
        for connection in &mut *connections {
            connection.receive(tally)?;
            is_busy |= connection.send(&mut requests)?;
        }
        if !is_busy {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::io::Read as _;
    use std::net::TcpListener;

    use super::*;

    /// A cache without a limit, or with none at all: SETs are refused then.
    fn server(has_room: bool) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("a client");
            let (mut input, mut output) =
                (BufReader::new(stream.try_clone().expect("a handle")), stream);
            let mut keys = HashSet::new();
            let mut line = String::new();
            let mut next = |input: &mut BufReader<TcpStream>| {
                line.clear();
                input.read_line(&mut line).expect("a line");
                line.trim_end().to_owned()
            };
            loop {
                let words = next(&mut input);
                if words.is_empty() {
                    return;
                }
                next(&mut input);
                next(&mut input);
                next(&mut input);
                let key = next(&mut input);
                if words == "*2" {
                    let reply: &[u8] =
                        if keys.contains(&key) { b"$2\r\nvv\r\n" } else { b"$-1\r\n" };
                    output.write_all(reply).expect("sent");
                    continue;
                }
                let length: usize = next(&mut input)[1..].parse().expect("a length");
                input.read_exact(&mut vec![0; length + 2]).expect("a value");
                if has_room {
                    keys.insert(key);
                }
                output.write_all(if has_room { b"+OK\r\n" } else { b"-OOM no\r\n" }).expect("sent");
            }
        });
        address
    }

    fn tally(has_room: bool, keys: &[u64]) -> Tally {
        let dialect = Dialect { protocol: Protocol::Resp, prefix: "" };
        let mut connection = [Connection::open(&server(has_room), dialect, 3).expect("connected")];
        let mut tally = Tally::default();
        let requests = keys.iter().map(|&key| Request { key, value_bytes: 2 });
        drive(&mut connection, requests, &mut tally).expect("replies");
        tally
    }

    #[test]
    fn what_is_not_there_is_stored_once() {
        // Also where the key comes twice in what could be one batch.
        let found = tally(true, &[1, 1, 2, 3, 1, 2, 4, 4]);
        assert_eq!(found, Tally { hits: 4, misses: 4, ..Tally::default() });
    }

    #[test]
    fn a_server_without_room_says_so() {
        let found = tally(false, &[1, 1, 2]);
        assert_eq!(found, Tally { misses: 3, out_of_memory: 3, ..Tally::default() });
    }
}
