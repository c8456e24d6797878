//! A client that speaks memcached's protocol, byte by byte.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::HANG;
use super::{Builder, Server, free_port};

/// A server with the memcached port open.
pub struct WithMemcached {
    /// The server.
    pub server: Server,
    port: u16,
}

impl WithMemcached {
    /// Starts it.
    pub fn start(builder: Builder) -> Self {
        let port = free_port();
        let server = builder.with_port().load(&format!("memcached-port {port}")).start();
        WithMemcached { server, port }
    }

    /// The number of the port.
    pub fn number(&self) -> u16 {
        self.port
    }

    /// A new connection to it.
    pub fn client(&self) -> Memcached {
        Memcached::connect(self.port)
    }
}

/// A connection.
pub struct Memcached(TcpStream);

impl Memcached {
    /// Connects to 127.0.0.1.
    pub fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        stream.set_nodelay(true).expect("an option");
        stream.set_read_timeout(Some(HANG)).expect("an option");
        Memcached(stream)
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("an open connection");
    }

    /// Sends bytes and what ends a conversation that can be told from any reply; returns what comes
    /// before its answer.
    pub fn ask(&mut self, bytes: &[u8]) -> String {
        // memcached answers ERROR to a word of one letter.
        const MARK: &str = "OK\r\nERROR\r\nOK\r\nERROR\r\n";
        self.send(bytes);
        self.send(b"verbosity 0\r\nx\r\nverbosity 0\r\nx\r\n");
        let mut said = self.read_until(MARK);
        said.truncate(said.len() - MARK.len());
        said
    }

    /// Reads until the text ends so.
    pub fn read_until(&mut self, end: &str) -> String {
        let mut said = Vec::new();
        let mut piece = [0; 1 << 16];
        while !said.ends_with(end.as_bytes()) {
            let read = self.0.read(&mut piece).expect("a reply in time");
            let so_far = String::from_utf8_lossy(&said).into_owned();
            assert!(read > 0, "the connection was closed after {so_far:?}");
            said.extend_from_slice(&piece[..read]);
        }
        String::from_utf8_lossy(&said).into_owned()
    }

    /// Whether the server closes the connection.
    pub fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).is_ok() && rest.is_empty()
    }

    /// Sends lines, each of which ends with `\r\n`.
    pub fn lines(&mut self, lines: &str) -> String {
        self.ask(lines.replace('\n', "\r\n").as_bytes()).replace("\r\n", "\n")
    }

    /// The number that `gets` gives of a key.
    pub fn number_of(&mut self, key: &str) -> u64 {
        let said = self.lines(&format!("gets {key}\n"));
        let line = said.lines().next().expect("a line");
        line.rsplit(' ').next().and_then(|word| word.parse().ok()).expect("a number")
    }
}
