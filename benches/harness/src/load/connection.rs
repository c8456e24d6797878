//! One connection: what was sent and is not answered yet.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context as _, Result, bail};

use super::Protocol;
use super::keys::Share;
use super::replies::Replies;
use super::template::{Fill, Template};
use super::wire::{Address, Wire};

/// Nanoseconds since the run began.
pub type Ns = u64;

/// Commands that were sent, or should have been, at the same time.
#[derive(Clone, Copy)]
struct Sent {
    at: Ns,
    kind: usize,
    count: u64,
}

/// A connection to a server.
pub struct Connection {
    address: Address,
    wire: Wire,
    /// The keys that its server has.
    pub share: Share,
    out: Vec<u8>,
    written: usize,
    in_flight: VecDeque<Sent>,
    /// Commands that may still be sent.
    pub budget: u64,
    /// Commands that were sent, or are in the output.
    pub pushed: u64,
    /// Commands without a reply.
    pub outstanding: u64,
    /// Open loop: the due times of commands that wait for room in the pipeline.
    pub late: VecDeque<Ns>,
    /// The socket did not take all of the output.
    pub is_waiting: bool,
    /// The stream of replies.
    pub replies: Replies,
}

impl Connection {
    /// Connects, and runs the set-up commands.
    ///
    /// # Errors
    /// No connection, or an error reply to a set-up command.
    pub fn open(
        address: &Address,
        protocol: Protocol,
        share: Share,
        setup: &[String],
    ) -> Result<Self> {
        let mut connection = Connection {
            address: address.clone(),
            wire: address.connect()?,
            share,
            out: Vec::new(),
            written: 0,
            in_flight: VecDeque::new(),
            budget: u64::MAX,
            pushed: 0,
            outstanding: 0,
            late: VecDeque::new(),
            is_waiting: false,
            replies: Replies::new(protocol),
        };
        for command in setup {
            connection.set_up(command, protocol)?;
        }
        rustix::io::ioctl_fionbio(&connection.wire, true)?;
        Ok(connection)
    }

    /// Closes it, and connects again.
    ///
    /// # Errors
    /// No connection.
    pub fn reopen(&mut self) -> Result<()> {
        self.wire = self.address.connect()?;
        self.is_waiting = false;
        Ok(rustix::io::ioctl_fionbio(&self.wire, true)?)
    }

    /// Whether a read left something to be sent.
    #[inline]
    pub fn is_unsent(&self) -> bool {
        self.wire.is_unsent()
    }

    /// Sends a command and waits for its reply, while the socket still blocks.
    fn set_up(&mut self, command: &str, protocol: Protocol) -> Result<()> {
        struct Nothing;
        impl Fill for Nothing {
            fn key(&mut self) -> u64 {
                0
            }
            fn value(&mut self) -> &[u8] {
                b""
            }
        }
        Template::parse(command, "key:", protocol)?.write(&mut Nothing, &mut self.out);
        self.flush()?;
        let mut buffer = [0; 4096];
        loop {
            let count = self.wire.read(&mut buffer)?;
            if count == 0 {
                bail!("{command}: the server closed the connection");
            }
            if self.replies.feed(&buffer[..count]).map_err(anyhow::Error::msg)? > 0 {
                break;
            }
        }
        match self.replies.seen.first_error.take() {
            Some(error) => bail!("{command}: {error}"),
            None => Ok(()),
        }
    }

    /// Adds a command of this kind to the output; it should have been sent at `at`.
    #[inline]
    pub fn push(&mut self, template: &mut Template, fill: &mut impl Fill, kind: usize, at: Ns) {
        template.write(fill, &mut self.out);
        self.pushed += 1;
        self.outstanding += 1;
        match self.in_flight.back_mut() {
            Some(last) if last.at == at && last.kind == kind => last.count += 1,
            _ => self.in_flight.push_back(Sent { at, kind, count: 1 }),
        }
    }

    /// Writes as much of the output as the socket takes; returns true when all is written.
    ///
    /// # Errors
    /// The socket's.
    #[inline]
    pub fn flush(&mut self) -> Result<bool> {
        while self.written < self.out.len() {
            match self.wire.write(&self.out[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("writing to the server"),
            }
        }
        self.out.clear();
        self.written = 0;
        self.wire.push().context("writing to the server")
    }

    /// Reads once, and calls `answered(sent at, kind, count)` for what was answered.
    ///
    /// # Errors
    /// The socket's; a closed connection; bytes that are no reply.
    #[inline]
    pub fn receive(
        &mut self,
        buffer: &mut [u8],
        mut answered: impl FnMut(Ns, usize, u64),
    ) -> Result<()> {
        let count = match self.wire.read(buffer) {
            Ok(0) => bail!("the server closed the connection"),
            Ok(count) => count,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return Ok(());
            }
            Err(error) => return Err(error).context("reading from the server"),
        };
        let mut complete = self.replies.feed(&buffer[..count]).map_err(anyhow::Error::msg)?;
        if complete > self.outstanding {
            bail!("the server sent more replies than it was asked for");
        }
        self.outstanding -= complete;
        while complete > 0 {
            let Some(first) = self.in_flight.front_mut() else { break };
            let count = complete.min(first.count);
            answered(first.at, first.kind, count);
            first.count -= count;
            complete -= count;
            if first.count == 0 {
                self.in_flight.pop_front();
            }
        }
        Ok(())
    }

    /// Lends the commands that stay unanswered: `each(should have been sent at, kind, count)`.
    pub fn give_up(&mut self, mut each: impl FnMut(Ns, usize, u64)) {
        self.in_flight.drain(..).for_each(|sent| each(sent.at, sent.kind, sent.count));
        self.late.drain(..).for_each(|at| each(at, 0, 1));
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wire.as_fd()
    }
}
