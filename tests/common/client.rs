//! A client that shows replies as they are on the wire, RESP2 and RESP3.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::time::Duration;

use super::{HANG, Wire};

/// A reply. Two are equal only if their bytes on the wire are.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// `+`
    Simple(Vec<u8>),
    /// `-`
    Error(Vec<u8>),
    /// `:`
    Integer(i64),
    /// `$`
    Bulk(Vec<u8>),
    /// `$-1`
    NullBulk,
    /// `*`
    Array(Vec<Value>),
    /// `*-1`
    NullArray,
    /// `_`
    Null,
    /// `#`
    Bool(bool),
    /// `,`
    Double(Vec<u8>),
    /// `(`
    BigNumber(Vec<u8>),
    /// `=`: format and text
    Verbatim(Vec<u8>),
    /// `%`
    Map(Vec<(Value, Value)>),
    /// `~`
    Set(Vec<Value>),
    /// `>`
    Push(Vec<Value>),
}

/// As it is on the wire, in one line.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = |mark: &str, list: &[Value]| {
            f.write_str(mark)?;
            f.debug_list().entries(list).finish()
        };
        match self {
            Value::Array(elements) => list("*", elements),
            Value::Set(elements) => list("~", elements),
            Value::Push(elements) => list(">", elements),
            Value::Map(pairs) => {
                f.debug_map().entries(pairs.iter().map(|pair| (&pair.0, &pair.1))).finish()
            }
            Value::Simple(bytes) => write!(f, "+{}", text(bytes)),
            Value::Error(bytes) => write!(f, "-{}", text(bytes)),
            Value::Integer(number) => write!(f, ":{number}"),
            Value::Bulk(bytes) if bytes.len() > SHOWN => {
                write!(f, "\"{}...\" ({})", text(bytes), bytes.len())
            }
            Value::Bulk(bytes) => write!(f, "\"{}\"", text(bytes)),
            Value::NullBulk => f.write_str("$-1"),
            Value::NullArray => f.write_str("*-1"),
            Value::Null => f.write_str("_"),
            Value::Bool(yes) => write!(f, "#{yes}"),
            Value::Double(bytes) => write!(f, ",{}", text(bytes)),
            Value::BigNumber(bytes) => write!(f, "({}", text(bytes)),
            Value::Verbatim(bytes) => write!(f, "={}", text(bytes)),
        }
    }
}

impl Value {
    /// `+OK`
    pub fn ok() -> Value {
        Value::Simple(b"OK".to_vec())
    }

    /// A bulk string.
    pub fn bulk(bytes: impl AsRef<[u8]>) -> Value {
        Value::Bulk(bytes.as_ref().to_vec())
    }

    /// An error of this text.
    pub fn error(text: &str) -> Value {
        Value::Error(text.as_bytes().to_vec())
    }

    /// An array of integers.
    pub fn integers(numbers: &[i64]) -> Value {
        Value::Array(numbers.iter().map(|&number| Value::Integer(number)).collect())
    }

    /// The elements of an array, a set or a push.
    #[track_caller]
    pub fn array(self) -> Vec<Value> {
        match self {
            Value::Array(list) | Value::Set(list) | Value::Push(list) => list,
            other => panic!("not an array: {other:?}"),
        }
    }

    /// The pairs of a map, or of RESP2's flat array.
    #[track_caller]
    pub fn map(self) -> HashMap<String, Value> {
        match self {
            Value::Map(pairs) => {
                pairs.into_iter().map(|(key, value)| (key.text(), value)).collect()
            }
            Value::Array(flat) => {
                flat.chunks_exact(2).map(|pair| (pair[0].text(), pair[1].clone())).collect()
            }
            other => panic!("not a map: {other:?}"),
        }
    }

    /// The value of an integer reply.
    #[track_caller]
    pub fn integer(&self) -> i64 {
        match self {
            Value::Integer(number) => *number,
            other => panic!("not an integer: {other:?}"),
        }
    }

