//! epoll, edge-triggered: it reports each descriptor once, and again only when something is new. So
//! no system call is needed between two events.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use super::super::raised;
use super::socket;
use super::ticker::{LONG, ticker};
use super::{Driver, EVENTS, Happened, Mark, Received, Sent};

/// Marks the ticker. It must be read, or it would not fire again.
const TICKER: Mark = u64::MAX - 1;

/// Marks the worker's waker. It need not be read: every wake-up is an edge.
const WAKER: Mark = u64::MAX;

/// An epoll instance.
pub struct Epoll {
    epoll: OwnedFd,
    ticker: OwnedFd,
}

impl Epoll {
    /// A driver that `waker` wakes; its own descriptors are at least `first_descriptor`.
    ///
    /// # Errors
    /// The system's, for example if it has no descriptors left.
    pub fn new(waker: impl AsFd, first_descriptor: i32) -> io::Result<Self> {
        let epoll = raised(epoll::create(CreateFlags::CLOEXEC)?, first_descriptor)?;
        epoll::add(&epoll, waker, EventData::new_u64(WAKER), EventFlags::IN | EventFlags::ET)?;
        let ticker = raised(ticker()?, first_descriptor)?;
        epoll::add(&epoll, &ticker, EventData::new_u64(TICKER), EventFlags::IN | EventFlags::ET)?;
        Ok(Epoll { epoll, ticker })
    }

    fn wait_for_events(
        &self,
        at_most: Duration,
        happened: &mut Vec<Happened>,
    ) -> Result<(), Errno> {
        // rustix rounds it up to a millisecond: it does without epoll_pwait2, of Linux 5.11.
        let (tv_sec, tv_nsec) = (at_most.as_secs() as i64, i64::from(at_most.subsec_nanos()));
        let limit = Timespec { tv_sec, tv_nsec };
        let mut events = [const { MaybeUninit::<Event>::uninit() }; EVENTS];
        let limit = (at_most < LONG).then_some(&limit);
        let (events, _) = epoll::wait(&self.epoll, &mut events[..], limit)?;
        happened.extend(events.iter().filter_map(|event| {
            let (mark, flags) = (event.data.u64(), event.flags);
            let ended = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
            let input = ended || flags.contains(EventFlags::IN);
            if mark == TICKER {
                let _ = rustix::io::read(&self.ticker, &mut [0; 8]);
            }
            (mark < TICKER).then_some(Happened {
                mark,
                input,
                room: flags.contains(EventFlags::OUT),
                ended,
                urgent: flags.contains(EventFlags::PRI),
            })
        }));
        Ok(())
    }
}

impl Driver for Epoll {
    const NAME: &'static str = "epoll";

    fn add(&mut self, mark: Mark, socket: &OwnedFd) -> io::Result<()> {
        let input = EventFlags::IN | EventFlags::PRI | EventFlags::RDHUP;
        let all = input | EventFlags::OUT | EventFlags::ET;
        Ok(epoll::add(&self.epoll, socket, EventData::new_u64(mark), all)?)
    }

    fn add_listener(&mut self, mark: Mark, listener: &OwnedFd) -> io::Result<()> {
        let shared = EventFlags::IN | EventFlags::EXCLUSIVE;
        Ok(epoll::add(&self.epoll, listener, EventData::new_u64(mark), shared)?)
    }

    fn remove(&mut self, socket: &OwnedFd) {
        // Closing removes it too, but not while a forked child has the socket open.
        let _ = epoll::delete(&self.epoll, socket);
    }

    fn wait(&mut self, at_most: Duration, happened: &mut Vec<Happened>) {
        // An interrupted wait is a short wait.
        let _ = self.wait_for_events(at_most, happened);
    }

    #[inline]
    fn receive(&mut self, socket: &OwnedFd, into: &mut Vec<u8>, most: usize) -> Received {
        socket::receive(socket, into, most)
    }

    #[inline]
    fn send(&mut self, socket: &OwnedFd, bytes: &[u8]) -> Sent {
        socket::send(socket, bytes)
    }

    fn send_pieces(&mut self, socket: &OwnedFd, pieces: &[&[u8]]) -> Sent {
        socket::send_pieces(socket, pieces)
    }
}
