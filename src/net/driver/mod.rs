//! The driver: how bytes come and go. One per worker. What the connections are
//! about, it does not know; how the system is asked, nobody else does.

mod epoll;

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

pub use epoll::Epoll;

/// Marks a descriptor among the events. What has been removed is never heard of again.
pub type Mark = u64;

/// Something that happened to a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Happened {
    /// Which one.
    pub mark: Mark,
    /// There may be something to receive, or the end of it; on a listener, connections.
    pub input: bool,
    /// There may be room to send again.
    pub room: bool,
    /// The other side sends no more, or the connection is broken.
    pub ended: bool,
}

/// What receiving gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// So many bytes, and there may be more.
    More(usize),
    /// So many bytes (perhaps none), and there is no more now: the driver will tell of it.
    All(usize),
    /// The connection has ended.
    End,
}

/// What sending came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// So many bytes; where not all of them, the driver tells when there is room again.
    Bytes(usize),
    /// The connection is broken.
    Broken,
}

/// A way of asking the system.
pub trait Driver {
    /// What INFO calls it.
    const NAME: &'static str;

    /// Looks after a connection's socket from now on.
    ///
    /// # Errors
    /// The system's.
    fn add(&mut self, mark: Mark, socket: &OwnedFd) -> io::Result<()>;

    /// Tells of connections that wait to be accepted. Several workers may listen to the
    /// same socket.
    ///
    /// # Errors
    /// The system's.
    fn add_listener(&mut self, mark: Mark, listener: &OwnedFd) -> io::Result<()>;

    /// A connection is about to be closed.
    fn remove(&mut self, socket: &OwnedFd);

    /// Waits for so long, or until the worker is woken; then says what happened. What is longer
    /// than a few hundredths of a second need not be exact.
    fn wait(&mut self, at_most: Duration, happened: &mut Vec<Happened>);

    /// Receives into the free capacity of `into`, behind what it holds.
    fn receive(&mut self, socket: &OwnedFd, into: &mut Vec<u8>) -> Received;

    /// Sends as much of this as there is room for.
    fn send(&mut self, socket: &OwnedFd, bytes: &[u8]) -> Sent;
}