    /// The bytes of any string-like reply.
    #[track_caller]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Value::Simple(bytes)
            | Value::Error(bytes)
            | Value::Bulk(bytes)
            | Value::Verbatim(bytes) => bytes,
            other => panic!("not a string: {other:?}"),
        }
    }

    /// The same as text.
    #[track_caller]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    /// Whether the reply is null.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null | Value::NullBulk | Value::NullArray)
    }

    /// Whether the reply is an error.
    pub fn is_error(&self) -> bool {
        matches!(self, Value::Error(_))
    }

    /// Its strings, sorted: for replies without an order.
    #[track_caller]
    pub fn sorted(self) -> Vec<Value> {
        let mut list = self.array();
        list.sort();
        list
    }
}

/// A connection. It fails the test if the server is silent for too long.
pub struct Client {
    stream: BufReader<Wire>,
}

impl Client {
    /// Connects to 127.0.0.1.
    pub fn connect(port: u16) -> io::Result<Self> {
        Wire::tcp(port).map(Client::over)
    }

    /// Over this connection.
    pub fn over(wire: Wire) -> Self {
        Client { stream: BufReader::with_capacity(1 << 16, wire) }
    }

    /// Its connection. What it has received and not read is not there any more.
    pub fn wire(&mut self) -> &mut Wire {
        self.stream.get_mut()
    }

    /// Switches to RESP3.
    pub fn resp3(mut self) -> Self {
        assert!(!self.run("HELLO 3").is_error());
        self
    }

    /// Runs a command given as words.
    #[track_caller]
    pub fn run(&mut self, line: &str) -> Value {
        self.call(&words(line))
    }

    /// Runs a command of any bytes.
    #[track_caller]
    pub fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Value {
        match self.try_call(args) {
            Ok(value) => value,
            Err(error) => panic!("{}: {error}", shown(args)),
        }
    }

    /// The same, but the connection may end.
    pub fn try_call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Value> {
        self.try_send(&encoded(args))?;
        self.try_read()
    }

    /// Runs a command that must answer OK.
    #[track_caller]
    pub fn ok(&mut self, line: &str) {
        assert_eq!(self.run(line), Value::ok(), "{line}");
    }

    /// Runs a command that must answer an integer.
    #[track_caller]
    pub fn integer(&mut self, line: &str) -> i64 {
        self.run(line).integer()
    }

    /// Pipelines several commands; returns their replies in order.
    #[track_caller]
    pub fn pipeline<A: AsRef<[u8]>>(&mut self, commands: &[Vec<A>]) -> Vec<Value> {
        let bytes: Vec<u8> = commands.iter().map(|args| encoded(args)).collect::<Vec<_>>().concat();
        self.send(&bytes);
        commands.iter().map(|_| self.read()).collect()
    }

    /// Sends a command and does not wait for its reply.
    #[track_caller]
    pub fn send_line(&mut self, line: &str) {
        self.send(&encoded(&words(line)));
    }

