//! io_uring. The kernel receives into buffers of the ring as bytes come, and the replies of a turn
//! are sent by one system call.
//!
//! ```text
//! request ─► submission queue ─► kernel ─► completion queue ─► what is known of a descriptor
//!                                   │                             │        │
//!                                   └─► buffers ─► its chain ─────┘        └─► events
//! ```
//!
//! A connection has two requests in the kernel: one for its events, as epoll would report them, and
//! one for its input (see [`Reading`]). Input usually streams into the ring's buffers. Streaming
//! ends if the kernel has no buffer left or no room for completions, if a connection has many
//! buffers that nobody takes, or if the worker wants certain bytes that must not lie elsewhere: the
//! pieces of a large value. Then the bytes wait in the socket, and the worker receives them from
//! there, until there are none. Which of the two follows is decided whenever that happens.
//!
//! Listening sockets are watched by epoll, and that by the ring. A request holds its socket open,
//! and after the end of a process its requests end a moment later: a server that is started again
//! at once would find its address in use.

mod buffers;
mod endpoint;
mod listeners;
mod refusal;
mod ring;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::mem::take;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use io_uring::squeue::{Entry, Flags};
use io_uring::types::Fd;
use io_uring::{cqueue, opcode};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::super::raised;
use super::ticker::ticker;
use super::{Driver, EVENTS, Happened, Mark, Received, Sent, socket};
use crate::limits::{RECEIVED_BUFFERS, RECEIVED_UNTAKEN};
use buffers::{BufferId, Buffers, GROUP};
use endpoint::{
    Ahead, Endpoint, Endpoints, News, Purpose, Reading, Role, generation_after, name, named,
};
use refusal::refusal;
use ring::Ring;

/// An io_uring instance.
pub struct Uring {
    /// It must end before its buffers, into which the kernel writes.
    ring: Ring,
    buffers: Buffers,
    endpoints: Endpoints,
    generation: u32,
    /// Descriptors that have news.
    heard: VecDeque<RawFd>,
    /// Those whose requests have ended and are to be made again.
    again: Vec<(RawFd, u32)>,
    /// Those of the bytes that are sent ahead, and where these are.
    ahead: Vec<(RawFd, *const u8, u32)>,
    /// The worker was woken, or a long wait is to end.
    is_woken: bool,
    /// The kernel refuses the ring: all connections end.
    has_failed: bool,
    ticker: OwnedFd,
    /// An epoll instance with the listening sockets.
    listeners: OwnedFd,
}

// SAFETY: the pointers in `ahead` are used only within one call.
unsafe impl Send for Uring {}

impl Uring {
    /// A driver that `waker` wakes; its own descriptors, but for the ring's, are at least
    /// `first_descriptor`. The first thread that waits with it is its own from then on.
    ///
    /// # Errors
    /// Why the system does not offer it.
    pub fn new(waker: impl AsFd, first_descriptor: RawFd) -> Result<Self, String> {
        let ring = Ring::new().map_err(|error| refusal("io_uring_setup", &error))?;
        let registered = Buffers::new(&ring, RECEIVED_BUFFERS);
        let buffers = registered.map_err(|error| refusal("io_uring_register", &error))?;
        Self::with(waker, first_descriptor, ring, buffers)
            .map_err(|error| refusal("io_uring", &error))
    }

    fn with(waker: impl AsFd, first: RawFd, ring: Ring, buffers: Buffers) -> io::Result<Self> {
        let ticker = raised(ticker()?, first)?;
        let listeners = raised(epoll::create(CreateFlags::CLOEXEC)?, first)?;
        let mut driver = Uring {
            ring,
            buffers,
            endpoints: Endpoints::default(),
            generation: 0,
            heard: VecDeque::new(),
            again: Vec::new(),
            ahead: Vec::new(),
            is_woken: false,
            has_failed: false,
            ticker,
            listeners,
        };
        driver.watch(waker.as_fd().as_raw_fd(), 0, Role::Waker)?;
        driver.watch(driver.ticker.as_raw_fd(), 0, Role::Ticker)?;
        driver.watch(driver.listeners.as_raw_fd(), 0, Role::Listeners)?;
        Ok(driver)
    }

    /// Whether the system lets this process use io_uring as this driver does.
    ///
    /// # Errors
    /// The reason why not.
    pub fn try_out() -> Result<(), String> {
        let ring = Ring::sized(4, 8).map_err(|error| refusal("io_uring_setup", &error));
        let mut ring = ring?;
        let buffers = Buffers::new(&ring, 1);
        let _buffers = buffers.map_err(|error| refusal("io_uring_register", &error))?;
        ring.try_out().map_err(|error| refusal("io_uring_enter", &error))
    }

    /// Its descriptor, which a forked child should close.
    pub fn descriptor(&self) -> RawFd {
        self.ring.descriptor()
    }

