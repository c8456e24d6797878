//! How a test's client is connected: TCP, a Unix socket, or TLS.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::HANG;

/// The way in which tests of the port connect, unless they ask for another: `MIDI_STREAM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// TCP.
    Tcp,
    /// The Unix socket.
    Unix,
    /// TLS.
    Tls,
}

impl Way {
    /// The one of this run.
    pub fn of_this_run() -> Self {
        match std::env::var("MIDI_STREAM").as_deref() {
            Err(_) | Ok("" | "tcp") => Way::Tcp,
            Ok("unix") => Way::Unix,
            Ok("tls") => Way::Tls,
            Ok(other) => panic!("MIDI_STREAM is {other}, and may be tcp, unix or tls"),
        }
    }
}

/// A client's connection. It fails if the server is silent for too long.
pub enum Wire {
    /// TCP.
    Tcp(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
    /// TLS, after its handshake.
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Wire {
    /// Connects to 127.0.0.1.
    pub fn tcp(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Wire::Tcp(stream).patient()
    }

    /// Connects to a Unix socket.
    pub fn unix(path: &Path) -> io::Result<Self> {
        Wire::Unix(UnixStream::connect(path)?).patient()
    }

    /// Connects to 127.0.0.1 and shakes hands.
    pub fn tls(port: u16, config: &Arc<ClientConfig>) -> io::Result<Self> {
        let Wire::Tcp(mut stream) = Wire::tcp(port)? else { unreachable!("just made") };
        let name = rustls_pki_types::ServerName::try_from("127.0.0.1").expect("an address");
        let session = ClientConnection::new(Arc::clone(config), name);
        let mut session = session.map_err(io::Error::other)?;
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        Ok(Wire::Tls(Box::new(StreamOwned::new(session, stream))))
    }

    fn patient(self) -> io::Result<Self> {
        self.set_read_timeout(HANG)?;
        match &self {
            Wire::Tcp(stream) => stream.set_write_timeout(Some(HANG))?,
            Wire::Unix(stream) => stream.set_write_timeout(Some(HANG))?,
            Wire::Tls(tls) => tls.sock.set_write_timeout(Some(HANG))?,
        }
        Ok(self)
    }

    /// Waits at most this long for bytes.
    pub fn set_read_timeout(&self, time: Duration) -> io::Result<()> {
        match self {
            Wire::Tcp(stream) => stream.set_read_timeout(Some(time)),
            Wire::Unix(stream) => stream.set_read_timeout(Some(time)),
            Wire::Tls(tls) => tls.sock.set_read_timeout(Some(time)),
        }
    }

    /// Ends the sending half.
    pub fn send_no_more(&mut self) -> io::Result<()> {
        match self {
            Wire::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Wire::Unix(stream) => stream.shutdown(Shutdown::Write),
            Wire::Tls(tls) => {
                tls.conn.send_close_notify();
                tls.flush()
            }
        }
    }

    /// The TLS session, for those that have one.
    pub fn session(&mut self) -> &mut ClientConnection {
        match self {
            Wire::Tls(tls) => &mut tls.conn,
            _ => panic!("this is not TLS"),
        }
    }
}

impl Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Wire::Tcp(stream) => stream.read(into),
            Wire::Unix(stream) => stream.read(into),
            Wire::Tls(tls) => match tls.read(into) {
                // A server that closes in the middle of replies cannot say that it does.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
                read => read,
            },
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Wire::Tcp(stream) => stream.write(bytes),
            Wire::Unix(stream) => stream.write(bytes),
            Wire::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Wire::Tcp(stream) => stream.flush(),
            Wire::Unix(stream) => stream.flush(),
            Wire::Tls(tls) => tls.flush(),
        }
    }
}
