//! The driver, one per worker: it moves bytes between sockets and buffers. It does not know what
//! the connections are about, and only it knows how to ask the system.

mod epoll;
mod socket;
#[cfg(test)]
mod tests;
mod ticker;
mod uring;

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

pub use epoll::Epoll;
pub use uring::Uring;

#[cfg(doc)]
use crate::limits::SENT_TOGETHER;

/// Events reported at once.
const EVENTS: usize = 256;

/// Marks a descriptor among the events. A removed descriptor reports no more events.
pub type Mark = u64;

/// Something that happened to a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Happened {
    /// The descriptor's mark.
    pub mark: Mark,
    /// There may be something to receive, or the end of the stream; on a listener, connections.
    pub input: bool,
    /// There may be room to send again.
    pub room: bool,
    /// The peer sends no more, or the connection is broken.
    pub ended: bool,
    /// The peer has sent an urgent byte, where a read ends although more is there.
    pub urgent: bool,
}

/// The result of receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// This many bytes; there may be more.
    More(usize),
    /// This many bytes (possibly 0) and no more for now: the driver reports when there are.
    All(usize),
    /// The connection has ended.
    End,
}

/// The result of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// This many bytes; if not all, the driver reports when there is room again.
    Bytes(usize),
    /// The connection is broken.
    Broken,
}

/// A way of asking the system for I/O.
pub trait Driver {
    /// Its name in INFO.
    const NAME: &'static str;

    /// Watches a connection's socket from now on.
    ///
    /// # Errors
    /// The system's.
    fn add(&mut self, mark: Mark, socket: &OwnedFd) -> io::Result<()>;

    /// Reports connections that wait to be accepted. Several workers may listen on the same socket.
    ///
    /// # Errors
    /// The system's.
    fn add_listener(&mut self, mark: Mark, listener: &OwnedFd) -> io::Result<()>;

    /// Stops watching a socket; its connection is about to be closed.
    fn remove(&mut self, socket: &OwnedFd);

    /// Waits this long, or until the worker is woken; then adds what happened to `happened`. A wait
    /// of more than a few hundredths of a second need not be exact.
    fn wait(&mut self, at_most: Duration, happened: &mut Vec<Happened>);

    /// Receives at most `most` bytes into the free capacity of `into`, after what it holds. If so
    /// many fit there, the caller wants these and no others: more would have to be copied.
    fn receive(&mut self, socket: &OwnedFd, into: &mut Vec<u8>, most: usize) -> Received;

    /// Sends as many of these bytes as there is room for.
    fn send(&mut self, socket: &OwnedFd, bytes: &[u8]) -> Sent;

    /// The same of pieces that follow each other, at most [`SENT_TOGETHER`] of them.
    fn send_pieces(&mut self, socket: &OwnedFd, pieces: &[&[u8]]) -> Sent;

    /// Announces what several connections have to say. For each of them [`Driver::send`] of the
    /// same bytes follows, before anything else is done with its socket, and tells what has become
    /// of them. A driver for which that is cheaper may send them now, all together.
    fn send_ahead<'a>(&mut self, _: impl Iterator<Item = (&'a OwnedFd, &'a [u8])>) {}
}
