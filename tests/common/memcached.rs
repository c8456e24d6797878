//! A client that speaks memcached's protocol, byte by byte.

use std::io::{Read, Write};

use super::{Builder, Server, Wire, free_port};

/// A server with the memcached port open.
pub struct WithMemcached {
    /// The server.
    pub server: Server,
    port: u16,
}

impl WithMemcached {
    /// Starts it, on another port if somebody has taken the first one meanwhile.
    pub fn start(builder: Builder) -> Self {
        for _ in 0..5 {
            let port = free_port();
            let with_port = builder.clone().with_port();
            match with_port.load(&format!("memcached-port {port}")).try_start() {
                Ok(server) => return WithMemcached { server, port },
                Err(log) => assert_eq!(log, "no free port"),
            }
        }
        panic!("no free port");
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
pub struct Memcached(Wire);

impl Memcached {
    /// Connects to 127.0.0.1.
    pub fn connect(port: u16) -> Self {
        Memcached::over(Wire::tcp(port).expect("a connection"))
    }

    /// Over a connection of any kind.
    pub fn over(wire: Wire) -> Self {
        Memcached(wire)
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).expect("an open connection");
    }

    /// Sends bytes, if the server takes them.
    pub fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write_all(bytes)?;
        self.0.flush()
    }

    /// Reads a line; `None` if the connection ends.
    pub fn try_read_line(&mut self) -> Option<String> {
        let (mut said, mut byte) = (Vec::new(), [0]);
        while !said.ends_with(b"\r\n") {
            match self.0.read(&mut byte) {
                Ok(1) => said.push(byte[0]),
                _ => return None,
            }
        }
        said.truncate(said.len() - 2);
        String::from_utf8(said).ok()
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

    /// Reads so many bytes, whatever they are.
    pub fn skip(&mut self, bytes: usize) {
        let skipped = std::io::copy(&mut (&mut self.0).take(bytes as u64), &mut std::io::sink());
        assert_eq!(skipped.expect("an open connection"), bytes as u64);
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
