//! A connection's two directions of bytes.

use std::os::fd::OwnedFd;

use super::backlog::Backlog;
use super::driver::{Driver, Received, Sent};
use super::large::LargeInput;
use super::outgoing::{Outbox, Outgoing};
use super::tls::{TlsStream, names};
use super::wire::{Io, Wire};
use crate::engine::CertificateName;
use crate::limits::LARGE_PIECE_BYTES;

/// A socket, the bytes that have come and not run, and those to be sent.
pub struct Channel {
    /// The socket.
    pub socket: OwnedFd,
    /// The form of its bytes there.
    wire: Wire,
    /// There may be something to receive.
    pub readable: bool,
    /// The peer sends no more.
    pub ended: bool,
    /// It has sent urgent bytes: after a read that finds some bytes there may be more.
    pub urgent: bool,
    /// Received but not run.
    pub unread: Backlog,
    /// What it has to say.
    pub outgoing: Outgoing,
}

/// The end of a channel's input.
pub struct Ended;

impl Channel {
    /// Of a new connection.
    pub fn new(socket: OwnedFd, wire: Wire) -> Self {
        Channel {
            socket,
            wire,
            readable: false,
            ended: false,
            urgent: false,
            unread: Backlog::default(),
            outgoing: Outgoing::default(),
        }
    }

    /// Receives once into the free capacity of `into`, without TLS at most `most` bytes;
    /// returns how many.
    ///
    /// # Errors
    /// [`Ended`] if no more will come.
    #[inline]
    pub fn receive<D: Driver>(
        &mut self,
        io: &mut Io<D>,
        into: &mut Vec<u8>,
        most: usize,
    ) -> Result<usize, Ended> {
        let received = self.wire.receive(io, &self.socket, into, most);
        self.note(received)
    }

    /// Receives a part of a large input. There must be no TLS.
    ///
    /// # Errors
    /// [`Ended`] if no more will come.
    pub fn receive_large<D: Driver>(
        &mut self,
        io: &mut Io<D>,
        large: &mut LargeInput,
    ) -> Result<usize, Ended> {
        let most = large.missing().min(LARGE_PIECE_BYTES);
        let room = large.room();
        let most = most.min(room.capacity() - room.len());
        self.receive(io, room, most)
    }

    /// [`Channel::receive`] into [`Channel::unread`].
    ///
    /// # Errors
    /// [`Ended`] if no more will come.
    pub fn receive_more<D: Driver>(&mut self, io: &mut Io<D>) -> Result<usize, Ended> {
        let received = self.wire.receive(io, &self.socket, self.unread.buffer(), usize::MAX);
        self.note(received)
    }

    #[inline]
    fn note(&mut self, received: Received) -> Result<usize, Ended> {
        self.ended |= self.tls().is_some_and(TlsStream::is_closed);
        let (bytes, more) = match received {
            Received::More(bytes) => (bytes, true),
            Received::All(bytes) => (bytes, self.ended || self.urgent && bytes > 0),
            Received::End => {
                (self.ended, self.readable) = (true, false);
                return Err(Ended);
            }
        };
        self.readable = more;
        Ok(bytes)
    }

    /// Sends as much as may be sent and there is room for, and keeps the rest.
    #[inline]
    pub fn send<D: Driver>(&mut self, io: &mut Io<D>, outbox: &Outbox) -> Sent {
        let (wire, socket) = (&mut self.wire, &self.socket);
        if !wire.is_flushed() && wire.send(io, socket, &[]) == Sent::Broken {
            return Sent::Broken;
        }
        self.outgoing.send(outbox, |pieces| wire.send(io, socket, pieces))
    }

    /// What its next [`Channel::send`] sends, if that is known now: for [`Driver::send_ahead`].
    pub fn sends_next<'a>(&'a self, outbox: &'a Outbox) -> Option<(&'a OwnedFd, &'a [u8])> {
        let bytes = match self.wire {
            Wire::Plain => self.outgoing.sends_next(outbox)?,
            Wire::Tls(_) => return None,
        };
        Some((&self.socket, bytes))
    }

    /// Its TLS session, if it has one.
    #[inline]
    pub fn tls(&self) -> Option<&TlsStream> {
        match &self.wire {
            Wire::Plain => None,
            Wire::Tls(tls) => Some(tls),
        }
    }

    /// Whether its TLS session is not open yet.
    #[inline]
    pub fn is_in_handshake(&self) -> bool {
        self.tls().is_some_and(TlsStream::is_in_handshake)
    }

    /// The names in its client's certificate that may be a user's, once after a handshake in which
    /// the client has shown one.
    pub fn new_names(&mut self, which: CertificateName) -> Option<Vec<Box<[u8]>>> {
        let Wire::Tls(tls) = &mut self.wire else { return None };
        let certificate = tls.new_certificate()?;
        (which != CertificateName::Off).then(|| names(certificate, which))
    }

    /// Tells its peer that it ends. To be called before it is dropped.
    pub fn end<D: Driver>(&mut self, io: &mut Io<D>) {
        if let Wire::Tls(tls) = &mut self.wire
            && self.outgoing.is_empty()
        {
            tls.end();
            // Best effort: the peer may be gone.
            let _ = self.wire.send(io, &self.socket, &[]);
        }
    }

    /// Whether there is nothing to send.
    #[inline]
    pub fn is_flushed(&self) -> bool {
        self.outgoing.is_empty() && self.wire.is_flushed()
    }

    /// How many bytes of earlier turns have not been sent.
    #[inline]
    pub fn unsent(&self) -> usize {
        self.outgoing.unsent() + self.tls().map_or(0, |tls| tls.sealed.len())
    }

    /// The memory that those take.
    pub fn unsent_memory(&self) -> usize {
        self.outgoing.capacity() + self.tls().map_or(0, TlsStream::buffered)
    }

    /// Drops the input that has not been run.
    pub fn forget_input(&mut self) {
        self.unread = Backlog::default();
        self.readable = false;
    }

    /// Bytes of memory that its buffers take.
    pub fn buffered(&self) -> usize {
        self.unread.capacity() + self.unsent_memory()
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // A forked child may have the socket open: closing alone would not end the connection.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }
}
