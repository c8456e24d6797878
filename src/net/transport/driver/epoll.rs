//! epoll, edge-triggered: it reports each descriptor once, and again only when something is new. So
//! no system call is needed between two events.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use arrayvec::ArrayVec;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::{Driver, Happened, Mark, Received, Sent};
use crate::limits::SENT_TOGETHER;

/// Events taken at once.
const EVENTS: usize = 256;

/// How often long waits end.
const TICK: Duration = Duration::from_millis(100);

/// A wait of this length or longer counts as long.
const LONG: Duration = Duration::from_millis(20);

/// Marks the ticker. It must be read, or it would not fire again.
const TICKER: Mark = u64::MAX - 1;

/// Marks the worker's waker. It need not be read: every wake-up is an edge.
const WAKER: Mark = u64::MAX;

/// An epoll instance.
pub struct Epoll {
    epoll: OwnedFd,
    /// Ends long waits now and then. A timeout for each wait would have to be set and cleared each
    /// time, which costs more than everything else between two waits.
    ticker: OwnedFd,
    /// The system supports waits of less than a millisecond (Linux 5.11).
    fine: bool,
}

impl Epoll {
    /// A driver that `waker` wakes; its own descriptor is at least `first_descriptor`.
    ///
    /// # Errors
    /// The system's, for example if it has no descriptors left.
    pub fn new(waker: impl AsFd, first_descriptor: i32) -> io::Result<Self> {
        let epoll = super::super::raised(epoll::create(CreateFlags::CLOEXEC)?, first_descriptor)?;
        epoll::add(&epoll, waker, EventData::new_u64(WAKER), EventFlags::IN | EventFlags::ET)?;
        let ticker = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        let every = Timespec { tv_sec: 0, tv_nsec: TICK.subsec_nanos().into() };
        let ticks = Itimerspec { it_interval: every, it_value: every };
        timerfd_settime(&ticker, TimerfdTimerFlags::empty(), &ticks)?;
        epoll::add(&epoll, &ticker, EventData::new_u64(TICKER), EventFlags::IN | EventFlags::ET)?;
        Ok(Epoll { epoll, ticker, fine: true })
    }

    fn wait_for_events(
        &self,
        at_most: Duration,
        happened: &mut Vec<Happened>,
    ) -> Result<(), Errno> {
        let coarse = Duration::from_millis(at_most.as_micros().div_ceil(1000) as u64);
        let wait = if self.fine { at_most } else { coarse };
        let limit =
            Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
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

/// What has become of bytes that `send` sends. It is called again if it was interrupted: that says
/// nothing about the room, so no event need follow.
#[inline]
fn sent(send: impl FnMut() -> Result<usize, Errno>) -> Sent {
    match retry_on_intr(send) {
        Ok(sent) => Sent::Bytes(sent),
        Err(Errno::AGAIN) => Sent::Bytes(0),
        Err(_) => Sent::Broken,
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
        if self.wait_for_events(at_most, happened) == Err(Errno::NOSYS) {
            self.fine = false;
        }
        // An interrupted wait is a short wait.
    }

    #[inline]
    fn receive(&mut self, socket: &OwnedFd, into: &mut Vec<u8>, most: usize) -> Received {
        let room = most.min(into.capacity() - into.len());
        let place = &mut into.spare_capacity_mut()[..room];
        let received = rustix::net::recv(socket, place, RecvFlags::empty());
        match received.map(|(_, bytes)| room.min(bytes)) {
            Ok(0) => Received::End,
            Ok(some) => {
                // SAFETY: the system has written so many bytes behind those that were there, and
                // they fit in the capacity.
                unsafe { into.set_len(into.len() + some) };
                // Less than asked for means nothing is left; an edge reports what comes later.
                // Urgent bytes are the exception: `Happened::urgent`.
                if some < room { Received::All(some) } else { Received::More(some) }
            }
            Err(Errno::AGAIN) => Received::All(0),
            Err(Errno::INTR) => Received::More(0),
            Err(_) => Received::End,
        }
    }

    #[inline]
    fn send(&mut self, socket: &OwnedFd, bytes: &[u8]) -> Sent {
        sent(|| rustix::net::send(socket, bytes, SendFlags::NOSIGNAL))
    }

    fn send_pieces(&mut self, socket: &OwnedFd, pieces: &[&[u8]]) -> Sent {
        let slices: ArrayVec<IoSlice<'_>, SENT_TOGETHER> =
            pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let mut nothing = SendAncillaryBuffer::default();
        sent(|| rustix::net::sendmsg(socket, &slices, &mut nothing, SendFlags::NOSIGNAL))
    }
}
