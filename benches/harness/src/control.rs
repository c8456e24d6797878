//! A plain connection for everything but load: PING, CONFIG SET, INFO, long commands.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::load::{Protocol, Replies};

/// A blocking connection to a server on this machine.
pub struct Control {
    stream: TcpStream,
}

impl Control {
    /// # Errors
    /// No server listens there.
    pub fn open(port: u16) -> Result<Self> {
        Self::at((Ipv4Addr::LOCALHOST, port))
    }

    /// A connection to any machine.
    ///
    /// # Errors
    /// No server listens there.
    pub fn at(address: impl ToSocketAddrs) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(300)))?;
        Ok(Control { stream })
    }

    /// Runs a command (words between spaces; `""` is an empty one); returns the raw reply.
    ///
    /// # Errors
    /// An error reply; a broken connection.
    pub fn command(&mut self, text: &str) -> Result<String> {
        let words: Vec<&str> =
            text.split_whitespace().map(|word| if word == "\"\"" { "" } else { word }).collect();
        let mut bytes = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| bytes.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        let reply =
            self.exchange(bytes.as_bytes(), Protocol::Resp).with_context(|| text.to_owned())?;
        match reply.strip_prefix('-') {
            Some(error) => bail!("{text}: {}", error.trim_end()),
            None => Ok(reply),
        }
    }

    /// Sends memcached's `version`; returns its reply.
    ///
    /// # Errors
    /// A broken connection.
    pub fn memcached_version(&mut self) -> Result<String> {
        self.exchange(b"version\r\n", Protocol::Memcached)
    }

    /// Sends memcached's `stats`; returns its reply.
    ///
    /// # Errors
    /// A broken connection.
    pub fn memcached_stats(&mut self) -> Result<String> {
        self.stream.write_all(b"stats\r\n")?;
        let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
        while !all.ends_with(b"END\r\n") {
            match self.stream.read(&mut buffer)? {
                0 => bail!("the server closed the connection"),
                count => all.extend_from_slice(&buffer[..count]),
            }
        }
        Ok(String::from_utf8_lossy(&all).into_owned())
    }

    fn exchange(&mut self, bytes: &[u8], protocol: Protocol) -> Result<String> {
        self.stream.write_all(bytes)?;
        let (mut replies, mut all, mut buffer) = (Replies::new(protocol), Vec::new(), [0; 4096]);
        loop {
            let count = match self.stream.read(&mut buffer) {
                Ok(0) => bail!("the server closed the connection"),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            all.extend_from_slice(&buffer[..count]);
            if replies.feed(&buffer[..count]).map_err(anyhow::Error::msg)? > 0 {
                return Ok(String::from_utf8_lossy(&all).into_owned());
            }
        }
    }
}
