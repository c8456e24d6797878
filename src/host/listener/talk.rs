//! The listener's connection, once it is open.

use std::collections::VecDeque;
use std::mem::{replace, take};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio, read, write};

use super::super::PREFIX;
use super::super::scripts::UNSUPPORTED;
use crate::command::{HostPush, SubscriptionKind, read_pushed};
use crate::engine::{Engine, SubscriptionChange, Waker};
use crate::limits::{
    LISTENER_LOGIN, LISTENER_NAP, LISTENER_READ_BYTES, LISTENER_RETRY, NAMES_KEPT,
};

/// A connection to the host.
pub struct ListenerConnection {
    socket: OwnedFd,
    /// What the host has sent, ...
    input: Vec<u8>,
    /// ... and how much of it has been read.
    used: usize,
    /// What the host is to be sent, ...
    output: Vec<u8>,
    /// ... and how much of it has been.
    sent: usize,
    /// What the host has been asked for, in this order, and has not answered.
    asked: VecDeque<SubscriptionChange>,
    /// What it has refused, and is asked for again, ...
    refused: Vec<SubscriptionChange>,
    /// ... and since when there is any.
    refused_at: Instant,
    /// The host has confirmed a subscription.
    has_begun: bool,
}

impl ListenerConnection {
    /// Logs in with a token.
    ///
    /// # Errors
    /// The host's error, or the system's.
    pub fn log_in(socket: OwnedFd, token: &[u8]) -> Result<Self, String> {
        ioctl_fionbio(&socket, true).map_err(|error| error.to_string())?;
        let mut connection = ListenerConnection {
            socket,
            input: Vec::new(),
            used: 0,
            output: Vec::new(),
            sent: 0,
            asked: VecDeque::new(),
            refused: Vec::new(),
            refused_at: Instant::now(),
            has_begun: false,
        };
        connection.say(&[format!("{PREFIX}listen").as_bytes(), token]);
        let until = Instant::now() + LISTENER_LOGIN;
        loop {
            connection.flush()?;
            connection.wait(None, LISTENER_NAP * 10);
            connection.receive()?;
            match read_pushed(&connection.input) {
                Ok(Some((HostPush::Status(_), length))) => {
                    connection.used = length;
                    return Ok(connection);
                }
                Ok(None) if Instant::now() > until => {
                    return Err("the server does not answer".to_owned());
                }
                Ok(None) => {}
                Ok(Some((HostPush::Error(text), _))) => {
                    return Err(told(text));
                }
                _ => return Err("the server speaks another protocol there".to_owned()),
            }
        }
    }

    /// Passes on subscriptions and messages until the connection ends. Returns why it has, and
    /// whether a new one may do better at once: the host has taken subscriptions. `heard` is told
    /// of the first of them (`None`), and of refusals.
    pub fn talk(
        &mut self,
        engine: &Engine,
        waker: &Waker,
        heard: &mut dyn FnMut(Option<&str>),
    ) -> (String, bool) {
        loop {
            if let Err(why) = self.turn(engine, waker, heard) {
                return (why, self.has_begun);
            }
        }
    }

    fn turn(
        &mut self,
        engine: &Engine,
        waker: &Waker,
        heard: &mut dyn FnMut(Option<&str>),
    ) -> Result<(), String> {
        let is_all_heard = self.hear(engine, heard)?;
        if !self.refused.is_empty() && self.refused_at.elapsed() >= LISTENER_RETRY {
            engine.pubsub.ask_again(&take(&mut self.refused));
        }
        // What has been confirmed may have to change again.
        for change in engine.pubsub.take_changes() {
            let (kind, name, begins) = &change;
            self.say(&[request(*kind, *begins).as_bytes(), name]);
            self.asked.push_back(change);
        }
        self.flush()?;
        if !is_all_heard {
            std::thread::sleep(LISTENER_NAP);
            return Ok(());
        }
        let is_settled = self.refused.is_empty();
        self.wait(Some(waker), if is_settled { Duration::from_secs(60) } else { LISTENER_RETRY });
        waker.clear();
        self.receive()
    }

