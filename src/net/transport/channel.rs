//! A connection's two directions of bytes.

use std::os::fd::OwnedFd;

use super::backlog::Backlog;
use super::driver::{Driver, Received, Sent};
use super::outgoing::{Outbox, Outgoing};

/// A socket, the bytes that have come and not run, and those to be sent.
pub struct Channel {
    /// The socket.
    pub socket: OwnedFd,
    /// There may be something to receive.
    pub readable: bool,
    /// The peer sends no more.
    pub ended: bool,
    /// Received but not run.
    pub unread: Backlog,
    /// What it has to say.
    pub outgoing: Outgoing,
}

/// The end of a channel's input.
pub struct Ended;

impl Channel {
    /// Of a new connection.
    pub fn new(socket: OwnedFd) -> Self {
        Channel {
            socket,
            readable: false,
            ended: false,
            unread: Backlog::default(),
            outgoing: Outgoing::default(),
        }
    }

    /// Receives once into the free capacity of `into`; returns how many bytes.
    ///
    /// # Errors
    /// [`Ended`] if no more will come.
    #[inline]
    pub fn receive<D: Driver>(
        &mut self,
        driver: &mut D,
        into: &mut Vec<u8>,
    ) -> Result<usize, Ended> {
        let received = driver.receive(&self.socket, into);
        self.note(received)
    }

    /// The same into [`Channel::unread`].
    ///
    /// # Errors
    /// [`Ended`] if no more will come.
    pub fn receive_more<D: Driver>(&mut self, driver: &mut D) -> Result<usize, Ended> {
        let received = driver.receive(&self.socket, self.unread.buffer());
        self.note(received)
    }

    #[inline]
    fn note(&mut self, received: Received) -> Result<usize, Ended> {
        let (bytes, more) = match received {
            Received::More(bytes) => (bytes, true),
            Received::All(bytes) => (bytes, self.ended),
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
    pub fn send<D: Driver>(&mut self, driver: &mut D, outbox: &Outbox) -> Sent {
        self.outgoing.send(outbox, |bytes| driver.send(&self.socket, bytes))
    }

    /// Whether there is nothing to send.
    #[inline]
    pub fn is_flushed(&self) -> bool {
        self.outgoing.is_empty()
    }

    /// How many bytes of earlier turns have not been sent.
    #[inline]
    pub fn unsent(&self) -> usize {
        self.outgoing.unsent()
    }

    /// The memory that those take.
    pub fn unsent_memory(&self) -> usize {
        self.outgoing.capacity()
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
