//! A connection's way through its socket: plain, or in TLS's records.

use std::os::fd::OwnedFd;

use super::driver::{Driver, Received, Sent};
use super::tls::TlsStream;
use crate::limits::{READ_BYTES, TLS_SEALED_AT_ONCE};

/// What a worker moves bytes with.
pub struct Io<D: Driver> {
    /// Moves them between sockets and buffers.
    pub driver: D,
    /// TLS's records of the connection that receives.
    opened: Vec<u8>,
    /// TLS's records of the connection that sends.
    sealed: Vec<u8>,
}

impl<D: Driver> Io<D> {
    /// With this driver.
    pub fn new(driver: D) -> Self {
        Io { driver, opened: Vec::new(), sealed: Vec::new() }
    }
}

/// The form of a connection's bytes on its socket.
pub enum Wire {
    /// As they are.
    Plain,
    /// In the records of a TLS session.
    Tls(Box<TlsStream>),
}

impl Wire {
    /// Receives once and appends to `into`; without TLS as much as it has room for.
    #[inline]
    pub fn receive<D: Driver>(
        &mut self,
        io: &mut Io<D>,
        socket: &OwnedFd,
        into: &mut Vec<u8>,
    ) -> Received {
        match self {
            Wire::Plain => io.driver.receive(socket, into),
            Wire::Tls(tls) => receive_records(tls, io, socket, into),
        }
    }

    /// Sends as many of these bytes as there is room for.
    #[inline]
    pub fn send<D: Driver>(&mut self, io: &mut Io<D>, socket: &OwnedFd, bytes: &[u8]) -> Sent {
        match self {
            Wire::Plain => io.driver.send(socket, bytes),
            Wire::Tls(tls) => send_records(tls, io, socket, bytes),
        }
    }

    /// Whether nothing that was given to [`Wire::send`] has still to be sent.
    #[inline]
    pub fn is_flushed(&self) -> bool {
        match self {
            Wire::Plain => true,
            Wire::Tls(tls) => tls.sealed.is_empty(),
        }
    }
}

fn receive_records<D: Driver>(
    tls: &mut TlsStream,
    io: &mut Io<D>,
    socket: &OwnedFd,
    into: &mut Vec<u8>,
) -> Received {
    if tls.is_closed() {
        return Received::End;
    }
    let records = &mut io.opened;
    records.clear();
    tls.begin(records);
    records.reserve(READ_BYTES);
    let (received, before) = (io.driver.receive(socket, records), into.len());
    if received == Received::End {
        tls.keep(records);
        return received;
    }
    let opened = tls.open_records(records, into);
    if opened.is_err() || flush(tls, io, socket) == Sent::Broken {
        return Received::End;
    }
    let bytes = into.len() - before;
    if matches!(received, Received::More(_)) { Received::More(bytes) } else { Received::All(bytes) }
}

fn send_records<D: Driver>(
    tls: &mut TlsStream,
    io: &mut Io<D>,
    socket: &OwnedFd,
    mut bytes: &[u8],
) -> Sent {
    let all = bytes.len();
    while flush(tls, io, socket) != Sent::Broken {
        if bytes.is_empty() || !tls.sealed.is_empty() || tls.is_in_handshake() {
            return Sent::Bytes(all - bytes.len());
        }
        let (now, later) = bytes.split_at(bytes.len().min(TLS_SEALED_AT_ONCE));
        let sealed = tls.seal(now, &mut io.sealed);
        if sealed == 0 {
            break;
        }
        match io.driver.send(socket, &io.sealed[..sealed]) {
            Sent::Broken => break,
            Sent::Bytes(sent) => tls.sealed.add(&io.sealed[sent..sealed]),
        }
        bytes = later;
    }
    Sent::Broken
}

/// Sends the records that have not been sent.
fn flush<D: Driver>(tls: &mut TlsStream, io: &mut Io<D>, socket: &OwnedFd) -> Sent {
    if tls.sealed.is_empty() {
        return Sent::Bytes(0);
    }
    let sent = io.driver.send(socket, tls.sealed.bytes());
    if let Sent::Bytes(bytes) = sent {
        tls.sealed.use_up(bytes);
    }
    sent
}