    /// Sends bytes as they are.
    #[track_caller]
    pub fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).unwrap_or_else(|error| panic!("cannot send: {error}"));
    }

    /// The same, but the connection may end.
    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Closes the sending half.
    pub fn send_no_more(&mut self) {
        self.stream.get_mut().send_no_more().expect("a connection");
    }

    /// The next reply.
    #[track_caller]
    pub fn read(&mut self) -> Value {
        self.try_read().unwrap_or_else(|error| panic!("no reply: {error}"))
    }

    /// Whether a reply begins to arrive within this time.
    pub fn has_reply_within(&mut self, time: Duration) -> bool {
        self.stream.get_ref().set_read_timeout(time).expect("a timeout");
        let has = self.stream.fill_buf().is_ok_and(|bytes| !bytes.is_empty());
        self.stream.get_ref().set_read_timeout(HANG).expect("a timeout");
        has
    }

    /// Whether the server closes this connection, and sends nothing before.
    pub fn is_closed(&mut self) -> bool {
        matches!(self.stream.fill_buf(), Ok([]))
    }

    /// This connection's client ID on the server.
    pub fn id(&mut self) -> i64 {
        self.integer("CLIENT ID")
    }

    /// The bytes of replies that the client with this ID has not been sent, as CLIENT LIST shows
    /// them to this one.
    #[track_caller]
    pub fn unsent_of(&mut self, id: i64) -> usize {
        let line = self.run(&format!("CLIENT LIST ID {id}")).text();
        let field = line.split(' ').find_map(|field| field.strip_prefix("omem="));
        field.expect("a field").parse().expect("a number")
    }

    /// The fields of an INFO section.
    #[track_caller]
    pub fn info(&mut self, section: &str) -> HashMap<String, String> {
        let text = self.call(&["INFO", section]).text();
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// A number of an INFO section.
    #[track_caller]
    pub fn info_number(&mut self, section: &str, field: &str) -> i64 {
        let fields = self.info(section);
        let value = fields.get(field).unwrap_or_else(|| panic!("no {field} in {fields:?}"));
        value.parse().unwrap_or_else(|_| panic!("{field} is not a number: {value}"))
    }

    /// All keys that a full MIDI.SCAN returns, with these further arguments.
    #[track_caller]
    pub fn scan_all(&mut self, options: &str) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        let mut cursor = "0".to_owned();
        loop {
            let reply = self.run(&format!("MIDI.SCAN {cursor} {options}")).array();
            keys.extend(reply[1].clone().array().iter().map(|key| key.bytes().to_vec()));
            cursor = reply[0].text();
            if cursor == "0" {
                return keys;
            }
        }
    }

    /// The next reply; the connection may end.
    pub fn try_read(&mut self) -> io::Result<Value> {
        let line = self.line()?;
        let (&mark, rest) = line.split_first().ok_or_else(|| bad("an empty line"))?;
        Ok(match mark {
            b'+' => Value::Simple(rest.to_vec()),
            b'-' => Value::Error(rest.to_vec()),
            b':' => Value::Integer(number(rest)?),
            b'_' => Value::Null,
            b'#' => Value::Bool(rest == b"t"),
            b',' => Value::Double(rest.to_vec()),
            b'(' => Value::BigNumber(rest.to_vec()),
            b'$' if rest == b"-1" => Value::NullBulk,
            b'*' if rest == b"-1" => Value::NullArray,
            b'$' => Value::Bulk(self.text(number(rest)?)?),
            b'=' => Value::Verbatim(self.text(number(rest)?)?),
            b'*' => Value::Array(self.list(number(rest)?)?),
            b'~' => Value::Set(self.list(number(rest)?)?),
            b'>' => Value::Push(self.list(number(rest)?)?),
            b'%' => {
                let flat = self.list(2 * number(rest)?)?;
                Value::Map(
                    flat.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect(),
                )
            }
            _ => return Err(bad(&format!("not RESP: {}", text(&line)))),
        })
    }

    fn list(&mut self, len: i64) -> io::Result<Vec<Value>> {
        (0..len).map(|_| self.try_read()).collect()
    }

    fn line(&mut self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        io::BufRead::read_until(&mut self.stream, b'\n', &mut line)?;
        if !line.ends_with(b"\r\n") {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection ended"));
        }
        line.truncate(line.len() - 2);
        Ok(line)
    }

    fn text(&mut self, len: i64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len as usize + 2];
        self.stream.read_exact(&mut bytes)?;
        if !bytes.ends_with(b"\r\n") {
            return Err(bad("a string without its line end"));
        }
        bytes.truncate(len as usize);
        Ok(bytes)
    }
}

fn number(text: &[u8]) -> io::Result<i64> {
    let parsed = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| bad("not a number"))
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// A command as it goes over the wire.
pub fn encoded<A: AsRef<[u8]>>(args: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        let arg = arg.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// How much of a string is shown, in bytes.
const SHOWN: usize = 200;

/// Bytes in readable form.
pub fn text(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(SHOWN)].escape_ascii().to_string()
}

/// A command in readable form.
pub fn shown<A: AsRef<[u8]>>(args: &[A]) -> String {
    args.iter().map(|arg| text(arg.as_ref())).collect::<Vec<_>>().join(" ")
}