    fn watch(&mut self, descriptor: RawFd, mark: Mark, role: Role) -> io::Result<()> {
        self.generation = generation_after(self.generation);
        let generation = self.generation;
        *self.endpoints.place(descriptor) =
            Endpoint { mark, generation, role, ..Endpoint::default() };
        if role != Role::Listeners {
            self.ask_events(descriptor)?;
        }
        if matches!(role, Role::Connection | Role::Listeners) {
            self.ask_input(descriptor)?;
        }
        Ok(())
    }

    /// The request with this purpose of a descriptor.
    fn name(&self, purpose: Purpose, descriptor: RawFd) -> u64 {
        name(purpose, self.endpoints[descriptor].generation, descriptor)
    }

    /// Makes a request that refers to no memory but the ring's buffers.
    fn ask(&mut self, purpose: Purpose, descriptor: RawFd, request: Entry) -> io::Result<()> {
        let request = request.user_data(self.name(purpose, descriptor));
        // SAFETY: those live longer than the ring.
        unsafe { self.ring.push(&request) }
    }

    /// Has the kernel report each change of a descriptor, but for a connection's input.
    fn ask_events(&mut self, descriptor: RawFd) -> io::Result<()> {
        let events = match self.endpoints[descriptor].role {
            Role::Connection => libc::POLLOUT | libc::POLLRDHUP,
            _ => libc::POLLIN,
        };
        let request = opcode::PollAdd::new(Fd(descriptor), events as u32).multi(true).build();
        self.ask(Purpose::Events, descriptor, request)
    }

    /// Has the kernel receive a connection's input, or report that there is some.
    fn ask_input(&mut self, descriptor: RawFd) -> io::Result<()> {
        let endpoint = &mut self.endpoints[descriptor];
        // Without a buffer streaming would end at once, again and again.
        let polls = endpoint.role == Role::Listeners || endpoint.is_exact || self.buffers.are_few();
        if polls {
            endpoint.reading = Reading::Polling;
            let events = (libc::POLLIN | libc::POLLRDHUP) as u32;
            return self.ask(
                Purpose::Poll,
                descriptor,
                opcode::PollAdd::new(Fd(descriptor), events).build(),
            );
        }
        endpoint.reading = Reading::Streaming;
        let request = opcode::RecvMulti::new(Fd(descriptor), GROUP).build();
        self.ask(Purpose::Stream, descriptor, request)?;
        self.endpoints[descriptor].streams_since = self.ring.submissions();
        Ok(())
    }

    /// Ends a request of a descriptor. The end comes later, as its last completion.
    fn cancel(&mut self, purpose: Purpose, descriptor: RawFd) -> io::Result<()> {
        let request = opcode::AsyncCancel::new(self.name(purpose, descriptor)).build();
        self.ask(Purpose::Cancel, descriptor, request.flags(Flags::SKIP_SUCCESS))
    }

    /// The bytes of a connection stay in its socket from now on.
    fn stop_streaming(&mut self, descriptor: RawFd) -> io::Result<()> {
        let reading = &mut self.endpoints[descriptor].reading;
        if *reading != Reading::Streaming {
            return Ok(());
        }
        *reading = Reading::Stopping;
        self.cancel(Purpose::Stream, descriptor)
    }

    /// Something has happened to a descriptor.
    #[inline]
    fn hear(&mut self, descriptor: RawFd, news: u8) {
        let endpoint = &mut self.endpoints[descriptor];
        if endpoint.news == 0 {
            self.heard.push_back(descriptor);
        }
        endpoint.news |= news;
    }

    /// Takes in all completions.
    fn take_completions(&mut self) -> io::Result<()> {
        while let Some(completion) = self.ring.completion() {
            self.completed(&completion)?;
        }
        Ok(())
    }

    fn completed(&mut self, completion: &cqueue::Entry) -> io::Result<()> {
        let buffer = cqueue::buffer_select(completion.flags());
        if buffer.is_some() {
            self.buffers.take();
        }
        let named = named(completion.user_data())
            .filter(|&(_, generation, descriptor)| self.endpoints.has(descriptor, generation));
        let Some((purpose, generation, descriptor)) = named else {
            // Of a connection that has been closed.
            buffer.into_iter().for_each(|buffer| self.buffers.give(buffer));
            return Ok(());
        };
        let (result, goes_on) = (completion.result(), cqueue::more(completion.flags()));
        match purpose {
            Purpose::Stream => self.received(descriptor, result, buffer, goes_on)?,
            Purpose::Events => self.changed(descriptor, result, goes_on),
            Purpose::Poll => {
                self.endpoints[descriptor].reading = Reading::Idle;
                self.hear(descriptor, News::INPUT);
                if self.endpoints[descriptor].role == Role::Listeners {
                    self.again.push((descriptor, generation));
                }
            }
            Purpose::Send => {
                let ahead = match result {
                    0.. => Ahead::Sent(result as usize),
                    _ if matches!(-result, libc::EAGAIN | libc::EINTR) => Ahead::Sent(0),
                    _ => Ahead::Broken,
                };
                self.endpoints[descriptor].ahead = Some(ahead);
            }
            Purpose::Cancel => {}
        }
        Ok(())
    }

