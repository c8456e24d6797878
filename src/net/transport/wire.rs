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
    /// Receives once and appends to `into`; without TLS at most `most` bytes, for which `into` has
    /// room.
    #[inline]
    pub fn receive<D: Driver>(
        &mut self,
        io: &mut Io<D>,
        socket: &OwnedFd,
        into: &mut Vec<u8>,
        most: usize,
    ) -> Received {
        match self {
            Wire::Plain => io.driver.receive(socket, into, most),
            Wire::Tls(tls) => receive_records(tls, io, socket, into),
        }
    }

    /// Sends as many bytes of these pieces, which follow each other, as there is room for.
    #[inline]
    pub fn send<D: Driver>(&mut self, io: &mut Io<D>, socket: &OwnedFd, pieces: &[&[u8]]) -> Sent {
        match (self, pieces) {
            (Wire::Plain, [bytes]) => io.driver.send(socket, bytes),
            (Wire::Plain, pieces) => io.driver.send_pieces(socket, pieces),
            (Wire::Tls(tls), pieces) => send_records(tls, io, socket, pieces),
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
    let (received, before) = (io.driver.receive(socket, records, usize::MAX), into.len());
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
    pieces: &[&[u8]],
) -> Sent {
    let mut pieces = PieceReader { rest: pieces.iter(), first: &[], taken: 0 };
    while flush(tls, io, socket) != Sent::Broken {
        if !tls.sealed.is_empty() || tls.is_in_handshake() {
            return Sent::Bytes(pieces.taken);
        }
        let (mut sealed, mut room) = (0, TLS_SEALED_AT_ONCE);
        while let Some(text) = pieces.next(room) {
            match tls.seal(text, &mut io.sealed, sealed) {
                0 => return Sent::Broken,
                bytes => sealed += bytes,
            }
            room -= text.len();
        }
        if sealed == 0 {
            return Sent::Bytes(pieces.taken);
        }
        match io.driver.send(socket, &io.sealed[..sealed]) {
            Sent::Broken => break,
            Sent::Bytes(sent) => tls.sealed.add(&io.sealed[sent..sealed]),
        }
    }
    Sent::Broken
}

/// Pieces that are taken a part at a time.
struct PieceReader<'a> {
    /// The rest of the current one.
    first: &'a [u8],
    /// The others.
    rest: std::slice::Iter<'a, &'a [u8]>,
    /// How many bytes have been taken.
    taken: usize,
}

impl<'a> PieceReader<'a> {
    /// The next bytes, at most so many, if there are any.
    fn next(&mut self, most: usize) -> Option<&'a [u8]> {
        while self.first.is_empty() {
            self.first = self.rest.next()?;
        }
        let (now, later) = self.first.split_at(self.first.len().min(most));
        self.first = later;
        self.taken += now.len();
        (!now.is_empty()).then_some(now)
    }
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
