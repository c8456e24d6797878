//! Long commands: their replies come from other threads in pieces.

use super::RespReply;
use crate::command::Reply;
use crate::engine::JobReply;
use crate::limits::PART_BYTES;
use crate::net::client::Client;
use crate::net::shared::PortMessage;
use crate::net::transport::Output;
use crate::net::waiting::WaitingConnection;
use crate::store::{SharedValue, StringRef};

/// A reply that another thread writes, sent to the connection in pieces.
pub struct PortReply {
    to: WaitingConnection,
    client: u64,
    resp3: bool,
    said: Output,
    /// The position of the log that it must wait for; 0 for none.
    seen: u64,
    /// It must wait for all that has been done when it is written.
    sees_all: bool,
    /// At most this many bytes may wait for the client.
    most: usize,
    /// The whole reply would exceed `most`.
    is_too_large: bool,
}

impl PortReply {
    /// A reply for this client, in RESP3 or RESP2.
    pub fn new(to: WaitingConnection, client: &Client, resp3: bool) -> Box<Self> {
        Box::new(PortReply {
            most: to.most_output(),
            to,
            client: client.id,
            resp3,
            said: Output::default(),
            seen: 0,
            sees_all: false,
            is_too_large: false,
        })
    }

    /// For a command that the host runs: its changes, and those of its job, are all the main
    /// thread's, which does not tell which positions they have.
    pub fn seeing_all(mut self: Box<Self>) -> Box<Self> {
        self.sees_all = true;
        self
    }

    fn seen(&self) -> u64 {
        if self.sees_all { self.to.last_position() } else { self.seen }
    }

    /// Writes the rest of the reply, or all of it, and sends it.
    pub fn say(mut self, rest: impl FnOnce(&mut dyn Reply)) {
        rest(&mut self);
        self.send_last();
    }

    fn send_last(self) {
        if self.is_too_large || self.said.len() > self.most {
            return self.to.ends(PortMessage::TooLarge);
        }
        let seen = self.seen();
        self.to.ends(|key| PortMessage::Part { key, said: self.said, seen, last: true });
    }

    fn resp(&mut self) -> RespReply<'_> {
        RespReply::new(&mut self.said, self.resp3).up_to(self.most)
    }
}

impl Reply for PortReply {
    fn simple(&mut self, text: &'static str) {
        self.resp().simple(text);
    }
    fn null(&mut self) {
        self.resp().null();
    }
    fn integer(&mut self, number: i64) {
        self.resp().integer(number);
    }
    fn bulk(&mut self, bytes: &[u8]) {
        self.resp().bulk(bytes);
    }
    fn double(&mut self, text: &str) {
        self.resp().double(text);
    }
    fn verbatim(&mut self, text: &[u8]) {
        self.resp().verbatim(text);
    }
    fn error(&mut self, text: &[u8]) {
        self.resp().error(text);
    }
    fn array(&mut self, len: usize) {
        self.resp().array(len);
    }
    fn map(&mut self, len: usize) {
        self.resp().map(len);
    }
    fn pairs(&mut self, len: usize) {
        self.resp().pairs(len);
    }
    fn pair(&mut self) {
        self.resp().pair();
    }
    fn value(&mut self, value: &StringRef<'_>) {
        self.resp().value(value);
    }
    fn shared(&mut self, value: &SharedValue) {
        self.resp().shared(value);
    }
}

impl JobReply for PortReply {
    fn sink(&mut self) -> &mut dyn Reply {
        if self.said.len() >= PART_BYTES {
            let (said, seen) = (std::mem::take(&mut self.said), self.seen());
            self.to.send(|key| PortMessage::Part { key, said, seen, last: false });
        }
        self
    }

    /// Pieces that were sent need the rest: the next reply after half a reply would break the
    /// protocol.
    fn is_awaited(&self) -> bool {
        self.to.is_there(self.client)
    }

    fn waits_for(&mut self, position: u64) {
        self.seen = self.seen.max(position);
    }

    fn close(&mut self) {
        self.is_too_large = true;
    }

    fn finish(self: Box<Self>) {
        self.send_last();
    }
}