    /// A connection has received something, or streaming has ended.
    fn received(
        &mut self,
        descriptor: RawFd,
        result: i32,
        buffer: Option<BufferId>,
        goes_on: bool,
    ) -> io::Result<()> {
        let endpoint = &mut self.endpoints[descriptor];
        match buffer {
            Some(buffer) if result > 0 => {
                self.buffers.add(&mut endpoint.received, buffer, result as usize);
            }
            Some(buffer) => self.buffers.give(buffer),
            None => {}
        }
        let untaken = endpoint.received.count;
        if !goes_on {
            // Of whatever reason: the worker finds out what is there.
            endpoint.reading = Reading::Idle;
        } else if untaken >= RECEIVED_UNTAKEN {
            self.stop_streaming(descriptor)?;
        }
        self.hear(descriptor, News::INPUT);
        Ok(())
    }

    /// The events of a descriptor.
    fn changed(&mut self, descriptor: RawFd, result: i32, goes_on: bool) {
        if !goes_on {
            self.again.push((descriptor, self.endpoints[descriptor].generation));
        }
        match self.endpoints[descriptor].role {
            Role::Listeners | Role::Waker => self.is_woken = true,
            Role::Ticker => {
                self.is_woken = true;
                let _ = rustix::io::read(&self.ticker, &mut [0; 8]);
            }
            Role::Connection => {
                let has = |flag: i16| result > 0 && result & i32::from(flag) != 0;
                let ended = has(libc::POLLRDHUP) || has(libc::POLLHUP) || has(libc::POLLERR);
                let mut news = if ended { News::ENDED | News::INPUT } else { 0 };
                news |= if has(libc::POLLOUT) { News::ROOM } else { 0 };
                if news != 0 {
                    self.hear(descriptor, news);
                }
            }
        }
    }

    /// Makes the requests again that have ended.
    fn ask_again(&mut self) -> io::Result<()> {
        while let Some((descriptor, generation)) = self.again.pop() {
            if !self.endpoints.has(descriptor, generation) {
                continue;
            }
            match self.endpoints[descriptor].role {
                Role::Listeners => self.ask_input(descriptor)?,
                _ => self.ask_events(descriptor)?,
            }
        }
        Ok(())
    }

    fn wait_for_events(&mut self, at_most: Duration) -> io::Result<()> {
        self.ring.begin()?;
        self.ask_again()?;
        let is_quiet = self.heard.is_empty();
        if is_quiet && !self.is_woken && !at_most.is_zero() {
            self.ring.wait(at_most)?;
        } else if is_quiet || self.ring.has_requests() {
            self.ring.submit()?;
        }
        self.take_completions()?;
        self.is_woken = false;
        Ok(())
    }

    /// The ring is of no more use: ends all connections.
    #[cold]
    fn fail(&mut self, error: &io::Error) -> ! {
        self.has_failed = true;
        for descriptor in 0..self.endpoints.end() {
            let endpoint = &self.endpoints[descriptor];
            if endpoint.generation != 0 && endpoint.role == Role::Connection {
                self.hear(descriptor, News::INPUT | News::ENDED);
            }
        }
        panic!("io_uring has failed, and all connections of this worker end: {error}");
    }

    /// Sends what stands in `ahead`.
    fn send_all_ahead(&mut self) -> io::Result<()> {
        for number in 0..self.ahead.len() {
            let (descriptor, bytes, count) = self.ahead[number];
            let flags = libc::MSG_DONTWAIT | libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
            let request = opcode::Send::new(Fd(descriptor), bytes, count).flags(flags).build();
            let request = request.user_data(self.name(Purpose::Send, descriptor));
            // SAFETY: the kernel sends when the request is submitted, which is done before the end
            // of the call that has borrowed the bytes. After a failure nothing is.
            unsafe { self.ring.push(&request.flags(Flags::SKIP_SUCCESS))? };
        }
        loop {
            self.ring.submit()?;
            self.take_completions()?;
            // One of a send may be among those for which there was no room.
            if !self.ring.has_overflowed() {
                return Ok(());
            }
        }
    }
}

impl Driver for Uring {
    const NAME: &'static str = "io_uring";

    fn add(&mut self, mark: Mark, socket: &OwnedFd) -> io::Result<()> {
        self.watch(socket.as_raw_fd(), mark, Role::Connection)
    }