    /// Takes what has come. False if the workers must catch up before the rest.
    fn hear(
        &mut self,
        engine: &Engine,
        heard: &mut dyn FnMut(Option<&str>),
    ) -> Result<bool, String> {
        loop {
            if engine.pubsub.is_behind() {
                return Ok(false);
            }
            let Some((pushed, length)) = read_pushed(&self.input[self.used..])
                .map_err(|_| "the server has sent something unexpected".to_owned())?
            else {
                return Ok(true);
            };
            self.used += length;
            match pushed {
                HostPush::Message { kind, name, channel, payload } => {
                    let Some(ports) = engine.context().outside.ports() else { continue };
                    for (workers, message) in engine.pubsub.hear(kind, name, channel, payload) {
                        workers.iter().for_each(|&worker| ports.hear(worker, &message));
                    }
                }
                HostPush::Confirmed(kind, name, is_there) => {
                    // It also ends subscriptions by itself.
                    let is_answer = |asked: &SubscriptionChange| {
                        asked.0 == kind && *asked.1 == *name && asked.2 == is_there
                    };
                    if self.asked.front().is_some_and(is_answer) {
                        self.asked.pop_front();
                    }
                    if self.asked.is_empty() {
                        self.asked.shrink_to(NAMES_KEPT);
                    }
                    if !replace(&mut self.has_begun, true) {
                        heard(None);
                    }
                    engine.pubsub.confirmed(kind, name, is_there);
                }
                HostPush::Status(_) => {}
                HostPush::Error(text) => {
                    let why = told(text);
                    let Some(change) = self.asked.pop_front() else { return Err(why) };
                    heard(Some(&why));
                    if self.refused.is_empty() {
                        self.refused_at = Instant::now();
                    }
                    if engine.pubsub.refused(&change, &why) {
                        self.refused.push(change);
                    }
                }
            }
        }
    }

    /// Adds a command to the output.
    fn say(&mut self, words: &[&[u8]]) {
        self.output.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            self.output.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            self.output.extend_from_slice(word);
            self.output.extend_from_slice(b"\r\n");
        }
    }

    /// Sends as much as the socket takes.
    fn flush(&mut self) -> Result<(), String> {
        while self.sent < self.output.len() {
            match write(&self.socket, &self.output[self.sent..]) {
                Ok(bytes) => self.sent += bytes,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        // Not each time: moving the rest would cost more than sending.
        if self.sent > self.output.len() / 2 {
            self.output.drain(..std::mem::take(&mut self.sent));
            self.output.shrink_to(LISTENER_READ_BYTES);
        }
        Ok(())
    }

    /// Waits until something has come, or may be sent, or the waker is called.
    fn wait(&self, waker: Option<&Waker>, at_most: Duration) {
        let mut events = PollFlags::IN;
        events.set(PollFlags::OUT, !self.output.is_empty());
        let mut watched = vec![PollFd::from_borrowed_fd(self.socket.as_fd(), events)];
        watched.extend(waker.map(|waker| PollFd::from_borrowed_fd(waker.as_fd(), PollFlags::IN)));
        let limit = Timespec {
            tv_sec: at_most.as_secs() as i64,
            tv_nsec: i64::from(at_most.subsec_nanos()),
        };
        // An interrupted wait is a short wait.
        let _ = poll(&mut watched, Some(&limit));
    }

    /// Takes what has come, as much as is read at once.
    fn receive(&mut self) -> Result<(), String> {
        self.input.drain(..self.used);
        self.used = 0;
        if self.input.is_empty() {
            self.input.shrink_to(LISTENER_READ_BYTES);
        }
        let before = self.input.len();
        self.input.resize(before + LISTENER_READ_BYTES, 0);
        let received = read(&self.socket, &mut self.input[before..]);
        self.input.truncate(before + *received.as_ref().unwrap_or(&0));
        match received {
            Ok(0) => Err("the server has closed it".to_owned()),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Why the host has refused something. While a script of the ports' clients yields, the host judges
/// the rights to a command before it would answer BUSY, and by the name that midi gives it then.
fn told(error: &[u8]) -> String {
    let error = String::from_utf8_lossy(error);
    let is_renamed = error.contains(UNSUPPORTED);
    let error = if is_renamed { "BUSY a script of midi's port is running" } else { &error };
    format!("the server says: {error}")
}

fn request(kind: SubscriptionKind, begins: bool) -> &'static str {
    match (kind, begins) {
        (SubscriptionKind::Channel, true) => "SUBSCRIBE",
        (SubscriptionKind::Pattern, true) => "PSUBSCRIBE",
        (SubscriptionKind::Shard, true) => "SSUBSCRIBE",
        (SubscriptionKind::Channel, false) => "UNSUBSCRIBE",
        (SubscriptionKind::Pattern, false) => "PUNSUBSCRIBE",
        (SubscriptionKind::Shard, false) => "SUNSUBSCRIBE",
    }
}
