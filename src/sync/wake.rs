//! The waker of a thread: an eventfd, so that one wait can cover messages and, on the ports,
//! sockets.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{fcntl_dupfd_cloexec, read, write};

use super::contention::{Contact, note};

/// An eventfd.
pub struct Waker(OwnedFd);

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Waker {
    /// Makes an eventfd.
    ///
    /// # Errors
    /// The system's error if it has no more descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(Waker(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
    }

    /// An eventfd whose descriptor is at least `first`.
    ///
    /// # Errors
    /// The system's error if it has no more descriptors.
    pub fn above(first: RawFd) -> io::Result<Self> {
        Ok(Waker(fcntl_dupfd_cloexec(Waker::new()?.0, first)?))
    }

    /// Wakes the thread that sleeps on it.
    pub fn wake(&self) {
        note(Contact::WakeUp);
        // It fails only if 2^64 - 2 calls are unread: the thread is awake then.
        let _ = write(&self.0, &1u64.to_ne_bytes());
    }

    /// Sleeps until woken, or for at most this long.
    pub fn sleep(&self, at_most: Duration) {
        let limit = Timespec {
            tv_sec: at_most.as_secs() as i64,
            tv_nsec: i64::from(at_most.subsec_nanos()),
        };
        let mut watched = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
        // An interrupted sleep is a short sleep.
        let _ = poll(&mut watched, Some(&limit));
        self.clear();
    }

    /// Forgets the calls so far.
    pub fn clear(&self) {
        let _ = read(&self.0, &mut [0; 8]);
    }

    /// The descriptor, for another event loop: see also [`AsFd`].
    pub fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