    fn add_listener(&mut self, mark: Mark, listener: &OwnedFd) -> io::Result<()> {
        let events = EventFlags::IN | EventFlags::EXCLUSIVE;
        Ok(epoll::add(&self.listeners, listener, EventData::new_u64(mark), events)?)
    }

    fn remove(&mut self, socket: &OwnedFd) {
        let descriptor = socket.as_raw_fd();
        if !self.endpoints.has_any(descriptor) {
            let _ = epoll::delete(&self.listeners, socket);
            return;
        }
        let endpoint = &mut self.endpoints[descriptor];
        let reading = endpoint.reading;
        self.buffers.give_all(&mut endpoint.received);
        // The kernel looks up the socket when it gets the request. By then the descriptor may be
        // another connection's, whose first bytes the request would take.
        let is_late = endpoint.may_be_unsubmitted(self.ring.submissions());
        let submitted = if is_late { self.ring.submit() } else { Ok(()) };
        let cancelled = submitted.and_then(|()| self.cancel(Purpose::Events, descriptor));
        // The kernel has the socket open until these requests end: the next wait submits this.
        let cancelled = cancelled.and_then(|()| match reading {
            Reading::Streaming => self.cancel(Purpose::Stream, descriptor),
            Reading::Polling => self.cancel(Purpose::Poll, descriptor),
            Reading::Stopping | Reading::Idle => Ok(()),
        });
        self.endpoints[descriptor] = Endpoint::default();
        if let Err(error) = cancelled
            && !self.has_failed
        {
            self.fail(&error);
        }
    }

    fn wait(&mut self, at_most: Duration, happened: &mut Vec<Happened>) {
        if self.has_failed {
            std::thread::sleep(at_most.min(Duration::from_millis(1)));
        } else if let Err(error) = self.wait_for_events(at_most) {
            self.fail(&error);
        }
        while happened.len() < EVENTS
            && let Some(descriptor) = self.heard.pop_front()
        {
            let endpoint = &mut self.endpoints[descriptor];
            let news = take(&mut endpoint.news);
            if endpoint.role == Role::Listeners {
                listeners::report(&self.listeners, happened);
            } else if news != 0 {
                happened.push(Happened {
                    mark: endpoint.mark,
                    input: news & News::INPUT != 0,
                    room: news & News::ROOM != 0,
                    ended: news & News::ENDED != 0,
                    urgent: false,
                });
            }
        }
    }

    fn receive(&mut self, socket: &OwnedFd, into: &mut Vec<u8>, most: usize) -> Received {
        let descriptor = socket.as_raw_fd();
        if self.has_failed {
            return Received::End;
        }
        let free = into.capacity() - into.len();
        let endpoint = &mut self.endpoints[descriptor];
        endpoint.is_exact = most <= free;
        let moved = self.buffers.move_bytes(&mut endpoint.received, into, most.min(free));
        let (is_left, is_idle) = (endpoint.received.count > 0, endpoint.reading == Reading::Idle);
        let received = match moved {
            0 if is_idle => socket::receive(socket, into, most),
            _ if is_left || is_idle => Received::More(moved),
            _ => Received::All(moved),
        };
        let is_exact = endpoint.is_exact;
        let asked = match received {
            Received::All(_) if is_idle => self.ask_input(descriptor),
            _ if is_exact => self.stop_streaming(descriptor),
            _ => Ok(()),
        };
        if let Err(error) = asked {
            self.fail(&error);
        }
        received
    }

    #[inline]
    fn send(&mut self, socket: &OwnedFd, bytes: &[u8]) -> Sent {
        match self.endpoints[socket.as_raw_fd()].ahead.take() {
            _ if self.has_failed => Sent::Broken,
            None => socket::send(socket, bytes),
            Some(Ahead::Sent(sent)) => Sent::Bytes(sent.min(bytes.len())),
            Some(Ahead::Broken) => Sent::Broken,
        }
    }

    fn send_pieces(&mut self, socket: &OwnedFd, pieces: &[&[u8]]) -> Sent {
        if self.has_failed { Sent::Broken } else { socket::send_pieces(socket, pieces) }
    }

    fn send_ahead<'a>(&mut self, all: impl Iterator<Item = (&'a OwnedFd, &'a [u8])>) {
        if self.has_failed {
            return;
        }
        self.ahead.clear();
        for (socket, bytes) in all {
            let ahead = &mut self.endpoints[socket.as_raw_fd()].ahead;
            if let Ok(count) = i32::try_from(bytes.len())
                && ahead.is_none()
            {
                // Until a completion says otherwise.
                *ahead = Some(Ahead::Sent(bytes.len()));
                self.ahead.push((socket.as_raw_fd(), bytes.as_ptr(), count as u32));
            }
        }
        if self.ahead.is_empty() {
            return;
        }
        if let Err(error) = self.send_all_ahead() {
            self.fail(&error);
        }
    }
}
